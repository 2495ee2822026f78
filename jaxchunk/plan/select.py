"""Selections pushed towards sources: a slice of a fold is a fold of slices.

So one element of a mean over a petabyte reads its own column. What is pushed is a view that only
selects: each axis of its result runs along one axis of what it is a view of, in order.
"""

from __future__ import annotations

from collections.abc import Callable

from jaxchunk.graph.grid import auto_grid
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Affine, AxisMap, Blockwise
from jaxchunk.plan.build import is_elementwise

Maps = tuple[AxisMap, ...]


def pushed_selection(node: Node, only_user: Callable[[Node], bool]) -> Node | None:
    """The same selection below the operations it selects from; None where there is no fold to gain by it."""
    op = node.op
    assert isinstance(op, Affine)
    below = node.operands[0]
    if node.size >= below.size or not _selects(op.maps, node.ndim):
        return None
    region = list(postorder([below], stop=lambda n: n.value is not None or not is_elementwise(n)))
    folds = [n for n in region if _is_fold(n)]
    if not folds or not all(only_user(n) for n in region if is_elementwise(n) or _is_fold(n)):
        return None
    if any(o.shape not in ((), below.shape) for n in region if is_elementwise(n) for o in n.operands):
        return None
    moved: dict[Node, Node] = {}
    for inner in region:
        if inner.ndim == 0:
            moved[inner] = inner
        elif is_elementwise(inner):
            moved[inner] = _elementwise(inner, node, moved)
        elif _is_fold(inner):
            moved[inner] = _fold(inner, op.maps, node)
        else:
            moved[inner] = Node(Affine("select", op.maps), (inner,), node.grid, inner.dtype, inner.device, inner.where)
    return moved[below]


def _is_fold(node: Node) -> bool:
    return node.value is None and isinstance(node.op, Blockwise) and node.op.reducer is not None


def _selects(maps: Maps, ndim: int) -> bool:
    return [m.axis for m in maps if m.axis is not None] == list(range(ndim))


def _elementwise(inner: Node, node: Node, moved: dict[Node, Node]) -> Node:
    op = inner.op
    assert isinstance(op, Blockwise)
    maps = tuple(tuple(range(node.ndim)) if o.ndim else () for o in inner.operands)
    new = Blockwise(op.name, op.body, op.body_key, node.shape, maps, literal=op.literal, flops=op.flops)
    return Node(new, [moved[o] for o in inner.operands], node.grid, inner.dtype, inner.device, inner.where)


def _fold(inner: Node, maps: Maps, node: Node) -> Node:
    """A fold over the selected part of its space: axes at a fixed index are gone, others are shorter."""
    op = inner.op
    assert isinstance(op, Blockwise) and op.reducer is not None
    chosen = dict(zip(op.kept, maps, strict=True))
    places: dict[int, int] = {}
    space: list[int] = []
    for a, n in enumerate(op.space):
        m = chosen.get(a)
        if m is None:
            places[a] = len(space)
            space.append(n)
        elif m.axis is not None:
            places[a] = len(space)
            space.append(node.shape[m.axis])
    operands, new_maps = [], []
    for operand, axes in zip(inner.operands, op.maps, strict=True):
        view: list[AxisMap] = []
        follows: list[int] = []
        for followed in axes:
            m = AxisMap(None) if followed is None else chosen.get(followed, AxisMap(followed))
            if followed is None or m.axis is None:
                view.append(AxisMap(None, m.offset))
            else:
                view.append(AxisMap(len(follows), m.offset, m.step))
                follows.append(places[followed])
        grid = auto_grid([space[a] for a in follows], operand.dtype.itemsize)
        operands.append(Node(Affine("select", tuple(view)), (operand,), grid, operand.dtype, inner.device, inner.where))
        new_maps.append(tuple(follows))
    new = Blockwise(
        op.name,
        op.body,
        op.body_key,
        tuple(space),
        tuple(new_maps),
        reducer=op.reducer.moved(places),
        dropped=tuple(places[a] for a in op.dropped),
        flops=op.flops,
        body_dtype=op.body_dtype,
    )
    return Node(new, operands, node.grid, inner.dtype, inner.device, inner.where)
