"""What plans tell of themselves before and after they run: figures and text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.measure import MIB
from helpers.plans import let_go, source, standardised, stored, written
from helpers.synthetic import SinkStore, synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.graph.grid import Axis, block_box
from jaxchunk.graph.primitives import AxisMap
from jaxchunk.plan.traffic import copied
from jaxchunk.run.ledger import Ledger
from jaxchunk.run.pool import Pool
from jaxchunk.run.stage import Leaf
from jaxchunk.run.values import DiskValue
from jaxchunk.run.views import View


def flows(stage: dict[str, Any]) -> tuple[int, int, int, int]:
    storage, disk = stage["tiers"]["storage"], stage["tiers"]["disk"]
    return storage["read"], storage["written"], disk["read"], disk["written"]


def measured_flows(stage: dict[str, Any]) -> tuple[int, int, int, int]:
    m = stage["measured"]
    return m["bytes_read"], m["bytes_written"], m["spill_read_bytes"], m["spilled_bytes"]


# --- figures ------------------------------------------------------------------------------------------

EXACT = {
    "a fold": (8, lambda: xp.sum(source(), axis=0)),
    "a fold in a small budget": (1, lambda: xp.sum(source(), axis=0)),
    "arithmetic": (2, lambda: written(source() + 1)),
    "ragged chunks that fit": (8, lambda: xp.mean(source((1000, 777), (300, 200)))),
    "standardise": (8, lambda: standardised(source())),
    "an array and its mirror image": (8, lambda: xp.sum(source() - xp.flip(source()))),
    "one array twice": (8, lambda: (lambda u: xp.sum(u - u[::-1], axis=0))(source())),
    "neighbours": (2, lambda: (lambda u: xp.sum(u[1:] * u[:-1], axis=0))(source())),
    "a transpose": (2, lambda: written(xp.matrix_transpose(source()) + 1, chunks=(128, 128))),
    "a product": (8, lambda: (lambda u: written(xp.matmul(u, u)))(source())),
    "a product of copies on disk": (1, lambda: (lambda u: written(xp.matmul(u, u)))(source())),
    "a rechunk by way of a copy": (1, lambda: written(source(chunks=(8, 1024)), chunks=(1024, 8))),
    "chunks of 1000 to 999": (1, lambda: written(source((1_000_000,), (1000,)), chunks=(999,))),
    "a value on disk": (1, lambda: xp.sum(jc.map_blocks(lambda b: b * 2, source()), axis=0)),
    "blocks of another shape": (8, lambda: written(jc.map_blocks(lambda b: b[:, :1], source()))),
    "a running sum": (2, lambda: xp.max(xp.cumulative_sum(source(), axis=0), axis=0)),
    "a slice": (8, lambda: xp.sum(source()[100:300, ::3])),
    "a reshape": (8, lambda: xp.sum(xp.reshape(source(), (512, 2048)), axis=0)),
    "a few rows": (8, lambda: xp.sum(xp.take(source(), xp.asarray([3, 500, 900]), axis=0), axis=0)),
    "a concatenation": (8, lambda: (lambda u: xp.sum(xp.concat([u, u[:128]]), axis=0))(source())),
}


@pytest.mark.parametrize("name", EXACT)
def test_bytes_of_each_tier_are_what_is_measured(name: str) -> None:
    mebibytes, ask = EXACT[name]
    with budget(mebibytes * MIB), jc.profile() as profile:
        plan = jc.plan(ask())
        plan.run()
    figures = plan.to_dict()
    for stage in figures["stages"]:
        assert flows(stage) == measured_flows(stage), stage["name"]
        assert sum(s["bytes_read"] for s in stage["sources"]) == stage["bytes_read"]
    assert sum(flows(stage)[0] + flows(stage)[2] for stage in figures["stages"]) > 0
    total = profile.to_dict()
    for figure in ("bytes_read", "bytes_written", "spilled_bytes", "spill_read_bytes"):
        assert figures[figure] == figures["measured"][figure] == total[figure]


ROUGH = {
    "ragged chunks": (2, lambda: xp.mean(source((1000, 777), (300, 200)))),
    "an array and its transpose": (1, lambda: (lambda u: written(u + u.T))(source())),
    "chunks of 128 to 99": (2, lambda: written(source(), chunks=(99, 99))),
    "runs of bytes on disk": (1, lambda: xp.sum(standard(source((1000, 777), (130, 90))), axis=0)),
    "a mirror image": (0.5, lambda: (lambda u: xp.sum(u - u[::-1], axis=0))(source())),
    "neighbours": (0.5, lambda: (lambda u: xp.sum(u[1:] * u[:-1], axis=0))(source())),
    "chunks side by side": (0.5, lambda: (lambda u: xp.sum(u[128:] * u[:-128], axis=0))(source())),
    "a sort": (2, lambda: xp.sum(xp.sort(xp.reshape(source(), (-1,)))[::2])),
    "a transform of a flattened array": (2, lambda: xp.sum(xp.abs(xp.fft.fft(xp.reshape(source(), (-1,)))))),
}


def standard(u: xp.Array) -> xp.Array:
    return (u - xp.mean(u, axis=0)) / xp.std(u, axis=0)


@pytest.mark.parametrize("name", ROUGH)
def test_where_chunks_are_decoded_again_the_bytes_are_about_right(name: str) -> None:
    mebibytes, ask = ROUGH[name]
    with budget(int(mebibytes * MIB)):
        plan = jc.plan(ask())
        plan.run()
    for stage in plan.to_dict()["stages"]:
        for modelled, found in zip(flows(stage), measured_flows(stage), strict=True):
            assert 0.45 * found <= modelled <= 2.2 * found, (stage["name"], modelled, found)


@pytest.mark.parametrize("width", [8, 64, 256])
def test_short_runs_of_a_value_on_disk_are_read_with_what_lies_between_them(tmp_path: Path, width: int) -> None:
    ledger = Ledger(MIB)
    ledger.reserve(MIB)
    pool = Pool(ledger)
    value = DiskValue((Axis.regular(256, 64), Axis.regular(1024, 256)), np.dtype("float32"), "value", tmp_path)
    tiles = (Axis.regular(256, 64), Axis.regular(1024, width))
    leaf = Leaf(View(value, (AxisMap(0), AxisMap(1))), value.dtype, (True, True))
    for index in np.ndindex(4, 4):
        value.put(index, block_box(value.grid, index), np.zeros((64, 256), "float32"), pool)
    read = 0
    for index in np.ndindex(4, 1024 // width):
        window, _ = leaf.view.window(block_box(tiles, index))
        read += value.fill(window, np.empty((64, width), "float32"), pool)
    assert copied(leaf, tiles) == read == 4 * 256 * 1024 * (256 // width)


def test_standardise_tells_how_often_its_source_is_read() -> None:
    for mebibytes, passes in ((24, [1, 1]), (96, [1, 0])):
        z = synthetic_array((4096, 4096), (1024, 1024), "float32", lambda i, j: i + j, period=(1, 1), compressor="zstd")
        with budget(mebibytes * MIB):
            plan = jc.plan(standardised(jc.from_zarr(z)))
            figures = plan.to_dict()
            plan.run()
        assert [stage["passes"] or 0 for stage in figures["stages"]] == passes
        assert figures["passes"] == sum(passes)
        assert [s["passes"] for s in figures["sources"]] == [sum(passes)]
        assert set(z.store.counts.gets.values()) == {sum(passes)}
        assert figures["stages"][1]["strip_of"] == (0 if passes == [1, 0] else None)


def test_values_between_stages_are_counted_while_they_live() -> None:
    u = source()
    with budget(8 * MIB):
        figures = jc.plan(standardised(u)).to_dict()
        assert [stage["values_bytes"] for stage in figures["stages"]] == [2 * 4 * 1024] * 2
        assert figures["peak_disk_bytes"] == 0
        twice = jc.map_blocks(lambda b: b + 1, jc.map_blocks(lambda b: b * 2, u))
        figures = jc.plan(xp.sum(twice, axis=0)).to_dict()
    nbytes = 4 * 1024 * 1024
    assert [stage["disk_bytes"] for stage in figures["stages"]] == [nbytes, 2 * nbytes, nbytes]
    assert figures["peak_disk_bytes"] == figures["spilled_bytes"] == figures["spill_read_bytes"] == 2 * nbytes


@pytest.mark.parametrize("largest", [0, 1])
def test_each_stage_holds_no_more_than_it_was_planned_to(largest: int) -> None:
    let_go()
    u = source((1024, 2048))
    with budget(8 * MIB):
        plan = jc.plan(standardised(u) if largest else written(xp.cumulative_sum(xp.sum(u, axis=0))))
        plan.run()
    figures = plan.to_dict()
    held = [stage["measured"]["held_peak_bytes"] for stage in figures["stages"]]
    for stage, nbytes in zip(figures["stages"], held, strict=True):
        assert 0 < nbytes <= stage["host_bytes"] + stage["values_bytes"]
    assert held[largest] == max(held) == figures["measured"]["ledger_peak_bytes"] > min(held)


KERNELS = {
    "move": lambda u: written(u.rechunk((256, 256))),
    "loop": lambda u: written(u * 2),
    "fold": lambda u: xp.sum(u),
    "scan": lambda u: written(xp.cumulative_sum(u, axis=0)),
    "direct": lambda u: written(xp.matmul(u, u)),
    "block": lambda u: written(jc.map_blocks(lambda b: b + 1, u)),
}


@pytest.mark.parametrize("form", KERNELS)
def test_kernels_by_their_form(form: str) -> None:
    (stage,) = jc.plan(KERNELS[form](source())).to_dict()["stages"]
    kernel = stage["kernel"]
    assert kernel["form"] == form
    assert (kernel["instructions"] == 0) == (form == "move")
    assert (kernel["pieces"] > 1) == (form in ("loop", "fold", "scan"))


def test_figures_are_plain_numbers_and_measured_only_once_it_ran() -> None:
    plan = jc.plan(xp.std(source(), axis=0))
    before = json.loads(json.dumps(plan.to_dict()))
    assert before["measured"] is None and before["stages"][0]["measured"] is None
    assert before["stages"][0]["kernel"]["compiled_bytes"] is None
    plan.run()
    after = json.loads(json.dumps(plan.to_dict()))
    assert after["measured"]["runs"] == 1
    assert after["stages"][0]["kernel"]["compiled_bytes"] > 0
    assert after["stages"][0]["measured"]["tasks"] == after["stages"][0]["tasks"]
    for figures in (before, after):
        figures.pop("measured")
        for stage in figures["stages"]:
            stage.pop("measured")
            stage["kernel"].pop("compiled_bytes")
    assert before == after


# --- text ---------------------------------------------------------------------------------------------


def test_the_text_has_totals_first_and_the_problem_last() -> None:
    with budget(MIB // 4):
        text = jc.plan(written(source() + 1)).explain()
    first, *_, last = text.splitlines()
    assert "1 stage doesn't fit" in first and "256 KiB" in first
    assert last.startswith("doesn't fit: add, asked for at")


def test_the_text_of_a_stage_names_what_matters() -> None:
    with budget(MIB):
        plan = jc.plan(jc.to_zarr(jc.from_zarr(stored(chunks=(8, 1024))), SinkStore(), chunks=(1024, 8), compute=False))
        text = plan.explain()
        for words in (
            "Plan of 2 stages fits",
            "0. copy",
            __file__,
            "move, tile",
            "reads 4 MiB in 1 pass",
            "disk      writes 4 MiB",
            "disk      reads 4 MiB",
            "4 MiB at once",
            "bound by",
        ):
            assert words in text, words
        assert "measured" not in text and "held" not in text
        plan.run()
    text = plan.explain()
    assert "measured" in text
    assert text.count("held at most") == 3
    assert all(len(line) < 120 for line in text.replace(__file__, "f.py").splitlines())
