"""Norms of vectors and matrices, as folds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._arguments import as_axes
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._dtypes import real_of
from jaxchunk.array_api._linalg_arguments import floating, matrices
from jaxchunk.array_api._linalg_svd import singular_values
from jaxchunk.array_api._values import Value, aligned
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Reducer

State: TypeAlias = tuple[Any, ...]

_add, _mul, _div = (aligned(f) for f in (lax.add, lax.mul, lax.div))


@dataclass(frozen=True)
class PowerNorm:
    """The norm of an order that isn't 0 or infinite, from (scale, sum of powers of what is scaled by it).

    Powers of the elements themselves would overflow, or vanish, long before the norm does. The scale is
    the largest magnitude, or for negative orders the smallest: all that is added is at most 1.
    """

    order: float

    contracts = False
    follows = ()
    sides = None

    @property
    def name(self) -> str:
        return "vector_norm"

    @property
    def key(self) -> Hashable:
        return (self.name, self.order)

    def moved(self, places: Any) -> PowerNorm:
        return self

    def _power(self, x: Value) -> Value:
        if self.order == 2:
            return lax.mul(x, x)
        return x if self.order == 1 else lax.pow(x, lax.full_like(x, self.order))

    def _scaled(self, x: Value, scale: Value) -> Value:
        """Powers of magnitudes by a scale; where the scale is 0 or infinite nothing else matters."""
        ratio = self._power(_div(x, scale))
        usable = _usable(scale)
        shape = ratio.shape
        return lax.select(lax.broadcast_in_dim(usable, shape, tuple(range(len(shape)))), ratio, lax.full_like(ratio, 1))

    def _extreme(self, first: Value, second: Value) -> Value:
        return lax.max(first, second) if self.order > 0 else lax.min(first, second)

    def lift(self, values: State, axes: tuple[int, ...]) -> State:
        (x,) = values
        x = lax.abs(x)
        reduce = lax.reduce_max if self.order > 0 else lax.reduce_min
        scale = reducers.reduce_axes(x, axes, reduce)
        return (scale, reducers.reduce_axes(self._scaled(x, scale), axes, lax.reduce_sum))

    def combine(self, first: State, second: State) -> State:
        (s1, t1), (s2, t2) = first, second
        scale = self._extreme(s1, s2)
        return (scale, lax.add(lax.mul(t1, self._scaled(s1, scale)), lax.mul(t2, self._scaled(s2, scale))))

    def identity(self, dtypes: Sequence[DType]) -> State:
        return (0.0 if self.order > 0 else math.inf, 0.0)

    def finish(self, state: State) -> Value:
        scale, total = state
        if self.order == 2:
            root = lax.sqrt(total)
        else:
            with np.errstate(over="ignore"):
                root = lax.pow(total, lax.full_like(total, float(np.float64(1) / np.float64(self.order))))
        return lax.select(_usable(scale), lax.mul(scale, root), scale)

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (real_of(dtypes[0]),) * 2

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        return np.full(shape, 0 if self.order > 0 else math.inf, real_of(dtypes[0]))


def _usable(scale: Value) -> Value:
    """Whether one can divide by a scale: NaN included, which then is in all that follows."""
    extreme = lax.bitwise_or(lax.eq(scale, lax.full_like(scale, 0)), lax.eq(scale, lax.full_like(scale, math.inf)))
    return lax.bitwise_not(extreme)


def vector_norm(
    x: Array,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: int | float = 2,
) -> Array:
    """The norms of vectors, which may lie along several axes.

    Parameters
    ----------
    x
        An array of a floating dtype, complex ones included.
    axis
        The axis or axes that the vectors lie along; None for all of them.
    keepdims
        Whether the axes stay in the result, with size 1.
    ord
        Which norm: p for the p-th root of the sum of magnitudes to the power of p, also where p is
        negative or a fraction; inf and -inf for the largest and the smallest magnitude; 0 for the
        number of elements that aren't 0.

    Returns
    -------
    Array
        Real, of the precision of `x`. Over no elements it is 0 for orders of at least 0, and inf for others.

    Notes
    -----
    It is a fold in one pass. It overflows only where the norm itself does: powers are taken of
    magnitudes by the largest one met so far.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> float(xp.linalg.vector_norm(xp.asarray([3e300, 4e300])))
    5e+300
    """
    node, order = floating("vector_norm", x), _order("vector_norm", ord)
    return Array(norm_of(node, as_axes("vector_norm", axis, x.ndim), order, keepdims))


def _order(name: str, ord: Any) -> float:
    if isinstance(ord, bool) or not isinstance(ord, int | float | np.integer | np.floating):
        raise TypeError(f"{name}: ord={ord!r} of type {type(ord).__name__}; it takes an int or a float")
    if math.isnan(ord):
        raise ValueError(f"{name}: ord is NaN; it takes a number, inf or -inf")
    return float(ord)


def norm_of(node: Node, axes: Sequence[int], order: float, keepdims: bool) -> Node:
    """The norms of a node's elements over axes."""
    dtype = real_of(node.dtype)
    if order == 0:
        hits = _build.blockwise("not_equal", _nonzero, ("nonzero", node.dtype.str), (node,), np.dtype("bool"))
        norm = _build.cast(_build.fold(reducers.CountNonzero(), (hits,), axes, np.dtype("int64")), dtype)
    else:
        fold: Reducer = PowerNorm(order)
        if math.isinf(order):
            fold = LARGEST if order > 0 else SMALLEST
        elif order == 1:
            fold = reducers.SUM
        key = ("abs", node.dtype.str)
        norm = _build.fold(fold, (node,), axes, dtype, body=lax.abs, key=key, bodied=dtype, flops=4.0)
    return _views.expand_dims(norm, sorted(axes)) if keepdims else norm


