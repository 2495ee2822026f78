"""Fourier transforms as operations that choose their algorithm when the budget is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._fft_lines import TASK_SHARE, Line, feed_of, fitted, needed_bytes, result, whole_lines
from jaxchunk.array_api._fft_long import long_line
from jaxchunk.array_api._fft_real import long_irfft, long_rfft
from jaxchunk.graph.node import Composite, Limits, Node, postorder

# Several axes are transformed in one task where a slab of them is smaller than this: larger ones go
# axis by axis, on all cores.
SLAB_BYTES = 2**26


def transform(node: Node, lines: Sequence[Line]) -> Node:
    """The transforms of a node along several axes, in the order given.

    Axes are cropped, or padded with zeros, to the lengths that are taken.
    """
    for line in lines:
        node = fitted(node, line.axis, line.taken)
    grid, dtype = result(node, lines)
    name, chosen = lines[-1].kind + "n" * (len(lines) > 1), tuple(lines)
    op = Composite(name, ("transform", chosen), lambda node, limits: _expanded(node, chosen, limits))
    return _build.make(op, (node,), grid, dtype)


def _expanded(node: Node, lines: tuple[Line, ...], limits: Limits) -> Node:
    """The transforms in one task where most of the budget holds what it takes, else line by line, else in parts."""
    (operand,) = node.operands
    size = math.prod(line.n for line in lines)
    last = lines[0].axis == node.ndim - 1
    need = needed_bytes(operand.dtype, feed_of(operand), lines, size, last)
    room = limits.budget * TASK_SHARE
    done = operand
    if len(lines) > 1 and need > min(room, SLAB_BYTES):
        for line in lines:
            done = transform(done, [line])
    elif need <= room:
        done = whole_lines(operand, lines)
    else:
        done = _long(operand, lines[0], limits.budget)
    return _placed(done, operand, node)


def _long(operand: Node, line: Line, budget: int) -> Node:
    if line.kind == "rfft":
        return long_rfft(operand, line, transform)
    if line.kind == "irfft":
        return long_irfft(operand, line, transform)
    done = long_line(operand, line, budget, transform)
    # Nothing shorter to make of it: the planner says what it lacks.
    return whole_lines(operand, [line]) if done is None else done


def _placed(done: Node, operand: Node, node: Node) -> Node:
    """An expansion with the place in the user's code, the cuts and the device of what it stands for."""
    done = _build.pinned(_views.rechunk(done, node.grid), node.device)
    for made in postorder([done], stop=lambda n: n is operand):
        if made is not operand:
            made.where = node.where
    return done
