"""Arrays being written: whole write units, each exactly once, nothing visible before it is complete."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from jaxchunk.graph.grid import Box, Grid, block_box, box_shape
from jaxchunk.store.blobs import StoreBlobs
from jaxchunk.store.layout import Layout, require_block
from jaxchunk.store.location import locate
from jaxchunk.store.places import (
    LocalPlace,
    Place,
    RegionPlace,
    StorePlace,
    ZarrFormat,
    refuse_inside_array,
    refuse_reading,
)
from jaxchunk.store.shards import encoded_pieces
from jaxchunk.store.stored import StoredArray, note_once


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

    def __init__(self, name: str, place: Place, origin: tuple[int, ...], write_grid: Grid) -> None:
        self.name = name
        self.dtype = place.layout.dtype
        self.write_grid = write_grid
        self.shape = tuple(axis.length for axis in write_grid)
        self._place = place
        self._origin = origin  # of write_grid, in the array's own write units
        self._state: Literal["open", "committed", "aborted"] = "open"
        self._begun = False
        self._writing = 0
        self._changed = threading.Condition()

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
        zarr_format: ZarrFormat | None = None,
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
            The array would be written in place over one of `reading`, or inside of an array; or zarr refuses
            a parameter.
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
        }
        to: Place
        refuse_inside_array(location)
        if location.store is None:
            to = LocalPlace(location, overwrite, zarr_format, parameters)
        else:
            refuse_reading(location, reading, "it in place: this store can't swap arrays")
            to = StorePlace(location, location.store, overwrite, zarr_format or 3, parameters)
        return Target(location.name, to, (0,) * len(to.layout.shape), to.layout.write_grid)

    @staticmethod
    def region(
        place: object, region: Sequence[slice], path: str = "", *, reading: Sequence[StoredArray] = ()
    ) -> Target:
        """A region of an array that exists, written in place.

        Each write unit is replaced atomically, but `abort` can't bring back those that were written.
        A process that is killed may leave a file ``….partial`` beside a chunk, which no reader looks at.

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
        refuse_reading(location, reading, "a region of it")
        to = RegionPlace(location)
        box = _whole_units(to.layout, region, location.name)
        axes = list(zip(to.layout.write_grid, box, strict=True))
        origin = tuple(axis.find(start) if start < stop else 0 for axis, (start, stop) in axes)
        return Target(location.name, to, origin, tuple(axis.sliced(start, stop) for axis, (start, stop) in axes))

    @property
    def encode_bytes(self) -> int:
        """Bytes that writing one unit takes at most, besides its values."""
        layout = self._place.layout
        sharding = layout.sharding
        index = sharding.index_codec.encoded_bound if sharding else 0
        units = math.prod(sharding.units) if sharding else 1
        joined = isinstance(self._place.blobs, StoreBlobs) or (sharding is not None and not sharding.index_at_end)
        # A bytearray that grows may be there twice for a moment.
        whole = 2 * (units * layout.codec.encoded_bound + index) if joined else 0
        return layout.unit_nbytes + layout.codec.encode_scratch + 2 * index + whole

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
        Exception
            What the storage or the codec raises, with a note of array, chunk and key. The object
            that was there before is whole.
        """
        require_block(index, self.write_grid, self.name)
        shape = box_shape(block_box(self.write_grid, index))
        if value.shape != shape or value.dtype != self.dtype:
            raise ValueError(
                f"value: shape {value.shape}, dtype {value.dtype}; "
                f"chunk {index} of {self.name} has shape {shape}, dtype {self.dtype}"
            )
        coords = tuple(i + o for i, o in zip(index, self._origin, strict=True))
        key = self._place.layout.encode_key(coords)
        with self._open():
            try:
                self._place.blobs.put(key, encoded_pieces(self._place.layout, value))
            except Exception as error:
                note_once(error, f"while writing chunk {coords} of array {self.name} (key {key!r})")
                raise

    def commit(self) -> None:
        """Make what was written visible; arrays opened on what was there before become stale."""
        try:
            with self._open():
                self._place.commit()
        except BaseException:
            self.abort()
            raise
        self._state = "committed"

    def abort(self) -> None:
        """Give up: what was there before stays (where it wasn't replaced in place). Waits for writes under way."""
        with self._changed:
            if self._state != "open":
                return
            self._state = "aborted"
            self._changed.wait_for(lambda: self._writing == 0)
            self._place.abort()

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        elif self._state == "open":
            self.commit()

    @contextmanager
    def _open(self) -> Iterator[None]:
        """While the target is written to: it can't be aborted meanwhile, and the place has begun."""
        with self._changed:
            if self._state != "open":
                raise RuntimeError(f"{self.name} was {self._state}; nothing more can be written to it")
            if not self._begun:
                self._place.begin()
                self._begun = True
            self._writing += 1
        try:
            yield
        finally:
            with self._changed:
                self._writing -= 1
                self._changed.notify_all()


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