# Of magnitudes, so that there is an answer where there are none.
LARGEST = reducers.Simple("largest magnitude", lax.reduce_max, lax.max, lambda dtype: dtype.type(0), lambda dtype: 0.0)
SMALLEST = reducers.Simple("min", lax.reduce_min, lax.min, lambda dtype: dtype.type(math.inf), lambda dtype: math.inf)


def _nonzero(x: Value) -> Value:
    return lax.ne(x, lax.full_like(x, 0))


def matrix_norm(
    x: Array,
    /,
    *,
    keepdims: bool = False,
    ord: int | float | Literal["fro", "nuc"] | None = "fro",
) -> Array:
    """The norms of matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; its last two are the matrices'.
    keepdims
        Whether the last two axes stay in the result, with size 1.
    ord
        Which norm. ``"fro"``, as None, is the root of the sum of squared magnitudes; 1 and -1 are the
        largest and smallest sum of magnitudes of a column, inf and -inf of a row; 2 and -2 the largest and
        smallest singular value, and ``"nuc"`` the sum of all of them.

    Returns
    -------
    Array
        Real, of the precision of `x`.

    Raises
    ------
    ValueError
        For other orders.
    MemoryBudgetError
        When it is computed, where singular values of a large matrix are needed that is about square:
        see `svdvals`. The other norms are folds, of matrices of any size.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> x = xp.asarray([[3.0, 0.0], [0.0, -4.0]])
    >>> float(xp.linalg.matrix_norm(x)), float(xp.linalg.matrix_norm(x, ord=-2))
    (5.0, 3.0)
    """
    node = matrices("matrix_norm", x)
    rows, columns = node.ndim - 2, node.ndim - 1
    if ord is None or ord == "fro":
        return Array(norm_of(node, (rows, columns), 2.0, keepdims))
    number = 0.0 if isinstance(ord, str) else float(ord)
    if ord == "nuc" or abs(number) == 2:
        order = 1.0 if ord == "nuc" else math.inf * number
        norm = norm_of(singular_values(node), (node.ndim - 2,), order, False)
    elif abs(number) == 1 or math.isinf(number):
        along, largest = (rows if abs(number) == 1 else columns), number > 0
        sums = norm_of(node, (along,), 1.0, False)
        norm = norm_of(sums, (node.ndim - 2,), math.inf if largest else -math.inf, False)
    else:
        raise ValueError(f"matrix_norm: ord={ord!r}; it takes 'fro', 'nuc', 1, -1, 2, -2, inf and -inf")
    return Array(_views.expand_dims(norm, (rows, columns)) if keepdims else norm)
