"""One task, one matrix: bodies that want their matrices whole, over stacks of them.

What linear algebra does with a matrix that fits in memory is a call of a library. A *task* here is
such a call on some matrices of a stack: a node of which every operand's matrices are in one piece.
How many matrices it takes at once follows from the budget, so tasks are made where that is known,
in expansions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._build import DType, Shape
from jaxchunk.array_api._dtypes import real_of
from jaxchunk.array_api._values import Value, spread
from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.node import Composite, Limits, Node
from jaxchunk.graph.primitives import Blockwise, Work
from jaxchunk.plan.scratch import scratch_bytes

Results = TypeVar("Results")

# A task may take one part in so many of the budget: others are for values that wait, and for results.
TASK_SHARE = 3
# Small matrices are worked on together, until they are this many bytes.
STACK_BYTES = 2 * 2**20


class Cost(NamedTuple):
    """What a body takes besides its operands and its result.

    Attributes
    ----------
    libraries
        The primitives of JAX that it is made of, by their names in the scratch table.
    copies
        How often its operands and its result together exist once more, at most, while it runs.
    """

    libraries: tuple[str, ...]
    copies: float = 2.0


def composite(
    name: str,
    key: Hashable,
    operands: Sequence[Node],
    grid: Grid,
    dtype: DType,
    expand: Callable[[Sequence[Node], Limits], Node],
) -> Node:
    """A node that becomes other nodes once the budget is known: `expand` gives them, from its operands."""
    op = Composite(name, (name, key), lambda node, limits: expand(node.operands, limits))
    return _build.make(op, operands, grid, dtype)


def expanded_once(build: Callable[[Node, Limits], Results]) -> Callable[[Node, Limits], Results]:
    """The same nodes for all results of one operation: each result is expanded on its own."""
    last: list[tuple[Node, int, Results]] = []

    def results(node: Node, limits: Limits) -> Results:
        if not last or last[0][:2] != (node, limits.budget):
            last[:] = [(node, limits.budget, build(node, limits))]
        return last[0][2]

    return results


def task_bytes(nbytes: int, cost: Cost) -> int:
    """What a task takes whose operands and results have so many bytes, with what reading it in pieces takes."""
    return math.ceil(nbytes * (2 + cost.copies)) + scratch_bytes(map(Work, cost.libraries), nbytes, "cpu")


def fits(nbytes: int, cost: Cost, limits: Limits) -> bool:
    """Whether one matrix can be worked on in one task: else another way has to be found."""
    return task_bytes(nbytes, cost) <= limits.budget // TASK_SHARE


def whole_axes(shape: Shape) -> Grid:
    """The cuts of axes in one piece."""
    return tuple(Axis.regular(n, n) for n in shape)


def task(
    name: str,
    body: Callable[..., Value],
    key: Hashable,
    operands: Sequence[Node],
    core: Shape,
    dtype: DType,
    limits: Limits,
    cost: Cost,
    *,
    follows: Sequence[Sequence[int | None]] | None = None,
    cuts: Grid | None = None,
    flops: float = 100.0,
) -> Node:
    """A stack of results, each made of one matrix of each operand.

    Parameters
    ----------
    body
        Takes a block (stack axes, then a matrix's two) of each operand and gives one of the result;
        all of them have the same stack axes.
    key
        With the name, stands for what the body captures; None where that is nothing.
    core
        The shape of one result, beside the stack axes.
    follows, cuts
        For results that are cut too: for each axis of an operand's matrix the result's axis that it
        is cut along with, or None where it is given whole; and the cuts of a result.
    """
    cuts = whole_axes(core) if cuts is None else cuts
    follows = [(None, None)] * len(operands) if follows is None else follows
    held = _held(operands, follows, cuts, dtype)
    batch = _build.broadcast_shape(node.shape[:-2] for node in operands)
    stack = _stacked(operands, batch, task_bytes(held, cost), limits)
    space, maps, blocks = _laid_out(operands, follows, core, cuts, stack)
    followed = any(axis is not None for axes in follows for axis in axes)

    def run(*values: Value) -> Value:
        own = [_own_axes(v, m, len(batch)) for v, m in zip(values, maps, strict=True)]
        common = _build.broadcast_shape(v.shape[:-2] for v in own)
        return body(*(spread(v, (*common, *v.shape[-2:])) for v in own))

    matrices = math.prod(axis.largest for axis in stack)
    op = Blockwise(
        name,
        run,
        ("task", key),
        space,
        maps,
        whole=tuple(range(len(batch) + (len(core) if followed else 0), len(space))),
        exact=True,
        flops=flops,
        primitives=tuple(Work(library, held) for library in cost.libraries),
        body_bytes=math.ceil(matrices * held * cost.copies),
    )
    return _build.make(op, blocks, (*stack, *cuts), dtype)


def _held(operands: Sequence[Node], follows: Sequence[Sequence[int | None]], cuts: Grid, dtype: DType) -> int:
    """Bytes of one matrix of each operand and of the result, as far as they are cut."""
    held = dtype.itemsize * math.prod(axis.largest for axis in cuts)
    for node, axes in zip(operands, follows, strict=True):
        sizes = (n if axis is None else cuts[axis].largest for n, axis in zip(node.shape[-2:], axes, strict=True))
        held += node.dtype.itemsize * math.prod(sizes)
    return held


def _laid_out(
    operands: Sequence[Node], follows: Sequence[Sequence[int | None]], core: Shape, cuts: Grid, stack: Grid
) -> tuple[Shape, tuple[tuple[int | None, ...], ...], list[Node]]:
    """The index space of a task, the operands' places in it, and the operands cut for it.

    It has the stack's axes, then the result's, then those that operands have whole. A result's axes
    that no operand is cut along with are there in name only: they have size 1.
    """
    batch = tuple(axis.length for axis in stack)
    followed = {axis for axes in follows for axis in axes}
    space = [*batch, *(n if axis in followed else 1 for axis, n in enumerate(core))]
    maps: list[tuple[int | None, ...]] = []
    blocks = []
    for node, axes in zip(operands, follows, strict=True):
        along = _build.broadcast_map(node.shape[:-2], batch)
        grid = [Axis.regular(1, 1) if a is None else stack[a] for a in along]
        places = []
        for n, axis in zip(node.shape[-2:], axes, strict=True):
            if axis is None:
                space.append(n)
            places.append(len(space) - 1 if axis is None else len(batch) + axis)
            grid.append(Axis.regular(n, n) if axis is None else cuts[axis])
        maps.append((*along, *places))
        blocks.append(_views.rechunk(node, tuple(grid)))
    return tuple(space), tuple(maps), blocks


def _own_axes(value: Value, maps: Sequence[int | None], stack: int) -> Value:
    """An operand's block, which has all axes of the space, with the stack's axes and its own two."""
    sizes = [1] * stack
    for axis in maps[:-2]:
        if axis is not None:
            sizes[axis] = value.shape[axis]
    return lax.reshape(value, (*sizes, *(value.shape[a] for a in maps[-2:] if a is not None)))


def _stacked(operands: Sequence[Node], batch: Shape, each: int, limits: Limits) -> Grid:
    """How a stack is cut: as its operands are, but for blocks of a good size."""
    maps = [_build.broadcast_map(node.shape[:-2], batch) for node in operands]
    # Something with the cuts of the operands' stack axes alone.
    outer = [_build.filled(0, node.dtype, node.grid[:-2]) for node in operands]
    tile = [axis.largest for axis in _build.mapped_grid(outer, maps, batch)]
    most = max(1, min(STACK_BYTES, limits.budget // (4 * TASK_SHARE)) // max(1, each))
    while math.prod(tile) > most:
        longest = tile.index(max(tile))
        tile[longest] = -(-tile[longest] // 2)
    for a in reversed(range(len(tile))):
        tile[a] = max(tile[a], min(batch[a], most // max(1, math.prod(tile) // max(1, tile[a]))))
    return tuple(Axis.regular(n, t) for n, t in zip(batch, tile, strict=True))


# --- several results of one task ---------------------------------------------------------------


class Packing(NamedTuple):
    """Several matrices of one shape or another as one: below each other, or side by side.

    Attributes
    ----------
    shapes
        Of the parts; one with a single axis is a row or a column.
    axis
        0 where they are below each other.
    """

    shapes: tuple[Shape, ...]
    axis: int

    @staticmethod
    def of(*shapes: Shape) -> Packing:
        """The packing that takes less room."""
        return min((Packing(shapes, axis) for axis in (0, 1)), key=lambda packing: math.prod(packing.shape))

    def _placed(self, shape: Shape) -> Shape:
        if len(shape) == 2:
            return shape
        return (1, *shape) if self.axis == 0 else (*shape, 1)

    @property
    def shape(self) -> Shape:
        """Of the whole."""
        parts = [self._placed(shape) for shape in self.shapes]
        length, breadth = sum(p[self.axis] for p in parts), max(p[1 - self.axis] for p in parts)
        return (length, breadth) if self.axis == 0 else (breadth, length)

    def pack(self, *parts: Value) -> Value:
        """Values with these shapes behind stack axes as one value; what is left of it is 0."""
        across, padded = 1 - self.axis, []
        stack = parts[0].ndim - len(self.shapes[0])
        for part, shape in zip(parts, self.shapes, strict=True):
            placed = self._placed(shape)
            part = lax.convert_element_type(lax.reshape(part, (*part.shape[:stack], *placed)), parts[0].dtype)
            edges = [(0, 0, 0)] * part.ndim
            edges[stack + across] = (0, self.shape[across] - placed[across], 0)
            padded.append(lax.pad(part, lax.full((), 0, part.dtype), edges))
        return lax.concatenate(padded, stack + self.axis)

    def part(self, node: Node, number: int) -> Node:
        """One of the parts of a packed node: a view."""
        placed = self._placed(self.shapes[number])
        start = sum(self._placed(shape)[self.axis] for shape in self.shapes[:number])
        along, across = node.ndim - 2 + self.axis, node.ndim - 1 - self.axis
        node = _views.cut(node, along, start, start + placed[self.axis])
        node = _views.cut(node, across, 0, placed[1 - self.axis])
        return node if len(self.shapes[number]) == 2 else _views.squeeze(node, [along])


def real_part(node: Node) -> Node:
    """The real parts of a node that is complex only because something packed beside it is."""
    if node.dtype.kind != "c":
        return node
    return _build.blockwise("real", lax.real, ("real", node.dtype.str), (node,), real_of(node.dtype))
