"""Where a target's chunks go until it is committed, and what committing and aborting mean there."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.core.sync import sync
from zarr.errors import ContainsGroupError
from zarr.storage import LocalStore, MemoryStore

from jaxchunk.store.blobs import Blobs, DirectoryBlobs
from jaxchunk.store.buffers import Bytes
from jaxchunk.store.layout import Layout, layout_of
from jaxchunk.store.location import Location, locate
from jaxchunk.store.metadata import is_array, read_metadata
from jaxchunk.store.stored import StoredArray, blobs_at, mark_stale
from jaxchunk.store.swap import NewDirectory, clean_up, recover

ZarrFormat: TypeAlias = Literal[2, 3]


class Place(Protocol):
    """What a target writes to."""

    layout: Layout
    blobs: Blobs

    def begin(self) -> None:
        """Called once, before the first chunk is written or, where there is none, before `commit`."""

    def commit(self) -> None:
        """Make the array visible."""

    def abort(self) -> None:
        """Remove what was written."""


class LocalPlace:
    """A new array in a local directory: built under a hidden name, then swapped in.

    Parameters
    ----------
    location
        Where the array is to be.
    overwrite
        Whether an array that is there may be replaced.
    zarr_format
        None: 3, but 2 below a v2 group.
    parameters
        What ``zarr.create_array`` takes.
    """

    def __init__(
        self, location: Location, overwrite: bool, zarr_format: ZarrFormat | None, parameters: dict[str, Any]
    ) -> None:
        self._location = location
        self._overwrite = overwrite
        self._above = _nearest_directory(location)
        clean_up(location.path, self._above)
        if os.path.lexists(location.path) and not _is_empty_directory(location.path):
            _require_replaceable(location, overwrite)
        self._group_format = _group_format(self._above)
        metadata, self._documents = _new_metadata(zarr_format or self._group_format or 3, parameters)
        self.layout = layout_of(metadata, location.name)
        self._new = NewDirectory(location.path, self._above)
        self.blobs: Blobs = DirectoryBlobs(self._new.path)

    def begin(self) -> None:
        pass

    def commit(self) -> None:
        # The metadata comes last: until now nobody took the hidden directory for an array.
        for key, document in self._documents.items():
            self.blobs.put(key, [document])
        if self._group_format is not None:
            _make_groups(self._above, os.path.dirname(self._location.path), self._group_format)
        self._new.commit(self._overwrite, before_swap=lambda: mark_stale(self._location))

    def abort(self) -> None:
        self._new.discard()


class StorePlace:
    """A new array in any other store, written in place: its metadata first, then its chunks.

    Parameters
    ----------
    location, store
        Where the array is to be.
    overwrite
        Whether an array that is there may be deleted, when the first chunk is written.
    zarr_format, parameters
        As for `LocalPlace`.
    """

    def __init__(
        self, location: Location, store: Store, overwrite: bool, zarr_format: ZarrFormat, parameters: dict[str, Any]
    ) -> None:
        self._location = location
        self._store = store
        self._parameters = {**parameters, "overwrite": overwrite, "zarr_format": zarr_format}
        if not sync(store.is_empty(location.path)):
            _require_replaceable(location, overwrite)
        metadata, _ = _new_metadata(zarr_format, parameters)
        self.layout = layout_of(metadata, location.name)
        self.blobs = blobs_at(location)
        self._begun = False

    def begin(self) -> None:
        mark_stale(self._location)
        self._begun = True
        zarr.create_array(self._store, name=self._location.path or None, **self._parameters)

    def commit(self) -> None:
        pass

    def abort(self) -> None:
        if self._begun:
            sync(self._store.delete_dir(self._location.path))


class RegionPlace:
    """An array that exists, some of whose write units are replaced one by one."""

    def __init__(self, location: Location) -> None:
        if location.is_local:
            recover(location.path)
        self._location = location
        self.blobs = blobs_at(location)
        self.layout = layout_of(read_metadata(location, self.blobs).parsed, location.name)

    def begin(self) -> None:
        mark_stale(self._location)

    def commit(self) -> None:
        pass

    def abort(self) -> None:
        pass


def check_free(place: object, overwrite: bool, path: str = "") -> Hashable:
    """Raise where `Target.create` would for what is at a place now, or around it; nothing is made.

    Returns what stands for the place, whatever its spelling.
    """
    location = locate(place, path)
    refuse_inside_array(location)
    if location.store is not None:
        taken = not sync(location.store.is_empty(location.path))
    else:
        taken = os.path.lexists(location.path) and not _is_empty_directory(location.path)
    if taken:
        _require_replaceable(location, overwrite)
    return (None if location.store is None else id(location.store), location.path)


def refuse_inside_array(location: Location) -> None:
    """Raise ValueError where something above a place is an array: its readers would take what is below for chunks."""
    path = location.path
    while path not in ("", os.sep):
        path = os.path.dirname(path) if location.store is None else path.rpartition("/")[0]
        above = Location(location.store, path, path if location.store is None else f"{location.store}/{path}")
        with suppress(OSError):  # what can't be read is no array, or is complained of when it is made use of
            if is_array(above, blobs_at(above)):
                raise ValueError(f"{location.name} can't be made: {above.name} is a Zarr array, and holds chunks only")


def refuse_reading(location: Location, reading: Sequence[StoredArray], what: str) -> None:
    """Raise ValueError where the values to be written in place come from the array itself."""
    for array in reading:
        if array.is_same_array(location):
            raise ValueError(f"the values are read from {array.name}, so they can't be written to {what}")


def _new_metadata(
    zarr_format: ZarrFormat, parameters: dict[str, Any]
) -> tuple[ArrayV2Metadata | ArrayV3Metadata, dict[str, Bytes]]:
    """The metadata that zarr-python makes of these parameters, parsed and as its documents' bytes."""
    store = MemoryStore()
    array = zarr.create_array(store, zarr_format=zarr_format, **parameters)
    documents = {}
    for key in ("zarr.json",) if zarr_format == 3 else (".zarray", ".zattrs"):
        document = sync(store.get(key, cpu.buffer_prototype))
        if document is not None:
            documents[key] = np.frombuffer(document.to_bytes(), np.uint8)
    return array.metadata, documents


