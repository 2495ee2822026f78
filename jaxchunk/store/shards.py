"""Shards: the index that says where each unit is, and a whole shard's bytes from its values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxchunk.store.blobs import Blobs, Span, Stamp
from jaxchunk.store.buffers import POOL, Bytes
from jaxchunk.store.layout import Layout, Sharding

_ABSENT = np.uint64(2**64 - 1)
_KEPT_INDEX_BYTES = 2**20


@dataclass(frozen=True)
class ShardIndex:
    """Where the units of one shard are: (offset, length) for each."""

    spans: npt.NDArray[np.uint64]
    stamp: Stamp | None

    def find(self, place: tuple[int, ...]) -> Span | None:
        """The unit's part of the shard; None where the unit is absent."""
        offset, length = self.spans[place]
        if offset == _ABSENT and length == _ABSENT:
            return None
        return int(offset), int(length)


class ShardIndexes:
    """Reads the indexes of one array's shards and keeps the last few, of 1 MiB in all (or two, if larger)."""

    def __init__(self, blobs: Blobs, sharding: Sharding) -> None:
        self._blobs = blobs
        self._sharding = sharding
        self._kept: OrderedDict[str, ShardIndex] = OrderedDict()
        self._lock = threading.Lock()
        self._most = max(2, _KEPT_INDEX_BYTES // max(1, sharding.index_codec.nbytes))

    def get(self, key: str) -> ShardIndex | None:
        """The index of the shard under `key`; None where there is no such shard."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        index = self._read(key)
        if index is not None:
            with self._lock:
                self._kept[key] = index
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        return index

    def drop(self, key: str) -> None:
        with self._lock:
            self._kept.pop(key, None)

    def _read(self, key: str) -> ShardIndex | None:
        codec = self._sharding.index_codec
        size = codec.encoded_bound
        with self._blobs.fetch(key, size, span=(-size if self._sharding.index_at_end else 0, size)) as blob:
            if blob is None:
                return None
            spans = np.empty((*self._sharding.units, 2), np.uint64)
            codec.decode(blob.data, spans)
            return ShardIndex(spans, blob.stamp)


def encoded_pieces(layout: Layout, value: npt.NDArray[Any]) -> Iterator[Bytes]:
    """The stored bytes of one write unit, piece by piece; a piece may be overwritten once the next is asked for.

    `value` has the unit's clipped shape. What sticks out of the array is padded with the fill value,
    and units wholly outside are left out of their shard.
    """
    if _is_whole_unit(layout, value) and layout.sharding is None:
        yield from layout.codec.encode(value)
        return
    with POOL.lend(layout.unit_nbytes) as scratch:
        if layout.sharding is None:
            yield from layout.codec.encode(_whole_unit(layout, value, scratch))
            return
        index = layout.sharding.index_codec
        spans = np.full((*layout.sharding.units, 2), _ABSENT, np.uint64)
        if layout.sharding.index_at_end:
            yield from _shard_body(layout, layout.sharding, value, scratch, spans, at=0)
            yield from index.encode(spans)
        else:
            body = bytearray()
            for piece in _shard_body(layout, layout.sharding, value, scratch, spans, at=index.encoded_bound):
                body += piece.data
            yield from index.encode(spans)
            yield np.frombuffer(body, np.uint8)


def _shard_body(
    layout: Layout,
    sharding: Sharding,
    value: npt.NDArray[Any],
    scratch: Bytes,
    spans: npt.NDArray[np.uint64],
    at: int,
) -> Iterator[Bytes]:
    """The encoded units of a shard, one after another from offset `at` on; fills in `spans`."""
    for place in product(*(range(n) for n in sharding.units)):
        corner = tuple(i * u for i, u in zip(place, layout.unit, strict=True))
        part = value[tuple(slice(c, c + u) for c, u in zip(corner, layout.unit, strict=True))]
        if part.size == 0:
            continue
        length = 0
        for piece in layout.codec.encode(_whole_unit(layout, part, scratch)):
            length += piece.nbytes
            yield piece
        spans[place] = at, length
        at += length


def _whole_unit(layout: Layout, value: npt.NDArray[Any], scratch: Bytes) -> npt.NDArray[Any]:
    """`value` as one contiguous unit of full shape; in `scratch` where it isn't that already."""
    if _is_whole_unit(layout, value):
        return value
    unit = scratch.view(layout.dtype).reshape(layout.unit)
    if value.shape != layout.unit:
        unit[...] = layout.fill
    unit[tuple(slice(0, n) for n in value.shape)] = value
    return unit


def _is_whole_unit(layout: Layout, value: npt.NDArray[Any]) -> bool:
    return value.shape == layout.unit and value.flags.c_contiguous
