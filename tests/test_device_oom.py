"""A device whose memory something else has taken: work goes on with less of it, and says so where it can't."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import zarr
from helpers.jobs import budget, nothing_is_left
from helpers.measure import MIB
from helpers.synthetic import CountingStore, sink_store
from zarr.storage import MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.lower.compile import Kernels
from jaxchunk.run.runtime import runtime

TEXT = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes."


class Allocator:
    """Stands between stages and their kernels: `fails(kind, calls so far of that kind, calls at once)` says when."""

    def __init__(self, fails: Callable[[str, int, int], bool]) -> None:
        self.fails = fails
        self.calls: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.most = self._now = 0
        self._lock = threading.Lock()

    def wrapped(self, kind: str, kernel: Any) -> Any:
        def call(*arguments: Any) -> Any:
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
                self.calls[kind] += 1
                fails = self.fails(kind, self.calls[kind], self._now)
                self.failed[kind] += fails
            try:
                if fails:
                    raise jax.errors.JaxRuntimeError(TEXT)
                time.sleep(0.002)  # so that tasks meet
                return kernel.call(*arguments)
            finally:
                with self._lock:
                    self._now -= 1

        return replace(kernel, call=call)


@contextmanager
def allocator(monkeypatch: pytest.MonkeyPatch, fails: Callable[[str, int, int], bool]) -> Iterator[Allocator]:
    found = Allocator(fails)
    with monkeypatch.context() as patch:
        for kind in ("step", "combine", "finish"):
            original = getattr(Kernels, kind)

            def get(self: Any, *arguments: Any, kind: str = kind, original: Any = original) -> Any:
                return found.wrapped(kind, original(self, *arguments))

            patch.setattr(Kernels, kind, get)
        yield found


def among(failing: set[int], kind: str, k: int, at_once: int) -> bool:
    return k in failing


def numbers() -> Any:
    return xp.reshape(xp.arange(60_000.0, chunks=5_000), (300, 200)) + 0.5


N = np.arange(60_000.0).reshape(300, 200) + 0.5
WORK: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "elementwise": (lambda x: x * 2 + 1, lambda n: n * 2 + 1),
    "sum": (lambda x: xp.sum(x), lambda n: n.sum()),
    "mean of columns": (lambda x: xp.mean(x, axis=0), lambda n: n.mean(0)),
    "mean of rows": (lambda x: xp.mean(x, axis=1), lambda n: n.mean(1)),
    "running": (lambda x: xp.cumulative_sum(x, axis=0), lambda n: n.cumsum(0)),
    "standardise": (lambda x: (x - xp.mean(x, axis=0)) / xp.std(x, axis=0), lambda n: (n - n.mean(0)) / n.std(0)),
    "matmul": (lambda x: xp.matmul(x.T, x), lambda n: n.T @ n),
    "sort": (lambda x: xp.sort(xp.sin(x), axis=1), lambda n: np.sort(np.sin(n), axis=1)),
}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("work", WORK)
def test_tasks_are_done_again_and_results_are_right(monkeypatch: pytest.MonkeyPatch, work: str, threads: int) -> None:
    ours, theirs = WORK[work]
    for failing in ({1}, {2}, {3, 50}):  # which calls of each kind of kernel
        with (
            budget(MIB),
            jc.config.set(threads=threads),
            allocator(monkeypatch, partial(among, failing)) as device,
        ):
            got = ours(numbers()).compute()
        assert device.failed["step"] == len([k for k in failing if k <= device.calls["step"]]) > 0
        np.testing.assert_allclose(got, theirs(N), rtol=1e-9)
        nothing_is_left()


@pytest.mark.parametrize("threads", [1, 4])
def test_each_chunk_is_written_once_whatever_is_done_again(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    sink = sink_store([6, 4], windows=6)
    with (
        budget(MIB),
        jc.config.set(threads=threads),
        allocator(monkeypatch, lambda kind, k, _: kind == "step" and k in {2, 9, 40, 80}) as device,
        jc.profile() as p,
    ):
        x = numbers()
        jc.to_zarr((x - xp.mean(x, axis=0)) * 3, sink, chunks=(50, 50))
    assert device.failed["step"] >= 2
    assert set(sink.counts.sets.values()) == {1} and len(sink.counts.sets) == 24
    written: Any = zarr.open_array(sink)
    expected = (N - N.mean(0)) * 3
    for i, j in sink.kept:
        part = slice(50 * i, 50 * i + 50), slice(50 * j, 50 * j + 50)
        np.testing.assert_allclose(written[part], expected[part], rtol=1e-9, atol=1e-6)
    figures = p.to_dict()
    assert figures["bytes_written"] == N.nbytes
    assert figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= MIB


def test_fewer_tasks_run_at_once_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with room for one task where the plan has four."""
    seen = []

    def fails(kind: str, k: int, at_once: int) -> bool:
        seen.append(at_once)
        return at_once > 1

    x = xp.arange(60_000.0, chunks=500)
    with budget(8 * MIB), jc.config.set(threads=4), allocator(monkeypatch, fails) as device:
        got = jc.map_blocks(lambda block: block * 2, x).compute()
    np.testing.assert_array_equal(got, np.arange(60_000.0) * 2)
    assert device.most > 1 and set(seen[-20:]) == {1}


