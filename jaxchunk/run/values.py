"""Intermediates: arrays that one stage makes and another reads, in host memory or on disk."""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jaxchunk.graph.grid import Box, Grid, block_box, box_shape, numblocks, shape_of
from jaxchunk.run.ledger import Ledger
from jaxchunk.run.pool import Pool
from jaxchunk.run.spill import spilling
from jaxchunk.run.spread import Jobs, Spread, in_turn
from jaxchunk.run.views import Span, Window

Array: TypeAlias = np.ndarray[Any, Any]
_tokens = itertools.count()

# Runs of fewer bytes are read together with what lies between them, unless they are further apart.
SHORT_RUN = 4096
SHORT_GAP = 16384
# Smaller blocks are written before another thread would have begun.
SPREAD_BYTES = 2**18
# Elements that lie so far apart are read one by one.
FAR = 16


class HostValue:
    """Blocks in memory, each the result of one task.

    Its bytes are held in the ledger until `close`, or until nobody refers to it any more.
    """

    tier = "host"

    def __init__(self, grid: Grid, dtype: np.dtype[Any], name: str, ledger: Ledger) -> None:
        self.grid, self.dtype, self.name, self.ledger = grid, dtype, name, ledger
        self.shape = shape_of(grid)
        self.blocks: dict[tuple[int, ...], Array] = {}
        self._account = _Account(ledger)
        weakref.finalize(self, self._account.clear)

    @property
    def nbytes(self) -> int:
        return self._account.held

    @property
    def reserved(self) -> int:
        return self._account.reserved

    def put(self, index: tuple[int, ...], box: Box, block: Array, pool: Pool, spread: Spread = in_turn) -> None:
        """Keep a copy of a block: what comes may be a pool block, or written over later."""
        self._account.add(block.nbytes, pool)
        self.blocks[index] = np.array(block, order="C")

    def fill(self, window: Window, out: Array) -> None:
        for index, part, target in window_blocks(self.grid, window):
            out[target] = self.blocks[index][part]

    def close(self) -> None:
        self.blocks.clear()
        self._account.clear()

    def reserve(self, nbytes: int) -> None:
        """Reserve for all of its blocks, until it is closed or gone."""
        self.ledger.reserve(nbytes)
        self._account.reserved += nbytes


