"""Moves whose regions depend on data: what is read where is told by operands, while it is read.

They are rechunks like concatenation and reshape, but for their tables. An index, a mask with the
counts of its segments, or the places at which sorted runs are split are arrays of the graph like
any other; a gather reads the part of them that a box asks for, and then no more of its data than
that. Nothing is computed here that needs a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from jaxchunk.graph.grid import Box, Grid
from jaxchunk.graph.primitives import Move

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]

# A gather reads a stretch of its data of so many bytes, or as many as the box has, whatever is more.
STRETCH_BYTES = 2**18
# Indices are sorted by where they point: so many bytes are taken for each on the way.
INDEX_BYTES = 40


class Operands(Protocol):
    """How a gather reads its operands."""

    def read(self, operand: int, box: Box, out: Array | None = None) -> Array:
        """A box of an operand, in `out` where that is given."""
        ...

    def empty(self, operand: int, shape: Shape) -> Array:
        """An array of an operand's dtype to work in."""
        ...

    def grid(self, operand: int) -> Grid: ...


class Demand(NamedTuple):
    """What filling a box takes: bytes besides the box, and the largest box asked of each operand."""

    nbytes: int
    boxes: tuple[Shape, ...]


class Gather(Move):
    """A move by data."""

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        """Fill `out` with a box of the result."""
        raise NotImplementedError

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        """What a box of a shape takes, of results of so many bytes each."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Take(Gather):
    """Elements along an axis at the positions that a one-dimensional int64 operand gives.

    Operands are (data, index); the index lies within the axis.
    """

    axis: int
    name: str = "take"

    @property
    def key(self) -> Hashable:
        return ("take", self.axis)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        axis = self.axis
        index = operands.read(1, (box[axis],))
        order = np.argsort(index, kind="stable")
        ordered = index[order]
        for first, last in _stretches(ordered, operands.grid(0)[axis], _longest(out, axis)):
            start, stop = int(ordered[first]), int(ordered[last - 1]) + 1
            data = operands.read(0, (*box[:axis], (start, stop), *box[axis + 1 :]))
            where: tuple[Any, ...] = (*(slice(None),) * axis, order[first:last])
            out[where] = np.take(data, ordered[first:last] - start, axis)

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        length = shape[self.axis]
        stretch, data = _stretch(shape, self.axis, itemsize)
        return Demand(stretch + math.prod(shape) * itemsize + INDEX_BYTES * length, (data, (length,)))


def _longest(out: Array, axis: int) -> int:
    """How many elements along an axis to read at once for a box."""
    return _stretch(out.shape, axis, out.dtype.itemsize)[1][axis]


def _stretch(shape: Shape, axis: int, itemsize: int) -> tuple[int, Shape]:
    """Bytes and shape of the largest stretch that is read at once for a box of a shape."""
    across = itemsize * math.prod(n for a, n in enumerate(shape) if a != axis)
    length = max(1, max(across * shape[axis], STRETCH_BYTES) // max(1, across))
    return across * length, (*shape[:axis], length, *shape[axis + 1 :])


def _stretches(ordered: Array, cuts: Any, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of ascending positions that lie in one block of an axis, and in at most so many elements."""
    first = 0
    while first < len(ordered):
        start = int(ordered[first])
        _, end = cuts.block(cuts.find(start))
        last = int(np.searchsorted(ordered, min(end, start + most)))
        yield first, last
        first = last


@dataclass(frozen=True, eq=False)
class TakeAlong(Gather):
    """out[…, i, …] = data[…, index[…, i, …], …]: operands (data, index) have the same other axes."""

    axis: int
    name: str = "take_along_axis"

    @property
    def key(self) -> Hashable:
        return ("take_along_axis", self.axis)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        axis = self.axis
        index = operands.read(1, box)
        positions = np.unique(index)
        for first, last in _stretches(positions, operands.grid(0)[axis], _longest(out, axis)):
            start, stop = int(positions[first]), int(positions[last - 1]) + 1
            data = operands.read(0, (*box[:axis], (start, stop), *box[axis + 1 :]))
            inside = (index >= start) & (index < stop)
            found = np.take_along_axis(data, np.where(inside, index - start, 0), axis)
            np.copyto(out, found, where=inside)

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        size = math.prod(shape)
        stretch, data = _stretch(shape, self.axis, itemsize)
        return Demand(stretch + size * (itemsize + INDEX_BYTES), (data, shape))


