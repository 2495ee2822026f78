"""Memory, measured: held ≤ reserved ≤ planned ≤ budget, and growth ≤ planned + the allowance."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB, check_memory, measure
from helpers.rows import check_row, row_job
from helpers.synthetic import FailingStore, SinkStore, synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from benchmarks.rows import ROWS
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.run.runtime import runtime

TWIN = 4  # each side by 4, the bytes by 16
BUDGETS = (256, 512, 2048)
NAMES = [name for name, row in ROWS.items() if row.needs is None or hasattr(xp, row.needs)]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def run_row(cache: Path, tmp_path: Path, name: str, scale: int, nbytes: int) -> Any:
    job = row_job(cache, tmp_path, name, scale, nbytes)
    measured = measure("row", timeout=900, **job)
    check_row(cache, scale, job)
    return measured


@pytest.mark.parametrize("mebibytes", [b // TWIN**2 for b in BUDGETS])
@pytest.mark.parametrize("name", NAMES)
def test_rows_keep_to_their_budget(cache: Path, tmp_path: Path, name: str, mebibytes: int) -> None:
    check_memory(run_row(cache, tmp_path, name, TWIN, mebibytes * MIB), mebibytes * MIB)


@pytest.mark.long
@pytest.mark.parametrize("mebibytes", BUDGETS)
@pytest.mark.parametrize("name", NAMES)
def test_full_size_rows_keep_to_their_budget(cache: Path, tmp_path: Path, name: str, mebibytes: int) -> None:
    check_memory(run_row(cache, tmp_path, name, 1, mebibytes * MIB), mebibytes * MIB)


# --- what does not fit is refused before anything runs ---------------------------------------------------


def source(compressor: str | None = None) -> Any:
    return synthetic_array((1024, 1024), (128, 128), "float64", lambda i, j: (i * 7 + j) % 101, compressor=compressor)


REFUSED = {
    "a result that is larger": lambda x: x + 1,
    "two results that are larger together": lambda x: (x[:300] + 1, x[300:600] * 2),
    "a user's block that is larger": lambda x: xp.sum(jc.map_blocks(lambda b: b * 2, x.rechunk((1024, 1024)))),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_runs(kind: str) -> None:
    z = source()
    asked = REFUSED[kind](jc.from_zarr(z))
    requests = asked if isinstance(asked, tuple) else (asked,)
    with budget(4 * MIB), jc.profile() as p:
        plan = jc.plan(*requests)
        assert not plan.to_dict()["fits"]
        assert "doesn't fit" in plan.explain()
        for run in (plan.run, lambda: jc.compute(*requests)):
            with pytest.raises(MemoryBudgetError) as caught:
                run()
            text = str(caught.value)
            assert re.search(r"[\d,]+", text)
            assert "to_zarr" in text or "rechunk" in text, text
    assert not z.store.counts.gets
    assert p.to_dict()["kernels_compiled"] == 0


def test_a_refused_write_leaves_its_target_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    zarr.create_array(path, data=np.arange(6.0))
    x = jc.map_blocks(lambda b: b * 2, jc.from_zarr(source()).rechunk((1024, 1024)))
    with budget(4 * MIB), pytest.raises(MemoryBudgetError):
        jc.to_zarr(x, path, overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(6.0))
    assert [p.name for p in tmp_path.iterdir()] == ["x.zarr"]


WORK = {
    "sum": lambda x: xp.sum(x * x, axis=0),
    "std": lambda x: xp.std(x),
    "matmul": lambda x: xp.sum(xp.matmul(x, x), axis=0),
    "cumulative_sum": lambda x: xp.max(xp.cumulative_sum(x, axis=0), axis=0),
    "map_blocks": lambda x: xp.sum(jc.map_blocks(lambda b: b * 2, x), axis=0),
    "reshape": lambda x: xp.sum(xp.reshape(x, (512, 2048)), axis=0),
    "concat": lambda x: xp.sum(xp.concat([x, x[:100]]), axis=0),
    "standardise": lambda x: xp.sum((x - xp.mean(x, axis=0)) / xp.std(x, axis=0)),
}
FUNCTIONS = {
    "sum": lambda n: (n * n).sum(0),
    "std": lambda n: n.std(),
    "matmul": lambda n: (n @ n).sum(0),
    "cumulative_sum": lambda n: np.cumsum(n, axis=0).max(0),
    "map_blocks": lambda n: (n * 2).sum(0),
    "reshape": lambda n: n.reshape(512, 2048).sum(0),
    "concat": lambda n: np.concatenate([n, n[:100]]).sum(0),
    "standardise": lambda n: ((n - n.mean(0)) / n.std(0)).sum(),
}


@pytest.mark.parametrize("name", sorted(WORK))
def test_the_budget_that_a_refusal_names_would_do(name: str) -> None:
    z = source("zstd")  # a chunk is decoded whole: 128 KiB; the result has 16 at most
    y = WORK[name](jc.from_zarr(z))
    with budget(64 * 1024), pytest.raises(MemoryBudgetError) as caught:
        y.compute()
    text = str(caught.value)
    assert name in text or "test_memory.py" in text, "the operation or the user's line"
    needed = max(int(n.replace(",", "")) for n in re.findall(r"budget of ([\d,]+) bytes", text))
    assert needed <= 4 * MIB, "of 8 MiB"
    with budget(needed), jc.profile() as p:
        assert jc.plan(y).to_dict()["fits"]
        if name in ("matmul", "reshape"):
            return  # it fits in tiles of one element: right, and endless
        value = y.compute()
    figures = p.to_dict()
    assert figures["ledger_peak_bytes"] <= figures["reserved_peak_bytes"] <= figures["planned_peak_bytes"] <= needed
    expected = FUNCTIONS[name](z.store.values(((0, 1024), (0, 1024))))
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("mebibytes", [1, 2, 4, 16])
@pytest.mark.parametrize("name", sorted(WORK))
def test_values_are_the_same_at_any_budget(name: str, mebibytes: int) -> None:
    z = source()
    with budget(mebibytes * MIB), jc.profile() as p:
        y = WORK[name](jc.from_zarr(z))
        assert jc.plan(y).to_dict()["peak_bytes"] <= mebibytes * MIB
        value = y.compute()
    figures = p.to_dict()
    planned = figures["planned_peak_bytes"]
    assert 0 < figures["ledger_peak_bytes"] <= figures["reserved_peak_bytes"] <= planned <= mebibytes * MIB
    expected = FUNCTIONS[name](z.store.values(((0, 1024), (0, 1024))))
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-6)


def test_an_older_result_that_is_still_held_is_counted() -> None:
    z = source()
    with budget(4 * MIB), jc.profile() as p:
        x = jc.from_zarr(z)
        results = [xp.sum(x * k, axis=0) for k in range(1, 4)]
        for k, y in enumerate(results, start=1):
            planned = jc.plan(y).to_dict()["peak_bytes"]
            np.testing.assert_array_equal(y.compute(), z.store.values(((0, 1024), (0, 1024))).sum(0) * k)
            figures = p.to_dict()
            assert figures["reserved_peak_bytes"] <= max(planned, figures["planned_peak_bytes"]) <= 4 * MIB


# --- after a run ---------------------------------------------------------------------------------------------


def nothing_is_left() -> None:
    """What the ledger has between runs is what is kept: idle blocks, and what is remembered."""
    gc.collect()
    machine = runtime()
    assert machine.persisted == 0
    assert machine.ledger.held <= machine.ledger.reserved
    assert machine.ledger.held <= machine.pool.mapped + machine.keeper.remembered + machine.cache.kept_bytes


@pytest.mark.parametrize("name", sorted(WORK))
def test_after_a_run_only_what_is_kept_is_held(name: str) -> None:
    with budget(8 * MIB):
        WORK[name](jc.from_zarr(source())).compute()
    nothing_is_left()


@pytest.mark.parametrize("name", sorted(WORK))
def test_after_a_failed_run_too(name: str) -> None:
    z = source()
    bad = zarr.open_array(FailingStore(z.store, key="c/5/3", error=PermissionError))
    with budget(8 * MIB):
        with pytest.raises(PermissionError) as caught:
            WORK[name](jc.from_zarr(bad)).compute()
        nothing_is_left()
        # And while the user still looks at the error, the next run has all of the memory.
        assert WORK[name](jc.from_zarr(z)).compute() is not None
    assert any("test_memory.py" in note for note in caught.value.__notes__)


def test_a_failed_write_leaves_nothing_held() -> None:
    z = source()
    with budget(8 * MIB), pytest.raises(PermissionError):
        jc.to_zarr(jc.from_zarr(z) + 1, FailingStore(SinkStore(), key="c/3/3", error=PermissionError))
    nothing_is_left()


def test_persisted_values_are_counted_as_long_as_they_live() -> None:
    z = source()
    with budget(16 * MIB):
        kept = jc.persist(jc.from_zarr(z) + 1)  # 8 MiB
        assert runtime().persisted >= 8 * MIB
        assert runtime().ledger.held >= 8 * MIB
        with pytest.raises(MemoryBudgetError):
            (jc.from_zarr(z) + 2).compute()  # 8 MiB and what it takes to make them
        assert float(kept[3, 5]) == z.store.values(((3, 4), (5, 6)))[0, 0] + 1
        del kept
        nothing_is_left()
        assert (jc.from_zarr(z) + 2).compute().nbytes == 8 * MIB
    nothing_is_left()


def test_handed_out_values_are_the_user_s() -> None:
    z = source()
    results = []
    with budget(12 * MIB):
        for k in range(4):  # 32 MiB in all
            with jc.profile() as p:
                results.append((jc.from_zarr(z) + k).compute())
            assert p.to_dict()["handed_out_bytes"] == 8 * MIB
    nothing_is_left()
    assert [float(r[0, 1]) for r in results] == [1.0, 2.0, 3.0, 4.0]


def test_what_a_loop_spilled_is_gone_when_its_arrays_are(tmp_path: Path) -> None:
    n = np.linspace(0.5, 2.0, 512 * 512).reshape(512, 512)
    with budget(MIB), jc.config.set(spill_directory=str(tmp_path)):
        x = jc.from_array(n, chunks=(64, 512))
        for _ in range(4):
            x = x - 0.1 * (xp.sin(x) * x - 1)
            float(xp.max(xp.abs(x)))
        on_disk = sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*.raw"))
        assert on_disk <= 3 * n.nbytes, "at most the array, its successor and one in hand"
        del x
        assert sum(file.stat().st_size for file in tmp_path.rglob("*.raw")) == 0
    nothing_is_left()


@pytest.mark.parametrize("steps", [3, 30])
def test_what_a_loop_made_is_right_whatever_of_it_was_remembered(steps: int) -> None:
    x = xp.asarray(np.arange(1000.0), chunks=(130,))
    seen = []
    for k in range(steps):
        x = x * 0.5 + k
        if k % 3 == 0:
            float(xp.sum(x))
        seen.append(x)
    n = np.arange(1000.0)
    for k, array in enumerate(seen):
        n = n * 0.5 + k
        np.testing.assert_array_equal(array.compute(), n)
