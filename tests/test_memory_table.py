"""Every function of the namespace keeps to a budget that is an eighth of its data, and gives the right values."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import standard, tightness
from helpers.jobs import budget
from helpers.measure import MIB, check_memory, measure
from helpers.memory_jobs import ANY_SIZE, NO_DATA, ONE_MATRIX, OUTSIZE, Job, left_in, several
from helpers.memory_table import DOMAINS, PAIRS, ROWS
from helpers.memory_work import JOBS, WORK
from helpers.synthetic import synthetic_array
from zarr.storage import MemoryStore

import jaxchunk as jc
from jaxchunk.errors import MemoryBudgetError

BUDGETS = (64, 256)
WINDOWS = 4  # blocks of a large result that are looked at
GROWN = ["add", "std", "take"]
KIB = 1024


# --- the table ------------------------------------------------------------------------------------------


def test_every_function_is_in_the_table() -> None:
    assert set(ROWS) == set(standard.FUNCTIONS)
    assert not set(WORK) & set(ROWS)


@pytest.mark.parametrize("name", JOBS)
def test_a_row_says_what_is_right(name: str) -> None:
    row = JOBS[name]
    assert row.kind in (ANY_SIZE, ONE_MATRIX)
    assert (row.expected is None) != (row.right is None)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kind == NO_DATA])
def test_functions_without_data_run_nothing(name: str) -> None:
    with budget(1), jc.profile() as p:
        found = ROWS[name].call()
    assert p.to_dict()["runs"] == 0
    assert ROWS[name].expected(found)


def sampled(names: Iterable[str]) -> list[Any]:
    """All names; of functions that are alike only some aren't marked as long."""
    elementwise = [name for group in (DOMAINS, PAIRS) for alike in group.values() for name in alike.split()]
    twice = {f"linalg.{name}" for name in ROWS}  # the same functions by another name
    left_out = (set(elementwise) - set(elementwise[::4])) | twice | {"unique_all", "unique_inverse"}
    return [pytest.param(name, marks=pytest.mark.long) if name in left_out else name for name in names]


# --- within a budget -----------------------------------------------------------------------------------------


def outsized(job: Job, results: Any) -> bool:
    """Whether inputs or results are so many times the budget, the inputs by at least half of a row more or less."""
    inputs = sum(np.prod(shape) * given.itemsize for given, shape in zip(job.row.given, job.shapes, strict=True))
    return bool(max(inputs, sum(np.prod(x.shape) * x.dtype.itemsize for x in results)) >= OUTSIZE * job.nbytes)


@pytest.mark.parametrize("name", sampled(JOBS))
def test_within_an_eighth_of_the_data(name: str) -> None:
    job = Job(JOBS[name], MIB)
    with jc.profile() as p:
        found = job.run()
    figures = p.to_dict()
    held, reserved, planned = (figures[f"{key}_peak_bytes"] for key in ("ledger", "reserved", "planned"))
    assert 0 < held <= reserved <= planned <= job.nbytes
    assert not any(stage["grown_bytes"] for stage in figures["stages"]), "the memory model was too small"
    assert outsized(job, found)
    job.check(found)


@pytest.mark.parametrize("name", JOBS)
def test_the_least_budget_and_all_above_are_enough(name: str) -> None:
    job = Job(JOBS[name], 2 * MIB, chunk=64 * KIB)
    assert job.refusals([int(job.least * factor) for factor in (1, 1.5, 3)]) == [None] * 3


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kind == ONE_MATRIX])
def test_one_matrix_that_is_too_large_is_refused(name: str) -> None:
    z = synthetic_array((1, 512, 512), (1, 64, 64), "float64", JOBS[name].given[0].values)
    with budget(MIB), pytest.raises(MemoryBudgetError, match="would do"):
        jc.compute(*several(JOBS[name].call(jc.from_zarr(z))))
    assert not z.store.counts.gets


@pytest.mark.parametrize("name", sampled(JOBS))
def test_kernels_of_large_tiles_need_no_more_than_is_planned(name: str) -> None:
    with budget(24 * MIB):
        job = Job(JOBS[name], 24 * MIB)
        results = job.results()
        for stage in jc.plan(*job.requests(results, [MemoryStore() for _ in results])).stages:
            if stage.kernels is not None:
                assert (stage.kernels.step(stage.whole_tile).temp_bytes or 0) <= stage.temporaries


def test_kept_chunks_give_way_to_kernels_that_need_more(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tiles that don't lie on chunks' edges: what the plan leaves of the budget is for chunks that several want.
    monkeypatch.setattr(import_module("jaxchunk.plan.stages"), "temporaries", lambda program, tile: 4096)
    job = Job(JOBS["atan2"], 24 * MIB)
    with jc.profile() as p:
        found = job.run()
    figures = p.to_dict()
    assert figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= job.nbytes
    job.check(found)


# --- growth of processes ------------------------------------------------------------------------------------------


@pytest.fixture
def roomy(tmp_path: Path) -> Iterator[Path]:
    """A directory for gigabytes: emptied after the test."""
    yield tmp_path
    for path in tmp_path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("name", GROWN)
def test_processes_grow_by_what_is_planned(roomy: Path, name: str) -> None:
    """The data are more than the plan and the allowance together: a process that holds them all is found."""
    check_memory(measure("memory_jobs.table_row", name=name, nbytes=32 * MIB, directory=str(roomy)), 32 * MIB)


@pytest.mark.long
@pytest.mark.parametrize("mebibytes", BUDGETS)
@pytest.mark.parametrize("name", JOBS)
def test_large_data_in_fresh_processes(roomy: Path, name: str, mebibytes: int) -> None:
    nbytes = mebibytes * MIB
    measured = measure("memory_jobs.table_row", name=name, nbytes=nbytes, directory=str(roomy), timeout=3600)
    check_memory(measured, nbytes)
    tightness.note(name, mebibytes, measured)
    Job(JOBS[name], nbytes).check(left_in(roomy), WINDOWS)


def test_a_plan_asks_for_the_chunks_that_wait_not_for_the_source() -> None:
    """Tiles across the chunks share them: each stays no longer than it is wanted, whatever room there is."""
    job = Job(JOBS["sin"], 16 * MIB)
    with jc.profile() as p:
        job.run()
    figures = p.to_dict()
    assert figures["bytes_read"] == job.row.given[0].itemsize * np.prod(job.shapes[0])
    assert figures["planned_peak_bytes"] <= 0.75 * job.nbytes


@pytest.mark.long
def test_plans_ask_for_little_more_than_is_held() -> None:
    """Over what the long test above has measured, of which nothing may be missing."""
    figures = tightness.noted(max(BUDGETS))
    assert set(figures) == set(JOBS)
    assert all(row["planned"] >= row["held"] for row in figures.values())
    assert tightness.median(figures, "held") <= 1.3
