"""Small graphs asked for again: the same values as by a plan of their own, whatever differs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.plan import api, recall
from jaxchunk.plan.recall import SMALL_BYTES, Recipes
from jaxchunk.run.runtime import runtime


@pytest.fixture(autouse=True)
def recipes(monkeypatch: pytest.MonkeyPatch) -> Recipes:
    """None to begin with, so that the first run of a test is by a plan."""
    fresh = Recipes()
    monkeypatch.setattr(api, "RECIPES", fresh)
    return fresh


def planned(work: Callable[[], Any]) -> tuple[Any, bool]:
    """What work gives, and whether a plan was made for it."""
    with jc.profile() as p:
        value = work()
    assert p.to_dict()["runs"] == 1
    return value, p.to_dict()["plan_seconds"] > 0


# Each takes a namespace and numbers: arrays of three elements are made of them.
FORMS: dict[str, Callable[[Any, list[float]], Any]] = {
    "chain": lambda m, v: m.sum(m.asarray(v[:3]) * v[3] + v[4]),
    "equal or different constants": lambda m, v: m.asarray(v[:3]) * v[3] + m.asarray(v[2:5]) * v[4],
    "one array or two": lambda m, v: m.asarray(v[:3]) - m.asarray(v[:3]) * v[3],
    "exponents": lambda m, v: (m.abs(m.asarray(v[:3])) + 1) ** int(v[3]),
    "positions": lambda m, v: (m.arange(8)[3:5] + int(v[3])) * (m.arange(8)[3] + int(v[4])),
    "views": lambda m, v: m.asarray(v)[::-1][1:4] + m.asarray(v)[:3],
    "epilogue": lambda m, v: m.asarray(v[:3]) / (1 + m.max(m.abs(m.asarray(v)))) + m.mean(m.asarray(v[:3])),
    "several folds": lambda m, v: m.sum(m.asarray([v[:3], v[2:5]]), axis=0) * m.min(m.asarray(v)),
    "running": lambda m, v: m.cumulative_sum(m.asarray(v) * v[0]),
    "signed zeros": lambda m, v: m.asarray([1.0, -1.0]) / (m.asarray([np.inf, np.inf]) * (v[0] or 1.0)) + -0.0 * v[1],
    "broadcast": lambda m, v: m.reshape(m.asarray(v[:3]), (3, 1)) * m.asarray(v[1:5]) + v[0],
}
NUMBERS = st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, -1.5, 7.25]), min_size=5, max_size=5)


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=15, deadline=None)
@given(numbers=st.lists(NUMBERS, min_size=2, max_size=4))
def test_values_are_those_of_the_numbers_at_hand(name: str, numbers: list[list[float]]) -> None:
    for given_now in numbers:
        expected = FORMS[name](np, given_now)
        np.testing.assert_allclose(FORMS[name](xp, given_now).compute(), expected, rtol=1e-14, atol=1e-14)


def test_the_second_run_of_a_form_needs_no_plan() -> None:
    def step(scale: float) -> float:
        x = xp.asarray([1.0, 2.0, 3.0]) * scale + 0.5
        return float(xp.max(x))

    assert planned(lambda: step(2.0)) == (6.5, True)
    assert planned(lambda: step(3.0)) == (9.5, False)
    assert planned(lambda: step(0.5)) == (2.0, True), "0.5 is one constant where there were two"
    assert planned(lambda: step(0.5)) == (2.0, False)


def test_a_loop_is_planned_a_few_times_whatever_its_length() -> None:
    x = xp.asarray(np.linspace(1.0, 2.0, 10))
    y = np.linspace(1.0, 2.0, 10)
    with jc.profile() as p:
        for k in range(30):
            x, y = x - 0.1 * (xp.sin(x) * x - k), y - 0.1 * (np.sin(y) * y - k)
            assert float(xp.sum(x)) == pytest.approx(y.sum(), rel=1e-12)
            if k == 5:
                compiled = p.to_dict()["kernels_compiled"]
    assert p.to_dict()["kernels_compiled"] == compiled
    assert p.to_dict()["plan_seconds"] < p.to_dict()["seconds"]
    np.testing.assert_allclose(x.compute(), y, rtol=1e-12)


def test_held_arrays_are_remembered_and_let_go() -> None:
    for scale in (2.0, 3.0, 4.0):
        x = xp.asarray([1.0, 2.0]) * scale
        assert float(xp.sum(x)) == 3 * scale
        assert "computed" in repr(x)
        before = runtime().ledger.reserved
        np.testing.assert_array_equal((x + 1).compute(), np.asarray([1.0, 2.0]) * scale + 1)
        del x
        gc.collect()
        assert runtime().ledger.reserved <= before


def test_recipes_keep_no_arrays(recipes: Recipes) -> None:
    values = np.asarray([1.0, 2.0])
    x = jc.from_array(values)
    source = weakref.ref(x._node.op.array)
    assert float(xp.sum(x * 2)) == 6
    assert len(recipes._recipes) == 1
    del x
    gc.collect()
    assert source() is None


def test_only_so_many_recipes_are_kept(recipes: Recipes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "MOST_RECIPES", 5)
    for n in range(1, 10):
        assert float(xp.sum(xp.asarray(np.ones(n)) * 2)) == 2 * n
    assert len(recipes._recipes) == 5


OTHERS: dict[str, Callable[[], Any]] = {
    "larger arrays": lambda: xp.sum(xp.asarray(np.ones(SMALL_BYTES // 8 + 1)) * 2),
    "users' functions": lambda: jc.map_blocks(lambda b: b * 2, xp.asarray([1.0])),
    "several tasks": lambda: xp.asarray(np.ones(8), chunks=2) * 2 + xp.sort(xp.asarray(np.ones(8), chunks=2)),
    "moves": lambda: xp.concat([xp.asarray([1.0, 2.0]), xp.asarray([3.0])]) * 2,
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_planned_each_time(name: str) -> None:
    first, _ = planned(lambda: OTHERS[name]().compute())
    second, again = planned(lambda: OTHERS[name]().compute())
    assert again
    np.testing.assert_array_equal(first, second)


def test_a_form_is_planned_anew_for_another_budget() -> None:
    def step() -> float:
        return float(xp.sum(xp.asarray(np.ones(100)) * 2))

    step()
    assert planned(step) == (200.0, False)
    with budget(10_000):
        assert planned(step) == (200.0, True)


def test_a_budget_that_is_taken_has_a_plan_make_room() -> None:
    with budget(200_000):
        for k in range(60):  # each remembers 24 KB
            x = xp.asarray(np.full(3000, float(k))) * 2
            assert float(xp.sum(x)) == 6000 * k
            held = runtime().ledger
            assert held.held <= held.reserved <= 200_000