class _Account:
    """What a value holds, and has reserved, in the ledger; apart from it, so that its finalizer can refer to it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.held = 0
        self.reserved = 0

    def add(self, nbytes: int, pool: Pool) -> None:
        pool.hold(nbytes)
        self.held += nbytes

    def clear(self) -> None:
        self.ledger.release(self.held)
        self.ledger.unreserve(self.reserved)
        self.held = self.reserved = 0


class DiskValue:
    """Blocks in one raw file, each at its own offset; the file goes when nobody refers to the value."""

    tier = "disk"
    reserved = 0

    def __init__(self, grid: Grid, dtype: np.dtype[Any], name: str, directory: Path) -> None:
        self.grid, self.dtype, self.name = grid, dtype, name
        self.shape = shape_of(grid)
        self.path = directory / f"value-{os.getpid()}-{next(_tokens)}.raw"
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._counts = numblocks(grid)
        self._stride = dtype.itemsize
        for axis in grid:
            self._stride *= axis.largest
        self._finalizer = weakref.finalize(self, _remove, self._file, self.path)

    def _offset(self, index: tuple[int, ...]) -> int:
        flat = 0
        for i, n in zip(index, self._counts, strict=True):
            flat = flat * n + i
        return flat * self._stride

    def put(self, index: tuple[int, ...], box: Box, tile: Array, pool: Pool, spread: Spread = in_turn) -> None:
        """Write a tile, which holds blocks whole."""
        window = tuple(Span(a, b - a) for a, b in box)
        jobs: Jobs = []
        for block, inside, target in window_blocks(self.grid, window):
            part = tile[target]
            if part.shape != box_shape(block_box(self.grid, block)):
                raise AssertionError(f"tile {box} cuts block {block} of {self.name}: {inside}")
            jobs.append(partial(self._put_block, block, part, pool))
        (spread if self._stride >= SPREAD_BYTES else in_turn)(jobs)

    def _put_block(self, block: tuple[int, ...], part: Array, pool: Pool) -> None:
        with pool.holding(0 if part.flags.c_contiguous else part.nbytes):
            data = _bytes_of(np.ascontiguousarray(part))
            with spilling(self.name, self.path):
                _write_all(self._file, data, self._offset(block))

    def fill(self, window: Window, out: Array, pool: Pool) -> int:
        """Read a window: of each block the runs that it meets, or what lies between them where they are short.

        Returns how many bytes were read, those in between included.
        """
        nbytes = 0
        for index, part, target in window_blocks(self.grid, window):
            shape = tuple(b - a for a, b in (axis.block(i) for axis, i in zip(self.grid, index, strict=True)))
            nbytes += self._fill_block(self._offset(index), shape, part, out[target], pool)
        return nbytes

    def _fill_block(self, offset: int, shape: tuple[int, ...], part: tuple[slice, ...], out: Array, pool: Pool) -> int:
        # Along the last axes that are wanted whole, and a range of the one before them, bytes run on.
        run = len(shape)
        while run > 0 and part[run - 1] == slice(0, shape[run - 1], 1):
            run -= 1
        run = max(run - 1, 0)
        inner = math.prod(shape[run + 1 :]) * self.dtype.itemsize
        outer = part[:run]
        stepped = run < len(shape) and part[run].step != 1
        rows = math.prod(len(range(p.start, p.stop, p.step)) for p in outer)
        length = (part[run].stop - part[run].start) * inner if shape else inner
        apart = math.prod(shape[run:]) * self.dtype.itemsize
        if rows > 1 and length < SHORT_RUN and outer and apart <= SHORT_GAP:
            return self._fill_slab(offset, shape, part, out, pool)
        nbytes = 0
        strides = [math.prod(shape[a + 1 :]) * self.dtype.itemsize for a in range(len(shape))]
        for place in np.ndindex(*(len(range(p.start, p.stop, p.step)) for p in outer)):
            at = offset + sum((p.start + i * p.step) * s for p, i, s in zip(outer, place, strides, strict=False))
            at += part[run].start * inner if shape else 0
            piece = out[(*place, ...)]
            if stepped and part[run].step >= FAR:
                for i in range(piece.shape[0]):
                    one = np.empty(piece.shape[1:], self.dtype)
                    self._read(one, at + i * part[run].step * inner)
                    piece[i] = one
                nbytes += piece.nbytes
            elif not stepped and piece.flags.c_contiguous:
                self._read(piece, at)
                nbytes += piece.nbytes
            else:
                count = (part[run].stop - part[run].start) if shape else 1
                scratch = pool.take((count, *shape[run + 1 :]) if shape else (), self.dtype)
                self._read(scratch, at)
                nbytes += scratch.nbytes
                piece[...] = scratch[:: part[run].step] if shape else scratch
        return nbytes

    def _fill_slab(self, offset: int, shape: tuple[int, ...], part: tuple[slice, ...], out: Array, pool: Pool) -> int:
        # Of leading axes of which one element is wanted no more than that is read.
        wanted = [len(range(p.start, p.stop, p.step)) for p in part]
        lead = next((a for a, n in enumerate(wanted) if n > 1), 0)
        for a in range(lead):
            offset += part[a].start * math.prod(shape[a + 1 :]) * self.dtype.itemsize
        first, last = part[lead].start, part[lead].stop
        slab = pool.take((last - first, *shape[lead + 1 :]), self.dtype)
        self._read(slab, offset + first * math.prod(shape[lead + 1 :]) * self.dtype.itemsize)
        found = slab[(slice(None, None, part[lead].step), *part[lead + 1 :])]
        out[...] = found.reshape(out.shape)
        return slab.nbytes

    def _read(self, out: Array, offset: int) -> None:
        _read_all(self._file, _bytes_of(out), offset)

    def close(self) -> None:
        self._finalizer()


def window_blocks(grid: Grid, window: Window) -> Any:
    """(block index, its part, where that lands in the window) for each block a window meets."""
    per_axis = []
    for axis, span in zip(grid, window, strict=True):
        entries = []
        for i in axis.overlapping(span.start, span.stop):
            start, stop = axis.block(i)
            # The first of the span's positions in this block, and how many there are.
            skip = max(0, -(-(start - span.start) // span.step))
            first = span.start + skip * span.step
            count = min(span.count - skip, -(-(stop - first) // span.step))
            if count > 0:
                inside = slice(first - start, first - start + (count - 1) * span.step + 1, span.step)
                entries.append((i, inside, slice(skip, skip + count)))
        per_axis.append(entries)
    for combination in itertools.product(*per_axis):
        yield (
            tuple(e[0] for e in combination),
            tuple(e[1] for e in combination),
            (..., *(e[2] for e in combination)),
        )


def _bytes_of(array: Array) -> memoryview:
    flat: Any = array.reshape(-1).view(np.uint8)
    return memoryview(flat)


def _write_all(file: int, data: memoryview, offset: int) -> None:
    while data.nbytes:
        done = os.pwrite(file, data, offset)
        data, offset = data[done:], offset + done


def _read_all(file: int, data: memoryview, offset: int) -> None:
    while data.nbytes:
        done = os.preadv(file, [data], offset)
        if done == 0:
            raise OSError("a spilled intermediate is shorter than it was written")
        data, offset = data[done:], offset + done


def _remove(file: int, path: Path) -> None:
    os.close(file)
    path.unlink(missing_ok=True)


class Slot:
    """An intermediate as it is planned: its shape, grid and tier are known, its value once a stage made it."""

    def __init__(self, grid: Grid, dtype: np.dtype[Any], name: str, tier: str) -> None:
        self.grid, self.dtype, self.name, self.tier = grid, dtype, name, tier
        self.shape = shape_of(grid)
        self.value: HostValue | DiskValue | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.dtype.itemsize * math.prod(self.shape) - self.file_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes on disk."""
        return self.dtype.itemsize * math.prod(self.shape) if self.tier == "disk" else 0

    def begin(self, ledger: Ledger, directory: Callable[[], Path]) -> None:
        if self.tier == "host":
            self.value = HostValue(self.grid, self.dtype, self.name, ledger)
            self.value.reserve(self.nbytes)
        else:
            self.value = DiskValue(self.grid, self.dtype, self.name, directory())

    def free(self) -> None:
        """Give up the value, and what was reserved for it."""
        if self.value is not None:
            self.value.close()
            self.value = None

    def take(self) -> HostValue | DiskValue:
        """The value, which lives from here on as long as somebody refers to it."""
        value, self.value = self.value, None
        assert value is not None
        return value
