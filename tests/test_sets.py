"""Unique elements against NumPy's, for any dtype, shape and chunks, and out of core."""

from __future__ import annotations

import numpy as np
import pytest

import jaxchunk as jc
import jaxchunk.array_api as xp

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
