"""Real functions that XLA computes to fewer digits than their dtype has, mended."""

from __future__ import annotations

import math

import numpy as np
from jax import lax

from jaxchunk.array_api._values import Value, constant, polynomial, scaled, shifted, with_sign

# (sinh x - x) / x**3 as a polynomial of x**2, for x up to 1.
_SINH = {size: tuple(1 / math.factorial(2 * k + 3) for k in range(terms)) for size, terms in ((4, 5), (8, 9))}


def _half_exp(x: Value) -> Value:
    """Half the exponential of a positive number, which doesn't overflow before it does itself."""
    return scaled(lax.exp(shifted(x, -1)), math.e / 2)


def cosh(x: Value) -> Value:
    half = _half_exp(lax.abs(x))
    return lax.add(half, lax.div(constant(x, 0.25), half))


def sinh(x: Value) -> Value:
    size = lax.abs(x)
    half = _half_exp(size)
    far = lax.sub(half, lax.div(constant(x, 0.25), half))
    square = lax.mul(size, size)
    near = lax.add(size, lax.mul(lax.mul(size, square), polynomial(square, _SINH[x.dtype.itemsize])))
    return with_sign(lax.select(lax.lt(size, constant(x, 1)), near, far), x)


def log1p(x: Value) -> Value:
    if x.dtype != np.float64:
        return lax.log1p(x)
    # XLA loses up to seven bits towards the ends of the range where it uses a polynomial.
    return lax.select(lax.gt(lax.abs(x), constant(x, 0.2)), lax.log(shifted(x, 1)), lax.log1p(x))


def atanh(x: Value) -> Value:
    size = lax.abs(x)
    ratio = lax.div(lax.add(size, size), lax.sub(constant(x, 1), size))
    return with_sign(scaled(log1p(ratio), 0.5), x)
