"""What is on disk afterwards, and what a failure to read looks like: faults that users of chunked storage report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.measure import TESTS
from helpers.synthetic import CountingStore, FailingStore, Faults, SinkStore, synthetic_array
from zarr.storage import LocalStore, MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import SourceChangedError


def put(path: Path, values: Any, chunks: Any = "auto") -> Path:
    zarr.create_array(path, data=np.asarray(values), chunks=chunks, overwrite=True)
    return path


# --- one writer for each stored object ---------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.long)])
def test_shards_that_stick_out_over_the_edge_are_right_every_time(tmp_path: Path, threads: int, times: int) -> None:
    expected = np.arange(1, 40 * 37 + 1.0).reshape(40, 37)
    x = xp.reshape(xp.arange(1, 40 * 37 + 1, dtype=xp.float64, chunks=(50,)), (40, 37))
    for attempt in range(times):
        path = tmp_path / f"{attempt}.zarr"
        with jc.config.set(threads=threads):
            jc.to_zarr(jc.rechunk(x, (3, 4)), path, chunks=(3, 4), shards=(12, 16))
        z = zarr.open_array(path, mode="r")
        assert z.shards == (12, 16)
        assert z.chunks == (3, 4)
        np.testing.assert_array_equal(z[...], expected)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("shards", [(12, 16), (3, 4), (42, 40), (6, 40)])
def test_every_shard_is_written_once(threads: int, shards: tuple[int, int]) -> None:
    x = jc.rechunk(xp.reshape(xp.arange(40 * 37, dtype=xp.float64, chunks=(50,)), (40, 37)), (3, 4))
    sink = SinkStore(lambda key: True)
    with jc.config.set(threads=threads):
        jc.to_zarr(x, sink, chunks=(3, 4), shards=shards)
    chunks = {key: n for key, n in sink.counts.sets.items() if "/" in key}
    assert set(chunks.values()) == {1}
    assert len(chunks) == -(-40 // shards[0]) * -(-37 // shards[1])
    np.testing.assert_array_equal(zarr.open_array(sink)[...], np.arange(40 * 37.0).reshape(40, 37))


STORED = [
    {"chunks": (5, 4)},
    {"chunks": (3, 13)},
    {"chunks": (2, 3), "shards": (6, 6)},
    {"chunks": (1, 1)},
    {"chunks": (11, 13)},
    {"chunks": (4, 5), "shards": (8, 5)},
    {"chunks": (20, 20)},
]


@pytest.mark.parametrize("kw", STORED, ids=str)
def test_chunks_that_do_not_line_up_are_written_whole_and_once(kw: dict[str, Any]) -> None:
    expected = np.arange(143).reshape(11, 13)
    a = jc.rechunk(xp.reshape(xp.arange(143, chunks=(9,)), (11, 13)), (2, 3))
    unit = kw.get("shards", kw["chunks"])
    units = -(-11 // unit[0]) * -(-13 // unit[1])
    sink = SinkStore(lambda key: True)
    jc.to_zarr(a, sink, **kw)
    written = {key: n for key, n in sink.counts.sets.items() if "/" in key}
    assert len(written) == units
    assert set(written.values()) == {1}
    np.testing.assert_array_equal(zarr.open_array(sink)[...], expected)


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.long)])
def test_overwriting_with_other_chunks_again_and_again(tmp_path: Path, times: int) -> None:
    expected = np.arange(143).reshape(11, 13)
    a = jc.rechunk(xp.reshape(xp.arange(143, chunks=(9,)), (11, 13)), (2, 3))
    for _ in range(times):
        for kw in STORED:
            jc.to_zarr(a, tmp_path / "t.zarr", overwrite=True, **kw)
            np.testing.assert_array_equal(zarr.open_array(tmp_path / "t.zarr", mode="r")[...], expected)
    assert [p.name for p in tmp_path.iterdir()] == ["t.zarr"]


def test_irregular_blocks_are_stored_whole(tmp_path: Path) -> None:
    cuts = ((31, 28, 31, 10), (7, 1, 5))
    n = np.arange(1300.0).reshape(100, 13)
    x = jc.from_array(n, chunks=cuts) * 2
    jc.to_zarr(x, tmp_path / "auto.zarr")
    jc.to_zarr(x, tmp_path / "given.zarr", chunks=(30, 4))
    for name in ("auto", "given"):
        np.testing.assert_array_equal(zarr.open_array(tmp_path / f"{name}.zarr", mode="r")[...], n * 2)


# --- an array written over itself -----------------------------------------------------------------------


def spellings(path: Path) -> Iterator[Any]:
    link = path.with_name("link.zarr")
    link.symlink_to(path)
    yield from (str(path), f"file://{path}", link, path.parent / "." / path.name, LocalStore(path))


@pytest.mark.parametrize("spelling", range(5), ids=["text", "url", "link", "dotted", "store"])
def test_an_array_is_written_over_itself_by_any_name(tmp_path: Path, spelling: int) -> None:
    path = put(tmp_path / "x.zarr", np.arange(10_000.0), chunks=(700,))
    x = jc.from_zarr(path)
    target = list(spellings(path))[spelling]
    try:
        jc.to_zarr(x * 2, target, overwrite=True)
    except ValueError:
        # Refused is right where it can't be done safely; but then nothing may have changed.
        np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(10_000.0))
        assert spelling == 4, "a local path can be swapped"
        return
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(10_000.0) * 2)


@pytest.mark.parametrize("length", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_after_writing_over_itself_the_old_array_is_never_half_new(tmp_path: Path, length: int) -> None:
    path = put(tmp_path / "x.zarr", np.arange(float(length)), chunks=(length // 14,))
    x = jc.from_zarr(path)
    jc.to_zarr(x * 2, path, overwrite=True)
    try:
        np.testing.assert_array_equal(x[:3].compute(), [0, 1, 2])
    except SourceChangedError as error:
        assert "x.zarr" in str(error)
    # Every chunk that is written needs one from the far end.
    jc.to_zarr(jc.from_zarr(path)[::-1], path, overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(float(length))[::-1] * 2)


def test_a_member_of_a_group_is_written_over_itself_and_its_sister_stays(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    group.create_array("x", data=np.arange(100.0), chunks=(30,))
    group.create_array("y", data=np.arange(50.0), chunks=(20,))
    jc.to_zarr(jc.from_zarr(group["x"])[::-1] + 1, tmp_path / "g.zarr" / "x", overwrite=True)
    again = zarr.open_group(tmp_path / "g.zarr", mode="r")
    np.testing.assert_array_equal(again["x"][...], np.arange(100.0)[::-1] + 1)
    np.testing.assert_array_equal(again["y"][...], np.arange(50.0))


def test_two_arrays_swap_their_places_in_one_run(tmp_path: Path) -> None:
    a = put(tmp_path / "a.zarr", np.arange(1000.0), chunks=(70,))
    b = put(tmp_path / "b.zarr", -np.arange(1000.0), chunks=(90,))
    x, y = jc.from_zarr(a), jc.from_zarr(b)
    jc.store([y, x], [a, b], overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(a, mode="r")[...], -np.arange(1000.0))
    np.testing.assert_array_equal(zarr.open_array(b, mode="r")[...], np.arange(1000.0))


def test_writing_in_place_over_what_is_read_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    z = zarr.create_array(store, data=np.arange(1000.0), chunks=(100,))
    with pytest.raises(ValueError):
        jc.to_zarr(jc.from_zarr(z)[::-1], store, overwrite=True)
    path = put(tmp_path / "x.zarr", np.arange(1000.0), chunks=(100,))
    x = jc.from_zarr(path)
    with pytest.raises(ValueError):
        jc.to_zarr(x[100:200] * 2, path, region=[slice(0, 100)])
    for stored in (z, zarr.open_array(path, mode="r")):
        np.testing.assert_array_equal(stored[...], np.arange(1000.0))


def test_killed_in_the_middle_the_old_array_is_whole(tmp_path: Path) -> None:
    path = put(tmp_path / "x.zarr", np.arange(20_000.0), chunks=(100,))
    script = textwrap.dedent(
        f"""
        import jaxchunk as jc, jaxchunk.array_api as xp
        x = jc.from_zarr({str(path)!r})
        print("ready", flush=True)
        while True:
            jc.to_zarr(jc.from_zarr({str(path)!r}) + 0, {str(path)!r}, overwrite=True)
        """
    )
    for wait in (0.05, 0.3):
        child = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=TESTS.parent,
            env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        np.testing.assert_array_equal(jc.from_zarr(path).compute(), np.arange(20_000.0))
    # What the dead left behind goes with the next write.
    jc.to_zarr(jc.from_zarr(path) + 1, path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x.zarr"]
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(20_000.0) + 1)


# --- not there, or not readable -------------------------------------------------------------------------

ERRORS = [PermissionError, TimeoutError, ConnectionResetError, OSError(5, "EIO"), IsADirectoryError]


def thirds(place: Any) -> zarr.Array[Any]:
    z = zarr.create_array(place, shape=(9,), chunks=(3,), dtype="f8", fill_value=-5.0)
    z[0:3], z[6:9] = 1, 2
    return z


def test_a_chunk_that_was_never_written_is_the_fill_value(tmp_path: Path) -> None:
    for z in (thirds(tmp_path / "t.zarr"), thirds(MemoryStore())):
        np.testing.assert_array_equal(jc.from_zarr(z).compute(), [1, 1, 1, -5, -5, -5, 2, 2, 2])
        with pytest.raises(OSError, match=r"c/1"):
            jc.from_zarr(z, missing="error").compute()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_chunk_that_can_not_be_read_raises_what_the_store_raised(error: Any) -> None:
    z = thirds(MemoryStore())
    x = jc.from_zarr(zarr.open_array(FailingStore(z.store, key="c/2", error=error)))
    kind = error if isinstance(error, type) else type(error)
    for ask in (x, xp.sum(x), x[6:7], x[::-1], jc.rechunk(x, (2,)) + 1):
        with pytest.raises(kind) as caught:
            ask.compute()
        text = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
        assert "c/2" in text
        assert "(2,)" in text
    # Others can be read all the same.
    np.testing.assert_array_equal(x[:6].compute(), [1, 1, 1, -5, -5, -5])


def test_a_failing_write_of_one_target_leaves_all_as_they_were(tmp_path: Path) -> None:
    z = thirds(MemoryStore())
    bad = jc.from_zarr(zarr.open_array(FailingStore(z.store, key="c/2", error=PermissionError)))
    path = put(tmp_path / "old.zarr", np.arange(9.0), chunks=(3,))
    with pytest.raises(PermissionError):
        jc.store([bad + 1, xp.ones(9, chunks=(3,))], [path, tmp_path / "new.zarr"], overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(9.0))
    assert [p.name for p in tmp_path.iterdir()] == ["old.zarr"]


def test_an_array_whose_run_failed_can_be_asked_again() -> None:
    faults = Faults(fail=0.2, times=1, error=ConnectionResetError, seed=3)
    z = synthetic_array((40,), (2,), "int64", lambda i: i * 3, faults=faults)
    x = jc.from_zarr(z) + 1
    failures = 0
    for _ in range(25):
        try:
            values = x.compute()
            break
        except ConnectionResetError:
            failures += 1
    assert failures > 0
    np.testing.assert_array_equal(values, np.arange(40) * 3 + 1)


def test_a_counting_store_sees_every_chunk_read_once(tmp_path: Path) -> None:
    inner = LocalStore(put(tmp_path / "x.zarr", np.arange(1000.0), chunks=(70,)))
    store = CountingStore(inner)
    x = jc.from_zarr(zarr.open_array(store, mode="r"))
    assert float(xp.sum(x * x)) == float((np.arange(1000.0) ** 2).sum())
    assert set(store.counts.gets.values()) == {1}
    assert len(store.counts.gets) == 15
