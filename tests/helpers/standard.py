"""The array API standard 2025.12 as a table: the signature of every function, method and operator, unannotated."""

from __future__ import annotations

import inspect

VERSION = "2025.12"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _each(names: str, arguments: str, prefix: str = "") -> tuple[str, ...]:
    """Signatures of functions that share a list of arguments."""
    return tuple(f"{prefix}{name}({arguments})" for name in names.split())


CONSTANTS = _words("e inf nan newaxis pi")
DTYPES = _words("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128")

_UNARY = """
    abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf isnan
    log log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt square tan
    tanh trunc
"""
_BINARY = """
    add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
    floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum
    minimum multiply nextafter not_equal pow remainder subtract
"""
_REDUCED = "x, /, *, axis=None, keepdims=False"

# One signature a line, or the names that share a list of arguments.
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "creation": (
        "arange(start, /, stop=None, step=1, *, dtype=None, device=None)",
        "asarray(obj, /, *, dtype=None, device=None, copy=None)",
        "empty(shape, *, dtype=None, device=None)",
        "empty_like(x, /, *, dtype=None, device=None)",
        "eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)",
        "from_dlpack(x, /, *, device=None, copy=None)",
        "full(shape, fill_value, *, dtype=None, device=None)",
        "full_like(x, /, fill_value, *, dtype=None, device=None)",
        "linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)",
        "meshgrid(*arrays, indexing='xy')",
        "ones(shape, *, dtype=None, device=None)",
        "ones_like(x, /, *, dtype=None, device=None)",
        "tril(x, /, *, k=0)",
        "triu(x, /, *, k=0)",
        "zeros(shape, *, dtype=None, device=None)",
        "zeros_like(x, /, *, dtype=None, device=None)",
    ),
    "data types": (
        "astype(x, dtype, /, *, copy=True, device=None)",
        "can_cast(from_, to, /)",
        "finfo(type, /)",
        "iinfo(type, /)",
        "isdtype(dtype, kind)",
        "result_type(*arrays_and_dtypes)",
    ),
    "elementwise": (
        *_each(_UNARY, "x, /"),
        *_each(_BINARY, "x1, x2, /"),
        "clip(x, /, min=None, max=None)",
    ),
    "fft": (
        *_each("fft ifft rfft irfft hfft ihfft", "x, /, *, n=None, axis=-1, norm='backward'", "fft."),
        *_each("fftn ifftn rfftn irfftn", "x, /, *, s=None, axes=None, norm='backward'", "fft."),
        *_each("fftfreq rfftfreq", "n, /, *, d=1.0, dtype=None, device=None", "fft."),
        *_each("fftshift ifftshift", "x, /, *, axes=None", "fft."),
    ),
    "indexing": (
        "take(x, indices, /, *, axis=None)",
        "take_along_axis(x, indices, /, *, axis=-1)",
    ),
    "inspection": (
        "__array_namespace_info__()",
        "info.capabilities()",
        "info.default_device()",
        "info.default_dtypes(*, device=None)",
        "info.devices()",
        "info.dtypes(*, device=None, kind=None)",
    ),
    "linalg": (
        *_each("det eig eigh eigvals eigvalsh inv matrix_transpose slogdet svdvals", "x, /", "linalg."),
        *_each("matmul outer solve", "x1, x2, /", "linalg."),
        *_each("cross vecdot", "x1, x2, /, *, axis=-1", "linalg."),
        *_each("matrix_rank pinv", "x, /, *, rtol=None", "linalg."),
        "linalg.cholesky(x, /, *, upper=False)",
        "linalg.diagonal(x, /, *, offset=0)",
        "linalg.matrix_norm(x, /, *, keepdims=False, ord='fro')",
        "linalg.matrix_power(x, n, /)",
        "linalg.qr(x, /, *, mode='reduced')",
        "linalg.svd(x, /, *, full_matrices=True)",
        "linalg.tensordot(x1, x2, /, *, axes=2)",
        "linalg.trace(x, /, *, offset=0, dtype=None)",
        "linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)",
    ),
    "linear algebra": (
        "matmul(x1, x2, /)",
        "matrix_transpose(x, /)",
        "tensordot(x1, x2, /, *, axes=2)",
        "vecdot(x1, x2, /, *, axis=-1)",
    ),
    "manipulation": (
        "broadcast_arrays(*arrays)",
        "broadcast_shapes(*shapes)",
        "broadcast_to(x, /, shape)",
        "concat(arrays, /, *, axis=0)",
        "expand_dims(x, /, axis)",
        "flip(x, /, *, axis=None)",
        "moveaxis(x, source, destination, /)",
        "permute_dims(x, /, axes)",
        "repeat(x, repeats, /, *, axis=None)",
        "reshape(x, /, shape, *, copy=None)",
        "roll(x, /, shift, *, axis=None)",
        "squeeze(x, /, axis)",
        "stack(arrays, /, *, axis=0)",
        "tile(x, repetitions, /)",
        "unstack(x, /, *, axis=0)",
    ),
    "searching": (
        *_each("argmax argmin count_nonzero", _REDUCED),
        "nonzero(x, /)",
        "searchsorted(x1, x2, /, *, side='left', sorter=None)",
        "where(condition, x1, x2, /)",
    ),
    "sets": (
        "isin(x1, x2, /, *, invert=False)",
        *_each("unique_all unique_counts unique_inverse unique_values", "x, /"),
    ),
    "sorting": _each("argsort sort", "x, /, *, axis=-1, descending=False, stable=True"),
    "statistical": (
        *_each("max mean min", _REDUCED),
        *_each("prod sum", "x, /, *, axis=None, dtype=None, keepdims=False"),
        *_each("std var", "x, /, *, axis=None, correction=0.0, keepdims=False"),
        *_each("cumulative_prod cumulative_sum", "x, /, *, axis=None, dtype=None, include_initial=False"),
    ),
    "utility": (
        *_each("all any", _REDUCED),
        "diff(x, /, *, axis=-1, n=1, prepend=None, append=None)",
    ),
}

