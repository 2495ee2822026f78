"""The process's one runtime: ledger, pool and chunk cache, and runs one at a time."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxchunk.config import Settings
from jaxchunk.run.chunks import ChunkCache
from jaxchunk.run.execute import StageRun, in_task
from jaxchunk.run.interrupt import Interrupt
from jaxchunk.run.keep import Keeper
from jaxchunk.run.ledger import Ledger
from jaxchunk.run.libraries import library_threads
from jaxchunk.run.pool import Pool, set_up_allocator
from jaxchunk.run.profile import StageCounters
from jaxchunk.run.sinks import ResultSink, ValueSink, WriteSink
from jaxchunk.run.spill import require_room, spill_directory
from jaxchunk.run.stage import Stage
from jaxchunk.store.buffers import POOL as ENCODED
from jaxchunk.store.stored import StoredArray

# Idle blocks that stay between runs: NumPy-style loops run often.
IDLE_SHARE = 1 / 8
# Runs of fewer tasks are over before another thread would have helped.
WARM_TASKS = 4


def settle() -> None:
    """Make JAX let go of the host memory that its dead arrays referred to: any transfer does."""
    jax.device_put(np.int8(0), jax.local_devices(backend="cpu")[0])


class Runtime:
    """What all runs share."""

    def __init__(self) -> None:
        set_up_allocator()
        self.ledger = Ledger(0, strict=bool(os.environ.get("JAXCHUNK_STRICT")))
        self.pool = Pool(self.ledger, settle)
        self.cache = ChunkCache(self.ledger)
        self.keeper = Keeper(self.cache)
        self.lock = threading.RLock()
        self.interrupt = Interrupt()
        self._idle_reserved = 0
        self._stray = 0
        self._persisted: int | None = None  # while something runs
        self._spill: dict[Path, Path] = {}

    @contextlib.contextmanager
    def run(self, settings: Settings) -> Iterator[None]:
        """One run at a time; a run inside a task is refused."""
        self.refuse_in_task()
        with self.lock, self.interrupt.deferred():
            self.ledger.budget = settings.budget
            self._keep_idle(0, settings)
            self._persisted = self.persisted
            try:
                yield
            finally:
                self._persisted = None
                self.cache.clear()
                self.cache.lasting = {}
                ENCODED.drop_idle()
                self._keep_idle(IDLE_SHARE, settings)

    def refuse_in_task(self) -> None:
        """A task that waits for another run would wait for itself."""
        if getattr(in_task, "active", False):
            raise RuntimeError("an array was asked for inside a task of another computation: compute it before")

    def count_peaks(self) -> None:
        """Peaks count from here: what made way for the run is gone."""
        self.pool.come_home(self.cache.kept_bytes)
        self.pool.trim()
        self.cache.have_left()
        self.ledger.reserved_peak, self.ledger.held_peak = self.ledger.reserved, self.ledger.held

    @property
    def persisted(self) -> int:
        """Bytes reserved for values that live between runs and aren't dropped for anything; what runs isn't counted."""
        if self._persisted is not None:
            return self._persisted
        kept = self.keeper.remembered + self.cache.kept_bytes + self.cache.leaving
        return self.ledger.reserved - self._idle_reserved - kept

    @property
    def buffers_reserved(self) -> tuple[int, int]:
        """Bytes reserved between runs for the pool's blocks: idle ones, and those that are lent all the same."""
        return self._idle_reserved, self._stray

    @property
    def spill_directories(self) -> list[Path]:
        """Where values have been spilled by this process."""
        return list(self._spill.values())

    def directory(self, parent: Path) -> Path:
        """Where values are spilled below a parent directory; made when it is first wanted."""
        if parent not in self._spill:
            self._spill[parent] = spill_directory(parent)
        return self._spill[parent]

    def _keep_idle(self, share: float, settings: Settings) -> None:
        """Between runs the pool's idle blocks are reserved on their own account; during one, by its stages."""
        self.pool.come_home(self.cache.kept_bytes)
        self.pool.trim(int(settings.budget * share))
        self._hand_to_idle(self.pool.idle if share else 0, 0)
        self.note_strays()

    def _hand_to_idle(self, idle: int, reserved: int) -> None:
        """Have idle blocks on their own account from here on, instead of what was reserved for them until now."""
        with self.ledger._lock:
            self.ledger.unreserve(self._idle_reserved + reserved)
            self._idle_reserved = idle
            self.ledger.reserved += idle

    def note_strays(self) -> None:
        """Keep blocks reserved that are lent though nothing runs, as long as they are.

        While something runs, on whatever thread, its blocks are no strays: nothing is done.
        """
        if not self.lock.acquire(blocking=False):
            return
        try:
            if self._persisted is None:
                self._count_strays()
        finally:
            self.lock.release()

    def _count_strays(self) -> None:
        if self.cache.let_go_of_dead() or self._stray:
            self.pool.come_home(self.cache.kept_bytes)
            self.pool.trim(self._idle_reserved)
        with self.ledger._lock:
            self.ledger.unreserve(self._stray)
            self._stray = max(0, self.pool.lent - self.cache.kept_bytes)
            self.ledger.reserved += self._stray
        self.cache.have_left()

    def relieve(self) -> None:
        """Let go of all that a run can go on without: idle blocks, and what is kept for later tasks and runs."""
        self.cache.clear()
        self.keeper.forget(0, ())
        ENCODED.drop_idle()
        self.pool.come_home(self.cache.kept_bytes)
        self.pool.trim()
        self.cache.have_left()

    def _take_turns(self, turn: list[Stage], on_task: Callable[[Stage, int], None]) -> list[StageCounters]:
        with contextlib.ExitStack() as stack:
            limits = [stage.library_threads for stage in turn if stage.library_threads is not None]
            stack.enter_context(library_threads(min(limits, default=None)))
            shared = self.ledger, self.pool, self.cache, self.interrupt, on_task, turn, self.relieve
            runs = [stack.enter_context(StageRun(stage, *shared)) for stage in turn]
            for strip in turn[0].strips() if len(turn) > 1 else [()]:
                for run in runs:
                    run.run(strip)
        return [run.counters for run in runs]

    def execute(
        self,
        stages: Sequence[Stage],
        settings: Settings,
        on_task: Callable[[Stage, int], None],
        sources: Iterable[StoredArray],
    ) -> list[StageCounters]:
        """Run stages in order; write targets become visible at the end, if the sources are what they were."""
        turns = _turns(stages)
        if spilled := _spilled_at_once(turns):
            require_room(self.directory(settings.spill), spilled)
        counters: list[StageCounters] = []
        # Kernels are compiled while the first chunks are read; what is wrong with one shows where it is used.
        over = threading.Event()
        if sum(stage.tasks for stage in stages) > WARM_TASKS:
            # Not a daemon: a process that ends in the middle of a compilation aborts.
            threading.Thread(target=_warm, args=(stages, over), name="jaxchunk-compile").start()
        begun: list[Any] = []
        reserved = 0
        try:
            for turn in turns:
                needed = turn[0].reserve
                self.pool.come_home(self.cache.kept_bytes)
                self.pool.trim(needed)
                with self.ledger._lock:  # at no moment is less reserved than is held
                    self.ledger.unreserve(reserved)
                    reserved = 0
                    self.ledger.reserve(needed)
                    reserved = needed
                for sink in (sink for stage in turn for sink in _sinks(stage)):
                    if isinstance(sink, ValueSink):
                        sink.slot.begin(self.ledger, lambda: self.directory(settings.spill))
                    else:
                        sink.begin(self)
                    begun.append(sink)
                self.cache.limit = turn[0].cache
                counters += self._take_turns(turn, on_task)
                self.cache.clear()
                for slot in (slot for stage in turn for slot in stage.frees):
                    slot.free()
            for source in sources:
                source.check()
            self.interrupt.check()
            for sink in begun:
                if isinstance(sink, WriteSink):
                    sink.target.commit()
        except BaseException:
            for sink in begun:
                if isinstance(sink, WriteSink):
                    sink.target.abort()
                elif isinstance(sink, ValueSink):
                    sink.slot.free()
            raise
        finally:
            over.set()
            self.pool.come_home(self.cache.kept_bytes)
            self.pool.trim(reserved)
            self._hand_to_idle(self.pool.idle, reserved)
            for sink in begun:
                if isinstance(sink, ResultSink):
                    sink.end(self)
        return counters


