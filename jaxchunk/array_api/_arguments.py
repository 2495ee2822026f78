"""Arguments that many functions take: checked once, with messages that name them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from jaxchunk.array_api._apply import Operand
from jaxchunk.array_api._build import Shape


def need_array(name: str, x: Any, argument: str = "x") -> None:
    """Raise TypeError where something is no array of this library."""
    if not isinstance(x, Operand):
        raise TypeError(f"{name}: {argument} is a {type(x).__name__}; it takes a jaxchunk array, see asarray")


def as_shape(shape: int | Sequence[int]) -> Shape:
    """A shape argument as a tuple of ints of at least 0."""
    entries = shape if isinstance(shape, Sequence) else (shape,)
    try:
        sizes = tuple(operator.index(n) for n in entries)
    except TypeError:
        raise TypeError(f"shape={shape!r}: an int or a tuple of ints") from None
    if any(n < 0 for n in sizes):
        raise ValueError(f"shape={shape!r}: sizes are at least 0")
    return sizes


def as_axis(name: str, axis: Any, ndim: int, argument: str = "axis") -> int:
    """One axis, counted from the front."""
    try:
        position = operator.index(axis)
    except TypeError:
        raise TypeError(f"{name}: {argument}={axis!r}; an axis is an int") from None
    if not -ndim <= position < ndim:
        raise IndexError(f"{name}: {argument}={position} is out of bounds for an array with {ndim} axes")
    return position % ndim


def as_axes(name: str, axis: Any, ndim: int, argument: str = "axis") -> tuple[int, ...]:
    """One axis or several different ones, counted from the front, in the order given; None is all of them."""
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    axes = tuple(as_axis(name, a, ndim, argument) for a in given)
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: {argument}={axis!r} names an axis twice")
    return axes
