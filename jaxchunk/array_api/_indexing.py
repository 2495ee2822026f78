"""Basic indexing: integers, slices, ellipsis and newaxis, as one view."""

from __future__ import annotations

import operator
from typing import Any

from jaxchunk.array_api import _views
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import AxisMap


def basic_index(node: Node, key: Any) -> Node:
    """The node at a key of integers, slices, `...` and None; the node itself where that is all of it.

    Raises
    ------
    IndexError
        For an integer out of bounds, too many indices, more than one ellipsis, or arrays as indices.
    TypeError
        For what is no index at all.
    """
    maps: list[AxisMap] = []
    grid: list[Axis] = []
    for entry in expanded(key, node):
        if entry is None:
            grid.append(Axis.regular(1, 1))
            continue
        axis = len(maps)
        length, cuts = node.shape[axis], node.grid[axis]
        if isinstance(entry, slice):
            start, step, kept = _slice(entry, length, axis)
            maps.append(AxisMap(len(grid), start, step))
            grid.append(_sliced(cuts, start, step, kept))
        else:
            maps.append(AxisMap(None, _position(entry, length, axis)))
    whole = [AxisMap(axis) for axis in range(node.ndim)]
    return node if maps == whole and tuple(grid) == node.grid else _views.view("getitem", node, maps, tuple(grid))


def expanded(key: Any, node: Node) -> list[Any]:
    """The key with one entry per axis of the node, besides its Nones."""
    entries = [_entry(entry) for entry in (key if isinstance(key, tuple) else (key,))]
    given = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if given > node.ndim:
        raise IndexError(f"too many indices: {given} for an array with {node.ndim} axes (shape {node.shape})")
    ellipses = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can have only one ellipsis (...)")
    at = ellipses[0] if ellipses else len(entries)
    return entries[:at] + [slice(None)] * (node.ndim - given) + entries[at + 1 :]


def _entry(entry: Any) -> Any:
    """One entry of a key, integers as Python ints; arrays stay as they are."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice | Node):
        return entry
    try:
        return operator.index(entry)
    except TypeError:
        raise TypeError(
            f"an index is an int, a slice, ... or None, not {entry!r} of type {type(entry).__name__}"
        ) from None


def region_of(node: Node, key: Any) -> tuple[tuple[range, ...], list[int | None], set[int]]:
    """What a basic key selects: an ascending range per axis, the axis of the node that each axis of x[key]
    runs along (None for a new one), and the axes that it runs along backwards."""
    region: list[range] = []
    kept: list[int | None] = []
    backwards: set[int] = set()
    for entry in expanded(key, node):
        axis = len(region)
        if entry is None:
            kept.append(None)
        elif isinstance(entry, slice):
            start, step, count = _slice(entry, node.shape[axis], axis)
            positions = range(start, start + count * step, step)
            if step < 0:
                backwards.add(axis)
                positions = positions[::-1]
            region.append(positions)
            kept.append(axis)
        else:
            at = _position(entry, node.shape[axis], axis)
            region.append(range(at, at + 1))
    return tuple(region), kept, backwards


def _position(index: int, length: int, axis: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index + length if index < 0 else index


def _slice(entry: slice, length: int, axis: int) -> tuple[int, int, int]:
    """A slice as (start, step, number of elements)."""
    try:
        start, stop, step = entry.indices(length)
    except TypeError:
        raise TypeError(f"the slice {entry} of axis {axis} has a bound that is no int") from None
    except ValueError:
        raise ValueError(f"the slice {entry} of axis {axis} has step 0") from None
    return start, step, len(range(start, stop, step))


def _sliced(cuts: Axis, start: int, step: int, kept: int) -> Axis:
    """The cuts that remain of an axis of which `kept` elements are taken, the first at `start`."""
    if kept == 0:
        return Axis(())
    last = start + (kept - 1) * step
    if step > 0:
        return cuts.sliced(start, last + 1).strided(step)
    return cuts.sliced(last, start + 1).reversed().strided(-step)
