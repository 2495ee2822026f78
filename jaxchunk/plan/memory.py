"""What a stage may hold: an upper bound from shapes alone, nothing compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxchunk.graph.gathers import Gather
from jaxchunk.graph.grid import Grid
from jaxchunk.graph.primitives import Concat
from jaxchunk.lower.kernel import SUBTILE, state_sizes, subtiles
from jaxchunk.lower.program import Instr, Program
from jaxchunk.plan.scratch import scratch_bytes
from jaxchunk.run.pool import block_bytes
from jaxchunk.run.sinks import ValueSink, WriteSink
from jaxchunk.run.stage import GroupPlan, Leaf, Output
from jaxchunk.run.views import Pieced
from jaxchunk.store.stored import StoredArray

# What a matrix product takes for panels of its operands, whatever their size.
PANELS = 2**18


@dataclass(frozen=True)
class Need:
    """Bytes of a stage: `task` per task in flight, `shared` once (states that wait to be joined)."""

    task: int
    shared: int

    def total(self, in_flight: int) -> int:
        return in_flight * self.task + self.shared


def stage_need(
    program: Program | None,
    leaves: Sequence[Leaf],
    outputs: Sequence[Output],
    groups: Sequence[GroupPlan],
    tiles: Grid,
    outer: Sequence[int],
    parts: int,
    in_flight: int,
    io_threads: int,
    platform: str,
) -> Need:
    """The bound for one way to tile a stage.

    Parameters
    ----------
    io_threads
        How many chunks a task may decode or encode at once.
    platform
        Where its kernels run.
    """
    tile = tuple(max(1, axis.largest) for axis in tiles)
    tiles_read = sum(leaf_bytes(leaf, tile) for leaf in leaves)
    reading = reading_together(leaves, tile, io_threads)
    writing = max((sink_bytes(output, tile, io_threads) for output in outputs), default=0)
    if program is None:
        return Need(tiles_read + max(reading, writing), 0)
    states = [_state_bytes(program, i, tile) for i in range(len(program.folds))]
    # The new state is written over the old one, but for folds made in one piece.
    held = sum(states) * (2 if program.direct else 1) + 4 * sum(_carry_bytes(program, tile))
    # Old outputs stay while the next step's leaves are read.
    held += sum(output_bytes(output, tile) for output in outputs)
    step = tiles_read + held + max(reading, writing + temporaries(program, tile) + scratch(program, tile, platform))
    finish = shared = 0
    for group in groups:
        kept = tuple(1 if a in group.dropped else n for a, n in enumerate(tile))
        state = sum(states[f] for f in group.folds)
        joined = parts > 1 or any(tiles[a].nblocks > 1 for a in outer if a in group.dropped)
        joining = 2 * state if joined else 0
        finish = max(finish, sum(states) + joining + _finish_bytes(program, group, kept, io_threads))
        if joined:
            shared += state * (open_tiles(group.dropped, tiles, outer) + in_flight)
    return Need(max(step, finish), shared)


def _finish_bytes(program: Program, group: GroupPlan, kept: tuple[int, ...], io_threads: int) -> int:
    """What an epilogue takes besides its states."""
    epilogue = next(g.epilogue for g in program.groups if g.dropped == group.dropped)
    nbytes = sum(
        leaf_bytes(leaf, kept) + reading_bytes(leaf.view.base, leaf.view.maps, kept, io_threads)
        for leaf in group.leaves
    )
    nbytes += sum(output_bytes(output, kept) for output in group.outputs)
    nbytes += max((sink_bytes(output, kept, io_threads) for output in group.outputs), default=0)
    # The state of a contraction is its result: without an epilogue nothing is computed.
    folds = [program.folds[f].reducer for f in group.folds]
    done = all(i.kind == "folded" for i in epilogue.instrs) and all(reducer.contracts for reducer in folds)
    alive = 0 if done else 2 + len(folds)
    return nbytes + alive * math.prod(kept) * max((i.dtype.itemsize for i in epilogue.instrs), default=8) + 4096


def open_tiles(dropped: Sequence[int], tiles: Grid, outer: Sequence[int]) -> int:
    """How many kept tiles of a group are under way at once: those inside the first outer axis it folds."""
    first = next((i for i, a in enumerate(outer) if a in dropped), len(outer))
    return math.prod(tiles[a].nblocks for a in outer[first:] if a not in dropped)


def leaf_bytes(leaf: Leaf, tile: Sequence[int]) -> int:
    """A leaf's tile."""
    return _padded(leaf.dtype.itemsize * math.prod(n for n, s in zip(tile, leaf.spans, strict=True) if s))


