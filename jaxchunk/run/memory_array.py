"""Arrays in the user's memory, as the graph sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxchunk.graph.grid import Grid
from jaxchunk.run.views import Window


@dataclass(frozen=True, eq=False)
class MemoryArray:
    """A NumPy array that is read tile by tile.

    Parameters
    ----------
    values
        Of any strides; in the machine's byte order.
    grid
        How it is cut for those who read it.
    """

    values: np.ndarray[Any, Any]
    grid: Grid
    name: str = "array in memory"

    def fill(self, window: Window, out: np.ndarray[Any, Any]) -> None:
        """Read a window."""
        where: tuple[Any, ...] = (..., *(slice(s.start, s.stop, s.step) for s in window))
        out[...] = self.values[where]

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.values.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.values.dtype
        return dtype
