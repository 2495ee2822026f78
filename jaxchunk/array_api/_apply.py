"""From operands to arrays: elementwise functions applied to arrays and scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxchunk.array_api import _build
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._pending import Pending, Selected
from jaxchunk.graph.node import Node

if TYPE_CHECKING:
    from jaxchunk.array_api._array import Array
    from jaxchunk.array_api._row import Row


class Operand:
    """A handle on a node, which operations in place make point to another one.

    Where the shape depends on values, what is held is a `Pending`, until somebody asks for the node.
    It is the little of an array that this module has to know, so that arrays can have operators made
    of the functions, and functions give arrays, without the two importing each other.
    """

    __slots__ = ("__weakref__", "_held")

    def __init__(self, held: Node | Pending) -> None:
        self._held = held
        if isinstance(held, Node):
            held.handles += 1

    def __del__(self) -> None:
        if isinstance(self._held, Node):
            self._held.handles -= 1

    @property
    def _node(self) -> Node:
        held = self._held
        if isinstance(held, Pending):
            self._point_to(held.node())
            return self._node
        return held

    def _point_to(self, node: Node) -> None:
        node.handles += 1
        before, self._held = self._held, node
        if isinstance(before, Node):
            before.handles -= 1

    @property
    def dtype(self) -> DType:
        return self._held.dtype


def elementwise(row: Row, *operands: Any) -> Array:
    """The array of a row's function on operands: arrays, and Python or NumPy scalars.

    Operands are cast to the dtype that they promote to and broadcast against each other.
    """
    refuse_foreign(row.name, operands)
    dtype = row.operand_dtype(operands)
    selection = _selection(operands)
    nodes = [as_node(x, dtype) if selection is None else _unselected(x, dtype) for x in operands]
    key = (row.name, dtype.str, *(node.dtype.str for node in nodes))
    node = _build.blockwise(
        row.name,
        _build.after_cast(row.body, dtype),
        key,
        nodes,
        row.result(dtype),
        literal=row.literal,
        flops=row.flops,
        arrays=row.arrays,
    )
    kind = next(type(x) for x in operands if isinstance(x, Operand))
    held = node if selection is None else Selected(node, selection.found)
    return kind(held)  # type: ignore[return-value]  # Array is the only kind there is


def _selection(operands: tuple[Any, ...]) -> Selected | None:
    """What all operands with axes are selections by one mask of, if they are; of arrays of one shape."""
    held = [x._held for x in operands if isinstance(x, Operand) and x._held.ndim]
    first = held[0] if held else None
    if isinstance(first, Selected) and all(
        isinstance(h, Selected) and h.found is first.found and h.values.shape == first.values.shape for h in held
    ):
        return first
    return None


def _unselected(x: Any, dtype: DType) -> Node:
    return x._held.values if isinstance(x, Operand) and isinstance(x._held, Selected) else as_node(x, dtype)


def as_node(x: Any, dtype: DType) -> Node:
    """The node of an operand; a Python scalar becomes a constant of the given dtype."""
    if isinstance(x, Operand):
        return x._node
    return _build.constant(x, x.dtype if isinstance(x, np.generic) else dtype)


def refuse_foreign(name: str, operands: tuple[Any, ...]) -> None:
    """Raise TypeError for other libraries' arrays: to compute with them is to be asked for."""
    for x in operands:
        if hasattr(x, "dtype") and not isinstance(x, Operand | np.generic | np.dtype | type):
            kind = f"{type(x).__module__}.{type(x).__name__}"
            raise TypeError(f"{name} got a {kind}: make a jaxchunk array of it with asarray")
