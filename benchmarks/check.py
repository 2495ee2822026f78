"""Are the results right? Each row against float64 NumPy, band by band, or in random windows of what was written.

References that need all of the input are computed once and kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from benchmarks import data
from benchmarks.rows import Row

Array = npt.NDArray[Any]
WINDOW = 24
"""Side of a window, in elements."""

KNOWN = {"black_scholes": 22.2352}
"""Values at full size that the distribution alone decides, to the digits given."""


class _Numpy:
    """The library the references are computed with."""

    xp = np

    def rechunk(self, x: Array, chunks: tuple[int, int]) -> Array:
        return x


def problem(row: Row, cache: Path, scale: int, inputs: list[Path], result: Path) -> str | None:
    """What is wrong with a result; None where nothing is."""
    if row.stored is None:
        got, want = np.load(result), _reference(row, data.folder(cache, scale), inputs)
        if row.name in KNOWN and scale == 1 and abs(float(got) - KNOWN[row.name]) > 5e-3:
            return f"wrong value: {float(got):.6g}, known to be {KNOWN[row.name]}"
        return _difference(row, got, want)
    written = zarr.open_array(result, mode="r")
    source = zarr.open_array(inputs[0], mode="r")
    chunk = data.INPUTS[row.inputs[0]].scaled(scale).chunk
    if written.shape != source.shape or written.chunks != row.stored(source.shape[0], chunk):
        return f"wrong array: shape {written.shape} in chunks {written.chunks}"
    rng = np.random.default_rng()
    for _ in range(3):
        at = [int(rng.integers(0, n - WINDOW)) for n in written.shape]
        rows, columns = (slice(start, start + WINDOW) for start in at)
        wrong = _difference(row, written[rows, columns], WINDOWS[row.name](inputs, rows, columns))
        if wrong:
            return f"{wrong}, in the window at {at}"
    return None


def _difference(row: Row, got: Any, want: Array) -> str | None:
    got = np.asarray(got)
    if got.shape != want.shape:
        return f"wrong shape: {got.shape} for {want.shape}"
    excess = np.abs(got - want) - (row.atol + row.rtol * np.abs(want))
    # Written so that a NaN in the result is a difference.
    if not np.all(excess <= 0):
        return f"wrong values: off by {np.max(np.abs(got - want)):.3g}"
    return None


def _reference(row: Row, folder: Path, inputs: list[Path]) -> Array:
    file = folder / f"reference-{row.name}.npy"
    if not file.exists():
        np.save(file, _power(inputs) if row.name == "power_iteration" else _mean_of_bands(row, inputs))
    value: Array = np.load(file)
    return value


def _mean_of_bands(row: Row, inputs: list[Path]) -> Array:
    """Means over all rows are the means over equal bands of rows, averaged."""
    parts = [np.asarray(row.body(_Numpy(), *band)) for band in data.bands(inputs)]
    return np.asarray(np.mean(parts, axis=0))


def _power(inputs: list[Path]) -> Array:
    a = np.asarray(zarr.open_array(inputs[0], mode="r")[...])
    x = np.ones((a.shape[0], 1))
    norm = 0.0
    for _ in range(10):
        # Rows at a time: a float64 copy of all of it would be the largest thing here.
        y = np.concatenate([a[i : i + 512].astype(np.float64) @ x for i in range(0, a.shape[0], 512)])
        norm = float(np.sqrt(np.sum(y * y)))
        x = y / norm
    return np.asarray(norm)


def _standardise(inputs: list[Path], rows: slice, columns: slice) -> Array:
    values = np.asarray(zarr.open_array(inputs[0], mode="r")[:, columns], dtype=np.float64)
    return np.asarray((values[rows] - values.mean(axis=0)) / values.std(axis=0))


def _matmul(inputs: list[Path], rows: slice, columns: slice) -> Array:
    a, b = (zarr.open_array(path, mode="r") for path in inputs)
    return np.asarray(a[rows, :], dtype=np.float64) @ np.asarray(b[:, columns], dtype=np.float64)


def _same(inputs: list[Path], rows: slice, columns: slice) -> Array:
    return np.asarray(zarr.open_array(inputs[0], mode="r")[rows, columns])


def _fft2(inputs: list[Path], rows: slice, columns: slice) -> Array:
    """The window's rows and columns of the transform's matrix around the whole input."""
    side = zarr.open_array(inputs[0], mode="r").shape[0]

    def factors(frequencies: slice) -> npt.NDArray[np.complex128]:
        steps = np.outer(np.arange(frequencies.start, frequencies.stop), np.arange(side)) % side
        return np.exp(-2j * np.pi * steps / side)

    left, right = factors(rows), factors(columns).T
    total = np.zeros((WINDOW, WINDOW), dtype=np.complex128)
    start = 0
    for (band,) in data.bands(inputs):
        total += left[:, start : start + len(band)] @ (band @ right)
        start += len(band)
    return total


WINDOWS: dict[str, Callable[[list[Path], slice, slice], Array]] = {
    "standardise": _standardise,
    "matmul": _matmul,
    "rechunk": _same,
    "fft2": _fft2,
}
