"""Leaves of a tile: from stores, values and arrays in memory into pooled blocks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from jaxchunk.graph.grid import Axis, Box, block_box, box_shape
from jaxchunk.run.chunks import ChunkCache
from jaxchunk.run.memory_array import MemoryArray
from jaxchunk.run.pool import Pool, block_bytes
from jaxchunk.run.spread import Jobs, Spread, in_turn
from jaxchunk.run.stage import Leaf, Stage
from jaxchunk.run.values import DiskValue, HostValue, Slot, window_blocks
from jaxchunk.run.views import Pieced, Window, fill_pieced, fill_view
from jaxchunk.store.stored import StoredArray

Array: TypeAlias = np.ndarray[Any, Any]


# Small chunks are read in batches of so many bytes: what a job costs by itself is paid once for each.
BATCH_BYTES = 2**20

Parts: TypeAlias = list[tuple[tuple[slice, ...], Array]]
"""The parts of a chunk that are wanted, and where each goes."""

Wanted: TypeAlias = dict[StoredArray, dict[tuple[int, ...], Parts]]
"""By array and chunk, all that is to be read."""


class Reader:
    """Reads for one stage.

    Parameters
    ----------
    stages
        Those that share decoded chunks: the stage itself, and what takes turns with it.
    spread
        Runs the jobs that it is divided into.
    """

    def __init__(
        self, stages: Sequence[Stage], pool: Pool, cache: ChunkCache, counters: Any, spread: Spread = in_turn
    ) -> None:
        self.stages, self.pool, self.cache, self.counters, self.spread = stages, pool, cache, counters, spread
        self._once: dict[int, bool] = {}

    def leaves(self, leaves: Sequence[Leaf], box: Box) -> list[Array]:
        """The leaves' tiles with the space's axes, size 1 on those that one doesn't follow.

        A chunk that several of them meet is decoded once.
        """
        wanted: Wanted = {}
        tiles = [self._tile(leaf, box, wanted) for leaf in leaves]
        self._read(wanted)
        return tiles

    def _tile(self, leaf: Leaf, box: Box, wanted: Wanted) -> Array:
        """A leaf's tile: what is to be decoded for it isn't there yet."""
        shape = tuple(n if s else 1 for n, s in zip(box_shape(box), leaf.spans, strict=True))
        shared = self._whole_chunk(leaf, box, shape)
        if shared is not None:
            return shared
        out = self.pool.take(shape, leaf.dtype)
        fill_view(leaf.view, box, out, partial(self._fill, wanted))
        return out

    def _whole_chunk(self, leaf: Leaf, box: Box, shape: tuple[int, ...]) -> Array | None:
        """The leaf's tile where it is exactly one block that exists already, or will be shared: no copy."""
        base = leaf.view.base
        if isinstance(base, Slot):
            base = base.value
        if isinstance(base, StoredArray | HostValue) and not any(m.step < 0 for m in leaf.view.maps):
            axes = [m.axis for m in leaf.view.maps if m.axis is not None]
            if axes != sorted(axes):
                return None
            window, _ = leaf.view.window(box)
            index = _block_of(base.grid, window)
            if index is None:
                return None
            if isinstance(base, HostValue):
                return base.blocks[index].reshape(shape)
            uses = self._uses(base, index)
            if uses != 1 or self.cache.wants(base, index, _chunk_bytes(base, index)):
                return self._chunk(base, index, uses).reshape(shape)
        return None

    def _fill(self, wanted: Wanted, base: Any, window: Window, out: Array) -> None:
        """Read a window, or add the chunks that it meets to what is wanted."""
        if isinstance(base, Slot):
            base = base.value
        if isinstance(base, StoredArray):
            chunks = wanted.setdefault(base, {})
            for index, part, target in window_blocks(base.grid, window):
                chunks.setdefault(index, []).append((part, out[target]))
        elif isinstance(base, MemoryArray | HostValue):
            base.fill(window, out)
        elif isinstance(base, DiskValue):
            started = time.perf_counter()
            nbytes = base.fill(window, out, self.pool)
            self.counters.add(spill_read_bytes=nbytes, read_seconds=time.perf_counter() - started)
        elif isinstance(base, Pieced):
            fill_pieced(base, window, out, self._fill_now, self.pool)
        else:
            raise AssertionError(f"no way to read a {type(base).__name__}")

    def _fill_now(self, base: Any, window: Window, out: Array) -> None:
        # Pieces may be put together from scratch arrays, which don't wait.
        wanted: Wanted = {}
        self._fill(wanted, base, window, out)
        self._read(wanted)

    def _read(self, wanted: Wanted) -> None:
        """Read all chunks that are wanted.

        Jobs are partial applications: a fault keeps the functions of its frames alive, and so what
        they close over, but not these.
        """
        jobs: Jobs = []
        for base, chunks in wanted.items():
            batch = max(1, BATCH_BYTES // base.layout.unit_nbytes)
            pairs = list(chunks.items())
            for first in range(0, len(pairs), batch):
                jobs.append(partial(self._read_chunks, base, pairs[first : first + batch]))
        if jobs:
            self.spread(jobs)

    def _read_chunks(self, base: StoredArray, chunks: Sequence[tuple[tuple[int, ...], Parts]]) -> None:
        """Read chunks that no other tile wants into place, or by way of one block; others go through the cache."""
        alone = self._read_once(base) and not self.cache.concerns(base)
        block: Array | None = None
        place: Array | None = None
        for index, parts in chunks:
            shape = box_shape(block_box(base.grid, index))
            uses = len(parts) if alone else self._uses(base, index)
            if not alone and (uses != len(parts) or self.cache.wants(base, index, _chunk_bytes(base, index))):
                block = place = None
                chunk = self._chunk(base, index, uses, len(parts))
            else:
                place = next((out for _, out in parts if out.shape == shape and out.flags.c_contiguous), None)
                if place is None:
                    if block is None or block.shape != shape:
                        block = None  # before another one is taken
                        block = self.pool.take(shape, base.dtype)
                    place = block
                chunk = place
                self._decode(base, index, chunk)
            for part, out in parts:
                if out is not chunk:
                    out[...] = chunk[part]
            del chunk  # before the next one is read

    def _read_once(self, base: StoredArray) -> bool:
        known = self._once.get(id(base))
        if known is None:
            known = self._once[id(base)] = reads_once(self.stages, base)
        return known

    def _chunk(self, base: StoredArray, index: tuple[int, ...], uses: int, now: int = 1) -> Array:
        shape = box_shape(block_box(base.grid, index))

        def decode() -> Array:
            block = self.pool.take(shape, base.dtype)
            self._decode(base, index, block)
            return block

        return self.cache.get(base, index, _chunk_bytes(base, index), uses, decode, now)

    def _decode(self, base: StoredArray, index: tuple[int, ...], out: Array) -> None:
        started = time.perf_counter()
        with self.pool.holding(base.scratch_bytes):
            base.read_chunk(index, out)
        self.counters.read(out.nbytes, time.perf_counter() - started)

    def _uses(self, base: StoredArray, index: tuple[int, ...]) -> int:
        """How many tile reads of this stage meet a chunk; 0 where that can't be told by arithmetic."""
        uses = 0
        for stage in self.stages:
            for leaf in stage.leaves:
                if leaf.view.base is base:
                    uses += chunk_uses(stage, leaf, block_box(base.grid, index))
                elif isinstance(leaf.view.base, Pieced) and _reads(leaf.view.base, base):
                    return 0
            for group in stage.groups:
                if any(leaf.view.base is base or isinstance(leaf.view.base, Pieced) for leaf in group.leaves):
                    return 0
        return uses


def _chunk_bytes(base: StoredArray, index: tuple[int, ...]) -> int:
    """What a decoded chunk takes as a block."""
    return block_bytes(base.dtype.itemsize * math.prod(box_shape(block_box(base.grid, index))))


def reads_once(stages: Sequence[Stage], base: StoredArray) -> bool:
    """Whether stages certainly read each chunk of a source for one tile alone, by arithmetic on the grids."""
    readers = [(stage, leaf) for stage in stages for leaf in stage.leaves if _meets(leaf, base)]
    readers += [(stage, leaf) for stage in stages for group in stage.groups for leaf in group.leaves]
    if len(readers) != 1:
        return False
    (stage, leaf), *_ = readers
    return (
        leaf.view.base is base
        and all(spans or tiles.nblocks == 1 for spans, tiles in zip(leaf.spans, stage.tiles, strict=True))
        and all(
            axis is None
            or stage.tiles[axis].nblocks == 1
            or (step == 1 and _cut_alike(stage.tiles[axis], offset, cuts))
            for cuts, (axis, offset, step) in zip(base.grid, leaf.view.maps, strict=True)
        )
    )


def _meets(leaf: Leaf, base: Any) -> bool:
    return leaf.view.base is base or isinstance(leaf.view.base, Pieced)


def _cut_alike(tiles: Axis, offset: int, chunks: Axis) -> bool:
    """Whether tiles of an axis that begins at an offset end where chunks do."""
    return (
        tiles.is_regular()
        and chunks.is_regular()
        and tiles.largest % chunks.largest == 0
        and offset % chunks.largest == 0
    )


def chunk_uses(stage: Stage, leaf: Leaf, chunk: Box) -> int:
    """How many of a stage's tile reads of a leaf meet a chunk of its base."""
    uses = 1
    for (axis, offset, step), (start, stop) in zip(leaf.view.maps, chunk, strict=True):
        if axis is None:
            if not start <= offset < stop:
                return 0
            continue
        if step < 0:
            lo, hi = -(-(offset - stop + 1) // -step), (offset - start) // -step + 1
        else:
            lo, hi = -(-(start - offset) // step), (stop - 1 - offset) // step + 1
        lo, hi = max(lo, 0), min(hi, stage.space[axis])
        uses *= len(stage.tiles[axis].overlapping(lo, hi))
    for axis, spans in enumerate(leaf.spans):
        if not spans:
            uses *= stage.tiles[axis].nblocks
    return uses


def _reads(pieced: Pieced, base: Any) -> bool:
    return any(
        view.base is base or (isinstance(view.base, Pieced) and _reads(view.base, base)) for view in pieced.operands
    )


def _block_of(grid: Any, window: Window) -> tuple[int, ...] | None:
    """The block that a window is exactly, if it is one."""
    index = []
    for axis, span in zip(grid, window, strict=True):
        if span.step != 1 and span.count > 1:
            return None
        i = axis.find(span.start)
        if axis.block(i) != (span.start, span.start + span.count):
            return None
        index.append(i)
    return tuple(index)
