"""From a chunk's stored bytes to its values and back.

`PlainCodec` is our own short way for what nearly all arrays use (bytes in C order, at most one
compressor, at most a checksum after it), `TransposedCodec` for bare values in another order of axes;
`PipelineCodec` runs zarr-python's codecs for all others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt
from zarr.abc.codec import Codec
from zarr.buffer import cpu
from zarr.codecs import BytesCodec, TransposeCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.sync import sync

from jaxchunk.store.buffers import Bytes
from jaxchunk.store.compress import BadChunk, Compressor, bound, compressor_from_config

_CRC_BYTES = 4


class ChunkCodec(Protocol):
    """How one whole chunk is encoded. `decode`'s `out` and `encode`'s `chunk` are native and C-contiguous."""

    @property
    def encoded_bound(self) -> int:
        """The most bytes an encoded chunk may have; longer ones are refused as damaged."""

    @property
    def decode_scratch(self) -> int:
        """Bytes taken while decoding, besides the encoded chunk and the decoded one."""

    @property
    def encode_scratch(self) -> int:
        """Bytes taken while encoding, besides the chunk; the encoded bytes are included."""

    def decode(self, encoded: Bytes, out: npt.NDArray[Any]) -> None:
        """Fill `out`, of the chunk's full shape, or raise."""

    def encode(self, chunk: npt.NDArray[Any]) -> list[Bytes]:
        """The stored bytes, in pieces to be written one after another."""


@dataclass(frozen=True)
class PlainCodec:
    """Values in C order, byte-swapped or not, compressed or not, followed by a CRC-32C or not."""

    nbytes: int
    compressor: Compressor | None
    checksum: bool
    swap: bool

    @property
    def encoded_bound(self) -> int:
        return (bound(self.nbytes) if self.compressor else self.nbytes) + _CRC_BYTES * self.checksum

    @property
    def decode_scratch(self) -> int:
        return self.compressor.decode_scratch(self.nbytes) if self.compressor else 0

    @property
    def encode_scratch(self) -> int:
        return (self.compressor.encode_scratch(self.nbytes) if self.compressor else 0) + self.nbytes * self.swap

    @property
    def is_raw(self) -> bool:
        """The stored bytes are those of the values, nothing besides."""
        return self.compressor is None and not self.checksum

    def decode(self, encoded: Bytes, out: npt.NDArray[Any]) -> None:
        data = self._checked(encoded) if self.checksum else encoded
        target = as_bytes(out)
        if self.compressor is not None:
            self.compressor.decode_into(data, target)
        elif data.nbytes != target.nbytes:
            raise BadChunk(f"has {data.nbytes} bytes, but a chunk has {target.nbytes}")
        elif data.ctypes.data != target.ctypes.data:  # else it was read in place
            target[:] = data
        if self.swap:
            out.byteswap(inplace=True)

    def encode(self, chunk: npt.NDArray[Any]) -> list[Bytes]:
        values = chunk.byteswap() if self.swap else chunk
        # blosc shuffles by the item size, so it is given the values, not their bytes
        data = (
            as_bytes(values)
            if self.compressor is None
            else np.frombuffer(self.compressor.encode(values.reshape(-1)), np.uint8)
        )
        return [data, np.frombuffer(_crc(data), np.uint8)] if self.checksum else [data]

    def _checked(self, encoded: Bytes) -> Bytes:
        if encoded.nbytes < _CRC_BYTES:
            raise BadChunk(f"has {encoded.nbytes} bytes, fewer than its checksum alone")
        data = encoded[:-_CRC_BYTES]
        if _crc(data) != encoded[-_CRC_BYTES:].tobytes():
            raise BadChunk("its checksum doesn't fit its bytes")
        return data


