"""Unique elements: sorted, and cut where neighbours differ.

How many there are is counted when a shape is first needed. Equal are elements that compare equal: zeros
of both signs are one, every NaN is one of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import lax

from jaxchunk.array_api import _build, _gather, _sorting, _views
from jaxchunk.array_api._arguments import need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._order import encode
from jaxchunk.array_api._pending import Found, Pending
from jaxchunk.array_api._scanners import CUMULATIVE_SUM
from jaxchunk.array_api._values import aligned, either, is_kind
from jaxchunk.graph.grid import normalize_chunks
from jaxchunk.graph.node import Node

INT64, BOOL = _gather.INT64, _gather.BOOL


def _differ(first: Any, second: Any) -> Any:
    """Whether neighbours are two elements: by their keys, since XLA takes numbers below the normal ones for 0."""
    if is_kind(first, "c"):
        return either(_differ(lax.real(first), lax.real(second)), _differ(lax.imag(first), lax.imag(second)))
    return either(lax.ne(encode(first), encode(second)), lax.ne(first, first))


class UniqueAllResult(NamedTuple):
    """What `unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCountsResult(NamedTuple):
    """What `unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverseResult(NamedTuple):
    """What `unique_inverse` gives."""

    values: Array
    inverse_indices: Array


class _Unique:
    """The elements of an array in order, and where new ones begin among them."""

    def __init__(self, name: str, x: Array) -> None:
        need_array(name, x)
        self.shape, self.device = x.shape, x._node.device
        self.flat = _gather.flattened(x._node)
        self.size = self.flat.size
        self.sorted = self._ordered(positions=False)
        last = max(0, self.size - 1)
        pairs = _views.cut(self.sorted, 0, 0, last), _views.cut(self.sorted, 0, self.size - last, self.size)
        self.changes = _build.blockwise("changes", _differ, ("changes", x.dtype.str), pairs, BOOL)
        self.found = Found(self.changes)

    def _ordered(self, positions: bool) -> Node:
        dtype = self.flat.dtype
        if self.size == 0:
            return _build.cast(self.flat, INT64) if positions else self.flat
        if dtype.kind == "c":
            rows = _sorting.complex_positions(dtype) if positions else _sorting.complex_of(dtype)
        elif positions:
            rows = _sorting.positions_of(dtype, False, self.size)
        else:
            rows = _sorting.values_of(dtype, False)
        return _sorting.ordered([self.flat], 0, rows)

    def pending(self, dtype: _build.DType, make: Callable[[], Node]) -> Array:
        return Array(Pending(dtype, (None,), self.device, make))

    def starts(self) -> Node:
        """Where each unique element begins among the sorted ones; counts them."""
        if self.size == 0:
            return _numbers(0, 0)
        after = self.found.positions() if self.size > 1 else _numbers(0, 0)
        first = _numbers(0, 1)
        if after.size == 0:
            return first
        known = _gather.known_values(after)
        if known is not None:
            return _views.concat([first, _gather.in_memory(known + 1)], 0)
        return _views.concat([first, _shifted(after, 1)], 0)

    def values(self) -> Array:
        dtype = self.flat.dtype
        return self.pending(dtype, lambda: _gather.take(self.sorted, self.starts(), 0))

    def indices(self) -> Array:
        return self.pending(INT64, lambda: _gather.take(self._ordered(positions=True), self.starts(), 0))

    def counts(self) -> Array:
        def make() -> Node:
            starts = self.starts()
            ends = _views.concat([_views.cut(starts, 0, min(1, starts.size), starts.size), _numbers(self.size, 1)], 0)
            if starts.size == 0:
                return starts
            return _build.blockwise("counts", aligned(lax.sub), ("counts",), (ends, starts), INT64)

        return self.pending(INT64, make)

    def inverse(self) -> Array:
        """For each element of the array, which of the unique ones it is."""
        if self.size < 2:
            return Array(_build.filled(0, INT64, normalize_chunks("auto", self.shape, 8)))
        ranks = _build.scan(CUMULATIVE_SUM, "cumulative_sum", _build.cast(self.changes, INT64), 0)
        ranks = _views.rechunk(_views.concat([_numbers(0, 1), ranks], 0), self.sorted.grid)
        placed = _sorting.ordered([self._ordered(positions=True), ranks], 0, _sorting.placed())
        return Array(_views.reshape(placed, self.shape))


def _numbers(value: int, count: int) -> Node:
    return _build.filled(value, INT64, normalize_chunks(-1, (count,), 8))


def _shifted(node: Node, by: int) -> Node:
    return _build.blockwise("shift", lambda i: lax.add(i, lax.full_like(i, by)), ("shift", by), (node,), INT64)


def unique_all(x: Array, /) -> UniqueAllResult:
    """Unique elements, where each is first, which of them each element is, and how often each is there.

    Parameters
    ----------
    x
        An array, looked at as a flat one.

    Returns
    -------
    UniqueAllResult
        Lazy arrays `values` (in order), `indices` (of first ones, int64), `inverse_indices` (of the shape of
        `x`, int64) and `counts` (int64). How many there are is counted when it is first asked for.

    Notes
    -----
    Each of the four is made from one or two sorts of `x`, out of core where it is large.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> found = xp.unique_all(xp.asarray([7, 3, 7]))
    >>> found.values.compute(), found.inverse_indices.compute()
    (array([3, 7]), array([1, 0, 1]))
    """
    found = _Unique("unique_all", x)
    return UniqueAllResult(found.values(), found.indices(), found.inverse(), found.counts())


def unique_counts(x: Array, /) -> UniqueCountsResult:
    """Unique elements, and how often each is there; see `unique_all`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.unique_counts(xp.asarray([7, 3, 7])).counts.compute()
    array([1, 2])
    """
    found = _Unique("unique_counts", x)
    return UniqueCountsResult(found.values(), found.counts())


def unique_inverse(x: Array, /) -> UniqueInverseResult:
    """Unique elements, and which of them each element is; see `unique_all`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.unique_inverse(xp.asarray([7, 3, 7])).inverse_indices.compute()
    array([1, 0, 1])
    """
    found = _Unique("unique_inverse", x)
    return UniqueInverseResult(found.values(), found.inverse())


def unique_values(x: Array, /) -> Array:
    """Unique elements, in order; see `unique_all`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> int(xp.unique_values(xp.asarray([7, 3, 7])).shape[0])
    2
    """
    return _Unique("unique_values", x).values()
