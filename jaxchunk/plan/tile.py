"""Tiles: what a task computes, chosen from how arrays are stored and what memory there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.primitives import Sides
from jaxchunk.plan.memory import Need
from jaxchunk.run.stage import Leaf
from jaxchunk.run.views import Pieced
from jaxchunk.store.stored import StoredArray

JOIN_BYTES = 4 * 2**20
# Tiles of whole lines aren't made larger than this for the sake of blocks in memory or on disk.
WHOLE_BYTES = 16 * 2**20
PARTS = 8
# An operand of fewer bytes is read again and again without any harm.
LIGHT = 16 * 2**20
# A chunk is decoded whole: cutting it into more tiles than this saves nothing any more.
MOST_CUTS = 64


@dataclass(frozen=True)
class Axes:
    """What the planner knows of a stage's axes before it tiles them.

    Attributes
    ----------
    units
        Tiles are a multiple of it: whole stored chunks (or shards) are written.
    stored
        The chunk size of the largest source along the axis, or 1.
    first
        Where the first of these chunks ends, if not at its size.
    fixed
        Axes whose tiles are given: whole, or a user's blocks.
    repeating
        Axes that some large leaf doesn't follow: it is read again for each of their tiles.
    loose
        Axes along which the largest source isn't decoded chunk by chunk, so that any part is read as cheaply.
    """

    space: tuple[int, ...]
    units: tuple[int, ...]
    stored: tuple[int, ...]
    first: tuple[int | None, ...]
    fixed: dict[int, Axis]
    itemsize: int
    sides: Sides | None = None
    repeating: tuple[int, ...] = ()
    loose: tuple[int, ...] = ()


def describe(
    space: tuple[int, ...],
    leaves: Sequence[Leaf],
    units: Sequence[int],
    fixed: dict[int, Axis],
    itemsize: int,
    sides: Sides | None,
    room: int,
) -> Axes:
    """Find the chunk size that reading wants along each axis."""
    stored: list[int] = [1] * len(space)
    first: list[int | None] = [None] * len(space)
    weight = [0] * len(space)
    loose: set[int] = set()
    for leaf in leaves:
        base = leaf.view.base
        nbytes = leaf.dtype.itemsize * math.prod(base.shape)
        for m, axis in zip(leaf.view.maps, base.grid, strict=True):
            if m.axis is None or nbytes <= weight[m.axis] or isinstance(base, Pieced) or not axis.runs:
                continue
            weight[m.axis] = nbytes
            (loose.discard if isinstance(base, StoredArray) else loose.add)(m.axis)
            size = max(1, axis.largest // abs(m.step))
            stored[m.axis] = min(size, space[m.axis])
            lead = -m.offset % axis.largest if m.step == 1 and axis.is_regular() else 0
            first[m.axis] = lead if lead and units[m.axis] == 1 else None
    heavy = [leaf for leaf in leaves if leaf.dtype.itemsize * math.prod(leaf.view.base.shape) >= min(LIGHT, room)]
    repeating = tuple(a for a in range(len(space)) if any(not leaf.spans[a] for leaf in heavy))
    return Axes(space, tuple(units), tuple(stored), tuple(first), fixed, itemsize, sides, repeating, tuple(loose))


def candidates(axes: Axes, largest: int) -> Iterator[tuple[int, ...]]:
    """Tiles to try, best first: the one that suits storage, then smaller and smaller ones.

    Parameters
    ----------
    largest
        Bytes beyond which a tile isn't grown to suit storage.
    """
    tile = preferred(axes, largest)
    yield tuple(tile)
    while True:
        ratios = [
            (tile[a] / (axes.stored[a] * 1.0), tile[a], a)
            for a in range(len(tile))
            if a not in axes.fixed and tile[a] > axes.units[a]
        ]
        if not ratios:
            return
        _, _, axis = max(ratios)
        half = -(-tile[axis] // 2)
        tile[axis] = max(axes.units[axis], -(-half // axes.units[axis]) * axes.units[axis])
        if tile[axis] > half and tile[axis] >= 2 * half:
            tile[axis] = axes.units[axis]
        yield tuple(tile)


def preferred(axes: Axes, largest: int) -> list[int]:
    space = axes.space
    tile = []
    for a, n in enumerate(space):
        if a in axes.fixed:
            tile.append(axes.fixed[a].largest)
        else:
            unit = axes.units[a]
            tile.append(min(-(-max(axes.stored[a], unit) // unit) * unit, -(-n // unit) * unit))
    if axes.sides is not None:
        return _grown_sides(axes, axes.sides, tile)
    if axes.fixed:
        _shrunk(axes, tile)
    return _grown(axes, tile, lambda t, a: math.prod(t) * axes.itemsize < JOIN_BYTES)


def _shrunk(axes: Axes, tile: list[int]) -> None:
    """Lines that have to be whole make tiles long: they needn't be as wide as the blocks of what is read in parts."""
    while math.prod(tile) * axes.itemsize > WHOLE_BYTES:
        wide = [a for a in axes.loose if a not in axes.fixed and tile[a] >= 2 * axes.units[a]]
        if not wide:
            return
        a = max(wide, key=lambda axis: tile[axis])
        tile[a] = -(-tile[a] // (2 * axes.units[a])) * axes.units[a]


def _grown(axes: Axes, tile: list[int], small: Callable[[list[int], int], bool]) -> list[int]:
    """Join neighbouring chunks while a tile is small, along the last axes first."""
    for a in reversed(range(len(tile))):
        if a in axes.fixed:
            continue
        while tile[a] < axes.space[a] and small(tile, a):
            tile[a] = min(2 * tile[a], -(-axes.space[a] // axes.units[a]) * axes.units[a])
    return tile


def _grown_sides(axes: Axes, lengths: Sides, tile: list[int]) -> list[int]:
    """A contraction reads each operand once for every tile of the axes that it doesn't follow: grow those."""
    tile = _grown(axes, tile, lambda t, a: t[a] < lengths.least)
    while sides := [a for a in axes.repeating if tile[a] < min(lengths.most, axes.space[a]) and a not in axes.fixed]:
        a = min(sides, key=lambda side: tile[side])
        tile[a] = min(2 * tile[a], -(-axes.space[a] // axes.units[a]) * axes.units[a])
    return tile


def grid_of(axes: Axes, tile: Sequence[int]) -> Grid:
    """The tile grid: regular, but that it starts where the source's chunks do, or is given."""
    return tuple(
        axes.fixed[a] if a in axes.fixed else Axis.regular(n, t, axes.first[a] if t >= axes.stored[a] else None)
        for a, (n, t) in enumerate(zip(axes.space, tile, strict=True))
    )


@dataclass(frozen=True)
class Tiling:
    tiles: Grid
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    parts: int
    in_flight: int
    io_threads: int
    need: Need


def choose(
    axes: Axes,
    outer: Sequence[int],
    inner: Sequence[int],
    room: int,
    threads: int,
    undivided: bool,
    need: Callable[[Grid, Sequence[int], int, int, int], Need],
    sane: Callable[[Grid], bool],
) -> tuple[Tiling, bool]:
    """The first candidate that fits in the room, and whether one did (else the smallest).

    Parameters
    ----------
    undivided
        One task folds all that goes into a result: in order, or with a kernel that takes all cores itself.
    need
        Of (tiles, outer, parts, tasks in flight, I/O threads of each).
    sane
        Whether a tile grid doesn't cut stored chunks so often that reading would never end.
    """
    tiling = None
    for tile in candidates(axes, room // 2):
        tiles = grid_of(axes, tile)
        if tiling is not None and not sane(tiles):
            break
        tasks = math.prod(tiles[a].nblocks for a in outer)
        steps = math.prod(tiles[a].nblocks for a in inner)
        parts = 1 if undivided else max(1, min(steps, -(-PARTS // max(1, tasks))))
        most = max(1, min(threads, tasks * parts))
        # Where one task runs alone its chunks are read and written on several threads.
        for in_flight, io in dict.fromkeys(((most, threads if most == 1 else 1), (1, threads), (1, 1))):
            bound = need(tiles, outer, parts, in_flight, io)
            tiling = Tiling(tiles, tuple(outer), tuple(inner), parts, in_flight, io, bound)
            if bound.total(in_flight) <= room:
                return tiling, True
    assert tiling is not None
    return tiling, False


def reads_per_chunk(leaf: Leaf, tiles: Grid) -> float:
    """How often a source's chunk is decoded for the tiles of a stage, if none is kept: 1 is best."""
    times = cuts_per_chunk(leaf, tiles)
    for spans, tile in zip(leaf.spans, tiles, strict=True):
        times *= 1 if spans else tile.nblocks
    return times


def cuts_per_chunk(leaf: Leaf, tiles: Grid) -> float:
    """How many tiles share a chunk, in the mean."""
    base: Any = leaf.view.base
    times = 1.0
    for m, axis in zip(leaf.view.maps, base.grid, strict=True):
        if m.axis is None or not axis.runs:
            continue
        tile = tiles[m.axis]
        # Each cut between tiles that isn't one between chunks has one more chunk read twice.
        met = 0.0
        at = 0
        for count, size in tile.runs:
            span = size * abs(m.step)
            first = m.offset + abs(m.step) * at if m.step > 0 else 0
            if span % axis.largest == 0 and first % axis.largest == 0:
                met += count * (span // axis.largest)
            elif axis.largest % span == 0 and first % span == 0:
                met += count  # each lies within a chunk
            else:
                met += count * (span - 1) / axis.largest + count
            at += count * size
        times *= max(1.0, met / max(1, len(axis.overlapping(*_extent(m, tile.length, axis.length)))))
    return times


def _extent(m: Any, length: int, whole: int) -> tuple[int, int]:
    first, last = m.offset, m.offset + m.step * (length - 1)
    return max(0, min(first, last)), min(whole, max(first, last) + 1)
