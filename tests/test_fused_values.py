"""Fused kernels on large blocks: compilers have been wrong, or crashed, where small arrays were right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.measure import measure

import jaxchunk as jc
import jaxchunk.array_api as xp

# Rows around powers of two, and over 2^15.
ROWS = [16_385, 20_000, 24_576, 32_768, 32_769, 33_000, 40_000, 50_000]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rows", ROWS)
def test_a_small_matrix_times_many_rows_squared_and_summed(rows: int, dtype: str) -> None:
    kind = getattr(xp, dtype)
    i = xp.arange(rows * 3, dtype=kind, chunks=(rows * 3,))
    v = xp.reshape((i * 7919) % 1009, (rows, 3))
    w = xp.astype(xp.reshape(xp.arange(9.0) % 5 + 1, (3, 3)), kind)
    r = xp.sum(xp.matmul(w, xp.matrix_transpose(v)) ** 2, axis=0)
    # In the dtype's own arithmetic: in float32 the product is rounded before the remainder is taken.
    i_n = np.arange(rows * 3, dtype=dtype)
    n = np.remainder(i_n * i_n.dtype.type(7919), i_n.dtype.type(1009)).reshape(rows, 3).astype(np.float64)
    m = (np.arange(9.0) % 5 + 1).reshape(3, 3)
    rtol = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(r.compute(), ((n @ m.T) ** 2).sum(1), rtol=rtol)


def field(rows: int, columns: int, dtype: str, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(dtype)


FUSED = {
    "row norms": (lambda m, a, b: m.sqrt(m.sum(a * a + b * b, axis=1))),
    "column means of a product": (lambda m, a, b: m.mean(a * b - a, axis=0)),
    "all": (lambda m, a, b: m.sum(m.exp(-m.abs(a * b)) + m.sqrt(m.abs(a)))),
    "elementwise": (lambda m, a, b: m.exp(-m.abs(a * b)) + m.sqrt(m.abs(a)) * m.sin(b)),
    "variance": (lambda m, a, b: m.var(a * 2 + b, axis=0)),
    "variance of rows": (lambda m, a, b: m.var(a * 2 + b, axis=1)),
    "a product of matrices, squared": (lambda m, a, b: m.sum(m.matmul(m.matrix_transpose(a), b) ** 2, axis=0)),
    "greatest": (lambda m, a, b: m.max(a - b, axis=1)),
    "where": (lambda m, a, b: m.sum(m.where(a > b, a, -b), axis=0)),
    "where it is greatest": (lambda m, a, b: m.argmax(a * b, axis=0)),
    "running sum": (lambda m, a, b: m.cumulative_sum(a * b, axis=0)),
    "less the mean": (lambda m, a, b: (a - m.mean(a, axis=0)) / m.std(a, axis=0)),
    "two means": (lambda m, a, b: m.mean(a * a + b * b, axis=0) + m.mean(a * b, axis=0)),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rows", [32_769, 50_000])
@pytest.mark.parametrize("name", sorted(FUSED))
def test_one_fused_kernel_over_many_rows(name: str, rows: int, dtype: str) -> None:
    columns = 3
    a, b = field(rows, columns, dtype, 0), field(rows, columns, dtype, 1)
    value = FUSED[name](xp, jc.from_array(a, chunks=(rows, columns)), jc.from_array(b, chunks=(rows, columns)))
    expected = np.asarray(FUSED[name](np, a.astype(np.float64), b.astype(np.float64)))
    got = value.compute()
    assert got.shape == expected.shape
    rtol, atol = (1e-10, 1e-10) if dtype == "float64" else (1e-4, 2e-4)
    if name == "running sum":
        atol *= np.sqrt(rows) * 4
    if name == "where it is greatest":
        np.testing.assert_array_equal(got, FUSED[name](np, a, b))
        return
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("shape", [(1 << 20,), (3, 1 << 17), (1 << 17, 3), (257, 1025), (129, 33, 65)])
def test_blocks_of_every_proportion_give_the_same_as_small_ones(shape: tuple[int, ...]) -> None:
    n = np.random.default_rng(3).integers(-1000, 1000, shape)
    small = tuple(max(1, s // 5) for s in shape)
    for chunks in (shape, small):
        x = jc.from_array(n, chunks=chunks)
        for axis in (None, *range(n.ndim)):
            results = jc.compute(xp.sum(x * x - x, axis=axis), xp.max(x * 3, axis=axis), xp.argmin(x, axis=axis))
            expected = ((n * n - n).sum(axis), (n * 3).max(axis), n.argmin(axis))
            for got, want in zip(results, expected, strict=True):
                np.testing.assert_array_equal(got, want)


# In a process of its own: what fails here ends the process, or never ends.
SHAPES = [
    ((2, 1, 3, 2, 9, 9, 9), 3),
    ((4, 1, 3, 2, 5, 7, 6), 3),
    ((2, 1, 2, 2, 16, 16, 16), 2),
    ((2, 2, 2, 2, 2, 2, 2, 8), 7),
]


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_many_axes_multiplied_and_reduced(shape: tuple[int, ...], axis: int) -> None:
    value = measure("rank_seven", shape=shape, axis=axis, timeout=60)["value"]
    expected = 2.0 * shape[axis]
    assert value == [expected, expected, *shape[:axis], *shape[axis + 1 :]]
