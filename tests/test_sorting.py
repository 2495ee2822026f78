"""sort and argsort: every dtype, axis, direction and chunking, in one task or out of core."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.measure import MIB
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.array_api import _merging
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.merges import Merge, Splits
from tests.helpers import arrays as a

KIB = 1024
REAL = a.BOOL + a.INTEGERS + a.REALS


def expected_sort(x: Any, axis: int, descending: bool) -> Any:
    """NumPy's sort; NaN last in both directions."""
    return np.take_along_axis(x, expected_argsort(x, axis, descending), axis)


def expected_argsort(x: Any, axis: int, descending: bool) -> Any:
    """Stable in both directions, NaN last."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    if x.dtype.kind == "f":
        keys = np.where(np.isnan(x), np.inf, -x)
        return np.lexsort((keys, np.isnan(x)), axis=axis)
    # Ranks turned round: no overflow, and equal elements stay equal.
    _, ranks = np.unique(x, return_inverse=True)
    return np.argsort(-ranks.reshape(x.shape), axis=axis, kind="stable")


def check_sorts(x: Any, y: xp.Array, axis: int = -1, descending: bool = False) -> None:
    a.check(xp.argsort(y, axis=axis, descending=descending), expected_argsort(x, axis, descending))
    got = xp.sort(y, axis=axis, descending=descending)
    a.check(got, expected_sort(x, axis, descending))
    assert got.chunks == y.chunks


def extremes(dtype: str, size: int, seed: int) -> Any:
    """Values from both ends of a dtype's range, with many that are equal."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(size) < 0.5
    if kind == "f":
        info = np.finfo(dtype)
        few = [0.0, -0.0, 1.0, -1.0, np.nan, -np.nan, np.inf, -np.inf, info.max, info.min, info.eps, 1 + info.eps]
        return rng.choice(np.asarray(few, dtype), size)
    limits = np.iinfo(dtype)
    few = [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2, limits.max // 2 + 1, 0, 1, 2]
    return rng.choice(np.asarray(few, dtype), size)


@given(st.data(), a.arrays(REAL, special=True, min_dims=1), st.booleans(), st.booleans())
def test_any_shape_and_chunks(data: Any, pair: Any, descending: bool, stable: bool) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    a.check(xp.argsort(y, axis=axis, descending=descending, stable=stable), expected_argsort(x, axis, descending))
    a.check(xp.sort(y, axis=axis, descending=descending, stable=stable), expected_sort(x, axis, descending))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", REAL)
def test_ends_of_the_range(dtype: str, descending: bool) -> None:
    x = extremes(dtype, 60, 0)
    check_sorts(x, xp.asarray(x, chunks=7), descending=descending)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", REAL)
def test_ends_of_the_range_out_of_core(dtype: str, descending: bool) -> None:
    x = extremes(dtype, 60_000, 1)
    with budget(320 * KIB):
        y = xp.asarray(x, chunks=3000)
        order = expected_argsort(x, 0, descending)
        a.check(xp.argsort(y, descending=descending)[::7], order[::7])
        a.check(xp.sort(y, descending=descending)[::7], x[order][::7])


def test_arrays_without_axes_or_elements() -> None:
    zero = xp.asarray(3.0)
    a.check(xp.sort(zero), np.asarray(3.0))
    a.check(xp.argsort(zero), np.asarray(0))
    for shape in ((0,), (0, 3), (3, 0), (1,), (1, 1)):
        for axis in range(len(shape)):
            check_sorts(np.ones(shape), xp.ones(shape, chunks=2), axis)


def test_zeros_of_both_signs_are_equal_and_stay_in_order_where_positions_are_asked_for() -> None:
    x = np.asarray([0.0, -0.0, 1.0, -0.0, 0.0, -1.0])
    y = xp.asarray(x, chunks=2)
    a.check(xp.argsort(y), np.asarray([5, 0, 1, 3, 4, 2]))
    a.check(xp.argsort(y, descending=True), np.asarray([2, 0, 1, 3, 4, 5]))
    for descending in (False, True):
        values = xp.sort(y, descending=descending).compute()
        assert np.signbit(values[values == 0]).sum() == 2  # none is lost


def test_nan_comes_last_whatever_its_sign_and_bits() -> None:
    bits = np.asarray([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    x = np.concatenate([bits, [1.0, -np.inf, np.inf]])
    y = xp.asarray(x, chunks=4)
    a.check(xp.sort(y), np.asarray([-np.inf, 1, np.inf, np.nan, np.nan, np.nan]))
    a.check(xp.sort(y, descending=True), np.asarray([np.inf, 1, -np.inf, np.nan, np.nan, np.nan]))
    a.check(xp.argsort(y), np.asarray([4, 3, 5, 0, 1, 2]))
    a.check(xp.argsort(y, descending=True), np.asarray([5, 3, 4, 0, 1, 2]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f: f(xp.zeros(3, dtype=xp.complex64)), TypeError, "complex numbers have no order"),
        (lambda f: f(xp.zeros(3), axis=1), IndexError, "axis"),
        (lambda f: f(xp.zeros(3), axis=-2), IndexError, "axis"),
        (lambda f: f(xp.zeros(3), axis=1.0), TypeError, "axis"),
        (lambda f: f([3, 1]), TypeError, "asarray|array"),
        (lambda f: f(np.zeros(3)), TypeError, "asarray|array"),
    ],
)
@pytest.mark.parametrize("function", [xp.sort, xp.argsort])
def test_bad_arguments(function: Any, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(function)


# --- out of core -------------------------------------------------------------------------------------


def drawn(kind: str, n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return {
        "any": lambda: rng.standard_normal(n),
        "few": lambda: rng.integers(0, 3, n).astype(np.float64),
        "one": lambda: np.full(n, 7.0),
        "sorted": lambda: np.arange(float(n)),
        "reversed": lambda: np.arange(float(n))[::-1].copy(),
        "runs": lambda: np.arange(n) % 1000.0,
        "nan": lambda: np.where(rng.random(n) < 0.4, np.nan, rng.standard_normal(n)),
    }[kind]()


KINDS = ["any", "few", "one", "sorted", "reversed", "runs", "nan"]


@settings(max_examples=15)
@given(
    n=st.integers(10_000, 60_000),
    chunk=st.sampled_from([64, 1000, 4096, 7777, 100_000]),
    kibibytes=st.sampled_from([96, 128, 256, 512]),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(REAL),
    descending=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_budget(n: int, chunk: int, kibibytes: int, kind: str, dtype: str, descending: bool, seed: int) -> None:
    with np.errstate(invalid="ignore"):
        x = drawn(kind, n, seed).astype(dtype)
    with budget(kibibytes * KIB):
        y = xp.asarray(x, chunks=chunk)
        order, values = xp.argsort(y, descending=descending), xp.sort(y, descending=descending)
        try:
            got = order[: n // 2 : 3].compute(), order[n - 100 :].compute(), values[::2].compute()
        except MemoryBudgetError:
            assert kibibytes < 512
            return
    positions = expected_argsort(x, 0, descending)
    np.testing.assert_array_equal(got[0], positions[: n // 2 : 3])
    np.testing.assert_array_equal(got[1], positions[n - 100 :])
    np.testing.assert_array_equal(got[2], x[positions][::2])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 9000, 2), (20_000, 1, 3), (2, 2, 15_000)])
def test_lines_beside_each_other(shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(5).integers(-99, 99, shape).astype(np.int32)
    with budget(384 * KIB):
        y = xp.asarray(x, chunks=tuple(max(1, n // 3) for n in shape))
        for descending in (False, True):
            got = xp.sort(y, axis=axis, descending=descending), xp.argsort(y, axis=axis, descending=descending)
            cut = tuple(slice(None, None, 1 + n // 500) for n in shape)
            a.check(got[0][cut], expected_sort(x, axis, descending)[cut])
            a.check(got[1][cut], expected_argsort(x, axis, descending)[cut])


def stages_of(array: xp.Array) -> list[str]:
    with jc.profile() as p:
        array.compute()
    return [stage["name"] for stage in p.to_dict()["stages"]]


@pytest.mark.parametrize("kind", ["any", "few", "runs"])
def test_several_levels_of_merging(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With four runs at most to be merged at once, 80 runs take four levels."""
    monkeypatch.setattr(_merging, "_MOST_RUNS", 4)
    x = drawn(kind, 163_840, 3)
    with budget(320 * KIB):
        y = xp.asarray(x, chunks=2048)
        names = stages_of(xp.sort(y)[::19])
        assert sum("merged runs" in name for name in names) >= 2
        a.check(xp.sort(y)[::19], np.sort(x)[::19])
        a.check(xp.argsort(y)[::19], np.argsort(x, kind="stable")[::19])


def test_what_fits_is_sorted_in_one_task() -> None:
    x = xp.asarray(np.random.default_rng(0).random(50_000), chunks=5000)
    assert not any("runs" in name for name in stages_of(xp.sort(x)))


def test_parts_of_a_sorted_array() -> None:
    """Any part is merged from what lies between its splits, and comes out the same."""
    x = drawn("few", 50_000, 9)
    with budget(192 * KIB):
        y = xp.sort(xp.asarray(x, chunks=999))
        sorted_x = np.sort(x)
        for key in (0, -1, slice(17_000, 17_003), slice(None, None, -5001), slice(49_999, None)):
            a.check(y[key], sorted_x[key])
        assert float(xp.min(y)) == x.min()
        median = y[24_999:25_001]
        a.check(xp.mean(median), np.asarray(np.median(x)))


def test_sorts_of_sorts() -> None:
    x = drawn("any", 30_000, 4)
    with budget(384 * KIB):
        y = xp.asarray(x, chunks=4000)
        order = xp.argsort(y)
        ranks = xp.argsort(order)
        a.check(ranks[::7], np.argsort(np.argsort(x, kind="stable"), kind="stable")[::7])
        a.check(y[order][::7], np.sort(x)[::7])
        a.check(xp.sort(xp.sort(y, descending=True))[::7], np.sort(x)[::7])


# --- the gathers by themselves -----------------------------------------------------------------------


class InMemory:
    """Operands of a gather that are arrays."""

    def __init__(self, *arrays: Any) -> None:
        self.arrays = arrays

    def read(self, operand: int, box: Any, out: Any = None) -> Any:
        values = self.arrays[operand][tuple(slice(*span) for span in box)]
        assert values.shape == tuple(b - a for a, b in box), "a box that sticks out"
        if out is None:
            return values.copy()
        out[...] = values
        return out

    def empty(self, operand: int, shape: Any) -> Any:
        return np.empty(shape, self.arrays[operand].dtype)

    def grid(self, operand: int) -> Any:
        return tuple(Axis.regular(n, n) for n in self.arrays[operand].shape)


@given(
    st.data(),
    st.integers(1, 60),
    st.sampled_from([(4, 2, 1), (4, 2, 4), (8, 4, 2), (16, 8, 8), (8, 2, 4), (12, 4, 2), (4, 8, 2), (2, 6, 1)]),
    st.integers(1, 6),
    st.integers(0, 3),
    st.booleans(),
)
def test_splits_are_exact(data: Any, length: int, sizes: Any, fan: int, distinct: int, pairs: bool) -> None:
    """Each block of a merged group has its number of rows, in order, equal ones in the order of their runs."""
    run, block, step = sizes
    fan *= max(1, block // run)  # groups are whole blocks
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lanes, columns = 2, 1 + pairs
    rows = rng.integers(0, distinct + 1, (lanes, length, columns))
    if pairs:
        rows[..., 1] = np.arange(length)
    for lane, start in itertools.product(range(lanes), range(0, length, run)):
        part = rows[lane, start : start + run]
        part[...] = part[np.argsort(part[:, 0], kind="stable")]
    splits = Splits(run, fan, block, length, step, 1, 8)
    samples = rows[:, ::step]
    blocks = -(-length // block)
    starts = np.empty((lanes, blocks, fan), np.int64)
    splits.fill(((0, lanes), (0, blocks), (0, fan)), starts, InMemory(rows, samples))
    # A part of the table is that part.
    k0 = data.draw(st.integers(0, blocks - 1))
    part = np.empty((1, blocks - k0, 1), np.int64)
    splits.fill(((1, 2), (k0, blocks), (fan - 1, fan)), part, InMemory(rows, samples))
    np.testing.assert_array_equal(part, starts[1:, k0:, fan - 1 :])

    merge = Merge(run, fan, block, length, 1, columns)
    got = np.empty_like(rows)
    merge.fill(((0, lanes), (0, length), (0, columns)), got, InMemory(rows, starts))
    expected = rows.copy()
    for lane, start in itertools.product(range(lanes), range(0, length, run * fan)):
        group = expected[lane, start : start + run * fan]
        group[...] = group[np.argsort(group[:, 0], kind="stable")]
    np.testing.assert_array_equal(got, expected)
    first = data.draw(st.integers(0, length - 1))
    last = data.draw(st.integers(first + 1, length))
    piece = np.empty((1, last - first, 1), np.int64)
    merge.fill(((1, 2), (first, last), (columns - 1, columns)), piece, InMemory(rows, starts))
    np.testing.assert_array_equal(piece, expected[1:, first:last, columns - 1 :])


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint32"])
@pytest.mark.parametrize("kind", ["any", "few", "nan"])
def test_millions(dtype: str, kind: str) -> None:
    with np.errstate(invalid="ignore"):
        x = drawn(kind, 5_000_000, 0).astype(dtype)
    with budget(2 * MIB):
        y = xp.asarray(x, chunks=100_000)
        a.check(xp.sort(y)[::31], np.sort(x)[::31])
        a.check(xp.argsort(y)[::31], np.argsort(x, kind="stable")[::31])
