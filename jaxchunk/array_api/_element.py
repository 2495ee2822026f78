"""Single elements: looked up where the array is in memory, so that a loop over elements starts no run for each."""

from __future__ import annotations

from typing import Any

from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Affine, Const, Source
from jaxchunk.run.memory_array import MemoryArray
from jaxchunk.run.values import HostValue

# An array of up to this size, made of none that are larger, is computed whole for its first element.
SMALL = 2**16


def element(node: Node) -> Any:
    """The element of a node of no axes, a NumPy scalar; None where it takes a run of its own.

    The arrays that users index in a loop are those they hold on to: such a one, if it and all that
    it is made of are small, is computed here once, and remembered as any array that is asked for.
    """
    root, position = _root(node)
    if root.handles and root is not node and not _known(root) and _is_small(root):
        from jaxchunk.plan.api import compute_nodes

        return compute_nodes([root])[0][position]
    return _read(root, position)


def _root(node: Node) -> tuple[Node, tuple[int, ...]]:
    """The node that a chain of views looks at, and where it looks."""
    position: tuple[int, ...] = ()
    while isinstance(node.op, Affine) and node.value is None:
        position = tuple(m.offset + (0 if m.axis is None else m.step * position[m.axis]) for m in node.op.maps)
        (node,) = node.operands
    return node, position


def _known(node: Node) -> bool:
    return node.value is not None or not node.operands


def _is_small(node: Node) -> bool:
    return all(n.nbytes <= SMALL for n in postorder([node], lambda n: n.value is not None))


def _read(node: Node, position: tuple[int, ...]) -> Any:
    value = node.value  # read once: another thread's run may take it away
    if isinstance(value, HostValue):
        blocks = tuple(axis.find(i) for axis, i in zip(value.grid, position, strict=True))
        block = value.blocks.get(blocks)
        return None if block is None else block[_inside(value.grid, blocks, position)]
    if isinstance(node.op, Const):
        return node.op.value
    if isinstance(node.op, Source) and isinstance(node.op.array, MemoryArray):
        return node.op.array.values[position]
    return None


def _inside(grid: Grid, blocks: tuple[int, ...], position: tuple[int, ...]) -> tuple[int, ...]:
    """A position counted from the start of its block."""

    def offset(axis: Axis, block: int, at: int) -> int:
        return at - axis.block(block)[0]

    return tuple(map(offset, grid, blocks, position))
