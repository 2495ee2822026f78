"""From operands to arrays: elementwise functions applied to arrays and scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxchunk.array_api import _build
from jaxchunk.array_api._build import DType
from jaxchunk.graph.node import Node

if TYPE_CHECKING:
    from jaxchunk.array_api._array import Array
    from jaxchunk.array_api._row import Row


class Operand:
    """A handle on a node, which operations in place make point to another one.

    It is the little of an array that this module has to know, so that arrays can have operators made
    of the functions, and functions give arrays, without the two importing each other.
    """

    __slots__ = ("__weakref__", "_node")

    def __init__(self, node: Node) -> None:
        self._node = node
        node.handles += 1

    def __del__(self) -> None:
        self._node.handles -= 1

    def _point_to(self, node: Node) -> None:
        node.handles += 1
        self._node.handles -= 1
        self._node = node

    @property
    def dtype(self) -> DType:
        return self._node.dtype


def elementwise(row: Row, *operands: Any) -> Array:
    """The array of a row's function on operands: arrays, and Python or NumPy scalars.

    Operands are cast to the dtype that they promote to and broadcast against each other.
    """
    refuse_foreign(row.name, operands)
    dtype = row.operand_dtype(operands)
    nodes = [as_node(x, dtype) for x in operands]
    key = (row.name, dtype.str, *(node.dtype.str for node in nodes))
    node = _build.blockwise(
        row.name,
        _build.after_cast(row.body, dtype),
        key,
        nodes,
        row.result(dtype),
        literal=row.literal,
        flops=row.flops,
    )
    kind = next(type(x) for x in operands if isinstance(x, Operand))
    return kind(node)  # type: ignore[return-value]  # Array is the only kind there is


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
