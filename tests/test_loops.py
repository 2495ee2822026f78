"""Loops as NumPy users write them, with a test for convergence: each step costs what the one before it cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.measure import MIB

import jaxchunk as jc
import jaxchunk.array_api as xp

STEPS = 12


def numpy_loop(x: Any, steps: int) -> tuple[Any, list[float]]:
    errors = []
    for _ in range(steps):
        x = x - 0.1 * (np.sin(x) * x - 1)
        errors.append(float(np.max(np.abs(np.sin(x) * x - 1))))
    return x, errors


def loop(x: Any, steps: int) -> tuple[Any, list[float], list[dict[str, Any]]]:
    """The loop, with each step's figures."""

    def f(x: Any) -> Any:
        return xp.sin(x) * x - 1

    errors, figures = [], []
    for _ in range(steps):
        with jc.profile() as p:
            x = x - 0.1 * f(x)
            errors.append(float(xp.max(xp.abs(f(x)))))
        figures.append(p.to_dict())
    return x, errors, figures


def start(side: int) -> Any:
    return np.linspace(0.5, 2.0, side * side).reshape(side, side)


@pytest.mark.parametrize("side", [10, 512, pytest.param(4096, marks=pytest.mark.long)])
def test_steps_cost_the_same_from_the_third_on(side: int) -> None:
    n = start(side)
    with budget(16 * n.nbytes + 16 * MIB):
        x, errors, figures = loop(xp.asarray(n, chunks=(-(-side // 4), side)), STEPS)
        expected, numpy_errors = numpy_loop(n, STEPS)
        np.testing.assert_allclose(errors, numpy_errors, rtol=1e-12)
        np.testing.assert_allclose(x[:3].compute(), expected[:3], rtol=1e-12)
    steady = figures[2:]
    assert [f["kernels_compiled"] for f in steady] == [0] * len(steady)
    # Operations evaluated: stages, and tasks in each.
    shape = [[(s["name"], s["tasks"]) for s in f["stages"]] for f in steady]
    assert all(step == shape[0] for step in shape), shape
    assert all(f["spilled_bytes"] == 0 for f in steady)


@pytest.mark.parametrize(
    ("side", "nbytes"), [(512, MIB), pytest.param(4096, 64 * MIB, marks=pytest.mark.long)]
)
def test_a_loop_over_twice_the_budget_moves_its_array_twice_a_step(tmp_path: Any, side: int, nbytes: int) -> None:
    n = start(side)
    assert n.nbytes == 2 * nbytes
    jc.to_zarr(xp.asarray(n, chunks=(side // 8, side)), tmp_path / "x.zarr")
    with budget(nbytes):
        x, errors, figures = loop(jc.from_zarr(tmp_path / "x.zarr"), STEPS)
        expected, numpy_errors = numpy_loop(n, STEPS)
        np.testing.assert_allclose(errors, numpy_errors, rtol=1e-12)
        np.testing.assert_allclose(x[:3].compute(), expected[:3], rtol=1e-12)
    for figure in figures:
        moved = figure["bytes_read"] + figure["bytes_written"] + figure["spilled_bytes"]
        assert moved <= 4 * n.nbytes
    assert all(figure["kernels_compiled"] == 0 for figure in figures[2:])
    tasks = [sum(s["tasks"] for s in f["stages"]) for f in figures]
    assert len(set(tasks[2:])) == 1, tasks


def test_what_a_loop_spilled_is_gone_when_its_arrays_are(tmp_path: Any) -> None:
    n = start(512)
    with budget(MIB), jc.config.set(spill_directory=str(tmp_path)):
        x, _, _ = loop(jc.from_array(n, chunks=(64, 512)), 4)
        on_disk = sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*.raw"))
        assert on_disk <= 3 * n.nbytes, "at most the array, its successor and one in hand"
        del x
        assert sum(file.stat().st_size for file in tmp_path.rglob("*.raw")) == 0


@pytest.mark.parametrize("steps", [3, 30])
def test_a_sum_of_what_a_loop_made_is_right_whatever_was_remembered(steps: int) -> None:
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
