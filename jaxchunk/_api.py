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

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> jc.plan(xp.sum(xp.ones((1000, 1000)))).to_dict()["bytes_read"]
    0
    """
    return plan_requests([_request(x) for x in arrays])


def persist(*arrays: Array) -> Array | tuple[Array, ...]:
    """Compute arrays now and keep them, in memory where the budget has room and on disk otherwise.

    Returns
    -------
    Array or tuple of Array
        As many as were given. They are sources: what they were made from is let go.

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

    A NumPy array of more than 1 MiB isn't copied: it is read tile by tile whenever something is
    computed from it, so it is not to be changed before.

    Examples
    --------
    >>> import numpy as np, jaxchunk as jc
    >>> jc.from_array(np.zeros((4, 4)), chunks=2).numblocks
    (2, 2)
    """
    return asarray(values, chunks=chunks)


def rechunk(x: Array, chunks: ChunksLike) -> Array:
    """The same array cut otherwise: `x.rechunk(chunks)`.

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
