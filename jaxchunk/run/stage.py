"""Stages and tasks as data: what the planner hands to an executor.

A stage goes over an index space, cut into tiles. Its tasks are the tiles of the *outer* axes,
which every result keeps, times the `parts` in which the rest is folded; a task's steps are tiles
of the *inner* axes. Everything about a task follows from its number by arithmetic, so a million
tasks cost as much as one until they run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxchunk.graph.grid import Axis, Box, Grid, block_box, box_shape
from jaxchunk.run.views import View


class Leaf(NamedTuple):
    """What a stage reads: a view whose maps refer to the space's axes; `spans` says which it follows."""

    view: View
    dtype: np.dtype[Any]
    spans: tuple[bool, ...]


class Sink(Protocol):
    """Where a stage's result goes, tile by tile."""

    def put(self, index: tuple[int, ...], box: Box, tile: np.ndarray[Any, Any], run: Any) -> None: ...


@dataclass
class Output:
    """One result of a stage: `kept` are the space's axes that it has, in order.

    `grid` is given where a user's function makes blocks of other shapes than it takes.
    """

    name: str
    kept: tuple[int, ...]
    dtype: np.dtype[Any]
    sinks: list[Any] = field(default_factory=list)
    grid: Grid | None = None

    def box(self, index: Sequence[int], box: Box) -> Box:
        """Where a tile of the stage lies in the result."""
        if self.grid is not None:
            return block_box(self.grid, [index[a] for a in self.kept])
        return tuple(box[a] for a in self.kept)

    def shaped(self, index: Sequence[int], box: Box, tile: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What a kernel gave for a box of the stage, without the axes that the result doesn't keep."""
        shape = box_shape(self.box(index, box))
        if self.grid is not None or tile.shape == shape:
            return tile
        full = tuple(b - a if axis in self.kept else 1 for axis, (a, b) in enumerate(box))
        return np.broadcast_to(tile, full).reshape(shape)

    def nbytes(self, index: Sequence[int], box: Box) -> int:
        """Bytes of the result's tile."""
        return self.dtype.itemsize * math.prod(box_shape(self.box(index, box)))


class StageKernels(Protocol):
    """What an executor wants of the layer above: compiled kernels by shape."""

    device: Any

    def step(self, tile: tuple[int, ...]) -> Any: ...
    def combine(self, group: int, tile: tuple[int, ...]) -> Any: ...
    def finish(self, group: int, tile: tuple[int, ...]) -> Any: ...


@dataclass
class GroupPlan:
    """A group's epilogue: leaves it reads on the kept axes, outputs, and the axes that it folds away."""

    dropped: tuple[int, ...]
    folds: tuple[int, ...]
    leaves: list[Leaf]
    outputs: list[Output]


@dataclass
class Stage:
    """See the module's text.

    Attributes
    ----------
    tiles
        The tile grid, an axis of the space each.
    outer, inner
        Axes in loop order.
    parts
        How many tasks share the inner steps of one outer tile.
    kernels
        None where the stage only moves data.
    outputs
        Results of the step itself, tile by tile; `groups` hold those of folds.
    ordered
        The axis along which a running fold goes, else None: its steps come last in `inner`.
    reserve
        Bytes that the stage may hold at any moment, results that outlive it left out.
    in_flight, io_threads
        Tasks at once, and threads that each reads and writes its chunks on.
    strip_of
        The stage before this one, where the two take turns strip by strip of that one's outer axes.
    temporaries
        What a step kernel is taken to need where the compiler doesn't say.
    scratch
        What it takes besides, unknown to the compiler.
    library_threads
        How many threads LAPACK may use for each of its tasks; None where it has nothing to do.
    cache
        Bytes for decoded chunks that several tasks want.
    """

    number: int
    name: str
    operations: list[str]
    where: str
    space: tuple[int, ...]
    tiles: Grid
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    parts: int
    leaves: list[Leaf]
    outputs: list[Output]
    groups: list[GroupPlan]
    kernels: Any
    ordered: int | None = None
    in_flight: int = 1
    io_threads: int = 1
    reserve: int = 0
    temporaries: int = 0
    scratch: int = 0
    cache: int = 0
    indices: list[tuple[int, int, int]] = field(default_factory=list)
    frees: list[Any] = field(default_factory=list)
    flops: float = 0.0
    strip_of: Stage | None = None
    library_threads: int | None = None

    @property
    def whole_tile(self) -> tuple[int, ...]:
        """The shape of a tile that no edge cuts."""
        return tuple(axis.largest for axis in self.tiles)

    @property
    def steps(self) -> int:
        """Tiles of the inner axes, to all of which an outer tile's tasks come."""
        return math.prod(self.tiles[a].nblocks for a in self.inner)

    @property
    def tasks(self) -> int:
        return math.prod(self.tiles[a].nblocks for a in self.outer) * self.parts

    def task_list(self, strip: tuple[int, ...] = ()) -> Iterator[Task]:
        """Tasks in order, made as they are wanted; of those of one strip of the first outer axes."""
        for rest in itertools.product(*(range(self.tiles[a].nblocks) for a in self.outer[len(strip) :])):
            for part in range(self.parts):
                yield Task(strip + rest, part)

    def strips(self) -> Iterator[tuple[int, ...]]:
        """The index of each tile of the outer axes."""
        return itertools.product(*(range(self.tiles[a].nblocks) for a in self.outer))

    def steps_of(self, task: Task) -> Iterator[tuple[int, ...]]:
        """The tile index of each of a task's steps."""
        counts = [self.tiles[a].nblocks for a in self.inner]
        first, last = task.part * self.steps // self.parts, (task.part + 1) * self.steps // self.parts
        index = [0] * len(self.space)
        for axis, i in zip(self.outer, task.outer, strict=True):
            index[axis] = i
        for flat in range(first, last):
            rest = flat
            for axis, n in zip(reversed(self.inner), reversed(counts), strict=True):
                index[axis] = rest % n
                rest //= n
            yield tuple(index)

    def warm(self) -> None:
        """Compile the step kernel of a whole tile."""
        if self.kernels is not None:
            self.kernels.step(self.whole_tile)

    def starts(self, box: Box) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the index values of a tile begin."""
        return np.array([offset + step * box[axis][0] for axis, offset, step in self.indices], np.int64)

    def box(self, index: Sequence[int]) -> Box:
        return block_box(self.tiles, index)

    def kept_grid(self, kept: Sequence[int]) -> tuple[Axis, ...]:
        return tuple(self.tiles[a] for a in kept)


class Task(NamedTuple):
    outer: tuple[int, ...]
    part: int
