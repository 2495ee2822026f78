"""The folds: how sums, extremes, moments and contractions are taken piece by piece.

Each is a `jaxchunk.graph.primitives.Reducer`: `lift` makes a state of a piece of the array, `combine`
joins the states of two pieces, `finish` makes the result. None of them knows how the array was cut,
and a state may still hold several elements along a dropped axis (vector lanes), so all three work
element by element along the axes that they don't reduce.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jax import lax

from jaxchunk.array_api._build import convert
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.primitives import Sides

Values: TypeAlias = tuple[Any, ...]
DType: TypeAlias = np.dtype[Any]
Axes: TypeAlias = tuple[int, ...]

FLOAT64 = np.dtype("float64")
INT64 = np.dtype("int64")
BOOL = np.dtype("bool")

# JAX's own operators leave something in its caches for every shape; these don't.
_add, _sub, _mul, _div = (aligned(f) for f in (lax.add, lax.sub, lax.mul, lax.div))
_max, _min, _select = (aligned(f) for f in (lax.max, lax.min, lax.select))
_lt, _gt, _eq = (aligned(f) for f in (lax.lt, lax.gt, lax.eq))
_and, _or = (aligned(f) for f in (lax.bitwise_and, lax.bitwise_or))


def reduce_axes(x: Any, axes: Axes, reduce: Callable[[Any, Axes], Any]) -> Any:
    """Reduce, keeping the axes with size 1, in the order of axes that compiles to vector code.

    Leading axes go first: that is one vector operation a row. A last axis of its own is folded
    onto 128 lanes before the lanes are joined, since a sum straight into a scalar isn't vectorised.
    """
    last = x.ndim - 1
    leading = tuple(a for a in axes if a != last)
    if leading:
        x = lax.expand_dims(reduce(x, leading), leading)
    if last in axes:
        length = x.shape[last]
        if length > 128 and length % 128 == 0:
            x = lax.reshape(x, (*x.shape[:last], length // 128, 128))
            x = reduce(x, (last,))
        x = lax.expand_dims(reduce(x, (last,)), (last,))
    return x


def _wide(shape: tuple[int, ...], axes: Axes) -> int:
    return math.prod(shape[a] for a in axes)


def lowest(dtype: DType) -> Any:
    """What no element of the dtype is smaller than."""
    if dtype == BOOL:
        return False
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def highest(dtype: DType) -> Any:
    """What no element of the dtype is larger than."""
    if dtype == BOOL:
        return True
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def _unmoved(reducer: Any, places: Mapping[int, int]) -> Any:
    """What `moved` is where a fold doesn't depend on the numbers of axes."""
    return reducer


