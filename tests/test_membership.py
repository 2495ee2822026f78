"""searchsorted, isin, and repeat with an array of counts, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import arrays as a
from helpers.measure import MIB
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp

ORDERED = a.BOOL + a.INTEGERS + a.REALS
SIDES = st.sampled_from(["left", "right"])


# --- searchsorted ------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(ORDERED), st.integers(0, 40), SIDES)
def test_searchsorted(data: Any, dtype: str, length: int, side: Any) -> None:
    x1 = np.sort(a.values((length,), dtype, data.draw(st.integers(0, 99)), special=True))
    x2, wanted = data.draw(a.arrays((dtype,), special=True))
    found = xp.searchsorted(xp.asarray(x1, chunks=data.draw(a.chunkings(x1.shape))), wanted, side=side)
    a.check(found, np.searchsorted(x1, x2, side))
    assert found.chunks == wanted.chunks


@given(st.data(), st.sampled_from(ORDERED), st.integers(1, 40), SIDES)
def test_a_sorter_stands_for_the_order(data: Any, dtype: str, length: int, side: Any) -> None:
    x1, array = data.draw(a.arrays((dtype,), shape=(length,), special=True))
    x2, wanted = data.draw(a.arrays((dtype,), max_dims=2))
    sorter = np.argsort(x1, kind="stable")
    given_sorter = xp.asarray(sorter.astype("int32"), chunks=data.draw(a.chunkings((length,))))
    expected = np.searchsorted(x1, x2, side, sorter=sorter)
    a.check(xp.searchsorted(array, wanted, side=side, sorter=given_sorter), expected)
    a.check(xp.searchsorted(array, wanted, side=side, sorter=xp.argsort(array)), expected)


@pytest.mark.parametrize("dtype", ORDERED)
def test_elements_at_the_ends_of_a_dtype(dtype: str) -> None:
    if np.dtype(dtype).kind == "f":
        info = np.finfo(dtype)
        some = [-np.inf, info.min, -1, -info.tiny, -info.smallest_subnormal, 0, info.smallest_subnormal, 1, np.inf]
        values = np.asarray([*some, np.nan], dtype)
    elif dtype == "bool":
        values = np.asarray([False, True])
    else:
        values = np.asarray([np.iinfo(dtype).min, 1, 2, np.iinfo(dtype).max - 1, np.iinfo(dtype).max], dtype)
    for side in ("left", "right"):
        a.check(
            xp.searchsorted(xp.asarray(values, chunks=2), xp.asarray(values), side=side),
            values.searchsorted(values, side),
        )
    a.check(xp.isin(xp.asarray(values), xp.asarray(values[1::2])), np.isin(values, values[1::2]))


def test_zeros_of_both_signs_are_equal_and_nan_is_last() -> None:
    x1 = xp.asarray([-1.0, -0.0, 0.0, -0.0, xp.nan, -xp.nan], chunks=2)
    x2 = xp.asarray([-0.0, 0.0, xp.nan, -xp.nan, xp.inf])
    assert xp.searchsorted(x1, x2).compute().tolist() == [1, 1, 4, 4, 4]
    assert xp.searchsorted(x1, x2, side="right").compute().tolist() == [4, 4, 6, 6, 4]


def test_searchsorted_promotes() -> None:
    x1 = xp.asarray([-3, 0, 5], dtype=xp.int8)
    a.check(xp.searchsorted(x1, xp.asarray([200, 4], dtype=xp.uint8)), np.asarray([3, 2]))
    x1 = xp.asarray([0.5, 1.5], dtype=xp.float32)
    a.check(xp.searchsorted(x1, xp.asarray(1.0)), np.asarray(1))
    for scalar in (1, 1.0, np.float64(1), xp.asarray(1, dtype=xp.float32)):
        a.check(xp.searchsorted(x1, scalar), np.asarray(1))
    a.check(xp.searchsorted(xp.asarray([False, True]), True, side="right"), np.asarray(2))


def test_a_part_of_the_result() -> None:
    x1, x2 = np.arange(0, 1000, 3), np.arange(600).reshape(20, 30)
    found = xp.searchsorted(xp.asarray(x1, chunks=50), xp.asarray(x2, chunks=7))
    expected = np.searchsorted(x1, x2)
    for key in ((3, 4), (slice(2, 9, 3),), (slice(None), 29), (..., slice(5, 8))):
        a.check(found[key], expected[key])
    a.check(xp.sum(found + 1, axis=0), (expected + 1).sum(0))


# --- isin --------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(a.ALL), st.sampled_from([(), (0,), (1,), (4, 3), (6, 7), (100,)]), st.booleans())
def test_isin(data: Any, dtype: str, shape: tuple[int, ...], invert: bool) -> None:
    x1, wanted = data.draw(a.arrays((dtype,), special=True))
    x2, within = data.draw(a.arrays((dtype,), shape=shape, special=True))
    if x1.size and x2.size and data.draw(st.booleans()):
        x2.flat[:: max(1, x2.size // 5)] = x1.flat[0]
        within = xp.asarray(x2, chunks=data.draw(a.chunkings(shape)))
    a.check(xp.isin(wanted, within, invert=invert), np.isin(x1, x2, invert=invert))


@pytest.mark.parametrize("dtype", a.FLOATING)
@pytest.mark.parametrize("copies", [1, 20])
def test_nan_is_in_nothing_and_zeros_are_equal(dtype: str, copies: int) -> None:
    x = np.asarray([np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5], dtype)
    if x.dtype.kind == "c":
        x = np.concatenate([x, [complex(np.nan, 1), complex(1, np.nan), complex(0.0, -0.0), 1.5j]]).astype(dtype)
    found = xp.isin(xp.asarray(x), xp.asarray(np.tile(x, copies)))
    a.check(found, ~np.isnan(x))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_are_equal_in_both_parts(dtype: str) -> None:
    real, imaginary = np.meshgrid(np.arange(20.0), np.arange(20.0))
    x = (real + 1j * imaginary).astype(dtype)
    y = x.ravel()[np.random.default_rng(0).permutation(400)[:150]]
    a.check(xp.isin(xp.asarray(x, chunks=7), xp.asarray(y, chunks=40)), np.isin(x, y))


def test_isin_takes_scalars_and_promotes() -> None:
    x = xp.asarray([1, 3, 200], dtype=xp.uint8)
    a.check(xp.isin(x, 3), np.asarray([False, True, False]))
    a.check(xp.isin(3, x, invert=True), np.asarray(False))
    a.check(xp.isin(xp.asarray([-56, 3], dtype=xp.int8), x), np.asarray([False, True]))
    a.check(xp.isin(xp.asarray([1.0, 2.0]), 1), np.asarray([True, False]))


# --- repeat ------------------------------------------------------------------------------------------


@given(st.data(), a.arrays(a.ALL), st.sampled_from(a.INTEGERS), st.booleans(), st.booleans())
def test_repeat_by_counts(data: Any, pair: Any, dtype: str, one: bool, lazy: bool) -> None:
    x, array = pair
    axis = data.draw(st.none() | st.integers(-x.ndim, x.ndim - 1)) if x.ndim else None
    length = x.size if axis is None else x.shape[axis]
    counts = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 4, 1 if one else length).astype(dtype)
    given_counts = xp.asarray(counts, chunks=data.draw(a.chunkings(counts.shape)))
    if lazy:
        given_counts = given_counts + 0
    a.check(xp.repeat(array, given_counts, axis=axis), np.repeat(x, counts.astype("int64"), axis=axis))


def test_counts_are_summed_once_and_when_a_shape_is_needed() -> None:
    x = xp.arange(1000, chunks=100)
    with jc.profile() as nothing:
        repeated = xp.repeat(x, x % 3)
        assert repeated.ndim == 1
    assert nothing.to_dict()["runs"] == 0
    with jc.profile() as summing:
        assert repeated.shape == (999,)
        assert repeated.shape == repeated[::-1].shape
    assert summing.to_dict()["runs"] == 1
    expected = np.repeat(np.arange(1000), np.arange(1000) % 3)
    for part in (slice(None), slice(400, 410), slice(None, None, -7), slice(998, None)):
        a.check(repeated[part], expected[part])


def test_negative_counts() -> None:
    x = xp.arange(3)
    for counts in ([1, -1, 2], [-1]):
        with pytest.raises(ValueError, match="repeats=-1"):
            xp.repeat(x, xp.asarray(counts))
        repeated = xp.repeat(x, xp.asarray(counts) + 0)
        with pytest.raises(ValueError, match="repeats=-1"):
            repeated.shape  # noqa: B018


# --- larger than memory ------------------------------------------------------------------------------


def _stored(path: Path, values: np.ndarray[Any, Any], chunk: Any) -> xp.Array:
    zarr.create_array(path, data=values, chunks=chunk)
    return jc.from_zarr(path)


def _figures(array: xp.Array, path: Path, nbytes: int) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    with jc.profile() as profile:
        jc.to_zarr(array, path)
    figures = profile.to_dict()
    held, reserved, planned = (figures[f"{k}_peak_bytes"] for k in ("ledger", "reserved", "planned"))
    assert 0 < held <= reserved <= planned <= nbytes
    assert not any(stage["grown_bytes"] for stage in figures["stages"]), "the memory model was too small"
    return np.asarray(zarr.open_array(path, mode="r")[...]), figures


@pytest.mark.parametrize("dtype", ["float64", "int16"])
@pytest.mark.parametrize("sorted_here", [False, True])
def test_searchsorted_of_arrays_larger_than_memory(tmp_path: Path, dtype: str, sorted_here: bool) -> None:
    rng = np.random.default_rng(0)
    length = 4 * MIB // np.dtype(dtype).itemsize
    x1, x2 = ((1000 * rng.standard_normal(n)).astype(dtype) for n in (length, 2**16))
    nbytes = x1.nbytes // 8
    with jc.config.set(host_memory=nbytes):
        stored = _stored(tmp_path / "x1", x1 if sorted_here else np.sort(x1), length // 128)
        line = xp.sort(stored) if sorted_here else stored
        found = xp.searchsorted(line, _stored(tmp_path / "x2", x2, 2**11), side="right")
        values, figures = _figures(found, tmp_path / "found", nbytes)
    np.testing.assert_array_equal(values, np.searchsorted(np.sort(x1), x2, "right"))
    # Read once as they are stored: what is read again is a copy.
    assert figures["bytes_read"] <= (2.2 if sorted_here else 1) * x1.nbytes + x2.nbytes


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_isin_of_arrays_larger_than_memory(tmp_path: Path, dtype: str) -> None:
    rng = np.random.default_rng(0)
    length = (4 if dtype == "float32" else 8) * MIB // np.dtype(dtype).itemsize
    x1, x2 = (rng.integers(0, 2**20, n).astype(dtype) for n in (2**14, length))
    nbytes = x2.nbytes // 8
    with jc.config.set(host_memory=nbytes):
        wanted, within = _stored(tmp_path / "x1", x1, 2**12), _stored(tmp_path / "x2", x2, 2**12)
        values, _ = _figures(xp.isin(wanted, within), tmp_path / "found", nbytes)
    np.testing.assert_array_equal(values, np.isin(x1, x2))


def test_repeat_of_an_array_larger_than_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, counts = rng.standard_normal((2**18, 4)), rng.integers(0, 5, 2**18).astype("uint8")
    nbytes = x.nbytes // 8
    with jc.config.set(host_memory=nbytes):
        array, times = _stored(tmp_path / "x", x, (2**11, 4)), _stored(tmp_path / "n", counts, 2**14)
        repeated = xp.repeat(array, times, axis=0)
        assert repeated.shape == (int(counts.sum()), 4)
        values, figures = _figures(repeated, tmp_path / "repeated", nbytes)
    np.testing.assert_array_equal(values, np.repeat(x, counts, axis=0))
    assert figures["bytes_read"] <= x.nbytes + 2 * counts.nbytes  # each once


# --- bad arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: xp.searchsorted(x, x, side="middle"), ValueError, "side='middle'; it is 'left' or 'right'"),
        (lambda x: xp.searchsorted(xp.zeros((2, 2)), x), ValueError, r"x1 of shape \(2, 2\) has 2 axes"),
        (lambda x: xp.searchsorted(xp.zeros(()), x), ValueError, "0 axes"),
        (lambda x: xp.searchsorted([1.0], x), TypeError, "x1 is a list"),
        (lambda x: xp.searchsorted(x, np.zeros(3)), TypeError, "numpy.ndarray"),
        (lambda x: xp.searchsorted(x, xp.zeros(3, dtype=xp.int64)), TypeError, "searchsorted: .* promote"),
        (lambda x: xp.searchsorted(x, 1j), TypeError, "no order"),
        (lambda x: xp.searchsorted(xp.zeros(3, dtype=xp.int8), 1.5), TypeError, "float 1.5"),
        (lambda x: xp.searchsorted(xp.zeros(3, dtype=xp.int8), 300), OverflowError, "300 is outside"),
        (lambda x: xp.searchsorted(x, x, sorter=[0, 1, 2]), TypeError, "sorter is a list"),
        (lambda x: xp.searchsorted(x, x, sorter=x), TypeError, "sorter has dtype float64"),
        (lambda x: xp.searchsorted(x, x, sorter=xp.asarray([0])), ValueError, r"sorter has shape \(1,\)"),
        (lambda x: xp.searchsorted(x, x, sorter=xp.asarray([0, 1, 3])), IndexError, "points outside"),
        (lambda x: xp.searchsorted(x, x, sorter=xp.arange(3) + 1).compute(), IndexError, "points outside"),
        (lambda x: xp.isin(1, 2), TypeError, "both no arrays"),
        (lambda x: xp.isin(x, [1.0]), TypeError, "isin"),
        (lambda x: xp.isin(x, xp.asarray([1])), TypeError, "isin: .* promote"),
        (lambda x: xp.repeat(x, x), TypeError, "repeats has dtype float64"),
        (lambda x: xp.repeat(x, xp.asarray([1, 2])), ValueError, r"repeats has shape \(2,\)"),
        (lambda x: xp.repeat(x, xp.ones((1, 1), dtype=xp.int64)), ValueError, r"repeats has shape \(1, 1\)"),
        (lambda x: xp.repeat(x, xp.asarray([1, 2, 3]), axis=1), IndexError, "axis=1 is out of bounds"),
        (lambda x: xp.repeat(x, -1), ValueError, "repeats=-1"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.zeros(3))
