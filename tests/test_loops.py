"""Loops with a convergence test, written as for NumPy: a step costs the same however many came before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.synthetic import synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp


def _f(x: Any) -> Any:
    return xp.sin(x) * x - 1


def _loop(x: Any, steps: int) -> tuple[Any, list[dict[str, Any]]]:
    figures = []
    for _ in range(steps):
        with jc.profile() as p:
            x = x - 0.1 * _f(x)
            norm = float(xp.max(xp.abs(_f(x))))
        figures.append(p.to_dict())
        if norm < 1e-9:
            break
    return x, figures


@pytest.mark.parametrize("side", [10, 300, pytest.param(4096, marks=pytest.mark.long)])
def test_steps_cost_the_same_from_the_third_on(side: int) -> None:
    start = np.linspace(0.5, 1.5, side * side).reshape(side, side)
    with jc.config.set(host_memory="2 GiB"):
        x, figures = _loop(xp.asarray(start, chunks=max(1, side // 3)), 12)
        expected = start.copy()
        for _ in range(12):
            expected = expected - 0.1 * (np.sin(expected) * expected - 1)
        np.testing.assert_allclose(np.asarray(x), expected, rtol=1e-12)
    assert [f["kernels_compiled"] for f in figures[2:]] == [0] * 10
    assert len({sum(s["tasks"] for s in f["stages"]) for f in figures[2:]}) == 1
    assert len({len(f["stages"]) for f in figures[2:]}) == 1


@pytest.mark.parametrize("steps", [24, pytest.param(50, marks=pytest.mark.long)])
def test_an_array_of_twice_the_budget_is_read_again_but_not_written_again_and_again(steps: int) -> None:
    z = synthetic_array((1024, 1024), (32, 1024), "float64", lambda i, j: 0.5 + (i * 1024 + j) % 1000 / 1000)
    nbytes = 1024 * 1024 * 8
    with jc.config.set(host_memory=nbytes // 2):
        _, figures = _loop(jc.from_zarr(z), steps)
    for step, f in enumerate(figures):
        moved = f["bytes_read"] + f["bytes_written"] + 2 * f["spilled_bytes"]
        assert moved <= 4 * nbytes, (step, f)


def test_naming_every_intermediate_moves_no_more_bytes() -> None:
    z = synthetic_array((1024, 1024), (256, 256), "float32", lambda i, j: (i * 7 + j) % 100)
    with jc.config.set(host_memory="3 MiB"):
        u = jc.from_zarr(z)
        with jc.profile() as unnamed:
            plain = float(xp.mean(xp.exp(-xp.abs(u * u)) + xp.sqrt(xp.abs(u))))
        with jc.profile() as named:
            a = u * u
            b = xp.abs(a)
            c = xp.exp(-b)
            d = xp.abs(u)
            e = xp.sqrt(d)
            g = c + e
            held = float(xp.mean(g))
    assert held == plain
    first, second = unnamed.to_dict(), named.to_dict()
    assert second["bytes_read"] <= 1.1 * first["bytes_read"]
    assert second["spilled_bytes"] == first["spilled_bytes"] == 0
