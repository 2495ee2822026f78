"""How a stored array is laid out: shapes, grids, codecs and keys, read from its Zarr metadata."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from zarr.buffer import cpu
from zarr.codecs import ShardingCodec
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.chunk_grids import RegularChunkGrid
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata

from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.store.codecs import ChunkCodec, PipelineCodec, PlainCodec, TransposedCodec, chunk_codec, plain_codec
from jaxchunk.store.compress import compressor_from_config

_DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float32", "float64", "complex64", "complex128"),
    )
)


@dataclass(frozen=True, eq=False)
class Sharding:
    """Several chunks (units) in one object, with an index of where each is."""

    shape: tuple[int, ...]
    """Of a whole shard, in elements."""
    units: tuple[int, ...]
    """Units in a shard, per axis."""
    index_codec: PlainCodec
    index_at_end: bool


@dataclass(frozen=True, eq=False)
class Layout:
    """What a stored array's metadata says, as far as reading and writing chunks needs it.

    A *unit* is what is decoded at a time: the chunk, or the inner chunk of a sharded array. Units at
    the array's end stick out of it: `unit` is their full shape, as stored.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill: npt.NDArray[Any]
    unit: tuple[int, ...]
    codec: ChunkCodec
    sharding: Sharding | None
    encode_key: Callable[[tuple[int, ...]], str]

    @property
    def unit_nbytes(self) -> int:
        return math.prod(self.unit) * self.dtype.itemsize

    @cached_property
    def grid(self) -> Grid:
        """What can be read at a time."""
        return regular_grid(self.shape, self.unit)

    @cached_property
    def write_grid(self) -> Grid:
        """What must be written at a time."""
        return regular_grid(self.shape, self.sharding.shape if self.sharding else self.unit)

    @cached_property
    def has_clipped_units(self) -> bool:
        return any(n % max(1, u) for n, u in zip(self.shape, self.unit, strict=True))

    def locate(self, unit: tuple[int, ...]) -> tuple[str, tuple[int, ...] | None]:
        """The key of the object that holds a unit, and the unit's place in it (None: it is all of it)."""
        if self.sharding is None:
            return self.encode_key(unit), None
        pairs = [divmod(i, n) for i, n in zip(unit, self.sharding.units, strict=True)]
        return self.encode_key(tuple(shard for shard, _ in pairs)), tuple(place for _, place in pairs)


def require_block(index: tuple[int, ...], grid: Grid, name: str) -> None:
    """Raise IndexError unless `grid` has such a block."""
    if len(index) != len(grid) or not all(0 <= i < axis.nblocks for i, axis in zip(index, grid, strict=True)):
        raise IndexError(f"chunk {index} of {name}, which has {tuple(axis.nblocks for axis in grid)} chunks")


def regular_grid(shape: tuple[int, ...], block: tuple[int, ...]) -> Grid:
    return tuple(Axis.regular(n, b) for n, b in zip(shape, block, strict=True))


def layout_of(metadata: ArrayV2Metadata | ArrayV3Metadata, name: str) -> Layout:
    """Read an array's metadata.

    Raises
    ------
    TypeError
        The array's dtype isn't one of the array API's.
    ValueError
        Its chunks aren't regular.
    """
    zdtype = metadata.dtype
    stored = zdtype.to_native_dtype()
    dtype = next((known for known in _DTYPES if stored in (known, known.newbyteorder())), None)
    if dtype is None:
        raise TypeError(
            f"{name} has dtype {stored}, which isn't supported; the dtypes are {', '.join(map(str, _DTYPES))}: "
            "store its values again in one of these, float16 as float32"
        )
    fill = np.zeros((), dtype) if metadata.fill_value is None else np.asarray(metadata.fill_value).astype(dtype)
    if isinstance(metadata, ArrayV2Metadata):
        codec = _v2_codec(metadata)
        return Layout(metadata.shape, dtype, fill, metadata.chunks, codec, None, metadata.encode_chunk_key)
    if not isinstance(metadata.chunk_grid, RegularChunkGrid):
        raise ValueError(
            f"{name} has a chunk grid of kind {type(metadata.chunk_grid).__name__}; only regular ones can be read"
        )
    outer = metadata.chunk_grid.chunk_shape
    unit, codecs, sharding = outer, metadata.codecs, None
    if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec):
        sharding = _sharding(codecs[0], outer)
        if sharding is not None:  # else the shard is decoded whole, by zarr-python
            unit, codecs = codecs[0].chunk_shape, codecs[0].codecs
    spec = _spec(unit, metadata, "C")
    return Layout(
        metadata.shape,
        dtype,
        fill,
        unit,
        chunk_codec(codecs, spec),
        sharding,
        metadata.encode_chunk_key,
    )


def _v2_codec(metadata: ArrayV2Metadata) -> ChunkCodec:
    stored = metadata.dtype.to_native_dtype()
    compressor = compressor_from_config(metadata.compressor.get_config()) if metadata.compressor else None
    flat = sum(n > 1 for n in metadata.chunks) <= 1
    if not metadata.filters and (metadata.order == "C" or flat) and (compressor or not metadata.compressor):
        nbytes = math.prod(metadata.chunks) * stored.itemsize
        return PlainCodec(nbytes, compressor, checksum=False, swap=not stored.isnative)
    if not metadata.filters and not metadata.compressor:
        nbytes = math.prod(metadata.chunks) * stored.itemsize
        return TransposedCodec(nbytes, tuple(reversed(range(len(metadata.chunks)))), swap=not stored.isnative)
    codec = V2Codec(filters=metadata.filters, compressor=metadata.compressor)
    parts = [*(metadata.filters or ()), *([metadata.compressor] if metadata.compressor else [])]
    names = [str(part.codec_id) for part in parts]
    return PipelineCodec([codec], _spec(metadata.chunks, metadata, metadata.order), names)


def _sharding(codec: ShardingCodec, shard: tuple[int, ...]) -> Sharding | None:
    """The index of a sharded array, where its size is known without reading it."""
    units = tuple(s // c for s, c in zip(shard, codec.chunk_shape, strict=True))
    index = plain_codec(codec.index_codecs, codec._get_index_chunk_spec(units))
    if index is None or index.compressor is not None:
        return None
    return Sharding(shard, units, index, codec.index_location.value == "end")


def _spec(shape: tuple[int, ...], metadata: ArrayV2Metadata | ArrayV3Metadata, order: Any) -> ArraySpec:
    config = ArrayConfig(order=order, write_empty_chunks=True)
    return ArraySpec(shape, metadata.dtype, metadata.fill_value, config, cpu.buffer_prototype)
