"""Fourier transforms of whole lines: what one task does, and what it needs.

A :class:`Line` is one transform along one axis. `whole_lines` makes the node of a task that has all
of its axes in one piece and is free to be cut along every other one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._build import DType
from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Blockwise, Concat, Reshape, Source, Work
from jaxchunk.lower.compile import local_device
from jaxchunk.plan.build import is_elementwise
from jaxchunk.plan.scratch import fft_entry, scratch_bytes
from jaxchunk.store.stored import StoredArray

Kind: TypeAlias = Literal["fft", "ifft", "rfft", "irfft"]

_TYPES = {
    "fft": lax.FftType.FFT,
    "ifft": lax.FftType.IFFT,
    "rfft": lax.FftType.RFFT,
    "irfft": lax.FftType.IRFFT,
}


class Line(NamedTuple):
    """A transform of `n` points along an axis; its sums are multiplied by n ** power."""

    kind: Kind
    axis: int
    n: int
    power: float = 0.0

    @property
    def half(self) -> int:
        """How many coefficients of a Hermitian line are kept."""
        return self.n // 2 + 1

    @property
    def taken(self) -> int:
        """The length of the axis that it takes."""
        return self.half if self.kind == "irfft" else self.n

    @property
    def given(self) -> int:
        """The length of the axis that it gives."""
        return self.half if self.kind == "rfft" else self.n

    @property
    def sign(self) -> int:
        """Of the exponents."""
        return -1 if self.kind in ("fft", "rfft") else 1

    def dtype(self, dtype: DType) -> DType:
        """Of its result, from that of its operand."""
        if self.kind == "rfft":
            return np.dtype(f"c{2 * dtype.itemsize}")
        return np.dtype(f"f{dtype.itemsize // 2}") if self.kind == "irfft" else dtype

    def grid(self, grid: Grid) -> Grid:
        """Of its result: the operand's cuts, or as many blocks where the axis' length changes."""
        cuts = grid[self.axis]
        if cuts.length != self.given:
            size = self.given if cuts.nblocks < 2 else cuts.largest * self.given // self.taken
            cuts = Axis.regular(self.given, size)
        return (*grid[: self.axis], cuts, *grid[self.axis + 1 :])


def result(node: Node, lines: Sequence[Line]) -> tuple[Grid, DType]:
    """The grid and dtype of what the transforms of a node give, one after another."""
    grid, dtype = node.grid, node.dtype
    for line in lines:
        grid, dtype = line.grid(grid), line.dtype(dtype)
    return grid, dtype


def fitted(node: Node, axis: int, length: int) -> Node:
    """The node cropped, or padded with zeros, to a length of one axis."""
    have = node.shape[axis]
    if have >= length:
        return _views.cut(node, axis, 0, length)
    cuts = Axis.regular(length - have, max(1, node.grid[axis].largest))
    grid = (*node.grid[:axis], cuts, *node.grid[axis + 1 :])
    zeros = _build.pinned(_build.filled(0, node.dtype, grid), node.device)
    return _views.concat([node, zeros], axis)


# --- what it needs -----------------------------------------------------------------------------


class Feed(NamedTuple):
    """What an operand is computed from within the task that wants it.

    Attributes
    ----------
    pieced
        Whether it is put together on the host from pieces, which takes twice its bytes.
    calls
        How many values of its size the arithmetic on the way makes.
    chunk
        Bytes to decode the largest chunk of a store.
    platform
        Of the device that does it.
    """

    pieced: bool = False
    calls: int = 0
    chunk: int = 0
    platform: str = "cpu"


# What one task may take of the budget: the rest is for what is handed out, and kept, meanwhile.
TASK_SHARE = 5 / 8
# The planner takes no more values of one task for alive at once.
_ALIVE = 6
# For what doesn't grow with the lines.
_SMALL = 8192


def made(node: Node) -> bool:
    """Whether a node's values are there before a task reads it."""
    return node.value is not None or (isinstance(node.op, Blockwise) and not is_elementwise(node))


def feed_of(node: Node) -> Feed:
    region = list(postorder([node], stop=made))
    stored = [n.op.array for n in region if isinstance(n.op, Source) and isinstance(n.op.array, StoredArray)]
    return Feed(
        any(isinstance(n.op, Concat | Reshape) for n in region),
        sum(isinstance(n.op, Blockwise) and not made(n) for n in region),
        max((a.dtype.itemsize * math.prod(c.largest for c in a.grid) + a.scratch_bytes for a in stored), default=0),
        local_device(node.device).platform,
    )


