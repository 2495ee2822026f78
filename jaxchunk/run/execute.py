"""The local executor: a stage's tasks on threads, each reading, computing and writing its tiles."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

import jax
import numpy as np

from jaxchunk.errors import MemoryBudgetError
from jaxchunk.graph.grid import Box, box_shape
from jaxchunk.run.chunks import ChunkCache
from jaxchunk.run.groups import GroupState
from jaxchunk.run.interrupt import Interrupt
from jaxchunk.run.ledger import Ledger
from jaxchunk.run.pool import Pool, Tab
from jaxchunk.run.pressure import Attempt, is_out_of_memory, not_there
from jaxchunk.run.profile import StageCounters
from jaxchunk.run.read import Reader
from jaxchunk.run.spread import Jobs, in_turn
from jaxchunk.run.stage import Leaf, Stage

Array: TypeAlias = np.ndarray[Any, Any]


# Set on threads that work on a task: what asks for an array there is told to ask before.
in_task = threading.local()


@contextlib.contextmanager
def inside_task() -> Iterator[None]:
    """While a task runs, or a function is traced for one."""
    before = getattr(in_task, "active", False)
    in_task.active = True
    try:
        yield
    finally:
        in_task.active = before


def _do(job: Callable[[], None]) -> None:
    try:
        job()
    except BaseException as error:
        # The block that it was to fill goes back: other jobs may be waiting for it.
        traceback.clear_frames(error.__traceback__)
        raise


# Seconds before a task by itself is tried again that a device had no memory for.
PAUSES = (0.0, 0.1, 0.4)

# Leaves of more bytes are worth the microseconds that it takes to have them back at once.
LARGE = 2**20


class _Over(Exception):
    """Ends a task of a run that has failed elsewhere."""


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


class StageRun:
    """One stage while it runs.

    Attributes
    ----------
    grown
        Bytes reserved beyond the plan, for kernels that need more than the model has.

    Parameters
    ----------
    on_task
        Called after each task with (stage, tasks done).
    relieve
        Frees all memory that the library can do without.
    turn
        The stages that take turns with this one, itself included: they share decoded chunks.
    """

    def __init__(
        self,
        stage: Stage,
        ledger: Ledger,
        pool: Pool,
        cache: ChunkCache,
        interrupt: Interrupt,
        on_task: Callable[[Stage, int], None],
        turn: Sequence[Stage],
        relieve: Callable[[], None],
    ) -> None:
        self.stage, self.ledger, self.pool, self.cache = stage, ledger, pool, cache
        self.interrupt, self.on_task, self.relieve = interrupt, on_task, relieve
        self.counters = StageCounters(stage.name)
        self.workers = max(1, min(stage.in_flight, stage.tasks))
        self._io = ThreadPoolExecutor(stage.io_threads, "jaxchunk-io") if stage.io_threads > 1 else None
        self.reader = Reader(turn, pool, cache, self.counters, self.spread)
        self.groups = [GroupState(self, number) for number in range(len(stage.groups))]
        self._lock = threading.Lock()
        self._done = 0
        self._error: BaseException | None = None
        self._again: list[Attempt] = []
        self._short: BaseException | None = None
        self._tries = self._done_before = 0
        self.grown = 0
        self._yielded = 0  # bytes of the same kind that chunks were to have
        self.tab = Tab(pool)

    def spread(self, jobs: Jobs) -> None:
        """Run independent jobs, on several threads where this stage's tasks leave cores idle."""
        if self._io is None or len(jobs) < 2:
            in_turn(jobs)
            return
        futures = [self._io.submit(_do, job) for job in jobs]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        wait(futures)
        for future in futures:
            if not future.cancelled():
                future.result()

    def __enter__(self) -> StageRun:
        self._peak_before = self.ledger.begin_lap()
        return self

    def run(self, strip: tuple[int, ...] = ()) -> None:
        """Do the stage's tasks, or those of one strip."""
        started = time.perf_counter()
        self._tasks: Iterator[Attempt] = map(Attempt, self.stage.task_list(strip))
        try:
            self._run_workers()
            while self._short is not None and self._error is None:
                self._make_do()
                self._run_workers()
        finally:
            self.counters.seconds += time.perf_counter() - started
        if self._error is not None:
            # The blocks that the frames of a fault refer to go back, also where the fault is kept.
            traceback.clear_frames(self._error.__traceback__)
            raise self._error

    def _run_workers(self) -> None:
        if self.workers == 1:
            self._work()
            return
        self._start_and_join(
            [threading.Thread(target=self._work, name=f"jaxchunk-{i}", daemon=True) for i in range(self.workers)]
        )

    def _make_do(self) -> None:
        """After a device had no memory for a task, though the plan did, and all others have ended: go on with less.

        Whatever can be is let go of, and half as many tasks run at once from here on. It is over where one
        alone has been tried some times, with pauses for others to let go of theirs, and none was done.
        """
        assert self._short is not None
        error, self._short = self._short, None
        self._tries = 0 if self._done > self._done_before or self.workers > 1 else self._tries + 1
        self._done_before = self._done
        if self._tries > len(PAUSES):
            raise not_there(self.stage, self.stage.kernels.device, self.ledger.budget, error) from error
        self.relieve()
        if self._tries:
            time.sleep(PAUSES[self._tries - 1])
        self.workers = max(1, self.workers // 2)
        again, self._again = self._again, []
        self._tasks = itertools.chain(again, self._tasks)

    def __exit__(self, *_: object) -> None:
        """Give back whatever the stage still holds."""
        if self._io is not None:
            self._io.shutdown()
        # What refers back to this run would keep the values it read alive until garbage is collected.
        self.groups.clear()
        del self.reader
        self.tab.close()
        self.pool.trim(self.stage.reserve)
        self.ledger.unreserve(self.grown)
        self.counters.grown_bytes = self.grown
        self.counters.held_peak_bytes = self.ledger.end_lap(self._peak_before)
        self.counters.finish(self.workers)

    def _start_and_join(self, threads: list[threading.Thread]) -> None:
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException as error:
            # A second Ctrl-C, or no more threads: let the steps at hand end, start no more.
            self._fail(error)
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _check(self) -> None:
        """Before each step: end the task where the run is to end."""
        self.interrupt.check()
        if self._error is not None:
            raise _Over

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._error is None:
                self._error = error

    def _work(self) -> None:
        with inside_task():
            self._work_on()

    def _work_on(self) -> None:
        spares = Spares(self.tab)
        # Asked for while the user traces a function with JAX, values are computed and not traced.
        with jax.enable_x64(True), jax.core.eval_context():
            while True:
                with self._lock:
                    over = self._error is not None or self._short is not None
                    attempt = None if over else next(self._tasks, None)
                if attempt is None:
                    break
                try:
                    self._task(attempt, spares)
                    self._report()
                except BaseException as error:
                    if is_out_of_memory(error):
                        self._put_back(attempt, error)
                        break
                    if isinstance(error, Exception):
                        where = f"(asked for at {self.stage.where}), task {attempt.task.outer}"
                        error.add_note(f"while computing {self.stage.name} {where}")
                    self._fail(error)
                    break
        spares.drop()

    def _put_back(self, attempt: Attempt, error: BaseException) -> None:
        """Have a task done again when all others have ended, and no more begun until then."""
        traceback.clear_frames(error.__traceback__)  # what it holds goes back
        self._let_go(attempt)
        with self._lock:
            self._again.append(attempt)
            self._short = error.with_traceback(None)

    def _let_go(self, attempt: Attempt) -> None:
        """A task has no states any more."""
        self.tab.release(attempt.state_bytes)
        attempt.state_bytes = 0

    def _report(self) -> None:
        with self._lock:
            self._done += 1
            done = self._done
        self.counters.add(tasks=1)
        self.on_task(self.stage, done)

    def _task(self, attempt: Attempt, spares: Spares) -> None:
        attempt.begin()
        stage, task = self.stage, attempt.task
        states: Any = None
        carries: Any = ()
        first: tuple[int, ...] | None = None
        for index in stage.steps_of(task):
            self._check()
            box = stage.box(index)
            leaves = self.reader.leaves(stage.leaves, box)
            if stage.kernels is None:
                tile = leaves.pop()
                for output in stage.outputs:
                    attempt.once(self.deliver, output, index, box, tile)
                del tile
                continue
            if states is None:
                first = index
                states = stage.kernels.initial_states(box_shape(box))
                attempt.state_bytes = sum(s.nbytes for state in states for s in state)
                self.tab.hold(attempt.state_bytes)
            if stage.ordered is not None and index[stage.ordered] == 0:
                carries = stage.kernels.initial_carries(box_shape(box))
            states, carries = self._step(attempt, index, box, leaves, spares, states, carries)
            leaves.clear()  # before the next step's are read
        if stage.groups and first is not None:
            for group in self.groups:
                group.add(attempt, first, tuple(states[f] for f in group.plan.folds))
        self._let_go(attempt)

    def _step(
        self,
        attempt: Attempt,
        index: tuple[int, ...],
        box: Box,
        leaves: list[Array],
        spares: Spares,
        states: Any,
        carries: Any,
    ) -> Any:
        stage = self.stage
        tile = box_shape(box)
        kernel = stage.kernels.step(tile)
        started = time.perf_counter()
        old = spares.take(tile, stage.kernels)
        out_bytes = 0 if old else sum(output.nbytes(index, box) for output in stage.outputs)
        carry_bytes = sum(c.nbytes for c in carries)
        temp_bytes = self.temporaries(kernel)
        with self.pool.holding(out_bytes + 2 * carry_bytes + temp_bytes):
            outputs, states, carries = self.call(kernel, box, leaves, old, states, carries)
            self.counters.add(compute_seconds=time.perf_counter() - started)
            results = [np.asarray(value) for value in outputs]
            for output, result in zip(stage.outputs, results, strict=True):
                attempt.once(self.deliver, output, index, box, result)
        if old:
            spares.give(outputs)
        return states, carries

    def temporaries(self, kernel: Any) -> int:
        """What a step kernel needs for itself, reserved also where the model was too small."""
        stage = self.stage
        # No figure, or zero, is no reason to believe that nothing is needed.
        nbytes = int(kernel.temp_bytes or stage.temporaries)
        with self._lock:
            lacking = (nbytes - stage.temporaries) * self.workers - self.grown - self._yielded
            if lacking > 0 and self.ledger.reserved + lacking <= self.ledger.budget:
                self.ledger.reserve(lacking)
                self.grown += lacking
            elif lacking > 0:
                if not self.cache.give_way(lacking):
                    raise MemoryBudgetError(
                        f"{stage.name}, asked for at {stage.where}, needs {lacking:,} bytes more than were planned for "
                        f"its kernels, and the budget of {self.ledger.budget:,} is taken: a fault of the library's "
                        "memory model; a larger host_memory helps"
                    )
                self._yielded += lacking
        return nbytes + stage.scratch

    def call(self, kernel: Any, box: Box, leaves: list[Array], *states: Any) -> Any:
        """Call a kernel on a tile and wait for it; aligned blocks become device arrays without a copy on a CPU."""
        kernels = self.stage.kernels
        arrays = tuple(jax.device_put(leaf, kernels.device, may_alias=True) for leaf in leaves)
        results = kernel.call(kernels.params(), self.stage.starts(box), arrays, *states)
        jax.block_until_ready(results)
        del arrays
        if sum(leaf.nbytes for leaf in leaves) > LARGE:
            # The next step takes these blocks again, if JAX has let go of them by then.
            self.pool.settle()
        return results

    def deliver(self, output: Any, index: tuple[int, ...], box: Box, tile: Array) -> None:
        """Pass one tile of a result on, without the axes that it doesn't keep."""
        kept_index = tuple(index[a] for a in output.kept)
        kept_box = output.box(index, box)
        tile = output.shaped(index, box, tile)
        for sink in output.sinks:
            sink.put(kept_index, kept_box, tile, self)

    def group_leaves(self, leaves: list[Leaf], box: Box) -> list[Array]:
        return self.reader.leaves(leaves, box)
