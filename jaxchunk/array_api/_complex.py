"""Complex functions: XLA's where they are right, with signed zeros, infinities and NaN put right.

All of them are symmetric in their parts: f(conj z) = conj f(z), and most are odd or even as well. So
each is computed where the parts are positive, where no signed zero and no branch cut can go wrong,
corrected there for infinities and NaN, and given the signs of z's own quadrant. In the comments z is
(a, b) for a + bi.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jax import lax

from jaxchunk.array_api import _hyperbolic, _trig
from jaxchunk.array_api._values import (
    Value,
    both,
    constant,
    either,
    flip,
    is_infinite,
    is_nan,
    is_zero,
    put,
    scaled,
    shifted,
    with_sign,
)

Pair: TypeAlias = tuple[Value, Value]
Core: TypeAlias = Callable[[Value, Value], Pair]


def _parts(z: Value) -> Pair:
    return lax.real(z), lax.imag(z)


def _endless(x: Value) -> Value:
    """Infinite or NaN."""
    return lax.bitwise_not(lax.is_finite(x))


def _by_parts(
    core: Callable[[Value, Value], Pair], *, odd: bool = False, swap: bool = False
) -> Callable[[Value], Value]:
    """A function from its parts where b, and a too if it is odd in both, are positive.

    With `swap` it is the circular twin of a hyperbolic function: sin z = -i sinh iz and the like
    have the same parts the other way round.
    """

    def run(z: Value) -> Value:
        a, b = reversed(_parts(z)) if swap else _parts(z)
        u, v = core(lax.abs(a) if odd else a, lax.abs(b))
        u, v = flip(u, a) if odd else u, flip(v, b)
        return lax.complex(v, u) if swap else lax.complex(u, v)

    return run


# --- Arithmetic ---------------------------------------------------------------------------------


def hypot(x: Value, y: Value) -> Value:
    """The length of (x, y), whose squares neither overflow nor vanish on the way."""
    far = either(is_infinite(x), is_infinite(y))
    if x.dtype == np.float32:
        p, q = (lax.convert_element_type(part, np.float64) for part in (x, y))
        length = lax.convert_element_type(lax.sqrt(lax.add(lax.mul(p, p), lax.mul(q, q))), np.float32)
        return put(far, math.inf, length)
    top = lax.max(lax.abs(x), lax.abs(y))
    scale = put(lax.gt(top, constant(top, 2.0**500)), 2.0**-768, constant(top, 1))
    scale = put(lax.lt(top, constant(top, 2.0**-450)), 2.0**768, scale)
    p, q = lax.mul(x, scale), lax.mul(y, scale)
    return put(far, math.inf, lax.div(lax.sqrt(lax.add(lax.mul(p, p), lax.mul(q, q))), scale))


def sign(z: Value) -> Value:
    """z by its modulus; where parts are infinite, the direction of those."""
    a, b = _parts(z)
    top = lax.max(lax.abs(a), lax.abs(b))

    def shrunk(x: Value) -> Value:
        return lax.select(is_infinite(x), with_sign(constant(x, 1), x), lax.div(x, top))

    u, v = shrunk(a), shrunk(b)
    length = hypot(u, v)
    return lax.complex(put(is_zero(top), 0, lax.div(u, length)), put(is_zero(top), 0, lax.div(v, length)))


def divide(x: Value, y: Value) -> Value:
    return lax.div(x, y)


def power(x: Value, y: Value) -> Value:
    return lax.pow(x, y)


# --- Exponentials and what is made of them ------------------------------------------------------

_AHEAD = 48.0  # e**48 times what exp can reach covers all that a small sine or cosine brings back into range


def _overflows(a: Value) -> Value:
    return lax.gt(a, constant(a, math.log(float(np.finfo(a.dtype).max))))


def _eased(a: Value) -> Pair:
    """a, less where its exponential overflows; and the factor that makes up for it."""
    far = _overflows(a)
    return lax.select(far, shifted(a, -_AHEAD), a), put(far, math.exp(_AHEAD), constant(a, 1))


def _exp(a: Value, b: Value) -> Pair:
    eased, factor = _eased(a)
    size = lax.exp(eased)
    u = lax.mul(lax.mul(size, _trig.cos(b)), factor)
    v = lax.mul(lax.mul(size, _trig.sin(b)), factor)
    lost = _endless(b)
    v = put(is_zero(b), 0, v)
    u = put(both(is_infinite(a), lost), math.inf, u)
    vanished = both(lax.eq(a, constant(a, -math.inf)), lost)
    return put(vanished, 0, u), put(vanished, 0, v)


def _expm1(a: Value, b: Value) -> Pair:
    u, v = _exp(a, b)
    half = _trig.sin(scaled(b, 0.5))
    # exp(a) cos(b) - 1 without the cancellation near 0; where a is not small that has overflowed or become NaN.
    near = lax.sub(lax.mul(lax.expm1(a), _trig.cos(b)), scaled(lax.mul(half, half), 2))
    plain = either(_overflows(a), _endless(a), _endless(b))
    near = put(is_zero(near), 0, near)  # also of -0
    return lax.select(plain, shifted(u, -1), near), v


def _products(a: Value, b: Value) -> tuple[Value, Value, Value, Value]:
    """sinh(a) cos(b), cosh(a) sin(b), cosh(a) cos(b), sinh(a) sin(b) for positive a and b, zero where a factor is."""
    eased, factor = _eased(a)
    s, c = _hyperbolic.sinh(eased), _hyperbolic.cosh(eased)
    sine, cosine = _trig.sin(b), _trig.cos(b)
    flat, level = is_zero(a), is_zero(b)

    def product(x: Value, y: Value) -> Value:
        return lax.mul(lax.mul(x, y), factor)

    return (
        put(flat, 0, product(s, cosine)),
        put(level, 0, product(c, sine)),
        product(c, cosine),
        put(either(flat, level), 0, product(s, sine)),
    )


def _sinh(a: Value, b: Value) -> Pair:
    u, v, _, _ = _products(a, b)
    return put(both(is_infinite(a), _endless(b)), math.inf, u), v


def _cosh(a: Value, b: Value) -> Pair:
    _, _, u, v = _products(a, b)
    return put(both(is_infinite(a), _endless(b)), math.inf, u), v


def _tanh(a: Value, b: Value) -> Pair:
    sine, cosine = _trig.sin(b), _trig.cos(b)
    edge = constant(a, 16 if a.dtype == np.float32 else 40)  # tanh is 1 from here on
    far, within = lax.gt(a, edge), lax.min(a, edge)
    s, c = _hyperbolic.sinh(within), _hyperbolic.cosh(within)
    under = lax.add(lax.mul(s, s), lax.mul(cosine, cosine))
    shrink = lax.exp(lax.neg(a))
    v = lax.mul(sine, cosine)
    v = lax.select(far, scaled(lax.mul(lax.mul(v, shrink), shrink), 4), lax.div(v, under))
    settled = both(far, either(lax.is_finite(b), is_infinite(a)))
    u = put(settled, 1, put(is_zero(a), 0, lax.div(lax.mul(s, c), under)))
    return u, put(either(is_zero(b), is_infinite(a)), 0, v)


exp = _by_parts(_exp)
expm1 = _by_parts(_expm1)
sinh = _by_parts(_sinh, odd=True)
tanh = _by_parts(_tanh, odd=True)
sin = _by_parts(_sinh, odd=True, swap=True)
tan = _by_parts(_tanh, odd=True, swap=True)


def cosh(z: Value) -> Value:
    a, b = _parts(z)
    u, v = _cosh(lax.abs(a), lax.abs(b))
    return lax.complex(u, flip(v, a, b))


def cos(z: Value) -> Value:
    a, b = _parts(z)
    u, v = _cosh(lax.abs(b), lax.abs(a))
    return lax.complex(u, flip(lax.neg(v), a, b))


# --- Logarithms and roots -----------------------------------------------------------------------


def _log_modulus(a: Value, b: Value) -> Value:
    a, b = lax.abs(a), lax.abs(b)
    large, small = lax.max(a, b), lax.min(a, b)
    ratio = lax.div(small, put(is_zero(large), 1, large))
    result = lax.add(lax.log(large), scaled(_hyperbolic.log1p(lax.mul(ratio, ratio)), 0.5))
    # Near the unit circle that would be a small difference of large numbers.
    beyond = lax.add(lax.mul(shifted(large, -1), shifted(large, 1)), lax.mul(small, small))
    near = both(lax.gt(large, constant(large, 0.5)), lax.lt(large, constant(large, 2)))
    result = lax.select(near, scaled(_hyperbolic.log1p(beyond), 0.5), result)
    return put(either(is_infinite(a), is_infinite(b)), math.inf, result)


def _log(a: Value, b: Value) -> Pair:
    return _log_modulus(a, b), _trig.atan2(b, a)


def _log1p(a: Value, b: Value) -> Pair:
    one_more = shifted(a, 1)
    beyond = lax.add(lax.mul(a, shifted(a, 2)), lax.mul(b, b))
    half = constant(a, 0.5)
    near = both(lax.lt(lax.abs(a), half), lax.lt(b, half))
    size = lax.select(near, scaled(_hyperbolic.log1p(beyond), 0.5), _log_modulus(one_more, b))
    return size, _trig.atan2(b, one_more)


def _sqrt(a: Value, b: Value) -> Pair:
    u, v = _parts(lax.sqrt(lax.complex(a, b)))
    right, left = lax.eq(a, constant(a, math.inf)), lax.eq(a, constant(a, -math.inf))
    # Along the real axis the part that vanishes is 0, or NaN where b is.
    rest = lax.mul(b, constant(b, 0))
    u = lax.select(left, rest, put(right, math.inf, u))
    v = lax.select(right, rest, put(left, math.inf, v))
    above = is_infinite(b)
    return put(above, math.inf, u), put(above, math.inf, v)


log = _by_parts(_log)
log1p = _by_parts(_log1p)
sqrt = _by_parts(_sqrt)


# --- Inverse functions --------------------------------------------------------------------------


def _direction(a: Value, b: Value, u: Value, v: Value) -> Pair:
    """u and v, where z is finite; else the modulus and the argument of z, which they approach."""
    endless = either(_endless(a), _endless(b))
    far = either(is_infinite(a), is_infinite(b))
    return lax.select(endless, put(far, math.inf, constant(a, math.nan)), u), lax.select(endless, _trig.atan2(b, a), v)


def _asinh(a: Value, b: Value) -> Pair:
    u, v = _direction(a, b, *_parts(lax.asinh(lax.complex(a, b))))
    return u, put(is_zero(b), 0, v)


def _acos(a: Value, b: Value) -> Pair:
    """The real part of acos, and its imaginary part with the sign changed, so that both are positive."""
    u, v = _parts(lax.acos(lax.complex(a, b)))
    v, u = _direction(a, b, lax.neg(v), u)
    return put(is_zero(a), math.pi / 2, u), v


def _atanh(a: Value, b: Value) -> Pair:
    u, v = _parts(lax.atanh(lax.complex(a, b)))
    far, lost = either(is_infinite(a), is_infinite(b)), is_nan(b)
    undefined = either(is_nan(a), lost)
    u = put(either(far, is_zero(a)), 0, put(undefined, math.nan, u))
    return u, put(both(far, lax.bitwise_not(lost)), math.pi / 2, put(undefined, math.nan, v))


asinh = _by_parts(_asinh, odd=True)
atanh = _by_parts(_atanh, odd=True)
asin = _by_parts(_asinh, odd=True, swap=True)
atan = _by_parts(_atanh, odd=True, swap=True)


def acos(z: Value) -> Value:
    a, b = _parts(z)
    u, v = _acos(lax.abs(a), lax.abs(b))
    # acos(-z) = pi - acos(z)
    mirrored = lax.lt(with_sign(constant(a, 1), a), constant(a, 0))
    return lax.complex(lax.select(mirrored, lax.sub(constant(u, math.pi), u), u), flip(lax.neg(v), b))


def acosh(z: Value) -> Value:
    a, b = _parts(z)
    w = acos(lax.complex(a, lax.abs(b)))
    return lax.complex(lax.abs(lax.imag(w)), flip(lax.real(w), b))
