"""The arithmetic, bitwise and comparison operators of arrays, from the table of elementwise functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from jaxchunk.array_api._apply import Operand, elementwise
from jaxchunk.array_api._dtypes import Scalar
from jaxchunk.array_api._elementwise import OPERATORS
from jaxchunk.array_api._row import Row

if TYPE_CHECKING:
    from jaxchunk.array_api._array import Array

Unary = Callable[[Any], "Array"]
Binary = Callable[[Any, Any], "Array"]


def _known(other: object) -> bool:
    """Whether an operator takes this operand; it leaves others to the operand's own operators.

    NumPy arrays have none for ours, and what NumPy says then helps nobody.
    """
    if isinstance(other, np.ndarray):
        raise TypeError("an operand is a NumPy array: make it a jaxchunk array by asarray")
    return isinstance(other, Operand | Scalar | np.generic)


def _unary(name: str) -> Unary:
    row = OPERATORS[name]

    def operator(self: Any, /) -> Array:
        return elementwise(row, self)

    return _named(operator, name, row)


def _binary(name: str) -> Binary:
    row = OPERATORS[name]

    def operator(self: Any, other: Any, /) -> Any:
        return elementwise(row, self, other) if _known(other) else NotImplemented

    return _named(operator, name, row)


def _reflected(name: str) -> Binary:
    row = OPERATORS[name]

    def operator(self: Any, other: Any, /) -> Any:
        return elementwise(row, other, self) if _known(other) else NotImplemented

    return _named(operator, name.replace("__", "__r", 1), row)


def _inplace(name: str) -> Binary:
    row = OPERATORS[name]

    def operator(self: Any, other: Any, /) -> Any:
        return self._become(elementwise(row, self, other)) if _known(other) else NotImplemented

    return _named(operator, name.replace("__", "__i", 1), row)


def _named(operator: Callable[..., Any], name: str, row: Row) -> Callable[..., Any]:
    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"The operator of `{row.name}`."
    return operator


class Operators(Operand):
    """What arrays inherit their operators from."""

    __slots__ = ()
    # Equal arrays are arrays of trues, so arrays are no keys.
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def _become(self, result: Any) -> Any:
        """Take over a result's node, for an operation in place: its shape and dtype can't change."""
        if result is NotImplemented:
            return result
        old, new = self._node, result._node
        if new.dtype != old.dtype:
            raise TypeError(f"an operation in place on {old.dtype} would give {new.dtype}: write x = x …")
        if new.shape != old.shape:
            raise ValueError(f"an operation in place on shape {old.shape} would give {new.shape}: write x = x …")
        self._point_to(new)
        return self

    __neg__ = _unary("__neg__")
    __pos__ = _unary("__pos__")
    __abs__ = _unary("__abs__")
    __invert__ = _unary("__invert__")

    __add__, __radd__, __iadd__ = _binary("__add__"), _reflected("__add__"), _inplace("__add__")
    __sub__, __rsub__, __isub__ = _binary("__sub__"), _reflected("__sub__"), _inplace("__sub__")
    __mul__, __rmul__, __imul__ = _binary("__mul__"), _reflected("__mul__"), _inplace("__mul__")
    __pow__, __rpow__, __ipow__ = _binary("__pow__"), _reflected("__pow__"), _inplace("__pow__")
    __mod__, __rmod__, __imod__ = _binary("__mod__"), _reflected("__mod__"), _inplace("__mod__")
    __and__, __rand__, __iand__ = _binary("__and__"), _reflected("__and__"), _inplace("__and__")
    __or__, __ror__, __ior__ = _binary("__or__"), _reflected("__or__"), _inplace("__or__")
    __xor__, __rxor__, __ixor__ = _binary("__xor__"), _reflected("__xor__"), _inplace("__xor__")
    __truediv__ = _binary("__truediv__")
    __rtruediv__ = _reflected("__truediv__")
    __itruediv__ = _inplace("__truediv__")
    __floordiv__ = _binary("__floordiv__")
    __rfloordiv__ = _reflected("__floordiv__")
    __ifloordiv__ = _inplace("__floordiv__")
    __lshift__ = _binary("__lshift__")
    __rlshift__ = _reflected("__lshift__")
    __ilshift__ = _inplace("__lshift__")
    __rshift__ = _binary("__rshift__")
    __rrshift__ = _reflected("__rshift__")
    __irshift__ = _inplace("__rshift__")

    __lt__, __le__ = _binary("__lt__"), _binary("__le__")
    __gt__, __ge__ = _binary("__gt__"), _binary("__ge__")
    # Python has them give a bool, the standard an array.
    __eq__ = _binary("__eq__")  # type: ignore[assignment]
    __ne__ = _binary("__ne__")  # type: ignore[assignment]
