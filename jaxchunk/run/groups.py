"""Folds across tasks: states are joined in the order of the tasks, so results never depend on scheduling."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxchunk.graph.grid import box_shape
from jaxchunk.run.pressure import Attempt
from jaxchunk.run.stage import Task

if TYPE_CHECKING:
    from jaxchunk.run.execute import StageRun


class GroupState:
    """The states of one group that aren't finished yet, by the tile of the kept axes they belong to."""

    def __init__(self, run: StageRun, number: int) -> None:
        self.run, self.number = run, number
        self.stage = run.stage
        self.plan = run.stage.groups[number]
        folded = [a for a in self.stage.outer if a in self.plan.dropped]
        self._folded = [self.stage.outer.index(a) for a in folded]
        self._counts = [self.stage.tiles[a].nblocks for a in folded]
        self.total = math.prod(self._counts) * self.stage.parts
        self._waiting: dict[tuple[int, ...], dict[int, Any]] = defaultdict(dict)
        self._joined: dict[tuple[int, ...], tuple[int, Any]] = {}
        self._lock = threading.Lock()

    def add(self, attempt: Attempt, index: tuple[int, ...], states: tuple[Any, ...]) -> None:
        """Take one task's states; finish the tile where they were the last ones it waited for."""
        if self.total == 1:
            attempt.once(self._finish, index, states)
            return
        key = tuple(0 if a in self.plan.dropped else i for a, i in enumerate(index))
        attempt.once(self._put, key, self._rank(attempt.task), states)
        attempt.once(self._join, key, index)

    def _put(self, key: tuple[int, ...], rank: int, states: tuple[Any, ...]) -> None:
        self.run.tab.hold(_nbytes(states))
        with self._lock:
            self._waiting[key][rank] = states

    def _join(self, key: tuple[int, ...], index: tuple[int, ...]) -> None:
        """Join a tile's states that are there, up to the first that is lacking; nothing is lost where that fails."""
        with self._lock:
            waiting = self._waiting[key]
            done, joined = self._joined.get(key, (0, None))
            while done in waiting:
                if joined is None:
                    joined = waiting[done]
                else:
                    tile = box_shape(self.stage.box(index))
                    joined = self.stage.kernels.combine(self.number, tile).call(joined, waiting[done])
                    jax.block_until_ready(joined)
                    self.run.tab.release(_nbytes(joined))
                del waiting[done]
                done += 1
                self._joined[key] = done, joined
            if not waiting:
                del self._waiting[key]
            if done < self.total:  # or another task has finished it
                return
            del self._joined[key]
        try:
            self._finish(key, joined)
        except BaseException:
            with self._lock:
                self._joined[key] = done, joined
            raise
        self.run.tab.release(_nbytes(joined))

    def _rank(self, task: Task) -> int:
        rank = 0
        for position, count in zip(self._folded, self._counts, strict=True):
            rank = rank * count + task.outer[position]
        return rank * self.stage.parts + task.part

    def _finish(self, index: tuple[int, ...], states: Any) -> None:
        """Make the results of a tile of the kept axes."""
        started = time.perf_counter()
        box = self.stage.box(index)
        kept_box = tuple((0, 1) if a in self.plan.dropped else span for a, span in enumerate(box))
        leaves = self.run.group_leaves(self.plan.leaves, kept_box)
        kernel = self.stage.kernels.finish(self.number, box_shape(kept_box))
        size = int(np.prod(box_shape(kept_box), dtype=np.int64))
        temporaries = 8 * size if kernel.temp_bytes is None else kernel.temp_bytes
        need = sum(output.dtype.itemsize for output in self.plan.outputs) * size + temporaries
        with self.run.pool.holding(need):
            results = self.run.call(kernel, kept_box, leaves, states)
            self.run.counters.add(compute_seconds=time.perf_counter() - started)
            tiles = [np.asarray(value) for value in results]
            for output, tile in zip(self.plan.outputs, tiles, strict=True):
                self.run.deliver(output, index, kept_box, tile)


def _nbytes(states: tuple[Any, ...]) -> int:
    return sum(s.nbytes for state in states for s in state)
