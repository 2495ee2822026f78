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

    def add(self, task: Task, index: tuple[int, ...], states: tuple[Any, ...]) -> None:
        """Take one task's states; finish the tile where they were the last ones it waited for."""
        if self.total == 1:
            self._finish(index, states)
            return
        key = tuple(0 if a in self.plan.dropped else i for a, i in enumerate(index))
        nbytes = sum(s.nbytes for state in states for s in state)
        self.run.tab.hold(nbytes)
        with self._lock:
            self._waiting[key][self._rank(task)] = states
            done, joined = self._joined.pop(key, (0, None))
            waiting = self._waiting[key]
            while done in waiting:
                state = waiting.pop(done)
                if joined is None:
                    joined = state
                else:
                    tile = box_shape(self.stage.box(index))
                    joined = self.stage.kernels.combine(self.number, tile).call(joined, state)
                    jax.block_until_ready(joined)
                    self.run.tab.release(nbytes)
                done += 1
            if done < self.total:
                self._joined[key] = (done, joined)
                return
            del self._waiting[key]
        self._finish(key, joined)
        self.run.tab.release(nbytes)

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
        need = sum(output.dtype.itemsize for output in self.plan.outputs) * size + int(kernel.temp_bytes or size * 8)
        with self.run.pool.holding(need):
            results = self.run.call(kernel, kept_box, leaves, states)
            self.run.counters.add(compute_seconds=time.perf_counter() - started)
            for output, value in zip(self.plan.outputs, results, strict=True):
                self.run.deliver(output, index, kept_box, np.asarray(value))
