"""Moves whose regions depend on data: what is read where is told by operands, while it is read.

They are rechunks like concatenation and reshape, but for their tables. An index, a mask with the
counts of its segments, or the places at which sorted runs are split are arrays of the graph like
any other; a gather reads the part of them that a box asks for, and then no more of its data than
that. Nothing is computed here that needs a kernel.
"""

from __future__ import annotations

import math
from abc import abstractmethod
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
# Indices are sorted by where they point: so many bytes are taken for each on the way, besides its own.
INDEX_BYTES = 32
# Where all of an index has to be looked at, so many elements are at a time.
INDEX_PIECE = 2**13


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
    """What filling a box takes besides the box, and the largest box asked of each operand.

    `lent` are the bytes of arrays that operands hand out, `working` those of all others on the way.
    """

    lent: int
    working: int
    boxes: tuple[Shape, ...]


def first_beyond(value: int, operand: int, count: int, operands: Operands) -> int:
    """Where the first of `count` ascending elements of an operand is that is larger than a value; else `count`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        (element,) = operands.read(operand, ((middle, middle + 1),))
        low, high = (low, middle) if element > value else (middle + 1, high)
    return low


class Gather(Move):
    """A move by data."""

    @abstractmethod
    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        """Fill `out` with a box of the result."""

    @abstractmethod
    def demand(self, shape: Shape, itemsize: int) -> Demand:
        """What a box of a shape takes, of results of so many bytes each."""


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
            del data  # before the next stretch is read

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        length = shape[self.axis]
        stretch, data = _stretch(shape, self.axis, itemsize)
        return Demand(stretch + 8 * length, math.prod(shape) * itemsize + INDEX_BYTES * length, (data, (length,)))


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
            del data

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        size = math.prod(shape)
        stretch, data = _stretch(shape, self.axis, itemsize)
        return Demand(stretch + 8 * size, size * (itemsize + INDEX_BYTES), (data, shape))


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
        length = operands.grid(0)[0].length
        at = first_beyond(start, 1, -(-length // self.segment), operands) - 1
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

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        return Demand(self.segment, 16 * self.segment, ((self.segment,), (1,)))


class Assignment(Gather):
    """Data, the first operand, some of whose elements are replaced by those of others."""

    @abstractmethod
    def goes_with(self, below: object) -> bool:
        """Whether this and an assignment to whose result it is made can be one."""

    @abstractmethod
    def joined(self, layers: Sequence[Any]) -> Assignment:
        """Assignments of which each is made to the result of the one before, this the last, as one."""


@dataclass(frozen=True, eq=False)
class Put(Assignment):
    """Data of which rows along an axis are replaced: operands (data, index, rows, index, rows, …).

    An index is one-dimensional int64 within the axis; of equal ones the last counts.
    """

    axis: int
    layers: int = 1
    name: str = "setitem"

    @property
    def key(self) -> Hashable:
        return ("put", self.axis, self.layers)

    def goes_with(self, below: object) -> bool:
        return isinstance(below, Put) and below.axis == self.axis

    def joined(self, layers: Sequence[Put]) -> Put:
        return Put(self.axis, sum(layer.layers for layer in layers))

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        operands.read(0, box, out)
        for layer in range(self.layers):
            self._put(1 + 2 * layer, box, out, operands)

    def _put(self, number: int, box: Box, out: Array, operands: Operands) -> None:
        """Assign by the index that is an operand of a number, and the rows behind it."""
        axis = self.axis
        start, stop = box[axis]
        total = operands.grid(number)[0].length
        most = _longest(out, axis)
        for first in range(0, total, INDEX_PIECE):
            index = operands.read(number, ((first, min(total, first + INDEX_PIECE)),))
            # Of equal positions the last one: the first one in the reversed order.
            hits = np.flatnonzero((index >= start) & (index < stop))[::-1]
            places, which = np.unique(index[hits], return_index=True)
            order = np.argsort(hits[which])
            places, rows = places[order] - start, hits[which][order] + first
            for i, j in _stretches(rows, operands.grid(number + 1)[axis], most):
                top, bottom = int(rows[i]), int(rows[j - 1]) + 1
                data = operands.read(number + 1, (*box[:axis], (top, bottom), *box[axis + 1 :]))
                where: tuple[Any, ...] = (*(slice(None),) * axis, places[i:j])
                out[where] = np.take(data, rows[i:j] - top, axis)
                del data

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        stretch, rows = _stretch(shape, self.axis, itemsize)
        boxes = (shape, *((INDEX_PIECE,), rows) * self.layers)
        return Demand(8 * INDEX_PIECE + stretch, INDEX_BYTES * INDEX_PIECE + stretch, boxes)


@dataclass(frozen=True, eq=False)
class Overlay(Assignment):
    """Data with patches: operands (data, patch, patch, …), each at its own regular region, later ones on top.

    A region is a range per axis, with a step.
    """

    regions: tuple[tuple[range, ...], ...]
    name: str = "setitem"

    @property
    def key(self) -> Hashable:
        return ("overlay", self.regions)

    def goes_with(self, below: object) -> bool:
        return isinstance(below, Overlay)

    def joined(self, layers: Sequence[Overlay]) -> Overlay:
        return Overlay(tuple(region for layer in layers for region in layer.regions))

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
        return Demand(math.prod(shape) * itemsize, 0, (shape,) * (1 + len(self.regions)))


def _met(positions: range, span: tuple[int, int]) -> tuple[int, int]:
    """Which elements of an ascending range lie in a span."""
    start, stop = span
    first = max(0, -(-(start - positions.start) // positions.step))
    last = min(len(positions), -(-(stop - positions.start) // positions.step))
    return first, max(first, last)
