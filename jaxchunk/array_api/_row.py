"""Rows: what an elementwise function is, and how a public function is made of one.

A `Row` says which dtypes a function takes, what it gives, and with which body. `Row.operand_dtype`
is the one place where operands are checked and promoted; the table of rows is `_elementwise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._apply import elementwise

if TYPE_CHECKING:
    from jaxchunk.array_api._array import Array

    Operand: TypeAlias = Array | dt.Scalar

# Which dtypes a function takes, in the words of its messages, and as NumPy's letters of kinds.
TAKES = MappingProxyType(
    {
        "any": "biufc",
        "numeric": "iufc",
        "real numeric": "iuf",
        "floating": "fc",
        "real floating": "f",
        "complex floating": "c",
        "integer": "iu",
        "integer or bool": "biu",
        "bool": "b",
    }
)

Rule: TypeAlias = Callable[[dt.DType], dt.DType]
Check: TypeAlias = Callable[["Row", tuple[Any, ...], dt.DType], None]


def same(dtype: dt.DType) -> dt.DType:
    """The promoted dtype itself."""
    return dtype


def boolean(dtype: dt.DType) -> dt.DType:
    """bool, whatever the operands."""
    return dt.bool_


@dataclass(frozen=True)
class Row:
    """One elementwise function.

    Attributes
    ----------
    name
        In the namespace; unique, so that it can stand for the row in keys.
    kinds
        The dtypes it takes, a key of `TAKES`.
    result
        The result's dtype, from the operands' promoted one.
    body
        Takes JAX values of the promoted dtype, of shapes that broadcast, and gives the value.
    nin
        How many operands there are.
    summary
        What it computes, in a sentence.
    example
        An expression in the namespace `xp`, and the array it gives as NumPy prints it.
    literal
        Whether Python scalars among the operands choose an algorithm: they belong to the kernel's
        key then, and reach the body as NumPy scalars of the promoted dtype.
    flops
        Rough operations an element, for the cost model.
    arrays
        How many arrays of the result's size the compiler makes of the body's values at once.
    notes
        Further sentences of the docstring: special values, choices of this library.
    check
        Raises for operands that pass all other rules and still make no sense.
    """

    name: str
    kinds: str
    result: Rule
    body: Callable[..., Any]
    nin: int
    summary: str
    example: tuple[str, str]
    literal: bool = False
    flops: float = 1.0
    arrays: int = 1
    notes: str = ""
    check: Check | None = None

    def operand_dtype(self, operands: tuple[Any, ...]) -> dt.DType:
        """The dtype that all operands are cast to before the body.

        Raises
        ------
        TypeError
            For an operand that is neither array nor Python scalar, for no array among them, and
            for dtypes that don't promote or that the function doesn't take.
        OverflowError
            For an integer scalar outside the range of the dtype it meets.
        ValueError
            For a scalar without a meaning, such as a negative shift.
        """
        arrays = 0
        for x in operands:
            if dt.dtype_of(x) is not None:
                arrays += 1
            elif self.nin == 1 or not isinstance(x, dt.Scalar):
                wanted = "an array" if self.nin == 1 else "arrays and Python scalars"
                raise TypeError(f"{self.name} takes {wanted}, got {x!r} of type {type(x).__name__}; try asarray")
        if not arrays:
            raise TypeError(f"{self.name} needs at least one array among its operands; make one with asarray")
        try:
            dtype = dt.result_type(*operands)
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{self.name}: {error}") from None
        if dtype.kind not in TAKES[self.kinds]:
            raise TypeError(f"{self.name} takes {self.kinds} dtypes, got {dtype}; convert the operands with astype")
        if self.check is not None:
            self.check(self, operands, dtype)
        return dtype


class Unary(Protocol):
    """A function of one array."""

    __name__: str

    def __call__(self, x: Array, /) -> Array: ...


class Binary(Protocol):
    """A function of two operands, one of them an array."""

    __name__: str

    def __call__(self, x1: Operand, x2: Operand, /) -> Array: ...


class Clip(Protocol):
    """A function of an array and two optional bounds."""

    __name__: str

    def __call__(self, x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array: ...


def make_function(row: Row) -> Any:
    """The public function of a row: `Unary`, `Binary` or `Clip` by its number of operands."""
    function: Any
    if row.nin == 1:

        def unary(x: Array, /) -> Array:
            return elementwise(row, x)

        function = unary
    elif row.nin == 2:

        def binary(x1: Operand, x2: Operand, /) -> Array:
            return elementwise(row, x1, x2)

        function = binary
    else:

        def clip(x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
            dtype = row.operand_dtype((x,))
            low, high = (dt.iinfo(dtype).min, dt.iinfo(dtype).max) if dtype.kind in "iu" else (-dt.inf, dt.inf)
            return elementwise(row, x, low if min is None else min, high if max is None else max)

        function = clip
    function.__name__ = function.__qualname__ = row.name
    function.__module__ = "jaxchunk.array_api"
    function.__doc__ = _docstring(row)
    return function


_PARAMETERS = {
    1: "x\n    An array; {kinds}.",
    2: "x1, x2\n    Arrays that broadcast, or one of them a Python scalar; {kinds}.",
    3: (
        "x\n    An array; {kinds}.\n"
        "min, max\n    The bounds: arrays that broadcast with `x` and promote to its dtype, or Python scalars.\n"
        "    None, the default, for no bound."
    ),
}
_RETURNS: dict[Rule, dict[int, str]] = {
    same: {1: "of the dtype of `x`", 2: "of the dtype that the operands promote to", 3: "of the dtype of `x`"},
    boolean: dict.fromkeys((1, 2, 3), "of dtype bool"),
    dt.real_of: dict.fromkeys((1, 2, 3), "of the dtype of `x`, or of the components of a complex one"),
}


def _docstring(row: Row) -> str:
    kinds = "any dtype" if row.kinds == "any" else f"{row.kinds} dtypes"
    expression, result = row.example
    notes = f"\n\nNotes\n-----\n{row.notes}" if row.notes else ""
    return f"""{row.summary}

Parameters
----------
{_PARAMETERS[row.nin].format(kinds=kinds)}

Returns
-------
Array
    Lazy, {_RETURNS[row.result][row.nin]}, of the shape that the operands broadcast to.

Raises
------
TypeError
    For dtypes that it doesn't take or that don't promote, and for what is no array.
ValueError
    For shapes that don't broadcast.{notes}

Examples
--------
>>> import jaxchunk.array_api as xp
>>> {expression}.compute()
{result}
"""
