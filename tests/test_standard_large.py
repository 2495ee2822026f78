"""Functions of the standard on stored arrays of eight times the memory: right, within it, and in few passes.

Each row of the table is one function: its data, an eighth of which is `device_memory` and a quarter `host_memory`,
what is written of it to stores, and how far that is from right, in units of the dtype's epsilon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.measure import MIB

import jaxchunk as jc
import jaxchunk.array_api as xp

Values = np.ndarray[Any, Any]
Chunks = tuple[int, ...]
EPS = float(np.finfo("float64").eps)
norm = np.linalg.norm


@dataclass(frozen=True)
class Case:
    """A function on data of some size.

    Attributes
    ----------
    given
        Arrays, with their chunks; stored without compression.
    call
        Takes them as arrays of the library and gives what is to be stored.
    error
        Of what was stored: in epsilons of what the function's sums are made of; 0 or infinity where it has to be exact.
    most
        The largest error that there may be.
    reads, writes
        How often the data may be read and written: from stores and spilled values, and to them. None for any number.
    chunks
        Of the results; by default those of the first array.
    """

    given: Sequence[tuple[Values, Chunks]]
    call: Callable[..., Sequence[xp.Array]]
    error: Callable[..., float]
    most: float = 0.0
    reads: float | None = None
    writes: float | None = None
    chunks: Chunks | None = None

    @property
    def nbytes(self) -> int:
        return sum(values.nbytes for values, _ in self.given)


def run(case: Case, path: Path, ratio: float = 8) -> dict[str, Any]:
    """What a case took with so many times as many data as there is memory, from the library's counters; its error."""
    arrays = []
    for number, (values, chunks) in enumerate(case.given):
        zarr.create_array(path / f"x{number}.zarr", data=values, chunks=chunks, compressors=None)
        arrays.append(jc.from_zarr(path / f"x{number}.zarr"))
    budget = int(case.nbytes / ratio)
    with jc.config.set(device_memory=budget, host_memory=2 * budget), jc.profile() as profile:
        results = list(case.call(*arrays))
        writes: list[Any] = [
            jc.to_zarr(x, path / f"y{number}.zarr", compute=False, chunks=_fitting(case.chunks or case.given[0][1], x))
            for number, x in enumerate(results)
        ]
        plan = jc.plan(*writes)
        plan.run()
    got = [zarr.open_array(path / f"y{number}.zarr", mode="r")[...] for number in range(len(results))]
    figures = profile.to_dict()
    return {
        **figures,
        "budget": budget,
        "reads": (figures["bytes_read"] + figures["spill_read_bytes"]) / case.nbytes,
        "writes": (figures["bytes_written"] + figures["spilled_bytes"]) / case.nbytes,
        "peak_disk_bytes": plan.to_dict()["peak_disk_bytes"],
        "error": case.error(*(values for values, _ in case.given), *got),
    }


def check(case: Case, figures: dict[str, Any]) -> None:
    held, reserved, planned = (figures[f"{k}_peak_bytes"] for k in ("ledger", "reserved", "planned"))
    assert 0 < held <= reserved <= planned <= figures["budget"]
    assert not any(stage["grown_bytes"] for stage in figures["stages"]), "the memory model was too small"
    assert figures["error"] <= case.most
    assert case.reads is None or figures["reads"] <= case.reads
    assert case.writes is None or figures["writes"] <= case.writes


def _fitting(chunks: Chunks, x: xp.Array) -> Chunks:
    """Chunks for an array that may have fewer axes, or shorter ones."""
    return tuple(max(1, min(c, n)) for c, n in zip((*chunks, *chunks)[: x.ndim], x.shape, strict=True))


def exact(expected: Callable[..., Any]) -> Callable[..., float]:
    """The error of what must be as expected to the last bit."""

    def error(*arrays: Values) -> float:
        *given, got = arrays
        wanted = expected(*given)
        return 0.0 if got.dtype == wanted.dtype and np.array_equal(got, wanted) else np.inf

    return error


