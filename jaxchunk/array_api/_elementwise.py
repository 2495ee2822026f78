"""The elementwise functions, as a table: each entry is a row, registered, and its public function.

An entry reads: name, dtypes taken, rule of the result's dtype, body, summary, an example and its value.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

from jaxchunk.array_api import _bodies as bodies
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._row import Binary, Clip, Row, Rule, Unary, boolean, make_function, same

_rows: dict[str, Row] = {}
ELEMENTWISE = MappingProxyType(_rows)


def _define(
    nin: int, name: str, kinds: str, result: Rule, body: Any, summary: str, call: str, value: str, **more: Any
) -> Any:
    _rows[name] = Row(name, kinds, result, body, nin, summary, (call, value), **more)
    return make_function(_rows[name])


def _unary(*entry: Any, **more: Any) -> Unary:
    return cast(Unary, _define(1, *entry, **more))


def _binary(*entry: Any, **more: Any) -> Binary:
    return cast(Binary, _define(2, *entry, **more))


def _clip(*entry: Any, **more: Any) -> Clip:
    return cast(Clip, _define(3, *entry, **more))


def _not_negative(row: Row, operands: tuple[Any, ...], dtype: dt.DType) -> None:
    amount = operands[1]
    if dtype.kind in "iu" and isinstance(amount, int) and amount < 0:
        hint = "; use astype to a floating dtype first" if row.name == "pow" else ""
        raise ValueError(f"{row.name} of integers needs a second operand of at least 0, got {amount}{hint}")


def _keeps_dtype(row: Row, operands: tuple[Any, ...], dtype: dt.DType) -> None:
    own = dt.dtype_of(operands[0])
    if dtype != own:
        raise TypeError(f"{row.name}: the bounds would turn {own} into {dtype}; convert x or the bounds with astype")


# One line an entry as far as it goes: the table is read down its columns, which the formatter would undo.
# fmt: off

# --- Arithmetic ---------------------------------------------------------------------------------

abs = _unary("abs", "numeric", dt.real_of, bodies.absolute, "The absolute value of each element.",
    "xp.abs(xp.asarray([-1.5, 2.0, -0.0]))", "array([1.5, 2. , 0. ])",
    notes="Of complex numbers the modulus. The smallest signed integer has none and stays as it is.")
add = _binary("add", "numeric", same, bodies.add, "The sum of two operands, element by element.",
    "xp.add(xp.asarray([1, 2]), 3)", "array([4, 5])", notes="Integers wrap around on overflow.")
clip = _clip("clip", "real numeric", same, bodies.clip, "Each element, or the bound that it lies beyond.",
    "xp.clip(xp.asarray([1, 5, 9]), 2, 6)", "array([2, 5, 6])", check=_keeps_dtype, flops=2,
    notes="NaN in an element or in one of its bounds gives NaN. Where min > max the result is min.")
divide = _binary("divide", "floating", same, bodies.divide, "The quotient of two operands, element by element.",
    "xp.divide(xp.asarray([1.0, 3.0]), 2)", "array([0.5, 1.5])", flops=2)
floor_divide = _binary("floor_divide", "real numeric", same, bodies.floor_divide,
    "The quotient rounded down to an integer, element by element.",
    "xp.floor_divide(xp.asarray([7, -7]), 2)", "array([ 3, -4])", literal=True, flops=8, arrays=2,
    notes="An integer divided by zero gives 0. Where an operand is infinite or the divisor zero the result is that of\n"
          "`divide`, not rounded.")
multiply = _binary("multiply", "numeric", same, bodies.multiply, "The product of two operands, element by element.",
    "xp.multiply(xp.asarray([1.5, 2.0]), 2)", "array([3., 4.])", notes="Integers wrap around on overflow.")
negative = _unary("negative", "numeric", same, bodies.negative, "Each element with the other sign.",
    "xp.negative(xp.asarray([1, -2]))", "array([-1,  2])", notes="Unsigned integers wrap around.")
positive = _unary("positive", "numeric", same, bodies.identity, "Each element as it is.",
    "xp.positive(xp.asarray([1, -2]))", "array([ 1, -2])", flops=0)
pow = _binary("pow", "numeric", same, bodies.power,
    "The first operand to the power of the second, element by element.",
    "xp.pow(xp.asarray([1.0, 2.0, 3.0]), 2)", "array([1., 4., 9.])",
    literal=True, flops=20, arrays=6, check=_not_negative,
    notes="An integer to a negative power is 0, or for 1 and -1 their reciprocal. A negative Python scalar as the\n"
          "power of integers raises ValueError.")
reciprocal = _unary("reciprocal", "floating", same, bodies.reciprocal, "One divided by each element.",
    "xp.reciprocal(xp.asarray([2.0, 4.0]))", "array([0.5 , 0.25])", flops=2)
remainder = _binary("remainder", "real numeric", same, bodies.remainder,
    "What floored division leaves, with the sign of the divisor, element by element.",
    "xp.remainder(xp.asarray([7, -7]), 3)", "array([1, 2])", literal=True, flops=8, arrays=2,
    notes="Of an integer and zero it is 0; of floating numbers, NaN.")
sign = _unary("sign", "numeric", same, bodies.sign, "-1, 0 or 1 by the sign of each element.",
    "xp.sign(xp.asarray([-3.5, 0.0, 2.0]))", "array([-1.,  0.,  1.])",
    notes="Of a complex number: the number divided by its modulus. NaN gives NaN.")
square = _unary("square", "numeric", same, bodies.square, "Each element times itself.",
    "xp.square(xp.asarray([3, -4]))", "array([ 9, 16])")
subtract = _binary("subtract", "numeric", same, bodies.subtract, "The difference of two operands, element by element.",
    "xp.subtract(xp.asarray([4, 2]), 3)", "array([ 1, -1])", notes="Integers wrap around on overflow.")

# --- Rounding and parts -------------------------------------------------------------------------

ceil = _unary("ceil", "real numeric", same, bodies.ceil, "Each element rounded up to an integer.",
    "xp.ceil(xp.asarray([1.2, -1.2]))", "array([ 2., -1.])")
conj = _unary("conj", "numeric", same, bodies.conj, "The complex conjugate of each element.",
    "xp.conj(xp.asarray([1 + 2j, 3.0]))", "array([1.-2.j, 3.-0.j])")
floor = _unary("floor", "real numeric", same, bodies.floor, "Each element rounded down to an integer.",
    "xp.floor(xp.asarray([1.2, -1.2]))", "array([ 1., -2.])")
imag = _unary("imag", "complex floating", dt.real_of, bodies.imag, "The imaginary part of each element.",
    "xp.imag(xp.asarray([1 + 2j, 3.0]))", "array([2., 0.])", flops=0)
real = _unary("real", "numeric", dt.real_of, bodies.real, "The real part of each element.",
    "xp.real(xp.asarray([1 + 2j, 3.0]))", "array([1., 3.])", flops=0)
round = _unary("round", "numeric", same, bodies.round_half_even, "Each element rounded to the nearest integer.",
    "xp.round(xp.asarray([0.5, 1.5, -1.2]))", "array([ 0.,  2., -1.])",
    notes="Halves go to the even neighbour. The parts of a complex number are rounded on their own.")
trunc = _unary("trunc", "real numeric", same, bodies.trunc, "Each element rounded towards zero to an integer.",
    "xp.trunc(xp.asarray([1.8, -1.8]))", "array([ 1., -1.])", flops=2)

# --- Signs and neighbours -----------------------------------------------------------------------

copysign = _binary("copysign", "real floating", same, bodies.copysign,
    "The magnitude of the first operand with the sign of the second, element by element.",
    "xp.copysign(xp.asarray([1.0, -2.0]), -1.0)", "array([-1., -2.])", flops=3,
    notes="The signs of zeros and of NaN count.")
nextafter = _binary("nextafter", "real floating", same, bodies.nextafter,
    "The next number after the first operand on the way to the second, element by element.",
    "xp.equal(xp.nextafter(xp.asarray([1.0]), 2.0), 1.0 + 2.0**-52)", "array([ True])", flops=8)
signbit = _unary("signbit", "real floating", boolean, bodies.signbit, "Whether the sign bit of each element is set.",
    "xp.signbit(xp.asarray([-0.0, 1.0]))", "array([ True, False])", notes="The signs of zeros and of NaN count.")

# --- Bits and truth values ----------------------------------------------------------------------

bitwise_and = _binary("bitwise_and", "integer or bool", same, bodies.bitwise_and,
    "The bits set in both operands, element by element.", "xp.bitwise_and(xp.asarray([6, 5]), 3)", "array([2, 1])")
bitwise_invert = _unary("bitwise_invert", "integer or bool", same, bodies.bitwise_invert,
    "Each element with all its bits turned over.", "xp.bitwise_invert(xp.asarray([0, 5]))", "array([-1, -6])")
bitwise_left_shift = _binary("bitwise_left_shift", "integer", same, bodies.left_shift,
    "The first operand's bits moved left by the second, element by element.",
    "xp.bitwise_left_shift(xp.asarray([1, 3]), 2)", "array([ 4, 12])", literal=True, check=_not_negative,
    notes="A shift by the width or more gives 0. Negative shifts have no meaning: Python scalars raise ValueError, in\n"
          "arrays they count as more than the width.")
bitwise_or = _binary("bitwise_or", "integer or bool", same, bodies.bitwise_or,
    "The bits set in one or both operands, element by element.",
    "xp.bitwise_or(xp.asarray([6, 5]), 3)", "array([7, 7])")
bitwise_right_shift = _binary("bitwise_right_shift", "integer", same, bodies.right_shift,
    "The first operand's bits moved right by the second, element by element; the sign is kept.",
    "xp.bitwise_right_shift(xp.asarray([9, -9]), 2)", "array([ 2, -3])", literal=True, check=_not_negative,
    notes="A shift by the width or more gives 0, or -1 for negative numbers. Negative shifts have no meaning: Python\n"
          "scalars raise ValueError, in arrays they count as more than the width.")
bitwise_xor = _binary("bitwise_xor", "integer or bool", same, bodies.bitwise_xor,
    "The bits set in one operand only, element by element.", "xp.bitwise_xor(xp.asarray([6, 5]), 3)", "array([5, 6])")
logical_and = _binary("logical_and", "bool", boolean, bodies.bitwise_and,
    "Whether both operands are true, element by element.",
    "xp.logical_and(xp.asarray([True, False]), True)", "array([ True, False])")
logical_not = _unary("logical_not", "bool", boolean, bodies.bitwise_invert, "Whether each element is false.",
    "xp.logical_not(xp.asarray([True, False]))", "array([False,  True])")
logical_or = _binary("logical_or", "bool", boolean, bodies.bitwise_or,
    "Whether one or both operands are true, element by element.",
    "xp.logical_or(xp.asarray([True, False]), False)", "array([ True, False])")
logical_xor = _binary("logical_xor", "bool", boolean, bodies.bitwise_xor,
    "Whether one operand only is true, element by element.",
    "xp.logical_xor(xp.asarray([True, False]), True)", "array([False,  True])")

# --- Comparison ---------------------------------------------------------------------------------

equal = _binary("equal", "any", boolean, bodies.equal, "Whether two operands are equal, element by element.",
    "xp.equal(xp.asarray([1, 2]), 2)", "array([False,  True])")
greater = _binary("greater", "real numeric", boolean, bodies.greater,
    "Whether the first operand is greater, element by element.",
    "xp.greater(xp.asarray([1, 3]), 2)", "array([False,  True])")
greater_equal = _binary("greater_equal", "real numeric", boolean, bodies.greater_equal,
    "Whether the first operand is greater or equal, element by element.",
    "xp.greater_equal(xp.asarray([1, 2]), 2)", "array([False,  True])")
isfinite = _unary("isfinite", "numeric", boolean, bodies.isfinite, "Whether each element is neither infinite nor NaN.",
    "xp.isfinite(xp.asarray([1.0, xp.inf, xp.nan]))", "array([ True, False, False])")
isinf = _unary("isinf", "numeric", boolean, bodies.isinf, "Whether each element, or a part of it, is infinite.",
    "xp.isinf(xp.asarray([1.0, xp.inf, xp.nan]))", "array([False,  True, False])")
isnan = _unary("isnan", "numeric", boolean, bodies.isnan, "Whether each element, or a part of it, is NaN.",
    "xp.isnan(xp.asarray([1.0, xp.inf, xp.nan]))", "array([False, False,  True])")
less = _binary("less", "real numeric", boolean, bodies.less,
    "Whether the first operand is less, element by element.",
    "xp.less(xp.asarray([1, 3]), 2)", "array([ True, False])")
less_equal = _binary("less_equal", "real numeric", boolean, bodies.less_equal,
    "Whether the first operand is less or equal, element by element.",
    "xp.less_equal(xp.asarray([2, 3]), 2)", "array([ True, False])")
maximum = _binary("maximum", "real numeric", same, bodies.maximum, "The greater of two operands, element by element.",
    "xp.maximum(xp.asarray([1, 3]), 2)", "array([2, 3])", notes="NaN in one of them gives NaN.")
minimum = _binary("minimum", "real numeric", same, bodies.minimum, "The lesser of two operands, element by element.",
    "xp.minimum(xp.asarray([1, 3]), 2)", "array([1, 2])", notes="NaN in one of them gives NaN.")
not_equal = _binary("not_equal", "any", boolean, bodies.not_equal, "Whether two operands differ, element by element.",
    "xp.not_equal(xp.asarray([1, 2]), 2)", "array([ True, False])")

# --- Exponentials, logarithms, roots ------------------------------------------------------------

exp = _unary("exp", "floating", same, bodies.exp, "The exponential of each element.",
    "xp.exp(xp.asarray([0.0, 1.0]))", "array([1.        , 2.71828183])", flops=10, arrays=2)
expm1 = _unary("expm1", "floating", same, bodies.expm1, "The exponential of each element less one, exact near zero.",
    "xp.expm1(xp.asarray([0.0, 1e-12]))", "array([0.e+00, 1.e-12])", flops=14, arrays=3)
hypot = _binary("hypot", "real floating", same, bodies.hypot,
    "The root of the sum of both operands' squares, without overflow on the way, element by element.",
    "xp.hypot(xp.asarray([3.0, 6.0]), xp.asarray([4.0, 8.0]))", "array([ 5., 10.])", flops=12)
log = _unary("log", "floating", same, bodies.log, "The natural logarithm of each element.",
    "xp.log(xp.asarray([1.0, xp.e]))", "array([0., 1.])", flops=10)
log10 = _unary("log10", "floating", same, bodies.log10, "The logarithm to base 10 of each element.",
    "xp.log10(xp.asarray([1.0, 1000.0]))", "array([0., 3.])", flops=12)
log1p = _unary("log1p", "floating", same, bodies.log1p, "The logarithm of one plus each element, exact near zero.",
    "xp.log1p(xp.asarray([0.0, 1e-12]))", "array([0.e+00, 1.e-12])", flops=14)
log2 = _unary("log2", "floating", same, bodies.log2, "The logarithm to base 2 of each element.",
    "xp.log2(xp.asarray([1.0, 8.0]))", "array([0., 3.])", flops=12)
logaddexp = _binary("logaddexp", "real floating", same, bodies.logaddexp,
    "The logarithm of the sum of both operands' exponentials, without overflow on the way, element by element.",
    "xp.logaddexp(xp.asarray([0.0, 1000.0]), 0.0)", "array([6.93147181e-01, 1.00000000e+03])", flops=28)
sqrt = _unary("sqrt", "floating", same, bodies.sqrt, "The square root of each element.",
    "xp.sqrt(xp.asarray([4.0, 9.0]))", "array([2., 3.])", flops=4, arrays=2,
    notes="Of a complex number the root in the right half-plane. A negative real number gives NaN.")

# --- Circular and hyperbolic functions ----------------------------------------------------------

acos = _unary("acos", "floating", same, bodies.acos, "The arc cosine of each element, in radians.",
    "xp.acos(xp.asarray([1.0, -1.0]))", "array([0.        , 3.14159265])", flops=14, arrays=5)
acosh = _unary("acosh", "floating", same, bodies.acosh, "The inverse hyperbolic cosine of each element.",
    "xp.acosh(xp.asarray([1.0, 2.0]))", "array([0.       , 1.3169579])", flops=20, arrays=5)
asin = _unary("asin", "floating", same, bodies.asin, "The arc sine of each element, in radians.",
    "xp.asin(xp.asarray([0.0, 1.0]))", "array([0.        , 1.57079633])", flops=14, arrays=5)
asinh = _unary("asinh", "floating", same, bodies.asinh, "The inverse hyperbolic sine of each element.",
    "xp.asinh(xp.asarray([0.0, 1.0]))", "array([0.        , 0.88137359])", flops=20, arrays=5)
atan = _unary("atan", "floating", same, bodies.atan, "The arc tangent of each element, in radians.",
    "xp.atan(xp.asarray([0.0, 1.0]))", "array([0.        , 0.78539816])", flops=14, arrays=3)
atan2 = _binary("atan2", "real floating", same, bodies.atan2,
    "The angle of the point with the first operand as y and the second as x, in radians, element by element.",
    "xp.atan2(xp.asarray([1.0, -1.0]), xp.asarray([1.0, -1.0]))", "array([ 0.78539816, -2.35619449])", flops=20,
    arrays=2)
atanh = _unary("atanh", "floating", same, bodies.atanh, "The inverse hyperbolic tangent of each element.",
    "xp.atanh(xp.asarray([0.0, 0.5]))", "array([0.        , 0.54930614])", flops=20)
cos = _unary("cos", "floating", same, bodies.cos, "The cosine of each element, in radians.",
    "xp.cos(xp.asarray([0.0, xp.pi]))", "array([ 1., -1.])", flops=16, arrays=3)
cosh = _unary("cosh", "floating", same, bodies.cosh, "The hyperbolic cosine of each element.",
    "xp.cosh(xp.asarray([0.0, 1.0]))", "array([1.        , 1.54308063])", flops=20, arrays=2)
sin = _unary("sin", "floating", same, bodies.sin, "The sine of each element, in radians.",
    "xp.sin(xp.asarray([0.0, xp.pi / 2]))", "array([0., 1.])", flops=16, arrays=3)
sinh = _unary("sinh", "floating", same, bodies.sinh, "The hyperbolic sine of each element.",
    "xp.sinh(xp.asarray([0.0, 1.0]))", "array([0.        , 1.17520119])", flops=20, arrays=2)
tan = _unary("tan", "floating", same, bodies.tan, "The tangent of each element, in radians.",
    "xp.tan(xp.asarray([0.0, xp.pi / 4]))", "array([0., 1.])", flops=20, arrays=3)
tanh = _unary("tanh", "floating", same, bodies.tanh, "The hyperbolic tangent of each element.",
    "xp.tanh(xp.asarray([0.0, 1.0]))", "array([0.        , 0.76159416])", flops=12, arrays=2)
# fmt: on

# --- Operators ----------------------------------------------------------------------------------

# The rows of the arrays' special methods; the reflected and in-place ones are those of the plain ones.
OPERATORS = MappingProxyType(
    {
        "__abs__": _rows["abs"],
        "__add__": _rows["add"],
        "__and__": _rows["bitwise_and"],
        "__eq__": _rows["equal"],
        "__floordiv__": _rows["floor_divide"],
        "__ge__": _rows["greater_equal"],
        "__gt__": _rows["greater"],
        "__invert__": _rows["bitwise_invert"],
        "__le__": _rows["less_equal"],
        "__lshift__": _rows["bitwise_left_shift"],
        "__lt__": _rows["less"],
        "__mod__": _rows["remainder"],
        "__mul__": _rows["multiply"],
        "__ne__": _rows["not_equal"],
        "__neg__": _rows["negative"],
        "__or__": _rows["bitwise_or"],
        "__pos__": _rows["positive"],
        "__pow__": _rows["pow"],
        "__rshift__": _rows["bitwise_right_shift"],
        "__sub__": _rows["subtract"],
        "__truediv__": _rows["divide"],
        "__xor__": _rows["bitwise_xor"],
    }
)
