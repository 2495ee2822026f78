"""Indexing with arrays, and assignment at any index.

A key is taken apart into a basic part, which is a view, and integer arrays, which are one flat
position along the axes that they index together. A mask stands for the positions at which it is
true, which nobody needs to know until the shape is asked for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _gather, _views
from jaxchunk.array_api._apply import Operand
from jaxchunk.array_api._build import Shape
from jaxchunk.array_api._indexing import basic_index, expanded, region_of
from jaxchunk.array_api._pending import Found, Pending, Selected
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.gathers import Overlay
from jaxchunk.graph.grid import normalize_chunks
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Const

_select = aligned(lax.select)
INT64, BOOL = _gather.INT64, _gather.BOOL


def index(node: Node, key: Any) -> Node | Pending:
    """What x[key] holds.

    Raises
    ------
    IndexError
        For too many indices, masks of another shape, float arrays, and integers that are out of bounds.
    TypeError
        For what is no index at all.
    """
    key = as_key(node, key)
    if not any(_is_array(entry) for entry in key):
        return basic_index(node, key)
    mask = _only_mask(key)
    if mask is not None:
        return _masked(node, key, mask)
    parts = _take_apart(node, _unmasked(node, key))
    return parts.result(_gather.take(parts.rows(), parts.flat(), parts.at))


def as_key(node: Node, key: Any) -> tuple[Any, ...]:
    """A key for a node as a tuple: its arrays as nodes, its masks of the shape of the axes that they index."""
    entries = tuple(_as_entry(entry) for entry in (key if isinstance(key, tuple) else (key,)))
    if not any(_is_mask(entry) for entry in entries):
        return entries
    placed = zip(_places(node, entries), entries, strict=True)
    return tuple(_fitting_mask(node, entry, at) if _is_mask(entry) else entry for at, entry in placed)


def _as_entry(entry: Any) -> Any:
    if isinstance(entry, list):
        entry = np.asarray(entry, None if entry else np.int64)
    if isinstance(entry, np.ndarray) and entry.ndim:
        entry = _gather.in_memory(np.array(entry))
    elif isinstance(entry, Operand) and (entry._held.ndim or entry.dtype == BOOL):
        entry = entry._node
    elif isinstance(entry, bool | np.bool_) or (isinstance(entry, np.ndarray) and entry.dtype == BOOL):
        entry = _build.constant(bool(entry), BOOL)
    if isinstance(entry, Node) and entry.dtype.kind not in "biu":
        raise IndexError(f"arrays as indices are of integers or bool, not {entry.dtype}")
    return entry


def _is_array(entry: Any) -> bool:
    return isinstance(entry, Node)


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, Node) and entry.dtype == BOOL


def _only_mask(key: tuple[Any, ...]) -> Node | None:
    """The mask of a key that has nothing else but whole axes beside it; None for any other key."""
    masks = [entry for entry in key if _is_mask(entry)]
    others = [e for e in key if not _is_mask(e) and e is not Ellipsis and e != slice(None)]
    return masks[0] if len(masks) == 1 and not others else None


# --- masks -----------------------------------------------------------------------------------------


def _masked(node: Node, key: tuple[Any, ...], mask: Node) -> Pending:
    """Elements where a mask over some axes is true; in row-major order of these axes."""
    at = _axis_of_mask(node, key, mask)
    lead, rest = node.shape[:at], node.shape[at + mask.ndim :]
    values = _merged_axes(node, at, mask.ndim)
    found = Found(_gather.flattened(mask))
    if at == 0:
        return Selected(values, found)
    shape = (*lead, None, *rest)
    return Pending(node.dtype, shape, node.device, lambda: _gather.take(values, found.positions(), at))


def _axis_of_mask(node: Node, key: tuple[Any, ...], mask: Node) -> int:
    """The first axis that the only array of a key, a mask, indexes."""
    return next(at for at, entry in zip(_places(node, key), key, strict=True) if entry is mask)


def _places(node: Node, key: tuple[Any, ...]) -> list[int]:
    """The first axis that each entry of a key indexes."""
    sizes = [entry.ndim if _is_mask(entry) else int(entry is not None and entry is not Ellipsis) for entry in key]
    spare = node.ndim - sum(sizes)
    if spare < 0:
        raise IndexError(f"too many indices: {sum(sizes)} for an array with {node.ndim} axes (shape {node.shape})")
    if sum(entry is Ellipsis for entry in key) > 1:
        raise IndexError("an index can have only one ellipsis (...)")
    places, at = [], 0
    for entry, size in zip(key, sizes, strict=True):
        places.append(at)
        at += spare if entry is Ellipsis else size
    return places


def _fitting_mask(node: Node, mask: Node, at: int) -> Node:
    """A mask for axes from `at` on; one that has no elements where these have some selects nothing of them."""
    shape = node.shape[at : at + mask.ndim]
    if mask.shape == shape:
        return mask
    if any(own not in (n, 0) for own, n in zip(mask.shape, shape, strict=True)):
        raise IndexError(
            f"a mask of shape {mask.shape} indexes axes of shape {shape} "
            f"of an array of shape {node.shape}: they have to be the same"
        )
    return _build.filled(False, BOOL, normalize_chunks("auto", shape, BOOL.itemsize))


def _merged_axes(node: Node, at: int, count: int) -> Node:
    """The node with `count` axes from `at` on as one; a new one of size 1 where there are none."""
    if count == 1:
        return node
    merged = math.prod(node.shape[at : at + count])
    return _views.reshape(node, (*node.shape[:at], merged, *node.shape[at + count :]))


# --- integer arrays --------------------------------------------------------------------------------


class Parts(NamedTuple):
    """An index with integer arrays.

    Attributes
    ----------
    base
        The array after the basic part of the key.
    axes
        Its axes that the arrays index.
    arrays
        What indexes them: not negative, of one shape.
    at
        Where the axes of the arrays' shape go in the result.
    """

    base: Node
    axes: tuple[int, ...]
    arrays: tuple[Node, ...]
    at: int

    @property
    def order(self) -> list[int]:
        """The base's axes with the indexed ones together at `at`."""
        others = [a for a in range(self.base.ndim) if a not in self.axes]
        return [*others[: self.at], *self.axes, *others[self.at :]]

    def rows(self) -> Node:
        """The base with the indexed axes as one, at `at`."""
        return _merged_axes(_views.permute(self.base, self.order), self.at, len(self.axes))

    def flat(self) -> Node:
        """The positions along that axis, one-dimensional."""
        lengths = [self.base.shape[a] for a in self.axes]
        strides = [math.prod(lengths[i + 1 :]) for i in range(len(lengths))]
        known = [_gather.known_values(node) for node in self.arrays]
        if all(values is not None for values in known):
            total = sum(v * s for v, s in zip(known, strides, strict=True) if v is not None)
            return _gather.in_memory(np.reshape(np.asarray(total, INT64), -1))

        if len(self.arrays) == 1:
            return _gather.flattened(self.arrays[0])

        def body(*values: Any) -> Any:
            terms = [lax.mul(v, lax.full_like(v, s)) for v, s in zip(values, strides, strict=True)]
            total = terms[0]
            for term in terms[1:]:
                total = lax.add(total, term)
            return total

        return _gather.flattened(_build.blockwise("index", body, ("index", *strides), self.arrays, INT64))

    def result(self, taken: Node) -> Node:
        """What was taken along the one axis, with the arrays' shape in its place."""
        shape = (*taken.shape[: self.at], *self.arrays[0].shape, *taken.shape[self.at + 1 :])
        return _views.reshape(taken, shape)

    def restored(self, rows: Node) -> Node:
        """The reverse of `rows`."""
        order = self.order
        apart = _views.reshape(rows, tuple(self.base.shape[a] for a in order))
        return _views.permute(apart, [order.index(a) for a in range(self.base.ndim)])


