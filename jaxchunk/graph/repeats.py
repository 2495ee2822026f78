"""The move behind `repeat` with an array of counts."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxchunk.graph.gathers import STRETCH_BYTES, Array, Demand, Gather, Operands, Shape, first_beyond
from jaxchunk.graph.grid import Box

# Of each element that is read: where it ends, as it is and in the box, and how often it is repeated.
COUNT_BYTES = 24


@dataclass(frozen=True, eq=False)
class Repeat(Gather):
    """Each element along an axis as often as its count says.

    Operands are (data, ends): `ends`, one-dimensional int64, has for each element how many of the
    result come from it and those before it. A box reads the elements that it repeats, in order, and
    their ends.
    """

    axis: int
    name: str = "repeat"

    @property
    def key(self) -> Hashable:
        return ("repeat", self.axis)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        before, (start, stop), after = box[: self.axis], box[self.axis], box[self.axis + 1 :]
        cuts = operands.grid(0)[self.axis]
        most = self._most(out.shape, out.dtype.itemsize)
        done, at = start, first_beyond(start, 1, operands.grid(1)[0].length, operands)
        while done < stop:
            # A stretch ends where a block of the data does: it is decoded once.
            end = min(cuts.block(cuts.find(at))[1], at + most)
            ends = np.minimum(operands.read(1, ((at, end),)), stop)
            used = min(len(ends), int(np.searchsorted(ends, stop)) + 1)
            counts = np.diff(ends[:used], prepend=done)
            last = int(ends[used - 1])
            if last > done:
                data = operands.read(0, (*before, (at, at + used), *after))
                where: tuple[Any, ...] = (*(slice(None),) * self.axis, slice(done - start, last - start))
                out[where] = np.repeat(data, counts, self.axis)
            done, at = last, at + used

    def _most(self, shape: Shape, itemsize: int) -> int:
        """How many elements along the axis to read at once: as many as a box has, or a stretch of bytes."""
        return max(shape[self.axis], STRETCH_BYTES // (self._across(shape, itemsize) + COUNT_BYTES), 1)

    def _across(self, shape: Shape, itemsize: int) -> int:
        return itemsize * math.prod(n for a, n in enumerate(shape) if a != self.axis)

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        most, across = self._most(shape, itemsize), self._across(shape, itemsize)
        data = (*shape[: self.axis], most, *shape[self.axis + 1 :])
        working = most * (COUNT_BYTES - 8) + shape[self.axis] * across
        return Demand(most * (across + 8), working, (data, (most,)))
