"""Every function of the namespace as a job of any size: what it is given, and what must come out."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

import jaxchunk.array_api as xp
from helpers.memory_jobs import NO_DATA, ONE_MATRIX, Given, Pattern, Row, Shape, grid, line, root, stack, tall

# --- values from indices ------------------------------------------------------------------------------


def mixed(*index: Any) -> Any:
    """Integers below 1009 that differ along every axis."""
    return (sum(p * i for p, i in zip((7, 3, 11), index, strict=False)) + index[0] * index[-1]) % 1009


def between(low: float, high: float) -> Pattern:
    return lambda *index: mixed(*index) / 1009 * (high - low) + low


def integers(low: int, high: int) -> Pattern:
    return lambda *index: mixed(*index) % (high - low) + low


def mirrored(*index: Any) -> Any:
    """Other integers at the same place."""
    return mixed(*index[::-1]) % 90 - 45


def with_specials(*index: Any) -> Any:
    m = mixed(*index)
    return np.select([m % 7 == 0, m % 7 == 1, m % 7 == 2], [np.nan, np.inf, -np.inf], m - 500.0)


def of_the_plane(*index: Any) -> Any:
    m = mixed(*index)
    return m / 1009 - 0.5 + 1j * (m % 31) / 31


def nearly_one(*index: Any) -> Any:
    return 1 + (mixed(*index) - 504) * 1e-9


def definite(b: Any, j: Any, k: Any) -> Any:
    """Symmetric and positive definite matrices."""
    return mixed(b, j * k, j + k) / 1009 + 50 * (j == k)


F4, F8, C16, I8, BOOL = "float32", "float64", "complex128", "int64", "bool"
real = Given(between(-9, 9))
above = Given(between(0.1, 9))
whole = Given(integers(-50, 50), I8)
flags = Given(lambda *index: mixed(*index) % 3 == 0, BOOL)

# --- the table ------------------------------------------------------------------------------------------

ROWS: dict[str, Row] = {}


def row(name: str, *given: Given, code: Callable[..., Any] | None = None, **options: Any) -> None:
    """Add a function, which NumPy has under the same name; `code` calls it, in a module that is given first.

    By default it is called with its inputs alone.
    """
    if code is None:

        def code(module: Any, *arguments: Any) -> Any:
            return attrgetter(name)(module)(*arguments)

    options.setdefault("call", lambda *arguments: code(xp, *arguments))
    if "right" not in options:
        options.setdefault("expected", lambda *arguments: code(np, *arguments))
    ROWS[name] = Row(given=given, **options)


# --- elementwise ----------------------------------------------------------------------------------------

# Between which values a function is asked for.
DOMAINS: dict[tuple[float, float], str] = {
    (-0.99, 0.99): "acos asin atanh",
    (1.0, 9.0): "acosh",
    (-9.0, 9.0): "abs asinh atan ceil cos cosh exp expm1 floor negative positive round sin sinh square tanh trunc",
    (0.1, 9.0): "log log1p log2 log10 reciprocal sqrt",
    (-1.5, 1.5): "tan sign signbit",
}
for domain, names in DOMAINS.items():
    for name in names.split():
        row(name, Given(between(*domain), F4, line), local=True, rtol=1e-6)

# What pairs of inputs functions take; these have their cuts in different places.
PAIRS: dict[tuple[Given, Given], str] = {
    (real, above): "add atan2 copysign divide hypot logaddexp maximum minimum multiply nextafter subtract",
    (above, real): "pow",
    (whole, Given(mirrored, I8)): (
        "bitwise_and bitwise_or bitwise_xor equal greater greater_equal less less_equal not_equal"
    ),
    (whole, Given(integers(1, 50), I8)): "floor_divide remainder",
    (whole, Given(integers(0, 30), I8)): "bitwise_left_shift bitwise_right_shift",
    (flags, Given(lambda *index: mixed(*index) % 2 == 0, BOOL)): "logical_and logical_or logical_xor",
}
for pair, names in PAIRS.items():
    for name in names.split():
        row(name, *pair, local=True, rtol=1e-14)

for name in ("isfinite", "isinf", "isnan"):
    row(name, Given(with_specials, F8, line), local=True)
for name in ("conj", "imag", "real"):
    row(name, Given(of_the_plane, C16, line), local=True)
row("bitwise_invert", whole, local=True)
row("logical_not", flags, local=True)
row("clip", real, above, code=lambda m, x, high: m.clip(x, -1, high), local=True)
row("where", flags, real, above, local=True)
row("astype", whole, code=lambda m, x: (m.astype(x, m.float32), m.astype(x, m.int8)), local=True)

# --- creation ---------------------------------------------------------------------------------------------


def oblong(n: int, c: int) -> tuple[Shape, Shape]:
    """A shape of so many elements, and blocks of it."""
    return (n // 500 + 1, 500), (max(1, c // 300), 300)


def sized(n: int, c: int) -> tuple[int, int]:
    """A length, and that of its blocks."""
    return n, c


def created(name: str, code: Callable[..., Any], size: Callable[..., Any] = oblong, **options: Any) -> None:
    """A function of a length or of a shape: `code` is told the chunks as well, where they are wanted."""
    if "right" not in options:
        options["expected"] = lambda n, c: code(np, size(n, c)[0])
    row(name, call=lambda n, c: code(xp, size(n, c)[0], chunks=size(n, c)[1]), **options)


def like_floats(*arguments: Any) -> None:
    """An empty array, which comes last, has the shape that was asked for; its values are nobody's business."""
    *given, empty = arguments
    assert empty.dtype == np.float64
    assert empty.shape == (given[0].shape if len(given) == 1 else oblong(*given)[0])


