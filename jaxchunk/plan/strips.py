"""Strips: two stages that go over a source together, so that its chunks are decoded once.

Where a stage needs an earlier one's results tile by tile along some axes, and both read the same
source in the same tiles, they take turns: the first does the tasks of one strip of these axes, the
second the same strip's, while its chunks are still at hand. `(u - mean(u, 0)) / std(u, 0)` reads
`u` once, in strips of columns.
"""

from __future__ import annotations

import itertools
import math

from jaxchunk.graph.primitives import AxisMap
from jaxchunk.run.pool import block_bytes
from jaxchunk.run.sinks import ValueSink
from jaxchunk.run.stage import Stage
from jaxchunk.store.stored import StoredArray


def interleave(stages: list[Stage], room: int) -> None:
    """Join neighbouring stages in strips where that is possible, and fits in the room."""
    for first, second in itertools.pairwise(stages):
        if first.strip_of is None and _lines_up(first, second):
            shared = _shared_sources(first, second)
            strip = sum(_strip_bytes(source, first) for source in shared)
            # A strip of the first stage is one outer tile: its parts are what several threads share.
            parts = min(first.steps, max(first.parts, 2 * first.in_flight))
            states = (parts if parts > first.parts else 0) * first.kernels.state_bytes(first.whole_tile)
            needed = first.reserve - first.cache + second.reserve - second.cache + strip + states
            if shared and needed <= room:
                first.parts = parts
                first.reserve, second.reserve = needed, needed
                first.cache = second.cache = strip
                second.strip_of = first
                strips = first.outer
                second.outer = strips + tuple(a for a in second.outer if a not in strips)


def _lines_up(first: Stage, second: Stage) -> bool:
    """Whether the second stage's tiles need no more of the first than the same strip's results."""
    if first.space != second.space or first.tiles != second.tiles or not first.outer or first.outputs:
        return False
    if first.ordered is not None or second.ordered is not None or len(first.outer) == len(first.space):
        return False
    if any(sorted(set(range(len(first.space))) - set(g.dropped)) != list(first.outer) for g in first.groups):
        return False
    if not set(first.outer) <= set(second.outer):
        return False
    made = {id(s.slot) for g in first.groups for o in g.outputs for s in o.sinks if isinstance(s, ValueSink)}
    leaves = [*second.leaves, *(leaf for g in second.groups for leaf in g.leaves)]
    read = [leaf for leaf in leaves if id(leaf.view.base) in made]
    return bool(read) and all(leaf.view.maps == tuple(AxisMap(a) for a in first.outer) for leaf in read)


def _shared_sources(first: Stage, second: Stage) -> list[StoredArray]:
    """Stored arrays that both stages read once, through the same view."""
    views = {id(leaf.view.base): leaf.view for leaf in first.leaves}
    shared = []
    for leaf in second.leaves:
        view = views.get(id(leaf.view.base))
        if view is not None and view.maps == leaf.view.maps and isinstance(view.base, StoredArray):
            shared.append(view.base)
    return shared


def _strip_bytes(source: StoredArray, stage: Stage) -> int:
    """Decoded chunks of a source that one strip meets: its own and, at ragged edges, its neighbours'."""
    chunk = block_bytes(source.dtype.itemsize * math.prod(axis.largest for axis in source.grid))
    count = 1
    for number, axis in enumerate(source.grid):
        if number in stage.outer:
            tile = stage.tiles[number].largest
            count *= min(axis.nblocks, -(-tile // axis.largest) + (1 if tile % axis.largest else 0))
        else:
            count *= axis.nblocks
    return chunk * count
