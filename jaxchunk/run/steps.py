"""What a worker has in hand: a step with its leaves, what its task has folded, and outputs to write over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from jaxchunk.graph.grid import Box
from jaxchunk.run.pool import Tab
from jaxchunk.run.stage import Task

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(slots=True)
class Step:
    """One tile of a task, with what it reads."""

    task: Task
    index: tuple[int, ...]
    box: Box
    leaves: list[Array]
    first: bool
    last: bool


class Folded:
    """What a task has folded so far: states, and carries of running folds; `first` is its first step's tile."""

    def __init__(self) -> None:
        self.first: tuple[int, ...] = ()
        self.states: Any = ()
        self.carries: Any = ()
        self.nbytes = 0

    def start(self, index: tuple[int, ...], states: Any) -> None:
        self.first, self.states = index, states
        self.nbytes = sum(s.nbytes for state in states for s in state)

    def take(self) -> tuple[Any, Any]:
        """Both, for a kernel that writes over them."""
        taken = self.states, self.carries
        self.states = self.carries = ()
        return taken


class Spares:
    """A worker's old outputs, for the next step to be written over: no first touch of fresh memory.

    Sinks copy or encode what they are given, so outputs are free again once they are delivered.
    """

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self._tile: tuple[int, ...] | None = None
        self._arrays: Any = ()
        self._nbytes = 0

    def take(self, tile: tuple[int, ...], kernels: Any) -> Any:
        """Arrays for a tile's outputs; none where the kernel makes new ones."""
        if tile != self._tile:
            self.drop()
            self._nbytes = sum(s.dtype.itemsize * int(np.prod(s.shape)) for s in kernels.spares(tile))
            self.tab.hold(self._nbytes)
            self._arrays = kernels.new_spares(tile)
            self._tile = tile
        arrays, self._arrays = self._arrays, ()
        return arrays

    def give(self, arrays: Any) -> None:
        self._arrays = arrays

    def drop(self) -> None:
        self._arrays, self._tile = (), None
        self.tab.release(self._nbytes)
        self._nbytes = 0
