"""The least that anyone has to do: decode the inputs, encode the output, no arithmetic.

Reads and writes the chunks of the benchmarks' own arrays (Zarr format 3, zstd) without zarr-python:
one file, one codec call and one buffer used again for each. What a library needs beyond this is its own.
"""

from __future__ import annotations

import functools
import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numcodecs import Zstd

THREADS = 2
ZSTD = Zstd(level=0)

Region = tuple[slice, ...]


@dataclass(frozen=True)
class Stored:
    """A stored array, as far as its chunks' files are concerned."""

    path: Path
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def open(cls, path: Path) -> Stored:
        meta = json.loads((path / "zarr.json").read_text())
        codecs = [codec["name"] for codec in meta["codecs"]]
        if codecs != ["bytes", "zstd"]:
            raise ValueError(f"{path} has codecs {codecs}; the floor reads 'bytes' and 'zstd' only")
        chunks = meta["chunk_grid"]["configuration"]["chunk_shape"]
        return cls(path, tuple(meta["shape"]), tuple(chunks), np.dtype(meta["data_type"]))

    def file(self, index: tuple[int, ...]) -> Path:
        return self.path.joinpath("c", *map(str, index))

    def indices(self, region: Region) -> Iterator[tuple[int, ...]]:
        """The chunks that meet a region."""
        return product(
            *(range(s.start // c, -(-s.stop // c)) for s, c in zip(region, self.chunks, strict=True)),
        )

    def part(self, index: tuple[int, ...], region: Region) -> tuple[Region, Region]:
        """Where a chunk and a region meet: within the chunk, and within the region."""
        in_chunk, in_region = [], []
        for i, c, s in zip(index, self.chunks, region, strict=True):
            lo, hi = max(i * c, s.start), min((i + 1) * c, s.stop)
            in_chunk.append(slice(lo - i * c, hi - i * c))
            in_region.append(slice(lo - s.start, hi - s.start))
        return tuple(in_chunk), tuple(in_region)


class Buffers(threading.local):
    """Each thread's buffer, used again for every chunk: fresh memory costs half a decode."""

    def __init__(self) -> None:
        self.block: npt.NDArray[Any] = np.empty(0, np.uint8)

    def get(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        nbytes = math.prod(shape) * dtype.itemsize
        if self.block.nbytes != nbytes:
            self.block = np.empty(nbytes, np.uint8)
        return self.block.view(dtype).reshape(shape)


BUFFERS = Buffers()


def decode(source: Stored, index: tuple[int, ...]) -> npt.NDArray[Any]:
    block = BUFFERS.get(source.chunks, source.dtype)
    ZSTD.decode(source.file(index).read_bytes(), out=block)
    return block


def encode(target: Stored, index: tuple[int, ...], block: npt.NDArray[Any]) -> None:
    file = target.file(index)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(ZSTD.encode(block))


def read(paths: list[Path]) -> None:
    """Decode every chunk of every input once."""
    sources = [Stored.open(path) for path in paths]
    jobs = [(s, index) for s in sources for index in s.indices(_whole(s.shape))]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda job: decode(*job) is None, jobs):
            pass


def write(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Encode and write as many chunks as an array has: of noise, which compresses as results of arithmetic do."""
    target = Stored(path, shape, chunks, dtype)
    parts = 2 if dtype.kind == "c" else 1
    noise = np.random.default_rng(0).standard_normal((math.prod(chunks), parts), dtype=np.float32).view(dtype)
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda index: encode(target, index, noise), target.indices(_whole(shape))):
            pass


def move(source_path: Path, path: Path, chunks: tuple[int, ...]) -> None:
    """Write the same values in other chunks, by way of bands that are whole chunks of both."""
    source = Stored.open(source_path)
    target = Stored(path, source.shape, chunks, source.dtype)
    both = zip(source.shape, source.chunks, chunks, strict=True)
    band: npt.NDArray[Any] = np.empty([min(n, math.lcm(a, b)) for n, a, b in both], source.dtype)

    def fill(region: Region, index: tuple[int, ...]) -> None:
        in_chunk, in_region = source.part(index, region)
        band[in_region] = decode(source, index)[in_chunk]

    def flush(region: Region, index: tuple[int, ...]) -> None:
        _, in_region = target.part(index, region)
        encode(target, index, np.ascontiguousarray(band[in_region]))

    with ThreadPoolExecutor(THREADS) as pool:
        for start in product(*(range(0, n, b) for n, b in zip(source.shape, band.shape, strict=True))):
            region = tuple(slice(a, min(a + b, n)) for a, b, n in zip(start, band.shape, source.shape, strict=True))
            for step, stored in ((fill, source), (flush, target)):
                for _ in pool.map(functools.partial(step, region), stored.indices(region)):
                    pass


def _whole(shape: tuple[int, ...]) -> Region:
    return tuple(slice(0, n) for n in shape)