# --- lines ---------------------------------------------------------------------------------------------


def line(nbytes: int, dtype: str = "float64", distinct: int | None = None) -> tuple[Values, Chunks]:
    """A line of random values, in chunks of a 1024th, at least 8 KiB."""
    rng = np.random.default_rng(nbytes)
    n = nbytes // np.dtype(dtype).itemsize
    values = rng.standard_normal(n) if distinct is None else rng.integers(0, distinct, n)
    return values.astype(dtype), (max(1024, n // 1024),)


def sort(nbytes: int, dtype: str = "float64", distinct: int | None = None) -> Case:
    return Case([line(nbytes, dtype, distinct)], lambda x: [xp.sort(x)], exact(np.sort))


def sort_in_two_passes(nbytes: int) -> Case:
    """Runs are read from the source and written; once more each with the result; and a little to find the splits."""
    return Case([line(nbytes)], lambda x: [xp.sort(x)], exact(np.sort), reads=2.2, writes=2)


def argsort(nbytes: int, dtype: str = "float32", distinct: int | None = None) -> Case:
    values = line(nbytes, dtype, distinct)
    return Case([values], lambda x: [xp.argsort(x)], exact(lambda x: np.argsort(x, kind="stable")))


def unique_values(nbytes: int, distinct: int = 10_000_000) -> Case:
    call = lambda x: [xp.unique_values(x)]  # noqa: E731
    return Case([line(nbytes, "int64", distinct)], call, exact(np.unique), chunks=(4096,))


def searchsorted(nbytes: int) -> Case:
    """Half of the data are sorted, and the other half is looked for in it."""
    (sorted_values, chunks), (sought, _) = line(nbytes // 2), line(nbytes // 2 + 8)
    sorted_values = np.sort(sorted_values)
    given = [(sorted_values, chunks), (sought[:-1], chunks)]
    return Case(given, lambda a, v: [xp.searchsorted(a, v)], exact(np.searchsorted))


def mask(nbytes: int) -> Case:
    return Case([line(nbytes)], lambda x: [x[x > 0.5]], exact(lambda x: x[x > 0.5]), chunks=(4096,))


def masked_sum(nbytes: int) -> Case:
    """The data are read once, and nothing is counted before."""

    def error(x: Values, total: Values) -> float:
        chosen = x[x > 0.5]
        return float(abs(total - chosen.sum()) / EPS / chosen.sum())

    return Case([line(nbytes)], lambda x: [xp.sum(x[x > 0.5])], error, most=100, reads=1)


def nonzero(nbytes: int) -> Case:
    call = lambda x: [xp.nonzero(x > 2)[0]]  # noqa: E731
    return Case([line(nbytes)], call, exact(lambda x: np.flatnonzero(x > 2)), chunks=(4096,))


def take(nbytes: int) -> Case:
    """Rows in any order, at positions that are stored as well."""
    rng = np.random.default_rng(0)
    rows = nbytes // 8 // 256
    values, index = rng.standard_normal((rows, 256)), rng.integers(-rows, rows, rows)
    given = [(values, (max(16, rows // 1024), 256)), (index, (1000,))]
    return Case(given, lambda x, i: [xp.take(x, i, axis=0)], exact(lambda x, i: x[i]), chunks=(16, 256))


def cumulative_sum(nbytes: int, dtype: str = "float64") -> Case:
    def error(x: Values, got: Values) -> float:
        wanted = np.cumsum(x.astype(np.longdouble))
        assert got.dtype == x.dtype
        # Of blockwise sums the error grows with the root of the length, of the magnitudes added.
        scale = np.sqrt(np.cumsum(x.astype(np.float64) ** 2)) * np.log2(x.size) + np.abs(wanted)
        return float(np.max(np.abs(got - wanted) / scale) / np.finfo(dtype).eps)

    return Case([line(nbytes, dtype)], lambda x: [xp.cumulative_sum(x)], error, most=8)


def assignment(nbytes: int) -> Case:
    rng = np.random.default_rng(1)
    values, chunks = line(nbytes)
    index, new = rng.integers(0, values.size, 20_000), rng.standard_normal(20_000)

    def call(x: xp.Array) -> Sequence[xp.Array]:
        x[x < 0] = 0.0
        x[::3] = -1.0
        x[xp.asarray(index[: nbytes // 2048])] = xp.asarray(new[: nbytes // 2048])
        return [x]

    def wanted(x: Values) -> Values:
        x = np.where(x < 0, 0, x)
        x[::3] = -1
        x[index[: nbytes // 2048]] = new[: nbytes // 2048]
        return x

    return Case([(values, chunks)], call, exact(wanted))


# --- Fourier transforms ----------------------------------------------------------------------------------


def complex_values(shape: tuple[int, ...]) -> Values:
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def fft(nbytes: int, chunks: int | None = None) -> Case:
    """A line by four steps: columns are read where they are stored, and what is written last are whole chunks."""
    values = complex_values((nbytes // 16,))
    return Case(
        [(values, (chunks or values.size // 256,))],
        lambda x: [xp.fft.fft(x)],
        lambda x, got: float(norm(got - np.fft.fft(x)) / EPS / norm(got)),
        most=20,
        reads=3,
        writes=3,
    )


def fft_of_two_axes(nbytes: int) -> Case:
    side = int((nbytes / 16) ** 0.5)
    values = complex_values((side, side))
    return Case(
        [(values, (side // 16, side // 16))],
        lambda x: [xp.fft.fftn(x)],
        lambda x, got: float(norm(got - np.fft.fftn(x)) / EPS / norm(got)),
        most=20,
    )


# --- matrices --------------------------------------------------------------------------------------------


def square(nbytes: int) -> tuple[Values, Chunks]:
    """A square matrix in some hundred chunks."""
    n = int((nbytes / 8) ** 0.5)
    chunk = max(32, 2 ** int(np.log2(n / 11)))
    return np.random.default_rng(n).standard_normal((n, n)), (chunk, chunk)


def matmul(nbytes: int) -> Case:
    (a, chunks), (b, _) = square(nbytes // 2), square(nbytes // 2)
    return Case(
        [(a, chunks), (b[::-1], chunks)],
        lambda x, y: [xp.matmul(x, y)],
        lambda x, y, got: float(norm(got - x @ y) / EPS / norm(x) / norm(y)),
        most=1,
    )


def cholesky(nbytes: int) -> Case:
    a, chunks = square(nbytes)
    a = a @ a.T / len(a) + np.eye(len(a))

    def error(x: Values, got: Values) -> float:
        assert not np.triu(got, 1).any()
        return float(norm(got @ got.T - x) / EPS / norm(x))

    return Case([(a, chunks)], lambda x: [xp.linalg.cholesky(x)], error, most=10)


def solve(nbytes: int) -> Case:
    a, chunks = square(nbytes)
    b = np.random.default_rng(1).standard_normal((len(a), 3))
    return Case(
        [(a, chunks)],
        lambda x: [xp.linalg.solve(x, xp.asarray(b))],
        lambda x, got: float(norm(x @ got - b) / EPS / norm(x) / norm(got)),
        most=10,
    )


def inv(nbytes: int) -> Case:
    return Case(
        [square(nbytes)],
        lambda x: [xp.linalg.inv(x)],
        lambda x, got: float(norm(x @ got - np.eye(len(x))) / EPS / norm(x) / norm(got)),
        most=10,
    )


def orthonormal(q: Values) -> float:
    return float(norm(q.T @ q - np.eye(q.shape[1])) / EPS / q.shape[1])


def qr(nbytes: int) -> Case:
    def error(x: Values, q: Values, r: Values) -> float:
        assert not np.tril(r, -1).any()
        return max(orthonormal(q), float(norm(q @ r - x) / EPS / norm(x)))

    # LAPACK's own has 5.
    return Case([square(nbytes)], xp.linalg.qr, error, most=20)


def svd(nbytes: int) -> Case:
    """Of a tall matrix."""
    x = np.random.default_rng(2).standard_normal((nbytes // 8 // 32, 32))

    def error(x: Values, u: Values, s: Values, vh: Values) -> float:
        assert np.all(np.diff(s) <= 0)
        return max(orthonormal(u), orthonormal(vh.T), float(norm((u * s) @ vh - x) / EPS / norm(x)))

    call = lambda x: xp.linalg.svd(x, full_matrices=False)  # noqa: E731
    return Case([(x, (len(x) // 128, 32))], call, error, most=10)


# --- the table -------------------------------------------------------------------------------------------

# At an eighth of the data these have as many panels at any size, and take a minute: short runs have fewer of them.
PANELED = ("solve", "inv", "qr")
# Each with the MiB of its data in a short run, and in a long one.
ROWS: dict[str, tuple[Callable[[int], Case], float, float]] = {
    "sort": (sort, 16, 256),
    "sort of small integers": (lambda nbytes: sort(nbytes, "int16", 30_000), 4, 256),
    "sort in two passes": (sort_in_two_passes, 64, 256),
    "argsort": (argsort, 8, 128),
    "argsort with ties": (lambda nbytes: argsort(nbytes, "int64", 100), 8, 128),
    "unique_values": (unique_values, 8, 256),
    "unique_values, few": (lambda nbytes: unique_values(nbytes, 7), 8, 256),
    "searchsorted": (searchsorted, 8, 128),
    "cumulative_sum": (cumulative_sum, 8, 256),
    "cumulative_sum of float32": (lambda nbytes: cumulative_sum(nbytes, "float32"), 8, 256),
    "mask": (mask, 8, 256),
    "masked sum": (masked_sum, 8, 256),
    "nonzero": (nonzero, 8, 256),
    "take": (take, 8, 256),
    "assignment": (assignment, 8, 256),
    "fft": (fft, 64, 256),
    "fft of long chunks": (lambda nbytes: fft(nbytes, nbytes // 1024), 64, 256),
    "fft of two axes": (fft_of_two_axes, 16, 256),
    "matmul": (matmul, 8, 128),
    "cholesky": (cholesky, 8, 64),
    "solve": (solve, 0.3125, 64),
    "inv": (inv, 0.3125, 64),
    "qr": (qr, 0.3125, 64),
    "svd": (svd, 8, 256),
}


@pytest.mark.parametrize("name", ROWS)
def test_at_an_eighth_of_the_data(tmp_path: Path, name: str) -> None:
    make, short, _ = ROWS[name]
    case = make(int(short * MIB))
    check(case, run(case, tmp_path, 0.3 if name in PANELED else 8))


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_at_an_eighth_of_much_data(tmp_path: Path, name: str) -> None:
    make, _, long = ROWS[name]
    case = make(int(long * MIB))
    check(case, run(case, tmp_path))


# --- odd sizes -------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, tuple[Callable[[xp.Array], xp.Array], Callable[[Values], Values]]] = {
    "sort": (lambda x: xp.sort(x), np.sort),
    "argsort": (lambda x: xp.argsort(x), lambda x: np.argsort(x, kind="stable")),
    "cumulative_sum": (lambda x: xp.cumulative_sum(x), np.cumsum),
    "mask": (lambda x: x[x > 0], lambda x: x[x > 0]),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("chunk", [999, 65_536])
def test_chunks_that_suit_nobody(tmp_path: Path, name: str, chunk: int) -> None:
    values = np.random.default_rng(2).integers(-1000, 1000, 2**19).astype(np.float64)
    call, wanted = FUNCTIONS[name]
    case = Case([(values, (chunk,))], lambda x: [call(x)[::101]], exact(lambda x: wanted(x)[::101]))
    check(case, run(case, tmp_path))
