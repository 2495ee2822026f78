"""Factors on the unit circle, at positions told by exact integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api import _build
from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._trig import _is_odd, _nearest, _negated_by_two, _sin_cos
from jaxchunk.array_api._values import aligned, constant, scaled, shifted
from jaxchunk.graph.node import Node

_mul = aligned(lax.mul)
# Up to here the square of a position modulo twice the length is told in int64 by way of two digits.
LONGEST = 2**41
_DIGIT = 2**21


def root(part: Any, n: int, sign: int, dtype: DType) -> Any:
    """exp(sign · 2πi · part / n) for an int64 value from 0 to n - 1.

    The quarter of the turn is taken off in integers: what is left for the polynomials is exact but
    for one rounding, however large n is.
    """
    quarter = convert(_nearest(scaled(convert(part, np.dtype("f8")), 4 / n)), np.dtype("i8"))
    rest = lax.sub(lax.mul(part, constant(part, 4)), lax.mul(quarter, constant(part, n)))
    sine, cosine = _sin_cos(scaled(convert(rest, np.dtype("f8")), math.pi / 2 / n))
    odd = _is_odd(quarter)
    real = _negated_by_two(lax.select(odd, sine, cosine), shifted(quarter, 1))
    imag = _negated_by_two(lax.select(odd, cosine, sine), quarter)
    component = np.dtype(f"f{dtype.itemsize // 2}")
    return lax.complex(convert(real, component), convert(imag if sign > 0 else lax.neg(imag), component))


def twiddled(node: Node, axis: int, n: int, sign: int) -> Node:
    """Element (j, k) of two neighbouring axes times exp(sign · 2πi · j k / n)."""
    dtype = node.dtype

    def body(x: Any, j: Any, k: Any) -> Any:
        return _mul(x, root(_mul(j, k), n, sign, dtype))

    positions = [_build.iota(node.shape[a], node.grid[a]) for a in (axis, axis + 1)]
    maps = (tuple(range(node.ndim)), (axis,), (axis + 1,))
    key = ("twiddle", axis, n, sign, dtype.str)
    return _build.blockwise("twiddle", body, key, (node, *positions), dtype, maps=maps, space=node.shape, flops=40.0)


def chirped(node: Node, axis: int, n: int, sign: int) -> Node:
    """Element k of an axis times exp(sign · πi · k² / n)."""
    dtype = node.dtype

    def body(x: Any, k: Any) -> Any:
        return _mul(x, root(square_modulo(k, 2 * n), 2 * n, sign, dtype))

    maps = (tuple(range(node.ndim)), (axis,))
    operands = (node, _build.iota(node.shape[axis], node.grid[axis]))
    key = ("chirp", axis, n, sign, dtype.str)
    return _build.blockwise("chirp", body, key, operands, dtype, maps=maps, space=node.shape, flops=60.0)


def chirp(length: int, n: int, sign: int, dtype: DType) -> Node:
    """exp(sign · πi · k² / n) around position 0 of a circle of so many positions, and 0 from k = n on."""

    def body(k: Any) -> Any:
        near = lax.min(k, lax.sub(constant(k, length), k))
        value = root(square_modulo(lax.min(near, constant(k, n)), 2 * n), 2 * n, sign, dtype)
        return lax.select(lax.lt(near, constant(k, n)), value, constant(value, 0))

    key = ("chirp around 0", length, n, sign, dtype.str)
    return _build.blockwise("chirp", body, key, (_build.iota(length),), dtype, flops=60.0)


def square_modulo(k: Any, modulus: int) -> Any:
    """k² modulo at most 2 `LONGEST`, exactly, for an int64 value from 0 to half the modulus."""
    m = constant(k, modulus)
    if modulus <= 2**32:
        return lax.rem(lax.mul(k, k), m)
    digit = constant(k, _DIGIT)
    high = lax.rem(lax.mul(k, lax.div(k, digit)), m)
    return lax.rem(lax.add(lax.rem(lax.mul(high, digit), m), lax.rem(lax.mul(k, lax.rem(k, digit)), m)), m)
