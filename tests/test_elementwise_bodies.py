"""The elementwise functions' bodies against NumPy and the standard's special cases, and their rows' rules."""

import doctest
import inspect
import itertools
import types
import zlib

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _elementwise as table
from jaxchunk.array_api._elementwise import ELEMENTWISE, OPERATORS
from jaxchunk.array_api._row import TAKES

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
# Where NumPy has another name.
NUMPY = {
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "pow": "power",
}


def reference(name):
    return getattr(np, NUMPY.get(name, name))


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"), jax.enable_x64(True):
        yield


def run(name, *operands):
    """The compiled body on NumPy operands of one dtype; NumPy scalars are literals."""
    row = ELEMENTWISE[name]
    traced = [i for i, x in enumerate(operands) if not isinstance(x, np.generic)]

    def body(*arrays):
        values = list(operands)
        for i, x in zip(traced, arrays, strict=True):
            values[i] = x
        return row.body(*values)

    out = np.asarray(jax.jit(body)(*(operands[i] for i in traced)))
    assert out.dtype == row.result(operands[0].dtype)
    return out


def same(x, y):
    """Equal, signs of zeros included; any NaN equals any other."""
    return (np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y)))


def ulps(x, exact, dtype):
    """The distance in units of the last place of the exact values, which have more digits than x."""
    info = np.finfo(dtype)
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), info.tiny)))
    return np.abs(x.astype(exact.dtype) - exact) / (2.0**exponent * info.eps)


def generator(*seed):
    return np.random.default_rng(zlib.crc32(repr(seed).encode()))


def reals(dtype, n=4000):
    """Values all over the range: by magnitude, around 0, around 1, and of some hundreds."""
    rng, info = generator("reals"), np.finfo(dtype)
    magnitudes = np.exp(rng.uniform(np.log(info.tiny) + 1, np.log(info.max) - 1, n))
    parts = [magnitudes * rng.choice([-1, 1], n), rng.normal(size=n) * 3, 1 + rng.normal(size=n) / 100]
    return np.concatenate([*parts, rng.uniform(-1, 1, n), rng.uniform(-700, 700, n)]).astype(dtype)


def specials(dtype):
    big = np.finfo(dtype).max / 4
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 2.5, -2.5, 3.0, -3.0, 1e-30, -1e-30, 1e30, -1e30, big, -big]
    return np.array([*values, np.inf, -np.inf, np.nan], dtype)


def pairs(values):
    return [x.ravel() for x in np.meshgrid(values, values, indexing="ij")]


# --- Real functions -----------------------------------------------------------------------------

# The largest error in units of the last place.
UNARY = {
    "abs": 0, "acos": 4, "acosh": 4, "asin": 4, "asinh": 4, "atan": 3, "atanh": 6, "ceil": 0, "cos": 3, "cosh": 4,
    "exp": 4, "expm1": 5, "floor": 0, "log": 2, "log10": 4, "log1p": 4, "log2": 3, "negative": 0, "positive": 0,
    "reciprocal": 0.5, "round": 0, "sign": 0, "sin": 3, "sinh": 4, "sqrt": 0.5, "square": 0.5, "tan": 5, "tanh": 8,
    "trunc": 0,
}  # fmt: skip
BINARY = {"add": 0.5, "atan2": 4, "copysign": 0, "divide": 0.5, "hypot": 2, "multiply": 0.5, "pow": 2, "subtract": 0.5}


