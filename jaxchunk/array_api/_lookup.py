"""Places in sorted arrays: how many elements come before a value, and whether it is among them.

One fold serves both. A task takes a tile of the values and a block of the sorted array, in which it
searches by halves; what blocks give is added up, or joined by "or". So neither operand is ever held
whole, and the sorted one is read once for each tile of the values.

What is compared are keys (see `_order`), integers that order as the elements do: NaN comes last and
zeros of both signs are one. A complex element has two keys, for its real and its imaginary part.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._build import DType, convert
from jaxchunk.array_api._order import encode, key_dtype
from jaxchunk.array_api._values import both, either
from jaxchunk.graph.gathers import Gather
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.node import Composite, Limits, Node, postorder
from jaxchunk.graph.primitives import Affine, Move, Sides
from jaxchunk.plan.build import is_elementwise

Values: TypeAlias = tuple[Any, ...]
Axes: TypeAlias = tuple[int, ...]
Question: TypeAlias = Literal["left", "right", "among"]

INT64, BOOL = np.dtype("int64"), np.dtype("bool")
# The share of the budget that a block of keys may take where they are kept, and its bounds in bytes.
_BLOCK_SHARE = 32
_BLOCK_BYTES = (2**16, 2**22)
_ELEMENT = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


@dataclass(frozen=True)
class Lookup:
    """A fold over blocks of a sorted array of what they tell about each of some values.

    Operands are the columns of the values' keys, then those of the sorted array's.

    Parameters
    ----------
    question
        "left": how many elements are less than the value; "right": how many are not greater;
        "among": whether one is equal.
    values, along
        The axes of the space that the values follow, and the one that the sorted array does; none
        where an index is fixed.
    columns
        How many keys an element has.
    """

    question: Question
    values: Axes
    along: Axes
    columns: int

    contracts = True
    # Keys of a block stay in the caches; the sorted array is read once for each tile of the values.
    sides = Sides(least=2**21, most=2**40, threaded=False)

    @property
    def name(self) -> str:
        return "isin" if self.question == "among" else "searchsorted"

    @property
    def follows(self) -> tuple[Axes, ...]:
        return (self.values,) * self.columns + (self.along,) * self.columns

    def moved(self, places: Mapping[int, int]) -> Lookup:
        values, along = (tuple(places[a] for a in axes if a in places) for axes in (self.values, self.along))
        return Lookup(self.question, values, along, self.columns)

    @property
    def key(self) -> Hashable:
        return (self.name, self.question, self.values, self.along, self.columns)

    def lift(self, values: Values, axes: Axes) -> Values:
        wanted, blocks = values[: self.columns], values[self.columns :]
        lines = tuple(lax.reshape(block, (block.size,)) for block in blocks)
        places = _places(lines, wanted, right=self.question == "right")
        if self.question != "among":
            return (convert(places, INT64),)
        # The first element that is not less, if there is one, is the one that may be equal.
        inside = lax.min(places, lax.full_like(places, lines[0].size - 1))
        same = [lax.eq(_element(line, inside), value) for line, value in zip(lines, wanted, strict=True)]
        return (both(*same),)

    def combine(self, first: Values, second: Values) -> Values:
        join = lax.bitwise_or if self.question == "among" else lax.add
        return (join(first[0], second[0]),)

    def identity(self, dtypes: Sequence[DType]) -> tuple[Any, ...]:
        return (0,)

    def finish(self, state: Values) -> Any:
        return state[0]

    def state_dtypes(self, dtypes: Sequence[DType]) -> tuple[DType, ...]:
        return (BOOL if self.question == "among" else INT64,)

    def empty(self, shape: tuple[int, ...], dtypes: Sequence[DType]) -> Any:
        return np.zeros(shape, self.state_dtypes(dtypes)[0])


def _element(line: Any, places: Any) -> Any:
    """The elements of a line at places within it."""
    starts = lax.expand_dims(places, (places.ndim,))
    return lax.gather(line, starts, _ELEMENT, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def _places(lines: Values, wanted: Values, right: bool) -> Any:
    """How many elements of a sorted line come before each of the wanted ones, int32: a search by halves.

    Lines and wanted ones are columns of keys. No step is done where all of the wanted ones lie on the
    same side of the line: most blocks are passed over so where values come in order themselves.
    """
    length = lines[0].size

    def before(places: Any) -> Any:
        return _precedes(tuple(_element(line, places) for line in lines), wanted, right)

    first = lax.full_like(wanted[0], 0, np.int32)
    after_all, after_first = before(lax.full_like(first, length - 1)), before(first)
    beyond = lax.reduce_and(after_all, range(after_all.ndim))
    aside = lax.bitwise_or(beyond, lax.bitwise_not(lax.reduce_or(after_first, range(after_first.ndim))))

    def halved(state: Values) -> Values:
        # The place is found among low, low + 1, …, low + left.
        low, left = state
        half = lax.div(lax.add(left, np.int32(1)), np.int32(2))
        probe = lax.add(low, lax.broadcast(lax.sub(half, np.int32(1)), low.shape))
        further = lax.add(low, lax.broadcast(half, low.shape))
        return lax.select(before(probe), further, low), lax.sub(left, half)

    low = lax.select(lax.broadcast(beyond, first.shape), lax.full_like(first, length), first)
    left = lax.select(aside, np.int32(0), np.int32(length))
    return lax.while_loop(lambda state: lax.gt(state[1], np.int32(0)), halved, (low, left))[0]


def _precedes(keys: Values, wanted: Values, or_equal: bool) -> Any:
    """Whether keys are less than the wanted ones, column by column; or as large."""
    *leading, last = zip(keys, wanted, strict=True)
    result = (lax.le if or_equal else lax.lt)(*last)
    for key, value in reversed(leading):
        result = either(lax.lt(key, value), both(lax.eq(key, value), result))
    return result


# --- nodes -------------------------------------------------------------------------------------------


def keys_of(node: Node, absent: bool = False) -> list[Node]:
    """The columns of a node's keys; with `absent`, NaN has one that no element of `keys_of(node)` has."""
    dtype = node.dtype
    if dtype.kind in "iu":
        return [node]
    parts = (lax.real, lax.imag) if dtype.kind == "c" else (lambda x: x,)
    result = key_dtype(np.dtype(f"float{dtype.itemsize * 4}") if dtype.kind == "c" else dtype)

    def column(number: int) -> Node:
        def body(x: Any) -> Any:
            keys = encode(parts[number](x))
            if absent and dtype.kind in "fc":
                keys = lax.select(lax.ne(x, x), lax.full_like(keys, np.iinfo(result).min), keys)
            return keys

        return _build.blockwise("keys", body, ("keys", dtype.str, number, absent), (node,), result)

    return [column(number) for number in range(len(parts))]


