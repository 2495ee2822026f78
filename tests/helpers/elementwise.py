"""What the elementwise tests share: running compiled bodies, values to run them on, and comparing."""

import functools
import zlib

import jax
import numpy as np

from jaxchunk.array_api._elementwise import ELEMENTWISE

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


@functools.cache
def compiled(name, literals):
    """The jitted body, with the NumPy scalars among the operands built in: (position, dtype, value) each."""
    known = {i: np.dtype(dtype).type(value) for i, dtype, value in literals}

    def body(*arrays):
        rest = iter(arrays)
        return ELEMENTWISE[name].body(*(known[i] if i in known else next(rest) for i in range(ELEMENTWISE[name].nin)))

    return jax.jit(body)


def run(name, *operands):
    """The compiled body on NumPy operands of one dtype, with 64 bits; NumPy scalars are literals.

    Vectors are padded to a few lengths, so that a function is compiled a few times in all.
    """
    literals = tuple((i, x.dtype.str, x.item()) for i, x in enumerate(operands) if isinstance(x, np.generic))
    arrays = [x for x in operands if not isinstance(x, np.generic)]
    size = len(arrays[0]) if {x.shape for x in arrays} == {(arrays[0].size,)} and arrays[0].size else None
    if size is not None:
        room = next(n for n in (4096, 65536) if n >= size)
        arrays = [np.concatenate([x, np.ones(room - size, x.dtype)]) for x in arrays]
    with jax.enable_x64(True):
        out = np.asarray(compiled(name, literals)(*arrays))
    out = out if size is None else out[:size]
    assert out.dtype == ELEMENTWISE[name].result(operands[0].dtype)
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


def integers(dtype):
    info = np.iinfo(dtype)
    rng = generator("integers")
    edges = [
        info.min,
        info.min + 1,
        -7,
        -3,
        -2,
        -1,
        0,
        1,
        2,
        3,
        5,
        8,
        31,
        63,
        64,
        info.max // 2,
        info.max - 1,
        info.max,
    ]
    spread = rng.integers(info.min, info.max, 20, dtype=dtype, endpoint=True)
    return np.concatenate([np.array([v for v in edges if info.min <= v <= info.max], dtype), spread])


def complex_of(a, b):
    z = np.empty(np.shape(a), np.result_type(a.dtype, np.complex64))
    z.real, z.imag = a, b
    return z


def complexes(dtype, n=4000):
    rng = generator("complexes")
    a, b = (rng.normal(size=(2, n)) * np.exp(3 * rng.normal(size=(2, n)))).astype(dtype)
    return complex_of(a, b)


def scalar(value, dtype):
    """A NumPy scalar: what a literal reaches a body as."""
    return np.dtype(dtype).type(value)
