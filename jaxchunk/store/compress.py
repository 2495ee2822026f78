"""Byte compressors that decode straight into a buffer, and only where the sizes agree.

numcodecs decodes a chunk that is too short into a longer buffer without a word and leaves the rest
as it was, so the size that the encoded bytes claim is compared first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numcodecs
import numpy as np
import numpy.typing as npt

from jaxchunk.store.buffers import Bytes

_PIECE = 128 * 1024


class BadChunk(ValueError):
    """Stored bytes that can't be what was written; becomes a StorageError with array, chunk and key."""


class Compressor(Protocol):
    """What a codec needs to know of a byte compressor."""

    def decode_into(self, encoded: Bytes, out: Bytes) -> None:
        """Fill `out` exactly, or raise."""

    def encode(self, data: npt.NDArray[Any]) -> bytes:
        """The compressed bytes of a contiguous array."""

    def decode_scratch(self, nbytes: int) -> int:
        """Bytes taken, besides the input and `out`, to decode a chunk of `nbytes`."""

    def encode_scratch(self, nbytes: int) -> int:
        """Bytes taken, the result included, to encode a chunk of `nbytes`."""


def bound(nbytes: int) -> int:
    """The most bytes that one of these compressors makes of `nbytes`."""
    return nbytes + nbytes // 16 + 1024


@dataclass(frozen=True)
class SizedCompressor:
    """zstd, blosc and lz4: their bytes say at the start how long they are decoded."""

    codec: Any
    claimed_size: Callable[[Bytes], int | None]

    def decode_into(self, encoded: Bytes, out: Bytes) -> None:
        claimed = self.claimed_size(encoded)
        if claimed is None:  # streaming writers leave it out; then numcodecs takes memory that no figure here counts
            out[:] = np.frombuffer(_exactly(self.codec.decode(encoded), out.nbytes), np.uint8)
            return
        _check_size(claimed, out.nbytes)
        self.codec.decode(encoded, out=out)

    def encode(self, data: npt.NDArray[Any]) -> bytes:
        encoded: bytes = self.codec.encode(data)
        return encoded

    def decode_scratch(self, nbytes: int) -> int:
        return 0

    def encode_scratch(self, nbytes: int) -> int:
        return 2 * bound(nbytes)  # numcodecs copies its result out of a buffer of the largest size


@dataclass(frozen=True)
class Deflate:
    """gzip and zlib, piece by piece: how long their bytes are decoded is known only at the end."""

    level: int
    wbits: int

    def decode_into(self, encoded: Bytes, out: Bytes) -> None:
        at = 0
        for piece in _inflate(encoded, self.wbits):
            if at + len(piece) > out.nbytes:
                raise BadChunk(f"decodes to more than the {out.nbytes} bytes of a chunk")
            out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        _check_size(at, out.nbytes)

    def encode(self, data: npt.NDArray[Any]) -> bytes:
        stream = zlib.compressobj(self.level, zlib.DEFLATED, self.wbits)
        values = data.view(np.uint8)
        parts = [stream.compress(values[i : i + _PIECE].data) for i in range(0, values.nbytes, _PIECE)]
        return b"".join([*parts, stream.flush()])

    def decode_scratch(self, nbytes: int) -> int:
        return 4 * _PIECE

    def encode_scratch(self, nbytes: int) -> int:
        return 2 * bound(nbytes)


def compressor_from_config(config: Mapping[str, Any]) -> Compressor | None:
    """The compressor that a numcodecs configuration describes, or None where it isn't one of these."""
    kind = config.get("id")
    if kind in ("gzip", "zlib"):
        return Deflate(int(config.get("level", 1)), 31 if kind == "gzip" else 15)
    claimed_size = _CLAIMED_SIZES.get(str(kind))
    if claimed_size is None:
        return None
    return SizedCompressor(numcodecs.get_codec(dict(config)), claimed_size)


def _inflate(encoded: Bytes, wbits: int) -> Iterator[bytes]:
    """The decoded bytes, at most `_PIECE` at a time; gzip allows several members one after another."""
    stream = zlib.decompressobj(wbits)
    for start in range(0, encoded.nbytes, _PIECE):
        rest = encoded[start : start + _PIECE].tobytes()
        while True:
            if stream.eof and rest:
                stream = zlib.decompressobj(wbits)
            piece = stream.decompress(rest, _PIECE)
            if piece:
                yield piece
            rest = stream.unused_data if stream.eof else stream.unconsumed_tail
            if not rest and len(piece) < _PIECE:
                break
    if not stream.eof:
        raise BadChunk("its compressed bytes end too early")


def _zstd_size(encoded: Bytes) -> int | None:
    """The content size in a zstd frame's header; None where the writer left it out."""
    head = bytes(encoded[:14])
    if len(head) < 5 or head[:4] != b"\x28\xb5\x2f\xfd":
        raise BadChunk("does not begin as zstd data does")
    descriptor = head[4]
    size_flag, single_segment = descriptor >> 6, descriptor >> 5 & 1
    width = (1 if single_segment else 0) if size_flag == 0 else 1 << size_flag
    if width == 0:
        return None
    at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    field = bytes(encoded[at : at + width])
    if len(field) < width:
        raise BadChunk("its zstd header ends too early")
    return int.from_bytes(field, "little") + (256 if width == 2 else 0)


def _blosc_size(encoded: Bytes) -> int:
    if encoded.nbytes < 16:
        raise BadChunk("its blosc header ends too early")
    nbytes, _, compressed = (int(n) for n in np.frombuffer(bytes(encoded[4:16]), "<u4"))
    if compressed != encoded.nbytes:
        raise BadChunk(f"its blosc header says {compressed} bytes, but there are {encoded.nbytes}")
    return nbytes


def _lz4_size(encoded: Bytes) -> int:
    if encoded.nbytes < 4:
        raise BadChunk("its lz4 header ends too early")
    return int.from_bytes(bytes(encoded[:4]), "little")


_CLAIMED_SIZES: dict[str, Callable[[Bytes], int | None]] = {
    "zstd": _zstd_size,
    "blosc": _blosc_size,
    "lz4": _lz4_size,
}


def _exactly(data: bytes, nbytes: int) -> bytes:
    _check_size(len(data), nbytes)
    return data


def _check_size(size: int, expected: int) -> None:
    if size != expected:
        raise BadChunk(f"decodes to {size} bytes, but a chunk has {expected}")
