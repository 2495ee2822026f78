"""Arrays from Zarr and into it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxchunk.array_api._array import Array
from jaxchunk.graph.grid import ChunksLike, Grid, auto_grid, chunksize, normalize_chunks
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Affine, AxisMap, Source
from jaxchunk.plan.api import run_requests
from jaxchunk.plan.requests import Write
from jaxchunk.store import StoredArray, Target, open_array
from jaxchunk.store.places import check_free


def from_zarr(source: Any, *, chunks: ChunksLike | None = None, missing: str = "fill") -> Array:
    """A lazy array of a stored Zarr array. Nothing is read but its metadata.

    Parameters
    ----------
    source
        A path or URL of a Zarr array (v2 or v3, sharded too), a `zarr.Array`, or a Zarr store.
    chunks
        How the array is cut, as for `rechunk`; by default as it is stored.
    missing
        "fill": a chunk that was never written reads as the fill value. "error": it is an error.

    Returns
    -------
    Array
        Lazy, of the stored shape and dtype (in the machine's byte order). Whenever something is
        computed from it, the chunks that this needs are read.

    Raises
    ------
    FileNotFoundError
        There is no such array.
    ValueError
        It is a group (the message lists its arrays), its metadata can't be used (an unknown codec,
        say), or `chunks` don't fit the shape.
    TypeError
        Its dtype isn't one of the array API's, or `source` is no place.

    Notes
    -----
    A compressed chunk is decoded whole, so the least memory that a computation needs is one decoded chunk
    and its encoded bytes. Of chunks that are large for the budget and neither compressed nor filtered the
    rows that are wanted are read. Computing notices when the stored array is replaced (`SourceChangedError`), but not
    when others change single chunks in place. Damaged chunks raise `StorageError`.

    Examples
    --------
    >>> import tempfile, jaxchunk as jc, jaxchunk.array_api as xp
    >>> path = tempfile.mkdtemp() + "/x.zarr"
    >>> jc.to_zarr(xp.arange(10, chunks=4), path)
    >>> jc.from_zarr(path).chunks
    ((4, 4, 2),)
    """
    stored = open_array(source, missing=missing)  # type: ignore[arg-type]
    grid = stored.grid
    node = Node(Source(stored, stored.name), (), grid, stored.dtype)
    if chunks is not None:
        cut = normalize_chunks(chunks, stored.shape, stored.dtype.itemsize, grid)
        node = Node(Affine("rechunk", tuple(AxisMap(a) for a in range(node.ndim))), (node,), cut, node.dtype)
    return Array(node)


def to_zarr(
    x: Array,
    path: Any,
    *,
    chunks: ChunksLike | None = None,
    shards: Sequence[int] | None = None,
    overwrite: bool = False,
    region: Sequence[slice] | None = None,
    compute: bool = True,
) -> Write | None:
    """Store an array as Zarr, one task writing each chunk (or shard), within the memory budget.

    Parameters
    ----------
    x
        The array.
    path
        Where: a local path, a URL or a Zarr store. In a local directory the array appears when it
        is complete; one that it replaces is whole until then. In other stores it is written in place.
    chunks
        Of the stored array. By default those of `x`, where they are regular, else "auto".
    shards
        The shape of a shard, a multiple of the chunk; by default there are none.
    overwrite
        Whether an array that is there is replaced. Anything else that is there never is.
    region
        Slices of an array that is there already, which are written in place; their edges lie on
        edges of its chunks (shards) or at its end.
    compute
        True computes and writes before it returns. False computes nothing and gives a lazy write, for
        `compute` and `plan`.

    Returns
    -------
    None, or a lazy write
        The latter for ``compute=False``.

    Raises
    ------
    FileExistsError
        There is something, and `overwrite` is False; or it isn't an array.
    ValueError
        Chunks, shards or a region that don't fit; writing in place over what is read; a place inside of an array.
    TypeError
        `x` is no jaxchunk array, or a region's array has another dtype.
    MemoryBudgetError
        Before anything runs, where it doesn't fit the budget.
    SourceChangedError
        A stored source was replaced since it was opened. What was at `path` is still there.

    Notes
    -----
    A task holds whole chunks (shards, where there are some) and their encoding: smaller ones take
    less memory.

    Examples
    --------
    >>> import tempfile, jaxchunk as jc, jaxchunk.array_api as xp
    >>> path = tempfile.mkdtemp() + "/x.zarr"
    >>> jc.to_zarr(xp.ones((6, 4)), path, chunks=(3, 4))
    >>> float(xp.sum(jc.from_zarr(path)))
    24.0
    """
    write = _write(x, path, chunks, shards, overwrite, region)
    if not compute:
        return write
    run_requests([write])
    return None


def store(arrays: Sequence[Array | Write], paths: Sequence[Any] = (), *, overwrite: bool = False) -> None:
    """Compute several arrays and store them in one run that shares their work.

    A source that they have in common is read once, where the budget has room for one pass.

    Parameters
    ----------
    arrays
        Arrays, and lazy writes as `to_zarr(..., compute=False)` gives them.
    paths
        One for each of the arrays, in order; lazy writes have theirs.
    overwrite
        As in `to_zarr`. All targets appear at the end of the run.

    Raises
    ------
    ValueError
        More arrays than paths, or the other way round. Everything else is as for `to_zarr`.

    Examples
    --------
    >>> import tempfile, jaxchunk as jc, jaxchunk.array_api as xp
    >>> directory = tempfile.mkdtemp()
    >>> x = xp.arange(10)
    >>> jc.store([x + 1, x * 2], [directory + "/a.zarr", directory + "/b.zarr"])
    """
    plain = [x for x in arrays if not isinstance(x, Write)]
    if len(plain) != len(paths):
        raise ValueError(f"{len(plain)} arrays, but {len(paths)} paths")
    left = iter(paths)
    run_requests([x if isinstance(x, Write) else _write(x, next(left), overwrite=overwrite) for x in arrays])


def _write(
    x: Array,
    path: Any,
    chunks: ChunksLike | None = None,
    shards: Sequence[int] | None = None,
    overwrite: bool = False,
    region: Sequence[slice] | None = None,
) -> Write:
    if not isinstance(x, Array):
        raise TypeError(f"x is a {type(x).__name__}; to_zarr takes a jaxchunk array: make it one by asarray")
    if region is None:
        return _whole(x, path, chunks, shards, overwrite)
    if chunks is not None or shards is not None or overwrite:
        raise ValueError(
            "region: the array is there, with chunks and shards of its own; leave out chunks, shards, overwrite"
        )
    if not all(isinstance(part, slice) for part in region):
        raise TypeError(f"region={region!r}: a tuple of slices, one for each axis")
    return _region(x, path, region)


def _whole(x: Array, path: Any, chunks: ChunksLike | None, shards: Sequence[int] | None, overwrite: bool) -> Write:
    node = x._node
    grid = _stored_grid(node, chunks)
    sizes = tuple(max(1, n) for n in chunksize(grid))
    unit = grid
    if shards is not None:
        shards = tuple(int(s) for s in shards)
        if len(shards) != node.ndim or any(s <= 0 or s % c for s, c in zip(shards, sizes, strict=True)):
            raise ValueError(f"shards={shards}: one multiple of the chunk {sizes} for each axis")
        unit = normalize_chunks(shards, node.shape, node.dtype.itemsize)

    def open_target(reading: Sequence[StoredArray]) -> Target:
        return Target.create(
            path,
            shape=node.shape,
            dtype=node.dtype,
            chunks=sizes,
            shards=shards,
            overwrite=overwrite,
            reading=reading,
        )

    return Write(node, unit, open_target, str(path), check_free(path, overwrite))


def _region(x: Array, path: Any, region: Sequence[slice]) -> Write:
    node = x._node
    # Opened once now, so that what is wrong is said here.
    target = Target.region(path, region)
    if target.shape != node.shape:
        raise ValueError(f"region has shape {target.shape}, but the array has {node.shape}")
    if target.dtype != node.dtype:
        raise TypeError(f"the array there has dtype {target.dtype}, this one {node.dtype}: astype first")
    return Write(node, target.write_grid, lambda reading: Target.region(path, region, reading=reading), str(path))


def _stored_grid(node: Node, chunks: ChunksLike | None) -> Grid:
    if chunks is None:
        regular = all(axis.is_regular() for axis in node.grid)
        return node.grid if regular else auto_grid(node.shape, node.dtype.itemsize)
    grid = normalize_chunks(chunks, node.shape, node.dtype.itemsize, node.grid)
    for number, axis in enumerate(grid):
        if not axis.is_regular():
            raise ValueError(f"chunks: Zarr stores blocks of one size along an axis; axis {number} has several")
    return grid