def _take_apart(node: Node, key: tuple[Any, ...]) -> Parts:
    entries = expanded(key, node)
    # Where arrays index, single integers are arrays, too.
    advanced = [i for i, entry in enumerate(entries) if entry is not None and not isinstance(entry, slice)]
    basic = tuple(slice(None) if i in advanced else entry for i, entry in enumerate(entries))
    lengths = dict(zip((i for i, e in enumerate(entries) if e is not None), node.shape, strict=True))
    arrays = []
    for i in advanced:
        entry = entries[i]
        wanted = entry if isinstance(entry, Node) else _gather.in_memory(np.asarray(operator.index(entry)))
        arrays.append(_gather.within(wanted, lengths[i], "the index"))
    together = advanced == list(range(advanced[0], advanced[-1] + 1))
    at = advanced[0] if together else 0
    return Parts(basic_index(node, basic), tuple(advanced), _broadcast(arrays), at)


def _unmasked(node: Node, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key for a node with its masks as positions."""
    _places(node, key)
    if any(_is_mask(entry) and entry.ndim == 0 for entry in key):
        raise IndexError("a mask without axes can't be used beside other indices: index by it first")
    return tuple(part for entry in key for part in (_positions_of(entry) if _is_mask(entry) else (entry,)))


def _positions_of(mask: Node) -> list[Node]:
    """A mask as one array of positions an axis; counted at once."""
    flat = Found(_gather.flattened(mask)).positions()
    return unraveled(flat, mask.shape)


def unraveled(flat: Node, shape: Shape) -> list[Node]:
    """Row-major positions in an array of a shape, as one array an axis."""
    if len(shape) == 1:
        return [flat]
    nodes = []
    for axis, n in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        nodes.append(_build.blockwise("unravel", _coordinate(stride, n), ("unravel", stride, n), (flat,), INT64))
    return nodes


def _coordinate(stride: int, length: int) -> Any:
    def body(i: Any) -> Any:
        return lax.rem(lax.div(i, lax.full_like(i, max(1, stride))), lax.full_like(i, max(1, length)))

    return body


def _broadcast(arrays: Sequence[Node]) -> tuple[Node, ...]:
    try:
        shape = _build.broadcast_shape(node.shape for node in arrays)
    except ValueError as error:
        raise IndexError(f"arrays as indices: {error}") from None
    known = [_gather.known_values(node) for node in arrays]
    if all(values is not None for values in known) and math.prod(shape) <= _gather.FEW:
        return tuple(_gather.in_memory(np.broadcast_to(v, shape)) for v in known if v is not None)
    return tuple(_views.broadcast_to(node, shape) for node in arrays)


# --- assignment ------------------------------------------------------------------------------------


def assigned(node: Node, key: Any, value: Node) -> Node:
    """The node with elements at a key replaced; `value`, of its dtype, broadcasts to what is there.

    Raises
    ------
    IndexError
        As for `index`.
    ValueError
        Where the value doesn't broadcast to what the key selects.
    """
    key = as_key(node, key)
    if not any(_is_array(entry) for entry in key):
        return _overlaid(node, key, value)
    mask = _only_mask(key)
    if mask is not None:
        at = _axis_of_mask(node, key, mask)
        if value.ndim == 0:
            return _where(node, mask, value, at)
        rows, flat = _merged_axes(node, at, mask.ndim), Found(_gather.flattened(mask)).positions()
        shape = (*rows.shape[:at], flat.size, *rows.shape[at + 1 :])
        new = _gather.put(rows, flat, _fitting(value, shape), at) if flat.size else rows
        return _views.reshape(new, node.shape)
    key = _unmasked(node, key)
    parts = _take_apart(node, key)
    rows, flat = parts.rows(), parts.flat()
    taken = (*rows.shape[: parts.at], *parts.arrays[0].shape, *rows.shape[parts.at + 1 :])
    values = _views.reshape(_fitting(value, taken), (*rows.shape[: parts.at], flat.size, *rows.shape[parts.at + 1 :]))
    new = parts.restored(_gather.put(rows, flat, values, parts.at)) if math.prod(taken) else parts.base
    entries = expanded(key, node)
    if None in [e for e in entries if not isinstance(e, Node)]:
        raise IndexError("None in a key with arrays can't be assigned to: reshape the value instead")
    return _overlaid(node, tuple(e if isinstance(e, slice) else slice(None) for e in entries), new)


def _fitting(value: Node, shape: Shape) -> Node:
    """A value broadcast to a shape; leading axes of size 1 that are too many are dropped, as in NumPy."""
    extra = max(0, value.ndim - len(shape))
    if value.shape[:extra] == (1,) * extra:
        value = _views.squeeze(value, range(extra))
    behind = shape[len(shape) - value.ndim :]
    if value.ndim > len(shape) or any(n not in (1, m) for n, m in zip(value.shape, behind, strict=True)):
        raise ValueError(f"a value of shape {value.shape} doesn't broadcast to shape {shape}, which the key selects")
    return _views.broadcast_to(value, shape)


def _where(node: Node, mask: Node, value: Node, at: int) -> Node:
    rest = range(at + mask.ndim, node.ndim)
    mask = _views.expand_dims(mask, [a - at for a in rest]) if rest else mask

    def body(x: Any, mask: Any, value: Any) -> Any:
        return _select(mask, value, x)

    return _build.blockwise("setitem", body, ("setitem", node.dtype.str), (node, mask, value), node.dtype)


def _overlaid(node: Node, key: tuple[Any, ...], value: Node) -> Node:
    """The node with a patch on a basic index; patches on patches are one operation."""
    region, kept, backwards = region_of(node, key)
    sizes = tuple(len(r) for r in region)
    shape = tuple(1 if a is None else sizes[a] for a in kept)
    patch = _fitting(value, shape)
    if 0 in sizes:
        return node
    if isinstance(value.op, Const):
        patch = _views.broadcast_to(_gather.in_memory(np.asarray(value.op.value)), shape)
    # From the key's axes to the node's: Nones are dropped, fixed indices have size 1, steps are forwards.
    patch = _views.flip(patch, [i for i, a in enumerate(kept) if a in backwards])
    patch = _views.squeeze(patch, [i for i, a in enumerate(kept) if a is None])
    patch = _views.expand_dims(patch, [a for a in range(node.ndim) if a not in kept])
    if all(r == range(n) for r, n in zip(region, node.shape, strict=True)):
        return _views.rechunk(patch, node.grid)
    return _build.make(Overlay((region,)), (node, patch), node.grid, node.dtype)
