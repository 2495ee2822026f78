"""Nodes of moves by data: takes, positions of what is true, and what is assigned at an index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._scanners import CUMULATIVE_SUM
from jaxchunk.graph.gathers import Positions, Put, Take, TakeAlong
from jaxchunk.graph.grid import Box, normalize_chunks
from jaxchunk.graph.node import Composite, Limits, Node
from jaxchunk.graph.primitives import Guard, Source
from jaxchunk.run.memory_array import MemoryArray

INT64, BOOL = np.dtype("int64"), np.dtype("bool")
# Elements of an index that is looked at, and of a mask that is computed, at once.
FEW = 2**16
# The part of the budget that a segment of a mask may take, at nine bytes an element.
_SEGMENT_SHARE = 1 / 256
_SEGMENTS = (2**10, 2**20)


def take(data: Node, index: Node, axis: int) -> Node:
    """Elements of an axis at positions that lie within it."""
    grid = (*data.grid[:axis], index.grid[0], *data.grid[axis + 1 :])
    return _build.make(Take(axis), (data, index), grid, data.dtype)


def take_along(data: Node, index: Node, axis: int) -> Node:
    """out[…, i, …] = data[…, index[…, i, …], …] at positions within the axis; other axes are the same."""
    grid = tuple(i if a == axis else d for a, (i, d) in enumerate(zip(index.grid, data.grid, strict=True)))
    return _build.make(TakeAlong(axis), (data, index), grid, data.dtype)


def put(data: Node, index: Node, rows: Node, axis: int) -> Node:
    """Data whose elements at positions of an axis are replaced by those of `rows`."""
    return _build.make(Put(axis), (data, index, rows), data.grid, data.dtype)


def in_memory(values: np.ndarray[Any, Any]) -> Node:
    """A node that reads values in memory."""
    grid = normalize_chunks("auto", values.shape, values.dtype.itemsize)
    source = Source(MemoryArray(values, grid), "array in memory")
    return _build.make(source, (), grid, values.dtype)


def known_values(node: Node) -> np.ndarray[Any, Any] | None:
    """The values of a small array that is in memory as it was given; None for any other."""
    op = node.op
    if isinstance(op, Source) and isinstance(op.array, MemoryArray) and node.size <= FEW:
        return op.array.values
    return None


def within(index: Node, length: int, name: str) -> Node:
    """An integer index as int64 without negative numbers; a run refuses one that points outside.

    Raises
    ------
    IndexError
        At once, where the index is small and in memory.
    """
    values = known_values(index)
    if values is not None:
        _refuse_outside(name, length, ((values < -length) | (values >= length)).any(), index.where)
        values = values.astype(INT64)
        return in_memory(np.where(values < 0, values + length, values))
    if index.size == 0 or isinstance(index.op, Positions):
        return _build.cast(index, INT64)
    wide = _build.cast(index, INT64)
    # Numbers of uint64 that int64 doesn't have would turn out negative, and those would count from the end.
    lowest = 0 if index.dtype == np.dtype("uint64") else -length
    outside = _build.blockwise("outside", _outside(lowest, length), ("outside", lowest, length), (wide,), BOOL)
    evidence = _build.fold(reducers.ANY, (outside,), tuple(range(index.ndim)), BOOL)
    inside = _build.blockwise("from start", _from_start(length), ("from start", length), (wide,), INT64)

    def check(tile: np.ndarray[Any, Any], box: Box) -> None:
        _refuse_outside(name, length, tile.any(), index.where)

    return _build.make(Guard(check, ("within", name, length)), (inside, evidence), index.grid, INT64)


def _refuse_outside(name: str, length: int, outside: Any, where: str) -> None:
    if outside:
        raise IndexError(f"{name}: the index made at {where} points outside of an axis of length {length}")


def _outside(lowest: int, length: int) -> Any:
    def body(i: Any) -> Any:
        below, above = lax.lt(i, lax.full_like(i, lowest)), lax.ge(i, lax.full_like(i, length))
        return lax.bitwise_or(below, above)

    return body


def _from_start(length: int) -> Any:
    def body(i: Any) -> Any:
        return lax.select(lax.lt(i, lax.full_like(i, 0)), lax.add(i, lax.full_like(i, length)), i)

    return body


def positions(mask: Node, count: int) -> Node:
    """Where a one-dimensional mask is true, which it is `count` times: int64, in order."""
    grid = normalize_chunks("auto", (count,), INT64.itemsize)
    return _build.make(Composite("nonzero", ("nonzero", count), _expand_positions), (mask,), grid, INT64)


def _expand_positions(node: Node, limits: Limits) -> Node:
    (mask,) = node.operands
    segment = max(_SEGMENTS[0], min(_SEGMENTS[1], int(limits.budget * _SEGMENT_SHARE) // 16))
    segments = -(-mask.size // segment)
    if segments <= 1:
        before = _build.filled(0, INT64, normalize_chunks(-1, (2,), 8))
    else:
        lacking = segments * segment - mask.size
        none = _build.filled(False, BOOL, normalize_chunks(-1, (lacking,), 1))
        padded = _views.concat([mask, none], 0) if lacking else mask
        rows = _views.reshape(padded, (segments, segment))
        counts = _build.fold(reducers.CountNonzero(), (rows,), (1,), INT64)
        first = _build.filled(0, INT64, normalize_chunks(-1, (1,), 8))
        before = _views.concat([first, _build.scan(CUMULATIVE_SUM, "cumulative_sum", counts, 0)], 0)
    return _build.make(Positions(segment), (mask, before), node.grid, INT64)


def flattened(node: Node, axes: int = 0) -> Node:
    """The first `axes` axes as one, or all of them; a node without axes has one of size 1."""
    lead = axes or node.ndim
    return _views.reshape(node, (math.prod(node.shape[:lead]), *node.shape[lead:]))
