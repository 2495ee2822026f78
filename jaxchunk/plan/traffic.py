"""What a stage reads and writes, by array: bytes by arithmetic on views, chunks and tiles.

Moves by data (takes, masks, merged runs) are taken to read all that they may; where chunks are shared
by tiles in an order that the cache can't follow, what is decoded again is an estimate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jaxchunk.graph.grid import Axis, Grid, shape_of
from jaxchunk.graph.primitives import AxisMap
from jaxchunk.plan.pieces import Region, region_reads
from jaxchunk.plan.tile import reads_per_chunk
from jaxchunk.run.sinks import ResultSink, ValueSink, WriteSink
from jaxchunk.run.stage import Leaf, Stage
from jaxchunk.run.values import FAR, SHORT_GAP, SHORT_RUN
from jaxchunk.run.views import Pieced
from jaxchunk.store.stored import StoredArray

TIERS = ("storage", "disk", "host")
"""Stored arrays; values in files of our own; values, users' arrays and results in host memory."""


class Traffic(NamedTuple):
    """Bytes by the array that is read, and by the sink that is written to."""

    reads: dict[Any, int]
    writes: list[tuple[Any, int]]

    def read(self, tier: str) -> int:
        return sum(nbytes for base, nbytes in self.reads.items() if tier_of(base) == tier)

    def written(self, tier: str) -> int:
        return sum(nbytes for sink, nbytes in self.writes if sink_tier(sink) == tier)


def tier_of(base: Any) -> str:
    """Where an array that is read lies."""
    if isinstance(base, StoredArray):
        return "storage"
    return str(getattr(base, "tier", "host"))


def sink_tier(sink: Any) -> str | None:
    """Where a result goes; None where it is only looked at."""
    if isinstance(sink, WriteSink):
        return "storage"
    if isinstance(sink, ValueSink):
        return sink.slot.tier
    return "host" if isinstance(sink, ResultSink) else None


def nbytes_of(array: Any) -> int:
    """Bytes of all elements of an array that exists, or will."""
    return int(array.dtype.itemsize * math.prod(array.shape))


def traffic(stage: Stage) -> Traffic:
    """All that a stage reads and writes: chunks as often as they are decoded, other values as they are copied."""
    reads: dict[Any, int] = defaultdict(int)
    for leaf, tiles in _leaves(stage):
        base = leaf.view.base
        if isinstance(base, Pieced):
            _add_pieced(reads, stage, leaf, tiles)
        elif not isinstance(base, StoredArray):
            reads[base] += copied(leaf, tiles)
    stored = decoded(stage)
    live = waiting(stage, stored)
    room = min(1.0, stage.cache / max(1, sum(live.values())))
    for base, leaves in stored.items():
        once, apart = _met_once(base, leaves), [_met_by_tiles(base, leaf, tiles) for leaf, tiles in leaves]
        # A tile of views that differ by no more than a tile decodes the chunks that they share once.
        near = len(_apart([leaf.view.maps for leaf, _ in leaves], stage.tiles)) < len(stage.tiles)
        always = max(apart) if near else sum(apart)
        # Of the chunks that are waited for, those that there is room for aren't decoded again.
        reads[base] += int(once + (1 - room) * max(0, always - once)) if live[base] else once
    return Traffic(dict(reads), list(_writes(stage)))


def waiting(stage: Stage, stored: Mapping[StoredArray, Sequence[tuple[Leaf, Grid]]]) -> dict[StoredArray, int]:
    """Of each array of `decoded`, how many bytes of decoded chunks wait at once for tiles to come."""
    return {base: _live(stage, base, leaves) for base, leaves in stored.items()}


def decoded(stage: Stage) -> dict[StoredArray, list[tuple[Leaf, Grid]]]:
    """The stored arrays that a stage decodes for itself, each with its leaves and the tiles these are read for."""
    stored: dict[StoredArray, list[tuple[Leaf, Grid]]] = defaultdict(list)
    for leaf, tiles in _leaves(stage):
        if isinstance(leaf.view.base, StoredArray) and not _decoded_by_partner(stage, leaf):
            stored[leaf.view.base].append((leaf, tiles))
    return stored


