"""Sine, cosine, tangent and their inverses, of real numbers.

XLA takes some ten times as long as NumPy for most of these on CPUs: it calls the C library once an
element. Here they are arithmetic that vectorises. Other devices keep XLA's own (`_on_cpu`).

The polynomials are least-squares fits at Chebyshev nodes, reweighted until the largest relative
error was minimal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from jax import lax

from jaxchunk.array_api._values import (
    Value,
    bits,
    both,
    constant,
    is_infinite,
    is_zero,
    polynomial,
    put,
    scaled,
    shifted,
    with_sign,
)

_PI = Fraction(314159265358979323846264338327950288419716939937510582097494459230781640628620899862803, 10**86)

# (sin r - r) / r**3 and (cos r - 1 + r**2 / 2) / r**4 as polynomials of r**2, for r up to an eighth of a turn.
_SIN = {
    4: (-0.1666665422535149, 0.008332131487785239, -0.0001951083813659688),
    8: (
        -0.1666666666666567,
        0.008333333333147447,
        -0.0001984126972385935,
        2.755728462753969e-06,
        -2.5047026947525996e-08,
        1.571445466261294e-10,
    ),
}
_COS = {
    4: (0.041666645652426774, -0.0013887306024733678, 2.443120314556138e-05),
    8: (
        0.041666666666687384,
        -0.0013888888891984198,
        2.4801588959137775e-05,
        -2.755773129695295e-07,
        2.092509892590166e-09,
        -1.3605594334007348e-11,
    ),
}
# (atan(t) - t) / t**3 as a polynomial of t**2, for t up to tan(pi / 8).
_ATAN = {
    4: (-0.33333315423008286, 0.1999848396972989, -0.14243738254361915, 0.10595136233655275, -0.06081147712885708),
    8: (
        -0.33333333333334586,
        0.20000000000455656,
        -0.1428571434136906,
        0.11111114439982726,
        -0.0909102363043401,
        0.07694771999579265,
        -0.06701277976549468,
        0.06204751424719671,
        -0.07236519379572164,
        0.1236996142306551,
        -0.20941084490001283,
        0.18721858708107303,
    ),
}


def _pieces(value: Fraction, width: int, count: int) -> tuple[float, ...]:
    """Floats that sum up to the value, each an integer of so many bits (and a sign) at its own power of two."""
    pieces = []
    for k in range(1, count + 1):
        scale = 2 ** (width * k)
        digits = round(value * scale)
        pieces.append(digits / scale)
        value -= Fraction(digits, scale)
    return tuple(pieces)


def _nearest(x: Value) -> Value:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


# --- Angles -------------------------------------------------------------------------------------

# Each of these times a float32 is exact in float64, and together they reach far enough for the largest float32.
_TURNS = _pieces(1 / (2 * _PI), 29, 7)
_SHORT = 5  # from here on a piece times the largest float32 is less than half a turn

# Each times a whole number of quarters is exact as long as the angle is not beyond `_FAR`.
_FAR = 2.0**26
_QUARTER = _pieces(_PI / 2, 25, 5)


def _quarters(x: Value) -> tuple[Value, Value]:
    """An angle as quarter turns (int32, modulo 4 at least) and the rest, at most an eighth of a turn."""
    if x.dtype == np.float64:
        whole = _nearest(scaled(x, 2 / math.pi))
        rest = x
        for piece in _QUARTER:
            rest = lax.sub(rest, scaled(whole, piece))
        return lax.convert_element_type(whole, np.int32), rest
    wide = lax.convert_element_type(x, np.float64)
    turns = constant(wide, 0)
    for k, piece in enumerate(_TURNS):
        part = scaled(wide, piece)
        turns = lax.add(turns, lax.sub(part, _nearest(part)) if k < _SHORT else part)
    quarters = scaled(turns, 4)
    whole = _nearest(quarters)
    rest = scaled(lax.sub(quarters, whole), math.pi / 2)
    return lax.convert_element_type(whole, np.int32), lax.convert_element_type(rest, np.float32)


def _sin_cos(r: Value) -> tuple[Value, Value]:
    """Sine and cosine of at most an eighth of a turn."""
    size = r.dtype.itemsize
    square = lax.mul(r, r)
    sine = lax.add(r, lax.mul(lax.mul(r, square), polynomial(square, _SIN[size])))
    rest = lax.mul(lax.mul(square, square), polynomial(square, _COS[size]))
    return sine, lax.add(shifted(scaled(square, -0.5), 1), rest)


def _is_odd(n: Value) -> Value:
    return lax.ne(lax.bitwise_and(n, constant(n, 1)), constant(n, 0))


def _negated_by_two(x: Value, n: Value) -> Value:
    """x with its sign changed where n has the bit of two: in the second half of a turn."""
    whole = bits(x)
    top = lax.bitwise_and(lax.convert_element_type(n, whole.dtype), constant(whole, 2))
    top = lax.shift_left(top, constant(whole, 8 * x.dtype.itemsize - 2))
    return lax.bitcast_convert_type(lax.bitwise_xor(whole, top), x.dtype)


def _sin(x: Value) -> Value:
    n, r = _quarters(x)
    sine, cosine = _sin_cos(r)
    return lax.select(is_zero(x), x, _negated_by_two(lax.select(_is_odd(n), cosine, sine), n))


def _cos(x: Value) -> Value:
    n, r = _quarters(x)
    sine, cosine = _sin_cos(r)
    return _negated_by_two(lax.select(_is_odd(n), sine, cosine), shifted(n, 1))


def _tan(x: Value) -> Value:
    n, r = _quarters(x)
    sine, cosine = _sin_cos(r)
    odd = _is_odd(n)
    over, under = lax.select(odd, lax.neg(cosine), sine), lax.select(odd, sine, cosine)
    return lax.select(is_zero(x), x, lax.div(over, under))


# --- Arcs ---------------------------------------------------------------------------------------


def _atan2(y: Value, x: Value) -> Value:
    size = x.dtype.itemsize
    a, b = lax.abs(y), lax.abs(x)
    # Two infinities meet at the angle of two ones.
    corner = both(is_infinite(a), is_infinite(b))
    a, b = put(corner, 1, a), put(corner, 1, b)
    large, small = lax.max(a, b), lax.min(a, b)
    # Above tan(pi / 8) the arc is taken from pi / 4 on: the sum must not overflow then, nor the difference vanish.
    scale = put(lax.gt(large, constant(large, 2.0**90)), 2.0**-30, constant(large, 1))
    scale = put(lax.lt(large, constant(large, 2.0**-90)), 2.0**30, scale)
    small, large = lax.mul(small, scale), lax.mul(large, scale)
    steep = lax.gt(small, scaled(large, math.tan(math.pi / 8)))
    over = lax.select(steep, lax.sub(small, large), small)
    under = lax.select(steep, lax.add(small, large), put(is_zero(large), 1, large))
    t = lax.div(over, under)
    square = lax.mul(t, t)
    arc = lax.add(t, lax.mul(lax.mul(t, square), polynomial(square, _ATAN[size])))
    arc = lax.select(steep, shifted(arc, math.pi / 4), arc)
    arc = lax.select(lax.gt(a, b), lax.sub(constant(arc, math.pi / 2), arc), arc)
    left = lax.lt(bits(x), constant(bits(x), 0))
    arc = lax.select(left, lax.sub(constant(arc, math.pi), arc), arc)
    # A NaN has a sign bit of its own.
    return with_sign(arc, y)


def _atan(x: Value) -> Value:
    return _atan2(x, constant(x, 1))


def _cathetus(x: Value) -> Value:
    """The other side of a triangle with hypotenuse 1; NaN where there is none."""
    return lax.sqrt(lax.mul(lax.sub(constant(x, 1), x), shifted(x, 1)))


def _asin(x: Value) -> Value:
    return _atan2(x, _cathetus(x))


def _acos(x: Value) -> Value:
    return _atan2(_cathetus(x), x)


# --- Choice -------------------------------------------------------------------------------------


def _on_cpu(own: Callable[..., Value], xla: Callable[..., Value]) -> Callable[..., Value]:
    """Our own function where kernels run on a CPU, and XLA's on other devices."""

    def run(*values: Value) -> Value:
        result: Value = lax.platform_dependent(*values, cpu=own, default=xla)
        return result

    return run


def _near(own: Callable[[Value], Value], xla: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """Our own function, but XLA's for blocks with float64 angles that ours can't reduce."""

    def run(x: Value) -> Value:
        if x.dtype == np.float32:
            return own(x)
        beyond = both(lax.gt(lax.abs(x), constant(x, _FAR)), lax.is_finite(x))
        result: Value = lax.cond(lax.reduce_or(beyond, tuple(range(x.ndim))), xla, own, x)
        return result

    return run


sin = _on_cpu(_near(_sin, lax.sin), lax.sin)
cos = _on_cpu(_near(_cos, lax.cos), lax.cos)
tan = _on_cpu(_near(_tan, lax.tan), lax.tan)
asin = _on_cpu(_asin, lax.asin)
acos = _on_cpu(_acos, lax.acos)
atan = _on_cpu(_atan, lax.atan)
atan2 = _on_cpu(_atan2, lax.atan2)
