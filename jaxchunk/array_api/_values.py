"""What bodies are written with: constants, broadcasting, signs, and polynomials of JAX values.

All on `jax.lax`. The operators of JAX values and most of `jax.numpy` are jitted functions of their
own, and each leaves something in JAX's caches for every shape it ever sees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax import Array, lax

Value: TypeAlias = Array
Literal: TypeAlias = np.generic

_WHOLE: dict[int, np.dtype[np.signedinteger[Any]]] = {4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def is_kind(x: Value, kinds: str) -> bool:
    """Whether a value's dtype is of one of NumPy's kinds: "f" floating, "c" complex, "iu" integer …"""
    return np.dtype(x.dtype).kind in kinds


def constant(x: Value, value: complex) -> Value:
    """A value of `x`'s shape and dtype, everywhere the same."""
    return lax.full_like(x, value)


def put(where: Value, value: float, x: Value) -> Value:
    """`x`, but `value` where a condition holds."""
    return lax.select(where, constant(x, value), x)


def either(*conditions: Value) -> Value:
    return functools.reduce(lax.bitwise_or, conditions)


def both(*conditions: Value) -> Value:
    return functools.reduce(lax.bitwise_and, conditions)


def is_zero(x: Value) -> Value:
    return lax.eq(x, constant(x, 0))


def is_infinite(x: Value) -> Value:
    return lax.eq(lax.abs(x), constant(x, np.inf))


def is_nan(x: Value) -> Value:
    return lax.ne(x, x)


def scaled(x: Value, factor: float) -> Value:
    return lax.mul(x, constant(x, factor))


def shifted(x: Value, addend: float) -> Value:
    return lax.add(x, constant(x, addend))


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial of x with these coefficients, the constant one first, by Horner's rule."""
    result = constant(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = shifted(lax.mul(result, x), c)
    return result


def bits(x: Value) -> Value:
    """A floating value's bits, as signed integers of its size."""
    return lax.bitcast_convert_type(x, _WHOLE[x.dtype.itemsize])


def sign_of(x: Value) -> Value:
    """The sign bits of a floating value alone, as integers."""
    whole = bits(x)
    return lax.bitwise_and(whole, constant(whole, int(np.iinfo(whole.dtype).min)))


def flip(x: Value, *by: Value) -> Value:
    """x with its sign changed once for every value among `by` that is negative, -0 included."""
    whole = functools.reduce(lax.bitwise_xor, (sign_of(y) for y in by), bits(x))
    return lax.bitcast_convert_type(whole, x.dtype)


def with_sign(x: Value, y: Value) -> Value:
    """The magnitude of x with the sign bit of y."""
    return lax.bitcast_convert_type(lax.bitwise_or(bits(lax.abs(x)), sign_of(y)), x.dtype)


def spread(x: Value | Literal, shape: tuple[int, ...]) -> Value:
    """Broadcast a value, or a literal, to a shape."""
    if isinstance(x, np.generic):
        return lax.full(shape, x.item(), x.dtype)
    if x.shape == shape:
        return x
    return lax.broadcast_in_dim(x, shape, tuple(range(len(shape) - x.ndim, len(shape))))


def aligned(body: Callable[..., Value]) -> Callable[..., Value]:
    """Give a body its operands at their common shape."""

    @functools.wraps(body)
    def run(*values: Value | Literal) -> Value:
        shape = np.broadcast_shapes(*(np.shape(v) for v in values))
        return body(*(spread(v, shape) for v in values))

    return run