def _leaves(stage: Stage) -> Iterator[tuple[Leaf, Grid]]:
    """Leaves, and the tiles that they are read for: those of an epilogue for tiles of the axes that are left."""
    for leaf in stage.leaves:
        yield leaf, stage.tiles
    for group in stage.groups:
        kept = tuple(Axis.regular(1, 1) if a in group.dropped else axis for a, axis in enumerate(stage.tiles))
        for leaf in group.leaves:
            yield leaf, kept


def _writes(stage: Stage) -> Iterator[tuple[Any, int]]:
    for output in [*stage.outputs, *(output for group in stage.groups for output in group.outputs)]:
        shape = shape_of(output.grid) if output.grid is not None else [stage.space[a] for a in output.kept]
        for sink in output.sinks:
            if sink_tier(sink) is not None:
                yield sink, output.dtype.itemsize * math.prod(shape)


def _decoded_by_partner(stage: Stage, leaf: Leaf) -> bool:
    """Whether the stage that this one takes turns with has just read the same."""
    if stage.strip_of is None:
        return False
    return any(o.view.base is leaf.view.base and o.view.maps == leaf.view.maps for o in stage.strip_of.leaves)


# --- values and pieces -------------------------------------------------------------------------------


def _repeats(leaf: Leaf, tiles: Grid) -> int:
    """How often a leaf is read in all: again for each tile of the axes that it doesn't follow."""
    return math.prod(axis.nblocks for axis, spans in zip(tiles, leaf.spans, strict=True) if not spans)


def copied(leaf: Leaf, tiles: Grid) -> int:
    """Bytes of a value that a leaf reads, with what lies between them in a file where they are close together."""
    base, maps = leaf.view.base, leaf.view.maps
    lengths = shape_of(tiles)
    nbytes: int = base.dtype.itemsize * _repeats(leaf, tiles)
    nbytes *= math.prod(1 if m.axis is None else lengths[m.axis] for m in maps)
    if tier_of(base) != "disk" or not nbytes:
        return nbytes
    steps = [1 if m.axis is None else abs(m.step) for m in maps]
    nbytes *= math.prod(step for step in steps if step < FAR)
    block = [axis.largest for axis in base.grid]
    part = [1 if m.axis is None else min(n, tiles[m.axis].largest) for m, n in zip(maps, block, strict=True)]
    if any(step > 1 for step in steps):
        return nbytes
    # The first of the axes along which bytes run on, as `DiskValue` reads them.
    run = max((a for a, n in enumerate(block) if part[a] != n), default=0)
    short = part[run] * math.prod(block[run + 1 :]) * base.dtype.itemsize < SHORT_RUN if block else False
    if short and math.prod(part[:run]) > 1 and math.prod(block[run:]) * base.dtype.itemsize <= SHORT_GAP:
        lead = next(a for a, n in enumerate(part) if n > 1)
        nbytes = nbytes * part[lead] * math.prod(block[lead + 1 :]) // math.prod(part)
    return nbytes


def _add_pieced(reads: dict[Any, int], stage: Stage, leaf: Leaf, tiles: Grid) -> None:
    """Add what a leaf reads through concatenations and the like."""
    region = tuple((0, axis.length) if spans else (0, 1) for axis, spans in zip(tiles, leaf.spans, strict=True))
    tile = tuple(axis.largest if spans else 1 for axis, spans in zip(tiles, leaf.spans, strict=True))
    moving = [a for a in (*stage.outer, *stage.inner) if leaf.spans[a] and tiles[a].nblocks > 1]
    # Parts of a fold are done far from each other, other tasks side by side.
    cache = stage.cache // (max(1, stage.in_flight) if stage.parts > 1 else 1)
    times = _repeats(leaf, tiles)
    for base, nbytes in region_reads(Region(leaf.view, region, tile, moving[-1] if moving else None), cache).items():
        reads[base] += int(times * nbytes)
        if isinstance(base, StoredArray) and stage.cache >= nbytes_of(base):
            reads[base] = min(reads[base], nbytes_of(base))


# --- chunks ------------------------------------------------------------------------------------------


def _met(base: StoredArray, maps: Sequence[AxisMap], lengths: Sequence[int]) -> int:
    """Bytes of the chunks that a view meets, each once."""
    nbytes = base.dtype.itemsize
    for axis, m in zip(base.grid, maps, strict=True):
        met = _rounded(axis, *_reach(m, lengths))
        if m.axis is not None and abs(m.step) > axis.largest:
            met = min(met, lengths[m.axis] * axis.largest)
        nbytes *= met
    return nbytes