def reading_bytes(base: Any, maps: Sequence[Any], tile: Sequence[int], io_threads: int) -> int:
    """What reading a tile takes besides the tile: chunks decoded on their own, pieces put together."""
    if isinstance(base, StoredArray):
        chunks = 1
        for axis, m in zip(base.grid, maps, strict=True):
            if m.axis is not None and axis.largest:
                span = (tile[m.axis] - 1) * abs(m.step) + 1
                aligned = m.step == 1 and m.offset % axis.largest == 0 and span % axis.largest == 0
                # A tile that doesn't begin where a chunk does meets one more.
                met = span // axis.largest if aligned else -(-(span - 1) // axis.largest) + 1
                chunks *= min(axis.nblocks, met)
        in_place = _decodes_in_place(base, maps, tile)
        return min(io_threads, max(1, chunks)) * (base.scratch_bytes if in_place else one_chunk(base))
    if isinstance(base, Pieced):
        return pieced_bytes(base, maps, tile) + io_threads * one_chunk(base)
    return one_chunk(base)


def reading_together(leaves: Sequence[Leaf], tile: Sequence[int], io_threads: int) -> int:
    """The same for all leaves of a tile: their chunks are decoded side by side, so many at a time."""
    alone = [reading_bytes(leaf.view.base, leaf.view.maps, tile, io_threads) for leaf in leaves]
    one = max((reading_bytes(leaf.view.base, leaf.view.maps, tile, 1) for leaf in leaves), default=0)
    return max(max(alone, default=0), min(sum(alone), io_threads * one))


def pieced_bytes(base: Any, maps: Sequence[Any], shape: Sequence[int]) -> int:
    """What putting a box of a view together takes besides it: each move for itself, and the neediest that it reads."""
    if not isinstance(base, Pieced):
        return 0
    box = tuple(1 if m.axis is None else shape[m.axis] * abs(m.step) for m in maps)
    whole = _padded(base.dtype.itemsize * math.prod(box))
    # A stepped window is read whole first.
    own = whole if any(abs(m.step) != 1 for m in maps) else 0
    if isinstance(base.op, Gather):
        lent, working, boxes = base.op.demand(box, base.dtype.itemsize)
        own += _padded(lent) + working + len(boxes) * _padded(1)
    elif isinstance(base.op, Concat):
        boxes = (box,) * len(base.operands)
    else:
        # A piece whose shape doesn't fit comes by way of another array.
        own += whole
        boxes = tuple(_within(grid, box) for grid in base.grids)
    read = (pieced_bytes(view.base, view.maps, part) for view, part in zip(base.operands, boxes, strict=True))
    return own + max(read, default=0)


