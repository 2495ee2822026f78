"""Where results go: an array that is handed out, a value for later stages, a stored array."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from jaxchunk.graph.grid import Box, Grid, block_box, box_shape
from jaxchunk.graph.primitives import Check
from jaxchunk.run.spread import Jobs
from jaxchunk.run.values import Slot
from jaxchunk.run.views import region

Array: TypeAlias = np.ndarray[Any, Any]


class ResultSink:
    """Tiles of a NumPy array that will be the user's."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype
        self.array: Array = np.empty(0)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def begin(self, runtime: Any) -> None:
        runtime.ledger.reserve(self.nbytes)
        runtime.pool.hold(self.nbytes)
        self.array = np.empty(self.shape, self.dtype)

    def end(self, runtime: Any) -> None:
        """Out of the ledger: the array is the user's from here on, or given up."""
        runtime.ledger.release(self.nbytes)
        runtime.ledger.unreserve(self.nbytes)

    def put(self, index: tuple[int, ...], box: Box, tile: Array, run: Any) -> None:
        region(self.array, box)[...] = tile


class CheckSink:
    """Looks at tiles and keeps nothing: raises where one shows a fault."""

    def __init__(self, check: Check) -> None:
        self.check = check

    def begin(self, runtime: Any) -> None:
        """Nothing to be made."""

    def put(self, index: tuple[int, ...], box: Box, tile: Array, run: Any) -> None:
        self.check(tile, box)


class ValueSink:
    """Blocks of an intermediate: its grid is the stage's tile grid, so a tile is a block."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def put(self, index: tuple[int, ...], box: Box, tile: Array, run: Any) -> None:
        value = self.slot.value
        assert value is not None
        started = time.perf_counter()
        value.put(index, box, tile, run.pool, run.spread)
        if value.tier == "disk":
            run.counters.add(spilled_bytes=tile.nbytes, write_seconds=time.perf_counter() - started)


class WriteSink:
    """Whole write units of a stored array: the planner sees to it that tiles hold them whole.

    Parameters
    ----------
    grid
        The write units.
    encode_bytes
        What writing one takes besides its values.
    open_target
        Makes the target, when the stage begins.
    name
        The target's, for people.
    """

    def __init__(self, grid: Grid, encode_bytes: int, open_target: Callable[[], Any], name: str) -> None:
        self.grid, self.encode_bytes, self._open, self.name = grid, encode_bytes, open_target, name
        self.target: Any = None

    def begin(self, runtime: Any) -> None:
        self.target = self._open()

    def put(self, index: tuple[int, ...], box: Box, tile: Array, run: Any) -> None:
        grid = self.grid
        ranges = [axis.overlapping(a, b) for axis, (a, b) in zip(grid, box, strict=True)]
        jobs: Jobs = []
        for unit in np.ndindex(*(len(r) for r in ranges)):
            unit_index = tuple(r[i] for r, i in zip(ranges, unit, strict=True))
            unit_box = block_box(grid, unit_index)
            part = region(tile, tuple((a - c, b - c) for (a, b), (c, _) in zip(unit_box, box, strict=True)))
            if part.shape != box_shape(unit_box):
                raise AssertionError(f"tile {box} cuts the stored chunk {unit_box}")
            jobs.append(partial(self._write, unit_index, part, run))
        run.spread(jobs)

    def _write(self, index: tuple[int, ...], part: Array, run: Any) -> None:
        started = time.perf_counter()
        copied = 0 if part.flags.c_contiguous else part.nbytes
        with run.pool.holding(self.encode_bytes + copied):
            self.target.write_chunk(index, np.asarray(part, order="C"))
        run.counters.add(bytes_written=part.nbytes, write_seconds=time.perf_counter() - started)
