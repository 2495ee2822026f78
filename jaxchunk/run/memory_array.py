"""Arrays in the user's memory, as the graph sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxchunk.graph.grid import Grid


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

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.values.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.values.dtype
        return dtype
