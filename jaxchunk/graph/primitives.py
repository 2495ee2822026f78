"""The primitives every operation comes down to: blockwise, rechunk, and arrays that exist.

*Blockwise* is a body over an index space; with a reducer it drops axes of that space, with a
scanner it carries a state along one. *Rechunk* moves data and computes nothing: :class:`Affine`
where each axis of the operand is read at offset + step × index, :class:`Concat` and
:class:`Reshape` where the result is pieced together. *Source*, *Const* and *Iota* are leaves.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from jaxchunk.graph.grid import Box
from jaxchunk.graph.node import Readable

Values: TypeAlias = tuple[Any, ...]


class AxisMap(NamedTuple):
    """Where an operand's axis is read: offset + step × (index along `axis`); at offset if axis is None."""

    axis: int | None
    offset: int = 0
    step: int = 1


def compose(inner: tuple[AxisMap, ...], outer: tuple[AxisMap, ...]) -> tuple[AxisMap, ...]:
    """The maps of reading through `outer` what is read through `inner`."""
    composed = []
    for axis, offset, step in inner:
        if axis is None:
            composed.append(AxisMap(None, offset))
        else:
            a, o, s = outer[axis]
            composed.append(AxisMap(a, offset + step * o, step * s if a is not None else 1))
    return tuple(composed)


class Sides(NamedTuple):
    """How long a contraction's tiles are worth making along an axis.

    Attributes
    ----------
    least
        Shorter blocks are joined to it.
    most
        Where an operand is read again for each tile of an axis: longer tiles make nothing faster.
    threaded
        Whether the kernel takes all cores itself.
    """

    least: int
    most: int
    threaded: bool