@dataclass(frozen=True)
class TransposedCodec:
    """Values with their axes in another order (`order`, slowest first), byte-swapped or not, and nothing else."""

    nbytes: int
    order: tuple[int, ...]
    swap: bool

    @property
    def encoded_bound(self) -> int:
        return self.nbytes

    @property
    def decode_scratch(self) -> int:
        return 0

    @property
    def encode_scratch(self) -> int:
        return self.nbytes

    def decode(self, encoded: Bytes, out: npt.NDArray[Any]) -> None:
        if encoded.nbytes != out.nbytes:
            raise BadChunk(f"has {encoded.nbytes} bytes, but a chunk has {out.nbytes}")
        turned = out.transpose(self.order)
        turned[...] = encoded.view(self._stored(out.dtype)).reshape(turned.shape)

    def encode(self, chunk: npt.NDArray[Any]) -> list[Bytes]:
        return [as_bytes(chunk.transpose(self.order).astype(self._stored(chunk.dtype), order="C"))]

    def _stored(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype.newbyteorder() if self.swap else dtype


class PipelineCodec:
    """Any chain of codecs, run by zarr-python for one chunk at a time.

    The pipeline class is named here, so neither the result nor the memory depends on the user's
    ``zarr.config``. `names` are those of all codecs, as metadata spells them.
    """

    def __init__(self, codecs: Sequence[Codec], spec: ArraySpec, names: Iterable[str]) -> None:
        self._spec = spec
        self._dtype = spec.dtype.to_native_dtype()
        self._pipeline = BatchedCodecPipeline.from_codecs(codecs, batch_size=1)
        self._nbytes = math.prod(spec.shape) * self._dtype.itemsize
        keeps_size = _SIZE_KEEPING.issuperset(name.removeprefix("numcodecs.") for name in names)
        self.encoded_bound = bound(self._nbytes) if keeps_size else 8 * self._nbytes + 64 * 1024
        # Between two codecs both the one's input and its output are there, some collect their output in a
        # list and join it, and zarr-python copies what they return: measured with chains of two compressors.
        self.decode_scratch = 4 * self._nbytes
        self.encode_scratch = 4 * self._nbytes + 2 * self.encoded_bound

    def decode(self, encoded: Bytes, out: npt.NDArray[Any]) -> None:
        buffer = cpu.Buffer.from_array_like(encoded)
        (chunk,) = sync(self._pipeline.decode([(buffer, self._spec)]))
        if chunk is None:
            raise BadChunk("decodes to nothing")
        values = chunk.as_numpy_array()
        if values.shape != out.shape:
            raise BadChunk(f"decodes to shape {values.shape}, but a chunk has {out.shape}")
        np.copyto(out, values, casting="equiv")

    def encode(self, chunk: npt.NDArray[Any]) -> list[Bytes]:
        buffer = cpu.NDBuffer.from_numpy_array(chunk.astype(self._dtype, copy=False))
        (encoded,) = sync(self._pipeline.encode([(buffer, self._spec)]))
        if encoded is None:
            raise BadChunk("the array's codecs encode it to nothing")
        return [np.frombuffer(encoded.as_numpy_array(), np.uint8)]


def chunk_codec(codecs: Sequence[Codec], spec: ArraySpec) -> ChunkCodec:
    """The codec of a Zarr v3 chunk (or a shard's inner chunk)."""
    return plain_codec(codecs, spec) or _transposed(codecs, spec) or PipelineCodec(codecs, spec, map(_name, codecs))


def order_of(codec: ChunkCodec, ndim: int) -> tuple[int, ...] | None:
    """The axes in which the stored bytes of a chunk's values follow each other, slowest first.

    None where bytes aren't simply those of the values: such a chunk is decoded whole.
    """
    if isinstance(codec, TransposedCodec):
        return codec.order
    return tuple(range(ndim)) if isinstance(codec, PlainCodec) and codec.is_raw else None


def _transposed(codecs: Sequence[Codec], spec: ArraySpec) -> TransposedCodec | None:
    """Our own codec for a v3 chain of a transpose and nothing else but the bytes."""
    if len(codecs) != 2 or not isinstance(codecs[0], TransposeCodec):
        return None
    plain = plain_codec(codecs[1:], spec)
    return TransposedCodec(plain.nbytes, tuple(codecs[0].order), plain.swap) if plain else None


def plain_codec(codecs: Sequence[Codec], spec: ArraySpec) -> PlainCodec | None:
    """Our own codec where this v3 chain is one that it can do."""
    if not codecs or not isinstance(codecs[0], BytesCodec):
        return None
    endian = codecs[0].endian
    compressor, checksum = None, False
    for codec in codecs[1:]:
        if checksum:
            return None
        if _name(codec) == "crc32c":
            checksum = True
        elif compressor is None:
            compressor = compressor_from_config(_numcodecs_config(codec))
            if compressor is None:
                return None
        else:
            return None
    dtype = spec.dtype.to_native_dtype()
    swap = endian is not None and endian.value != sys.byteorder and dtype.itemsize > 1
    return PlainCodec(math.prod(spec.shape) * dtype.itemsize, compressor, checksum, swap)


def as_bytes(values: npt.NDArray[Any]) -> Bytes:
    """The memory of a contiguous array, as bytes, without a copy."""
    return values.reshape(-1).view(np.uint8)


def _crc(data: Bytes) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(_CRC_BYTES, "little")


def _name(codec: Codec) -> str:
    return str(codec.to_dict().get("name"))


def _numcodecs_config(codec: Codec) -> dict[str, Any]:
    """A v3 codec's configuration, as numcodecs spells it."""
    described: dict[str, Any] = dict(codec.to_dict())
    config = dict(described.get("configuration") or {})
    if isinstance(config.get("shuffle"), str):
        config["shuffle"] = ("noshuffle", "shuffle", "bitshuffle").index(config["shuffle"])
    return {**config, "id": str(described["name"]).removeprefix("numcodecs.")}


_SIZE_KEEPING = frozenset(
    (
        *("bytes", "transpose", "shuffle", "delta", "bitround", "quantize"),
        *("crc32", "crc32c", "adler32", "fletcher32"),
        *("zstd", "blosc", "gzip", "lz4", "zlib", "bz2", "lzma"),
    )
)
"""Codecs that make no more of a chunk than a compressor's worst case."""
