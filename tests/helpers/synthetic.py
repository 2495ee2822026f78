"""Stores that make their chunks from a formula, count, fail, delay, truncate, or forget what they are given.

With them, terabytes are really read, decoded, computed and encoded, with no disk and little memory.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
import zarr.codecs
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer import cpu
from zarr.storage import MemoryStore, WrapperStore

from jaxchunk.store import StoredArray

Pattern = Callable[..., npt.NDArray[Any]]
"""Values from open-mesh indices, one int64 array an axis: ``lambda i, j: i * 7 + j``."""

BAND = 2**20
"""So many elements of a pattern are made at once."""

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup")


@dataclass
class Counts:
    """What was asked of a store, metadata left out. Safe from any thread."""

    gets: Counter[str] = field(default_factory=Counter)
    sets: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_written: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def read(self, key: str, nbytes: int) -> None:
        if not key.endswith(_METADATA):
            with self._lock:
                self.gets[key] += 1
                self.bytes_read += nbytes

    def written(self, key: str, nbytes: int) -> None:
        if not key.endswith(_METADATA):
            with self._lock:
                self.sets[key] += 1
                self.bytes_written += nbytes

    def reset(self) -> None:
        with self._lock:
            self.gets.clear()
            self.sets.clear()
            self.bytes_read = self.bytes_written = 0


@dataclass
class Faults:
    """Which chunk reads go wrong. The key and the seed decide, so every run is alike.

    Attributes
    ----------
    fail, truncate
        Shares of the keys that raise `error`, or give half of their bytes.
    times
        How often such a key fails before it works; None: always.
    delay
        Seconds that every read takes.
    """

    seed: int = 0
    fail: float = 0.0
    truncate: float = 0.0
    times: int | None = None
    delay: float = 0.0
    error: Callable[[], BaseException] = TimeoutError
    happened: Counter[str] = field(default_factory=Counter)

    def strikes(self, kind: str, share: float, key: str) -> bool:
        if share == 0 or random.Random(f"{self.seed} {kind} {key}").random() >= share:
            return False
        self.happened[f"{kind} {key}"] += 1
        return self.times is None or self.happened[f"{kind} {key}"] <= self.times


class SyntheticStore(MemoryStore):
    """One array at the root, v3 and unsharded, whose chunks come from a pattern. Made by `synthetic_array`."""

    def __init__(
        self,
        shape: Sequence[int],
        chunks: Sequence[int],
        dtype: npt.DTypeLike,
        pattern: Pattern,
        *,
        zstd: bool = False,
        period: Sequence[int] | None = None,
        faults: Faults | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.chunks, self.dtype = tuple(shape), tuple(chunks), np.dtype(dtype)
        self.counts = Counts()
        self.faults = faults or Faults()
        self._pattern = pattern
        self._codec = numcodecs.Zstd(level=0) if zstd else None
        self._period = None if period is None else tuple(period)
        self._encoded: dict[tuple[int, ...], cpu.Buffer] = {}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def values(self, box: Sequence[tuple[int, int]]) -> npt.NDArray[Any]:
        """What the array holds in a box, for comparison."""
        axes = []
        for axis, (start, stop) in enumerate(box):
            at = np.arange(start, stop, dtype=np.int64)
            axes.append(at if self._period is None else at % (self._period[axis] * self.chunks[axis]))
        return self._evaluate(axes)

    async def get(self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None) -> Any:
        if not key.startswith("c/") and key != "c":
            return await super().get(key, prototype or cpu.buffer_prototype, byte_range)
        if self.faults.delay:
            await asyncio.sleep(self.faults.delay)
        if self.faults.strikes("fail", self.faults.fail, key):
            raise self.faults.error()
        buffer = await asyncio.to_thread(self._bytes, key, byte_range)
        if self.faults.strikes("truncate", self.faults.truncate, key):
            buffer = buffer[: len(buffer) // 2]
        self.counts.read(key, len(buffer))
        return buffer

    async def exists(self, key: str) -> bool:
        return key.startswith("c/") or key == "c" or await super().exists(key)

    def _bytes(self, key: str, byte_range: ByteRequest | None) -> cpu.Buffer:
        if self._codec or self._period is not None or not isinstance(byte_range, RangeByteRequest):
            return _part(self._chunk(key), byte_range)
        # Only the rows that the range lies in are made, along the first axis where these are several.
        part, start, stop = [slice(0, n) for n in self.chunks], byte_range.start, byte_range.end
        for axis in range(len(self.chunks)):
            row = math.prod(self.chunks[axis + 1 :]) * self.dtype.itemsize
            first, last = start // row, -(-stop // row)
            part[axis] = slice(first, min(last, self.chunks[axis]))
            start, stop = start - first * row, stop - first * row
            if last - first > 1:
                break
        axes = [
            np.arange(i * c + rows.start, i * c + rows.stop, dtype=np.int64)
            for i, c, rows in zip(_coords(key), self.chunks, part, strict=True)
        ]
        return cpu.Buffer.from_array_like(self._evaluate(axes).reshape(-1).view(np.uint8)[start:stop])

    def _chunk(self, key: str) -> cpu.Buffer:
        coords = _coords(key)
        if self._period is None:
            return self._encode(coords)
        coords = tuple(i % p for i, p in zip(coords, self._period, strict=True))
        if coords not in self._encoded:
            self._encoded[coords] = self._encode(coords)
        return self._encoded[coords]

    def _encode(self, coords: tuple[int, ...]) -> cpu.Buffer:
        axes = [np.arange(i * c, (i + 1) * c, dtype=np.int64) for i, c in zip(coords, self.chunks, strict=True)]
        values = self._evaluate(axes)
        data = self._codec.encode(values.reshape(-1)) if self._codec else values.reshape(-1).view(np.uint8)
        return cpu.Buffer.from_array_like(np.frombuffer(data, np.uint8))

    def _evaluate(self, axes: list[npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
        return evaluated(self._pattern, axes, self.dtype)


def evaluated(pattern: Pattern, axes: Sequence[npt.NDArray[np.int64]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A pattern's values at indices, made band by band: its integers take more memory than they do."""
    out = np.empty([len(axis) for axis in axes], dtype)
    if not axes:
        out[...] = pattern()
        return out
    longest = max(range(out.ndim), key=lambda axis: out.shape[axis])
    step = max(1, BAND * out.shape[longest] // max(1, out.size))
    for first in range(0, out.shape[longest], step):
        band = slice(first, first + step)
        part = [axis[band] if number == longest else axis for number, axis in enumerate(axes)]
        out[(*[slice(None)] * longest, band)] = pattern(*np.ix_(*part))
    return out


def synthetic_array(
    shape: Sequence[int],
    chunks: Sequence[int],
    dtype: npt.DTypeLike,
    pattern: Pattern,
    *,
    compressor: str | None = None,
    period: Sequence[int] | None = None,
    faults: Faults | None = None,
) -> zarr.Array[Any]:
    """An array of any size that takes no room; its store (`.store`) has `counts`, `faults` and `values(box)`.

    Parameters
    ----------
    pattern
        Values from open-mesh indices.
    compressor
        None or "zstd".
    period
        Chunks an axis after which the values repeat: only that many are ever made and encoded.
    """
    if compressor not in (None, "zstd"):
        raise ValueError(f"compressor={compressor!r}: None or 'zstd'")
    store = SyntheticStore(shape, chunks, dtype, pattern, zstd=compressor == "zstd", period=period, faults=faults)
    codecs = [zarr.codecs.ZstdCodec(level=0)] if compressor else None
    return zarr.create_array(store, shape=tuple(shape), chunks=tuple(chunks), dtype=dtype, compressors=codecs)


class SinkStore(MemoryStore):
    """Keeps metadata and the chunks that `keep` says; counts all. A chunk that was dropped can't be read back."""

    def __init__(self, keep: Callable[[str], bool] = lambda key: False, kept: Sequence[tuple[int, ...]] = ()) -> None:
        super().__init__()
        self.counts = Counts()
        self.kept = kept
        self._keep = keep

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    async def set(self, key: str, value: Any, byte_range: Any = None) -> None:
        self.counts.written(key, len(value))
        if key.endswith(_METADATA) or self._keep(key):
            await super().set(key, value, byte_range)

    async def get(self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None) -> Any:
        found = await super().get(key, prototype or cpu.buffer_prototype, byte_range)
        if found is None and self.counts.sets[key]:
            raise LookupError(f"{key} was written, but this store kept only some keys")
        self.counts.read(key, 0 if found is None else len(found))
        return found


def sink_store(chunks_per_axis: Sequence[int], windows: int = 4, seed: int = 0, prefix: str = "") -> SinkStore:
    """A sink that keeps `windows` chunks (or shards), chosen by the seed; `kept` lists their coordinates."""
    draw = random.Random(seed)
    kept = {tuple(draw.randrange(n) for n in chunks_per_axis) for _ in range(windows)}
    keys = {f"{prefix}c/{'/'.join(map(str, coords))}" for coords in kept}
    return SinkStore(keys.__contains__, sorted(kept))


class CountingStore(WrapperStore[Store]):
    """Counts what is asked of another store."""

    def __init__(self, store: Store, counts: Counts | None = None) -> None:
        super().__init__(store)
        self.counts = counts or Counts()

    def _with_store(self, store: Store) -> CountingStore:
        return type(self)(store, self.counts)

    async def get(self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None) -> Any:
        found = await self._store.get(key, prototype or cpu.buffer_prototype, byte_range)
        self.counts.read(key, 0 if found is None else len(found))
        return found

    async def set(self, key: str, value: Any) -> None:
        self.counts.written(key, len(value))
        await self._store.set(key, value)


class FailingStore(WrapperStore[Store]):
    """Another store, of which one key can't be read or written: `error` (a class or an instance) is raised."""

    def __init__(self, store: Store, key: str, error: type[BaseException] | BaseException) -> None:
        super().__init__(store)
        self.key, self.error = key, error

    def _with_store(self, store: Store) -> FailingStore:
        return type(self)(store, self.key, self.error)

    async def get(self, key: str, prototype: Any = None, byte_range: ByteRequest | None = None) -> Any:
        self._fail(key)
        return await self._store.get(key, prototype or cpu.buffer_prototype, byte_range)

    async def get_partial_values(
        self, prototype: Any, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Any]:
        ranges = list(key_ranges)
        for key, _ in ranges:
            self._fail(key)
        return await self._store.get_partial_values(prototype, ranges)

    async def set(self, key: str, value: Any) -> None:
        self._fail(key)
        await self._store.set(key, value)

    def _fail(self, key: str) -> None:
        if key == self.key or key.endswith(f"/{self.key}"):
            raise self.error


def blocks(grid: Iterable[Any]) -> Iterable[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """(block index, slices) of every block of a grid, in C order."""
    grid = tuple(grid)
    for index in itertools.product(*(range(axis.nblocks) for axis in grid)):
        yield index, tuple(slice(*axis.block(i)) for axis, i in zip(grid, index, strict=True))


def read_all(array: StoredArray) -> npt.NDArray[Any]:
    """The values of a stored array, read unit by unit into memory that holds something else."""
    values = np.empty(array.shape, array.dtype)
    for index, part in blocks(array.grid):
        out = np.full(values[part].shape, 113).astype(array.dtype)
        array.read_chunk(index, out)
        values[part] = out
    return values


def _coords(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.split("/")[1:])


def _part(buffer: cpu.Buffer, byte_range: ByteRequest | None) -> cpu.Buffer:
    if isinstance(byte_range, RangeByteRequest):
        return buffer[byte_range.start : byte_range.end]
    if isinstance(byte_range, OffsetByteRequest):
        return buffer[byte_range.offset :]
    if isinstance(byte_range, SuffixByteRequest):
        return buffer[max(0, len(buffer) - byte_range.suffix) :]
    return buffer
