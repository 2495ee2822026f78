"""The bytes behind a key: in a local directory, or in any zarr store.

Both tell *absent* (nobody ever wrote it) from *unreadable* (it raises): a chunk that can't be read
must never pass for one that holds the fill value.
"""

from __future__ import annotations

import io
import itertools
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.buffer import cpu
from zarr.core.sync import sync

from jaxchunk.store.buffers import POOL, Bytes
from jaxchunk.store.compress import BadChunk

Stamp: TypeAlias = tuple[int, int, int, int]
"""Device, inode, mtime in ns and size of a file: differs once the file is replaced or rewritten."""

Span: TypeAlias = tuple[int, int]
"""(start, length) of a part of an object; a negative start counts from its end."""


class Blob(NamedTuple):
    """An object's bytes (or a part of them) and its stamp, where the storage has one."""

    data: Bytes
    stamp: Stamp | None


class Blobs(Protocol):
    """Where an array's objects are."""

    def fetch(
        self, key: str, limit: int, span: Span | None = None, into: Bytes | None = None
    ) -> AbstractContextManager[Blob | None]:
        """The bytes under `key`, valid until the block ends; None where the key is absent.

        More than `limit` bytes are refused with BadChunk. Where exactly `into`'s size is there, it
        may be read into `into`.
        """

    def put(self, key: str, pieces: Iterable[Bytes]) -> None:
        """Write the pieces as one object, whole or not at all; each piece is used before the next is asked for."""

    def stamp(self, key: str) -> Stamp | None:
        """The object's stamp; None where it is absent, or where the storage has no stamps."""


class DirectoryBlobs:
    """Files below a local directory."""

    def __init__(self, root: str) -> None:
        self.root = root

    @contextmanager
    def fetch(self, key: str, limit: int, span: Span | None = None, into: Bytes | None = None) -> Iterator[Blob | None]:
        path = f"{self.root}/{key}"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._require_absent(key)
            yield None
            return
        try:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(f"a directory is where the file of a chunk should be: {path}")
            start, length = _resolve(span, status.st_size)
            if length > limit:
                raise BadChunk(f"has {length} bytes, more than the {limit} its codec can make of a chunk")
            if into is not None and into.nbytes == length:
                _read_exactly(fd, into, start)
                yield Blob(into, stamp_of(status))
            else:
                with POOL.lend(length) as buffer:
                    _read_exactly(fd, buffer, start)
                    yield Blob(buffer, stamp_of(status))
        finally:
            os.close(fd)

    def put(self, key: str, pieces: Iterable[Bytes]) -> None:
        path = f"{self.root}/{key}"
        partial = f"{path}.{_WRITER}-{next(_COUNTER)}.partial"
        try:
            file = _create(partial)
        except FileNotFoundError:
            if not os.path.isdir(self.root):  # removed: to make it again would leave a torso behind
                raise
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = _create(partial)
        try:
            with file:
                for piece in pieces:
                    view = piece.data
                    while len(view):
                        view = view[file.write(view) :]
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise

    def stamp(self, key: str) -> Stamp | None:
        try:
            return stamp_of(os.stat(f"{self.root}/{key}"))
        except FileNotFoundError:
            return None

    def _require_absent(self, key: str) -> None:
        """Raise if something is there after all: a link whose target is missing, on the way or at the end."""
        path = self.root
        for part in key.split("/"):
            path = f"{path}/{part}"
            if os.path.islink(path) and not os.path.exists(path):
                raise BadChunk(f"{path} is a link to {os.readlink(path)!r}, which is missing")


class StoreBlobs:
    """Keys below a path of any zarr store."""

    def __init__(self, store: Store, path: str) -> None:
        self.store = store
        self.prefix = f"{path}/" if path else ""

    @contextmanager
    def fetch(self, key: str, limit: int, span: Span | None = None, into: Bytes | None = None) -> Iterator[Blob | None]:
        request: ByteRequest | None = None
        if span is not None:
            start, length = span
            request = SuffixByteRequest(length) if start < 0 else RangeByteRequest(start, start + length)
        found = sync(self.store.get(self.prefix + key, cpu.buffer_prototype, request))
        if found is None:
            yield None
            return
        data = np.asarray(found.as_numpy_array()).view(np.uint8)
        if span is not None and data.nbytes != span[1]:
            raise BadChunk(f"only {data.nbytes} of the {span[1]} bytes from {span[0]} on are there")
        if data.nbytes > limit:
            raise BadChunk(f"has {data.nbytes} bytes, more than the {limit} its codec can make of a chunk")
        yield Blob(data, None)

    def put(self, key: str, pieces: Iterable[Bytes]) -> None:
        whole = bytearray()
        for piece in pieces:
            whole += piece.data
        buffer = cpu.Buffer.from_array_like(np.frombuffer(whole, np.uint8))
        sync(self.store.set(self.prefix + key, buffer))

    def stamp(self, key: str) -> Stamp | None:
        return None


def _create(path: str) -> io.FileIO:
    return io.FileIO(path, "xb")


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _resolve(span: Span | None, size: int) -> Span:
    if span is None:
        return 0, size
    start, length = span
    start = size + start if start < 0 else start
    if start < 0 or start + length > size:
        raise BadChunk(f"has {size} bytes, too few to hold the {length} from {span[0]} on")
    return start, length


def _read_exactly(fd: int, buffer: Bytes, start: int) -> None:
    view = buffer.data
    while len(view):
        got = os.preadv(fd, [view], start)
        if got == 0:
            raise BadChunk(f"became shorter while it was read: {len(view)} bytes are missing")
        view, start = view[got:], start + got


_WRITER = uuid.uuid4().hex[:12]
_COUNTER = itertools.count()


def _renew_writer() -> None:
    global _WRITER
    _WRITER = uuid.uuid4().hex[:12]


os.register_at_fork(after_in_child=_renew_writer)
