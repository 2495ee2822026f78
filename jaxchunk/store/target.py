"""Arrays being written: whole write units, each exactly once, nothing visible before it is complete."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.core.sync import sync
from zarr.errors import ContainsGroupError
from zarr.storage import LocalStore, MemoryStore

from jaxchunk.graph.grid import Box, Grid, block_box, box_shape
from jaxchunk.store.blobs import Blobs, DirectoryBlobs, StoreBlobs
from jaxchunk.store.layout import Layout, layout_of, require_block
from jaxchunk.store.location import Location, locate
from jaxchunk.store.metadata import read_metadata
from jaxchunk.store.shards import encoded_pieces
from jaxchunk.store.stored import StoredArray, blobs_at, mark_stale
from jaxchunk.store.swap import NewDirectory, clean_up, recover


class Target:
    """A stored array, or a region of one, that is being written.

    Made by `Target.create` or `Target.region`. `write_chunk` may be called from any thread, once for
    every block of `write_grid`; then `commit` makes the result visible, or `abort` leaves what was
    there before. As a context manager it commits, and aborts where the body raises.

    Attributes
    ----------
    name
        For messages.
    shape, dtype
        Of what is written: the array, or the region.
    write_grid
        What is written at a time: whole chunks, or whole shards.
    """

    def __init__(
        self,
        name: str,
        layout: Layout,
        blobs: Blobs,
        origin: tuple[int, ...],
        write_grid: Grid,
        begin: Callable[[], None],
        commit: Callable[[], None],
        abort: Callable[[], None],
    ) -> None:
        self.name = name
        self.dtype = layout.dtype
        self.write_grid = write_grid
        self.shape = tuple(axis.length for axis in write_grid)
        self._layout = layout
        self._blobs = blobs
        self._origin = origin
        self._begin = _Once(begin)
        self._commit = commit
        self._abort = abort
        self._state: Literal["open", "committed", "aborted"] = "open"

    @staticmethod
    def create(
        place: object,
        path: str = "",
        *,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        chunks: Sequence[int],
        shards: Sequence[int] | None = None,
        overwrite: bool = False,
        attributes: Mapping[str, Any] | None = None,
        dimension_names: Sequence[str | None] | None = None,
        fill_value: Any = 0,
        compressors: Any = "auto",
        zarr_format: Literal[2, 3] | None = None,
        reading: Sequence[StoredArray] = (),
    ) -> Target:
        """A new array at `place`.

        In a local directory it is built beside its final place and swapped in by `commit`; an array
        that it replaces is whole until then. In any other store it is written in place: where
        nothing was, `abort` removes it again; where an array is replaced (``overwrite=True``), that
        one is deleted when the first chunk is written, and neither of the two is there while the
        writing goes on, nor after a failure.

        Parameters
        ----------
        place, path
            As in `open_array`. Where `place` is a path below a Zarr group, missing groups on the way
            are made.
        shape, dtype, chunks, shards, attributes, dimension_names, fill_value, compressors
            As in ``zarr.create_array``.
        overwrite
            Whether an array that is there may be replaced. A group, or a directory that isn't Zarr,
            never is.
        zarr_format
            3 where None, but 2 below a v2 group.
        reading
            The stored arrays that the values come from.

        Raises
        ------
        FileExistsError
            There is something, and it may not be replaced.
        ValueError
            The array would be written in place over one of `reading`; or zarr refuses a parameter.
        """
        location = locate(place, path)
        parameters: dict[str, Any] = {
            "shape": tuple(shape),
            "dtype": np.dtype(dtype),
            "chunks": tuple(chunks),
            "shards": None if shards is None else tuple(shards),
            "attributes": dict(attributes or {}),
            "dimension_names": None if dimension_names is None else tuple(dimension_names),
            "fill_value": fill_value,
            "compressors": compressors,
            "config": {"write_empty_chunks": True},
        }
        if location.store is None:
            return _create_local(location, overwrite, zarr_format, parameters)
        return _create_in_store(location, location.store, overwrite, zarr_format or 3, parameters, reading)

    @staticmethod
    def region(
        place: object, region: Sequence[slice], path: str = "", *, reading: Sequence[StoredArray] = ()
    ) -> Target:
        """A region of an array that exists, written in place.

        Each write unit is replaced atomically, but `abort` can't bring back those that were written.

        Parameters
        ----------
        place, path
            As in `open_array`.
        region
            A slice per axis, of step 1. Its edges lie on edges of the array's chunks (shards, where
            it is sharded), or at the array's end.
        reading
            The stored arrays that the values come from.

        Raises
        ------
        ValueError
            Edges that cut a chunk or shard; `reading` has the array itself.
        """
        location = locate(place, path)
        if location.is_local:
            recover(location.path)
        _refuse_reading(location, reading, "a region of it")
        blobs = blobs_at(location)
        layout = layout_of(read_metadata(location, blobs).parsed, location.name)
        box = _whole_units(layout, region, location.name)
        origin = tuple(
            axis.find(start) if start < stop else 0 for axis, (start, stop) in zip(layout.write_grid, box, strict=True)
        )
        grid = tuple(axis.sliced(start, stop) for axis, (start, stop) in zip(layout.write_grid, box, strict=True))

        def begin() -> None:
            mark_stale(location)

        return Target(location.name, layout, blobs, origin, grid, begin, _nothing, _nothing)

    @property
    def encode_bytes(self) -> int:
        """Bytes that writing one unit takes at most, besides its values."""
        layout = self._layout
        whole = 0
        if layout.sharding is not None:
            units = int(np.prod(layout.sharding.units))
            index = layout.sharding.index_codec.encoded_bound
            whole = 2 * index
            if isinstance(self._blobs, StoreBlobs) or not layout.sharding.index_at_end:
                whole += 2 * (units * layout.codec.encoded_bound + index)
        elif isinstance(self._blobs, StoreBlobs):
            whole = layout.codec.encoded_bound
        return layout.unit_nbytes + layout.codec.encode_scratch + whole

    def write_chunk(self, index: tuple[int, ...], value: npt.NDArray[Any]) -> None:
        """Write one whole unit, also where it holds nothing but the fill value.

        Parameters
        ----------
        index
            The unit's block index in `write_grid`.
        value
            Of the block's shape (at the array's end, the clipped one) and this array's dtype.

        Raises
        ------
        StorageError
            The codecs can't encode it.
        Exception
            What the storage raises, with a note of array, chunk and key.
        """
        if self._state != "open":
            raise RuntimeError(f"{self.name} was {self._state}; nothing more can be written to it")
        require_block(index, self.write_grid, self.name)
        shape = box_shape(block_box(self.write_grid, index))
        if value.shape != shape or value.dtype != self.dtype:
            raise ValueError(
                f"value: shape {value.shape}, dtype {value.dtype}; "
                f"chunk {index} of {self.name} has shape {shape}, dtype {self.dtype}"
            )
        self._begin()
        coords = tuple(i + o for i, o in zip(index, self._origin, strict=True))
        key = self._layout.encode_key(coords)
        try:
            self._blobs.put(key, encoded_pieces(self._layout, value))
        except Exception as error:
            error.add_note(f"while writing chunk {coords} of array {self.name} (key {key!r})")
            raise

    def commit(self) -> None:
        """Make what was written visible; arrays opened on what was there before become stale."""
        if self._state != "open":
            raise RuntimeError(f"{self.name} was {self._state} already")
        try:
            self._begin()
            self._commit()
        except BaseException:
            self.abort()
            raise
        self._state = "committed"

    def abort(self) -> None:
        """Give up: what was there before stays (where it wasn't replaced in place)."""
        if self._state == "open":
            self._state = "aborted"
            self._abort()

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif self._state == "open":
            self.commit()


def _create_local(
    location: Location, overwrite: bool, zarr_format: Literal[2, 3] | None, parameters: dict[str, Any]
) -> Target:
    final = location.path
    parent = os.path.dirname(final)
    while not os.path.isdir(parent):
        if os.path.lexists(parent):
            raise NotADirectoryError(f"{location.name} can't be made: {parent} is a file")
        parent = os.path.dirname(parent)
    clean_up(final, parent)
    _refuse_existing(location, overwrite)
    format_above = _group_format(parent)
    metadata, documents = _new_metadata(zarr_format or format_above or 3, parameters)
    layout = layout_of(metadata, location.name)
    new = NewDirectory(final, parent)

    def commit() -> None:
        # The metadata comes last: until now nobody took the hidden directory for an array.
        for key, document in documents.items():
            DirectoryBlobs(new.path).put(key, [document])
        if format_above is not None:
            _make_groups(parent, os.path.dirname(final), format_above)
        new.commit(overwrite, before_swap=lambda: mark_stale(location))

    origin = (0,) * len(layout.shape)
    blobs = DirectoryBlobs(new.path)
    return Target(location.name, layout, blobs, origin, layout.write_grid, _nothing, commit, new.discard)


def _create_in_store(
    location: Location,
    store: Store,
    overwrite: bool,
    zarr_format: Literal[2, 3],
    parameters: dict[str, Any],
    reading: Sequence[StoredArray],
) -> Target:
    _refuse_reading(location, reading, "it in place: this store can't swap arrays")
    if not sync(store.is_empty(location.path)):
        blobs = blobs_at(location)
        try:
            read_metadata(location, blobs)
        except (FileNotFoundError, ValueError) as error:
            raise FileExistsError(f"{location.name} has something that isn't an array; remove it first") from error
        if not overwrite:
            raise FileExistsError(f"{location.name} is there already; pass overwrite=True to replace it in place")
    metadata, _ = _new_metadata(zarr_format, parameters)

    def begin() -> None:
        mark_stale(location)
        zarr.create_array(store, name=location.path or None, zarr_format=zarr_format, overwrite=overwrite, **parameters)

    def abort() -> None:
        if target._begin.done:
            sync(store.delete_dir(location.path))

    layout = layout_of(metadata, location.name)
    origin = (0,) * len(layout.shape)
    target = Target(location.name, layout, blobs_at(location), origin, layout.write_grid, begin, _nothing, abort)
    return target


def _new_metadata(
    zarr_format: Literal[2, 3], parameters: dict[str, Any]
) -> tuple[ArrayV2Metadata | ArrayV3Metadata, dict[str, npt.NDArray[np.uint8]]]:
    """The metadata that zarr-python makes of these parameters, parsed and as its documents' bytes."""
    store = MemoryStore()
    array = zarr.create_array(store, zarr_format=zarr_format, **parameters)
    keys = ("zarr.json",) if zarr_format == 3 else (".zarray", ".zattrs")
    documents = {}
    for key in keys:
        document = sync(store.get(key, cpu.buffer_prototype))
        if document is not None:
            documents[key] = np.frombuffer(document.to_bytes(), np.uint8)
    return array.metadata, documents


def _refuse_existing(location: Location, overwrite: bool) -> None:
    path = location.path
    if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
        return
    try:
        read_metadata(location, blobs_at(location))
    except (FileNotFoundError, ValueError) as error:
        raise FileExistsError(
            f"{location.name} is there and isn't a Zarr array; only an array can be replaced"
        ) from error
    if not overwrite:
        raise FileExistsError(f"{location.name} is there already; pass overwrite=True to replace it")


def _refuse_reading(location: Location, reading: Sequence[StoredArray], what: str) -> None:
    for array in reading:
        if array.is_same_array(location):
            raise ValueError(
                f"the values are read from {array.name}, so they can't be written to {what}; write elsewhere"
            )


def _group_format(directory: str) -> Literal[2, 3] | None:
    """The Zarr format of the group that a directory is; None where it isn't one."""
    formats: tuple[tuple[str, Literal[2, 3]], ...] = (("zarr.json", 3), (".zgroup", 2))
    for key, zarr_format in formats:
        if os.path.exists(os.path.join(directory, key)):
            zarr.open_group(LocalStore(directory, read_only=True), mode="r", zarr_format=zarr_format)
            return zarr_format
    return None


def _make_groups(parent: str, last: str, zarr_format: Literal[2, 3]) -> None:
    """Make every directory below the group `parent`, down to `last`, a group."""
    path = parent
    for part in os.path.relpath(last, parent).split(os.sep):
        path = os.path.normpath(os.path.join(path, part))
        if path != parent:
            with suppress(ContainsGroupError):  # made meanwhile, for a sibling
                zarr.create_group(LocalStore(path), zarr_format=zarr_format)


def _whole_units(layout: Layout, region: Sequence[slice], name: str) -> Box:
    """The region's box, after checking that it cuts no write unit."""
    if len(region) != len(layout.shape):
        raise ValueError(f"region has {len(region)} slices, but {name} has {len(layout.shape)} axes")
    unit = layout.sharding.shape if layout.sharding else layout.unit
    box = []
    for axis, (part, n, u) in enumerate(zip(region, layout.shape, unit, strict=True)):
        start, stop, step = part.indices(n)
        if step != 1:
            raise ValueError(f"region: step {step} on axis {axis}; regions are contiguous")
        stop = max(start, stop)
        if start % u or (stop % u and stop != n):
            raise ValueError(
                f"region {start}:{stop} of axis {axis} cuts a {'shard' if layout.sharding else 'chunk'} of {name}: "
                f"its edges have to be multiples of {u} (or the end, {n})"
            )
        box.append((start, stop))
    return tuple(box)


class _Once:
    """Calls a function the first time it is called itself; others wait until that call has ended."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self.done = False

    def __call__(self) -> None:
        if not self.done:
            with self._lock:
                if not self.done:
                    self._function()
                    self.done = True


def _nothing() -> None:
    pass
