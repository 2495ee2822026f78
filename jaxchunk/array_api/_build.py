"""Nodes of arithmetic: what the namespace's functions are made of, one level below arrays.

Everything here takes and gives nodes and checks nothing that a user could get wrong but shapes and
devices; moves of data are in `_views`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jax import lax

from jaxchunk.graph.grid import Axis, Grid, normalize_chunks
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Affine, Blockwise, Const, Iota, Reducer, Scanner

DType: TypeAlias = np.dtype[Any]
Shape: TypeAlias = tuple[int, ...]
Map: TypeAlias = tuple[int | None, ...]


def make(op: Any, operands: Sequence[Node], grid: Grid, dtype: DType) -> Node:
    """A node on its operands' device; one without elements needs no operands at all."""
    device = common_device(operands)
    if any(not axis.runs for axis in grid):
        zero = Node(Const(dtype.type(0)), (), (), dtype)
        return Node(Affine("empty", ()), (zero,), grid, dtype, device)
    return Node(op, operands, grid, dtype, device)


def common_device(nodes: Iterable[Node]) -> Any:
    """The device that some of the nodes are pinned to, or None; they can't be pinned to two."""
    pinned = {node.device: None for node in nodes if node.device is not None}
    if len(pinned) > 1:
        names = " and ".join(map(str, pinned))
        raise ValueError(f"the arrays are on different devices, {names}: move one of them with to_device")
    return next(iter(pinned), None)


def constant(value: Any, dtype: DType) -> Node:
    """A scalar of a dtype; a floating one too large for it is infinite, as in NumPy."""
    with np.errstate(over="ignore"):
        return Node(Const(dtype.type(value)), (), (), dtype)


def iota(length: int, axis: Axis | None = None) -> Node:
    """The positions 0, 1, … length - 1 as int64, cut as `axis` is or else automatically."""
    dtype = np.dtype("int64")
    grid = (axis,) if axis is not None else normalize_chunks("auto", (length,), dtype.itemsize)
    return make(Iota(), (), grid, dtype)


def filled(value: Any, dtype: DType, grid: Grid) -> Node:
    """An array of one value on a grid: a broadcast scalar, so that it costs nothing."""
    scalar = constant(value, dtype)
    return Node(Affine("full", ()), (scalar,), grid, dtype) if grid else scalar


# --- elementwise -------------------------------------------------------------------------------


def broadcast_shape(shapes: Iterable[Shape]) -> Shape:
    """The shape that shapes broadcast to; ValueError where they don't."""
    shapes = list(shapes)
    ndim = max(map(len, shapes), default=0)
    out = [1] * ndim
    for shape in shapes:
        for axis, n in enumerate(shape, start=ndim - len(shape)):
            if n != 1 and out[axis] not in (1, n):
                raise ValueError("shapes " + " and ".join(map(str, shapes)) + " don't broadcast to a common shape")
            if n != 1:
                out[axis] = n
    return tuple(out)


def broadcast_map(shape: Shape, space: Shape) -> Map:
    """Which axis of the space each axis follows when a shape is broadcast to it."""
    first = len(space) - len(shape)
    return tuple(axis if n == space[axis] else None for axis, n in enumerate(shape, start=first))


@functools.lru_cache(1024)
def _broadcast(shapes: tuple[Shape, ...]) -> tuple[Shape, tuple[Map, ...]]:
    """The space of operands that are broadcast against each other, and the map of each."""
    space = broadcast_shape(shapes)
    return space, tuple(broadcast_map(shape, space) for shape in shapes)


def mapped_grid(operands: Sequence[Node], maps: Sequence[Map], space: Shape) -> Grid:
    """Per axis of the space the cuts of the first operand that follows it."""
    grid: list[Axis | None] = [None] * len(space)
    for operand, axes in zip(operands, maps, strict=True):
        for axis, cuts in zip(axes, operand.grid, strict=True):
            if axis is not None and grid[axis] is None:
                grid[axis] = cuts
    return tuple(Axis.regular(n, n) if cuts is None else cuts for n, cuts in zip(space, grid, strict=True))