@dataclass(frozen=True, eq=False)
class Positions(Gather):
    """Where a one-dimensional mask is true, as int64, in order.

    Operands are (mask, before): `before` has, for each segment of `segment` elements of the mask,
    how many are true before it, and the total at the end.
    """

    segment: int
    name: str = "nonzero"

    @property
    def key(self) -> Hashable:
        return ("positions", self.segment)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        ((start, stop),) = box
        (length,) = (axis.length for axis in operands.grid(0))
        at = self._segment_of(start, -(-length // self.segment), operands)
        done = start
        while done < stop:
            first = at * self.segment
            mask = operands.read(0, ((first, min(length, first + self.segment)),))
            found = np.flatnonzero(mask)
            (before,) = operands.read(1, ((at, at + 1),))
            wanted = found[done - before : stop - before]
            out[done - start : done - start + len(wanted)] = wanted + first
            done += len(wanted)
            at += 1

    def _segment_of(self, rank: int, segments: int, operands: Operands) -> int:
        """The segment that holds the true element of a rank: the last one with no more before it."""
        low, high = 0, segments
        while high - low > 1:
            middle = (low + high) // 2
            (before,) = operands.read(1, ((middle, middle + 1),))
            low, high = (middle, high) if before <= rank else (low, middle)
        return low

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        return Demand(17 * self.segment + 4096, ((self.segment,), (1,)))


@dataclass(frozen=True, eq=False)
class Put(Gather):
    """Data of which rows along an axis are replaced: operands (data, index, rows).

    The index is one-dimensional int64 within the axis; of equal ones the last counts.
    """

    axis: int
    name: str = "setitem"

    @property
    def key(self) -> Hashable:
        return ("put", self.axis)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        axis = self.axis
        operands.read(0, box, out)
        start, stop = box[axis]
        total = operands.grid(1)[0].length
        most = _longest(out, axis)
        for first in range(0, total, STRETCH_BYTES // 8):
            index = operands.read(1, ((first, min(total, first + STRETCH_BYTES // 8)),))
            # Of equal positions the last one: the first one in the reversed order.
            hits = np.flatnonzero((index >= start) & (index < stop))[::-1]
            places, which = np.unique(index[hits], return_index=True)
            order = np.argsort(hits[which])
            places, rows = places[order] - start, hits[which][order] + first
            for i, j in _stretches(rows, operands.grid(2)[axis], most):
                top, bottom = int(rows[i]), int(rows[j - 1]) + 1
                data = operands.read(2, (*box[:axis], (top, bottom), *box[axis + 1 :]))
                where: tuple[Any, ...] = (*(slice(None),) * axis, places[i:j])
                out[where] = np.take(data, rows[i:j] - top, axis)

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        stretch, rows = _stretch(shape, self.axis, itemsize)
        return Demand(5 * STRETCH_BYTES + 2 * stretch, (shape, (STRETCH_BYTES // 8,), rows))


@dataclass(frozen=True, eq=False)
class Overlay(Gather):
    """Data with patches: operands (data, patch, patch, …), each at its own regular region, later ones on top.

    A region is a range per axis, with a step.
    """

    regions: tuple[tuple[range, ...], ...]
    name: str = "setitem"

    @property
    def key(self) -> Hashable:
        return ("overlay", self.regions)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        operands.read(0, box, out)
        for number, region in enumerate(self.regions, start=1):
            met = [_met(positions, span) for positions, span in zip(region, box, strict=True)]
            if all(first < last for first, last in met):
                where: tuple[Any, ...] = tuple(
                    slice(p[first] - a, p[last - 1] - a + 1, p.step)
                    for p, (first, last), (a, _) in zip(region, met, box, strict=True)
                )
                out[(..., *where)] = operands.read(number, tuple(met))

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        return Demand(math.prod(shape) * itemsize, (shape,) * (1 + len(self.regions)))


def _met(positions: range, span: tuple[int, int]) -> tuple[int, int]:
    """Which elements of an ascending range lie in a span."""
    start, stop = span
    first = max(0, -(-(start - positions.start) // positions.step))
    last = min(len(positions), -(-(stop - positions.start) // positions.step))
    return first, max(first, last)


@dataclass(frozen=True, eq=False)
class Merge(Gather):
    """Sorted runs as groups in order: any part of a group, read from between splits and put in order.

    Operands are (rows, starts). `rows`, (lanes, n, columns), are runs of `run` rows that are sorted by
    their first `keys` columns; `fan` runs make a group. `starts`, (lanes, blocks, fan), has for each
    block of `block` rows of the result where in each run of its group it begins: all before are in
    blocks before.
    """

    run: int
    fan: int
    block: int
    length: int
    keys: int
    name: str = "merge"

    @property
    def key(self) -> Hashable:
        return ("merge", self.run, self.fan, self.block, self.length, self.keys)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        (lane0, lane1), (start, stop), columns = box
        group = self.run * self.fan
        for lane in range(lane0, lane1):
            for g in range(start // group, -(-stop // group)):
                lo, hi = max(start, g * group), min(stop, (g + 1) * group)
                first, last = lo // self.block, -(-hi // self.block)
                rows = self._between(lane, g, first, last, operands)
                base = first * self.block
                out[lane - lane0, lo - start : hi - start] = rows[lo - base : hi - base, slice(*columns)]

    def _between(self, lane: int, g: int, first: int, last: int, operands: Operands) -> Array:
        """Rows of the blocks [first, last) of one group, in order."""
        begin = g * self.run * self.fan
        lengths = np.clip(self.length - begin - self.run * np.arange(self.fan), 0, self.run)
        end = begin + int(lengths.sum())
        columns = operands.grid(0)[2].length
        starts = self._splits(lane, first, operands)
        stops = lengths if last * self.block >= end else self._splits(lane, last, operands)
        rows = operands.empty(0, (1, int((stops - starts).sum()), columns))
        at = 0
        for r, (lo, hi) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if lo < hi:
                span = (begin + r * self.run + lo, begin + r * self.run + hi)
                operands.read(0, ((lane, lane + 1), span, (0, columns)), rows[:, at : at + hi - lo])
                at += hi - lo
        (flat,) = rows
        if columns == 1:
            flat[:, 0].sort()  # in place; equal rows are the same
        else:
            flat[...] = flat[order_of(flat[:, : self.keys])]
        return flat

    def _splits(self, lane: int, block: int, operands: Operands) -> Array:
        return operands.read(1, ((lane, lane + 1), (block, block + 1), (0, self.fan)))[0, 0]

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        # Blocks that the box cuts are put in order whole.
        rows = (shape[1] + 2 * self.block) * itemsize * shape[2]
        nbytes = rows if shape[2] == 1 else 3 * rows
        return Demand(nbytes + 64 * self.fan + 4096, ((1, self.run, shape[2]), (1, 1, self.fan)))


@dataclass(frozen=True, eq=False)
class Splits(Gather):
    """Where sorted runs are split so that each block of the merged result has its exact number of rows.

    Operands are (rows, samples) as for `Merge`; `samples` has every `step`-th row, and `step` divides `run`. The
    result is (lanes, blocks, fan), int64. Rows are ordered by their first `keys` columns, equal ones by
    their runs.

    The samples bound each split to a window of a few steps in each run: a sample that is the i-th of
    all has at least (i + 1) · step - fan · (step - 1) rows up to it, and at most (i + 1) · step.
    Windows are read, and the split is the exact one among their rows.
    """

    run: int
    fan: int
    block: int
    length: int
    step: int
    keys: int
    itemsize: int
    name: str = "splits"

    @property
    def key(self) -> Hashable:
        return ("splits", self.run, self.fan, self.block, self.length, self.step, self.keys)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        (lane0, lane1), (k0, k1), (r0, r1) = box
        group = self.run * self.fan
        for lane in range(lane0, lane1):
            for g in range(k0 * self.block // group, -(-k1 * self.block // group)):
                ks = range(max(k0, g * group // self.block), min(k1, -(-(g + 1) * group // self.block)))
                ranks = [k * self.block - g * group for k in ks]
                starts = self._group(lane, g, ranks, operands)
                out[lane - lane0, ks.start - k0 : ks.stop - k0] = starts[:, r0:r1]

    def _group(self, lane: int, g: int, ranks: Sequence[int], operands: Operands) -> Array:
        """The splits of one group at the given ranks within it."""
        per_run = self.run // self.step
        first = g * self.run * self.fan
        lengths = np.clip(self.length - first - self.run * np.arange(self.fan), 0, self.run)
        counts = -(-lengths // self.step)
        total = int(counts.sum())
        begin = g * self.fan * per_run
        samples = operands.read(1, ((lane, lane + 1), (begin, begin + total), (0, self.keys)))[0]
        run_of = np.repeat(np.arange(self.fan, dtype=np.int32), counts)[order_of(samples)]
        starts = np.zeros((len(ranks), self.fan), np.int64)
        for row, rank in enumerate(ranks):
            low = rank // self.step
            high = min(total, -(-(rank + self.fan * (self.step - 1)) // self.step))
            below = np.bincount(run_of[:low], minlength=self.fan)
            above = np.bincount(run_of[:high], minlength=self.fan)
            lo = np.maximum(0, (below - 1) * self.step + 1) * (below > 0)
            hi = np.minimum(lengths, above * self.step)
            starts[row] = lo + self._among(lane, first, lo, hi, rank - int(lo.sum()), operands)
        return starts

    def _among(self, lane: int, first: int, lo: Array, hi: Array, rank: int, operands: Operands) -> Array:
        """How many of each run's rows in its window are among the first `rank` of all of them."""
        if rank <= 0:
            return np.zeros(self.fan, np.int64)
        windows = [
            operands.read(0, ((lane, lane + 1), (first + r * self.run + a, first + r * self.run + b), (0, self.keys)))[
                0
            ]
            for r, (a, b) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True))
        ]
        rows = np.concatenate(windows)
        run_of = np.repeat(np.arange(self.fan, dtype=np.int32), hi - lo)
        return np.bincount(run_of[order_of(rows)[:rank]], minlength=self.fan)

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        samples = self.fan * -(-self.run // self.step)
        window = 2 * (self.fan + 1) * self.step
        row = self.keys * self.itemsize
        nbytes = 4 * samples + max(samples * (row + 16), window * (2 * row + 16)) + 16 * self.fan * (shape[1] + 8)
        return Demand(nbytes, ((1, self.step, self.keys), (1, samples, self.keys)))


def order_of(rows: Array) -> Array:
    """The order of rows by all their columns, equal ones as they come."""
    if rows.shape[1] == 1:
        return np.argsort(rows[:, 0], kind="stable")
    return np.lexsort(rows.T[::-1])
