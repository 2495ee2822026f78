"""What can be told of a matrix only while it is worked on: singular, or not positive definite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api import _build
from jaxchunk.array_api._values import Value
from jaxchunk.errors import LinAlgError
from jaxchunk.graph.grid import Box
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Guard


def definite(factor: Node, columns: tuple[int, int] | None = None) -> Node:
    """Cholesky factors that a run refuses where they hold NaN: of matrices that aren't positive definite.

    `columns` are those of the whole matrix where these are factors of a part of it.
    """

    def check(tile: np.ndarray[Any, Any], box: Box) -> None:
        where = "" if columns is None else f", found in its columns {columns[0]} to {columns[1] - 1}"
        refuse(np.isnan(tile).any(axis=(-2, -1)), box, f"is not positive definite{where}")

    return _build.make(Guard(check, ("positive definite", columns)), (factor, factor), factor.grid, factor.dtype)


def regular(factors: Node) -> Node:
    """LU decompositions that a run refuses where U has a 0 on its diagonal: of singular matrices."""

    def check(tile: np.ndarray[Any, Any], box: Box) -> None:
        refuse((np.diagonal(tile, axis1=-2, axis2=-1) == 0).any(axis=-1), box, "is singular")

    return _build.make(Guard(check, "regular"), (factors, factors), factors.grid, factors.dtype)


def regular_triangle(triangle: Node, diagonal: Node, norms: Node) -> Node:
    """Triangles R of QR decompositions that a run refuses where those are of singular matrices.

    Rounding leaves no zeros on the diagonal, but what is as small beside its column (`norms`) as rounding itself.
    """
    tolerance = triangle.shape[-1] * np.finfo(diagonal.dtype).eps

    def small(value: Value, norm: Value) -> Value:
        return lax.le(lax.abs(value), lax.mul(norm, lax.full_like(norm, tolerance)))

    key = ("negligible", diagonal.dtype.str, triangle.shape[-1])
    evidence = _build.blockwise("negligible", small, key, (diagonal, norms), np.dtype("bool"))

    def check(tile: np.ndarray[Any, Any], box: Box) -> None:
        if tile.any():
            *stack, column = (int(i) + start for i, (start, _) in zip(np.argwhere(tile)[0], box, strict=True))
            raise LinAlgError(
                f"{_which(stack)} is singular to working precision: column {column} depends on those before it"
            )

    return _build.make(Guard(check, "regular triangle"), (triangle, evidence), triangle.grid, triangle.dtype)


def refuse(bad: np.ndarray[Any, Any], box: Box, fault: str) -> None:
    """Raise where there is a bad one among the matrices of a tile, and tell which."""
    if bad.any():
        index = [int(i) + start for i, (start, _) in zip(np.argwhere(bad)[0], box[:-2], strict=True)]
        raise LinAlgError(f"{_which(index)} {fault}")


def _which(index: Sequence[int]) -> str:
    return f"the matrix at {list(index)} of the stack" if index else "the matrix"
