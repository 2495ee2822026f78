"""Reading an array's metadata object, and knowing it again later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import zarr
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.storage import LocalStore

from jaxchunk.errors import StorageError
from jaxchunk.store.blobs import Blobs
from jaxchunk.store.compress import BadChunk
from jaxchunk.store.location import Location

_LIMIT = 2**28
_LISTED = 20


@dataclass(frozen=True)
class Metadata:
    """An array's metadata, the key it was under, and a stamp that differs once it is replaced."""

    parsed: ArrayV2Metadata | ArrayV3Metadata
    key: str
    stamp: Hashable


def read_metadata(location: Location, blobs: Blobs) -> Metadata:
    """Read and parse the metadata of the array at `location`.

    Raises
    ------
    FileNotFoundError
        There is neither an array nor a group.
    ValueError
        There is a group, or something in the metadata is unknown here.
    """
    if location.zarr_format != 2 and (found := _read_json(location, blobs, "zarr.json")):
        document, stamp = found
        if document.get("node_type") == "group":
            raise ValueError(_group_message(location))
        return Metadata(_parse(location, ArrayV3Metadata, document), "zarr.json", stamp)
    if location.zarr_format != 3 and (found := _read_json(location, blobs, ".zarray")):
        document, stamp = found
        return Metadata(_parse(location, ArrayV2Metadata, document), ".zarray", stamp)
    if location.zarr_format != 3 and _read_json(location, blobs, ".zgroup"):
        raise ValueError(_group_message(location))
    raise FileNotFoundError(f"no Zarr array at {location.name}: it has neither zarr.json nor .zarray")


def is_array(location: Location, blobs: Blobs) -> bool:
    """Whether there is an array, of any kind."""
    if found := _read_json(location, blobs, "zarr.json"):
        return found[0].get("node_type") == "array"
    return _read_json(location, blobs, ".zarray") is not None


def metadata_stamp(blobs: Blobs, key: str) -> Hashable | None:
    """The stamp that the metadata object has now; None where it is gone."""
    if (stamp := blobs.stamp(key)) is not None:
        return stamp
    with blobs.fetch(key, _LIMIT) as blob:
        return None if blob is None else blob.stamp or hashlib.sha256(blob.data.tobytes()).digest()


def _read_json(location: Location, blobs: Blobs, key: str) -> tuple[dict[str, Any], Hashable] | None:
    try:
        with blobs.fetch(key, _LIMIT) as blob:
            if blob is None:
                return None
            text = blob.data.tobytes()
            document = json.loads(text)
            if not isinstance(document, dict):
                raise BadChunk(f"a JSON object was expected, not {type(document).__name__}")
            return document, blob.stamp or hashlib.sha256(text).digest()
    except ValueError as error:  # JSON's own errors, and BadChunk
        raise StorageError(f"{location.name}: its {key} is damaged: {error}") from error
    except NotADirectoryError as error:
        raise FileNotFoundError(
            f"no Zarr array at {location.name}: a file is in the way. A zip file is opened with zarr.storage.ZipStore"
        ) from error


def _parse(
    location: Location, kind: type[ArrayV2Metadata] | type[ArrayV3Metadata], document: dict[str, Any]
) -> ArrayV2Metadata | ArrayV3Metadata:
    try:
        return kind.from_dict(document)
    except (ValueError, KeyError, TypeError) as error:
        if "codec" in type(error).__name__.lower():
            raise ValueError(
                f"{location.name} needs a codec that isn't installed: {error}. Install the package that has it, "
                "or register it with zarr (v3) or numcodecs (v2), then open the array again"
            ) from error
        if "data type" in str(error).lower():
            raise TypeError(f"{location.name} has a dtype that zarr doesn't know: {error}") from error
        raise ValueError(f"{location.name}: its metadata can't be used: {error}") from error


def _group_message(location: Location) -> str:
    store = location.store or LocalStore(location.path, read_only=True)
    group = zarr.open_group(store, path=location.path if location.store else "", mode="r")
    arrays = [name for name, node in group.members(max_depth=None) if isinstance(node, zarr.Array)]
    listed = ", ".join(arrays[:_LISTED]) + (f", … ({len(arrays)} in all)" if len(arrays) > _LISTED else "")
    return f"{location.name} is a group, not an array; its arrays: {listed or 'none'}. Open one of them by its path"
