"""Nodes that move data and compute nothing: views, joins, reshapes and changes of chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxchunk.array_api._build import Shape, broadcast_map, filled, make, pinned
from jaxchunk.graph.grid import AUTO_CHUNK_BYTES, Axis, Grid
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Affine, AxisMap, Concat, Reshape


def view(name: str, node: Node, maps: Sequence[AxisMap], grid: Grid) -> Node:
    """Read each axis of the node where its map says, as an array on `grid`."""
    return make(Affine(name, tuple(maps)), (node,), grid, node.dtype)


def rechunk(node: Node, grid: Grid) -> Node:
    """The same array with other cuts; the node itself where they are the same."""
    if grid == node.grid:
        return node
    return view("rechunk", node, [AxisMap(axis) for axis in range(node.ndim)], grid)


def broadcast_to(node: Node, shape: Shape) -> Node:
    """The node with its elements repeated to a shape that it broadcasts to."""
    if shape == node.shape:
        return node
    axes = broadcast_map(node.shape, shape)
    grid = [Axis.regular(n, n) for n in shape]
    for axis, cuts in zip(axes, node.grid, strict=True):
        if axis is not None:
            grid[axis] = cuts
    return view("broadcast_to", node, [AxisMap(axis) for axis in axes], _bounded(node, grid, axes))


def _bounded(node: Node, grid: list[Axis], axes: Sequence[int | None]) -> Grid:
    """Cut the new axes so that blocks have at most 16 MiB, as far as the node's own cuts allow it."""
    new = [a for a in range(len(grid)) if a not in axes]
    while math.prod(a.largest for a in grid) * node.dtype.itemsize > AUTO_CHUNK_BYTES:
        longest = max(new, key=lambda a: grid[a].largest, default=None)
        if longest is None or grid[longest].largest <= 1:
            break
        grid[longest] = Axis.regular(grid[longest].length, -(-grid[longest].largest // 2))
    return tuple(grid)


def permute(node: Node, order: Sequence[int]) -> Node:
    """Output axis k is the node's axis order[k]."""
    if list(order) == list(range(node.ndim)):
        return node
    maps = [AxisMap(list(order).index(axis)) for axis in range(node.ndim)]
    return view("permute_dims", node, maps, tuple(node.grid[a] for a in order))


def expand_dims(node: Node, axes: Sequence[int]) -> Node:
    """New axes of size 1 at the given positions of the result."""
    ndim = node.ndim + len(axes)
    kept = [a for a in range(ndim) if a not in axes]
    grid = [Axis.regular(1, 1)] * ndim
    for axis, cuts in zip(kept, node.grid, strict=True):
        grid[axis] = cuts
    return view("expand_dims", node, [AxisMap(a) for a in kept], tuple(grid)) if axes else node


def squeeze(node: Node, axes: Sequence[int]) -> Node:
    """Without the given axes, which have size 1."""
    kept = [a for a in range(node.ndim) if a not in axes]
    maps = [AxisMap(kept.index(a)) if a in kept else AxisMap(None) for a in range(node.ndim)]
    return view("squeeze", node, maps, tuple(node.grid[a] for a in kept)) if axes else node


def flip(node: Node, axes: Sequence[int]) -> Node:
    """Backwards along the given axes."""
    maps = [AxisMap(a, n - 1, -1) if a in axes else AxisMap(a) for a, n in enumerate(node.shape)]
    grid = tuple(cuts.reversed() if a in axes else cuts for a, cuts in enumerate(node.grid))
    return view("flip", node, maps, grid) if axes else node


def cut(node: Node, axis: int, start: int, stop: int) -> Node:
    """The slice [start, stop) of one axis."""
    if (start, stop) == (0, node.shape[axis]):
        return node
    maps = [AxisMap(a, start if a == axis else 0) for a in range(node.ndim)]
    grid = (*node.grid[:axis], node.grid[axis].sliced(start, stop), *node.grid[axis + 1 :])
    return view("slice", node, maps, grid)


def concat(nodes: Sequence[Node], axis: int) -> Node:
    """Join nodes that have the same dtype, and the same shape but for one axis."""
    parts = [node for node in nodes if node.shape[axis]] or nodes[:1]
    if len(parts) == 1:
        return parts[0]
    joined = Axis.joined(node.grid[axis] for node in parts)
    first = parts[0]
    op = Concat(axis, tuple(node.shape[axis] for node in parts))
    return make(op, parts, (*first.grid[:axis], joined, *first.grid[axis + 1 :]), first.dtype)


# --- reshape -----------------------------------------------------------------------------------


def reshape(node: Node, shape: Shape) -> Node:
    """The node's elements in row-major order under a shape of the same size."""
    if shape == node.shape:
        return node
    if 0 in shape:
        grid = tuple(Axis.regular(n, n) for n in shape)
        return pinned(filled(0, node.dtype, grid), node.device)
    kept = tuple(n for n in shape if n != 1)
    if kept == tuple(n for n in node.shape if n != 1):
        node = squeeze(node, [a for a, n in enumerate(node.shape) if n == 1])
        return expand_dims(node, [a for a, n in enumerate(shape) if n == 1])
    op = Reshape(node.shape, shape)
    return make(op, (node,), reshaped_grid(op, node.grid), node.dtype)


def reshaped_grid(op: Reshape, grid: Grid) -> Grid:
    """Cuts for the result of a reshape, of blocks that are no larger than the operand's.

    Each group of axes that hold the same elements is cut for itself: where the old cuts are cuts of
    the new axes as well they stay, else the group is cut anew into blocks of the old ones' size.
    """
    cuts: list[Axis] = []
    for olds, news in op.groups():
        old, sizes = [grid[a] for a in olds], [op.new[a] for a in news]
        cuts += old if [a.length for a in old] == sizes else _split(_merged(old), sizes)
    return tuple(cuts)


def _merged(axes: Sequence[Axis]) -> Axis:
    """The cuts of several axes in row-major order as one: exact where only the first is cut."""
    length, block = math.prod(a.length for a in axes), math.prod(a.largest for a in axes)
    axes = [a for a in axes if a.length > 1]
    inner = math.prod(a.length for a in axes[1:])
    if axes and all(a.nblocks == 1 for a in axes[1:]):
        return Axis(tuple((count, size * inner) for count, size in axes[0].runs))
    return Axis.regular(length, block)


def _split(flat: Axis, sizes: Sequence[int]) -> list[Axis]:
    """The cuts of one axis as those of several: exact where they fall between rows of the first."""
    sizes = list(sizes)
    lead = next((i for i, n in enumerate(sizes) if n > 1), 0)
    inner = math.prod(sizes[lead + 1 :])
    if sizes and all(size % inner == 0 for _, size in flat.runs):
        first = Axis(tuple((count, size // inner) for count, size in flat.runs))
        return [Axis.regular(n, n) for n in sizes[:lead]] + [first] + [Axis.regular(n, n) for n in sizes[lead + 1 :]]
    room, cuts = flat.largest, []
    for n in reversed(sizes):
        cuts.append(Axis.regular(n, max(1, min(n, room))))
        room //= n
    return cuts[::-1]
