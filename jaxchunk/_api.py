"""What `import jaxchunk` offers besides the array namespace."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxchunk.array_api import asarray
from jaxchunk.array_api._array import Array
from jaxchunk.graph.grid import ChunksLike
from jaxchunk.graph.node import Node
from jaxchunk.plan.api import persist_nodes, plan_requests, run_requests
from jaxchunk.plan.plan import Plan
from jaxchunk.plan.requests import Write


def compute(*arrays: Array | Write) -> tuple[Any, ...]:
    """Compute arrays and lazy writes in one run that shares their work.

    Parameters
    ----------
    *arrays
        Arrays, and what `to_zarr(..., compute=False)` gives.

    Returns
    -------
    tuple
        A NumPy array for each array, None for each write.

    Raises
    ------
    MemoryBudgetError
        Before anything runs, where results or the way to them need more than the budget.
    SourceChangedError
        A stored source was replaced since it was opened.
    TypeError
        For what is neither an array nor a lazy write.
    Exception
        What storage, codecs or a user's function raise, with a note of the operation and the user's line.

    Notes
    -----
    The NumPy arrays count until the run ends, and are the caller's own from then on. Write results
    that are too large for that with `to_zarr`.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> x = xp.arange(5)
    >>> jc.compute(xp.sum(x), xp.max(x))
    (array(10), array(4))
    """
    return tuple(run_requests([_request(x) for x in arrays]))


def plan(*arrays: Array | Write) -> Plan:
    """How arrays and lazy writes would be computed; nothing runs, nothing is compiled.

    Parameters
    ----------
    *arrays
        As for `compute`.

    Returns
    -------
    Plan
        Under the settings in force now. One that doesn't fit the budget is a plan as well:
        `Plan.explain` says why, and `Plan.run` raises `MemoryBudgetError`.

    Raises
    ------
    TypeError
        For what is neither an array nor a lazy write.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> jc.plan(xp.sum(xp.ones((1000, 1000)))).to_dict()["bytes_read"]
    0
    """
    return plan_requests([_request(x) for x in arrays])


def persist(*arrays: Array) -> Array | tuple[Array, ...]:
    """Compute arrays now, in one run, and keep them.

    Parameters
    ----------
    *arrays
        Arrays.

    Returns
    -------
    Array or tuple of Array
        As many as were given, of the same shapes, dtypes and chunks. They are sources: what they were
        made from is let go.

    Raises
    ------
    MemoryBudgetError, SourceChangedError, TypeError
        As for `compute`.

    Notes
    -----
    Values are kept in memory while they, and what else lives then, take at most half of what the budget
    has left, else in a file below `spill_directory`. In memory they count against the budget of every
    later run, as long as they or arrays made from them are held.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> y = jc.persist(xp.arange(5) * 2)
    >>> int(y[2])
    4
    """
    nodes = [_node(x) for x in arrays]
    kept = tuple(Array(node) for node in persist_nodes(nodes))
    return kept[0] if len(kept) == 1 else kept


def from_array(values: Any, *, chunks: ChunksLike | None = None) -> Array:
    """A lazy array of a NumPy array, or of anything else that `asarray` takes.

    Parameters
    ----------
    values
        A NumPy array of more than 1 MiB isn't copied: it is read tile by tile whenever something is
        computed from it, so it is not to be changed before. `asarray(values, copy=True)` copies it.
    chunks
        How the array is cut, as for `rechunk`; by default into blocks of at most 16 MiB.

    Returns
    -------
    Array
        Of the same shape and dtype. Memory of the caller's isn't counted in the budget.

    Raises
    ------
    TypeError
        For dtypes that the array API doesn't have.
    ValueError
        For chunks that don't fit the shape, and for ragged lists.

    Examples
    --------
    >>> import numpy as np, jaxchunk as jc
    >>> jc.from_array(np.zeros((4, 4)), chunks=2).numblocks
    (2, 2)
    """
    return asarray(values, chunks=chunks)


def rechunk(x: Array, chunks: ChunksLike) -> Array:
    """The same array cut otherwise: `x.rechunk(chunks)`. Lazy.

    Parameters
    ----------
    x
        An array.
    chunks
        A block size for all axes; or one entry an axis, each a block size, -1 for the whole axis, None
        for as it is, "auto" or a list of sizes; or a dict of some axes' entries; or "auto", for blocks
        of at most 16 MiB.

    Raises
    ------
    ValueError
        Sizes that are 0, negative or don't add up to the axis; too many entries or too few.
    TypeError
        Sizes that are no integers; `x` is no jaxchunk array.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> jc.rechunk(xp.zeros((6, 4)), {0: 2}).numblocks
    (3, 1)
    """
    _node(x)
    return x.rechunk(chunks)


def _request(x: Any) -> Node | Write:
    return x if isinstance(x, Write) else _node(x)


def _node(x: Any) -> Node:
    if not isinstance(x, Array):
        kind = "NumPy array" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(f"a jaxchunk array is wanted, not a {kind}: make it one by asarray")
    return x._node