def looked_up(question: Question, wanted: Sequence[Node], columns: Sequence[Node]) -> Node:
    """What a sorted array tells about values: both are given by their columns of keys.

    The sorted one is one-dimensional; the result has the shape and the grid of the values.
    """
    lookup = Composite("lookup", ("lookup", question), lambda node, limits: _expand(question, node, limits))
    dtype = BOOL if question == "among" else INT64
    return _build.make(lookup, (*wanted, *columns), wanted[0].grid, dtype)


def _expand(question: Question, node: Node, limits: Limits) -> Node:
    count = len(node.operands) // 2
    wanted, columns = node.operands[:count], [_ready(line, limits) for line in node.operands[count:]]
    rank = node.ndim
    space = (*node.shape, columns[0].size)
    maps = [*[tuple(range(rank))] * count, *[(rank,)] * count]
    reducer = Lookup(question, tuple(range(rank)), (rank,), count)
    flops = 2.0  # an element of the space is hardly ever looked at
    folded = _build.fold(reducer, (*wanted, *columns), (rank,), node.dtype, maps=maps, space=space, flops=flops)
    return _views.rechunk(folded, node.grid)


def _ready(line: Node, limits: Limits) -> Node:
    """A line of keys that can be read again and again: what is put together by data is so once, and kept."""
    if not _gathered(line):
        return line
    low, high = _BLOCK_BYTES
    nbytes = max(low, min(high, limits.budget // _BLOCK_SHARE))
    grid = (Axis.regular(line.size, min(line.size, nbytes // line.dtype.itemsize)),)
    return _build.made("sorted keys", _views.rechunk(line, grid))


def _gathered(node: Node) -> bool:
    """Whether reading a node takes a gather."""

    def made(below: Node) -> bool:
        return below.value is not None or not (is_elementwise(below) or isinstance(below.op, Affine | Move))

    return any(isinstance(below.op, Gather) and below.value is None for below in postorder([node], stop=made))
