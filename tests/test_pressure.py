"""Under real pressure: processes that are killed where they take more than they promise, and finish."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import DECAY, shuffled
from helpers.measure import MIB
from helpers.memory_jobs import Job as TableJob
from helpers.memory_jobs import left_in
from helpers.memory_work import JOBS
from helpers.rows import check_row, row_job
from helpers.watchdog import KilledError, measure_within, memory_group

import jaxchunk as jc
import jaxchunk.array_api as xp
from benchmarks.rows import ROWS

TWIN = 4  # each side by 4, the bytes by 16
WINDOWS = 4
# Of the runtime allowance, in the twins: their data are smaller than the whole of it, and a process that keeps
# them all is to be found.
SHARE = 0.5


def beyond(nbytes: int, share: float = 1.0) -> int:
    """What a process may grow by that works within a budget."""
    allowance = jc.plan(xp.ones(1)).to_dict()["runtime_allowance"]
    return int(share * allowance + 1.1 * nbytes)


Job = tuple[str, dict[str, Any]]
"""Its name, and its arguments."""


def under_pressure(budget: int, share: float, *jobs: Job) -> None:
    """Jobs one after another in a process of their own: what one of them keeps the next can't have."""
    with memory_group() as group:
        measured = measure_within(beyond(budget, share), group, "several", timeout=3600, work=jobs)
    profile = measured["profile"]
    held, reserved, planned = (profile[f"{key}_peak_bytes"] for key in ("ledger", "reserved", "planned"))
    assert 0 < held <= reserved <= planned <= budget


@pytest.mark.parametrize("watched", [False, True], ids=["as it can be done here", "without a control group"])
def test_a_process_that_takes_too_much_is_killed(watched: bool) -> None:
    with memory_group() as group, pytest.raises(KilledError, match="more than 64 MiB"):
        measure_within(64 * MIB, None if watched else group, "hoard", nbytes=128 * MIB, seconds=5)


def test_one_that_takes_less_ends_by_itself() -> None:
    measured = measure_within(64 * MIB, None, "hoard", nbytes=24 * MIB, seconds=0.1)
    assert 20 * MIB <= measured["growth"] <= 64 * MIB


# --- the benchmarks' rows --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def test_rows_finish_under_pressure(cache: Path, tmp_path: Path) -> None:
    jobs = [row_job(cache, tmp_path, name, TWIN, 16 * MIB) for name in ROWS]
    under_pressure(16 * MIB, SHARE, *(("row", job) for job in jobs))
    for job in jobs:
        check_row(cache, TWIN, job)


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_full_size_rows_finish_under_pressure(cache: Path, tmp_path: Path, name: str) -> None:
    job = row_job(cache, tmp_path, name, 1, 256 * MIB)
    under_pressure(256 * MIB, 1.0, ("row", job))
    check_row(cache, 1, job)


# --- out of core ---------------------------------------------------------------------------------------------


class FromTable:
    """A row of the table of memory: eight times the budget."""

    def __init__(self, name: str) -> None:
        self.name = name

    def job(self, directory: Path, nbytes: int) -> Job:
        return "memory_jobs.table_row", {"name": self.name, "nbytes": nbytes, "directory": str(directory)}

    def check(self, directory: Path, nbytes: int) -> None:
        TableJob(JOBS[self.name], nbytes).check(left_in(directory), WINDOWS)


class Mask:
    """A third of an array's elements."""

    def job(self, directory: Path, nbytes: int) -> Job:
        return "selected", {
            "length": nbytes,
            "chunk": nbytes // 128,
            "nbytes": nbytes,
            "path": str(directory / "x.zarr"),
        }

    def check(self, directory: Path, nbytes: int) -> None:
        found, at = zarr.open_array(directory / "x.zarr", mode="r"), 0
        for start in range(0, nbytes, 2**21):
            x = shuffled(np.arange(start, min(nbytes, start + 2**21))).astype(np.float64)
            expected = x[x % 3 == 0]
            np.testing.assert_array_equal(found[at : at + len(expected)], expected)
            at += len(expected)
        assert found.shape == (at,)


class Cholesky:
    """The factor of one matrix."""

    def job(self, directory: Path, nbytes: int) -> Job:
        side = math.isqrt(nbytes)
        return "factorised", {
            "side": side,
            "chunk": side // 12,
            "nbytes": nbytes,
            "path": str(directory / "x.zarr"),
        }

    def check(self, directory: Path, nbytes: int) -> None:
        side, factor = math.isqrt(nbytes), zarr.open_array(directory / "x.zarr", mode="r")
        assert factor.shape == (side, side)
        for columns in (slice(0, 5), slice(side // 2, side // 2 + 5), slice(side - 5, side)):
            i, j = np.ogrid[:side, columns]
            expected = np.where(i >= j, DECAY ** (i - j) * np.where(j > 0, (1 - DECAY**2) ** 0.5, 1.0), 0.0)
            np.testing.assert_allclose(factor[:, columns], expected, rtol=0, atol=1e-10)


WORK = {"sort": FromTable("sort"), "fft": FromTable("fft.fft"), "mask": Mask(), "cholesky": Cholesky()}


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A directory for gigabytes: emptied after the test."""
    yield tmp_path
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.unlink()


def finish(directory: Path, nbytes: int, share: float, *names: str) -> None:
    for name in names:
        (directory / name).mkdir()
    under_pressure(nbytes, share, *(WORK[name].job(directory / name, nbytes) for name in names))
    for name in names:
        WORK[name].check(directory / name, nbytes)


def test_what_is_eight_times_the_budget_finishes_under_pressure(roomy: Path) -> None:
    finish(roomy, 6 * MIB, SHARE, *WORK)


@pytest.mark.long
@pytest.mark.parametrize("name", WORK)
def test_a_gigabyte_finishes_under_pressure(roomy: Path, name: str) -> None:
    finish(roomy, 128 * MIB, 1.0, name)