# How many functions each chapter has: a line lost from the table is noticed.
COUNTS = {
    "creation": 16,
    "data types": 6,
    "elementwise": 67,
    "fft": 14,
    "indexing": 2,
    "inspection": 6,
    "linalg": 25,
    "linear algebra": 4,
    "manipulation": 15,
    "searching": 6,
    "sets": 5,
    "sorting": 2,
    "statistical": 9,
    "utility": 3,
}

# Functions that give several arrays, and the names of these.
FIELDS = {
    "unique_all": "values indices inverse_indices counts",
    "unique_counts": "values counts",
    "unique_inverse": "values inverse_indices",
    "linalg.eig": "eigenvalues eigenvectors",
    "linalg.eigh": "eigenvalues eigenvectors",
    "linalg.qr": "Q R",
    "linalg.slogdet": "sign logabsdet",
    "linalg.svd": "U S Vh",
}

PROPERTIES = _words("dtype device mT ndim shape size T")

_CASTS = _words("bool complex float index int")
_UNARY_OPERATORS = _words("abs invert neg pos")
_COMPARISONS = _words("eq ne lt le gt ge")
_ARITHMETIC = _words("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift")
_METHODS = (
    *(f"__{name}__(self, /)" for name in (*_CASTS, *_UNARY_OPERATORS, "dlpack_device")),
    *(f"__{name}__(self, other, /)" for name in _COMPARISONS),
    # Each operator, its reflected form, and the one in place.
    *(f"__{kind}{name}__(self, other, /)" for name in _ARITHMETIC for kind in ("", "r", "i")),
    "__array_namespace__(self, /, *, api_version=None)",
    "__dlpack__(self, /, *, stream=None, max_version=None, dl_device=None, copy=None)",
    "__getitem__(self, key, /)",
    "__setitem__(self, key, value, /)",
    "to_device(self, device, /, *, stream=None)",
)


def _parsed(line: str) -> tuple[str, inspect.Signature]:
    """The name and the signature in a line of the table."""
    name, _, arguments = line.partition("(")
    scope: dict[str, object] = {}
    exec(f"def function({arguments}: ...", scope)
    function = scope["function"]
    assert callable(function)
    return name, inspect.signature(function)


CHAPTERS = {chapter: dict(map(_parsed, lines)) for chapter, lines in _FUNCTIONS.items()}
FUNCTIONS = {name: signature for chapter in CHAPTERS.values() for name, signature in chapter.items()}
METHODS = dict(map(_parsed, _METHODS))
