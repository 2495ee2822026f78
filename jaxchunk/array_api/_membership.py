"""searchsorted and isin: where values are in a sorted array, and whether they are in an array at all."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Literal

from jax import lax

from jaxchunk.array_api import _build, _gather, _sorting
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api import _reducers as reducers
from jaxchunk.array_api._apply import as_node, refuse_foreign
from jaxchunk.array_api._arguments import need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._lookup import keys_of, looked_up
from jaxchunk.array_api._values import aligned, both
from jaxchunk.graph.node import Node

# So few elements are compared with each value: sorting and searching them takes longer.
FEW = 32

_eq = aligned(lax.eq)


def searchsorted(
    x1: Array,
    x2: Array | int | float,
    /,
    *,
    side: Literal["left", "right"] = "left",
    sorter: Array | None = None,
) -> Array:
    """Where elements would have to be put into a sorted array for it to stay sorted.

    Parameters
    ----------
    x1
        A one-dimensional array of a real dtype, or bool, in ascending order.
    x2
        What is looked for: an array, or a Python scalar. It promotes with `x1`.
    side
        "left" for the place before the elements of `x1` that are equal, "right" for the one behind them.
    sorter
        Integer positions at which `x1` is in ascending order, such as `argsort(x1)`, where `x1` itself
        isn't. As many as `x1` has elements.

    Returns
    -------
    Array
        Lazy, int64, of the shape of `x2`: 0 for what goes before all of `x1`, its length for what goes
        behind. NaN comes last and equals itself, and zeros of both signs are equal, as for `sort`.

    Raises
    ------
    TypeError
        For complex numbers, for dtypes that don't promote, and for what is no array.
    ValueError
        For an `x1` that isn't one-dimensional, a `sorter` of another shape, or another `side`.
    IndexError
        For a `sorter` that points outside of `x1`: at once where it is in memory, else by the run.

    Notes
    -----
    Neither operand is ever held whole: tiles of `x2` meet blocks of `x1`, which is read once for each such
    tile. That `x1` is sorted isn't checked; where it isn't, results have no meaning.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> x = xp.asarray([1.0, 2.0, 2.0, 5.0])
    >>> xp.searchsorted(x, xp.asarray([[2.0, 3.0], [0.0, 9.0]])).compute()
    array([[1, 3],
           [0, 4]])
    >>> int(xp.searchsorted(x, 2, side="right"))
    3
    """
    need_array("searchsorted", x1, "x1")
    refuse_foreign("searchsorted", (x2,))
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side={side!r}; it is 'left' or 'right'")
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: x1 of shape {x1.shape} has {x1.ndim} axes; it takes one-dimensional ones")
    dtype = _common("searchsorted", x1, x2)
    if dtype.kind == "c":
        raise TypeError("searchsorted: complex numbers have no order; take real, imag or abs of them first")
    line = x1._node
    if sorter is not None:
        line = _gather.take(line, _sorting_places(sorter, x1), 0)
    wanted, columns = (keys_of(_build.cast(node, dtype)) for node in (as_node(x2, dtype), line))
    return Array(looked_up(side, wanted, columns))


def _sorting_places(sorter: Any, x1: Array) -> Node:
    need_array("searchsorted", sorter, "sorter")
    if sorter.dtype.kind not in "iu":
        raise TypeError(f"searchsorted: sorter has dtype {sorter.dtype}; it takes integers, such as argsort gives")
    if sorter.shape != x1.shape:
        raise ValueError(f"searchsorted: sorter has shape {sorter.shape} and x1 {x1.shape}; they must agree")
    return _gather.within(sorter._node, x1.shape[0], "searchsorted")


def isin(x1: Array | int, x2: Array | int, /, *, invert: bool = False) -> Array:
    """Whether each element of an array is an element of another one.

    Parameters
    ----------
    x1
        What is looked for: an array, or a Python scalar.
    x2
        What it is looked for in: an array of any shape, or a Python scalar. One of the two is an array, and
        they promote.
    invert
        Whether to tell of each element that it is *not* there.

    Returns
    -------
    Array
        Lazy, bool, of the shape of `x1`. Zeros of both signs are equal, and NaN equals nothing; complex
        numbers are equal where both parts are.

    Raises
    ------
    TypeError
        For dtypes that don't promote, no array among the two, and what is neither array nor scalar.

    Notes
    -----
    `x2` is sorted first, out of core where it is large, and read once for each tile of `x1`; if it has but a
    few elements they are compared one by one.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.isin(xp.asarray([[1, 2], [3, 4]]), xp.asarray([4, 2, 2])).compute()
    array([[False,  True],
           [False,  True]])
    """
    refuse_foreign("isin", (x1, x2))
    dtype = _common("isin", x1, x2)
    wanted, within = (_build.cast(as_node(x, dtype), dtype) for x in (x1, x2))
    flat = _gather.flattened(within)
    if flat.size <= FEW:
        found = _compared(keys_of(wanted, absent=True), keys_of(flat))
    else:
        rows = _sorting.complex_of(dtype) if dtype.kind == "c" else _sorting.values_of(dtype, False)
        found = looked_up("among", keys_of(wanted, absent=True), keys_of(_sorting.ordered([flat], 0, rows)))
    if operator.truth(invert):
        found = _build.blockwise("not in", lax.bitwise_not, ("not in",), (found,), dt.bool_)
    return Array(found)


def _common(name: str, x1: Any, x2: Any) -> dt.DType:
    """The dtype in which two operands are compared."""
    if all(dt.dtype_of(x) is None for x in (x1, x2)):
        raise TypeError(f"{name}: x1 and x2 are both no arrays; make an array of one with asarray")
    try:
        return dt.result_type(x1, x2)
    except (TypeError, OverflowError) as error:
        raise type(error)(f"{name}: {error}") from None


def _compared(wanted: Sequence[Node], columns: Sequence[Node]) -> Node:
    """Whether keys are among a few others: all pairs are compared."""
    rank, count = wanted[0].ndim, len(wanted)

    def body(*keys: Any) -> Any:
        return both(*(_eq(a, b) for a, b in zip(keys[:count], keys[count:], strict=True)))

    return _build.fold(
        reducers.ANY,
        (*wanted, *columns),
        (rank,),
        dt.bool_,
        body=body,
        key=("isin", count, wanted[0].dtype.str),
        bodied=dt.bool_,
        maps=[*[tuple(range(rank))] * count, *[(rank,)] * count],
        space=(*wanted[0].shape, columns[0].size),
    )
