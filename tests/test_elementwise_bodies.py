"""The elementwise functions of real numbers, integers and truth values against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxchunk.array_api._elementwise import ELEMENTWISE
from jaxchunk.array_api._row import TAKES
from tests.helpers.elementwise import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    complex_of,
    complexes,
    generator,
    integers,
    pairs,
    reals,
    reference,
    run,
    same,
    scalar,
    specials,
    ulps,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, at the values of interest


# --- Real functions -----------------------------------------------------------------------------

# The largest error in units of the last place.
UNARY = {
    "abs": 0, "acos": 4, "acosh": 4, "asin": 4, "asinh": 4, "atan": 3, "atanh": 6, "ceil": 0, "cos": 3, "cosh": 4,
    "exp": 4, "expm1": 5, "floor": 0, "log": 2, "log10": 4, "log1p": 4, "log2": 3, "negative": 0, "positive": 0,
    "reciprocal": 0.5, "round": 0, "sign": 0, "sin": 3, "sinh": 4, "sqrt": 0.5, "square": 0.5, "tan": 5, "tanh": 8,
    "trunc": 0,
}  # fmt: skip
BINARY = {"add": 0.5, "atan2": 4, "copysign": 0, "divide": 0.5, "hypot": 2, "multiply": 0.5, "pow": 2, "subtract": 0.5}

COMPARISONS = ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal"]


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
    out, expected = run(name, x), reference(name)(x)
    assert np.all(same(out, expected) | np.isclose(out, expected, rtol=1e-6, atol=0))
    edges = np.isin(np.abs(x), [0, 1, np.inf]) | np.isnan(x)
    exact = np.isin(np.abs(expected), [0, 1, np.inf]) | np.isnan(expected)
    assert np.all(same(out, expected)[edges & exact])


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
@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
)
def test_real_comparisons(name, dtype):
    x, y = pairs(specials(dtype))
    assert np.array_equal(run(name, x, y), reference(name)(x, y), equal_nan=name in ("maximum", "minimum"))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floored_division(dtype):
    rng = generator("floored")
    random = np.concatenate([rng.normal(size=(2, 4000)) * [[100], [1]], rng.integers(-50, 50, (2, 4000))], axis=1)
    for x, y in [random.astype(dtype), pairs(specials(dtype)[:-7])]:
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


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_functions(dtype):
    x = integers(dtype)
    for name in (
        "abs",
        "bitwise_invert",
        "ceil",
        "conj",
        "floor",
        "negative",
        "positive",
        "real",
        "round",
        "sign",
        "square",
        "trunc",
    ):
        expected = x if name in ("ceil", "floor", "round", "trunc") else reference(name)(x)
        assert np.array_equal(run(name, x), expected), name
    x, y = pairs(x)
    arithmetic = ["add", "floor_divide", "maximum", "minimum", "multiply", "remainder", "subtract"]
    for name in [*arithmetic, *COMPARISONS, "bitwise_and", "bitwise_or", "bitwise_xor"]:
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
    for name in (
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "equal",
        "not_equal",
    ):
        assert np.array_equal(run(name, x, y), reference(name)(x, y)), name
    for name in ("logical_not", "bitwise_invert"):
        assert np.array_equal(run(name, x), ~x)


# --- Literals and shapes ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [0.0, -0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -2.0, 0.5, -0.5, 2.5, np.inf, np.nan])
def test_powers_with_a_known_exponent(exponent, dtype):
    x = np.concatenate([specials(dtype), np.linspace(0.1, 9, 50).astype(dtype)])
    out, expected = run("pow", x, scalar(exponent, dtype)), np.power(x, np.full_like(x, exponent))
    flushed = (np.abs(expected) < np.finfo(dtype).tiny) & (out == 0)
    close = np.isclose(out, expected, rtol=4 * np.finfo(dtype).eps, atol=0)
    assert np.all(same(out, expected) | close | flushed)
    edges = np.isin(expected, [0, np.inf, -np.inf])
    assert np.all((np.signbit(out) == np.signbit(expected))[edges])


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 10, 67])
def test_integer_powers_with_a_known_exponent(exponent, dtype):
    x = integers(dtype)
    assert np.array_equal(run("pow", x, scalar(exponent, dtype)), np.power(x, scalar(exponent, dtype)))
    assert np.array_equal(run("pow", scalar(3, dtype), np.abs(x // 2)), run("pow", np.full_like(x, 3), np.abs(x // 2)))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 1 + 1j])
def test_complex_powers_with_a_known_exponent(exponent, dtype):
    z = complexes("float64", 200).astype(dtype)
    z = z[np.abs(np.log(np.abs(z))) < 5]
    exact = np.power(z.astype(np.clongdouble), exponent)
    assert np.all(np.abs(run("pow", z, scalar(exponent, dtype)) - exact) <= 40 * np.finfo(dtype).eps * np.abs(exact))


LITERAL = [name for name, row in ELEMENTWISE.items() if row.literal]


@pytest.mark.parametrize("name", LITERAL)
def test_literals_give_what_arrays_give(name):
    for dtype in ["int32", "uint8", *FLOATS]:
        if np.dtype(dtype).kind not in TAKES[ELEMENTWISE[name].kinds]:
            continue
        x = integers(dtype)[:12] if dtype not in FLOATS else specials(dtype)
        for value in (1, 3, 7):
            literal = scalar(value, dtype)
            out, expected = run(name, x, literal), run(name, x, np.full_like(x, value))
            digits = 2 * np.finfo(dtype).eps if dtype in FLOATS else 0
            assert np.all(same(out, expected) | np.isclose(out, expected, rtol=digits, atol=0))
            small = np.arange(5).astype(dtype)
            assert np.allclose(run(name, literal, small), run(name, np.full_like(small, value), small), equal_nan=True)


def test_only_the_expected_rows_are_literal():
    assert sorted(LITERAL) == ["bitwise_left_shift", "bitwise_right_shift", "floor_divide", "pow", "remainder"]


@pytest.mark.parametrize("name", [name for name, row in ELEMENTWISE.items() if row.nin > 1])
def test_operands_broadcast(name):
    row = ELEMENTWISE[name]
    dtype = {"any": "float64", "bool": "bool", "integer": "int32", "integer or bool": "int32"}.get(row.kinds, "float64")
    rng = generator(name)
    for shapes in ([(3, 1), (1, 4), ()], [(0,), (2, 1), ()], [(), (), ()]):
        operands = [rng.integers(1, 2 if dtype == "bool" else 5, shape).astype(dtype) for shape in shapes[: row.nin]]
        whole = [np.array(x) for x in np.broadcast_arrays(*operands)]
        out = run(name, *operands)
        assert out.shape == whole[0].shape
        assert np.array_equal(out, run(name, *whole))


@settings(max_examples=60)
@given(
    st.sampled_from(
        ["add", "divide", "multiply", "hypot", "atan2", "maximum", "floor_divide", "remainder", "subtract"]
    ),
    st.lists(st.tuples(st.floats(-1e15, 1e15), st.floats(-1e15, 1e15)), min_size=8, max_size=8),
)
def test_random_pairs(name, values):
    x, y = np.array(values).T
    flushed = [np.where(np.abs(v) < 1e-250, 0 * v, v) for v in (x, y)]
    out, expected = run(name, *flushed), reference(name)(*flushed)
    if name == "floor_divide":
        expected = np.where(flushed[1] == 0, flushed[0] / flushed[1], expected)
    assert np.all(same(out, expected) | np.isclose(out, expected, rtol=1e-14, atol=1e-300))
