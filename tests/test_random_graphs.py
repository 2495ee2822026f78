"""Random programs on random chunks under random budgets: NumPy's values, or an error before anything ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.run.runtime import runtime

Pair = tuple[Any, np.ndarray[Any, Any]]


def _chunks(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Regular or irregular cuts of each axis."""
    cuts: list[Any] = []
    for n in shape:
        if draw(st.booleans()):
            cuts.append(draw(st.integers(1, max(1, n))))
            continue
        sizes, left = [], n
        while left:
            size = draw(st.integers(1, left))
            sizes.append(size)
            left -= size
        cuts.append(tuple(sizes) or 1)
    return tuple(cuts)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Pair], int]:
    """Arrays of jaxchunk and NumPy made by the same steps, and a budget in bytes."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    pairs: list[Pair] = []
    for _ in range(2):
        values = rng.integers(-4, 5, shape).astype(np.float64)
        pairs.append((xp.asarray(values, chunks=_chunks(draw, shape)), values))
    for _ in range(draw(st.integers(1, 6))):
        step = draw(st.sampled_from(STEPS))
        made = step(draw, pairs)
        if made is not None and made[1].size < 5000:
            pairs.append(made)
    return pairs, draw(st.sampled_from([30_000, 200_000, 4_000_000]))


def _pick(draw: st.DrawFn, pairs: list[Pair]) -> Pair:
    return pairs[draw(st.integers(0, len(pairs) - 1))]


def _elementwise(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    (a, x), (b, y) = _pick(draw, pairs), _pick(draw, pairs)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return None
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return a + b, x + y
    if kind == 1:
        return a * 0.5 - b, x * 0.5 - y
    if kind == 2:
        return xp.maximum(a, b), np.maximum(x, y)
    if kind == 3:
        return xp.where(a > b, a, b * 2), np.where(x > y, x, y * 2)
    return xp.abs(a) + 1, np.abs(x) + 1


def _slice(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    a, x = _pick(draw, pairs)
    key: list[Any] = []
    for n in x.shape:
        if draw(st.integers(0, 5)) == 0 and n:
            key.append(draw(st.integers(-n, n - 1)))
        else:
            bound = st.none() | st.integers(-n - 1, n + 1)
            key.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -3]))))
    if draw(st.integers(0, 4)) == 0:
        key.insert(draw(st.integers(0, len(key))), None)
    return a[tuple(key)], x[tuple(key)]


def _move(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    a, x = _pick(draw, pairs)
    kind = draw(st.integers(0, 6))
    if kind == 0:
        order = draw(st.permutations(range(x.ndim)))
        return xp.permute_dims(a, tuple(order)), np.transpose(x, order)
    if kind == 1:
        return xp.reshape(a, (-1,)), x.reshape(-1)
    if kind == 2:
        return xp.flip(a), np.flip(x)
    if kind == 3 and x.ndim:
        axis = draw(st.integers(0, x.ndim - 1))
        other = draw(st.sampled_from([p for p in pairs if p[1].shape == x.shape]))
        return xp.concat([a, other[0]], axis=axis), np.concatenate([x, other[1]], axis=axis)
    if kind == 4 and x.ndim:
        shift = draw(st.integers(-5, 5))
        axis = draw(st.integers(0, x.ndim - 1))
        return xp.roll(a, shift, axis=axis), np.roll(x, shift, axis=axis)
    if kind == 5:
        other = draw(st.sampled_from([p for p in pairs if p[1].shape == x.shape]))
        return xp.stack([a, other[0]]), np.stack([x, other[1]])
    if x.size and x.ndim:
        return jc.rechunk(a, _chunks(draw, x.shape)), x
    return None


def _fold(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    a, x = _pick(draw, pairs)
    axes = tuple(i for i in range(x.ndim) if draw(st.booleans()))
    keep = draw(st.booleans())
    kind = draw(st.sampled_from(["sum", "max", "mean", "var", "min"]))
    if kind != "sum" and (x.size == 0 or not axes):
        return None
    ours, theirs = getattr(xp, kind), getattr(np, kind)
    return ours(a, axis=axes, keepdims=keep), np.asarray(theirs(x, axis=axes, keepdims=keep))


def _centred(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    a, x = _pick(draw, pairs)
    if not x.size or not x.ndim:
        return None
    axis = draw(st.integers(0, x.ndim - 1))
    return a - xp.mean(a, axis=axis, keepdims=True), x - x.mean(axis=axis, keepdims=True)


def _product(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    a, x = _pick(draw, pairs)
    if x.ndim != 2 or not x.size:
        return None
    return a @ xp.matrix_transpose(a), x @ x.T


def _scan(draw: st.DrawFn, pairs: list[Pair]) -> Pair | None:
    a, x = _pick(draw, pairs)
    if not x.ndim or not x.size:
        return None
    axis = draw(st.integers(0, x.ndim - 1))
    return xp.cumulative_sum(a, axis=axis), np.cumsum(x, axis=axis)


STEPS: list[Callable[..., Pair | None]] = [_elementwise, _elementwise, _slice, _move, _fold, _centred, _product, _scan]


def _check(program: tuple[list[Pair], int]) -> None:
    pairs, budget = program
    wanted = pairs[-2:]
    with jc.config.set(host_memory=budget):
        plan = jc.plan(*(ours for ours, _ in wanted))
        if plan.problem is not None:
            assert budget < 1_000_000
            with pytest.raises(MemoryError):
                plan.run()
            return
        got = jc.compute(*(ours for ours, _ in wanted))
    for values, (ours, theirs) in zip(got, wanted, strict=True):
        assert ours.shape == theirs.shape
        scale = max(1.0, float(np.max(np.abs(theirs), initial=0)))
        np.testing.assert_allclose(values, theirs, rtol=1e-9, atol=1e-9 * scale)
    ledger = runtime().ledger
    assert ledger.overdrawn == 0
    assert ledger.held <= ledger.reserved


@given(programs())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_programs(program: tuple[list[Pair], int]) -> None:
    _check(program)


@pytest.mark.long
@given(programs())
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
def test_many_random_programs(program: tuple[list[Pair], int]) -> None:
    _check(program)