created("arange", lambda m, n, **cut: m.arange(n, **cut), sized)
created("linspace", lambda m, n, **cut: m.linspace(-1, 2, n, **cut), sized, rtol=1e-15)
created("fft.fftfreq", lambda m, n, **cut: m.fft.fftfreq(n, **cut), sized, rtol=1e-15)
created("fft.rfftfreq", lambda m, n, **cut: m.fft.rfftfreq(2 * n, **cut), sized, rtol=1e-15)
created("eye", lambda m, shape, **cut: m.eye(*shape, k=-3, **cut))
created("ones", lambda m, shape, **cut: m.ones(shape, **cut))
created("zeros", lambda m, shape, **cut: m.zeros(shape, **cut))
created("full", lambda m, shape, **cut: m.full(shape, 2.5, **cut))
created("empty", lambda m, shape, **cut: m.empty(shape, **cut), right=like_floats)
row("ones_like", real)
row("zeros_like", real)
row("full_like", real, code=lambda m, x: m.full_like(x, 7.0))
row("empty_like", real, right=like_floats)
row("asarray", Given(between(-1, 1), numpy=True))
row("from_dlpack", Given(between(-1, 1), numpy=True))
row("tril", real, code=lambda m, x: m.tril(x, k=5))
row("triu", real, code=lambda m, x: m.triu(x, k=-5))

# --- reductions ------------------------------------------------------------------------------------------

# What along the first axis and in all is reduced, and to which precision.
REDUCTIONS: dict[tuple[Given, float], str] = {
    (real, 0.0): "max min argmax argmin",
    (real, 1e-10): "mean std var",
    (flags, 0.0): "all any count_nonzero",
    (whole, 0.0): "sum",
    (Given(nearly_one), 1e-10): "prod",
}


def along_and_in_all(name: str) -> Callable[..., Any]:
    return lambda m, x: (getattr(m, name)(x, axis=0), getattr(m, name)(x))


for (x, rtol), names in REDUCTIONS.items():
    for name in names.split():
        row(name, x, code=along_and_in_all(name), handed=True, rtol=rtol)

row("cumulative_sum", Given(integers(-50, 51), I8, line))
row("cumulative_prod", Given(nearly_one, F8, line), rtol=1e-9)
row("diff", real, code=lambda m, x: m.diff(x, axis=0, n=2), rtol=1e-14)

# --- moves --------------------------------------------------------------------------------------------------

