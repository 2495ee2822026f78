"""What a run that ends badly leaves behind: nothing, and a library that goes on working."""

from __future__ import annotations

import copy
import errno
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import zarr
from helpers.jobs import budget, nothing_is_left
from helpers.measure import MIB, TESTS
from helpers.synthetic import Faults, synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp

PATIENCE = 60
"""Seconds after which something that takes one or two is taken to hang."""


# --- the process is told to stop, or killed -------------------------------------------------------------------


@contextmanager
def writing(tmp_path: Path, threads: int, spills: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that is in the middle of replacing the array `x.zarr` by one of 256 MiB."""
    zarr.create_array(tmp_path / "x.zarr", data=np.arange(9.0))
    (tmp_path / "spill").mkdir()
    arguments = {
        "path": str(tmp_path / "x.zarr"),
        "threads": threads,
        "spills": spills,
        "spill": str(tmp_path / "spill"),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", f"from helpers.jobs import replace_slowly; replace_slowly(**{arguments!r})"],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + PATIENCE
        spilled, hidden = "jaxchunk-spill-*/*.raw", ".x.zarr.jaxchunk-new-*/c/*/*"
        while not list((tmp_path / "spill").glob(spilled) if spills else tmp_path.glob(hidden)):
            assert child.poll() is None and time.monotonic() < deadline, child.communicate()
            time.sleep(0.01)
        yield child
    finally:
        child.kill()
        child.communicate()


def is_whole(tmp_path: Path) -> None:
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "x.zarr", mode="r")[...], np.arange(9.0))


@pytest.mark.parametrize(("threads", "spills"), [(1, False), (4, False), (2, True)])
def test_control_c_in_the_middle_of_a_write(tmp_path: Path, threads: int, spills: bool) -> None:
    with writing(tmp_path, threads, spills) as child:
        started = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
        assert time.monotonic() - started < 10
    assert child.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "Exception ignored" not in err
    assert out.split() == ["interrupted", "10.0", "finished"]  # the process could go on
    is_whole(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spill", "x.zarr"]
    assert not list((tmp_path / "spill").iterdir())


@pytest.mark.parametrize("spills", [False, True])
def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path, spills: bool) -> None:
    with writing(tmp_path, 2, spills) as child:
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=PATIENCE)
    is_whole(tmp_path)
    np.testing.assert_array_equal(jc.from_zarr(tmp_path / "x.zarr").compute(), np.arange(9.0))
    left = sorted(p.name for p in [*tmp_path.iterdir(), *(tmp_path / "spill").iterdir()])
    assert len(left) == 3, left  # what it wrote, or spilled, is still there
    with jc.config.set(spill_directory=str(tmp_path / "spill")):
        jc.to_zarr(jc.from_zarr(tmp_path / "x.zarr") + 1, tmp_path / "x.zarr", overwrite=True)
        spill_something()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["spill", "x.zarr"]
    own = [p.name for p in (tmp_path / "spill").iterdir()]
    assert own and all(name.startswith(f"jaxchunk-spill-{os.getpid()}-") for name in own)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "x.zarr", mode="r")[...], np.arange(9.0) + 1)


def spill_something() -> None:
    x = xp.reshape(xp.arange(250_000.0, chunks=50_000), (500, 500))
    with budget(MIB), jc.profile() as p:
        value = float(xp.sum(xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1)[::-1]))
    assert value == float(np.arange(250_000.0).reshape(500, 500).cumsum(0).cumsum(1).sum())
    assert p.to_dict()["spilled_bytes"] > 0


def in_a_child(job: str, **arguments: Any) -> str:
    """Run a function of `helpers.jobs` that sends signals to its own process: none must reach this one."""
    script = f"from helpers.jobs import {job}; {job}(**{arguments!r})"
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=PATIENCE * 2)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("threads", [1, 4])
def test_control_c_at_any_moment_leaves_the_ledger_right(threads: int) -> None:
    times = 24
    interrupted = int(in_a_child("interrupted_at_any_moment", threads=threads, times=times))
    assert times - 4 <= interrupted <= times  # Python drops what falls into a finalizer


def test_a_handler_of_the_user_s_own_is_left_alone() -> None:
    assert in_a_child("interrupted_with_a_handler").split() == ["mine", "820.0", "mine"]


# --- something fails in the middle -----------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_a_read_that_fails_is_told_with_where_and_can_be_tried_again(threads: int) -> None:
    faults = Faults(fail=1 / 16, times=1, seed=1, error=ConnectionResetError)
    z = synthetic_array((1024, 256), (32, 128), "float64", lambda i, j: i * 3 + j, faults=faults)
    with budget(4 * MIB), jc.config.set(threads=threads):
        y = xp.sum(xp.abs(jc.from_zarr(z)) + 1, axis=0)  # the line
        failures = 0
        while True:
            try:
                value = y.compute()
                break
            except ConnectionResetError as error:
                failures += 1
                notes = " ".join(error.__notes__)
                assert "sum" in notes
                assert "test_faults.py:" in notes
                assert "c/" in notes and "chunk (" in notes
                nothing_is_left()
    assert 0 < failures <= len(faults.happened)  # of a run in which several fail, one is told
    np.testing.assert_array_equal(value, (np.abs(z.store.values(((0, 1024), (0, 256)))) + 1).sum(0))


def full(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_full_disk_while_spilling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    with jc.config.set(spill_directory=str(tmp_path), threads=threads):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", full)
            with pytest.raises(OSError) as caught:
                spill_something()
        assert caught.value.errno == errno.ENOSPC
        assert any("test_faults.py:" in note for note in caught.value.__notes__)
        assert not list(tmp_path.rglob("*.raw"))
        nothing_is_left()
        spill_something()
        gc.collect()
        assert not list(tmp_path.rglob("*.raw"))


def test_a_spill_directory_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with jc.config.set(spill_directory=str(tmp_path / "file")), pytest.raises(OSError, match="file"):
        spill_something()
    nothing_is_left()
    spill_something()


# --- progress callbacks ----------------------------------------------------------------------------------------


def array() -> Any:
    return jc.map_blocks(lambda block: block * 2, xp.arange(90_000.0, chunks=5_000))  # one task for each block


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_callback_that_raises_ends_the_run(threads: int, kind: type[BaseException]) -> None:
    seen = []

    def callback(stage: Any, done: int) -> None:
        seen.append(done)
        if done == 2:
            raise kind("enough")

    with budget(2 * MIB), jc.config.set(threads=threads):
        plan = jc.plan(array())
        with pytest.raises(kind, match="enough"):
            plan.run(callback)
        assert plan.to_dict()["stages"][0]["tasks"] > max(seen) + threads
        nothing_is_left()
        np.testing.assert_array_equal(array().compute(), np.arange(90_000.0) * 2)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_callback_that_computes_is_refused_and_does_not_wait_for_itself(threads: int) -> None:
    other = xp.arange(10)

    def run() -> None:
        with budget(2 * MIB), jc.config.set(threads=threads), pytest.raises(RuntimeError, match="inside a task"):
            jc.plan(array()).run(lambda stage, done: other.compute())

    within(run)
    nothing_is_left()
    assert int(xp.sum(other)) == 45


def test_a_callback_hears_of_every_task_once() -> None:
    seen: list[int] = []
    with budget(2 * MIB), jc.config.set(threads=3):
        plan = jc.plan(array())
        plan.run(lambda stage, done: seen.append(done))
    assert sorted(seen) == list(range(1, plan.to_dict()["stages"][0]["tasks"] + 1))


# --- threads of the user's own -----------------------------------------------------------------------------------


def within(*jobs: Callable[[], Any]) -> list[Any]:
    """What jobs give, each on a thread of its own; a deadlock is an error."""
    results: dict[int, Any] = {}

    def work(number: int, job: Callable[[], Any]) -> None:
        try:
            results[number] = job()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads), "a deadlock"
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    return [results[number] for number in range(len(jobs))]


@pytest.mark.parametrize("threads", [1, 3])
def test_several_threads_ask_for_the_same_array_at_once(threads: int) -> None:
    z = synthetic_array((512, 512), (64, 128), "float64", lambda i, j: (i * 7 + j) % 101)
    n = z.store.values(((0, 512), (0, 512)))
    x = jc.from_zarr(z)
    centred = x - xp.mean(x, axis=0)

    def ask() -> Any:
        with budget(4 * MIB), jc.config.set(threads=threads):
            return centred.compute(), float(xp.sum(x))

    for value, total in within(*[ask] * 6):
        np.testing.assert_allclose(value, n - n.mean(0), rtol=1e-12, atol=1e-12)
        assert total == n.sum()
    nothing_is_left()


def test_threads_with_budgets_of_their_own_keep_to_them() -> None:
    def ask(nbytes: int) -> Any:
        with budget(nbytes):
            value = array().compute()
            return value, jc.config.get().budget

    jobs = [lambda b=b * MIB: ask(b) for b in (2, 3, 4, 5)]
    for (value, kept), nbytes in zip(within(*jobs), (2, 3, 4, 5), strict=True):
        assert kept == nbytes * MIB
        np.testing.assert_array_equal(value, np.arange(90_000.0) * 2)
    nothing_is_left()


def test_one_thread_s_failure_is_not_another_s() -> None:
    faults = Faults(fail=1.0, error=ConnectionResetError)
    bad = jc.from_zarr(synthetic_array((64,), (8,), "float64", lambda i: i, faults=faults))

    def fail() -> str:
        with pytest.raises(ConnectionResetError):
            bad.compute()
        return "failed"

    def work() -> float:
        return float(xp.sum(array()))

    assert within(*[fail, work] * 3) == ["failed", float(np.arange(90_000.0).sum() * 2)] * 3
    nothing_is_left()


# --- what is the user's ---------------------------------------------------------------------------------------------


def ordinary(tmp_path: Path) -> None:
    """A bit of everything."""
    path = tmp_path / "x.zarr"
    x = xp.reshape(xp.arange(40_000.0, chunks=3_000), (200, 200))
    jc.to_zarr(x, path, chunks=(50, 64), overwrite=True)
    x = jc.from_zarr(path)
    with budget(2 * MIB):
        standard = (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)
        jc.to_zarr(standard, tmp_path / "y.zarr", chunks=(64, 50), shards=(128, 100), overwrite=True)
        jc.compute(xp.sum(standard), xp.matmul(x, x), xp.cumulative_sum(x, axis=1), xp.argmax(x, axis=0))
    kept = jc.persist(x * 2)
    assert bool(xp.all(kept == x + x))
    jc.map_blocks(lambda block: block[::-1], kept).compute()
    xp.concat([x, kept])[::3, ::-1].compute()
    xp.astype(xp.arange(300) % 7, xp.uint8).compute()
    xp.log(xp.zeros(3)).compute(), xp.divide(xp.zeros(3), xp.zeros(3)).compute()
    xp.exp(xp.asarray([1j, 2.0])).compute()
    repr(x), x.chunks, jc.plan(x).explain()
    np.asarray(x), float(x[3, 4])
    spill_something()


def test_no_warnings_reach_the_user(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ordinary(tmp_path)
        gc.collect()


def test_a_fresh_process_says_nothing(tmp_path: Path) -> None:
    script = f"from pathlib import Path; from test_faults import ordinary; ordinary(Path({str(tmp_path)!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning:hypothesis", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE * 2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def configurations() -> Any:
    return (
        dict(jax.config.values),
        json.dumps(copy.deepcopy(zarr.config.config), default=str, sort_keys=True),
        np.geterr(),
        signal.getsignal(signal.SIGINT),
        dict(os.environ),
        threading.excepthook,
        list(warnings.filters),
    )


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_the_user_s_configuration_is_as_it_was(tmp_path: Path, wide: bool, fails: bool) -> None:
    bad = synthetic_array((64,), (8,), "float64", lambda i: i, faults=Faults(fail=1.0))
    with jax.enable_x64(wide), zarr.config.set({"async.concurrency": 3}), np.errstate(over="raise"):
        before = configurations()
        if fails:
            with pytest.raises(TimeoutError):
                jc.to_zarr(jc.from_zarr(bad) + 1, tmp_path / "x.zarr")
        else:
            ordinary(tmp_path)
        assert configurations() == before
        assert jax.numpy.ones(2).dtype == ("float64" if wide else "float32")


def test_no_threads_stay_behind() -> None:
    ordinary_threads = {thread.name for thread in threading.enumerate()}
    with budget(2 * MIB), jc.config.set(threads=3):
        array().compute()
        with pytest.raises(ValueError, match="enough"):
            jc.plan(array() + 1).run(raising)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and ours(ordinary_threads):
        time.sleep(0.01)
    assert not ours(ordinary_threads)


def ours(before: set[str]) -> set[str]:
    return {t.name for t in threading.enumerate() if t.name.startswith("jaxchunk")} - before


def raising(stage: Any, done: int) -> None:
    raise ValueError("enough")
