"""The complex elementwise functions: the special cases of the standard, symmetries, and NumPy."""

import itertools

import numpy as np
import pytest

from tests.helpers.elementwise import (
    FLOATS,
    complex_of,
    complexes,
    generator,
    pairs,
    reference,
    run,
    same,
    scalar,
    specials,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, at the values of interest


# Of a + bi with b not negative: "a b: real imaginary". F is any finite number, P a positive one, N one that isn't
# zero, X not NaN; ? leaves a sign open. The other half plane has the conjugates.
SPECIAL = {
    "abs": ["inf *: inf 0", "-inf *: inf 0", "* inf: inf 0", "nan F: nan 0", "F nan: nan 0", "nan nan: nan 0"],
    "acos": [
        "0 0: pi/2 -0", "-0 0: pi/2 -0", "0 nan: pi/2 nan", "-0 nan: pi/2 nan", "F inf: pi/2 -inf",
        "N nan: nan nan", "-inf P: pi -inf", "inf P: 0 -inf", "-inf inf: 3pi/4 -inf", "inf inf: pi/4 -inf",
        "inf nan: nan inf?", "-inf nan: nan inf?", "nan F: nan nan", "nan inf: nan -inf", "nan nan: nan nan",
    ],
    "acosh": [
        "0 0: 0 pi/2", "-0 0: 0 pi/2", "F inf: inf pi/2", "N nan: nan nan", "0 nan: nan pi/2?",
        "-inf P: inf pi", "inf P: inf 0", "-inf inf: inf 3pi/4", "inf inf: inf pi/4", "inf nan: inf nan",
        "-inf nan: inf nan", "nan F: nan nan", "nan inf: inf nan", "nan nan: nan nan",
    ],
    "asinh": [
        "0 0: 0 0", "P inf: inf pi/2", "F nan: nan nan", "inf P: inf 0", "inf inf: inf pi/4",
        "inf nan: inf nan", "nan 0: nan 0", "nan P: nan nan", "nan inf: inf? nan", "nan nan: nan nan",
    ],
    "atanh": [
        "0 0: 0 0", "0 nan: 0 nan", "1 0: inf 0", "P inf: 0 pi/2", "N nan: nan nan", "inf P: 0 pi/2",
        "inf inf: 0 pi/2", "inf nan: 0 nan", "nan F: nan nan", "nan inf: 0? pi/2", "nan nan: nan nan",
    ],
    "cosh": [
        "0 0: 1 0", "0 inf: nan 0?", "0 nan: nan 0?", "N inf: nan nan", "N nan: nan nan", "inf 0: inf 0",
        "inf 1: inf inf", "inf inf: inf? nan", "inf nan: inf nan", "nan 0: nan 0?", "nan P: nan nan",
        "nan nan: nan nan",
    ],
    "exp": [
        "0 0: 1 0", "-0 0: 1 0", "F inf: nan nan", "F nan: nan nan", "inf 0: inf 0", "-inf 0: 0 0",
        "-inf 1: 0 0", "inf 1: inf inf", "-inf inf: 0? 0?", "inf inf: inf? nan", "-inf nan: 0? 0?",
        "inf nan: inf? nan", "nan 0: nan 0", "nan P: nan nan", "nan inf: nan nan", "nan nan: nan nan",
    ],
    "expm1": [
        "0 0: 0 0", "-0 0: 0 0", "F inf: nan nan", "F nan: nan nan", "inf 0: inf 0", "-inf 0: -1 0",
        "-inf 1: -1 0", "inf 1: inf inf", "-inf inf: -1 0?", "inf inf: inf? nan", "-inf nan: -1 0?",
        "inf nan: inf? nan", "nan 0: nan 0", "nan P: nan nan", "nan inf: nan nan", "nan nan: nan nan",
    ],
    "log": [
        "-0 0: -inf pi", "0 0: -inf 0", "F inf: inf pi/2", "F nan: nan nan", "-inf P: inf pi", "inf P: inf 0",
        "-inf inf: inf 3pi/4", "inf inf: inf pi/4", "inf nan: inf nan", "-inf nan: inf nan", "nan F: nan nan",
        "nan inf: inf nan", "nan nan: nan nan",
    ],
    "log1p": [
        "-1 0: -inf 0", "F inf: inf pi/2", "F nan: nan nan", "-inf P: inf pi", "inf P: inf 0",
        "-inf inf: inf 3pi/4", "inf inf: inf pi/4", "inf nan: inf nan", "-inf nan: inf nan", "nan F: nan nan",
        "nan inf: inf nan", "nan nan: nan nan",
    ],
    "sign": ["0 0: 0 0?", "-0 0: 0 0?", "nan *: nan nan", "* nan: nan nan"],
    "sinh": [
        "0 0: 0 0", "0 inf: 0? nan", "0 nan: 0? nan", "P inf: nan nan", "P nan: nan nan", "inf 0: inf 0",
        "inf 1: inf inf", "inf inf: inf? nan", "inf nan: inf? nan", "nan 0: nan 0", "nan P: nan nan",
        "nan nan: nan nan",
    ],
    "sqrt": [
        "0 0: 0 0", "-0 0: 0 0", "* inf: inf inf", "F nan: nan nan", "-inf P: 0 inf", "inf P: inf 0",
        "-inf nan: nan inf?", "inf nan: inf nan", "nan F: nan nan", "nan nan: nan nan",
    ],
    "tanh": [
        "0 0: 0 0", "N inf: nan nan", "0 inf: 0 nan", "N nan: nan nan", "0 nan: 0 nan", "inf P: 1 0",
        "inf inf: 1 0?", "inf nan: 1 0?", "nan 0: nan 0", "nan P: nan nan", "nan nan: nan nan",
    ],
}  # fmt: skip
SETS = {
    "F": [0.0, 0.5, 2.5, -2.5],
    "P": [0.5, 1.0, 2.5],
    "N": [0.5, 2.5, -2.5],
    "*": [0.0, 2.5, -2.5, "inf", "-inf", "nan"],
}
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


ODD = ["asin", "asinh", "atan", "atanh", "negative", "sin", "sinh", "tan", "tanh"]
EVEN = ["cos", "cosh", "square"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", sorted({*SPECIAL, *ODD, *EVEN} - {"abs", "sign"}))
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
@pytest.mark.parametrize(
    ("circular", "hyperbolic"), [("sin", "sinh"), ("tan", "tanh"), ("asin", "asinh"), ("atan", "atanh")]
)
def test_circular_functions_are_hyperbolic_ones_turned(circular, hyperbolic, dtype):
    a, b = pairs(specials(dtype))
    turned = run(hyperbolic, complex_of(-b, a))
    out = run(circular, complex_of(a, b))
    assert np.all(same(out.real, turned.imag) & same(out.imag, -turned.real))


COMPLEX_UNARY = [
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "conj", "cos", "cosh", "exp", "expm1", "imag",
    "log", "log10", "log1p", "log2", "negative", "positive", "real", "reciprocal", "round", "sign", "sin",
    "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


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
        assert np.array_equal(
            run(name, np.append(x, x), np.append(x, y)), reference(name)(np.append(x, x), np.append(x, y))
        )
    x, y = x / np.abs(x) * 2, complex_of(*(generator("exponents").normal(size=(2, len(x)))).astype(dtype))
    exact = np.power(x.astype(np.clongdouble), y.astype(np.clongdouble))
    assert np.all(np.abs(run("pow", x, y) - exact) <= 40 * np.finfo(dtype).eps * np.abs(exact))


def test_complex_quotients_neither_overflow_nor_vanish():
    for scale, dtype in ((1e30, "float32"), (1e-30, "float32"), (1e300, "float64"), (1e-300, "float64")):
        z = complex_of(np.array([scale, 2 * scale], dtype), np.array([scale, -scale], dtype))
        w = complex_of(np.array([scale, scale], dtype), np.array([-scale, scale], dtype))
        assert np.allclose(run("divide", z, w), [1j, 0.5 - 1.5j], rtol=1e-6)
        assert np.allclose(run("abs", z) / scalar(scale, dtype), np.sqrt([2, 5]), rtol=1e-6)