def _met_by_tiles(base: StoredArray, leaf: Leaf, tiles: Grid) -> int:
    """The same, where nothing stays decoded from one tile to the next."""
    return int(_met(base, leaf.view.maps, shape_of(tiles)) * reads_per_chunk(leaf, tiles))


def _met_once(base: StoredArray, leaves: Sequence[tuple[Leaf, Grid]]) -> int:
    """Bytes of the chunks that several views meet between them, where each is decoded once."""
    apart = sum(_met(base, leaf.view.maps, shape_of(tiles)) for leaf, tiles in leaves)
    box = base.dtype.itemsize
    for number, axis in enumerate(base.grid):
        reaches = [_reach(leaf.view.maps[number], shape_of(tiles)) for leaf, tiles in leaves]
        box *= _rounded(axis, min(first for first, _ in reaches), max(last for _, last in reaches))
    return min(apart, box)


def _reach(m: AxisMap, lengths: Sequence[int]) -> tuple[int, int]:
    """The first and the last position that is read along an axis."""
    last = m.offset if m.axis is None else m.offset + m.step * (lengths[m.axis] - 1)
    return min(m.offset, last), max(m.offset, last)


def _rounded(axis: Axis, first: int, last: int) -> int:
    """The length of the chunks of an axis that hold a range of positions."""
    blocks = axis.overlapping(max(0, first), min(axis.length, last + 1))
    return axis.block(blocks[-1])[1] - axis.block(blocks[0])[0] if blocks else 0


# --- chunks that several tiles want ------------------------------------------------------------------


def _live(stage: Stage, base: StoredArray, leaves: Sequence[tuple[Leaf, Grid]]) -> int:
    """Bytes of decoded chunks that wait at once for tiles to come, in the order in which tiles are done.

    A chunk that is wanted again along an axis waits until all tiles of the axes inside that one are done.
    """
    place = {axis: i for i, axis in enumerate([*stage.outer, *stage.inner])}
    shifted = _apart([leaf.view.maps for leaf, _ in leaves], stage.tiles)
    most = 0
    for leaf, tiles in leaves:
        again = shifted | {a for a, spans in enumerate(leaf.spans) if not spans and tiles[a].nblocks > 1}
        for axis, m in zip(base.grid, leaf.view.maps, strict=True):
            if m.axis is not None and _cut(axis, m, tiles[m.axis]):
                again.add(m.axis)
        if again:
            outermost = min(place.get(a, 0) for a in again)
            most = max(most, _waiting(stage, base, leaf, tiles, place, outermost))
    return min(_met_once(base, leaves), most)


def _waiting(stage: Stage, base: StoredArray, leaf: Leaf, tiles: Grid, place: dict[int, int], outermost: int) -> int:
    """Bytes of a leaf's chunks between one tile of an axis and the next, for each task in flight."""
    nbytes = base.dtype.itemsize * max(1, stage.in_flight)
    for axis, m in zip(base.grid, leaf.view.maps, strict=True):
        if m.axis is None:
            nbytes *= axis.largest
        elif place.get(m.axis, 0) > outermost:
            nbytes *= _rounded(axis, *_reach(m, shape_of(tiles)))
        else:
            span = tiles[m.axis].largest * abs(m.step)
            nbytes *= min(axis.length, (-(-span // axis.largest) + _cut(axis, m, tiles[m.axis])) * axis.largest)
    return nbytes


def _cut(chunks: Axis, m: AxisMap, tiles: Axis) -> bool:
    """Whether tiles end within chunks."""
    if tiles.nblocks == 1:
        return False
    span = tiles.largest * abs(m.step)
    regular = chunks.is_regular() and tiles.is_regular()
    return not (regular and m.step > 0 and m.offset % chunks.largest == 0 and span % chunks.largest == 0)


def _apart(views: Sequence[Sequence[AxisMap]], tiles: Grid) -> set[int]:
    """The axes along which views of one array differ by no more than a tile; all, where they differ by more."""
    found: set[int] = set()
    for maps in zip(*views, strict=True):
        if len(set(maps)) == 1:
            continue
        axis, _, step = maps[0]
        shifts = [m.offset for m in maps]
        near = axis is not None and all((m.axis, m.step) == (axis, step) for m in maps)
        if not near or axis is None or max(shifts) - min(shifts) > tiles[axis].largest * abs(step):
            return set(range(len(tiles)))
        found.add(axis)
    return found