def check_against_exact(name, limit, dtype, *operands):
    out = run(name, *operands)
    exact = reference(name)(*(x.astype(np.longdouble) for x in operands))
    info = np.finfo(dtype)
    size = np.abs(exact)
    normal = (size >= info.tiny) & (size <= info.max)
    # Between the largest number and infinity, and below the smallest normal one, either neighbour will do.
    assert np.all(np.abs(out[size < info.tiny]) <= info.tiny)
    assert np.all(np.isnan(out) == np.isnan(exact))
    worst = ulps(out[normal], exact[normal], dtype).max(initial=0)
    assert worst <= limit + (0 if np.finfo(np.longdouble).nmant > 60 else 1) + 1e-3


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_real_functions_of_one_operand(name, dtype):
    check_against_exact(name, UNARY[name], dtype, reals(dtype))
    x = specials(dtype)
    expected = reference(name)(x)
    assert np.all(same(run(name, x), expected) | np.isclose(run(name, x), expected, rtol=1e-6, atol=0))
    edges = np.isin(np.abs(x), [0, 1, np.inf]) | np.isnan(x)
    exact = np.isin(np.abs(expected), [0, 1, np.inf]) | np.isnan(expected)
    assert np.all(same(run(name, x), expected)[edges & exact])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_real_functions_of_two_operands(name, dtype):
    x = reals(dtype)
    check_against_exact(name, BINARY[name], dtype, x, generator(name).permutation(x))
    x, y = pairs(specials(dtype))
    out, expected = run(name, x, y), reference(name)(x, y)
    # Subnormal results are flushed.
    flushed = (np.abs(expected) < np.finfo(dtype).tiny) & (out == 0)
    assert np.all(same(out, expected) | np.isclose(out, expected, rtol=1e-6, atol=0) | flushed)
    exact = np.isin(np.abs(expected), [0, 1, np.inf])
    assert np.all((np.signbit(out) == np.signbit(expected))[exact])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_real_comparisons(name, dtype):
    x, y = pairs(specials(dtype))
    assert np.array_equal(run(name, x, y), reference(name)(x, y), equal_nan=name in ("maximum", "minimum"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floored_division(dtype):
    rng = generator("floored")
    x = np.concatenate([rng.normal(size=4000) * 100, rng.integers(-50, 50, 4000)]).astype(dtype)
    y = np.concatenate([rng.normal(size=4000), rng.integers(-7, 7, 4000)]).astype(dtype)
    for x, y in [(x, y), pairs(specials(dtype)[:-7])]:
        usual = np.isfinite(x / y)
        assert np.all(same(run("floor_divide", x, y), np.where(usual, np.floor_divide(x, y), x / y)))
        assert np.all(same(run("remainder", x, y), np.remainder(x, y)))
    x, y = pairs(specials(dtype)[[0, 1, 2, 3, 4, 5, -3, -2, -1]])
    endless = ~(np.isfinite(x) & np.isfinite(y))
    # Of infinities, and by them, the quotient itself: NumPy has NaN and -1 there.
    assert np.all(same(run("floor_divide", x, y), np.where(endless | (y == 0), x / y, np.floor_divide(x, y))))
    assert np.all(same(run("remainder", x, y), np.remainder(x, y)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_logaddexp(dtype):
    rng = generator("logaddexp")
    x, y = (rng.normal(size=(2, 5000)) * np.array([[1], [30]])).astype(dtype)
    exact = np.logaddexp(x.astype(np.longdouble), y.astype(np.longdouble))
    scale = np.maximum(np.maximum(np.abs(x), np.abs(y)), 1)  # where the sum nearly vanishes, so do its digits
    assert np.all(np.abs(run("logaddexp", x, y) - exact) <= 3 * np.finfo(dtype).eps * scale)
    x, y = pairs(specials(dtype))
    assert np.allclose(run("logaddexp", x, y), np.logaddexp(x, y), rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nextafter_and_signs(dtype):
    normal = [x for x in specials(dtype) if x != 0]  # next to zero are subnormal numbers
    x, y = pairs(np.array(normal, dtype))
    assert np.all(same(run("nextafter", x, y), np.nextafter(x, y)))
    zeros, others = pairs(np.array([0.0, -0.0], dtype))
    assert np.all(same(run("nextafter", zeros, others), others))
    x = np.concatenate([specials(dtype), -specials(dtype)])
    assert np.array_equal(run("signbit", x), np.signbit(x))
    x, y = pairs(x)
    assert np.array_equal(np.signbit(run("copysign", x, y)), np.signbit(y))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["isfinite", "isinf", "isnan"])
def test_tests(name, dtype):
    x = specials(dtype)
    assert np.array_equal(run(name, x), reference(name)(x))
    a, b = pairs(x)
    z = complex_of(a, b)
    assert np.array_equal(run(name, z), reference(name)(z))
    for integer in INTEGERS:
        assert np.array_equal(run(name, np.arange(3).astype(integer)), np.full(3, name == "isfinite"))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_angles_large_and_near_a_quarter_turn(name, dtype):
    rng = generator("angles")
    quarters = rng.integers(-(10**6), 10**6, 20000) * (np.pi / 2)
    far = rng.uniform(-(2.0**26), 2.0**26, 20000)
    check_against_exact(name, 6, dtype, np.concatenate([quarters, far]).astype(dtype))
    beyond = np.exp(rng.uniform(0, 80, 20000)) * rng.choice([-1, 1], 20000)
    check_against_exact(name, 6, dtype, beyond.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_logarithms_of_their_bases_powers(dtype):
    n = np.arange(-30, 31)
    assert np.allclose(run("log2", np.exp2(n).astype(dtype)), n, rtol=2 * np.finfo(dtype).eps, atol=0)
    n = np.arange(-20, 21)
    assert np.allclose(run("log10", (10.0**n).astype(dtype)), n, rtol=4 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_clip(dtype):
    x, low, high = (a.ravel() for a in np.meshgrid(specials(dtype), specials(dtype)[::3], specials(dtype)[::2]))
    assert np.array_equal(run("clip", x, low, high), np.maximum(np.minimum(x, high), low), equal_nan=True)


# --- Integers and truth values ------------------------------------------------------------------


def integers(dtype):
    info = np.iinfo(dtype)
    rng = generator("integers")
    edges = [info.min, info.min + 1, -7, -3, -2, -1, 0, 1, 2, 3, 5, 8, 31, 63, 64, info.max // 2, info.max - 1, info.max]
    spread = rng.integers(info.min, info.max, 20, dtype=dtype, endpoint=True)
    return np.concatenate([np.array([v for v in edges if info.min <= v <= info.max], dtype), spread])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_functions(dtype):
    x = integers(dtype)
    for name in ("abs", "bitwise_invert", "ceil", "conj", "floor", "negative", "positive", "real", "round", "sign", "square", "trunc"):
        expected = x if name in ("ceil", "floor", "round", "trunc") else reference(name)(x)
        assert np.array_equal(run(name, x), expected), name
    x, y = pairs(x)
    arithmetic = ["add", "floor_divide", "maximum", "minimum", "multiply", "remainder", "subtract"]
    comparisons = ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"]
    for name in [*arithmetic, *comparisons, "bitwise_and", "bitwise_or", "bitwise_xor"]:
        assert np.array_equal(run(name, x, y), reference(name)(x, y)), name
    assert np.array_equal(run("clip", x, y, y + y), np.maximum(np.minimum(x, y + y), y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_past_the_width(dtype):
    bits = np.iinfo(dtype).bits
    x, by = (a.ravel() for a in np.meshgrid(integers(dtype), np.arange(min(2 * bits, 127)).astype(dtype)))
    inside = by < bits
    by_inside = np.where(inside, by, 0)
    left = np.where(inside, np.left_shift(x, by_inside), 0)
    right = np.where(inside, np.right_shift(x, by_inside), np.where(x < 0, -1, 0).astype(dtype))
    assert np.array_equal(run("bitwise_left_shift", x, by), left)
    assert np.array_equal(run("bitwise_right_shift", x, by), right)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers(dtype):
    x, y = pairs(integers(dtype))
    whole = y >= 0
    modulus = 1 << np.iinfo(dtype).bits
    expected = [pow(int(a), int(b), modulus) if b >= 0 else 0 for a, b in zip(x, y, strict=True)]
    expected = np.array([v - modulus if v > np.iinfo(dtype).max else v for v in expected], dtype)
    out = run("pow", x, y)
    assert np.array_equal(out[whole], expected[whole])
    reciprocal = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    assert np.array_equal(out[~whole], reciprocal[~whole])


def test_truth_values():
    x, y = pairs(np.array([False, True]))
    for name in ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "not_equal"):
        assert np.array_equal(run(name, x, y), reference(name)(x, y)), name
    for name in ("logical_not", "bitwise_invert"):
        assert np.array_equal(run(name, x), ~x)


# --- Complex functions --------------------------------------------------------------------------


def complex_of(a, b):
    z = np.empty(np.shape(a), np.result_type(a.dtype, np.complex64))
    z.real, z.imag = a, b
    return z


# Of a + bi with b not negative: "a b: real imaginary". F is any finite number, P a positive one, N one that isn't
# zero, X not NaN; ? leaves a sign open. The other half plane has the conjugates.
SPECIAL = {
    "abs": ["inf *: inf 0", "-inf *: inf 0", "* inf: inf 0", "nan F: nan 0", "F nan: nan 0", "nan nan: nan 0"],
    "acos": [
        "0 0: pi/2 -0", "-0 0: pi/2 -0", "0 nan: pi/2 nan", "-0 nan: pi/2 nan", "F inf: pi/2 -inf", "N nan: nan nan",
        "-inf P: pi -inf", "inf P: 0 -inf", "-inf inf: 3pi/4 -inf", "inf inf: pi/4 -inf", "inf nan: nan inf?",
        "-inf nan: nan inf?", "nan F: nan nan", "nan inf: nan -inf", "nan nan: nan nan",
    ],
    "acosh": [
        "0 0: 0 pi/2", "-0 0: 0 pi/2", "F inf: inf pi/2", "N nan: nan nan", "0 nan: nan pi/2?", "-inf P: inf pi",
        "inf P: inf 0", "-inf inf: inf 3pi/4", "inf inf: inf pi/4", "inf nan: inf nan", "-inf nan: inf nan",
        "nan F: nan nan", "nan inf: inf nan", "nan nan: nan nan",
    ],
    "asinh": [
        "0 0: 0 0", "P inf: inf pi/2", "F nan: nan nan", "inf P: inf 0", "inf inf: inf pi/4", "inf nan: inf nan",
        "nan 0: nan 0", "nan P: nan nan", "nan inf: inf? nan", "nan nan: nan nan",
    ],
    "atanh": [
        "0 0: 0 0", "0 nan: 0 nan", "1 0: inf 0", "P inf: 0 pi/2", "N nan: nan nan", "inf P: 0 pi/2", "inf inf: 0 pi/2",
        "inf nan: 0 nan", "nan F: nan nan", "nan inf: 0? pi/2", "nan nan: nan nan",
    ],
    "cosh": [
        "0 0: 1 0", "0 inf: nan 0?", "0 nan: nan 0?", "N inf: nan nan", "N nan: nan nan", "inf 0: inf 0",
        "inf 1: inf inf", "inf inf: inf? nan", "inf nan: inf nan", "nan 0: nan 0?", "nan P: nan nan", "nan nan: nan nan",
    ],
    "exp": [
        "0 0: 1 0", "-0 0: 1 0", "F inf: nan nan", "F nan: nan nan", "inf 0: inf 0", "-inf 0: 0 0", "-inf 1: 0 0",
        "inf 1: inf inf", "-inf inf: 0? 0?", "inf inf: inf? nan", "-inf nan: 0? 0?", "inf nan: inf? nan", "nan 0: nan 0",
        "nan P: nan nan", "nan inf: nan nan", "nan nan: nan nan",
    ],
    "expm1": [
        "0 0: 0 0", "-0 0: 0? 0", "F inf: nan nan", "F nan: nan nan", "inf 0: inf 0", "-inf 0: -1 0", "-inf 1: -1 0",
        "inf 1: inf inf", "-inf inf: -1 0?", "inf inf: inf? nan", "-inf nan: -1 0?", "inf nan: inf? nan",
        "nan 0: nan 0", "nan P: nan nan", "nan inf: nan nan", "nan nan: nan nan",
    ],
    "log": [
        "-0 0: -inf pi", "0 0: -inf 0", "F inf: inf pi/2", "F nan: nan nan", "-inf P: inf pi", "inf P: inf 0",
        "-inf inf: inf 3pi/4", "inf inf: inf pi/4", "inf nan: inf nan", "-inf nan: inf nan", "nan F: nan nan",
        "nan inf: inf nan", "nan nan: nan nan",
    ],
    "log1p": [
        "-1 0: -inf 0", "F inf: inf pi/2", "F nan: nan nan", "-inf P: inf pi", "inf P: inf 0", "-inf inf: inf 3pi/4",
        "inf inf: inf pi/4", "inf nan: inf nan", "-inf nan: inf nan", "nan F: nan nan", "nan inf: inf nan",
        "nan nan: nan nan",
    ],
    "sign": ["0 0: 0 0", "-0 0: 0? 0", "nan *: nan nan", "* nan: nan nan"],
    "sinh": [
        "0 0: 0 0", "0 inf: 0? nan", "0 nan: 0? nan", "P inf: nan nan", "P nan: nan nan", "inf 0: inf 0",
        "inf 1: inf inf", "inf inf: inf? nan", "inf nan: inf? nan", "nan 0: nan 0", "nan P: nan nan", "nan nan: nan nan",
    ],
    "sqrt": [
        "0 0: 0 0", "-0 0: 0 0", "* inf: inf inf", "F nan: nan nan", "-inf P: 0 inf", "inf P: inf 0", "-inf nan: nan inf?",
        "inf nan: inf nan", "nan F: nan nan", "nan nan: nan nan",
    ],
    "tanh": [
        "0 0: 0 0", "N inf: nan nan", "0 inf: 0 nan", "N nan: nan nan", "0 nan: 0 nan", "inf P: 1 0", "inf inf: 1 0?",
        "inf nan: 1 0?", "nan 0: nan 0", "nan P: nan nan", "nan nan: nan nan",
    ],
}  # fmt: skip
SETS = {"F": [0.0, 0.5, 2.5, -2.5], "P": [0.5, 1.0, 2.5], "N": [0.5, 2.5, -2.5], "*": [0.0, 2.5, -2.5, "inf", "-inf", "nan"]}
VALUES = {"pi": np.pi, "pi/2": np.pi / 2, "pi/4": np.pi / 4, "3pi/4": 3 * np.pi / 4}


def special_cases(name):
    for case in SPECIAL[name]:
        given, expected = (part.split() for part in case.split(": "))
        for a, b in itertools.product(*(SETS.get(token, [token]) for token in given)):
            if not str(b).startswith("-"):
                yield float(a), float(b), *expected


def agrees(x, token):
    expected = float(VALUES.get(token.rstrip("?"), token.rstrip("?")))
    if np.isnan(expected) or np.isinf(expected) or expected == 0:
        return same(abs(x), abs(expected)) if token.endswith("?") else same(x, expected)
    return np.isclose(abs(x) if token.endswith("?") else x, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SPECIAL)
def test_complex_special_cases(name, dtype):
    cases = list(special_cases(name))
    a, b = (np.array(column, dtype) for column in list(zip(*cases, strict=True))[:2])
    for half, flip in ((b, 1), (-b, -1)):
        out = run(name, complex_of(a, half))
        for (x, y, u, v), w in zip(cases, out, strict=True):
            message = f"{name}({x}, {flip * y}) is {w}, not {u}, {flip} * {v}"
            if name == "abs":
                assert agrees(w, u), message
            else:
                assert agrees(w.real, u) and agrees(flip * w.imag, v), message


ODD = ["asin", "asinh", "atan", "atanh", "negative", "sign", "sin", "sinh", "tan", "tanh"]
EVEN = ["cos", "cosh", "square"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", sorted({*SPECIAL, *ODD, *EVEN} - {"abs"}))
def test_complex_symmetries(name, dtype):
    a, b = pairs(specials(dtype)[[0, 1, 2, 3, 4, 5, 8, 9, -3, -2, -1]])
    z = complex_of(a, b)
    out, conjugate, opposite = run(name, z), run(name, complex_of(a, -b)), run(name, complex_of(-a, -b))
    assert np.all(same(conjugate.real, out.real) & same(conjugate.imag, -out.imag))
    if name in ODD:
        assert np.all(same(opposite.real, -out.real) & same(opposite.imag, -out.imag))
    if name in EVEN:
        assert np.all(same(opposite.real, out.real) & same(opposite.imag, out.imag))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("circular", "hyperbolic"), [("sin", "sinh"), ("tan", "tanh"), ("asin", "asinh"), ("atan", "atanh")])
def test_circular_functions_are_hyperbolic_ones_turned(circular, hyperbolic, dtype):
    a, b = pairs(specials(dtype))
    turned = run(hyperbolic, complex_of(-b, a))
    out = run(circular, complex_of(a, b))
    assert np.all(same(out.real, turned.imag) & same(out.imag, -turned.real))


COMPLEX_UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp", "expm1", "imag", "log", "log10",
    "log1p", "log2", "negative", "positive", "real", "reciprocal", "round", "sign", "sin", "sinh", "sqrt", "square", "tan",
    "tanh",
]  # fmt: skip


def complexes(dtype, n=4000):
    rng = generator("complexes")
    a, b = (rng.normal(size=(2, n)) * np.exp(3 * rng.normal(size=(2, n)))).astype(dtype)
    return complex_of(a, b)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_complex_functions_of_one_operand(name, dtype):
    z = complexes(dtype)
    out, exact = run(name, z), reference(name)(z.astype(np.clongdouble))
    info = np.finfo(dtype)
    size = np.abs(exact)
    normal = (size > 4 * info.tiny) & (size < info.max / 4)
    # A part that is small beside the other has that much fewer digits; a part that overflows does it alone.
    assert np.all(np.abs(out - exact)[normal] <= 6 * info.eps * size[normal])


@pytest.mark.parametrize("dtype", FLOATS)
def test_complex_arithmetic(dtype):
    x, y = complexes(dtype), generator("pair").permutation(complexes(dtype))
    for name in ("add", "subtract", "multiply", "divide"):
        exact = reference(name)(x.astype(np.clongdouble), y.astype(np.clongdouble))
        scale = np.abs(x) + np.abs(y) if name in ("add", "subtract") else np.abs(exact)
        assert np.all(np.abs(run(name, x, y) - exact) <= 6 * np.finfo(dtype).eps * scale), name
    for name in ("equal", "not_equal"):
        assert np.array_equal(run(name, np.append(x, x), np.append(x, y)), reference(name)(np.append(x, x), np.append(x, y)))
    x, y = x / np.abs(x) * 2, complex_of(*(generator("exponents").normal(size=(2, len(x)))).astype(dtype))
    exact = np.power(x.astype(np.clongdouble), y.astype(np.clongdouble))
    assert np.all(np.abs(run("pow", x, y) - exact) <= 40 * np.finfo(dtype).eps * np.abs(exact))


def test_complex_quotients_neither_overflow_nor_vanish():
    for scale, dtype in ((1e30, "float32"), (1e-30, "float32"), (1e300, "float64"), (1e-300, "float64")):
        z = complex_of(np.array([scale, 2 * scale], dtype), np.array([scale, -scale], dtype))
        w = complex_of(np.array([scale, scale], dtype), np.array([-scale, scale], dtype))
        assert np.allclose(run("divide", z, w), [1j, 0.5 - 1.5j], rtol=1e-6)
        assert np.allclose(run("abs", z) / dtype_scalar(scale, dtype), np.sqrt([2, 5]), rtol=1e-6)


def dtype_scalar(value, dtype):
    return np.dtype(dtype).type(value)


# --- Literals and shapes ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [0.0, -0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0, 0.5, -0.5, 2.5, np.inf, np.nan])
def test_powers_with_a_known_exponent(exponent, dtype):
    x = np.concatenate([specials(dtype), np.linspace(0.1, 9, 50).astype(dtype)])
    out, expected = run("pow", x, dtype_scalar(exponent, dtype)), np.power(x, dtype_scalar(exponent, dtype))
    flushed = (np.abs(expected) < np.finfo(dtype).tiny) & (out == 0)
    close = np.isclose(out, expected, rtol=4 * np.finfo(dtype).eps, atol=0)
    assert np.all(same(out, expected) | close | flushed)
    edges = np.isin(expected, [0, np.inf, -np.inf])
    assert np.all((np.signbit(out) == np.signbit(expected))[edges])


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 10, 67])
def test_integer_powers_with_a_known_exponent(exponent, dtype):
    x = integers(dtype)
    assert np.array_equal(run("pow", x, dtype_scalar(exponent, dtype)), np.power(x, dtype_scalar(exponent, dtype)))
    assert np.array_equal(run("pow", dtype_scalar(3, dtype), np.abs(x // 2)), run("pow", np.full_like(x, 3), np.abs(x // 2)))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 1 + 1j])
def test_complex_powers_with_a_known_exponent(exponent, dtype):
    z = complexes("float64", 200).astype(dtype)
    z = z[np.abs(np.log(np.abs(z))) < 5]
    exact = np.power(z.astype(np.clongdouble), exponent)
    assert np.all(np.abs(run("pow", z, dtype_scalar(exponent, dtype)) - exact) <= 40 * np.finfo(dtype).eps * np.abs(exact))


LITERAL = [name for name, row in ELEMENTWISE.items() if row.literal]


@pytest.mark.parametrize("name", LITERAL)
def test_literals_give_what_arrays_give(name):
    for dtype in ["int32", "uint8", *FLOATS]:
        if np.dtype(dtype).kind not in TAKES[ELEMENTWISE[name].kinds]:
            continue
        x = integers(dtype)[:12] if dtype not in FLOATS else specials(dtype)
        for value in (1, 3, 7):
            literal = dtype_scalar(value, dtype)
            assert np.array_equal(run(name, x, literal), run(name, x, np.full_like(x, value)), equal_nan=dtype in FLOATS)
            small = np.arange(5).astype(dtype)
            assert np.allclose(run(name, literal, small), run(name, np.full_like(small, value), small), equal_nan=True)


def test_only_the_expected_rows_are_literal():
    assert sorted(LITERAL) == ["bitwise_left_shift", "bitwise_right_shift", "floor_divide", "pow", "remainder"]


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if row.nin > 1])
def test_operands_broadcast(name):
    row = ELEMENTWISE[name]
    dtype = {"any": "float64", "bool": "bool", "integer": "int32", "integer or bool": "int32"}.get(row.kinds, "float64")
    rng = generator(name)
    shapes = [(3, 1), (1, 4), ()][: row.nin]
    for shapes in (shapes, [(0,), (2, 1), ()][: row.nin], [()] * row.nin):
        operands = [rng.integers(1, 2 if dtype == "bool" else 5, shape).astype(dtype) for shape in shapes]
        whole = [np.array(x) for x in np.broadcast_arrays(*operands)]
        out = run(name, *operands)
        assert out.shape == whole[0].shape
        assert np.array_equal(out, run(name, *whole))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["add", "divide", "multiply", "hypot", "atan2", "maximum", "floor_divide", "remainder", "subtract"]),
    st.lists(st.tuples(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15)), min_size=8, max_size=8),
)
def test_random_pairs(name, values):
    x, y = np.array(values).T
    flushed = [np.where(np.abs(v) < 1e-250, 0 * v, v) for v in (x, y)]
    out, expected = run(name, *flushed), reference(name)(*flushed)
    if name == "floor_divide":
        expected = np.where(flushed[1] == 0, flushed[0] / flushed[1], expected)
    assert np.all(same(out, expected) | np.isclose(out, expected, rtol=1e-14, atol=1e-300))


# --- Rows and functions -------------------------------------------------------------------------


def representative(kinds):
    return [name for name, dtype in dt.DTYPES.items() if dtype.kind in TAKES[kinds]]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_body_takes_every_dtype_of_its_row(name):
    row = ELEMENTWISE[name]
    for dtype in representative(row.kinds):
        out = jax.eval_shape(row.body, *[jax.ShapeDtypeStruct((2,), dtype)] * row.nin)
        assert out.dtype == row.result(np.dtype(dtype)), dtype
        assert out.shape == (2,)


def primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_bodies_call_nothing_that_is_jitted_itself(name):
    row = ELEMENTWISE[name]
    for dtype in representative(row.kinds):
        found = set(primitives(jax.make_jaxpr(row.body)(*[np.ones(2, dtype)] * row.nin).jaxpr))
        assert not found & {"pjit", "jit", "custom_jvp_call", "pure_callback"}, dtype


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_rows_refuse_other_dtypes(name):
    row = ELEMENTWISE[name]
    for dtype in dt.DTYPES:
        operands = tuple(np.ones(2, dtype) for _ in range(row.nin))
        if dtype in representative(row.kinds):
            assert row.operand_dtype(operands) == np.dtype(dtype)
        else:
            with pytest.raises(TypeError, match=rf"{name} .*{row.kinds}.*{dtype}"):
                row.operand_dtype(operands)


BINARY_ROWS = [name for name, row in ELEMENTWISE.items() if row.nin == 2]


@pytest.mark.parametrize("name", BINARY_ROWS)
def test_rows_take_a_scalar_on_either_side(name):
    row = ELEMENTWISE[name]
    dtype = representative(row.kinds)[-1]
    scalar = True if dtype == "bool" else 2
    x = np.ones(2, dtype)
    assert row.operand_dtype((x, scalar)) == row.operand_dtype((scalar, x)) == np.dtype(dtype)
    with pytest.raises(TypeError, match="at least one array"):
        row.operand_dtype((scalar, scalar))
    for stranger in ("two", [1, 2], None):
        with pytest.raises(TypeError, match=rf"{name} takes arrays and Python scalars"):
            row.operand_dtype((x, stranger))


def test_rows_of_one_operand_take_arrays_only():
    for scalar in (2.0, 1, None, [1.0]):
        with pytest.raises(TypeError, match="sqrt takes an array"):
            ELEMENTWISE["sqrt"].operand_dtype((scalar,))


def test_rows_promote_and_say_where_they_cannot():
    add = ELEMENTWISE["add"]
    assert add.operand_dtype((np.ones(2, "float32"), 1j)) == np.dtype("complex64")
    assert add.operand_dtype((np.ones(2, "int8"), np.ones(2, "uint8"))) == np.dtype("int16")
    with pytest.raises(TypeError, match=r"add: .*int32.*float32.*astype"):
        add.operand_dtype((np.ones(2, "int32"), np.ones(2, "float32")))
    with pytest.raises(OverflowError, match=r"add: 300.*int8"):
        add.operand_dtype((np.ones(2, "int8"), 300))


def test_scalars_without_a_meaning():
    for name in ("bitwise_left_shift", "bitwise_right_shift", "pow"):
        with pytest.raises(ValueError, match=rf"{name}.*-1"):
            ELEMENTWISE[name].operand_dtype((np.ones(2, "int8"), -1))
    assert ELEMENTWISE["pow"].operand_dtype((np.ones(2), -1)) == np.dtype("float64")


def test_clip_keeps_the_dtype_of_x():
    clip = ELEMENTWISE["clip"]
    assert clip.operand_dtype((np.ones(2, "int16"), np.ones(2, "int8"), 3)) == np.dtype("int16")
    with pytest.raises(TypeError, match=r"clip.*int8.*int16"):
        clip.operand_dtype((np.ones(2, "int8"), np.ones(2, "int16"), 3))


PARAMETERS = {1: ["x"], 2: ["x1", "x2"], 3: ["x", "min", "max"]}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_public_functions(name):
    row, function = ELEMENTWISE[name], getattr(table, name)
    parameters = list(inspect.signature(function).parameters.values())
    assert (function.__name__, function.__qualname__, function.__module__) == (name, name, "jaxchunk.array_api")
    assert [p.name for p in parameters] == PARAMETERS[row.nin]
    for p in parameters:
        optional = p.name in ("min", "max")
        assert p.kind is (p.POSITIONAL_OR_KEYWORD if optional else p.POSITIONAL_ONLY)
        assert p.default is (None if optional else p.empty)
        assert p.annotation is not p.empty
    for section in (row.summary, "Parameters\n", "Returns\n", "Raises\n", "Examples\n"):
        assert section in function.__doc__


class Eager:
    """Just enough of an array for the examples: a NumPy array with `compute`."""

    def __init__(self, value):
        self.value = np.asarray(value)

    def compute(self):
        return self.value


def eager(name):
    row = ELEMENTWISE[name]

    def function(*operands):
        values = tuple(x.value if isinstance(x, Eager) else x for x in operands)
        dtype = row.operand_dtype(values)
        return Eager(run(name, *(np.asarray(x).astype(dtype) for x in values)))

    return function


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_examples(name):
    functions = {n: eager(n) for n in ELEMENTWISE}
    xp = types.SimpleNamespace(**functions, asarray=Eager, pi=np.pi, e=np.e, inf=np.inf, nan=np.nan)
    example = doctest.DocTestParser().get_examples(getattr(table, name).__doc__)[-1]
    assert repr(eval(example.source, {"xp": xp})) == example.want.strip()


def test_operators_name_every_special_method():
    unary = {"abs", "invert", "neg", "pos"}
    comparisons = {"eq", "ne", "lt", "le", "gt", "ge"}
    arithmetic = {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"}
    assert set(OPERATORS) == {f"__{op}__" for op in unary | comparisons | arithmetic}
    for op, row in OPERATORS.items():
        assert ELEMENTWISE[row.name] is row
        assert row.nin == (1 if op.strip("_") in unary else 2)


def test_the_table_is_complete():
    assert len(ELEMENTWISE) == 67
    covered = {*UNARY, *BINARY, *SPECIAL, *COMPLEX_UNARY, *LITERAL}
    others = {"bitwise_and", "bitwise_invert", "bitwise_or", "bitwise_xor", "clip", "equal", "greater", "greater_equal"}
    others |= {"isfinite", "isinf", "isnan", "less", "less_equal", "logaddexp", "logical_and", "logical_not"}
    others |= {"logical_or", "logical_xor", "maximum", "minimum", "nextafter", "not_equal", "signbit"}
    assert covered | others == set(ELEMENTWISE)
