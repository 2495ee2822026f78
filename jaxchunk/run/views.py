"""Reading: windows of arrays that exist, through views and pieces, by strided copies on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxchunk.graph.gathers import Gather
from jaxchunk.graph.grid import Box, Grid
from jaxchunk.graph.primitives import AxisMap, Concat, Reshape
from jaxchunk.run.pool import Pool

Array: TypeAlias = np.ndarray[Any, Any]


class Span(NamedTuple):
    """Positions start, start + step, … along an axis; step is positive."""

    start: int
    count: int  # type: ignore[assignment]  # a field, not the tuple's method
    step: int = 1

    @property
    def stop(self) -> int:
        return self.start + (self.count - 1) * self.step + 1


Window: TypeAlias = tuple[Span, ...]


class View(NamedTuple):
    """An existing or pieced array, read through affine maps (one per axis of `base`)."""

    base: Any
    maps: tuple[AxisMap, ...]

    def window(self, box: Box) -> tuple[Window, tuple[bool, ...]]:
        """The base's window for a box of the view, and which of its axes run backwards."""
        spans, flips = [], []
        for axis, offset, step in self.maps:
            if axis is None:
                spans.append(Span(offset, 1))
                flips.append(False)
                continue
            start, stop = box[axis]
            first, count = offset + step * start, stop - start
            if step < 0:
                spans.append(Span(first + step * (count - 1), count, -step))
            else:
                spans.append(Span(first, count, step))
            flips.append(step < 0)
        return tuple(spans), tuple(flips)

    def oriented(self, out: Array, flips: Sequence[bool]) -> Array:
        """`out`, in the view's axes with size 1 where it isn't read along, as the base's axes see it."""
        used = [m.axis for m in self.maps if m.axis is not None]
        turned = out[(..., *(slice(None) if a in used else 0 for a in range(out.ndim)))]
        turned = turned.transpose([sorted(used).index(a) for a in used])
        index: list[Any] = []
        for m, flip in zip(self.maps, flips, strict=True):
            index.append(None if m.axis is None else slice(None, None, -1 if flip else None))
        return turned[(..., *index)]


class Pieced(NamedTuple):
    """A concatenation, reshape or gather of views: each box is assembled from its pieces.

    `grids` are the operands' cuts, as the graph has them.
    """

    op: Concat | Reshape | Gather
    operands: tuple[View, ...]
    grids: tuple[Grid, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    grid: Grid
    name: str


Filler: TypeAlias = Callable[[Any, Window, Array], None]


def fill_view(view: View, box: Box, out: Array, fill: Filler) -> None:
    """Read a box of a view into `out` (the box's shape; size 1 on axes the view doesn't read along)."""
    window, flips = view.window(box)
    fill(view.base, window, view.oriented(out, flips))


def fill_pieced(pieced: Pieced, window: Window, out: Array, fill: Filler, pool: Pool) -> None:
    """Assemble a window of pieces; a stepped one by way of the whole box."""
    box = tuple((s.start, s.stop) for s in window)
    if any(s.step != 1 for s in window):
        whole = pool.take(tuple(b - a for a, b in box), pieced.dtype)
        fill_pieced(pieced, tuple(Span(a, b - a) for a, b in box), whole, fill, pool)
        out[...] = whole[tuple(slice(None, None, s.step) for s in window)]
        return
    if isinstance(pieced.op, Gather):
        with pool.holding(pieced.op.demand(out.shape, out.dtype.itemsize).working):
            pieced.op.fill(box, out, _Operands(pieced, fill, pool))
        return
    for piece in pieced.op.pieces(box):
        target = region(out, piece.target)
        view = pieced.operands[piece.operand]
        shape = tuple(b - a for a, b in piece.source)
        if target.shape == shape:
            fill_broadcast(view, piece.source, target, fill)
            continue
        turned = target.reshape(shape)
        if turned.size and not np.shares_memory(turned, target):
            turned = pool.take(shape, pieced.dtype)
            fill_broadcast(view, piece.source, turned, fill)
            target[...] = turned.reshape(target.shape)
        else:
            fill_broadcast(view, piece.source, turned, fill)


@dataclass(frozen=True)
class _Operands:
    """What a gather reads: a `jaxchunk.graph.gathers.Operands`."""

    pieced: Pieced
    fill: Filler
    pool: Pool

    def read(self, operand: int, box: Box, out: Array | None = None) -> Array:
        if out is None:
            out = self.empty(operand, tuple(b - a for a, b in box))
        fill_broadcast(self.pieced.operands[operand], box, out, self.fill)
        return out

    def empty(self, operand: int, shape: tuple[int, ...]) -> Array:
        return self.pool.take(shape, self.pieced.operands[operand].base.dtype)

    def grid(self, operand: int) -> Grid:
        return self.pieced.grids[operand]


def region(array: Array, box: Box) -> Array:
    """A view of a box of an array, also of one without axes."""
    index: tuple[Any, ...] = (..., *(slice(start, stop) for start, stop in box))
    view: Array = array[index]
    return view


def fill_broadcast(view: View, box: Box, out: Array, fill: Filler) -> None:
    """As `fill_view`, for an `out` that has the box's full shape on broadcast axes too."""
    used = {m.axis for m in view.maps}
    free = tuple(a for a in range(out.ndim) if a not in used and out.shape[a] > 1)
    if not free:
        fill_view(view, box, out, fill)
        return
    first = tuple(slice(0, 1) if a in free else slice(None) for a in range(out.ndim))
    fill_view(view, box, out[first], fill)
    out[...] = out[first]
