"""Elements at positions that data gives: take, take_along_axis, nonzero, masks and integer arrays as keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.measure import MIB
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from tests.helpers import arrays as a
from tests.helpers import keys as k

# --- take and take_along_axis ------------------------------------------------------------------------


@given(st.data(), a.arrays(min_dims=1, min_side=1))
def test_take(data: Any, pair: Any) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    index = data.draw(k.indices(x.shape[axis], (data.draw(st.integers(0, 9)),)))
    got = xp.take(y, data.draw(k.lazily(index)), axis=axis)
    a.check(got, np.take(x, index.astype(np.int64), axis=axis))


@given(st.data(), a.arrays(min_dims=1, min_side=1))
def test_take_along_axis(data: Any, pair: Any) -> None:
    x, y = pair
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    shape = list(x.shape)
    shape[axis] = data.draw(st.integers(0, 5))
    others = [i for i in range(x.ndim) if i != axis % x.ndim]
    if others and data.draw(st.booleans()):
        shape[data.draw(st.sampled_from(others))] = 1  # it broadcasts
    index = data.draw(k.indices(x.shape[axis], tuple(shape)))
    got = xp.take_along_axis(y, data.draw(k.lazily(index)), axis=axis)
    a.check(got, np.take_along_axis(x, index.astype(np.int64), axis=axis))


def test_take_needs_no_axis_of_a_vector() -> None:
    a.check(xp.take(xp.asarray([5, 6, 7], chunks=2), xp.asarray([2, 2, 0])), np.asarray([7, 7, 5]))


def test_takes_of_takes_of_computed_indices() -> None:
    n = np.random.default_rng(0).integers(0, 100, 100)
    i = xp.asarray(n, chunks=7) + 0
    a.check(xp.take(i, xp.take(i, i)), n[n[n]])
    a.check(i[i[i[::-2]]], n[n[n[::-2]]])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_narrow_indices_reach_over_long_axes(dtype: str) -> None:
    x = xp.arange(1000, chunks=300)
    low = [5, 100] if dtype == "uint8" else [-1, 100, -128]
    index = xp.asarray(low, dtype=getattr(xp, dtype))
    a.check(xp.take(x, index), np.arange(1000)[low])
    a.check(x[index + xp.asarray(0, dtype=index.dtype)], np.arange(1000)[low])


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(
    ("index", "dtype"), [([0, 3], "int64"), ([-4], "int8"), ([2**64 - 1], "uint64"), ([2**63], "uint64")]
)
def test_positions_outside(index: list[int], dtype: str, lazy: bool) -> None:
    x, i = xp.arange(3), xp.asarray(index, dtype=getattr(xp, dtype))
    gets = [
        lambda i: xp.take(x, i),
        lambda i: xp.take_along_axis(x, i),
        lambda i: x[i],
        lambda i: xp.reshape(x, (3, 1))[i, xp.asarray(0)],
    ]
    for get in gets:
        if lazy:
            late = get(i + xp.asarray(0, dtype=i.dtype))
            with pytest.raises(IndexError, match="points outside of an axis of length 3"):
                late.compute()
            with pytest.raises(IndexError, match="outside"):  # and again
                float(xp.sum(late))
        else:
            with pytest.raises(IndexError, match="points outside of an axis of length 3"):
                get(i)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.take(x, xp.asarray([[0]]), axis=0), ValueError, "one axis"),
        (lambda x: xp.take(x, xp.asarray([0])), ValueError, "axis has to be given"),
        (lambda x: xp.take(x, xp.asarray([0.0]), axis=0), TypeError, "integers"),
        (lambda x: xp.take(x, xp.asarray([True]), axis=0), TypeError, "integers"),
        (lambda x: xp.take(x, [0], axis=0), TypeError, "indices"),
        (lambda x: xp.take(x, xp.asarray([0]), axis=2), IndexError, "axis"),
        (lambda x: xp.take_along_axis(x, xp.asarray([0])), ValueError, "as many"),
        (lambda x: xp.take_along_axis(x, xp.asarray([[0.0]])), TypeError, "integers"),
        (lambda x: xp.take_along_axis(x, xp.zeros((2, 4), dtype=xp.int64), axis=1), ValueError, "broadcast"),
        (lambda x: xp.nonzero(x[0, 0]), ValueError, "no axes"),
        (lambda x: xp.nonzero([1]), TypeError, "nonzero"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros((3, 4), chunks=2))


# --- nonzero -----------------------------------------------------------------------------------------


@given(a.arrays(min_dims=1, special=True))
def test_nonzero(pair: Any) -> None:
    x, y = pair
    got = xp.nonzero(y)
    assert isinstance(got, tuple)
    for mine, theirs in zip(got, np.nonzero(x), strict=True):
        a.check(mine, theirs)
    again = y[xp.nonzero(y)]
    a.check(again, x[np.nonzero(x)])


def test_nonzero_counts_once_for_all_axes() -> None:
    y = xp.reshape(xp.arange(400_000, chunks=9000) % 7, (200, 500, 4))
    with jc.profile() as p:
        found = xp.nonzero(y == 0)
        assert p.to_dict()["runs"] == 0
        shapes = [f.shape for f in found]
        assert p.to_dict()["runs"] == 1
    expected = np.nonzero(np.arange(400_000).reshape(200, 500, 4) % 7 == 0)
    assert shapes == [e.shape for e in expected]
    for mine, theirs in zip(jc.compute(*found), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("chunk", [999, 65_536, 300_000])
@pytest.mark.parametrize("share", [0, 3, 1000])
def test_long_masks_are_counted_by_segments(chunk: int, share: int) -> None:
    n = np.arange(300_000)
    keep = n % share == 1 if share else n < 0
    if share == 1000:
        keep[100_000:200_000] = True  # segments that are full beside some that are all but empty
    with budget(2 * MIB):
        x = xp.asarray(n, chunks=chunk)
        mask = xp.asarray(keep, chunks=7777)
        (found,) = xp.nonzero(mask)
        a.check(found, np.flatnonzero(keep))
        a.check(x[mask][::-3], n[keep][::-3])
        a.check(found[1:][:5], np.flatnonzero(keep)[1:][:5])


# --- keys --------------------------------------------------------------------------------------------


@given(st.data(), a.arrays(("int64", "bool", "complex64"), min_dims=1, min_side=1))
def test_integer_arrays(data: Any, pair: Any) -> None:
    x, y = pair
    numpy_key, key = data.draw(k.array_keys(x.shape))
    a.check(y[key], x[numpy_key])


@given(st.data(), a.arrays(("int64", "float32")))
def test_a_mask_alone(data: Any, pair: Any) -> None:
    x, y = pair
    numpy_key, key = data.draw(k.mask_keys(x.shape, alone=True))
    a.check(y[key], x[numpy_key])


@given(st.data(), a.arrays(("int64",), min_dims=1))
def test_a_mask_among_slices_and_integers(data: Any, pair: Any) -> None:
    x, y = pair
    numpy_key, key = data.draw(k.mask_keys(x.shape))
    a.check(y[key], x[numpy_key])


@given(st.data(), a.arrays(("int64",), min_dims=2, min_side=1))
def test_views_before_and_after(data: Any, pair: Any) -> None:
    """Indices on views, and views on what was indexed."""
    x, y = pair
    x, y = x.T[::-1], xp.permute_dims(y, tuple(reversed(range(y.ndim))))[::-1]
    numpy_key, key = data.draw(k.array_keys(x.shape))
    after = data.draw(k.basic_keys(x[numpy_key].shape))
    a.check(y[key][after], x[numpy_key][after])
    a.check(xp.sum(y[key]), np.asarray(x[numpy_key].sum()))


@pytest.mark.parametrize("none_at", [0, 1, 2])
def test_new_axes_beside_arrays(none_at: int) -> None:
    x = np.arange(60).reshape(3, 4, 5)
    i, j = np.asarray([2, 0, 1]), np.asarray([[3], [1]])
    y = xp.asarray(x, chunks=2)
    for entries in ([i, j], [i, slice(1, 3)], [slice(None), j], [i > 0, 2], [1, j]):
        key = [*entries[:none_at], None, *entries[none_at:]]
        mine = tuple(xp.asarray(e) if isinstance(e, np.ndarray) else e for e in key)
        a.check(y[mine], x[tuple(key)])


def test_lists_and_numpy_arrays_are_keys_too() -> None:
    x = np.arange(12).reshape(3, 4)
    y = xp.asarray(x, chunks=2)
    for key in ([0, 2], [], [True, False, True], x > 4, np.asarray([1, -1]), ([0, 1], [[1], [2]]), np.asarray(1)):
        a.check(y[key], x[np.asarray(key, np.int64) if key == [] else key] if isinstance(key, list) else x[key])
    rows = np.asarray([0, 1])
    got = y[rows]
    rows[:] = 2  # what counts is the moment of the call
    a.check(got, x[:2])


def test_a_mask_of_no_elements_along_an_axis_selects_nothing_of_it() -> None:
    x = xp.asarray(np.arange(12).reshape(3, 4), chunks=2)
    for shape in ((0,), (0, 4), (3, 0), (0, 0)):
        mask = xp.zeros(shape, dtype=xp.bool)
        a.check(x[mask], np.empty((0, 4)[: 3 - len(shape)], np.int64))
        x[mask] = 1
    a.check(x, np.arange(12).reshape(3, 4))


def test_order_is_that_of_the_array_and_not_of_blocks() -> None:
    x = np.arange(7 * 8).reshape(7, 8)
    for chunks in ((7, 8), (2, 3), (1, 1), (7, 1)):
        y = xp.asarray(x, chunks=chunks)
        a.check(y[y % 5 == 3], x[x % 5 == 3])
        a.check(y[:, y[0] % 2 == 1], x[:, x[0] % 2 == 1])


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (np.ones(2, bool), IndexError, r"mask of shape \(2,\)"),
        ((np.ones(4, bool), 0), IndexError, r"mask of shape \(4,\)"),
        ((np.ones(2, bool), slice(0, 2)), IndexError, r"mask of shape \(2,\)"),
        ((..., np.ones(3, bool)), IndexError, r"axes of shape \(4,\)"),
        (np.ones((3, 1), bool), IndexError, r"mask of shape \(3, 1\)"),
        ((np.ones((3, 4), bool), 0), IndexError, "too many indices"),
        ((..., np.ones(4, bool), ...), IndexError, "only one ellipsis"),
        ((..., np.asarray([0]), ...), IndexError, "only one ellipsis"),
        ((True, 0), IndexError, "mask without axes"),
        (np.asarray([0.0]), IndexError, "integers or bool, not float64"),
        (np.asarray(["a"]), IndexError, "integers or bool"),
        ((np.asarray([0, 1]), np.asarray([0, 1, 2])), IndexError, "arrays as indices"),
        ((np.asarray([0]),) * 3, IndexError, "too many indices"),
        ((np.asarray([0]), 4), IndexError, "outside of an axis of length 4"),
        ((np.asarray([0]), 1.5), TypeError, "an index is an int"),
    ],
)
@pytest.mark.parametrize("assigned", [False, True])
def test_bad_keys(key: Any, error: type[Exception], message: str, assigned: bool) -> None:
    x = xp.asarray(np.arange(12).reshape(3, 4), chunks=2)
    entries = key if isinstance(key, tuple) else (key,)
    for make in (xp.asarray, lambda e: e):
        own = tuple(make(e) if isinstance(e, np.ndarray) and e.dtype.kind in "biuf" else e for e in entries)
        with pytest.raises(error, match=message):
            if assigned:
                x[own] = 1
            else:
                x[own]
    a.check(x, np.arange(12).reshape(3, 4))


# --- out of core -------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [MIB, 4 * MIB])
def test_any_budget(nbytes: int) -> None:
    n = 400_000
    rng = np.random.default_rng(3)
    index = rng.integers(-n, n, n // 2)
    x = xp.arange(float(n), chunks=50_000)
    with budget(nbytes), jc.profile() as p:
        i = xp.asarray(index, chunks=11_111)
        assert float(xp.sum(x[i])) == np.arange(float(n))[index].sum()
        assert float(xp.sum(x[x % 3 == 0] * 2)) == (np.arange(0, n, 3) * 2.0).sum()
        a.check(x[i][::97], np.arange(float(n))[index][::97])
    figures = p.to_dict()
    assert 0 < figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= nbytes
    assert not any(stage["grown_bytes"] for stage in figures["stages"])


def test_few_rows_of_many_read_few_chunks(tmp_path: Any) -> None:
    import zarr

    values = np.random.default_rng(0).random((4096, 64))
    z = zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(64, 64))
    rows = np.asarray([4000, 3, 70, 64, 3])
    with jc.profile() as p:
        a.check(jc.from_zarr(z)[xp.asarray(rows)], values[rows])
    assert p.to_dict()["bytes_read"] == 3 * 64 * 64 * 8
