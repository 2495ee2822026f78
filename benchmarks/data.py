"""The inputs, made once and kept: a few GiB of float32 in compressed Zarr."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import zarr


@dataclass(frozen=True)
class Input:
    """A square array of normal deviates: `side` and `chunk` in elements, `decimals` kept (None: all)."""

    name: str
    side: int
    chunk: int
    seed: int
    decimals: int | None = None
    keep_chunk: bool = False
    """Small chunks are the point of this one: a scaled-down copy has fewer of them, not smaller ones."""

    def scaled(self, scale: int) -> Input:
        chunk = self.chunk if self.keep_chunk else max(1, self.chunk // scale)
        return Input(self.name, self.side // scale, chunk, self.seed, self.decimals, self.keep_chunk)


INPUTS = {
    given.name: given
    for given in (
        Input("u", 16384, 2048, seed=1, decimals=2),
        Input("v", 16384, 2048, seed=2, decimals=2),
        Input("a", 8192, 2048, seed=3),
        Input("b", 8192, 2048, seed=4),
        Input("s", 8192, 128, seed=5, decimals=2, keep_chunk=True),
    )
}


def folder(cache: Path, scale: int) -> Path:
    """Where the inputs of one scale lie."""
    return cache / f"scale-{scale}"


def make(cache: Path, scale: int, names: set[str]) -> dict[str, Path]:
    """Write the inputs that aren't there yet; returns the path of each."""
    paths = {}
    for name in sorted(names):
        path = paths[name] = folder(cache, scale) / f"{name}.zarr"
        if not path.exists():
            print(f"making {path}", flush=True)
            _write(INPUTS[name].scaled(scale), path)
    return paths


def _write(given: Input, path: Path) -> None:
    unfinished = path.with_suffix(".unfinished")
    array = zarr.create_array(
        unfinished,
        shape=(given.side, given.side),
        chunks=(given.chunk, given.chunk),
        dtype="float32",
        overwrite=True,
    )
    # A band of rows at a time, each from a seed of its own: the values do not depend on threads.
    rows = max(given.chunk, 256)

    def band(start: int) -> None:
        rng = np.random.default_rng([given.seed, start])
        values = rng.standard_normal((min(rows, given.side - start), given.side), dtype=np.float32)
        array[start : start + rows] = values if given.decimals is None else np.round(values, given.decimals)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(band, range(0, given.side, rows)))
    unfinished.rename(path)


def bands(paths: list[Path], rows: int = 1024) -> Iterator[tuple[npt.NDArray[np.float64], ...]]:
    """The same rows of several stored arrays, band after band, in float64."""
    arrays = [zarr.open_array(path, mode="r") for path in paths]
    for start in range(0, arrays[0].shape[0], rows):
        yield tuple(np.asarray(array[start : start + rows], dtype=np.float64) for array in arrays)


def warm(paths: list[Path]) -> None:
    """Read every file once, so that each peer finds the page cache as the others do."""
    for path in paths:
        for file in path.rglob("*"):
            if file.is_file():
                with file.open("rb", buffering=0) as stream:
                    while stream.read(1 << 22):
                        pass
