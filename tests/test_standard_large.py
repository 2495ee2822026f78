"""Functions of the standard on stored arrays many times the budget: right, within it, and in few passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.run.values import DiskValue

Values = np.ndarray[Any, Any]
# Of the data, and of the budget.
SIZES = [(16 * MIB, 2 * MIB), pytest.param(256 * MIB, 32 * MIB, marks=pytest.mark.long)]


@pytest.fixture
def spill_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each read of a spilled value."""
    reads: list[int] = []
    read = DiskValue._read

    def counted(self: DiskValue, out: Values, offset: int) -> None:
        reads.append(out.nbytes)
        read(self, out, offset)

    monkeypatch.setattr(DiskValue, "_read", counted)
    return reads


def store(path: Path, values: Values, chunks: tuple[int, ...]) -> xp.Array:
    zarr.create_array(path, data=values, chunks=chunks, compressors=None)
    return jc.from_zarr(path)


def line(path: Path, nbytes: int, dtype: str = "float64", distinct: int | None = None) -> tuple[Values, xp.Array]:
    """A stored line of random values, in chunks of a 1024th, at least 8 KiB."""
    rng = np.random.default_rng(nbytes)
    n = nbytes // np.dtype(dtype).itemsize
    values = rng.standard_normal(n) if distinct is None else rng.integers(0, distinct, n)
    values = values.astype(dtype)
    return values, store(path / "x.zarr", values, (max(1024, n // 1024),))


class Within:
    """A budget; what ran in it is checked against it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._budget, self._profile = budget(nbytes), jc.profile()

    def __enter__(self) -> Within:
        self._budget.__enter__()
        self._profile.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._profile.__exit__(*error)
        self._budget.__exit__(*error)
        if error[0] is None:
            held, reserved, planned = (self.figures[f"{k}_peak_bytes"] for k in ("ledger", "reserved", "planned"))
            assert 0 < held <= reserved <= planned <= self.nbytes
            assert not any(stage["grown_bytes"] for stage in self.figures["stages"]), "the memory model was too small"

    @property
    def figures(self) -> dict[str, Any]:
        return self._profile.to_dict()


def written(x: xp.Array, path: Path, chunks: tuple[int, ...]) -> Values:
    """An array by way of a store."""
    jc.to_zarr(x, path / "y.zarr", chunks=chunks)
    return np.asarray(zarr.open_array(path / "y.zarr", mode="r")[...])


# --- sorting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
@pytest.mark.parametrize("dtype", ["float64", "int16"])
def test_sort(tmp_path: Path, dtype: str, nbytes: int, room: int) -> None:
    values, x = line(tmp_path, nbytes, dtype, distinct=None if dtype[0] == "f" else 30_000)
    with Within(room):
        got = written(xp.sort(x), tmp_path, x.chunksize)
    np.testing.assert_array_equal(got, np.sort(values))


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
@pytest.mark.parametrize(("dtype", "distinct"), [("float32", None), ("int64", 100)])
def test_argsort(tmp_path: Path, dtype: str, distinct: int | None, nbytes: int, room: int) -> None:
    values, x = line(tmp_path, nbytes, dtype, distinct)
    with Within(room):
        got = written(xp.argsort(x), tmp_path, x.chunksize)
    np.testing.assert_array_equal(got, np.argsort(values, kind="stable"))


@pytest.mark.parametrize(
    ("nbytes", "room"),
    [
        (64 * MIB, 8 * MIB),
        pytest.param(128 * MIB, 16 * MIB, marks=pytest.mark.long),
        pytest.param(512 * MIB, 64 * MIB, marks=pytest.mark.long),
    ],
)
def test_a_sort_reads_and_writes_all_twice(tmp_path: Path, spill_reads: list[int], nbytes: int, room: int) -> None:
    """Runs are read from the source and written; once more each with the result; and a little to find the splits."""
    values, x = line(tmp_path, nbytes)
    with Within(room) as run:
        got = written(xp.sort(x), tmp_path, x.chunksize)
    np.testing.assert_array_equal(got, np.sort(values))
    figures = run.figures
    assert figures["bytes_read"] + sum(spill_reads) <= 2.2 * nbytes
    assert figures["bytes_written"] + figures["spilled_bytes"] <= 2 * nbytes


# --- what depends on values --------------------------------------------------------------------------


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
@pytest.mark.parametrize("distinct", [7, 10_000_000])
def test_unique_values(tmp_path: Path, distinct: int, nbytes: int, room: int) -> None:
    values, x = line(tmp_path, nbytes, "int64", distinct)
    expected = np.unique(values)
    with Within(room):
        found = xp.unique_values(x)
        assert found.shape == expected.shape
        got = written(found, tmp_path, (4096,))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
def test_nonzero_and_masks(tmp_path: Path, nbytes: int, room: int) -> None:
    values, x = line(tmp_path, nbytes)
    with Within(room) as run:
        chosen = x[x > 0.5]
        assert float(xp.sum(chosen)) == pytest.approx(values[values > 0.5].sum(), rel=1e-9)
        assert run.figures["bytes_read"] == nbytes  # once, with nothing counted before
        got = written(chosen, tmp_path, (4096,))
    np.testing.assert_array_equal(got, values[values > 0.5])
    with Within(room):
        (where,) = xp.nonzero(x > 2)
        assert where.shape == (np.count_nonzero(values > 2),)
        np.testing.assert_array_equal(where[::5].compute(), np.flatnonzero(values > 2)[::5])


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
def test_take(tmp_path: Path, nbytes: int, room: int) -> None:
    """Rows in any order, at positions that are stored as well."""
    rng = np.random.default_rng(0)
    rows = nbytes // 8 // 256
    values = rng.standard_normal((rows, 256))
    x = store(tmp_path / "x.zarr", values, (max(16, rows // 1024), 256))
    index = rng.integers(-rows, rows, rows)
    i = store(tmp_path / "i.zarr", index, (1000,))
    with Within(room):
        got = written(xp.take(x, i, axis=0), tmp_path, (16, 256))
    np.testing.assert_array_equal(got, values[index])


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
def test_assignment(tmp_path: Path, nbytes: int, room: int) -> None:
    values, x = line(tmp_path, nbytes)
    rng = np.random.default_rng(1)
    index, new = rng.integers(0, values.size, 20_000), rng.standard_normal(20_000)
    with Within(2 * room):
        x[x < 0] = 0.0
        x[::3] = -1.0
        x[xp.asarray(index)] = xp.asarray(new)
        got = written(x, tmp_path, x.chunksize)
    values[values < 0] = 0
    values[::3] = -1
    values[index] = new
    np.testing.assert_array_equal(got, values)


# --- sums --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_cumulative_sum(tmp_path: Path, dtype: str, nbytes: int, room: int) -> None:
    values, x = line(tmp_path, nbytes, dtype)
    with Within(room):
        got = written(xp.cumulative_sum(x), tmp_path, x.chunksize)
    eps = float(np.finfo(dtype).eps)
    exact = np.cumsum(values.astype(np.longdouble))
    # Of blockwise sums the error grows with the root of the length, of the magnitudes added.
    bound = 8 * eps * np.sqrt(np.cumsum(values.astype(np.float64) ** 2)) * np.log2(values.size)
    assert got.dtype == values.dtype
    assert np.all(np.abs(got - exact) <= bound + 8 * eps * np.abs(exact))


@pytest.mark.parametrize(("nbytes", "room"), SIZES)
def test_matmul(tmp_path: Path, nbytes: int, room: int) -> None:
    n = int((nbytes / 2 / 8) ** 0.5)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (2, n, n)).astype(np.float64)
    chunk = max(64, n // 16)
    x = store(tmp_path / "x.zarr", a, (chunk, chunk))
    y = store(tmp_path / "b.zarr", b, (chunk, chunk))
    with Within(room):
        got = written(xp.matmul(x, y), tmp_path, (chunk, chunk))
    np.testing.assert_array_equal(got, a @ b)


FUNCTIONS: dict[str, Callable[[xp.Array], xp.Array]] = {
    "sort": lambda x: xp.sort(x),
    "argsort": lambda x: xp.argsort(x),
    "cumulative_sum": lambda x: xp.cumulative_sum(x),
    "mask": lambda x: x[x > 0],
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.parametrize("chunk", [999, 65_536])
def test_chunks_that_suit_nobody(tmp_path: Path, name: str, chunk: int) -> None:
    values = np.random.default_rng(2).integers(-1000, 1000, 2**19).astype(np.float64)
    expected = {
        "sort": lambda: np.sort(values),
        "argsort": lambda: np.argsort(values, kind="stable"),
        "cumulative_sum": lambda: np.cumsum(values),
        "mask": lambda: values[values > 0],
    }[name]()
    x = store(tmp_path / "x.zarr", values, (chunk,))
    with Within(MIB):
        got = FUNCTIONS[name](x)
        np.testing.assert_array_equal(got[::101].compute(), expected[::101])
