"""Where an array is: every spelling that users have for it, brought to one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

import zarr
from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath, WrapperStore

ArrayLocation: TypeAlias = "str | os.PathLike[str] | zarr.Array[Any] | zarr.Group | Store | StorePath"
"""What stands for the place of a stored array."""


@dataclass(frozen=True, eq=False)
class Location:
    """The place of one array (or of one that is to be)."""

    store: Store | None
    """None for a local directory."""
    path: str
    """Within `store`, without slashes at its ends; for a local directory, that directory, links resolved."""
    name: str
    """As users know it, for messages."""
    zarr_format: Literal[2, 3] | None = None
    """Where the user's object says it."""

    @property
    def is_local(self) -> bool:
        return self.store is None


def locate(source: object, path: str = "") -> Location:
    """The place that `source` names: a path, a URL, a zarr array or group, a store; `path` below it.

    Raises
    ------
    TypeError
        `source` is none of these.
    """
    if isinstance(source, zarr.Array | zarr.Group):
        place = _in_store(source.store_path.store, _join(source.store_path.path, path))
        zarr_format = source.metadata.zarr_format
        return Location(place.store, place.path, place.name, zarr_format)
    if isinstance(source, StorePath):
        return _in_store(source.store, _join(source.path, path))
    if isinstance(source, Store):
        return _in_store(source, path.strip("/"))
    if isinstance(source, str) and "://" in source:
        return _from_url(source, path)
    if isinstance(source, str | os.PathLike):
        return _local(os.path.join(os.fspath(source), path.strip("/")) if path else os.fspath(source))
    raise TypeError(
        f"an array's place is a path, a URL, a zarr.Array or a zarr store, not {type(source).__name__}: {source!r:.80}"
    )


def identity(location: Location) -> tuple[object, ...] | None:
    """What two spellings of one array have in common; None where there is nothing.

    A local directory is its device and inode, so links and mounts don't matter; elsewhere it is the
    innermost store and the path in it.
    """
    if location.store is None:
        return _directory_identity(location.path)
    store, path = location.store, location.path
    while isinstance(store, WrapperStore):
        store = store._store
    if isinstance(store, LocalStore):
        return _directory_identity(os.path.join(store.root, path))
    if isinstance(store, MemoryStore):  # equal contents make two of them equal, which says nothing
        return (id(store._store_dict), path)
    return (store, path)


def _directory_identity(path: str) -> tuple[object, ...] | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (status.st_dev, status.st_ino)


def _in_store(store: Store, path: str) -> Location:
    if type(store) is LocalStore:  # a subclass may do as it likes with keys
        return _local(os.path.join(store.root, path) if path else os.fspath(store.root))
    sync(StorePath.open(store, path))  # stores open themselves only when zarr-python first uses them
    return Location(store, path, _join(str(store), path))


def _from_url(url: str, path: str) -> Location:
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{url!r}: a file URL names a file of this machine, as in 'file:///data/x.zarr'")
        # Paths with a literal % are spelled both ways; what exists decides.
        plain = parts.path if os.path.exists(parts.path) else unquote(parts.path)
        return _local(_join_directory(plain, path))
    store = FsspecStore.from_url(url)
    return Location(store, path.strip("/"), _join(url, path))


def _local(directory: str) -> Location:
    return Location(None, os.path.realpath(directory), directory)


def _join(path: str, rest: str) -> str:
    return "/".join(part for part in (path.rstrip("/"), rest.strip("/")) if part)


def _join_directory(directory: str, rest: str) -> str:
    return os.path.join(directory, rest.strip("/")) if rest else directory
