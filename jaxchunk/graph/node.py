"""Nodes: what is to be computed. Immutable, small, and ignorant of JAX's runtime and of storage.

A node is an operation on operand nodes. What the operation *is* stands in its ``op``: one of the
primitives of :mod:`jaxchunk.graph.primitives`, or a :class:`Composite` that the planner expands
into primitives once it knows the budget.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxchunk.graph.grid import Grid, shape_of

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_serials = itertools.count()


class Op(Protocol):
    """What a node does. `key` is structural: equal keys on equal operands mean equal results."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> Hashable: ...


class Readable(Protocol):
    """An array that exists, as the graph sees it: the run layer knows how to read each kind."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def grid(self) -> Grid: ...

    @property
    def name(self) -> str: ...


class Node:
    """One operation of the graph.

    Attributes
    ----------
    op
        The operation.
    operands
        The nodes it reads.
    grid
        Where the result is cut; its shape follows from it.
    dtype
        Of the result, a NumPy dtype.
    where
        "file:line" of the user's code that asked for it.
    serial
        Counts nodes in the order they were made: later ones are likelier to be asked for again.
    value
        The array that this node was computed to, while that is remembered. The one field that
        changes: it is set and cleared by a run, under the run's lock.
    handles
        How many of the user's array objects stand for this node.
    met
        Whether a run has had it among its nodes.
    device
        Where tasks are pinned, or None where the planner is free to choose.
    """

    __slots__ = (
        "__weakref__",
        "device",
        "dtype",
        "grid",
        "handles",
        "met",
        "op",
        "operands",
        "serial",
        "shape",
        "value",
        "where",
    )

    def __init__(
        self,
        op: Op,
        operands: Iterable[Node],
        grid: Grid,
        dtype: np.dtype[Any],
        device: Hashable = None,
        where: str | None = None,
    ) -> None:
        self.op = op
        self.operands = tuple(operands)
        self.grid = grid
        self.shape = shape_of(grid)
        self.dtype = dtype
        self.serial = next(_serials)
        self.where = users_line() if where is None else where
        self.value: Readable | None = None
        self.handles = 0
        self.met = False
        self.device = device

    @property
    def ndim(self) -> int:
        return len(self.grid)

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.shape} {self.dtype} from {self.where}>"


class Composite:
    """An operation whose algorithm depends on the budget: `expand` gives nodes of primitives.

    Parameters
    ----------
    name, key
        As for every operation.
    expand
        A pure function (node, limits) → node, of primitives and further composites, with the same
        shape and dtype.
    """

    __slots__ = ("expand", "key", "name")

    def __init__(self, name: str, key: Hashable, expand: Callable[[Node, Limits], Node]) -> None:
        self.name = name
        self.key = key
        self.expand = expand


class Limits(Protocol):
    """What an expansion may depend on."""

    @property
    def budget(self) -> int: ...


def users_line() -> str:
    """The nearest "file:line" up the stack that isn't this package's own."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@functools.cache
def _is_ours(file: str) -> bool:
    return file.startswith(_PACKAGE)


def postorder(roots: Iterable[Node], stop: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
    """Every node once, operands before users, without recursion; `stop` nodes' operands are left out."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if not stop(node):
                stack.extend((operand, False) for operand in reversed(node.operands) if operand not in seen)
