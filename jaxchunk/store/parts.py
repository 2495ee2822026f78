"""Uncompressed chunks read in parts: byte ranges of them, each a run of rows in the order in which they are stored."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy.typing as npt

from jaxchunk.graph.grid import block_box
from jaxchunk.store.blobs import Span
from jaxchunk.store.codecs import order_of
from jaxchunk.store.stored import StoredArray


class Cut(NamedTuple):
    """Where chunks are cut: into runs along `axis`; of `slower` axes a part has one element each."""

    axis: int
    slower: tuple[int, ...]
    unit: tuple[int, ...]


class PartedArray(StoredArray):
    """A stored array whose chunks are bare values, read in parts that needn't divide them. Made by `in_parts`."""

    def __init__(self, stored: StoredArray, cut: Cut) -> None:
        super().__init__(stored.location, stored._blobs, stored._metadata, stored._missing)
        self._cut = cut
        self._stale = stored.stale
        # As it was when the array was opened: what lies there by now may be another one.
        self._identity = stored._identity
        codec: Any = self._stored.codec
        nbytes = math.prod(cut.unit) * self.dtype.itemsize
        self.layout = replace(self._stored, unit=cut.unit, codec=replace(codec, nbytes=nbytes))

    def chunk_stamp(self, index: tuple[int, ...]) -> Hashable | None:
        stamps = [self._blobs.stamp(self._stored.locate(chunk)[0]) for chunk, _, _ in self._pieces(index)]
        return None if None in stamps else tuple(stamps)

    def _read(self, index: tuple[int, ...], out: npt.NDArray[Any]) -> None:
        cut = self._cut
        for chunk, part, (start, stop) in self._pieces(index):
            rows = tuple(slice(start, stop) if a == cut.axis else slice(None) for a in range(out.ndim))
            shape = tuple(stop - start if a == cut.axis else n for a, n in enumerate(cut.unit))
            self._read_stored(chunk, part, shape, out[rows])

    def _pieces(self, index: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Span, tuple[int, int]]]:
        """The chunks that a part lies in, with the bytes of each that it takes, and the rows that these are."""
        cut, chunk = self._cut, self._stored.unit
        box = block_box(self.grid, index)
        first, last = box[cut.axis]
        row = self.dtype.itemsize * math.prod(n for a, n in enumerate(cut.unit) if a != cut.axis)
        place = [start // n for (start, _), n in zip(box, chunk, strict=True)]
        before = 0
        for a in cut.slower:
            before = before * chunk[a] + box[a][0] % chunk[a]
        at = first
        while at < last:
            place[cut.axis], offset = divmod(at, chunk[cut.axis])
            stop = min(last, at - offset + chunk[cut.axis])
            start = (before * chunk[cut.axis] + offset) * row
            yield tuple(place), (start, (stop - at) * row), (at - first, stop - first)
            at = stop


def in_parts(stored: StoredArray, most: int) -> StoredArray:
    """The same array, read in parts of at most `most` bytes; itself where it can't be, or its chunks are smaller.

    Calls with the same arguments give the same object, so that what is known of it lasts.
    """
    if stored.layout.unit_nbytes <= most:
        return stored
    cut = _cut(stored, most)
    if cut is None:
        return stored
    with _LOCK:
        known = _PARTED.setdefault(stored, {})
        if cut not in known:
            known[cut] = PartedArray(stored, cut)
        return known[cut]


def is_divisible(stored: StoredArray) -> bool:
    """Whether the chunks of an array can be read in parts."""
    return order_of(stored.layout.codec, len(stored.shape)) is not None


def _cut(stored: StoredArray, most: int) -> Cut | None:
    """Parts of the fastest axes whole, and as many rows of the next one as go in, an even share where there is one."""
    unit = stored.layout.unit
    order = order_of(stored.layout.codec, len(unit))
    if order is None:
        return None
    inner, whole = stored.dtype.itemsize, len(unit)
    while whole and inner * unit[order[whole - 1]] <= most:
        whole -= 1
        inner *= unit[order[whole]]
    if not whole:
        return None
    axis = order[whole - 1]
    rows = max(1, most // inner)
    least = -(-unit[axis] // rows)
    rows = next((unit[axis] // k for k in range(least, least + min(least, _TRIED)) if unit[axis] % k == 0), rows)
    sizes = [1 if a in order[: whole - 1] else n for a, n in enumerate(unit)]
    sizes[axis] = rows
    return Cut(axis, order[: whole - 1], tuple(sizes))


_TRIED = 4096
_LOCK = threading.Lock()
_PARTED: weakref.WeakKeyDictionary[StoredArray, dict[Cut, StoredArray]] = weakref.WeakKeyDictionary()
"""The parted forms of arrays that are open; they hold no reference to those."""
