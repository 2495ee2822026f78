"""The benchmarks' own machinery: what they measure is worth nothing if their checks or their floor are wrong."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from benchmarks import check, cost, data, floor, harness, report
from benchmarks.rows import ROWS

SCALE = 32


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks")


def test_every_row_by_numpy_is_right_and_told(cache: Path) -> None:
    peers = ("numpy", "floor")
    settings = harness.Settings(tuple(ROWS), peers, dict.fromkeys(peers, sys.executable), cache, "64 MiB", SCALE, 1, 60)
    results = harness.run(settings)
    assert {key: m.problem for key, m in results.items() if m.problem} == {}
    table = report.markdown(settings, results)
    assert all(row.text in table for row in ROWS.values())


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_wrong_result_is_seen(cache: Path, tmp_path: Path, name: str) -> None:
    row = ROWS[name]
    paths = data.make(cache, SCALE, set(row.inputs))
    inputs = [paths[given] for given in row.inputs]
    first = zarr.open_array(inputs[0], mode="r")
    if row.stored is None:
        wrong = tmp_path / "wrong.npy"
        shape = () if name in ("chain", "black_scholes", "power_iteration") else first.shape[1:]
        np.save(wrong, np.full(shape, np.nan))
    else:
        wrong = tmp_path / "wrong.zarr"
        chunk = data.INPUTS[row.inputs[0]].scaled(SCALE).chunk
        zarr.create_array(wrong, shape=first.shape, chunks=row.stored(first.shape[0], chunk), dtype=row.dtype)
    assert "wrong values" in (check.problem(row, cache, SCALE, inputs, wrong) or "")


@pytest.mark.parametrize("chunks", [(8, 512), (512, 16), (64, 64), (256, 32)])
def test_the_floor_moves_the_values(cache: Path, tmp_path: Path, chunks: tuple[int, int]) -> None:
    source = data.make(cache, SCALE, {"u"})["u"]
    moved = tmp_path / "moved.zarr"
    floor.move(source, moved, chunks)
    # The floor writes chunks only; the metadata is zarr's.
    described = tmp_path / "described.zarr"
    expected = zarr.open_array(source, mode="r")
    zarr.create_array(described, shape=expected.shape, chunks=chunks, dtype=expected.dtype)
    shutil.copy(described / "zarr.json", moved / "zarr.json")
    np.testing.assert_array_equal(zarr.open_array(moved, mode="r")[...], expected[...])


def test_each_row_s_seconds_are_told_beside_what_plans_say(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SHOWN_SECONDS", 0.0)  # fast machines read so little in no time
    # One that plans once, and one that plans at every step.
    table = cost.compare(cache, SCALE, ["rechunk", "power_iteration"], "64 MiB", rounds=1, calibrate=False)
    _, _, *rows = (line.strip("| ").split(" | ") for line in table.splitlines())
    assert [cells[0] for cells in rows] == ["rechunk", "power_iteration"]
    for _, predicted, measured, alone, ratio, bound, links, parts in rows:
        assert float(predicted) > 0 and float(measured) > 0 and float(alone) > 0
        assert float(ratio.removesuffix(" (!)")) > 0
        assert f"{bound} " in links
        assert "read " in parts and "write " in parts if bound == "writing" else "compiling " in parts


@pytest.mark.parametrize(("predicted", "ratio"), [(0.9, "0.45 (!)"), (1.0, "0.50"), (4.0, "2.00"), (4.1, "2.05 (!)")])
def test_seconds_that_differ_by_more_than_twice_are_marked(predicted: float, ratio: str) -> None:
    told = cost.Told(predicted, 2.0, 1.5, {"reading": 0.1, "writing": 0.8}, {"read": 0.2, "write": 0.0})
    line = f"| row | {predicted:.2f} | 2.00 | 1.50 | {ratio} | writing | reading 0.10, writing 0.80 | read 0.20 |"
    assert cost.line("row", told) == line
