"""Intermediates on disk: room is looked for before, a full disk is told as one, and nothing stays behind."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from helpers.jobs import budget, nothing_is_left
from helpers.measure import MIB, TESTS
from helpers.synthetic import synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import StorageError
from jaxchunk.run.spill import spill_directory

NBYTES = 8 * 250_000


def spilling() -> Any:
    """An array of 2 MB that an intermediate of the same size is spilled for in 1 MiB."""
    x = xp.reshape(xp.arange(250_000.0, chunks=50_000), (500, 500))
    return xp.sum(xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1)[::-1])


def total() -> float:
    return float(np.arange(250_000.0).reshape(500, 500).cumsum(0).cumsum(1).sum())


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def with_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - free, free))


# --- before the run ---------------------------------------------------------------------------------------------


def test_room_on_the_disk_is_looked_for_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    z = synthetic_array((500, 500), (100, 500), "float64", lambda i, j: i * 500 + j)
    x = xp.cumulative_sum(xp.cumulative_sum(jc.from_zarr(z), axis=0), axis=1)[::-1]
    zarr.create_array(tmp_path / "y.zarr", data=np.ones(3))
    with budget(MIB), jc.config.set(spill_directory=str(tmp_path / "spill")):
        write = jc.to_zarr(x, tmp_path / "y.zarr", chunks=50, overwrite=True, compute=False)
        assert write is not None
        planned = jc.plan(write)
        needed = planned.to_dict()["peak_disk_bytes"]
        assert needed >= NBYTES
        with_free(monkeypatch, needed - 1)
        with pytest.raises(StorageError) as caught:
            planned.run()
        text = str(caught.value)
        assert caught.value.errno == errno.ENOSPC
        assert f"{needed:,} bytes" in text and f"{needed - 1:,} are free" in text and str(tmp_path / "spill") in text
        assert "spill_directory" in text and "JAXCHUNK_SPILL_DIRECTORY" in text and "host_memory" in text
        assert not z.store.counts.gets  # type: ignore[attr-defined]
        assert not list(tmp_path.rglob("*.raw"))
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr")[...], 1)
        nothing_is_left()
        with_free(monkeypatch, needed)
        planned.run()
    assert zarr.open_array(tmp_path / "y.zarr").shape == (500, 500)


def test_a_run_that_spills_nothing_asks_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_free(monkeypatch, 0)
    with jc.config.set(spill_directory=str(tmp_path / "spill")):
        assert float(xp.sum(xp.arange(1000.0, chunks=100))) == 499_500
    assert not list(tmp_path.iterdir())


def test_the_directory_is_the_setting_s_or_the_environment_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with budget(MIB), jc.config.set(spill_directory=tmp_path / "a"):
        assert float(spilling()) == total()
    monkeypatch.setenv("JAXCHUNK_SPILL_DIRECTORY", str(tmp_path / "b"))
    with budget(MIB):
        assert float(spilling()) == total()
    for name in ("a", "b"):
        (own,) = (tmp_path / name).iterdir()
        assert own.name.startswith(f"jaxchunk-spill-{os.getpid()}-")
        gc.collect()
        assert not list(own.iterdir())


# --- in the middle ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_disk_that_fills_up_is_told_and_the_target_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, kind: int
) -> None:
    zarr.create_array(tmp_path / "y.zarr", data=np.ones(3))
    write, left = os.pwrite, [3]

    def fills_up(*arguments: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(kind, os.strerror(kind))
        return write(*arguments)

    x = xp.reshape(xp.arange(250_000.0, chunks=50_000), (500, 500))
    y = xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1)[::-1]
    with budget(MIB), jc.config.set(spill_directory=str(tmp_path / "spill"), threads=threads):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", fills_up)
            with pytest.raises(OSError) as caught:
                jc.to_zarr(y, tmp_path / "y.zarr", chunks=50, overwrite=True)
        assert left[0] < 0
        assert any("test_spill.py:" in note for note in caught.value.__notes__)
        if kind == errno.EIO:  # the disk's own trouble arrives as it is
            assert type(caught.value) is OSError and caught.value.errno == kind
        else:
            assert isinstance(caught.value, StorageError) and caught.value.errno == errno.ENOSPC
            assert str(tmp_path / "spill") in str(caught.value) and "spill_directory" in str(caught.value)
            assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == kind
        assert not list(tmp_path.rglob("*.raw"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["spill", "y.zarr"]
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr")[...], 1)
        nothing_is_left()
        assert float(spilling()) == total()


# --- afterwards -------------------------------------------------------------------------------------------------


ENDS = {
    "at its end": "",
    "by an exception": "raise RuntimeError('over')",
    "by sys.exit": "import sys; sys.exit(3)",
}


@pytest.mark.parametrize("end", ENDS)
def test_the_directory_goes_with_its_process(tmp_path: Path, end: str) -> None:
    script = f"""
import jaxchunk as jc, jaxchunk.array_api as xp
from pathlib import Path
with jc.config.set(spill_directory={str(tmp_path)!r}, host_memory="1 MiB"):
    kept = jc.persist(xp.arange(250_000.0, chunks=50_000) + 1)
print(len(list(Path({str(tmp_path)!r}).rglob("*.raw"))), flush=True)
{ENDS[end]}
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == ["1"], done.stderr
    assert not list(tmp_path.iterdir())


def test_directories_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    living = spill_directory(tmp_path)
    (living / "value.raw").write_bytes(b"x")
    dead = tmp_path / f"jaxchunk-spill-{os.getpid()}-of-another-machine"  # numbers of processes come again
    dead.mkdir()
    (dead / "value.raw").write_bytes(b"x")
    other = tmp_path / "jaxchunk-spilled-over"
    other.mkdir()
    second = spill_directory(tmp_path)
    assert not dead.exists() and other.exists()
    assert (living / "value.raw").exists() and second.exists() and second != living
