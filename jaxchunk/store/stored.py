"""Stored arrays: opened once, read chunk by chunk straight into the caller's buffer."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy.typing as npt

from jaxchunk.errors import SourceChangedError, StorageError
from jaxchunk.graph.grid import Grid, block_box, box_shape
from jaxchunk.store.blobs import Blob, Blobs, DirectoryBlobs, Span, StoreBlobs
from jaxchunk.store.buffers import POOL, Bytes
from jaxchunk.store.codecs import PlainCodec, as_bytes
from jaxchunk.store.compress import BadChunk
from jaxchunk.store.layout import Layout, layout_of, require_block
from jaxchunk.store.location import Location, identity, locate
from jaxchunk.store.metadata import Metadata, metadata_stamp, read_metadata
from jaxchunk.store.shards import ShardIndexes
from jaxchunk.store.swap import recover

Missing = Literal["fill", "error"]

_REOPEN = "open it again to read what is there now"


class StoredArray:
    """A Zarr array (v2 or v3) that exists and can be read.

    Made by `open_array`. Reading is safe from any thread.

    Attributes
    ----------
    shape, dtype
        Of the array; the dtype is the machine's own byte order whatever the stored one is.
    grid
        What is read at a time: the chunks, or the inner chunks of a sharded array.
    write_grid
        What is written at a time: the chunks, or the shards.
    name
        For messages.
    """

    def __init__(self, location: Location, blobs: Blobs, metadata: Metadata, missing: Missing) -> None:
        layout = layout_of(metadata.parsed, location.name)
        self.name = location.name
        self.shape = layout.shape
        self.dtype = layout.dtype
        self.is_local = location.is_local
        self.layout = layout  # as it is read; `_stored` is what lies behind a key, or is one inner chunk
        self._stored = layout
        self.location = location
        self._metadata = metadata
        self._missing = missing
        self._blobs = blobs
        self._indexes = ShardIndexes(self._blobs, layout.sharding) if layout.sharding else None
        self._stale = False
        self._identity = identity(location)
        self._stamp = metadata.stamp
        self._metadata_key = metadata.key
        with _OPEN_LOCK:
            _OPEN.add(self)

    def __repr__(self) -> str:
        return f"StoredArray({self.name!r}, shape={self.shape}, dtype={self.dtype})"

    @property
    def grid(self) -> Grid:
        return self.layout.grid

    @property
    def write_grid(self) -> Grid:
        return self.layout.write_grid

    def stored_bytes_bound(self) -> int:
        """The most bytes of one encoded read unit."""
        return self.layout.codec.encoded_bound

    @property
    def scratch_bytes(self) -> int:
        """Bytes that reading one unit takes at most, besides its output."""
        layout = self.layout
        if _is_raw(layout) and not layout.has_clipped_units and self.is_local:
            encoded = 0
        else:
            encoded = layout.codec.encoded_bound
        padded = layout.unit_nbytes if layout.has_clipped_units else 0
        index = 2 * layout.sharding.index_codec.encoded_bound if layout.sharding else 0
        return encoded + padded + index + layout.codec.decode_scratch

    def read_chunk(self, index: tuple[int, ...], out: npt.NDArray[Any]) -> None:
        """Decode one read unit into `out`.

        Parameters
        ----------
        index
            The unit's block index in `grid`.
        out
            C-contiguous, of this array's dtype and the block's shape (at the array's end, the clipped one).

        Raises
        ------
        SourceChangedError
            The array was replaced through this library, or it is gone.
        StorageError
            The stored bytes are damaged, or (with ``missing="error"``) absent.
        Exception
            Whatever the storage raises while fetching, with a note of array, chunk and key. Such a
            chunk never reads as fill value; only one that was never written does.
        """
        self._require_block(index, out)
        self._require_current()
        self._read(index, out)
        self._require_current()  # an overwrite may have come between

    def _read(self, index: tuple[int, ...], out: npt.NDArray[Any]) -> None:
        self._read_stored(index, None, self.layout.unit, out)

    def _read_stored(
        self, index: tuple[int, ...], part: Span | None, shape: tuple[int, ...], out: npt.NDArray[Any]
    ) -> None:
        """Decode a stored unit, or a part of its bytes, which hold values of `shape`: `out` takes the first of them."""
        key, place = self._stored.locate(index)
        into = as_bytes(out) if _is_raw(self.layout) and out.shape == shape and out.flags.c_contiguous else None
        try:
            with self._fetch(key, place, part, into) as blob:
                if blob is None:
                    self._fill(index, key, out)
                else:
                    self._decode(blob, shape, out)
        except (SourceChangedError, StorageError, MemoryError):
            raise
        except _Undecodable as error:
            raise StorageError(f"{self._where(index, key)}: {error}") from (error.__cause__ or error)
        except BadChunk as error:
            raise StorageError(f"{self._where(index, key)}: {error}") from error
        except Exception as error:
            note_once(error, f"while reading {self._where(index, key)}")
            raise

    @property
    def stale(self) -> bool:
        """Whether the array was replaced through this library since it was opened."""
        return self._stale

    def chunk_stamp(self, index: tuple[int, ...]) -> Hashable | None:
        """What changes when the unit's stored bytes do; None where the storage can't say, or nothing is stored."""
        return self._blobs.stamp(self.layout.locate(index)[0])

    def stamp(self) -> Hashable:
        """What the metadata object was when the array was opened."""
        return self._stamp

    def check(self) -> None:
        """Raise SourceChangedError if the array was replaced, rewritten through us or removed since it was opened."""
        self._require_current()
        now = metadata_stamp(self._blobs, self._metadata_key)
        if now is None:
            raise SourceChangedError(f"{self.name} was removed after it was opened")
        if now != self._stamp:
            raise SourceChangedError(
                f"{self.name} was replaced after it was opened; open it again to read what is there now"
            )

    def is_same_array(self, location: Location) -> bool:
        """Whether a location is this array's, under whatever spelling."""
        return self._identity is not None and identity(location) == self._identity

    def _require_current(self) -> None:
        if self._stale:
            raise SourceChangedError(f"{self.name} was overwritten by this process after it was opened; {_REOPEN}")

    def _require_block(self, index: tuple[int, ...], out: npt.NDArray[Any]) -> None:
        require_block(index, self.grid, self.name)
        shape = box_shape(block_box(self.grid, index))
        if out.shape != shape or out.dtype != self.dtype or not out.flags.c_contiguous:
            raise ValueError(
                f"out: shape {out.shape}, dtype {out.dtype}; chunk {index} of {self.name} needs a C-contiguous array "
                f"of shape {shape}, dtype {self.dtype}"
            )

    @contextmanager
    def _fetch(
        self, key: str, place: tuple[int, ...] | None, part: Span | None, into: Bytes | None
    ) -> Iterator[Blob | None]:
        """The bytes of a stored unit, or of a part of it; None where it is absent."""
        limit = self.layout.codec.encoded_bound
        if self._indexes is None or place is None:
            with self._blobs.fetch(key, limit, part, into) as blob:
                if part is not None and blob is not None and blob.stamp is not None:
                    self._require_whole(blob.stamp[3])
                yield blob
            return
        for _ in range(3):
            found = self._indexes.get(key)
            span = found.find(place) if found else None
            if found is None or span is None:
                yield None
                return
            if part is not None:
                self._require_whole(span[1])
                span = span[0] + part[0], part[1]
            if span[1] > limit:
                raise BadChunk(f"its shard's index says {span[1]} bytes, more than the {limit} that a chunk can have")
            with self._blobs.fetch(key, limit, span, into) as blob:
                if blob is not None and blob.stamp == found.stamp:
                    yield blob
                    return
            self._indexes.drop(key)  # the shard was replaced since its index was read
        raise BadChunk("its shard is being rewritten")

    def _require_whole(self, nbytes: int) -> None:
        """A unit that is read in parts has as many bytes as its values, whichever of them are read."""
        if nbytes != self._stored.unit_nbytes:
            raise BadChunk(f"has {nbytes} bytes, but a chunk has {self._stored.unit_nbytes}")

    def _decode(self, blob: Blob, shape: tuple[int, ...], out: npt.NDArray[Any]) -> None:
        layout = self.layout
        try:
            if out.shape == shape:
                layout.codec.decode(blob.data, out)
                return
            nbytes = math.prod(shape) * layout.dtype.itemsize
            with POOL.lend(nbytes) as scratch:
                unit = scratch.view(layout.dtype).reshape(shape)
                layout.codec.decode(blob.data, unit)
                out[...] = unit[tuple(slice(0, n) for n in out.shape)]
        except (BadChunk, MemoryError):
            raise
        except Exception as error:  # codecs raise what they like, OSError too
            raise _Undecodable(f"can't be decoded: {type(error).__name__}: {error}") from error

    def _fill(self, index: tuple[int, ...], key: str, out: npt.NDArray[Any]) -> None:
        if self.is_local:
            self.check()  # if the whole array is gone, so are its chunks
        if self._missing == "error":
            raise StorageError(f"{self._where(index, key)}: was never written")
        out[...] = self.layout.fill

    def _where(self, index: tuple[int, ...], key: str) -> str:
        return f"chunk {index} of array {self.name} (key {key!r})"


class _Undecodable(Exception):
    """The codec failed; its own exception is the cause."""


def open_array(source: object, path: str = "", *, missing: Missing = "fill") -> StoredArray:
    """Open a stored array for reading; nothing but its metadata is read.

    Parameters
    ----------
    source
        A path or URL (``file://`` is local; others need fsspec), a ``zarr.Array``, or any zarr store.
    path
        The array's path below `source`.
    missing
        What a chunk that was never written reads as: "fill", the array's fill value; "error", a StorageError.

    Raises
    ------
    FileNotFoundError
        Nothing is there.
    ValueError
        There is a group (the message lists its arrays), or the metadata can't be used: an unknown
        codec, say.
    TypeError
        The dtype isn't one of the array API's, or `source` isn't a place.
    """
    location = locate(source, path)
    if location.is_local:
        recover(location.path)
    blobs = blobs_at(location)
    return StoredArray(location, blobs, read_metadata(location, blobs), missing)


def mark_stale(location: Location) -> None:
    """Make every open array at this place, under whatever spelling, raise SourceChangedError from now on."""
    replaced = identity(location)
    with _OPEN_LOCK:
        for array in _OPEN:
            if replaced is not None and array._identity == replaced:
                array._stale = True


def blobs_at(location: Location) -> Blobs:
    return DirectoryBlobs(location.path) if location.store is None else StoreBlobs(location.store, location.path)


def _is_raw(layout: Layout) -> bool:
    return isinstance(layout.codec, PlainCodec) and layout.codec.is_raw


def note_once(error: BaseException, note: str) -> None:
    """Add a note, also to an exception object that a store raises again and again."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


_OPEN: weakref.WeakSet[StoredArray] = weakref.WeakSet()
_OPEN_LOCK = threading.Lock()
