"""What is read of the arrays that a concatenation, reshape or gather is pieced together from, tile by tile."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxchunk.graph.gathers import Gather, Take
from jaxchunk.graph.grid import Box, box_shape, shape_of
from jaxchunk.graph.merges import Splits
from jaxchunk.graph.primitives import Concat
from jaxchunk.run.views import Pieced, View
from jaxchunk.store.stored import StoredArray

# Tiles that are looked at to see which chunks they share.
_NEIGHBOURS = 4
# Rows of a tile, pieces, and chunks of theirs, that are looked at; the others are taken to be like them.
_MOST_ROWS, _MOST_PIECES, _MOST_CHUNKS = 1024, 1024, 8192


class Region(NamedTuple):
    """A box of a view that is read in tiles of some lengths, which follow each other along the axis `moving`."""

    view: View
    box: Box
    tile: tuple[int, ...]
    moving: int | None


class _Part(NamedTuple):
    """What a piece reads of an array: bytes, and of a stored one the chunks that it meets."""

    base: Any
    nbytes: float
    chunks: tuple[range, ...] | None = None


def region_reads(region: Region, cache: int) -> dict[Any, float]:
    """The bytes that reading a region reads of arrays that exist: as much for all of its tiles as for some.

    `cache` are bytes for decoded chunks: those used last stay.
    """
    reads: dict[Any, float] = {}
    for part in _parts_of_concats(region):
        boxes = _neighbours(part)
        times = math.prod(box_shape(part.box)) / max(1, sum(math.prod(box_shape(box)) for box in boxes))
        found: dict[Any, list[_Part]] = {}
        for piece in (piece for box in boxes for piece in _parts(part.view, box)):
            found.setdefault(piece.base, []).append(piece)
        for base, pieces in found.items():
            reads[base] = reads.get(base, 0.0) + times * _with_cache(pieces, cache)
    return reads


def _parts_of_concats(region: Region) -> Iterator[Region]:
    """The region of each operand of a concatenation, and of concatenations of these."""
    view, box, tile, moving = region
    base = view.base
    if not (isinstance(base, Pieced) and isinstance(base.op, Concat)):
        yield region
        return
    window = _window(view, box)
    tile = tuple(1 if m.axis is None else (tile[m.axis] - 1) * abs(m.step) + 1 for m in view.maps)
    moving = next((a for a, m in enumerate(view.maps) if m.axis is not None and m.axis == moving), None)
    (start, stop), along, at = window[base.op.axis], base.op.axis, 0
    for operand, size in zip(base.operands, base.op.sizes, strict=True):
        lo, hi = max(start, at), min(stop, at + size)
        if lo < hi:
            part = (*window[:along], (lo - at, hi - at), *window[along + 1 :])
            yield from _parts_of_concats(Region(operand, part, tile, moving))
        at += size


def _neighbours(region: Region) -> list[Box]:
    """Tiles from a region's middle that are read one after the other."""
    middle = []
    for (start, stop), length in zip(region.box, region.tile, strict=True):
        first = start + length * (-(-(stop - start) // length) // 2)
        first = first if first < stop else start
        middle.append((first, min(stop, first + length)))
    if region.moving is None:
        return [tuple(middle)]
    axis, length, stop = region.moving, region.tile[region.moving], region.box[region.moving][1]
    firsts = range(middle[axis][0], stop, length)[:_NEIGHBOURS]
    return [(*middle[:axis], (first, min(stop, first + length)), *middle[axis + 1 :]) for first in firsts]


def _parts(view: View, box: Box) -> list[_Part]:
    base, (spans, _), window = view.base, view.window(box), _window(view, box)
    if isinstance(base, StoredArray):
        chunks = tuple(axis.overlapping(a, b) for axis, (a, b) in zip(base.grid, window, strict=True))
        return [_Part(base, _chunk_bytes(base, chunks), chunks)]
    if not isinstance(base, Pieced):
        return [_Part(base, base.dtype.itemsize * math.prod(span.count for span in spans))]
    if isinstance(base.op, Gather):
        return list(_gathered(base, window))
    found: list[_Part] = []
    covered = 0
    some = window if isinstance(base.op, Concat) else _some_rows(window)
    for piece in itertools.islice(base.op.pieces(some), _MOST_PIECES):
        covered += math.prod(box_shape(piece.source))
        found += _parts(base.operands[piece.operand], piece.source)
    return _scaled(found, math.prod(box_shape(window)) / max(1, covered))


def _window(view: View, box: Box) -> Box:
    """The positions of the base that a box of a view lies within."""
    spans, _ = view.window(box)
    return tuple((span.start, span.stop) for span in spans)


def _some_rows(window: Box) -> Box:
    """As much of a box as has few rows: a reshape makes all of its pieces at once."""
    left, cut = _MOST_ROWS, []
    for start, stop in window[:-1]:
        cut.append((start, min(stop, start + left)))
        left = max(1, left // (cut[-1][1] - start))
    return (*cut, *window[-1:])


def _gathered(base: Pieced, window: Box) -> Iterator[_Part]:
    """Where a gather reads is in the data: as large a share of its operands is taken as of the whole.

    But no more chunks than it takes elements, and no more rows than it searches.
    """
    op = base.op
    share = min(1.0, math.prod(box_shape(window)) / max(1, math.prod(base.shape)))
    for number, (operand, grid) in enumerate(zip(base.operands, base.grids, strict=True)):
        lengths = shape_of(grid)
        everything = tuple((0, n) for n in lengths)
        part = share
        if isinstance(op, Take) and number == 0:
            everything = (*window[: op.axis], everything[op.axis], *window[op.axis + 1 :])
            wanted = window[op.axis][1] - window[op.axis][0]
            step = grid[op.axis].largest if isinstance(operand.base, StoredArray) else 1
            part = min(1.0, wanted * step / max(1, lengths[op.axis]))
        elif isinstance(op, Splits) and number == 0:
            part = min(1.0, (window[1][1] - window[1][0]) * op.window / max(1, lengths[1]))
        yield from (p._replace(chunks=None) for p in _scaled(_parts(operand, everything), part))


def _scaled(parts: Sequence[_Part], factor: float) -> list[_Part]:
    return [part._replace(nbytes=factor * part.nbytes) for part in parts]


def _chunk_bytes(base: StoredArray, chunks: Sequence[range]) -> int:
    nbytes = base.dtype.itemsize
    for axis, met in zip(base.grid, chunks, strict=True):
        nbytes *= axis.block(met[-1])[1] - axis.block(met[0])[0] if met else 0
    return nbytes


def _with_cache(parts: Sequence[_Part], cache: int) -> float:
    """Bytes that parts of one array read one after the other, where the chunks used last stay decoded."""
    apart = sum(part.nbytes for part in parts)
    base = parts[0].base
    if not isinstance(base, StoredArray) or any(part.chunks is None for part in parts):
        return apart
    room = cache // max(1, base.dtype.itemsize * math.prod(axis.largest for axis in base.grid))
    kept: OrderedDict[tuple[int, ...], None] = OrderedDict()
    met = decoded = 0
    for part in parts:
        for index in itertools.product(*(part.chunks or ())):
            met += 1
            decoded += index not in kept
            kept[index] = None
            kept.move_to_end(index)
            if len(kept) > room:
                kept.popitem(last=False)
        if met >= _MOST_CHUNKS:
            break
    return apart * decoded / max(1, met)
