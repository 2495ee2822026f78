"""A draft's stage: its leaves and results resolved, its tiles chosen, its memory bounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxchunk.config import Settings
from jaxchunk.graph.gathers import Assignment, Gather
from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Affine, AxisMap, Blockwise, Concat, Reshape, Source, Work, compose
from jaxchunk.lower.compile import Kernels, host_device, local_device
from jaxchunk.lower.program import Program
from jaxchunk.plan.fuse import Draft
from jaxchunk.plan.memory import Need, one_chunk, scratch, stage_need, temporaries
from jaxchunk.plan.scratch import HOST_ONLY, library_threads
from jaxchunk.plan.tile import MOST_CUTS, Axes, choose, cuts_per_chunk, describe, reads_per_chunk
from jaxchunk.plan.traffic import decoded, waiting
from jaxchunk.run.pool import PAGE, block_bytes
from jaxchunk.run.sinks import ValueSink, WriteSink
from jaxchunk.run.stage import GroupPlan, Leaf, Output, Stage
from jaxchunk.run.values import Slot
from jaxchunk.run.views import Pieced, View
from jaxchunk.store.parts import in_parts, is_divisible
from jaxchunk.store.stored import StoredArray

# Chunks of more than this share of the budget are read in parts, so many of which go into it, or more.
WHOLE_SHARE = 1 / 8
PARTS_IN_BUDGET = 32
PART_BYTES = 4 * 2**20


class StageMaker:
    """Makes stages of drafts, one at a time.

    Attributes
    ----------
    sinks
        Where each node's tiles go.
    slots
        The intermediates, by the node they are values of.
    sources
        The stored arrays that are read.
    """

    def __init__(self, settings: Settings, sinks: dict[Node, list[Any]], sources: set[StoredArray]) -> None:
        self.settings, self.sinks, self.sources = settings, sinks, sources
        self.slots: dict[Node, Slot] = {}

    def make(self, draft: Draft, room: int) -> tuple[Stage, str | None]:
        """A draft's stage, and why it doesn't fit in the room, if it doesn't."""
        builder, program = draft.builder, draft.builder.program
        leaves = [self._leaf(node, maps, draft.space) for node, maps in builder.leaves]
        outputs, groups = self._results(draft)
        everything = [*outputs, *(output for group in groups for output in group.outputs)]
        moving = _only_moves(program, leaves)
        axes = self._axes(draft, leaves, everything, room)
        outer, inner = _loops(draft, outputs, groups)
        threads = self.settings.cores
        root = draft.roots[0][0]
        device = _device_of(program, root.device)

        def need(tiles: Grid, outer: Sequence[int], parts: int, in_flight: int, io: int) -> Need:
            traced = None if moving else program
            return stage_need(traced, leaves, outputs, groups, tiles, outer, parts, in_flight, io, device.platform)

        def sane(tiles: Grid) -> bool:
            stored = (leaf for leaf in leaves if isinstance(leaf.view.base, StoredArray))
            return all(cuts_per_chunk(leaf, tiles) <= MOST_CUTS for leaf in stored)

        undivided = draft.ordered is not None or (axes.sides is not None and axes.sides.threaded)
        tiling, fits = choose(axes, outer, inner, room, threads, undivided, need, sane)
        tile = tuple(max(1, axis.largest) for axis in tiling.tiles)
        stage = Stage(
            number=0,  # until it has its place among others
            name="+".join(list(builder.operations)[-4:]) or root.op.name,
            operations=list(builder.operations) or [root.op.name],
            where=root.where,
            space=draft.space,
            tiles=tiling.tiles,
            outer=tiling.outer,
            inner=tiling.inner,
            parts=tiling.parts,
            leaves=leaves,
            outputs=outputs,
            groups=groups,
            kernels=None if moving else Kernels(program, device),
            ordered=draft.ordered,
            in_flight=tiling.in_flight,
            io_threads=tiling.io_threads,
            temporaries=0 if moving else temporaries(program, tile),
            scratch=0 if moving else scratch(program, tile, device.platform),
            reserve=tiling.need.total(tiling.in_flight),
            indices=program.indices,
            flops=builder.flops * math.prod(draft.space),
            library_threads=library_threads(_library_work(program), tiling.in_flight, threads),
        )
        for output in everything:
            for sink in output.sinks:
                if isinstance(sink, ValueSink):
                    sink.slot.grid = output.grid if output.grid is not None else stage.kept_grid(output.kept)
        keep_chunks(stage, room - stage.reserve)
        return stage, None if fits else self._misfit(stage, room)

    def _misfit(self, stage: Stage, room: int) -> str:
        tile = "×".join(str(axis.largest) for axis in stage.tiles) or "1"
        exact = ""
        if any(output.grid is not None for output in stage.outputs):
            exact = " (blocks are computed whole; for map_blocks, rechunk to smaller ones)"
        elif sinks := [sink for output in stage.outputs for sink in output.sinks if isinstance(sink, WriteSink)]:
            unit = "×".join(str(axis.largest) for axis in sinks[0].grid)
            exact = (
                f" (chunks, or shards, are written whole, here {unit}: smaller ones by chunks= or shards= need less)"
            )
        leaves = [*stage.leaves, *(leaf for group in stage.groups for leaf in group.leaves)]
        said = whole_chunks(leaves, stage.reserve // 2)
        return (
            f"{stage.name}, asked for at {stage.where}, needs {stage.reserve:,} bytes for its smallest tile, {tile}"
            f"{exact}; there are {max(0, room):,} of the budget of {self.settings.budget:,}"
            f"{'; ' if said else ''}{said}"
        )

    def _results(self, draft: Draft) -> tuple[list[Output], list[GroupPlan]]:
        builder = draft.builder
        groups = []
        for group in builder.program.groups:
            leaves = [self._leaf(n, m, draft.space) for n, m in builder.group_leaves.get(group.dropped, [])]
            groups.append(GroupPlan(group.dropped, tuple(group.folds), leaves, []))
        outputs: list[Output] = []
        for node, dropped, _ in draft.roots:
            kept = tuple(a for a in range(len(draft.space)) if dropped is None or a not in dropped)
            output = Output(node.op.name, kept, node.dtype, list(self.sinks.get(node, [])))
            if draft.exact is node:
                output.kept, output.grid = kept[: node.ndim], node.grid
            if node in self.slots:
                output.sinks.append(ValueSink(self.slots[node]))
            if dropped is None:
                outputs.append(output)
            else:
                next(g for g in groups if g.dropped == dropped).outputs.append(output)
        return outputs, groups

    def _axes(self, draft: Draft, leaves: list[Leaf], outputs: list[Output], room: int) -> Axes:
        """What is known of the axes: what must be whole, or a multiple of what is written."""
        units = [1] * len(draft.space)
        for output in outputs:
            for sink in output.sinks:
                if isinstance(sink, WriteSink):
                    for a, axis in zip(output.kept, sink.grid, strict=True):
                        units[a] = math.lcm(units[a], max(1, axis.largest))
        fixed = {a: Axis.regular(draft.space[a], max(1, draft.space[a])) for a in draft.whole}
        if draft.exact is not None:
            fixed |= dict(enumerate(_blocks_of(draft.exact)))
        itemsize = max([1, *(leaf.dtype.itemsize for leaf in leaves), *(o.dtype.itemsize for o in outputs)])
        sides = next((fold.reducer.sides for fold in draft.builder.program.folds if fold.reducer.sides), None)
        return describe(draft.space, leaves, units, fixed, itemsize, sides, room)

    # --- what is read ----------------------------------------------------------------------------

    def _leaf(self, node: Node, maps: tuple[AxisMap, ...], space: tuple[int, ...]) -> Leaf:
        used = {m.axis for m in maps}
        return Leaf(View(self.base(node), maps), node.dtype, tuple(a in used for a in range(len(space))))

    def base(self, node: Node) -> Any:
        if node in self.slots:
            return self.slots[node]
        if node.value is not None:
            return node.value
        if isinstance(node.op, Source):
            if not isinstance(node.op.array, StoredArray):
                return node.op.array
            stored = as_read(node.op.array, self.settings.budget)
            self.sources.add(stored)
            return stored
        assert isinstance(node.op, Concat | Reshape | Gather), node
        op, operands = self._layered(node)
        views = []
        for operand in operands:
            maps = tuple(AxisMap(a) for a in range(operand.ndim))
            while isinstance(operand.op, Affine) and operand.value is None and operand not in self.slots:
                maps = compose(operand.op.maps, maps)
                operand = operand.operands[0]
            views.append(View(self.base(operand), maps))
        grids = tuple(operand.grid for operand in operands)
        return Pieced(op, tuple(views), grids, node.shape, node.dtype, node.grid, op.name)

    def _layered(self, node: Node) -> tuple[Concat | Reshape | Gather, list[Node]]:
        """A move and its operands; assignments on top of each other are one move of many layers."""
        op = node.op
        assert isinstance(op, Concat | Reshape | Gather)
        if not isinstance(op, Assignment):
            return op, list(node.operands)
        layers, below = [node], node.operands[0]
        while below.value is None and below not in self.slots and op.goes_with(below.op):
            layers.append(below)
            below = below.operands[0]
        layers.reverse()
        return op.joined([layer.op for layer in layers]), [below, *(p for layer in layers for p in layer.operands[1:])]


# --- what is read of stored arrays -------------------------------------------------------------------


def as_read(stored: StoredArray, budget: int) -> StoredArray:
    """A stored array as a plan reads it: chunks that are large for the budget in parts, where their codec allows it."""
    if stored.layout.unit_nbytes <= WHOLE_SHARE * budget:
        return stored
    return in_parts(stored, min(PART_BYTES, max(PAGE, budget // PARTS_IN_BUDGET)))


def whole_chunks(leaves: Sequence[Leaf], least: int) -> str:
    """What to say of sources of which decoding a chunk takes so many bytes, and chunks are decoded whole."""
    said = []
    for stored in dict.fromkeys(s for leaf in leaves for s in stored_in(leaf.view.base)):
        taken = one_chunk(stored)
        if taken >= least and not is_divisible(stored):
            said.append(
                f"a stored chunk of {stored.name} must be decoded whole, since its codecs need all of its bytes: "
                f"{stored.layout.unit_nbytes:,} bytes, {taken:,} with the encoded ones and what the codecs take; store "
                "the array again with smaller chunks=, shards= around them if there would be too many, or uncompressed"
            )
    return "; ".join(said)


# --- chunks that several tiles want ------------------------------------------------------------------


def keep_chunks(stage: Stage, left: int) -> None:
    """Room for decoded chunks that several tiles want."""
    stage.cache = max(0, min(shared_chunks(stage), left))
    stage.reserve += stage.cache


def shared_chunks(stage: Stage) -> int:
    """Bytes of decoded chunks that wait at once for other tiles that want them.

    Of moves, and of folds in parts, which are done far from each other, it is all chunks of such sources.
    """
    wanted = 0
    seen: set[int] = set()
    waits = waiting(stage, decoded(stage)) if stage.parts == 1 else {}
    pieced = {s for leaf in stage.leaves if isinstance(leaf.view.base, Pieced) for s in stored_in(leaf.view.base)}
    for leaf in stage.leaves:
        for stored in stored_in(leaf.view.base):
            again = id(stored) in seen or isinstance(leaf.view.base, Pieced)
            seen.add(id(stored))
            if again or reads_per_chunk(leaf, stage.tiles) > 1:
                wanted += decoded_bytes(stored) if stored in pieced else _share(stored, waits.get(stored))
    return wanted


def _share(stored: StoredArray, nbytes: int | None) -> int:
    """What blocks take that hold so many bytes of an array's chunks; None stands for all."""
    whole = decoded_bytes(stored)
    values = stored.dtype.itemsize * math.prod(axis.largest * axis.nblocks for axis in stored.grid)
    return whole if nbytes is None else min(whole, -(-whole * nbytes // max(1, values)))


def stored_in(base: Any) -> list[StoredArray]:
    if isinstance(base, StoredArray):
        return [base]
    if isinstance(base, Pieced):
        return [stored for view in base.operands for stored in stored_in(view.base)]
    return []


def decoded_bytes(stored: StoredArray | Node) -> int:
    """Bytes of all chunks of a stored array in blocks of their own."""
    chunk = stored.dtype.itemsize * math.prod(axis.largest for axis in stored.grid)
    return block_bytes(chunk) * math.prod(axis.nblocks for axis in stored.grid)


# --- how a draft is cut ------------------------------------------------------------------------------


def _library_work(program: Program) -> list[Work]:
    """What libraries are called for in a program."""
    return [work for instr in program.body.instrs if instr.kind == "whole" for work in instr.payload.primitives]


def _device_of(program: Program, pinned: Any) -> Any:
    """Where a program's kernels run: on the host where they call what accelerators don't have."""
    device = local_device(pinned)
    if device.platform != "cpu" and any(work.name in HOST_ONLY for work in _library_work(program)):
        return host_device()
    return device


def _only_moves(program: Program, leaves: list[Leaf]) -> bool:
    """Whether a stage computes nothing: its tiles go from where they are read to where they are written."""
    body = program.body.instrs
    return not program.folds and not program.scans and len(leaves) == 1 and len(body) == 1 and all(leaves[0].spans)


def _loops(draft: Draft, outputs: list[Output], groups: list[GroupPlan]) -> tuple[list[int], list[int]]:
    """The axes that every result keeps, and the others; an ordered one is the last of these."""
    everything = range(len(draft.space))
    outer = {a for a in everything if outputs or any(a not in group.dropped for group in groups)} - {draft.ordered}
    inner = [a for a in everything if a not in outer and a != draft.ordered]
    return sorted(outer), inner + ([] if draft.ordered is None else [draft.ordered])


def _blocks_of(node: Node) -> Grid:
    """The blocks that a user's function is called with."""
    op = node.op
    assert isinstance(op, Blockwise)
    cuts = {a: axis for o, m in zip(node.operands, op.maps, strict=True) for a, axis in zip(m, o.grid, strict=True)}
    return tuple(cuts[a] for a in range(len(op.space)) if a not in op.whole)