@dataclass(frozen=True)
class Simple:
    """A fold whose state is one array of the operand's dtype, joined by one operation.

    Parameters
    ----------
    name
        Of the function that it stands for.
    reduce
        The reduction of an array over axes.
    join
        The same of two arrays.
    start
        The result over no elements, by dtype; None where there isn't one and ValueError is raised.
    neutral
        What `join` passes over, by dtype.
    """

    name: str
    reduce: Callable[[Any, Axes], Any]
    join: Callable[[Any, Any], Any]
    start: Callable[[DType], Any] | None
    neutral: Callable[[DType], Any]

    contracts = False
    follows = ()
    sides = None
    moved = _unmoved

    @property
    def key(self) -> Hashable:
        return self.name

    def lift(self, values: Values, axes: Axes) -> Values:
        return (reduce_axes(values[0], axes, self.reduce),)

    def combine(self, first: Values, second: Values) -> Values:
        return (self.join(first[0], second[0]),)

    def identity(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        return (self.neutral(dtypes[0]),)

    def finish(self, state: Values) -> Any:
        return state[0]

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (dtypes[0],)

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        if self.start is None:
            raise ValueError(f"{self.name} of no elements: an axis to reduce has length 0")
        return np.full(shape, self.start(dtypes[0]), dtypes[0])


def _zero(dtype: DType) -> Any:
    return dtype.type(0)


def _one(dtype: DType) -> Any:
    return dtype.type(1)


SUM = Simple("sum", lax.reduce_sum, lax.add, _zero, _zero)
PROD = Simple("prod", lax.reduce_prod, lax.mul, _one, _one)
MAX = Simple("max", lax.reduce_max, lax.max, None, lowest)
MIN = Simple("min", lax.reduce_min, lax.min, None, highest)
ANY = Simple("any", lax.reduce_or, lax.bitwise_or, _zero, _zero)
ALL = Simple("all", lax.reduce_and, lax.bitwise_and, _one, _one)


@dataclass(frozen=True)
class CountNonzero:
    """How many elements of a boolean array are true: counted in 32 bits in a piece, in 64 across pieces."""

    name = "count_nonzero"
    contracts = False
    follows = ()
    sides = None
    moved = _unmoved

    @property
    def key(self) -> Hashable:
        return self.name

    def lift(self, values: Values, axes: Axes) -> Values:
        (hits,) = values
        narrow = np.dtype("int32") if _wide(hits.shape, axes) < 2**31 else INT64
        count = reduce_axes(convert(hits, narrow), axes, lax.reduce_sum)
        return (convert(count, INT64),)

    def combine(self, first: Values, second: Values) -> Values:
        return (lax.add(first[0], second[0]),)

    def identity(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        return (0,)

    def finish(self, state: Values) -> Any:
        return state[0]

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (INT64,)

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        return np.zeros(shape, INT64)


@dataclass(frozen=True)
class Moments:
    """Variance or standard deviation, from (count, mean, sum of squared deviations).

    A piece is done in two passes over it, mean first; pieces are joined by the update of Chan,
    Golub and LeVeque, so that nothing is lost where the mean is large against the deviations.
    Counts are float64 and therefore exact up to 2**53 elements. A second operand is a mask of what counts.

    Parameters
    ----------
    correction
        Taken from the count to make the divisor.
    root
        Whether the result is the standard deviation.
    """

    correction: float
    root: bool

    contracts = False
    follows = ()
    sides = None
    moved = _unmoved

    @property
    def name(self) -> str:
        return "std" if self.root else "var"

    @property
    def key(self) -> Hashable:
        return (self.name, self.correction)

    def lift(self, values: Values, axes: Axes) -> Values:
        x, *mask = values
        if mask:
            return self._lift_where(x, mask[0], axes)
        n = _wide(x.shape, axes)
        total = reduce_axes(x, axes, lax.reduce_sum)
        mean = lax.div(total, lax.full_like(total, n))
        deviation = _sub(x, mean)
        squares = reduce_axes(lax.mul(deviation, deviation), axes, lax.reduce_sum)
        return (lax.full((1,) * x.ndim, n, FLOAT64), mean, squares)

    def _lift_where(self, x: Any, mask: Any, axes: Axes) -> Values:
        """The same of the elements where a mask is true."""
        mask = lax.broadcast_in_dim(mask, x.shape, range(x.ndim))
        nothing = lax.full_like(x, 0)
        n = reduce_axes(convert(mask, FLOAT64), axes, lax.reduce_sum)
        total = reduce_axes(lax.select(mask, x, nothing), axes, lax.reduce_sum)
        mean = lax.div(total, convert(_max(n, lax.full_like(n, 1)), total.dtype))
        deviation = lax.select(mask, _sub(x, mean), nothing)
        return (n, mean, reduce_axes(lax.mul(deviation, deviation), axes, lax.reduce_sum))

    def combine(self, first: Values, second: Values) -> Values:
        n1, mean1, squares1 = first
        n2, mean2, squares2 = second
        n = _add(n1, n2)
        # An empty state passes the other one on: its share is 0, and its mean deviates from none.
        empty = _eq(n1, lax.full_like(n1, 0))
        share = convert(_div(n2, _max(n, lax.full_like(n, 1))), mean1.dtype)
        delta = _select(_or(empty, _eq(n2, lax.full_like(n2, 0))), lax.full_like(mean1, 0), _sub(mean2, mean1))
        mean = _select(empty, mean2, _add(mean1, _mul(delta, share)))
        between = _mul(_mul(delta, delta), _mul(convert(n1, mean1.dtype), share))
        return (n, mean, _add(_add(squares1, squares2), between))

    def identity(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        return (0.0, 0.0, 0.0)

    def finish(self, state: Values) -> Any:
        n, _, squares = state
        divisor = lax.sub(n, lax.full_like(n, self.correction))
        # Where nothing is left to divide by the result is NaN, also for squares that aren't 0.
        positive = lax.gt(divisor, lax.full_like(n, 0))
        divisor = convert(lax.select(positive, divisor, lax.full_like(n, np.nan)), squares.dtype)
        variance = _div(squares, divisor)
        return lax.sqrt(variance) if self.root else variance

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (FLOAT64, dtypes[0], dtypes[0])

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        return np.full(shape, np.nan, dtypes[0])


@dataclass(frozen=True)
class ArgExtreme:
    """Where the largest (or smallest) element is, the first of them; NaN counts as beyond all others.

    The operands are the array and, for each reduced axis, the positions along it; the state is
    (value, index), with the index linear in the reduced axes by `strides`.
    """

    largest: bool
    strides: tuple[int, ...]

    contracts = False
    follows = ()
    sides = None
    moved = _unmoved

    @property
    def name(self) -> str:
        return "argmax" if self.largest else "argmin"

    @property
    def key(self) -> Hashable:
        return (self.name, self.strides)

    def lift(self, values: Values, axes: Axes) -> Values:
        x, *positions = values
        index = functools.reduce(_add, map(_scaled, positions, self.strides))
        best = reduce_axes(x, axes, lax.reduce_max if self.largest else lax.reduce_min)
        # The lowest index among the elements that are as good as the best: NaN where that is NaN.
        beaten = _lt(x, best) if self.largest else _gt(x, best)
        if x.dtype.kind == "f":
            beaten = _or(beaten, _and(lax.eq(x, x), lax.ne(best, best)))
        index = _select(beaten, lax.full((1,) * x.ndim, highest(INT64), INT64), index)
        return (best, reduce_axes(index, axes, lax.reduce_min))

    def combine(self, first: Values, second: Values) -> Values:
        (a, i), (b, j) = first, second
        better, tie = (_gt if self.largest else _lt)(b, a), _eq(a, b)
        if a.dtype.kind == "f":
            a_nan, b_nan = lax.ne(a, a), lax.ne(b, b)
            better = _or(better, _and(b_nan, lax.bitwise_not(a_nan)))
            tie = _or(tie, _and(a_nan, b_nan))
        return (_select(better, b, a), _select(tie, _min(i, j), _select(better, j, i)))

    def identity(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        value = lowest(dtypes[0]) if self.largest else highest(dtypes[0])
        return (value, highest(INT64))

    def finish(self, state: Values) -> Any:
        return state[1]

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (dtypes[0], INT64)

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        raise ValueError(f"{self.name} of no elements: an axis to reduce has length 0")


def _scaled(position: Any, stride: int) -> Any:
    return position if stride == 1 else lax.mul(position, lax.full_like(position, stride))


@dataclass(frozen=True)
class Dot:
    """A contraction of two operands: sums of products over the dropped axes.

    Parameters
    ----------
    left, right
        The axes of the space that the operands follow, in increasing order.
    """

    left: Axes
    right: Axes

    name = "matmul"
    contracts = True
    sides = Sides(least=256, most=4096, threaded=True)

    @property
    def follows(self) -> tuple[Axes, ...]:
        return (self.left, self.right)

    def moved(self, places: Mapping[int, int]) -> Dot:
        left, right = (tuple(places[a] for a in side if a in places) for side in (self.left, self.right))
        return Dot(left, right)

    @property
    def key(self) -> Hashable:
        return (self.name, self.left, self.right)

    def lift(self, values: Values, axes: Axes) -> Values:
        a, b = values
        rank = a.ndim
        contracted = tuple(x for x in axes if x in self.left and x in self.right)
        batch = tuple(x for x in self.left if x in self.right and x not in axes)
        a, b = _squeeze(a, self.left), _squeeze(b, self.right)
        where_a, where_b = self.left.index, self.right.index
        dimensions = (
            (tuple(map(where_a, contracted)), tuple(map(where_b, contracted))),
            (tuple(map(where_a, batch)), tuple(map(where_b, batch))),
        )
        out = lax.dot_general(a, b, dimensions, precision=lax.Precision.HIGHEST, preferred_element_type=a.dtype)
        # The result has batch axes first, then those of either side alone: back into the space's order.
        order = [*batch]
        order += [x for x in self.left if x not in batch and x not in contracted]
        order += [x for x in self.right if x not in batch and x not in contracted]
        out = lax.transpose(out, sorted(range(len(order)), key=order.__getitem__))
        return (lax.expand_dims(out, tuple(x for x in range(rank) if x not in order)),)

    def combine(self, first: Values, second: Values) -> Values:
        return (lax.add(first[0], second[0]),)

    def identity(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        return (0,)

    def finish(self, state: Values) -> Any:
        return state[0]

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (dtypes[0],)

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        return np.zeros(shape, dtypes[0])


def _squeeze(x: Any, kept: Axes) -> Any:
    return lax.squeeze(x, tuple(a for a in range(x.ndim) if a not in kept))