def _require_replaceable(location: Location, overwrite: bool) -> None:
    try:
        read_metadata(location, blobs_at(location))
    except (FileNotFoundError, ValueError) as error:
        raise FileExistsError(f"{location.name} has something that isn't an array; remove it first") from error
    if not overwrite:
        raise FileExistsError(f"{location.name} is there already; pass overwrite=True to replace it")


def _nearest_directory(location: Location) -> str:
    """The innermost directory above a place that exists."""
    path = os.path.dirname(location.path)
    while not os.path.isdir(path):
        if os.path.lexists(path):
            raise NotADirectoryError(f"{location.name} can't be made: {path} is a file")
        path = os.path.dirname(path)
    return path


def _is_empty_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.listdir(path)


def _group_format(directory: str) -> ZarrFormat | None:
    """The Zarr format of the group that a directory is; None where it isn't one."""
    formats: tuple[tuple[str, ZarrFormat], ...] = (("zarr.json", 3), (".zgroup", 2))
    for key, zarr_format in formats:
        if os.path.exists(os.path.join(directory, key)):
            zarr.open_group(LocalStore(directory, read_only=True), mode="r", zarr_format=zarr_format)
            return zarr_format
    return None


def _make_groups(above: str, last: str, zarr_format: ZarrFormat) -> None:
    """Make every directory below the group `above`, down to `last`, a group."""
    path = above
    for part in os.path.relpath(last, above).split(os.sep):
        path = os.path.normpath(os.path.join(path, part))
        if path != above:
            with suppress(ContainsGroupError):  # made meanwhile, for a sibling
                zarr.create_group(LocalStore(path), zarr_format=zarr_format)
