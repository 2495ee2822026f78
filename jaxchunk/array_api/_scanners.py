"""Running sums and products along an axis, block after block.

Along the last axis a block is done by a tree of vector operations, along any other row by row.
A running sum of float32 is carried from block to block in float64, so that it neither drifts nor
stops growing however long the axis is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._values import aligned

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
        return self._tree(carry, value) if axis == value.ndim - 1 else self._rows(carry, value, axis)

    def _tree(self, carry: Any, value: Any) -> tuple[Any, Any]:
        axis = value.ndim - 1
        within = lax.associative_scan(self.join, value, axis=axis)
        wide = aligned(self.join)(carry, convert(within, carry.dtype))
        return lax.slice_in_dim(wide, value.shape[axis] - 1, None, axis=axis), convert(wide, value.dtype)

    def _rows(self, carry: Any, value: Any, axis: int) -> tuple[Any, Any]:
        def row(running: Any, row: Any) -> tuple[Any, Any]:
            running = self.join(running, convert(row, running.dtype))
            return running, convert(running, row.dtype)

        order = (axis, *(a for a in range(value.ndim) if a != axis))
        back = tuple(sorted(range(value.ndim), key=order.__getitem__))
        last, rows = lax.scan(row, lax.squeeze(carry, (axis,)), lax.transpose(value, order))
        return lax.expand_dims(last, (axis,)), lax.transpose(rows, back)


CUMULATIVE_SUM = Running("cumulative_sum", lax.add, 0, wide=True)
# A product that overflows stays infinite, so its carry has the dtype's own range.
CUMULATIVE_PROD = Running("cumulative_prod", lax.mul, 1, wide=False)