def blockwise(
    name: str,
    body: Callable[..., Any],
    key: Hashable,
    operands: Sequence[Node],
    dtype: DType,
    *,
    maps: Sequence[Map] | None = None,
    space: Shape | None = None,
    literal: bool = False,
    flops: float = 1.0,
    arrays: int = 1,
) -> Node:
    """A body over the operands' elements, broadcast as usual unless `maps` and `space` say otherwise.

    The key, with the name, stands for the body and all that it captures.
    """
    if space is None or maps is None:
        space, maps = _broadcast(tuple(node.shape for node in operands))
    op = Blockwise(name, body, key, space, tuple(maps), literal=literal, flops=flops, arrays=arrays)
    return make(op, operands, mapped_grid(operands, maps, space), dtype)


def convert(value: Any, dtype: DType) -> Any:
    """A value within a body as another dtype."""
    if value.dtype == dtype:
        return value
    if dtype.kind == "b":
        return lax.ne(value, lax.full_like(value, 0))
    return lax.convert_element_type(value, dtype)


def cast(node: Node, dtype: DType) -> Node:
    """The same elements as another dtype: the node itself where it has it."""
    if node.dtype == dtype:
        return node
    if isinstance(node.op, Const):
        return constant(node.op.value, dtype)
    return blockwise("astype", lambda x: convert(x, dtype), ("astype", dtype.str), (node,), dtype)


def after_cast(body: Callable[..., Any], dtype: DType) -> Callable[..., Any]:
    """A body that sees all its operands as one dtype."""
    return lambda *values: body(*(convert(v, dtype) for v in values))


# --- folds -------------------------------------------------------------------------------------


def fold(
    reducer: Reducer,
    operands: Sequence[Node],
    axes: Sequence[int],
    dtype: DType,
    *,
    body: Callable[..., Any] | None = None,
    key: Hashable = None,
    bodied: DType | None = None,
    maps: Sequence[Map] | None = None,
    space: Shape | None = None,
    flops: float = 1.0,
) -> Node:
    """Fold the given axes of the space away; the others stay, in order.

    Parameters
    ----------
    reducer
        The fold.
    operands, maps, space
        As for `blockwise`; by default all operands have the shape of the first.
    axes
        The axes to fold; where there are none, each element is folded on its own.
    dtype
        Of the result.
    body, key, bodied
        What is done to each element before, its key and the dtype it gives; None for nothing.
    """
    if space is None:
        space = operands[0].shape
    if maps is None:
        maps = [broadcast_map(node.shape, space) for node in operands]
    if not axes:
        space, axes = (1, *space), (0,)
        maps = [tuple(None if a is None else a + 1 for a in map_) for map_ in maps]
    dropped = tuple(sorted(axes))
    whole = mapped_grid(operands, maps, space)
    grid = tuple(cuts for axis, cuts in enumerate(whole) if axis not in dropped)
    if math.prod(space[a] for a in dropped) == 0:
        dtypes = [node.dtype for node in operands] if bodied is None else [bodied]
        return pinned(filled(reducer.empty((), dtypes)[()], dtype, grid), common_device(operands))
    op = Blockwise(
        reducer.name, body, key, space, tuple(maps), reducer=reducer, dropped=dropped, flops=flops, body_dtype=bodied
    )
    return make(op, operands, grid, dtype)


def made(name: str, node: Node) -> Node:
    """The node as an array that is there, block by block, before anybody reads it: it isn't computed anew for each."""
    maps = (tuple(range(node.ndim)),)
    op = Blockwise(name, lambda x: x, (name,), node.shape, maps, exact=True)
    return make(op, (node,), node.grid, node.dtype)


def scan(scanner: Scanner, name: str, node: Node, axis: int) -> Node:
    """A running fold along one axis, of the same shape, dtype and grid."""
    maps = (tuple(range(node.ndim)),)
    op = Blockwise(name, None, None, node.shape, maps, scanner=scanner, ordered=axis, flops=2.0)
    return make(op, (node,), node.grid, node.dtype)


def pinned(node: Node, device: Any) -> Node:
    """The same node on a device; itself where that is where it is, or where None is asked for."""
    if device is None or node.device == device:
        return node
    return Node(node.op, node.operands, node.grid, node.dtype, device)
