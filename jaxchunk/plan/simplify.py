"""Before planning: operations expanded, common subexpressions shared, moves pushed towards sources.

One pass from the leaves up, linear in the graph. Nodes are shared by *identity*: sources by a token
of their own each, constants by type and bits, everything else by operation and operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np

from jaxchunk.graph.gathers import Overlay
from jaxchunk.graph.grid import auto_grid
from jaxchunk.graph.node import Composite, Node, postorder
from jaxchunk.graph.primitives import Affine, AxisMap, Blockwise, Check, Const, Guard, Iota, Reshape, compose
from jaxchunk.plan.select import pushed_selection


@dataclass(frozen=True)
class PlanLimits:
    """What expansions may depend on: the budget in bytes."""

    budget: int


class Simplifier:
    """Canonical nodes for the nodes of a graph.

    Attributes
    ----------
    known
        Of each node met, its canonical one.
    guards
        What the run is to look at, and with which check.
    """

    def __init__(self, limits: PlanLimits) -> None:
        self.limits = limits
        self.known: dict[Node, Node] = {}
        self.guards: dict[Hashable, tuple[Node, Check]] = {}
        self._shared: dict[Hashable, Node] = {}
        self._users: Counter[Node] = Counter()

    def _is_done(self, node: Node) -> bool:
        return node.value is not None or node in self.known

    def simplify(self, roots: Iterable[Node]) -> list[Node]:
        """The canonical node of each root; a remembered value is a leaf."""
        roots = list(roots)
        self._users.update(o for n in postorder(roots, stop=self._is_done) for o in n.operands)
        for node in postorder(roots, stop=self._is_done):
            if node not in self.known:
                canonical = self.known[node] = self._canonical(node)
                if canonical is not node:
                    self._users[canonical] += self._users[node]
        return [self.known[root] for root in roots]

    def _canonical(self, node: Node) -> Node:
        if node.value is not None:
            return self._share(("value", id(node.value)), node)
        operands = tuple(self.known[operand] for operand in node.operands)
        if isinstance(node.op, Composite):
            expanded = node.op.expand(_with(node, operands), self.limits)
            return self.simplify([expanded])[0]
        if isinstance(node.op, Guard):
            guarded, evidence = operands
            self.guards.setdefault((node.op.check_key, evidence), (evidence, node.op.check))
            return guarded
        node = _with(node, operands)
        if isinstance(node.op, Affine):
            node = _through_patches(_composed(node))
            if isinstance(node.op, Affine) and node.value is None:
                selection = pushed_selection(node, lambda n: self._users[n] <= 1)
                if selection is not None:
                    return self.simplify([selection])[0]
        elif isinstance(node.op, Reshape):
            node = self._pushed(node)
        return self._share(_key(node), node)

    def _share(self, key: Hashable, node: Node) -> Node:
        return self._shared.setdefault(key, node)

    def _pushed(self, node: Node) -> Node:
        """A reshape moved below the elementwise operations that feed it.

        It then is a region of a source's read, or arithmetic on positions, instead of an
        intermediate array.
        """
        region = list(postorder(node.operands, stop=lambda n: not _carries_reshape(n)))
        if not _carries_reshape(region[-1]) and not _absorbs_reshape(region[-1]):
            if isinstance(region[-1].op, Reshape):
                below = region[-1].operands[0]
                return Node(Reshape(below.shape, node.shape), (below,), node.grid, node.dtype, node.device, node.where)
            return node
        moved: dict[Node, Node] = {}
        for inner in region:
            moved[inner] = inner if inner.ndim == 0 else self._moved(inner, node, moved)
        return moved[region[-1]]

    def _moved(self, inner: Node, node: Node, moved: dict[Node, Node]) -> Node:
        grid = node.grid
        if _carries_reshape(inner):
            operands = tuple(moved[o] for o in inner.operands)
            maps = tuple(tuple(range(len(node.shape))) if o.ndim else () for o in inner.operands)
            op = inner.op
            assert isinstance(op, Blockwise)
            new = Blockwise(op.name, op.body, op.body_key, node.shape, maps, literal=op.literal, flops=op.flops)
            result = Node(new, operands, grid, inner.dtype, inner.device, inner.where)
        elif isinstance(inner.op, Affine) and _absorbs_reshape(inner):
            result = Node(inner.op, inner.operands, grid, inner.dtype, inner.device, inner.where)
        elif isinstance(inner.op, Iota):
            result = _positions(node.shape, grid, inner)
        else:
            result = Node(Reshape(inner.shape, node.shape), (inner,), grid, inner.dtype, inner.device, inner.where)
            return self._canonical_of(result)
        return self._share(_key(result), result)

    def _canonical_of(self, node: Node) -> Node:
        if isinstance(node.op, Reshape) and isinstance(node.operands[0].op, Reshape) and node.operands[0].value is None:
            below = node.operands[0].operands[0]
            node = Node(Reshape(below.shape, node.shape), (below,), node.grid, node.dtype, node.device, node.where)
        return self._share(_key(node), node)


def _key(node: Node) -> Hashable:
    # With the grid: a user's function sees how its operands are cut.
    return (node.op.key, *map(id, node.operands), node.grid, node.dtype.str, node.device)


def _with(node: Node, operands: tuple[Node, ...]) -> Node:
    if operands == node.operands:
        return node
    return Node(node.op, operands, node.grid, node.dtype, node.device, node.where)


def _composed(node: Node) -> Node:
    """An affine map of an affine map is one."""
    inner, outer = node.operands[0], node.op
    assert isinstance(outer, Affine)
    if not isinstance(inner.op, Affine) or inner.value is not None:
        return node
    op = Affine(outer.name, compose(inner.op.maps, outer.maps))
    return Node(op, inner.operands, node.grid, node.dtype, node.device, node.where)


def _through_patches(node: Node) -> Node:
    """A view of patched data that lies within one patch, or meets none, as a view of that.

    A loop that assigns to an array and reads what it assigned reads the patches, and not the array.
    """
    op, below = node.op, node.operands[0]
    assert isinstance(op, Affine)
    maps = op.maps
    while isinstance(below.op, Overlay) and below.value is None:
        region, (data, patch) = below.op.regions[0], below.operands
        read = [_read_along(m, node.shape) for m in maps]
        if any(max(r) < p[0] or min(r) > p[-1] for r, p in zip(read, region, strict=True)):
            below = data
        elif all(r[0] in p and r[-1] in p and r.step % p.step == 0 for r, p in zip(read, region, strict=True)):
            maps = tuple(
                AxisMap(m.axis, (m.offset - p.start) // p.step, m.step // p.step if m.axis is not None else 1)
                for m, p in zip(maps, region, strict=True)
            )
            below = patch
            break
        else:
            break
    if below is node.operands[0]:
        return node
    return _composed(Node(Affine(op.name, maps), (below,), node.grid, node.dtype, node.device, node.where))


def _read_along(m: AxisMap, shape: tuple[int, ...]) -> range:
    if m.axis is None:
        return range(m.offset, m.offset + 1)
    return range(m.offset, m.offset + m.step * shape[m.axis], m.step)


def _carries_reshape(node: Node) -> bool:
    """An elementwise operation whose operands all have its shape, or are scalars."""
    op = node.op
    return (
        node.value is None
        and isinstance(op, Blockwise)
        and op.reducer is None
        and op.scanner is None
        and not op.whole
        and not op.exact
        and op.body_key is not None
        and all(
            o.ndim == 0 or (o.shape == node.shape and m == tuple(range(node.ndim)))
            for o, m in zip(node.operands, op.maps, strict=True)
        )
    )


def _absorbs_reshape(node: Node) -> bool:
    if node.value is not None:
        return False
    if isinstance(node.op, Affine):
        return all(m.axis is None for m in node.op.maps)
    return isinstance(node.op, Iota)


def _positions(shape: tuple[int, ...], grid: object, iota: Node) -> Node:
    """What a reshaped iota is: the row-major position, by arithmetic on the positions along each axis."""
    int64 = np.dtype("int64")
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    axes = [a for a, n in enumerate(shape) if n > 1]
    chosen = [strides[a] for a in axes]

    def body(*positions: object) -> object:
        total: object = None
        for position, stride in zip(positions, chosen, strict=True):
            term = position * np.int64(stride)  # type: ignore[operator]
            total = term if total is None else total + term
        return total

    operands = [Node(Iota(), (), auto_grid((shape[a],), 8), int64, iota.device, iota.where) for a in axes]
    if not operands:
        zero = Node(Const(np.int64(0)), (), (), int64, iota.device, iota.where)
        return Node(Affine("full", ()), (zero,), grid, int64, iota.device, iota.where)  # type: ignore[arg-type]
    op = Blockwise("positions", body, ("positions", shape), shape, tuple((a,) for a in axes))
    return Node(op, operands, grid, int64, iota.device, iota.where)  # type: ignore[arg-type]
