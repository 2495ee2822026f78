"""Bodies of the elementwise functions: what one element is made of, as traceable code.

A body takes JAX values of one dtype, the operands' promoted one, and gives one value. Operands of
different shapes are broadcast (`aligned`). Where a row is marked *literal*, a Python scalar of the
user's arrives as a NumPy scalar of that dtype, known while tracing.

XLA flushes subnormal numbers to zero on CPUs, in operands as in results. The bodies let it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jax import lax

from jaxchunk.array_api import _complex, _hyperbolic, _trig
from jaxchunk.array_api._values import (
    Literal,
    Value,
    aligned,
    bits,
    both,
    constant,
    either,
    is_infinite,
    is_kind,
    is_nan,
    is_zero,
    put,
    scaled,
    with_sign,
)

# --- Arithmetic ---------------------------------------------------------------------------------

add = aligned(lax.add)
subtract = aligned(lax.sub)
multiply = aligned(lax.mul)
maximum = aligned(lax.max)
minimum = aligned(lax.min)


@aligned
def divide(x: Value, y: Value) -> Value:
    return _complex.divide(x, y) if is_kind(x, "c") else lax.div(x, y)


def absolute(x: Value) -> Value:
    if is_kind(x, "c"):
        return hypot(lax.real(x), lax.imag(x))
    return x if is_kind(x, "u") else lax.abs(x)


def identity(x: Value) -> Value:
    return x


def negative(x: Value) -> Value:
    return lax.neg(x)


def square(x: Value) -> Value:
    return lax.mul(x, x)


def reciprocal(x: Value) -> Value:
    return divide(constant(x, 1), x)


def sign(x: Value) -> Value:
    if is_kind(x, "c"):
        return _complex.sign(x)
    return put(is_zero(x), 0, lax.sign(x))  # also of -0


@aligned
def floor_divide(x: Value, y: Value) -> Value:
    if not is_kind(x, "f"):
        quotient = lax.div(x, y)
        if is_kind(x, "i"):
            # div cuts off towards zero: one too many where that rounded a negative quotient up.
            rest = lax.sub(x, lax.mul(quotient, y))
            down = both(lax.ne(rest, constant(x, 0)), _signs_differ(rest, y))
            quotient = lax.sub(quotient, lax.convert_element_type(down, x.dtype))
        return put(is_zero(y), 0, quotient)
    quotient = lax.div(x, y)
    # The floor of the rounded quotient is too large where rounding reached the next integer, so
    # it is taken of what is left without the remainder: then it only has to be made exact.
    exact = lax.round(lax.div(lax.sub(x, remainder(x, y)), y), lax.RoundingMethod.TO_NEAREST_EVEN)
    usual = both(lax.is_finite(x), lax.is_finite(exact), lax.is_finite(y))
    # A zero has the quotient's sign; infinities, and their zeros, are the quotient itself.
    exact = lax.select(is_zero(exact), with_sign(exact, quotient), exact)
    return lax.select(usual, exact, quotient)


@aligned
def remainder(x: Value, y: Value) -> Value:
    zero = constant(x, 0)
    rest = lax.rem(x, y)
    if not is_kind(x, "u"):
        rest = lax.select(both(lax.ne(rest, zero), _signs_differ(rest, y)), lax.add(rest, y), rest)
    if is_kind(x, "f"):
        return lax.select(is_zero(rest), with_sign(zero, y), rest)
    return put(is_zero(y), 0, rest)


def _signs_differ(x: Value, y: Value) -> Value:
    zero = constant(x, 0)
    return lax.ne(lax.lt(x, zero), lax.lt(y, zero))


def clip(x: Value, low: Value, high: Value) -> Value:
    return maximum(minimum(x, high), low)


# --- Powers -------------------------------------------------------------------------------------


def power(x: Value | Literal, y: Value | Literal) -> Value:
    """x to the power of y; an exponent known while tracing takes the cheapest way there is."""
    if isinstance(y, np.generic) and not isinstance(x, np.generic):
        cheap = _fixed_power(x, y.item())
        if cheap is not None:
            return cheap
    return _power(x, y)


def _fixed_power(x: Value, exponent: complex) -> Value | None:
    if isinstance(exponent, complex):
        if exponent.imag != 0:
            return None
        exponent = exponent.real
    if is_kind(x, "iu"):
        return _integer_power(x, int(exponent))
    if exponent == 0.5 and is_kind(x, "f"):
        # Unlike the root, the power of -0 is +0 and that of -inf is +inf.
        root = lax.abs(lax.sqrt(x))
        return put(is_infinite(x), math.inf, root)
    if exponent in (0, 1, 2, 3, 4):
        return _integer_power(x, int(exponent))
    return reciprocal(x) if exponent == -1 else None


def _integer_power(x: Value, exponent: int) -> Value:
    result = constant(x, 1)
    while exponent > 0:
        if exponent & 1:
            result = lax.mul(result, x)
        x, exponent = lax.mul(x, x), exponent >> 1
    return result


@aligned
def _power(x: Value, y: Value) -> Value:
    if is_kind(x, "c"):
        return _complex.power(x, y)
    if is_kind(x, "f"):
        return lax.pow(x, y)
    zero, one = constant(x, 0), constant(x, 1)

    def more(state: tuple[Value, Value, Value]) -> Value:
        return lax.reduce_or(lax.gt(state[2], zero), tuple(range(x.ndim)))

    def step(state: tuple[Value, Value, Value]) -> tuple[Value, Value, Value]:
        result, base, left = state
        odd = lax.eq(lax.bitwise_and(left, one), one)
        result = lax.select(odd, lax.mul(result, base), result)
        return result, lax.mul(base, base), lax.shift_right_logical(left, one)

    result, _, _ = lax.while_loop(more, step, (one, x, lax.max(y, zero)))
    if is_kind(x, "u"):
        return result
    # What the reciprocal comes to in integers: of 1 and -1 themselves, of all others 0.
    unit = lax.eq(lax.abs(x), one)
    even = lax.eq(lax.bitwise_and(y, one), zero)
    inverse = lax.select(unit, lax.select(even, one, x), zero)
    return lax.select(lax.lt(y, zero), inverse, result)


# --- Rounding and parts -------------------------------------------------------------------------


def floor(x: Value) -> Value:
    return lax.floor(x) if is_kind(x, "f") else x


def ceil(x: Value) -> Value:
    return lax.ceil(x) if is_kind(x, "f") else x


def trunc(x: Value) -> Value:
    if not is_kind(x, "f"):
        return x
    return lax.select(lax.lt(x, constant(x, 0)), lax.ceil(x), lax.floor(x))


def round_half_even(x: Value) -> Value:
    if is_kind(x, "c"):
        return lax.complex(round_half_even(lax.real(x)), round_half_even(lax.imag(x)))
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN) if is_kind(x, "f") else x


def conj(x: Value) -> Value:
    return lax.conj(x) if is_kind(x, "c") else x


def real(x: Value) -> Value:
    return lax.real(x) if is_kind(x, "c") else x


def imag(x: Value) -> Value:
    return lax.imag(x)


# --- Bits ---------------------------------------------------------------------------------------

bitwise_and = aligned(lax.bitwise_and)
bitwise_or = aligned(lax.bitwise_or)
bitwise_xor = aligned(lax.bitwise_xor)
left_shift = aligned(lax.shift_left)


def bitwise_invert(x: Value) -> Value:
    return lax.bitwise_not(x)


@aligned
def right_shift(x: Value, y: Value) -> Value:
    return lax.shift_right_logical(x, y) if is_kind(x, "u") else lax.shift_right_arithmetic(x, y)


def signbit(x: Value) -> Value:
    whole = bits(x)
    return lax.lt(whole, constant(whole, 0))


copysign = aligned(with_sign)
nextafter = aligned(lax.nextafter)


# --- Comparison ---------------------------------------------------------------------------------

equal = aligned(lax.eq)
not_equal = aligned(lax.ne)
less = aligned(lax.lt)
less_equal = aligned(lax.le)
greater = aligned(lax.gt)
greater_equal = aligned(lax.ge)


def isnan(x: Value) -> Value:
    return is_nan(x)


def isfinite(x: Value) -> Value:
    if is_kind(x, "c"):
        return both(lax.is_finite(lax.real(x)), lax.is_finite(lax.imag(x)))
    return lax.is_finite(x) if is_kind(x, "f") else lax.full_like(x, True, np.bool_)


def isinf(x: Value) -> Value:
    if is_kind(x, "c"):
        return either(is_infinite(lax.real(x)), is_infinite(lax.imag(x)))
    return is_infinite(x) if is_kind(x, "f") else lax.full_like(x, False, np.bool_)


# --- Exponentials and logarithms ----------------------------------------------------------------


def _by_kind(real: Callable[[Value], Value], complex_: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """One body of a real and a complex algorithm."""

    def run(x: Value) -> Value:
        return complex_(x) if is_kind(x, "c") else real(x)

    return run


exp = _by_kind(lax.exp, _complex.exp)
expm1 = _by_kind(lax.expm1, _complex.expm1)
log = _by_kind(lax.log, _complex.log)
log1p = _by_kind(_hyperbolic.log1p, _complex.log1p)
sqrt = _by_kind(lax.sqrt, _complex.sqrt)


def _log_to_base(base: float) -> Callable[[Value], Value]:
    factor = 1 / math.log(base)

    def run(x: Value) -> Value:
        if is_kind(x, "c"):
            # Part by part: multiplied as complex numbers, infinity and 0 would give NaN.
            result = log(x)
            return lax.complex(scaled(lax.real(result), factor), scaled(lax.imag(result), factor))
        return scaled(lax.log(x), factor)

    return run


log2 = _log_to_base(2)
log10 = _log_to_base(10)


@aligned
def hypot(x: Value, y: Value) -> Value:
    return _complex.hypot(x, y)


@aligned
def logaddexp(x: Value, y: Value) -> Value:
    top = lax.max(x, y)
    apart = lax.sub(top, lax.min(x, y))
    result = lax.add(top, lax.log1p(lax.exp(lax.neg(apart))))
    # Equal infinities have no distance.
    return lax.select(lax.eq(x, y), lax.add(x, constant(x, math.log(2))), result)


# --- Circular and hyperbolic functions ----------------------------------------------------------

sin = _by_kind(_trig.sin, _complex.sin)
cos = _by_kind(_trig.cos, _complex.cos)
tan = _by_kind(_trig.tan, _complex.tan)
asin = _by_kind(_trig.asin, _complex.asin)
acos = _by_kind(_trig.acos, _complex.acos)
atan = _by_kind(_trig.atan, _complex.atan)
atan2 = aligned(_trig.atan2)
sinh = _by_kind(_hyperbolic.sinh, _complex.sinh)
cosh = _by_kind(_hyperbolic.cosh, _complex.cosh)
tanh = _by_kind(lax.tanh, _complex.tanh)
asinh = _by_kind(lax.asinh, _complex.asinh)
acosh = _by_kind(lax.acosh, _complex.acosh)
atanh = _by_kind(_hyperbolic.atanh, _complex.atanh)
