"""Programs from nodes: everything between a stage's leaves and its results becomes one list.

A value is a node read through affine maps from the stage's index space, so slices, broadcasts and
permutations cost nothing: they are where a leaf is read. Bodies that line up share the list.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np

from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Affine, AxisMap, Blockwise, Const, Iota, Move, compose
from jaxchunk.lower.program import Block, Program, Scan

Maps: TypeAlias = tuple[AxisMap, ...]

NOWHERE = AxisMap(None, 0)


def is_elementwise(node: Node) -> bool:
    op = node.op
    return isinstance(op, Blockwise) and op.reducer is None and op.scanner is None and not op.whole and not op.exact


class Builder:
    """A program in the making.

    Parameters
    ----------
    rank
        Axes of the index space.
    anchors
        Nodes that other stages make: read, not computed.
    """

    def __init__(self, space: tuple[int, ...], anchors: set[Node]) -> None:
        self.space = space
        self.anchors = anchors
        self.program = Program(Block(len(space)))
        self.leaves: list[tuple[Node, Maps]] = []
        self.group_leaves: dict[tuple[int, ...], list[tuple[Node, Maps]]] = {}
        self.folded: dict[Node, int] = {}
        self.operations: dict[str, None] = {}
        self.flops = 0.0
        self._known: dict[Hashable, int] = {}

    def value(self, root: Node, maps: Maps, own: bool = False, dropped: tuple[int, ...] | None = None) -> int:
        """The number of a node's value under maps: in the body, or in the epilogue of a group.

        `own`: the root is computed here although it is an anchor.
        """
        block = self.program.body if dropped is None else self.program.group(dropped).epilogue
        stack: list[tuple[Node, Maps, bool, bool]] = [(root, maps, False, False)]
        key: Hashable = None
        while stack:
            node, at, literal, ready = stack.pop()
            key = (dropped, node, at, literal)
            if key in self._known:
                continue
            computed = (own and node is root) or node not in self.anchors
            children = self._children(node, at, dropped) if computed and node.value is None else []
            if not ready and children:
                stack.append((node, at, literal, True))
                stack.extend((child, child_at, lit, False) for child, child_at, lit in reversed(children))
                continue
            args = [self._known[(dropped, child, child_at, lit)] for child, child_at, lit in children]
            self._known[key] = self._add(block, node, at, args, literal, dropped, computed)
        return self._known[(dropped, root, maps, False)]

    def fold(self, node: Node) -> int:
        """The number of a fold node that spans this stage's space."""
        number = self.folded.get(node)
        if number is None:
            op = node.op
            assert isinstance(op, Blockwise) and op.reducer is not None
            args = self._operand_values(node, op)
            number = self.folded[node] = self.program.fold(op.reducer, tuple(args), op.dropped)
            self.program.direct |= op.reducer.contracts
            self.operations[op.name] = None
            self.flops += op.flops
        return number

    def scan(self, node: Node) -> int:
        """The value of a running fold over this stage's space."""
        op = node.op
        assert isinstance(op, Blockwise) and op.scanner is not None and op.ordered is not None
        (arg,) = self._operand_values(node, op)
        self.program.scans.append(Scan(op.scanner, op.ordered, self.program.body.instrs[arg].dtype))
        self.operations[op.name] = None
        self.flops += op.flops
        slot = len(self.program.scans) - 1
        spans = [True] * self.program.rank
        return self.program.body.add("scan", ("scan", op.scanner.key, slot), (arg,), slot, node.dtype, spans)

    def whole(self, node: Node) -> int:
        """The value of a body that wants its operands' blocks, or axes, in one piece."""
        op = node.op
        assert isinstance(op, Blockwise) and op.body is not None
        args = self._operand_values(node, op, bodied=False)
        self.operations[op.name] = None
        self.flops += op.flops
        self.program.direct = True
        self.program.exact = op.exact
        key = ("whole", op.name, op.body_key) if op.body_key is not None else None
        spans = [a not in op.whole for a in range(self.program.rank)]
        return self.program.body.add("whole", key, args, op, node.dtype, spans)

    def _operand_values(self, node: Node, op: Blockwise, bodied: bool = True) -> list[int]:
        values = []
        for operand, axes in zip(node.operands, op.maps, strict=True):
            maps = tuple(NOWHERE if a is None else AxisMap(a) for a in axes)
            values.append(self.value(operand, maps))
        if bodied and op.body is not None:
            dtype = op.body_dtype or node.dtype
            key = ("pre", op.name, op.body_key) if op.body_key is not None else None
            values = [self.program.body.add("call", key, values, op, dtype)]
        return values

    def _children(self, node: Node, at: Maps, dropped: tuple[int, ...] | None) -> list[tuple[Node, Maps, bool]]:
        op = node.op
        if isinstance(op, Affine):
            return [(node.operands[0], compose(op.maps, at), False)]
        if is_elementwise(node):
            assert isinstance(op, Blockwise)
            children = []
            for operand, axes in zip(node.operands, op.maps, strict=True):
                maps = tuple(NOWHERE if a is None else at[a] for a in axes)
                children.append((operand, maps, op.literal and isinstance(operand.op, Const)))
            return children
        return []

    def _add(
        self,
        block: Block,
        node: Node,
        at: Maps,
        args: Sequence[int],
        literal: bool,
        dropped: tuple[int, ...] | None,
        computed: bool,
    ) -> int:
        op = node.op
        rank = self.program.rank
        if computed and node.value is None:
            if isinstance(op, Const):
                if literal:
                    return block.add("literal", op.key, (), op.value, node.dtype, [False] * rank)
                return self._param(block, op.value)
            if isinstance(op, Iota):
                return self._index(block, at[0])
            if isinstance(op, Affine):
                return args[0]
            if is_elementwise(node):
                assert isinstance(op, Blockwise)
                self.operations[op.name] = None
                self.flops += op.flops
                key = (op.name, op.body_key) if op.body_key is not None else None
                return block.add("call", key, args, op, node.dtype)
            if isinstance(op, Blockwise) and op.reducer is not None and dropped is not None:
                # An epilogue's fold: planned to be one of this stage's.
                return block.add(
                    "folded",
                    ("folded", self.fold(node)),
                    (),
                    self.fold(node),
                    node.dtype,
                    [a not in dropped for a in range(rank)],
                )
        return self._leaf(block, node, at, dropped)

    def _param(self, block: Block, value: np.generic) -> int:
        slot = self.program.param(value)
        return block.add("param", ("param", slot), (), slot, value.dtype, [False] * self.program.rank)

    def _index(self, block: Block, at: AxisMap) -> int:
        axis, offset, step = at
        if axis is None:
            return self._param(block, np.int64(offset))
        indices = self.program.indices
        if (axis, offset, step) not in indices:
            indices.append((axis, offset, step))
        slot = indices.index((axis, offset, step))
        spans = [a == axis for a in range(self.program.rank)]
        return block.add("index", ("index", axis, slot, step), (), (axis, slot, step), np.dtype("int64"), spans)

    def _leaf(self, block: Block, node: Node, at: Maps, dropped: tuple[int, ...] | None) -> int:
        leaves = self.leaves if dropped is None else self.group_leaves.setdefault(dropped, [])
        number = leaves.index((node, at)) if (node, at) in leaves else len(leaves)
        if number == len(leaves):
            leaves.append((node, at))
        used = {m.axis for m in at}
        spans = [a in used for a in range(self.program.rank)]
        return block.add("load", ("load", number), (), number, node.dtype, spans)


def moves(node: Node) -> bool:
    """A node that is pieced together on the host when it is read."""
    return isinstance(node.op, Move)
