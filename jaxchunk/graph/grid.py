"""Chunk grids: where each axis of an array is cut, as run-length lists.

A grid costs O(runs), never O(chunks): a regular axis of a million chunks is at most two runs.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

Box: TypeAlias = tuple[tuple[int, int], ...]
"""A half-open (start, stop) interval per axis."""

AUTO_CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Axis:
    """The cuts of one axis: ``runs`` of (count, size), in order; sizes and counts are positive.

    An axis of length 0 has no runs and no blocks.
    """

    runs: tuple[tuple[int, int], ...]

    @staticmethod
    def regular(length: int, size: int, first: int | None = None) -> Axis:
        """Blocks of `size`, the last one shorter where needed; `first` sets another first block."""
        if length == 0:
            return Axis(())
        size = max(1, min(size, length))
        runs: list[tuple[int, int]] = []
        if first is not None and 0 < first < size and first < length:
            runs.append((1, first))
            length -= first
        full, rest = divmod(length, size)
        if full:
            runs.append((full, size))
        if rest:
            runs.append((1, rest))
        return Axis(tuple(runs))

    @staticmethod
    def from_sizes(sizes: Iterable[int]) -> Axis:
        """Run-length encode block sizes; empty blocks are dropped, since no task needs them."""
        runs: list[tuple[int, int]] = []
        for size in sizes:
            if size:
                _append(runs, 1, int(size))
        return Axis(tuple(runs))

    @cached_property
    def length(self) -> int:
        return sum(count * size for count, size in self.runs)

    @cached_property
    def nblocks(self) -> int:
        return sum(count for count, _ in self.runs)

    @cached_property
    def largest(self) -> int:
        """The largest block's size (0 for an empty axis)."""
        return max((size for _, size in self.runs), default=0)

    @cached_property
    def _firsts(self) -> tuple[list[int], list[int]]:
        """For each run, the position and the block index at which it starts."""
        starts, blocks, at, block = [], [], 0, 0
        for count, size in self.runs:
            starts.append(at)
            blocks.append(block)
            at += count * size
            block += count
        return starts, blocks

    def block(self, index: int) -> tuple[int, int]:
        """The (start, stop) of one block."""
        starts, blocks = self._firsts
        run = bisect_right(blocks, index) - 1
        size = self.runs[run][1]
        start = starts[run] + (index - blocks[run]) * size
        return start, start + size

    def find(self, position: int) -> int:
        """The block that holds a position."""
        starts, blocks = self._firsts
        run = bisect_right(starts, position) - 1
        return blocks[run] + (position - starts[run]) // self.runs[run][1]

    def overlapping(self, start: int, stop: int) -> range:
        """The blocks that meet the interval [start, stop)."""
        if stop <= start:
            return range(0)
        return range(self.find(start), self.find(stop - 1) + 1)

    def sizes(self) -> Iterator[int]:
        for count, size in self.runs:
            for _ in range(count):
                yield size

    def is_regular(self) -> bool:
        """Equal blocks, but for a last one that may be shorter: what Zarr can store."""
        return len(self.runs) <= 1 or (
            len(self.runs) == 2 and self.runs[1][0] == 1 and self.runs[1][1] < self.runs[0][1]
        )

    def sliced(self, start: int, stop: int) -> Axis:
        """The cuts that remain in [start, stop): the first and last block may be shorter."""
        runs: list[tuple[int, int]] = []
        at = 0
        for count, size in self.runs:
            lo, hi = max(start, at), min(stop, at + count * size)
            if lo < hi:
                head = min((-(lo - at)) % size, hi - lo)
                full, tail = divmod(hi - lo - head, size)
                for n, s in ((1, head), (full, size), (1, tail)):
                    if n and s:
                        _append(runs, n, s)
            at += count * size
        return Axis(tuple(runs))

    def reversed(self) -> Axis:
        return Axis(tuple(reversed(self.runs)))

    def strided(self, step: int) -> Axis:
        """The cuts of every step-th element: each old block's share, run by run."""
        if step == 1:
            return self
        if len(self.runs) > 64:
            return Axis.regular(-(-self.length // step), max(1, self.largest // step))
        runs: list[tuple[int, int]] = []
        at = 0
        for count, size in self.runs:
            lo, hi = -(-at // step), -(-(at + count * size) // step)
            share = -(-size // step)
            for n, s in Axis.regular(hi - lo, share).runs:
                _append(runs, n, s)
            at += count * size
        return Axis(tuple(runs))

    @staticmethod
    def joined(axes: Iterable[Axis]) -> Axis:
        """One after another, each keeping its cuts."""
        runs: list[tuple[int, int]] = []
        for axis in axes:
            for count, size in axis.runs:
                _append(runs, count, size)
        return Axis(tuple(runs))


def _append(runs: list[tuple[int, int]], count: int, size: int) -> None:
    if runs and runs[-1][1] == size:
        runs[-1] = (runs[-1][0] + count, size)
    else:
        runs.append((count, size))


Grid: TypeAlias = tuple[Axis, ...]


def numblocks(grid: Grid) -> tuple[int, ...]:
    return tuple(axis.nblocks for axis in grid)


def chunksize(grid: Grid) -> tuple[int, ...]:
    return tuple(axis.largest for axis in grid)


def shape_of(grid: Grid) -> tuple[int, ...]:
    return tuple(axis.length for axis in grid)


def block_box(grid: Grid, index: Sequence[int]) -> Box:
    return tuple(axis.block(i) for axis, i in zip(grid, index, strict=True))


def box_shape(box: Box) -> tuple[int, ...]:
    return tuple(stop - start for start, stop in box)


def auto_grid(shape: Sequence[int], itemsize: int, like: Grid | None = None) -> Grid:
    """Blocks of at most 16 MiB by a fixed rule that looks at neither budget nor machine.

    The longest axis is halved until the block fits (ties: the first), so the same array is always
    cut the same way. An axis of `like` is kept where it is given.
    """
    block = [max(1, n) for n in shape]
    while math.prod(block) * itemsize > AUTO_CHUNK_BYTES and max(block) > 1:
        longest = block.index(max(block))
        block[longest] = -(-block[longest] // 2)
    return tuple(Axis.regular(n, b) for n, b in zip(shape, block, strict=True))


ChunksLike: TypeAlias = "int | str | Sequence[int | str | Sequence[int]] | dict[int, int | str | Sequence[int]]"


def normalize_chunks(
    chunks: ChunksLike | None, shape: Sequence[int], itemsize: int, current: Grid | None = None
) -> Grid:
    """The grid that a user's `chunks` stands for.

    Parameters
    ----------
    chunks
        None or "auto": blocks of at most 16 MiB. An int: that size on every axis. A sequence with
        one entry an axis, each an int, -1 (all of the axis), "auto", None (as it is now) or the
        list of block sizes. A dict gives some axes and leaves the others as they are.
    shape, itemsize
        Of the array, in elements and bytes.
    current
        The grid the array has now, for what `chunks` leaves open.

    Raises
    ------
    ValueError
        Sizes that are 0, negative or don't add up to the axis; too many or too few entries.
    TypeError
        Entries that are no integers.
    """
    ndim = len(shape)
    if chunks is None or (isinstance(chunks, str) and chunks == "auto"):
        return auto_grid(shape, itemsize)
    if isinstance(chunks, str):
        raise ValueError(f"chunks={chunks!r}: the only string taken is 'auto'")
    if isinstance(chunks, dict):
        entries: list[object] = [None] * ndim
        for axis, entry in chunks.items():
            if not -ndim <= axis < ndim:
                raise ValueError(f"chunks: axis {axis} of an array with {ndim} axes")
            entries[axis] = entry
    elif isinstance(chunks, Sequence):
        entries = list(chunks)
        if len(entries) != ndim:
            raise ValueError(
                f"chunks={chunks!r} has {len(entries)} entries, but the array has {ndim} axes (shape {tuple(shape)})"
            )
    else:
        entries = [chunks] * ndim
    if current is None:
        current = tuple(Axis.regular(n, n) for n in shape)
    grid = [_axis_from_entry(entry, n, now) for entry, n, now in zip(entries, shape, current, strict=True)]
    autos = [i for i, entry in enumerate(entries) if isinstance(entry, str)]
    while autos and math.prod(max(1, a.largest) for a in grid) * itemsize > AUTO_CHUNK_BYTES:
        longest = max(autos, key=lambda i: grid[i].largest)
        if grid[longest].largest <= 1:
            break
        grid[longest] = Axis.regular(shape[longest], -(-grid[longest].largest // 2))
    return tuple(grid)


def _axis_from_entry(entry: object, length: int, now: Axis) -> Axis:
    if entry is None:
        return now
    if isinstance(entry, str):
        if entry != "auto":
            raise ValueError(f"chunks entry {entry!r}: the only string taken is 'auto'")
        return Axis.regular(length, length)
    if isinstance(entry, Sequence):
        sizes = [_size(s) for s in entry]
        if any(s < 0 for s in sizes) or sum(sizes) != length:
            raise ValueError(f"chunks {tuple(entry)!r} add up to {sum(sizes)}, but the axis has {length}")
        return Axis.from_sizes(sizes)
    size = _size(entry)
    if size == -1:
        return Axis.regular(length, max(1, length))
    if size <= 0:
        raise ValueError(f"chunks entry {size}: a chunk has at least 1 element (-1 stands for the whole axis)")
    return Axis.regular(length, size)


def _size(entry: object) -> int:
    if isinstance(entry, bool) or not hasattr(entry, "__index__"):
        raise TypeError(f"chunks entry {entry!r} of type {type(entry).__name__}: an int, 'auto' or a list of ints")
    return int(entry.__index__())
