"""Unique elements against NumPy's, for any dtype, shape and chunks, and out of core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from tests.helpers import arrays

DTYPES = ("bool", "int8", "uint64", "int64", "float32", "float64", "complex64", "complex128")


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    low = 0 if dtype in ("uint64", "bool") else -5
    x = rng.integers(low, 5, shape).astype(dtype)
    return x + (1j * rng.integers(0, 2, shape)).astype(dtype) if x.dtype.kind == "c" else x


@pytest.mark.parametrize("shape", [(0,), (1,), (60,), (5, 7, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_four(dtype: str, shape: tuple[int, ...]) -> None:
    a = values(dtype, shape)
    found = xp.unique_all(xp.asarray(a, chunks=3))
    wanted = np.unique(a, return_index=True, return_inverse=True, return_counts=True)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.compute(), want.reshape(got.shape))
    assert found.values.dtype == a.dtype
    assert {x.dtype for x in found[1:]} == {np.dtype("int64")}
    assert found.inverse_indices.shape == shape


def test_nothing_is_counted_before_a_shape_is_asked_for() -> None:
    x = xp.asarray(np.arange(100) % 7, chunks=9)
    with jc.profile() as p:
        found = xp.unique_values(x)
        assert "counted" in repr(found) and found.dtype == xp.int64 and found.ndim == 1
        assert p.to_dict()["runs"] == 0
        assert found.shape == (7,)
        assert p.to_dict()["runs"] == 1


def test_zeros_are_one_and_every_nan_is_one_of_its_own() -> None:
    found = xp.unique_counts(xp.asarray([np.nan, 0.0, np.nan, -0.0, 1.0]))
    assert found.counts.compute().tolist() == [2, 1, 1, 1]
    assert np.isnan(found.values.compute()).tolist() == [False, False, True, True]


def test_tiny_numbers_are_told_apart() -> None:
    tiny = np.asarray([1e-310, 0.0, 2e-310, 1e-310])
    assert xp.unique_values(xp.asarray(tiny)).compute().tolist() == [0.0, 1e-310, 2e-310]


def test_larger_than_memory() -> None:
    a = np.random.default_rng(0).integers(0, 50_000, 300_000)
    x = xp.asarray(a, chunks=20_000)
    with jc.config.set(host_memory="1 MiB"), jc.profile() as p:
        found = xp.unique_counts(x)
        total, counted = int(xp.sum(found.values)), int(xp.sum(found.counts))
    assert (total, counted) == (int(np.unique(a).sum()), a.size)
    figures = p.to_dict()
    assert figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= 2**20


@given(arrays.arrays(special=True))
def test_any_shape_and_chunks(pair: Any) -> None:
    """Against NumPy's, where every NaN is one of its own, and by what the four mean of each other."""
    x, y = pair
    found = xp.unique_all(y)
    values, indices, inverse, counts = (f.compute() for f in found)
    flat = x.reshape(-1)
    expected = np.unique(flat, equal_nan=False)
    assert len(values) == len(expected) == found.values.shape[0]
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(np.sort_complex(values), np.sort_complex(expected))
    assert inverse.shape == x.shape
    np.testing.assert_array_equal(values[inverse], x)
    np.testing.assert_array_equal(flat[indices], values)
    np.testing.assert_array_equal(counts, np.bincount(inverse.reshape(-1), minlength=len(values)))
    # The first of equal ones.
    np.testing.assert_array_equal(indices, [np.flatnonzero(inverse.reshape(-1) == k)[0] for k in range(len(values))])
    for own, other in (
        (xp.unique_values(y), values),
        (xp.unique_counts(y).counts, counts),
        (xp.unique_inverse(y).inverse_indices, inverse),
    ):
        np.testing.assert_array_equal(own.compute(), other)


@given(st.integers(1, 40_000), st.sampled_from([1, 3, 5000]), st.sampled_from([100, 4096, 9999]), st.integers(0, 99))
def test_any_number_of_equal_ones_out_of_core(n: int, distinct: int, chunk: int, seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, distinct, n)
    with jc.config.set(host_memory="512 KiB"):
        found = xp.unique_all(xp.asarray(x, chunks=chunk))
        wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_array_equal(got[::7].compute(), want[::7])


def test_what_is_not_an_array_is_refused() -> None:
    for function in (xp.unique_all, xp.unique_counts, xp.unique_inverse, xp.unique_values):
        for x in ([1, 2], np.asarray([1]), 3):
            with pytest.raises(TypeError, match=function.__name__):
                function(x)
