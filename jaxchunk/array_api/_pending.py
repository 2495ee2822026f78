"""Arrays whose shape depends on values: selections by a mask, unique elements, repeats by counts.

Their nodes are made the first time that a shape is needed, which takes a run that counts; what can
do without a shape works on the parts. So `mean(x[x > 0])` reads `x` once and counts as it goes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxchunk.array_api import _build, _gather, _views
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._build import DType
from jaxchunk.graph.node import Node


class Pending:
    """An array that has no node yet.

    Parameters
    ----------
    dtype, shape
        None stands for a size that isn't known.
    make
        Makes the node; may run. Called once, from whichever thread needs the node first.
    """

    def __init__(self, dtype: DType, shape: tuple[int | None, ...], device: Any, make: Callable[[], Node]) -> None:
        self.dtype, self.shape, self.device = dtype, shape, device
        self._make = make
        self._made: Node | None = None
        self._lock = threading.RLock()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def node(self) -> Node:
        """The array's node; the first time, whatever has to be counted for it is counted."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made


class Found:
    """Where a one-dimensional mask is true: counted once for all arrays that depend on it."""

    def __init__(self, mask: Node) -> None:
        self.mask = mask
        self._positions: Node | None = None
        self._lock = threading.RLock()

    def positions(self) -> Node:
        """The positions, int64; a short mask is computed instead of counted."""
        with self._lock:
            if self._positions is None:
                self._positions = self._find()
            return self._positions

    def _find(self) -> Node:
        from jaxchunk.plan.api import compute_nodes

        mask = self.mask
        if mask.size <= _gather.FEW:
            (values,) = compute_nodes([mask])
            return _build.pinned(_gather.in_memory(np.flatnonzero(values)), mask.device)
        (count,) = compute_nodes([_build.fold(reducers.CountNonzero(), (mask,), (0,), _gather.INT64)])
        return _gather.positions(mask, int(count))


class Selected(Pending):
    """Elements of `values` along its first axis, where a mask is true.

    Elementwise functions of it, and folds over all of it or along that axis, go without the count.
    """

    def __init__(self, values: Node, found: Found) -> None:
        super().__init__(values.dtype, (None, *values.shape[1:]), values.device, self._select)
        self.values, self.found = values, found

    def _select(self) -> Node:
        return _gather.take(self.values, self.found.positions(), 0)

    def mask_like(self) -> Node:
        """The mask, broadcast over the other axes of the values."""
        mask = self.found.mask
        return _views.expand_dims(mask, range(1, self.ndim)) if self.ndim > 1 else mask
