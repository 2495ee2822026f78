"""What is computed by way of a decomposition: determinants, inverses, solutions, ranks; and powers."""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _contraction, _linalg_lu, _views
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._apply import Operand
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._dtypes import int64, promote, real_of
from jaxchunk.array_api._linalg_arguments import floating, identity, matrices, square
from jaxchunk.array_api._linalg_pieces import adjoint_of
from jaxchunk.array_api._linalg_svd import singular_values, svd
from jaxchunk.array_api._values import Value, aligned
from jaxchunk.graph.node import Node

_mul, _div, _gt, _select = (aligned(f) for f in (lax.mul, lax.div, lax.gt, lax.select))


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Array
    logabsdet: Array


def det(x: Array, /) -> Array:
    """The determinants of square matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'.

    Returns
    -------
    Array
        Of the dtype of `x`, without its last two axes; 0 for a singular matrix, but for rounding. It
        overflows long before `slogdet` does. Large matrices are decomposed out of core, as for `solve`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> float(xp.linalg.det(xp.asarray([[0.0, 2.0], [3.0, 1.0]])))
    -6.0
    """
    node = square("det", x)
    return Array(_build.fold(reducers.PROD, (_linalg_lu.pivots(node),), (node.ndim - 2,), node.dtype))


def slogdet(x: Array, /) -> SlogdetResult:
    """The signs of determinants, and the logarithms of their magnitudes.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'.

    Returns
    -------
    SlogdetResult
        ``sign``, of the dtype of `x` and magnitude 1, and ``logabsdet``, real; 0 and -inf for a singular
        matrix. The determinant is ``sign * exp(logabsdet)``. Asked for together, they are computed once.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> sign, log = xp.linalg.slogdet(xp.asarray([[0.0, 1e200], [1e200, 0.0]]))
    >>> float(sign), round(float(log), 3)
    (-1.0, 921.034)
    """
    node = square("slogdet", x)
    pivots, real, axes = _linalg_lu.pivots(node), real_of(node.dtype), (node.ndim - 2,)
    key = ("direction", node.dtype.str)
    sign = _build.fold(reducers.PROD, (pivots,), axes, node.dtype, body=_direction, key=key, bodied=node.dtype)
    key = ("log of magnitude", node.dtype.str)
    logs = _build.fold(reducers.SUM, (pivots,), axes, real, body=lambda p: lax.log(lax.abs(p)), key=key, bodied=real)
    return SlogdetResult(Array(sign), Array(logs))


def _direction(x: Value) -> Value:
    """What is left of a number when its magnitude is taken out: 0 of 0."""
    if x.dtype.kind != "c":
        return lax.sign(x)
    size = lax.abs(x)
    zero = lax.eq(size, lax.full_like(size, 0))
    unit = lax.complex(lax.div(lax.real(x), size), lax.div(lax.imag(x), size))
    return lax.select(zero, lax.full_like(x, 0), unit)


def solve(x1: Array, x2: Array, /) -> Array:
    """The solutions of systems of linear equations with square, regular matrices.

    Parameters
    ----------
    x1
        The matrices: an array of a floating dtype, of at least two axes, the last two of the same length.
    x2
        The right-hand sides: one vector for all systems where it has one axis, else matrices with a
        system in each column; axes before the last two broadcast against those of `x1`.

    Returns
    -------
    Array
        x with ``x1 @ x = x2``.

    Raises
    ------
    LinAlgError
        When it is computed, for a singular matrix: it says which.

    Notes
    -----
    A matrix that fits in a third of the budget, some six times, is decomposed in one task, with partial
    pivoting, and the solutions are made for some columns at a time. A larger one is decomposed out of core by
    orthogonal panels as in `qr`, and refused where it is singular to working precision: where less is left
    of a column than n times the dtype's epsilon, when what earlier columns have to give is taken out.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.solve(xp.asarray([[0.0, 2.0], [4.0, 0.0]]), xp.asarray([2.0, 4.0])).compute()
    array([1., 1.])
    """
    left, right = square("solve", x1, "x1"), floating("solve", x2, "x2")
    dtype, n = promote(left.dtype, right.dtype), left.shape[-1]
    if right.ndim == 0 or right.shape[0 if right.ndim == 1 else -2] != n:
        raise ValueError(f"solve: x1 of shape {left.shape} has {n} rows, x2 of shape {right.shape} hasn't as many")
    columns = _build.cast(_views.expand_dims(right, [1]) if right.ndim == 1 else right, dtype)
    _build.broadcast_shape((left.shape[:-2], columns.shape[:-2]))
    solution = _linalg_lu.solve(_build.cast(left, dtype), columns)
    return Array(_views.squeeze(solution, [solution.ndim - 1]) if right.ndim == 1 else solution)


def inv(x: Array, /) -> Array:
    """The inverses of square, regular matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'.

    Returns
    -------
    Array
        Of the shape and dtype of `x`.

    Raises
    ------
    LinAlgError
        When it is computed, for a singular matrix: it says which.

    Notes
    -----
    It is `solve` of the identity, out of core where that is: write it with `to_zarr` where it is large.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.inv(xp.asarray([[0.0, 2.0], [4.0, 0.0]])).compute()
    array([[0.  , 0.25],
           [0.5 , 0.  ]])
    """
    return Array(_linalg_lu.inverse(square("inv", x)))