def _warm(stages: Sequence[Stage], over: threading.Event) -> None:
    for stage in stages:
        if over.is_set():
            return
        with contextlib.suppress(Exception):
            stage.warm()


def _turns(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Stages that run by themselves, and pairs of those that take turns."""
    turns: list[list[Stage]] = []
    for stage in stages:
        if stage.strip_of is not None:
            turns[-1].append(stage)
        else:
            turns.append([stage])
    return turns


def _sinks(stage: Stage) -> Iterator[Any]:
    for output in [*stage.outputs, *(o for group in stage.groups for o in group.outputs)]:
        yield from output.sinks


def _spilled_at_once(turns: Sequence[Sequence[Stage]]) -> int:
    """The most bytes that values on disk take while stages run in turns."""
    most = now = 0
    for turn in turns:
        now += sum(s.slot.file_bytes for stage in turn for s in _sinks(stage) if isinstance(s, ValueSink))
        most = max(most, now)
        now -= sum(slot.file_bytes for stage in turn for slot in stage.frees)
    return most


_runtime: Runtime | None = None
_making = threading.Lock()


def runtime() -> Runtime:
    global _runtime
    with _making:
        if _runtime is None:
            _runtime = Runtime()
            # The interpreter looks through all of JAX's objects, several times over, for garbage as it
            # ends: a quarter of a second. What is left then goes with the process.
            atexit.register(gc.freeze)
        return _runtime
