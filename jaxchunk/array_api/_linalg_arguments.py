"""What linear algebra's functions are given: checked at the call."""

from __future__ import annotations

from typing import Any

from jax import lax

from jaxchunk.array_api import _build
from jaxchunk.array_api._arguments import need_array
from jaxchunk.array_api._build import DType, Shape
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.grid import Grid, auto_grid
from jaxchunk.graph.node import Node

_equal = aligned(lax.eq)


def numeric(name: str, x: Any, argument: str = "x") -> Node:
    """The node of an array of a numeric dtype."""
    need_array(name, x, argument)
    if x.dtype.kind == "b":
        raise TypeError(f"{name}: {argument} has dtype bool; it takes a numeric one, see astype")
    node: Node = x._node
    return node


def floating(name: str, x: Any, argument: str = "x") -> Node:
    """The node of an array of a floating dtype, complex ones included."""
    need_array(name, x, argument)
    if x.dtype.kind not in "fc":
        raise TypeError(f"{name}: {argument} has dtype {x.dtype}; it takes a floating one, see astype")
    node: Node = x._node
    return node


def matrices(name: str, x: Any, argument: str = "x") -> Node:
    """The node of a stack of matrices of a floating dtype."""
    return of_two_axes(name, floating(name, x, argument), argument)


def of_two_axes(name: str, node: Node, argument: str = "x") -> Node:
    """A node that has at least two axes."""
    if node.ndim < 2:
        raise ValueError(f"{name}: {argument} of shape {node.shape} has {node.ndim} axes; matrices have at least 2")
    return node


def square(name: str, x: Any, argument: str = "x") -> Node:
    """The node of a stack of square matrices of a floating dtype."""
    node = matrices(name, x, argument)
    if node.shape[-1] != node.shape[-2]:
        rows, columns = node.shape[-2:]
        raise ValueError(f"{name}: {argument} of shape {node.shape} has {rows} × {columns} matrices, not square ones")
    return node


def stack_of(node: Node, core: Shape, dtype: DType, like: Grid = ()) -> Grid:
    """Cuts for results of one shape for each matrix of a node: along the stack as the node is cut.

    `like` are the cuts of the result's own axes where they are known.
    """
    return (*node.grid[:-2], *(like or auto_grid(core, dtype.itemsize)))


def identity(node: Node, n: int, dtype: DType) -> Node:
    """The n × n identity on a node's device: it is computed where it is used."""
    rows, columns = auto_grid((n, n), dtype.itemsize)

    def body(row: Any, column: Any) -> Any:
        return _build.convert(_equal(row, column), dtype)

    operands = (_build.iota(n, rows), _build.iota(n, columns))
    eye = _build.blockwise("eye", body, ("eye", dtype.str), operands, dtype, maps=((0,), (1,)), space=(n, n))
    return _build.pinned(eye, node.device)
