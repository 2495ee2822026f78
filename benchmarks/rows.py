"""The work: each row written once, against whatever namespace a peer brings.

A body takes the peer, for its namespace `xp` and its `rechunk`, and the opened inputs. It returns
lazy or finished values, which the peer then computes (`value`) or writes as Zarr (`stored`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Library(Protocol):
    """What a body may use of a peer."""

    @property
    def xp(self) -> Any: ...

    def rechunk(self, x: Any, chunks: tuple[int, int]) -> Any: ...


Body = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """One piece of work: its body, inputs, tolerances and, where it writes, the chunks it writes."""

    name: str
    text: str
    inputs: tuple[str, ...]
    body: Body
    stored: Callable[[int, int], tuple[int, int]] | None = None
    """(side, chunk) of the input → chunks of the Zarr array written; None: the result is a value."""
    dtype: str = "float32"
    """Of what is written."""
    moves: bool = False
    """What is written is the input, in other chunks."""
    needs: str | None = None
    """A name the namespace must have; peers without it are left out of this row."""
    asks: bool = False
    """The body computes values on the way, so it cannot be traced as a whole."""
    rtol: float = 1e-4
    atol: float = 1e-4


def chain(lib: Library, u: Any, v: Any) -> Any:
    xp = lib.xp
    return xp.mean(xp.exp(-xp.abs(xp.sin(u) * 2 + v * v - u * v)) + xp.sqrt(xp.abs(u)))


def black_scholes(lib: Library, u: Any, v: Any) -> Any:
    """Mean price of a European call plus that of a put, over made-up spots, strikes and times."""
    xp = lib.xp
    rate = 0.03
    spot, strike = 50 + 30 * xp.abs(u), 45 + 30 * xp.abs(v)
    time, sigma = 0.5 + 0.1 * v * v, 0.2 + 0.02 * u * u
    spread = sigma * xp.sqrt(time)
    d1 = (xp.log(spot / strike) + (rate + sigma * sigma / 2) * time) / spread
    d2 = d1 - spread

    def normal_cdf(x: Any) -> Any:
        return 0.5 * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    discounted = strike * xp.exp(-rate * time)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return xp.mean(call) + xp.mean(put)


def quad_means(lib: Library, u: Any, v: Any) -> Any:
    xp = lib.xp
    return xp.mean(u * u + v * v, axis=0) + xp.mean(u * v, axis=0)


def standardise(lib: Library, u: Any) -> Any:
    return (u - lib.xp.mean(u, axis=0)) / lib.xp.std(u, axis=0)


def matmul(lib: Library, a: Any, b: Any) -> Any:
    return lib.xp.matmul(a, b)


def rechunk(lib: Library, u: Any) -> Any:
    return lib.rechunk(u, (u.shape[0] // 64, u.shape[1]))


def fft2(lib: Library, a: Any) -> Any:
    rows, columns = a.shape
    along_rows = lib.xp.fft.fft(lib.rechunk(a, (rows // 32, columns)), axis=1)
    return lib.xp.fft.fft(lib.rechunk(along_rows, (rows, columns // 32)), axis=0)


def small_chunks(lib: Library, s: Any) -> Any:
    return lib.xp.mean(s * 2 + 1, axis=0)


def power_iteration(lib: Library, a: Any) -> float:
    """Plain NumPy code: the norm is asked for at every step."""
    xp = lib.xp
    x = xp.ones((a.shape[0], 1), dtype=xp.float32)
    norm = 0.0
    for _ in range(10):
        y = xp.matmul(a, x)
        norm = float(xp.sqrt(xp.sum(y * y)))
        x = y / norm
    return norm


def as_stored(side: int, chunk: int) -> tuple[int, int]:
    return chunk, chunk


ROWS = {
    row.name: row
    for row in (
        Row("chain", "`mean(exp(-abs(sin(u)*2 + v*v - u*v)) + sqrt(abs(u)))`", ("u", "v"), chain),
        Row("black_scholes", "Black–Scholes, two means", ("u", "v"), black_scholes),
        Row("quad_means", "`mean(u*u + v*v, 0) + mean(u*v, 0)`", ("u", "v"), quad_means),
        Row("standardise", "`(u - mean(u, 0)) / std(u, 0)` → Zarr", ("u",), standardise, as_stored),
        Row("matmul", "`a @ b` → Zarr", ("a", "b"), matmul, as_stored, atol=5e-2),
        Row(
            "rechunk",
            "rechunk to (256, all) → Zarr",
            ("u",),
            rechunk,
            lambda side, chunk: (side // 64, side),
            moves=True,
            rtol=0,
            atol=0,
        ),
        Row(
            "fft2",
            "2-D FFT by two rechunks → Zarr",
            ("a",),
            fft2,
            lambda side, chunk: (side, side // 32),
            dtype="complex64",
            needs="fft",
            atol=0.5,
        ),
        Row("small_chunks", "`mean(s*2 + 1, 0)`, chunks of 64 KiB", ("s",), small_chunks),
        Row("power_iteration", "power iteration, 10 × `float(norm)`", ("a",), power_iteration, asks=True),
    )
}