row("expand_dims", real, code=lambda m, x: m.expand_dims(x, axis=1))
row("flip", real)
row("matrix_transpose", real)
row("moveaxis", real, code=lambda m, x: m.moveaxis(x, 0, 1))
row("permute_dims", real, code=lambda m, x: m.permute_dims(x, (1, 0)))
row("repeat", Given(between(-9, 9), F4), code=lambda m, x: m.repeat(x, 3, axis=1))
row("reshape", real, code=lambda m, x: m.reshape(x, (-1,)))
row("roll", real, code=lambda m, x: m.roll(x, (1234, -77), axis=(0, 1)))
row("tile", real, code=lambda m, x: m.tile(x, (2, 1)))
row("squeeze", Given(between(-9, 9), F8, lambda n: (grid(n)[0], 1, grid(n)[1])), code=lambda m, x: m.squeeze(x, axis=1))
row("concat", real, above, code=lambda m, *x: m.concat(x, axis=1))
row("stack", real, above, code=lambda m, *x: m.stack(x, axis=1))
row("unstack", Given(between(-9, 9), F8, lambda n: (3, n // 3 + 1)))

side = Given(between(-9, 9), F8, root)
half_side = Given(between(-9, 9), F8, lambda n: root(n // 2))
column = Given(between(-9, 9), F8, lambda n: (*root(n // 2), 1))
row("broadcast_to", side, code=lambda m, x: m.broadcast_to(x, (x.shape[0], x.shape[0])), expands=True)
row("broadcast_arrays", column, half_side, expands=True)
row("meshgrid", half_side, half_side, expands=True)

# --- sorting, searching, sets, indexing ---------------------------------------------------------------------

shuffled = Given(lambda i: i * 7919 % 20_000_003, F8, line)
repeated = Given(lambda i: i * 7919 % 10_007, I8, line)
below_1009 = Given(integers(0, 1009), I8, line)

row("sort", shuffled)
row("argsort", shuffled, code=lambda m, x: m.argsort(x, stable=True))
row("nonzero", Given(lambda i: mixed(i) % 11 == 0, BOOL, line))
row("searchsorted", Given(lambda i: i // 3, I8, line), below_1009)
row("isin", below_1009, Given(lambda i: i % 1000 * 2, I8, line))
for name in ("unique_all", "unique_counts", "unique_inverse"):
    row(name, repeated)
row("unique_values", repeated, expected=np.unique)  # NumPy's own gives them in any order

table = Given(between(-9, 9), F8, tall)
row(
    "take",
    table,
    Given(lambda i: i * 7919 % 1009, I8, lambda n: (tall(n)[0] // 2,)),
    code=lambda m, x, index: m.take(x, index, axis=0),
)
row(
    "take_along_axis",
    table,
    Given(lambda i, j: i * (j + 5) % 1009, I8, tall),
    code=lambda m, x, index: m.take_along_axis(x, index, axis=0),
)

# --- linear algebra ---------------------------------------------------------------------------------------------

matrices = Given(between(-1, 1), F8, stack)
small = Given(between(-0.1, 0.1), F8, stack)
regular = Given(lambda b, j, k: mixed(b, j, k) / 1009 + 30 * (j == k), F8, stack)
positive = Given(definite, F8, stack)
columns = Given(between(-1, 1), F8, lambda n: (*stack(n)[:1], 40, 4))
vectors = Given(between(-9, 9), F8, lambda n: (n // 3 + 1, 3))
others = Given(lambda i, j: (i * 5 + j * j) % 17 - 8, F8, vectors.shape)

# Of the namespace and of its extension.
for prefix in ("", "linalg."):
    row(f"{prefix}matmul", real, Given(between(-1, 1), F8, lambda n: grid(n)[::-1]), rtol=1e-12)
    row(f"{prefix}vecdot", real, above, local=True, rtol=1e-12)
    row(f"{prefix}matrix_transpose", real)
ENTRIES = ((0, 1), (0, 1))  # of stacks that are multiplied and summed
row("tensordot", matrices, matrices, code=lambda m, x, y: m.tensordot(x, y, axes=ENTRIES), rtol=1e-12)
row(
    "linalg.tensordot",
    matrices,
    matrices,
    code=lambda m, x, y: m.linalg.tensordot(x, y, axes=((0, 1),) * 2),
    rtol=1e-12,
)
row("linalg.cross", vectors, others, local=True, rtol=1e-12)
row("linalg.outer", side, side, expands=True)
row("linalg.diagonal", matrices, code=lambda m, x: m.linalg.diagonal(x, offset=1), local=True)
row("linalg.vector_norm", real, code=lambda m, x: m.linalg.vector_norm(x, axis=0), handed=True, rtol=1e-12)
row("linalg.matrix_power", small, code=lambda m, x: m.linalg.matrix_power(x, 5), local=True, rtol=1e-12)
row("linalg.solve", regular, columns, local=True, rtol=1e-12)
row("linalg.cholesky", positive, local=True, rtol=1e-12)
for name in ("trace", "matrix_norm", "matrix_rank"):
    row(f"linalg.{name}", matrices, local=True, rtol=1e-12)
for name in ("det", "inv", "pinv", "slogdet"):
    row(f"linalg.{name}", regular, local=True, rtol=1e-12)


def close(x: Any, y: Any) -> None:
    np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * np.abs(y).max(initial=0))


def qr_right(x: Any, q: Any, r: Any) -> None:
    close(q @ r, x)
    close(q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(x.shape[-1]), x.shape))
    assert not np.tril(r, -1).any()


def svd_right(x: Any, u: Any, s: Any, vh: Any) -> None:
    close(u * s[..., None, :] @ vh, x)
    close(s, np.linalg.svdvals(x))


def eig_right(x: Any, values: Any, vectors: Any) -> None:
    close(x @ vectors, vectors * values[..., None, :])
    close(np.abs(vectors**2).sum(-2), np.ones(values.shape))


def eigvals_right(x: Any, values: Any) -> None:
    close(np.sort_complex(values), np.sort_complex(np.linalg.eigvals(x)))


row("linalg.qr", matrices, right=qr_right, local=True)
row("linalg.svd", matrices, right=svd_right, local=True, kind=ONE_MATRIX)
row("linalg.svdvals", matrices, local=True, rtol=1e-12, kind=ONE_MATRIX)
row("linalg.eig", regular, right=eig_right, local=True, kind=ONE_MATRIX)
row("linalg.eigvals", regular, right=eigvals_right, local=True, kind=ONE_MATRIX)
row("linalg.eigh", positive, right=eig_right, local=True, kind=ONE_MATRIX)
row("linalg.eigvalsh", positive, local=True, rtol=1e-12, kind=ONE_MATRIX)

# --- Fourier transforms ---------------------------------------------------------------------------------------------


def power_of_two(n: int) -> Shape:
    """A line that goes into factors, of at least so many elements."""
    return (1 << (n - 1).bit_length(),)


def half_of_one(n: int) -> Shape:
    """Half a Hermitian line of such a length, with both ends."""
    return (power_of_two(n)[0] + 1,)


TRANSFORMS = {
    Given(of_the_plane, C16, power_of_two): "fft ifft",
    Given(of_the_plane, C16, half_of_one): "hfft irfft",
    Given(between(-1, 1), F8, power_of_two): "rfft ihfft",
    Given(of_the_plane, C16): "fftn ifftn irfftn",
    real: "rfftn fftshift ifftshift",
}
for x, names in TRANSFORMS.items():
    for name in names.split():
        row(f"fft.{name}", x, rtol=0.0 if "shift" in name else 1e-12)

# --- no data ------------------------------------------------------------------------------------------------------


def without_data(name: str, *arguments: Any, holds: Callable[[Any], Any]) -> None:
    """A function of dtypes, shapes or the library, and what holds of its result."""

    def call() -> Any:
        owner = xp.__array_namespace_info__() if name.startswith("info.") else xp
        return getattr(owner, name.removeprefix("info."))(*arguments)

    ROWS[name] = Row(call, expected=holds, kind=NO_DATA)


without_data("broadcast_shapes", (10**9, 1), (10**9,), holds=lambda shape: shape == (10**9, 10**9))
without_data("can_cast", xp.int8, xp.int16, holds=lambda yes: yes is True)
without_data("finfo", xp.float32, holds=lambda info: info.bits == 32)
without_data("iinfo", xp.int8, holds=lambda info: info.max == 127)
without_data("isdtype", xp.int8, "integral", holds=lambda yes: yes is True)
without_data("result_type", xp.int8, xp.uint8, holds=lambda dtype: dtype == xp.int16)
without_data("__array_namespace_info__", holds=lambda info: callable(info.dtypes))
without_data("info.capabilities", holds=lambda found: found["boolean indexing"] is True)
without_data("info.default_device", holds=lambda device: device in xp.__array_namespace_info__().devices())
without_data("info.default_dtypes", holds=lambda found: found["integral"] == xp.int64)
without_data("info.devices", holds=len)
without_data("info.dtypes", holds=lambda found: found["bool"] == xp.bool)