def test_what_can_be_let_go_of_is(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    zarr.create_array(store, data=N, chunks=(50, 200))
    x = jc.from_zarr(CountingStore(store))
    machine = runtime()
    with budget(8 * MIB):
        remembered = x * 2
        for _ in range(3):
            float(xp.sum(x))
            float(xp.sum(remembered))
        assert machine.keeper.remembered and machine.cache.kept_bytes
        with allocator(monkeypatch, lambda kind, k, _: kind == "step" and k == 1) as device:
            assert float(xp.sum(xp.sin(numbers()))) == pytest.approx(np.sin(N).sum())
        assert device.failed["step"] == 1
        assert not machine.keeper.remembered and not machine.cache.kept_bytes
        np.testing.assert_array_equal(remembered.compute(), N * 2)  # it has its history


@pytest.mark.parametrize("kind", ["step", "finish"])
@pytest.mark.parametrize("threads", [1, 4])
def test_no_memory_for_a_single_task_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, kind: str
) -> None:
    zarr.create_array(tmp_path / "y.zarr", data=np.ones(3))

    def fails(called: str, k: int, _: int) -> bool:
        return called == kind and (kind == "finish" or k > 1)

    with budget(MIB), jc.config.set(threads=threads):
        with allocator(monkeypatch, fails) as device, pytest.raises(MemoryBudgetError) as caught:
            x = numbers()
            jc.to_zarr(x / xp.max(x, axis=1, keepdims=True), tmp_path / "y.zarr", chunks=50, overwrite=True)
        text = str(caught.value)
        assert "memory that the budget of 1,048,576 bytes promises wasn't there" in text
        assert "test_device_oom.py:" in text and "host_memory" in text and TEXT in text
        assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
        assert device.failed[kind] <= 5 + threads
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr")[...], 1)
        assert [path.name for path in tmp_path.iterdir()] == ["y.zarr"]
        nothing_is_left()
        np.testing.assert_array_equal((numbers() * 2).compute(), N * 2)


def test_small_arrays_are_planned_where_their_recipe_finds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(values: list[float]) -> Any:
        return xp.sum(xp.asarray(values) * 2 + 1).compute()

    for _ in range(3):
        assert work([1.0, 2.0, 3.0]) == 15
    with allocator(monkeypatch, lambda kind, k, _: k == 1) as device:
        assert work([1.0, 2.0, 4.0]) == 17
    assert device.failed["step"] == 1 and device.calls["step"] >= 2
    nothing_is_left()


def test_other_errors_of_the_device_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(kind: str, k: int, at_once: int) -> bool:
        raise jax.errors.JaxRuntimeError("INTERNAL: something is broken")

    with allocator(monkeypatch, breaks) as device, pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        (numbers() * 2).compute()
    assert device.calls["step"] <= 4
    nothing_is_left()
