"""What the library says that it holds: it adds up to the ledger's figures, whatever is kept, let go or running."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB
from helpers.plans import let_go, source, written

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk._memory_report import MemoryReport
from jaxchunk.lower.compile import CACHE
from jaxchunk.run.runtime import runtime


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    let_go()


def adds_up(report: MemoryReport) -> bool:
    figures = report.to_dict()
    ledger = runtime().ledger
    assert (figures["reserved"], figures["held"]) == (ledger.reserved, ledger.held)
    for figure in ("reserved", "held"):
        assert figures[figure] == sum(h[figure] for h in figures["holdings"])
    return not any(h.kind == "running" for h in report.holdings)


def holdings(kind: str) -> list[Any]:
    return [h for h in jc.memory_report().holdings if h.kind == kind]


def test_what_is_held_adds_up_before_and_after_values_are_kept_and_let_go() -> None:
    before = jc.memory_report()
    assert adds_up(before)
    with budget(64 * MIB):
        kept = jc.persist(source() * 2)
        line = f"{__file__}:"
        report = jc.memory_report()
        assert adds_up(report)
        new = [h for h in report.holdings if h.kind == "persisted" and h.held == 4 * MIB]
        assert [(h.shape, h.dtype, h.reserved, h.disk) for h in new] == [((1024, 1024), "float32", 4 * MIB, 0)]
        assert str(new[0].where).startswith(line)
        assert report.available == 64 * MIB - sum(h.reserved for h in report.holdings if h.kind == "persisted")
        large = jc.persist(source((4096, 4096), (512, 512)) + 1)  # of 64 MiB: on disk
        report = jc.memory_report()
        assert adds_up(report)
        assert [h.disk for h in report.holdings if h.kind == "persisted" and h.shape == large.shape] == [64 * MIB]
        assert sum(s.nbytes for s in report.spilled) >= 64 * MIB
        root = xp.sqrt(kept)
        float(xp.sum(root))
        report = jc.memory_report()
        assert adds_up(report)
        assert [h.name for h in report.holdings if h.kind == "remembered" and h.held == 4 * MIB] == ["sqrt"]
        shown = str(report)
        assert "persisted" in shown and "(1024, 1024) float32" in shown and "64 MiB on disk" in shown
        on_disk = sum(s.nbytes for s in report.spilled)
        del kept, large, root, new, report
    after = jc.memory_report()
    assert adds_up(after)
    assert not [h for h in after.holdings if h.held == 4 * MIB]
    assert sum(s.nbytes for s in after.spilled) == on_disk - 64 * MIB


def test_chunks_that_are_kept_are_told_by_source(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "u.zarr", data=np.ones((1024, 1024), "float32"), chunks=(256, 256))
    u = jc.from_zarr(tmp_path / "u.zarr")
    with budget(64 * MIB):
        for _ in range(3):
            xp.sum(u, axis=0).compute()
        (chunks,) = [h for h in holdings("chunks") if h.name == str(tmp_path / "u.zarr")]
        assert (chunks.count, chunks.reserved, chunks.held) == (16, 4 * MIB, 4 * MIB)
        assert adds_up(jc.memory_report())


def test_results_are_the_callers_and_not_in_the_report() -> None:
    with budget(64 * MIB):
        value = jc.rechunk(source(), (512, 512)).compute()
    report = jc.memory_report()
    assert adds_up(report)
    assert value.nbytes == 4 * MIB
    assert not [h for h in report.holdings if h.shape == value.shape]


def test_a_report_while_something_runs_has_a_line_for_it() -> None:
    seen: list[MemoryReport] = []

    def look(stage: Any, done: int) -> None:
        if done == 2:
            other = threading.Thread(target=lambda: seen.append(jc.memory_report()))
            other.start()
            other.join()

    with budget(8 * MIB), jc.config.set(threads=1):
        jc.plan(written(source() + 1)).run(look)
    (report,) = seen
    (running,) = [h for h in report.holdings if h.kind == "running"]
    assert running.reserved > 0
    for figure in ("reserved", "held"):
        assert getattr(report, figure) == sum(getattr(h, figure) for h in report.holdings)
    assert report.held <= report.reserved <= 8 * MIB
    assert adds_up(jc.memory_report())


def test_kernels_and_the_process_are_told_beside_the_budget() -> None:
    before = jc.memory_report()
    xp.sum(xp.cos(source((300, 7), (100, 7))) * 17).compute()
    report = jc.memory_report()
    assert report.kernels == len(CACHE) >= min(before.kernels + 1, 100)
    assert report.kernel_bytes == CACHE.nbytes <= report.kernel_limit
    assert report.resident is not None and report.resident > 50 * MIB
    assert json.loads(json.dumps(report.to_dict()))["budget"] == jc.config.get().budget
    assert "kernels" in str(report) and "<table>" in report._repr_html_()
