"""Running sums and products along an axis, block after block.

Along any axis but the last a block is done row by row. Along the last, stretches of it are laid side
by side, so that they can be done row by row as well, and what comes before each is added after.
Loops run as fast here as trees of additions, and compile in a third of the time.
A running sum of float32 is carried from block to block in float64, so that it neither drifts nor
stops growing however long the axis is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._values import aligned

_VECTOR = 128
_SHORTEST = 16
_WIDER = {np.dtype("float32"): np.dtype("float64"), np.dtype("complex64"): np.dtype("complex128")}


@dataclass(frozen=True)
class Running:
    """A running fold by one operation; a `jaxchunk.graph.primitives.Scanner`.

    Parameters
    ----------
    name
        Of the function that it stands for.
    join
        The operation.
    first
        What it starts from.
    wide
        Whether the carry of single precision is kept in double precision.
    """

    name: str
    join: Callable[[Any, Any], Any]
    first: int
    wide: bool

    @property
    def key(self) -> Hashable:
        return self.name

    def start(self, dtype: DType) -> Any:
        """The carry of the first block, as a NumPy scalar of the carry's dtype."""
        carried = _WIDER.get(dtype, dtype) if self.wide else dtype
        return carried.type(self.first)

    def scan(self, carry: Any, value: Any, axis: int) -> tuple[Any, Any]:
        """The carry after a block and the block's results; the carry has size 1 along the axis."""
        return self._stretches(carry, value) if axis == value.ndim - 1 else self._rows(carry, value, axis)

    def _stretches(self, carry: Any, value: Any) -> tuple[Any, Any]:
        last, lead = value.ndim - 1, value.shape[:-1]
        length = value.shape[last]
        count = stretches(math.prod(lead), length)
        size = -(-length // count)
        # What the last stretch lacks is filled with what changes nothing.
        rest = [(0, 0, 0)] * last + [(0, count * size - length, 0)]
        side_by_side = lax.reshape(lax.pad(value, value.dtype.type(self.first), rest), (*lead, count, size))
        nothing = lax.full((*lead, count, 1), self.first, carry.dtype)
        totals, within = self._rows(nothing, side_by_side, last + 1)
        carry_out, after = self._rows(carry, lax.squeeze(totals, (last + 1,)), last)
        before = lax.concatenate([carry, lax.slice_in_dim(after, 0, count - 1, axis=last)], last)
        results = aligned(self.join)(lax.expand_dims(before, (last + 1,)), convert(within, carry.dtype))
        results = lax.reshape(convert(results, value.dtype), (*lead, count * size))
        return carry_out, lax.slice_in_dim(results, 0, length, axis=last)

    def _rows(self, carry: Any, value: Any, axis: int) -> tuple[Any, Any]:
        def row(running: Any, row: Any) -> tuple[Any, Any]:
            running = self.join(running, convert(row, running.dtype))
            return running, convert(running, row.dtype)

        order = (axis, *(a for a in range(value.ndim) if a != axis))
        back = tuple(sorted(range(value.ndim), key=order.__getitem__))
        last, rows = lax.scan(row, lax.squeeze(carry, (axis,)), lax.transpose(value, order))
        return lax.expand_dims(last, (axis,)), lax.transpose(rows, back)


def stretches(rows: int, length: int) -> int:
    """Into how many stretches to cut so many rows: vectors of 128 elements, but stretches of 16 at least."""
    return max(1, min(-(-_VECTOR // rows), length // _SHORTEST))


CUMULATIVE_SUM = Running("cumulative_sum", lax.add, 0, wide=True)
# A product that overflows stays infinite, so its carry has the dtype's own range.
CUMULATIVE_PROD = Running("cumulative_prod", lax.mul, 1, wide=False)