class Reducer(Protocol):
    """A fold over dropped axes. States are tuples of arrays of the space's rank, dropped axes of size 1.

    `lift` reduces a sub-tile to a state along the given axes, `combine` joins two states (it is
    associative, and doesn't depend on which of the two comes first in the array), `identity` is a
    scalar per state array that `combine` passes over, `finish` makes the result of a state.
    `contracts`: operands follow some of the axes only, those in `follows`, and `lift` is a
    contraction of them, on tiles of the lengths in `sides`.
    """

    @property
    def contracts(self) -> bool: ...
    @property
    def follows(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def sides(self) -> Sides | None: ...
    def moved(self, places: Mapping[int, int]) -> Reducer:
        """The same fold where axes have other numbers."""
        ...

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> Hashable: ...
    def lift(self, values: Values, axes: tuple[int, ...]) -> Values: ...
    def combine(self, first: Values, second: Values) -> Values: ...
    def identity(self, dtypes: Sequence[np.dtype[Any]]) -> tuple[Any, ...]: ...
    def finish(self, state: Values) -> Any: ...
    def state_dtypes(self, dtypes: Sequence[np.dtype[Any]]) -> tuple[np.dtype[Any], ...]: ...
    def empty(self, shape: tuple[int, ...], dtypes: Sequence[np.dtype[Any]]) -> Any:
        """The result (a NumPy array) over no elements at all; ValueError where there is none."""
        ...


class Scanner(Protocol):
    """A running fold along one axis: `scan` maps (carry, block) to (carry, block of results)."""

    @property
    def key(self) -> Hashable: ...
    def start(self, dtype: np.dtype[Any]) -> Any: ...
    def scan(self, carry: Any, value: Any, axis: int) -> tuple[Any, Any]: ...


class Work(NamedTuple):
    """One of JAX's primitives in a body, and the bytes that one call of the library that does it works on.

    None stands for the largest of the body's operands and result on a tile.
    """

    name: str
    nbytes: int | None = None


@dataclass(frozen=True, eq=False)
class Blockwise:
    """A body over an index space.

    Parameters
    ----------
    name
        For messages and `explain()`.
    body
        Takes one value per operand, each of the space's rank (size 1 on axes that it doesn't
        follow), and gives one value. None passes the operands on to the reducer or scanner.
    body_key
        Stands for the body and all its parameters in keys; None where nothing can (never shared).
    space
        The index space's sizes.
    maps
        Per operand and operand axis: the axis of the space that it follows, or None (size 1).
    reducer, dropped
        The fold, and the axes of the space that it drops.
    scanner, ordered
        The running fold, and the axis along which blocks must be done in order.
    whole
        Axes that must be in one piece.
    exact
        Whether a task is exactly one block of the first operand's grid, as for `map_blocks`.
    literal
        Whether scalar operands choose an algorithm, so that they belong to the key.
    flops
        Rough operations an element of the space, for the cost model.
    body_dtype
        What the body gives, where that isn't the result's dtype (a fold's).
    primitives
        What a body that wants its axes whole is made of: libraries take memory that the compiler
        doesn't know of.
    arrays
        How many arrays of the result's size the compiler makes of its values at once, where it can't
        compute all of them where they are used.
    body_bytes
        Of a body that wants its axes whole, the bytes of its own values that live at once in its largest block; 0 where
        they are few.
    """

    name: str
    body: Callable[..., Any] | None
    body_key: Hashable
    space: tuple[int, ...]
    maps: tuple[tuple[int | None, ...], ...]
    reducer: Reducer | None = None
    dropped: tuple[int, ...] = ()
    scanner: Scanner | None = None
    ordered: int | None = None
    whole: tuple[int, ...] = ()
    exact: bool = False
    literal: bool = False
    flops: float = 1.0
    body_dtype: np.dtype[Any] | None = None
    primitives: tuple[Work, ...] = ()
    arrays: int = 1
    body_bytes: int = 0

    @property
    def key(self) -> Hashable:
        return (
            "blockwise",
            self.name,
            self.body_key if self.body is None or self.body_key is not None else id(self),
            self.maps,
            self.reducer.key if self.reducer else None,
            self.dropped,
            self.scanner.key if self.scanner else None,
            self.ordered,
            self.whole,
            self.exact,
        )

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(a for a in range(len(self.space)) if a not in self.dropped)


@dataclass(frozen=True, eq=False)
class Affine:
    """A view: each axis of the operand is read at offset + step × an output axis's index.

    Slices, steps, flips, permutations, new and broadcast axes, fixed indices; and, with the
    identity, a change of chunks alone.
    """

    name: str
    maps: tuple[AxisMap, ...]

    @property
    def key(self) -> Hashable:
        return ("affine", self.maps)


class Move(ABC):
    """A rechunk: each box of the result is put together from regions of the operands, and nothing is computed.

    Its result is never made for its own sake: whoever uses it reads through it.
    """

    name: str

    @property
    @abstractmethod
    def key(self) -> Hashable: ...


class Piece(NamedTuple):
    """A region of one operand that lands in a region of the box that was asked for.

    `source` is absolute in the operand, `target` relative to the box. Both hold the same elements
    in the same (row-major) order, also where their shapes differ.
    """

    operand: int
    source: Box
    target: Box


@dataclass(frozen=True, eq=False)
class Concat(Move):
    """The operands one after another along an axis."""

    axis: int
    sizes: tuple[int, ...]
    name: str = "concat"

    @property
    def key(self) -> Hashable:
        return ("concat", self.axis, self.sizes)

    def pieces(self, box: Box) -> Iterator[Piece]:
        start, stop = box[self.axis]
        at = 0
        for operand, size in enumerate(self.sizes):
            lo, hi = max(start, at), min(stop, at + size)
            if lo < hi:
                source = (*box[: self.axis], (lo - at, hi - at), *box[self.axis + 1 :])
                target = tuple((0, b - a) for a, b in box)
                yield Piece(operand, source, (*target[: self.axis], (lo - start, hi - start), *target[self.axis + 1 :]))
            at += size


@dataclass(frozen=True, eq=False)
class Reshape(Move):
    """The operand's elements in row-major order under another shape."""

    old: tuple[int, ...]
    new: tuple[int, ...]
    name: str = "reshape"

    @property
    def key(self) -> Hashable:
        return ("reshape", self.old, self.new)

    def groups(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Axes of old and new that hold the same elements: the finest split there is."""
        groups, i, j = [], 0, 0
        while i < len(self.old) or j < len(self.new):
            i0, j0 = i, j
            p = self.old[i] if i < len(self.old) else 1
            q = self.new[j] if j < len(self.new) else 1
            i, j = min(i + 1, len(self.old)), min(j + 1, len(self.new))
            while p != q:
                if p < q:
                    p *= self.old[i]
                    i += 1
                else:
                    q *= self.new[j]
                    j += 1
            groups.append((tuple(range(i0, i)), tuple(range(j0, j))))
        return groups

    def pieces(self, box: Box) -> Iterator[Piece]:
        parts = [
            list(_group_pieces([self.old[i] for i in olds], [self.new[j] for j in news], [box[j] for j in news]))
            for olds, news in self.groups()
        ]

        def product(k: int, source: Box, target: Box) -> Iterator[Piece]:
            if k == len(parts):
                yield Piece(0, source, target)
                return
            for src, dst in parts[k]:
                yield from product(k + 1, source + src, target + dst)

        yield from product(0, (), ())


def _group_pieces(old: Sequence[int], new: Sequence[int], box: Sequence[tuple[int, int]]) -> Iterator[tuple[Box, Box]]:
    """The pieces of one group of axes: flat runs of the box, each cut into boxes of the old axes."""
    if tuple(old) == tuple(new):
        yield tuple(box), tuple((0, b - a) for a, b in box)
        return
    # The flat index runs on without a gap over the last axes that the box holds whole, and over a
    # range of the axis before them.
    run = len(new)
    while run > 0 and box[run - 1] == (0, new[run - 1]):
        run -= 1
    run = max(run - 1, 0)
    inner = math.prod(new[run + 1 :])
    for outer in np.ndindex(*(b - a for a, b in box[:run])):
        flat = 0
        for n, (a, _), i in zip(new[:run], box[:run], outer, strict=True):
            flat = flat * n + a + i
        if run < len(new):
            lo, hi = box[run]
            first = (flat * new[run] + lo) * inner
            count = (hi - lo) * inner
        else:
            first, count = flat, 1
        fixed = tuple((i, i + 1) for i in outer)
        for start, stop, source in _flat_boxes(old, first, first + count):
            yield from _align(fixed, new[run:], first, start, stop, source, old)


def _align(
    fixed: Box, tail: Sequence[int], first: int, start: int, stop: int, source: Box, old: Sequence[int]
) -> Iterator[tuple[Box, Box]]:
    """Cut one flat run so that it is a box of the new axes too, and pair the two."""
    if not tail:
        yield source, fixed
        return
    for lo, hi, target in _flat_boxes((1 << 62, *tail[1:]), start - first, stop - first):
        if (lo, hi) == (start - first, stop - first):
            yield source, fixed + target
        else:
            for _, _, part in _flat_boxes(old, first + lo, first + hi):
                yield from _align(fixed, tail, first, *_flat_span(old, part), part, old)


def _flat_span(shape: Sequence[int], box: Box) -> tuple[int, int]:
    first, last = 0, 0
    for n, (a, b) in zip(shape, box, strict=True):
        first, last = first * n + a, last * n + b - 1
    return first, last + 1


def _flat_boxes(shape: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, Box]]:
    """Cut the flat range [start, stop) of an array into boxes, in order: at most 2 × axes − 1 of them."""
    if start >= stop:
        return
    if not shape:
        yield start, stop, ()
        return
    inner = math.prod(shape[1:])

    def within(row: int, lo: int, hi: int) -> Iterator[tuple[int, int, Box]]:
        base = row * inner
        for a, b, box in _flat_boxes(shape[1:], lo - base, hi - base):
            yield a + base, b + base, ((row, row + 1), *box)

    first, last = start // inner, stop // inner
    if start % inner or first == last:
        end = min(stop, (first + 1) * inner)
        yield from within(first, start, end)
        first += 1
        if end == stop:
            return
    if first < last:
        yield first * inner, last * inner, ((first, last), *((0, n) for n in shape[1:]))
    yield from within(last, last * inner, stop)


Check: TypeAlias = Callable[[np.ndarray[Any, Any], Box], None]
"""Raises where a tile of evidence, at a box of the whole, shows a fault."""


@dataclass(frozen=True, eq=False)
class Guard:
    """The first operand itself; a run that needs it has `check` look at every tile of the second one.

    So a fault that only values can show, such as a singular matrix, is raised by the run that meets
    it. The check's key stands for it: one check of one array is done once.
    """

    check: Check
    check_key: Hashable
    name: str = "guard"

    @property
    def key(self) -> Hashable:
        return ("guard", self.check_key)


@dataclass(frozen=True, eq=False)
class Source:
    """An array that exists. `token` is fresh for each source made, of any kind: lookalikes are never one."""

    array: Readable
    name: str = "source"
    token: int = field(default_factory=itertools.count().__next__, init=False)

    @property
    def key(self) -> Hashable:
        return ("source", self.token)


@dataclass(frozen=True, eq=False)
class Const:
    """A scalar, by type and bits."""

    value: np.generic
    name: str = "constant"

    @property
    def key(self) -> Hashable:
        return ("const", self.value.dtype.str, self.value.tobytes())


@dataclass(frozen=True, eq=False)
class Iota:
    """0, 1, 2, … along one axis, int64: what knows its own position (arange, eye, tril) is made of it."""

    name: str = "iota"

    @property
    def key(self) -> Hashable:
        return ("iota",)
