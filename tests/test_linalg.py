"""Linear algebra against NumPy: stacks of matrices that fit, in any chunks."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from jaxchunk.array_api import linalg
from jaxchunk.errors import LinAlgError
from tests.helpers import arrays as a

STACKS = st.sampled_from([(), (3,), (2, 3), (0,), (1, 2)])
SIDES = st.sampled_from([1, 2, 3, 6])
FLOATING = st.sampled_from(a.FLOATING)
EPS = {"float32": 1.2e-7, "complex64": 1.2e-7, "float64": 2.3e-16, "complex128": 2.3e-16}
few = settings(max_examples=8)


@st.composite
def stacks(draw: Any, square: bool = False) -> Any:
    """Matrices that are far from singular, and the same in chunks."""
    dtype, stack, rows = draw(FLOATING), draw(STACKS), draw(SIDES)
    columns = rows if square else draw(SIDES)
    x = a.values((*stack, rows, columns), dtype, draw(st.integers(0, 2**32 - 1)))
    x = (x + 3 * np.eye(rows, columns)).astype(dtype)
    return x, xp.asarray(x, chunks=draw(a.chunkings(x.shape)))


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def close(x: Any, expected: Any, factor: float = 100) -> None:
    """Equal but for some rounding, beside the largest magnitude."""
    eps = EPS[np.asarray(x).dtype.name]
    assert np.shape(x) == np.shape(expected)
    np.testing.assert_allclose(x, expected, rtol=0, atol=factor * eps * max(1.0, np.abs(expected).max(initial=0)))


def orthonormal(q: Any) -> None:
    """Columns, each of norm 1."""
    n = q.shape[-1]
    close(adjoint(q) @ q, np.broadcast_to(np.eye(n), (*q.shape[:-2], n, n)))


# --- decompositions --------------------------------------------------------------------------------------------


@few
@given(stacks(square=True), st.booleans())
def test_cholesky(pair: Any, upper: bool) -> None:
    x, _ = pair
    h = (x @ adjoint(x)).astype(x.dtype)
    factor = linalg.cholesky(xp.asarray(h, chunks=2), upper=upper)
    assert factor.dtype == h.dtype
    values = np.asarray(factor)
    np.testing.assert_array_equal(values, np.triu(values) if upper else np.tril(values))
    close(adjoint(values) @ values if upper else values @ adjoint(values), h)


@few
@given(stacks(), st.sampled_from(["reduced", "complete"]))
def test_qr(pair: Any, mode: Any) -> None:
    x, y = pair
    result = linalg.qr(y, mode=mode)
    q, r = map(np.asarray, result)
    assert q.dtype == r.dtype == x.dtype
    rows, columns = x.shape[-2:]
    k = rows if mode == "complete" else min(rows, columns)
    assert q.shape == result.Q.shape == (*x.shape[:-2], rows, k)
    orthonormal(q)
    np.testing.assert_array_equal(r, np.triu(r))
    assert not np.diagonal(r, axis1=-2, axis2=-1).imag.any()
    close(q @ r, x)


@few
@given(stacks(), st.booleans())
def test_svd(pair: Any, full: bool) -> None:
    x, y = pair
    result = linalg.svd(y, full_matrices=full)
    u, s, vh = map(np.asarray, result)
    k = min(x.shape[-2:])
    assert s.dtype == np.abs(x).dtype
    assert u.shape[-1] == (x.shape[-2] if full else k)
    assert vh.shape[-2] == (x.shape[-1] if full else k)
    orthonormal(u)
    orthonormal(adjoint(vh))
    assert (np.diff(s, axis=-1) <= 0).all()
    close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], x)
    close(np.asarray(linalg.svdvals(y)), s)


@few
@given(stacks(square=True))
def test_eigenvalues(pair: Any) -> None:
    x, y = pair
    w, v = map(np.asarray, linalg.eig(y))
    assert w.dtype == v.dtype == np.result_type(x.dtype, np.complex64)
    close(x @ v, v * w[..., None, :], 1000)
    close(np.sum(np.asarray(linalg.eigvals(y)), axis=-1), np.trace(x, axis1=-2, axis2=-1).astype(w.dtype), 1000)
    h = ((x + adjoint(x)) / 2).astype(x.dtype)
    z = xp.asarray(h, chunks=2)
    w, v = map(np.asarray, linalg.eigh(z))
    assert w.dtype == np.abs(x).dtype
    assert v.dtype == x.dtype
    orthonormal(v)
    close(h @ v, v * w[..., None, :])
    close(np.asarray(linalg.eigvalsh(z)), w)


# --- what is solved with them ----------------------------------------------------------------------------------


@few
@given(stacks(square=True), st.sampled_from([(), (4,), (0,)]), st.booleans())
def test_solve(pair: Any, columns: tuple[int, ...], broadcast: bool) -> None:
    x, y = pair
    n = x.shape[-1]
    b = a.values((n, *columns) if broadcast or not columns else (*x.shape[:-2], n, *columns), x.dtype.name, 7)
    solution = linalg.solve(y, xp.asarray(b, chunks=2))
    expected = np.linalg.solve(x, b if columns else b[:, None])
    close(np.asarray(solution), expected if columns else expected[..., 0], 2000)
    assert solution.dtype == x.dtype


@few
@given(stacks(square=True))
def test_inverses_and_determinants(pair: Any) -> None:
    x, y = pair
    close(np.asarray(linalg.inv(y)), np.linalg.inv(x), 5000)
    close(np.asarray(linalg.det(y)), np.linalg.det(x), 1000)
    sign, log = linalg.slogdet(y)
    expected = np.linalg.slogdet(x)
    close(np.asarray(sign), expected[0], 1000)
    close(np.asarray(log), expected[1], 1000)
    assert (sign.dtype, log.dtype) == (x.dtype, np.abs(x).dtype)


@few
@given(stacks(square=True), st.integers(-3, 5))
def test_matrix_power(pair: Any, n: int) -> None:
    x, y = pair
    power = linalg.matrix_power(y, n)
    assert (power.shape, power.dtype) == (x.shape, x.dtype)
    close(np.asarray(power), np.linalg.matrix_power(x, n), 20_000)


@few
@given(stacks(), st.sampled_from([None, 0.1, 0.5]))
def test_rank_and_pseudo_inverse(pair: Any, rtol: Any) -> None:
    x, y = pair
    rank = linalg.matrix_rank(y, rtol=rtol)
    default = rtol if rtol is not None else max(x.shape[-2:]) * np.finfo(x.dtype).eps
    a.check(rank, np.linalg.matrix_rank(x, rtol=default).astype("int64"))
    inverse = linalg.pinv(y, rtol=rtol)
    assert inverse.dtype == x.dtype
    close(np.asarray(inverse), np.linalg.pinv(x, rtol=default), 2000)


def test_tolerances_of_a_stack() -> None:
    x = np.stack([np.diag([1.0, 0.5, 0.01])] * 3)
    rtol = xp.asarray([0.001, 0.1, 0.9])
    a.check(linalg.matrix_rank(xp.asarray(x), rtol=rtol), np.asarray([3, 2, 1]))
    close(np.asarray(linalg.pinv(xp.asarray(x), rtol=rtol))[1], np.diag([1.0, 2.0, 0.0]))


# --- vectors, diagonals, norms ---------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(a.NUMERIC), a.shapes(min_dims=0, max_dims=2))
def test_cross(data: Any, dtype: str, shape: tuple[int, ...]) -> None:
    at = data.draw(st.integers(0, len(shape)))
    axis = at - len(shape) - 1
    full = (*shape[:at], 3, *shape[at:])
    other = full[data.draw(st.integers(0, at)) :]
    (x, y), (u, v) = (data.draw(a.arrays((dtype,), shape=s)) for s in (full, other))
    a.check(linalg.cross(y, v, axis=axis), np.cross(x, u, axis=axis).astype(dtype), ulps=8, scale=10)


@given(st.data(), st.sampled_from(a.NUMERIC), st.integers(0, 5), st.integers(0, 5))
def test_outer(data: Any, dtype: str, n: int, m: int) -> None:
    (x, y), (u, v) = (data.draw(a.arrays((dtype,), shape=(k,))) for k in (n, m))
    a.check(linalg.outer(y, v), np.outer(x, u).astype(dtype), ulps=4)


@given(a.arrays(a.ALL, min_dims=2, special=True), st.integers(-8, 8))
def test_diagonal(pair: Any, offset: int) -> None:
    x, y = pair
    expected = np.diagonal(x, offset, -2, -1)
    diagonal = linalg.diagonal(y, offset=offset)
    a.check(diagonal, expected)
    if x.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(np.asarray(diagonal)), np.signbit(expected))


@given(a.arrays(a.NUMERIC, min_dims=2), st.integers(-8, 8))
def test_trace(pair: Any, offset: int) -> None:
    x, y = pair
    wide = {"i": "int64", "u": "uint64"}.get(x.dtype.kind, x.dtype)
    a.check(linalg.trace(y, offset=offset), np.trace(x, offset, -2, -1, dtype=wide), ulps=20, scale=10)


def test_trace_in_another_dtype() -> None:
    a.check(linalg.trace(xp.asarray([[100, 1], [1, 100]], dtype=xp.int8)), np.asarray(200))
    a.check(linalg.trace(xp.ones((2, 2)), dtype=xp.complex64), np.asarray(2, "complex64"))


def norm(x: Any, order: float, axes: tuple[int, ...]) -> Any:
    """By the definition, in extended precision."""
    size = np.abs(x).astype("longdouble")
    with np.errstate(all="ignore"):
        if order == 0:
            return np.sum(size != 0, axis=axes)
        if math.isinf(order):
            return size.max(axes) if order > 0 else size.min(axes)
        return np.sum(size**order, axis=axes) ** (np.longdouble(1) / order)


@given(
    a.arrays(a.FLOATING, min_side=1), st.data(), st.sampled_from([0, 1, 2, 3, -1, -2, 0.5, -0.5, np.inf, -np.inf, 7.5])
)
def test_vector_norm(pair: Any, data: Any, order: float) -> None:
    x, y = pair
    axis = data.draw(a.axes_of(x.ndim))
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    keepdims = data.draw(st.booleans())
    result = linalg.vector_norm(y, axis=axis, ord=order, keepdims=keepdims)
    expected = norm(x, order, axes)
    assert result.dtype == np.abs(x).dtype
    assert result.shape == (np.sum(x, axis=axes, keepdims=True).shape if keepdims else expected.shape)
    np.testing.assert_allclose(np.asarray(result).reshape(expected.shape), expected.astype("float64"), rtol=3e-5)


@pytest.mark.parametrize("dtype", a.FLOATING)
@pytest.mark.parametrize("order", [2, 3, 0.5, -2, 1.5])
@pytest.mark.parametrize("exponent", [-0.9, 0.9])
def test_norms_overflow_only_where_they_are_too_large(dtype: str, order: float, exponent: float) -> None:
    limit = np.log10(np.finfo(dtype).max)
    x = (np.asarray([3, 4, 1, 2]) * 10 ** (exponent * limit)).astype(dtype)
    result = np.asarray(linalg.vector_norm(xp.asarray(x, chunks=1), ord=order))
    np.testing.assert_allclose(result, norm(x, order, (0,)).astype("float64"), rtol=1e-5)


@pytest.mark.parametrize("order", [2, 1, 0.5, np.inf, 3])
def test_norms_of_what_is_not_finite(order: float) -> None:
    assert np.isnan(np.asarray(linalg.vector_norm(xp.asarray([1.0, np.nan, 2.0], chunks=1), ord=order)))
    assert float(linalg.vector_norm(xp.asarray([1.0, np.inf, np.inf], chunks=1), ord=order)) == np.inf
    assert float(linalg.vector_norm(xp.zeros(4, chunks=2), ord=order)) == 0
    assert float(linalg.vector_norm(xp.zeros(0), ord=order)) == 0


@few
@given(stacks(), st.booleans())
def test_matrix_norm(pair: Any, keepdims: bool) -> None:
    x, y = pair
    for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        result = linalg.matrix_norm(y, ord=order, keepdims=keepdims)
        assert result.dtype == np.abs(x).dtype
        close(np.asarray(result), np.linalg.norm(x, order, (-2, -1), keepdims))


# --- nothing at all, and errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 3), (2, 3, 0), (0, 2, 2)])
def test_matrices_without_elements(shape: tuple[int, ...]) -> None:
    x, y = np.zeros(shape), xp.zeros(shape)
    for full in (False, True):
        for mine, theirs in zip(linalg.svd(y, full_matrices=full), np.linalg.svd(x, full), strict=True):
            assert np.asarray(mine).shape == theirs.shape
        u = np.asarray(linalg.svd(y, full_matrices=full).U)
        orthonormal(u)
    for mode in ("reduced", "complete"):
        for mine, theirs in zip(linalg.qr(y, mode=mode), np.linalg.qr(x, mode), strict=True):
            assert np.asarray(mine).shape == theirs.shape
    a.check(linalg.pinv(y), np.swapaxes(x, -1, -2))
    a.check(linalg.matrix_rank(y), np.zeros(shape[:-2], "int64"))
    a.check(linalg.matrix_norm(y), np.zeros(shape[:-2]))
    if shape[-1] == shape[-2]:
        a.check(linalg.det(y), np.linalg.det(x) if shape[-1] == 0 else np.zeros(shape[:-2]))
        a.check(linalg.eigh(y).eigenvectors, x)
        a.check(linalg.matrix_power(y, 3), x)
        a.check(linalg.inv(y), x)


def test_a_singular_matrix_is_named() -> None:
    x = np.stack([np.eye(2)] * 5)
    x[3] = 1
    y = xp.asarray(x, chunks=(2, 1, 1))
    for call in (linalg.inv, lambda z: linalg.solve(z, xp.ones((2, 1))), lambda z: linalg.matrix_power(z, -2)):
        result = call(y)
        with pytest.raises(LinAlgError, match=r"\[3\] of the stack is singular"):
            result.compute()
        close(np.asarray(call(y[:3])), np.asarray(call(xp.asarray(x[:3]))))
    a.check(linalg.det(y), np.asarray([1.0, 1, 1, 0, 1]))
    sign, log = linalg.slogdet(y)
    a.check(sign, np.asarray([1.0, 1, 1, 0, 1]))
    a.check(log, np.asarray([0, 0, 0, -np.inf, 0]))


def test_a_matrix_that_is_not_positive_definite_is_named() -> None:
    x = np.stack([np.eye(2)] * 4)
    x[2] = [[1, 2], [2, 1]]
    with pytest.raises(LinAlgError, match=r"\[2\] of the stack is not positive definite"):
        linalg.cholesky(xp.asarray(x, chunks=1)).compute()
    with pytest.raises(LinAlgError, match="the matrix is not positive definite"):
        linalg.cholesky(xp.asarray(x[2])).compute()


SQUARE = ("cholesky", "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "slogdet")
MATRICES = (*SQUARE, "matrix_norm", "matrix_rank", "pinv", "qr", "svd", "svdvals")


@pytest.mark.parametrize("name", MATRICES)
def test_what_is_no_floating_matrix_is_refused_at_the_call(name: str) -> None:
    function = getattr(linalg, name)
    with pytest.raises(TypeError, match="int64"):
        function(xp.ones((2, 2), dtype=xp.int64))
    with pytest.raises(TypeError, match="bool"):
        function(xp.ones((2, 2), dtype=xp.bool))
    with pytest.raises(TypeError, match="ndarray"):
        function(np.ones((2, 2)))
    with pytest.raises(ValueError, match="at least 2"):
        function(xp.ones(2))
    if name in SQUARE:
        with pytest.raises(ValueError, match="2 × 3"):
            function(xp.ones((5, 2, 3)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: linalg.solve(x, x), ValueError, "2 × 3"),
        (lambda x: linalg.solve(x @ x.T, xp.ones(3)), ValueError, "rows"),
        (lambda x: linalg.solve(x @ x.T, xp.asarray(1.0)), ValueError, "rows"),
        (lambda x: linalg.solve(xp.ones((2, 3, 3)), xp.ones((3, 3, 1))), ValueError, "broadcast"),
        (lambda x: linalg.solve(x @ x.T, xp.ones(2, dtype=xp.int64)), TypeError, "x2 has dtype int64"),
        (lambda x: linalg.qr(x, mode="raw"), ValueError, "mode='raw'"),
        (lambda x: linalg.matrix_norm(x, ord=3), ValueError, "ord=3"),
        (lambda x: linalg.matrix_norm(x, ord="max"), ValueError, "ord='max'"),
        (lambda x: linalg.vector_norm(x, ord="fro"), TypeError, "ord='fro'"),
        (lambda x: linalg.vector_norm(x, ord=math.nan), ValueError, "NaN"),
        (lambda x: linalg.vector_norm(x, axis=2), IndexError, "axis=2"),
        (lambda x: linalg.vector_norm(xp.ones(2, dtype=xp.int64)), TypeError, "int64"),
        (lambda x: linalg.matrix_power(x, 2), ValueError, "2 × 3"),
        (lambda x: linalg.matrix_power(x @ x.T, 0.5), TypeError, "float"),
        (lambda x: linalg.matrix_rank(x, rtol="small"), TypeError, "rtol='small'"),
        (lambda x: linalg.pinv(x, rtol=xp.ones(2)), ValueError, "rtol of shape"),
        (lambda x: linalg.pinv(x, rtol=xp.asarray(1)), TypeError, "rtol has dtype int64"),
        (lambda x: linalg.cross(x, x.T), ValueError, "2 elements"),
        (lambda x: linalg.cross(x, x, axis=1), IndexError, "between -2 and -1"),
        (lambda x: linalg.cross(x > 0, x > 0), TypeError, "bool"),
        (lambda x: linalg.outer(x, x[0]), ValueError, "x1 of shape"),
        (lambda x: linalg.diagonal(x[0]), ValueError, "at least 2"),
        (lambda x: linalg.trace(x > 0), TypeError, "bool"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(xp.ones((2, 3)))


def test_results_have_names_and_are_all_there() -> None:
    x = xp.eye(2)
    for function, fields in (
        (linalg.qr, ("Q", "R")),
        (linalg.svd, ("U", "S", "Vh")),
        (linalg.eigh, ("eigenvalues", "eigenvectors")),
        (linalg.eig, ("eigenvalues", "eigenvectors")),
        (linalg.slogdet, ("sign", "logabsdet")),
    ):
        assert function(x)._fields == fields  # type: ignore[attr-defined, operator]
    assert len(linalg.__all__) == 25
    for name in linalg.__all__:
        assert inspect.getdoc(getattr(linalg, name)), name