def needed_bytes(dtype: DType, feed: Feed, lines: Sequence[Line], size: int, last: bool) -> int:
    """An upper bound of what a task takes.

    Parameters
    ----------
    dtype, feed
        Of the operand.
    lines
        What is transformed, one after another.
    size
        How many complex elements the task has at its widest.
    last
        Whether the only line is along the last axis: others are transposed on their way.
    """
    itemsize = dtype.itemsize * (2 if dtype.kind == "f" else 1)
    half = Fraction(1, 2)
    given = 1 if lines[-1].kind in ("fft", "ifft") and lines[0].kind != "rfft" else half
    taken = half if lines[0].kind == "rfft" else Fraction(1)
    pieced = feed.pieced or lines[-1].kind == "irfft"
    copies = given + taken * (3 if pieced else 1) + taken * min(_ALIVE, feed.calls + _rooms(lines, last))
    library = scratch_bytes(_works(lines, itemsize), 0, feed.platform)
    return math.ceil(copies * size * itemsize) + library + feed.chunk + _SMALL


def _works(lines: Sequence[Line], itemsize: int) -> tuple[Work, ...]:
    """The calls of the library: it works on one line of complex numbers at a time."""
    return tuple(Work(fft_entry([line.n]), line.n * itemsize) for line in lines)


def _rooms(lines: Sequence[Line], last: bool) -> int:
    """How many values of the operand's size the body makes on its way: joined, transposed, scaled."""
    (line, *more) = lines
    plain = (line.kind, line.power) in (("fft", 0), ("ifft", -1))
    return 2 if more else 0 if plain and last else 1


def _with_rooms(node: Node, count: int, name: str) -> Node:
    """The node passed on a few times: the planner counts a value for every operation, the compiler makes none."""
    for _ in range(count):
        node = _build.blockwise(name, lambda x: x, "pass", (node,), node.dtype, flops=0.0)
    return node


# --- the task ----------------------------------------------------------------------------------


def whole_lines(node: Node, lines: Sequence[Line]) -> Node:
    """The transforms one after another, of a node that has the lengths they take.

    A real line comes as two overlapping parts of the length of its result, and a Hermitian one
    with room for its result behind it, since every axis of a task's operands is an axis of what it
    gives.
    """
    first, last = lines[0], lines[-1]
    rooms = _rooms(lines, first.axis == node.ndim - 1)
    operands = [node]
    if first.kind == "rfft":
        axis, n, half = first.axis, first.n, first.half
        operands = [_views.cut(node, axis, 0, half), _views.cut(node, axis, n - half, n)]
    elif last.kind == "irfft":
        operands = [fitted(node, last.axis, last.n)]
    shape = operands[0].shape
    grid, dtype = result(node, lines)

    def body(*values: Any) -> Any:
        value = values[0]
        if first.kind == "rfft":
            rest = lax.slice_in_dim(values[1], 2 * first.half - first.n, first.half, axis=first.axis)
            value = lax.concatenate([value, rest], first.axis) if rest.shape[first.axis] else value
        elif last.kind == "irfft":
            value = lax.slice_in_dim(value, 0, last.half, axis=last.axis)
        for line in lines:
            value = transformed(value, line)
        return value

    itemsize = dtype.itemsize * (2 if dtype.kind == "f" else 1)
    op = Blockwise(
        last.kind,
        body,
        ("lines", tuple(lines), node.dtype.str),
        shape,
        (tuple(range(node.ndim)),) * len(operands),
        whole=tuple(sorted({line.axis for line in lines})),
        flops=sum(5 * math.log2(max(2, line.n)) for line in lines),
        primitives=_works(lines, itemsize),
    )
    return _build.make(op, [_with_rooms(operand, rooms, last.kind) for operand in operands], grid, dtype)


def transformed(x: Any, line: Line) -> Any:
    """One transform of a JAX value."""
    order = list(range(x.ndim))
    order[line.axis], order[-1] = order[-1], order[line.axis]
    moved = line.axis != x.ndim - 1
    value = lax.transpose(x, order) if moved else x
    value = lax.fft_p.bind(value, fft_type=_TYPES[line.kind], fft_lengths=(line.n,))
    # The inverses divide by n of themselves.
    power = line.power + (1 if line.kind in ("ifft", "irfft") else 0)
    value = lax.transpose(value, order) if moved else value
    return times(value, float(line.n) ** power) if power else value


def times(x: Any, factor: float) -> Any:
    """A real multiple; of a complex value part by part, so that infinities don't meet a zero."""
    if x.dtype.kind == "c":
        return lax.complex(times(lax.real(x), factor), times(lax.imag(x), factor))
    return lax.mul(x, lax.full_like(x, factor))