def _within(grid: Grid, box: tuple[int, ...]) -> tuple[int, ...]:
    """A box of an array that holds as many elements as another array's box: of its last axes."""
    left, shape = math.prod(box), []
    for axis in reversed(grid):
        shape.append(max(1, min(axis.length, left)))
        left = -(-left // shape[-1])
    return tuple(reversed(shape))


def one_chunk(base: Any) -> int:
    """Bytes that hold one block of what is read, and what decoding it takes."""
    if isinstance(base, Pieced):
        return max((one_chunk(view.base) for view in base.operands), default=0)
    block = _padded(base.dtype.itemsize * math.prod(axis.largest for axis in base.grid))
    if isinstance(base, StoredArray):
        return block + base.scratch_bytes
    return block if getattr(base, "tier", "") == "disk" else 0


def _decodes_in_place(base: StoredArray, maps: Sequence[Any], tile: Sequence[int]) -> bool:
    """Whether a tile is made of whole chunks that lie in it without gaps: each is decoded where it belongs."""
    for number, (axis, m) in enumerate(zip(base.grid, maps, strict=True)):
        if m.axis is None or m.step != 1 or m.axis != number or m.offset:
            return False
        if tile[m.axis] % axis.largest and tile[m.axis] < axis.length:
            return False
        if number and tile[m.axis] > axis.largest:
            return False
    return True


def output_bytes(output: Output, tile: Sequence[int]) -> int:
    """A result's tile; where a user's function makes its blocks, the largest of them."""
    sizes = [tile[a] for a in output.kept] if output.grid is None else [axis.largest for axis in output.grid]
    return _padded(output.dtype.itemsize * math.prod(sizes))


def sink_bytes(output: Output, tile: Sequence[int], io_threads: int) -> int:
    whole = output_bytes(output, tile)
    most = 0
    for sink in output.sinks:
        if isinstance(sink, ValueSink) and sink.slot.tier == "disk":
            most = max(most, whole)  # blocks that don't lie in the tile in one piece are copied
        if isinstance(sink, WriteSink):
            unit = output.dtype.itemsize * math.prod(axis.largest for axis in sink.grid)
            most = max(most, min(io_threads, -(-whole // max(1, unit))) * (unit + sink.encode_bytes))
    return most


def temporaries(program: Program, tile: tuple[int, ...]) -> int:
    """What a step kernel needs for itself: some sub-tiles, or whole tiles where it can't be cut."""
    whole = program.direct or subtiles(tile) is None
    size = math.prod(tile) if whole else SUBTILE
    states = sum(_state_bytes(program, i, tile) for i in range(len(program.folds)))
    # XLA computes most values where they are used; some are made as arrays, a few for each result.
    alive = 4 + 2 * (len(program.folds) + len(program.outputs))
    states += sum(i.payload.body_bytes for i in program.body.instrs if i.kind == "whole")
    computed = [i for i in program.body.instrs if i.kind in ("call", "whole", "scan", "index")]
    values = [_spanned(i, tile) if whole else size * i.dtype.itemsize for i in computed]
    arrays = [
        v for i, v in zip(computed, values, strict=True) for _ in range(i.payload.arrays if i.kind == "call" else 1)
    ]
    alive = max([alive, *(i.payload.arrays for i in computed if i.kind == "call")])
    nbytes: int = states + sum(sorted(arrays, reverse=True)[:alive])
    nbytes += 7 * size * sum(i.dtype.itemsize for i in computed if i.kind == "scan")
    for fold in program.folds:
        if fold.reducer.contracts:
            # A contraction packs operands whose axes aren't in its order, and works on panels of them.
            nbytes += PANELS + sum(_spanned(program.body.instrs[a], tile) for a in fold.args)
        else:
            # A fold makes arrays of its operands, broadcast, and of its state on the way.
            nbytes += 2 * size * sum(d.itemsize for d in (*fold.dtypes, *fold.reducer.state_dtypes(fold.dtypes)))
    return nbytes + 4096


def scratch(program: Program, tile: tuple[int, ...], platform: str) -> int:
    """What libraries take beneath the compiler while a step kernel runs: it reports none of it."""
    instrs = program.body.instrs
    most = 0
    for instr in instrs:
        if instr.kind == "whole":
            largest = max(_spanned(i, tile) for i in (instr, *(instrs[a] for a in instr.args)))
            most = max(most, scratch_bytes(instr.payload.primitives, largest, platform))
    return most


def _spanned(instr: Instr, tile: Sequence[int]) -> int:
    """Bytes of a value on a tile."""
    return instr.dtype.itemsize * math.prod(n for n, s in zip(tile, instr.spans, strict=True) if s)


def _state_bytes(program: Program, number: int, tile: Sequence[int]) -> int:
    fold = program.folds[number]
    size = math.prod(state_sizes(fold, tile))
    return sum(size * d.itemsize for d in fold.reducer.state_dtypes(fold.dtypes))


def _carry_bytes(program: Program, tile: Sequence[int]) -> list[int]:
    return [
        np.asarray(s.scanner.start(s.dtype)).dtype.itemsize * math.prod(n for a, n in enumerate(tile) if a != s.axis)
        for s in program.scans
    ]


def _padded(nbytes: int) -> int:
    return block_bytes(nbytes)