def matrix_power(x: Array, n: int, /) -> Array:
    """Square matrices multiplied by themselves.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'.
    n
        How often; 0 gives identities, and a negative number powers of the inverses.

    Returns
    -------
    Array
        Of the shape and dtype of `x`.

    Raises
    ------
    LinAlgError
        When it is computed, for a negative `n` and a singular matrix.

    Notes
    -----
    By repeated squaring: some 2 log2(n) matrix products.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.matrix_power(xp.asarray([[1.0, 1.0], [0.0, 1.0]]), 10).compute()
    array([[ 1., 10.],
           [ 0.,  1.]])
    """
    node = square("matrix_power", x)
    exponent = operator.index(n)
    if exponent == 0:
        eye = _views.rechunk(identity(node, node.shape[-1], node.dtype), node.grid[-2:])
        return Array(_views.broadcast_to(eye, node.shape))
    power, result, rest = _linalg_lu.inverse(node) if exponent < 0 else node, None, abs(exponent)
    while True:
        if rest % 2:
            result = power if result is None else _contraction.matmul(result, power)
        rest //= 2
        if rest == 0:
            break
        power = _contraction.matmul(power, power)
    assert result is not None
    return Array(result)


def matrix_rank(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """How many singular values of matrices aren't negligible.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two, M × N, are the matrices'.
    rtol
        Singular values up to this part of the largest are taken for 0: a float, or a real array that
        broadcasts against the axes before the last two. By default max(M, N) times the dtype's epsilon.

    Returns
    -------
    Array
        int64, without the last two axes. What it takes to compute it is what `svdvals` takes.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> int(xp.linalg.matrix_rank(xp.asarray([[1.0, 2.0], [2.0, 4.0]])))
    1
    """
    node = matrices("matrix_rank", x)
    values = singular_values(node)
    tolerance = _tolerance("matrix_rank", node, rtol)
    if values.shape[-1] == 0:
        return Array(_build.pinned(_build.filled(0, int64, node.grid[:-2]), node.device))
    hits = _kept(values, tolerance)
    return Array(_build.fold(reducers.CountNonzero(), (hits,), (hits.ndim - 1,), int64))


def pinv(x: Array, /, *, rtol: float | Array | None = None) -> Array:
    """The pseudo-inverses of matrices, after Moore and Penrose.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two, M × N, are the matrices'.
    rtol
        Singular values up to this part of the largest are taken for 0: a float, or a real array that
        broadcasts against the axes before the last two. By default max(M, N) times the dtype's epsilon.

    Returns
    -------
    Array
        Of the dtype of `x`, with N × M matrices. What it takes to compute it is what the reduced `svd` takes.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.pinv(xp.asarray([[2.0, 0.0], [0.0, 0.0]])).compute()
    array([[0.5, 0. ],
           [0. , 0. ]])
    """
    node = matrices("pinv", x)
    u, s, vh = svd(node, False)
    tolerance = _tolerance("pinv", node, rtol)
    if s.shape[-1] == 0:
        grid = (*node.grid[:-2], node.grid[-1], node.grid[-2])
        return Array(_build.pinned(_build.filled(0, node.dtype, grid), node.device))
    dtype = node.dtype
    kept = _kept(s, tolerance)

    def body(v: Value, value: Value, usable: Value) -> Value:
        inverse = _select(usable, _div(lax.full_like(value, 1), value), lax.full_like(value, 0))
        return _mul(lax.conj(v) if dtype.kind == "c" else v, _build.convert(inverse, dtype))

    order = [*range(node.ndim - 2), node.ndim - 1, node.ndim - 2]
    # conj(Vh) with each row scaled: its transpose and U's adjoint are the inverse's factors.
    rows = [_views.expand_dims(part, [part.ndim]) for part in (s, kept)]
    scaled = _build.blockwise("pinv", body, ("pinv", dtype.str), (vh, *rows), dtype)
    return Array(_contraction.matmul(_views.permute(scaled, order), adjoint_of(u)))


def _tolerance(name: str, node: Node, rtol: float | Array | None) -> Node:
    """The relative tolerance with an axis for the singular values."""
    dtype = real_of(node.dtype)
    if rtol is None:
        return _build.constant(max(node.shape[-2:]) * np.finfo(dtype).eps, dtype)
    if isinstance(rtol, Operand):
        if rtol.dtype.kind != "f":
            raise TypeError(f"{name}: rtol has dtype {rtol.dtype}; it takes a real floating one")
        shape = _build.broadcast_shape((rtol._node.shape, node.shape[:-2]))
        if shape != node.shape[:-2]:
            raise ValueError(f"{name}: rtol of shape {rtol._node.shape} doesn't broadcast to {node.shape[:-2]}")
        return _views.expand_dims(_build.cast(rtol._node, dtype), [rtol._node.ndim])
    if isinstance(rtol, bool) or not isinstance(rtol, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: rtol={rtol!r} of type {type(rtol).__name__}; it takes a float or a real array")
    return _build.constant(rtol, dtype)


def _kept(values: Node, tolerance: Node) -> Node:
    """Which singular values aren't negligible beside the first, which is the largest."""
    largest = _views.cut(values, values.ndim - 1, 0, 1)

    def body(value: Value, first: Value, part: Value) -> Value:
        return _gt(value, _mul(first, part))

    key = ("above tolerance", values.dtype.str)
    return _build.blockwise("greater", body, key, (values, largest, tolerance), np.dtype("bool"))
