"""From drafts to stages: where values between them lie, and what is done where one doesn't fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxchunk.config import Settings
from jaxchunk.graph.gathers import Gather
from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Affine, AxisMap, Move, Reshape
from jaxchunk.plan.fuse import Draft, draft_of, exists
from jaxchunk.plan.stages import StageMaker, decoded_bytes, keep_chunks, shared_chunks, stored_in
from jaxchunk.plan.strips import interleave
from jaxchunk.plan.tile import reads_per_chunk
from jaxchunk.plan.traffic import traffic
from jaxchunk.run.sinks import WriteSink
from jaxchunk.run.stage import Leaf, Stage
from jaxchunk.run.values import SHORT_RUN, Slot
from jaxchunk.run.views import Pieced
from jaxchunk.store.stored import StoredArray

# Values between stages may take the first of these shares of what results leave; stages work with the rest. Where one
# doesn't fit beside them, the next: all values are on disk at last.
VALUES_SHARES = (0.5, 0.2, 0.0)
# Decoding a source more often than this costs more than a copy of it on disk that is read in any shape.
MOST_READS = 2.5


class Assembler:
    """Stages of one plan, made in order.

    Attributes
    ----------
    stages
        Those made so far.
    slots
        The intermediates, by the node they are values of.
    problem, misfit
        Why the plan doesn't fit, and the stage that doesn't; None where all do.
    crowded
        Whether it would have more room if fewer values between stages were in memory.

    Parameters
    ----------
    share
        Of the room, for values between stages.
    """

    def __init__(
        self,
        settings: Settings,
        room: int,
        sinks: dict[Node, list[Any]],
        sources: set[StoredArray],
        share: float = VALUES_SHARES[0],
    ) -> None:
        self.room, self.share = room, share
        self.maker = StageMaker(settings, sinks, sources)
        self.sinks, self.slots = sinks, self.maker.slots
        self.stages: list[Stage] = []
        self.problem: str | None = None
        self.misfit: Stage | None = None
        self.crowded = False
        self._live: dict[int, int] = {}
        self._copies: dict[Node, Slot] = {}

    def assemble(self, drafts: list[Draft], kept: Sequence[Node]) -> None:
        """Make the stages; values of `kept` nodes outlive the run."""
        made = {node for draft in drafts for node, _, _ in draft.roots}
        last_use = {base: i for i, draft in enumerate(drafts) for base in draft.reads() if base in made}
        last_use |= {node: len(drafts) for node in kept if node in made}
        last_read = {base: i for i, draft in enumerate(drafts) for base in draft.reads() if exists(base)}
        live = [0] * (len(drafts) + 1)
        for i, draft in enumerate(drafts):
            for node in (node for node, _, _ in draft.roots if node in last_use):
                reach = range(i, last_use[node] + 1)
                fits = all(live[j] + node.nbytes <= self.room * self.share for j in reach)
                for j in reach:
                    live[j] += node.nbytes if fits else 0
                self.slots[node] = Slot(node.grid, node.dtype, node.op.name, "host" if fits else "disk")
            first, fitted = len(self.stages), self.problem is None
            self._add(draft, self.room - live[i])
            self.crowded |= fitted and self.problem is not None and live[i] > 0
            for stage in self.stages[first:]:
                self._live[stage.number] = live[i]
            self.stages[-1].frees += [self.slots[node] for node, last in last_use.items() if last == i]
            for source in [source for source in self._copies if last_read[source] <= i]:
                self.stages[-1].frees.append(self._copies.pop(source))
                del self.slots[source]
        interleave(self.stages, self.room - max(live))

    @property
    def peak(self) -> int:
        """Bytes that stages, and the values that live while they run, take at most."""
        return max((stage.reserve + self._live[stage.number] for stage in self.stages), default=0)

    def _append(self, stage: Stage) -> None:
        stage.number = len(self.stages)
        self.stages.append(stage)
        for leaf in [*stage.leaves, *(leaf for group in stage.groups for leaf in group.leaves)]:
            if isinstance(leaf.view.base, Slot):
                _cut_for_reading(leaf.view.base, leaf.view.maps, stage.tiles)

    def _add(self, draft: Draft, room: int) -> None:
        stage, misfit = self.maker.make(draft, room)
        if misfit is not None and len(draft.roots) > 1:
            # Siblings share a pass where memory allows; here it doesn't.
            for node, _, _ in draft.roots:
                self._add(draft_of(node, draft.builder.anchors), room)
            return
        shared = shared_chunks(stage)
        copied = [i for i, leaf in enumerate(stage.leaves) if _wants_copy(stage, leaf, shared, misfit is not None)]
        if copied:
            # Where all chunks can stay decoded beside smaller tiles, they are read once all the same.
            chunks = sum(
                {id(s): decoded_bytes(s) for i in copied for s in stored_in(stage.leaves[i].view.base)}.values()
            )
            smaller, lacking = self.maker.make(draft, room - chunks)
            if lacking is None:
                smaller.reserve -= smaller.cache
                keep_chunks(smaller, chunks)
                self._append(smaller)
                return
            if self._add_by_copies(draft, copied, stage, room):
                return
        elif self._add_by_source_copies(draft, stage, room):
            return
        if misfit is None and stage.cache < shared and not draft.builder.program.direct:
            # Chunks that several tiles want are read again, unless smaller tiles leave room for them.
            smaller, lacking = self.maker.make(draft, room // 2)
            if lacking is None:
                smaller.reserve -= smaller.cache
                keep_chunks(smaller, room - smaller.reserve)
                stage = smaller
            else:
                stage, misfit = self.maker.make(draft, room)
        if misfit is not None and self._add_and_write_later(draft, stage, room):
            return
        self._append(stage)
        if misfit is not None and self.problem is None:
            self.problem, self.misfit = misfit, stage

    def _add_and_write_later(self, draft: Draft, stage: Stage, room: int) -> bool:
        """Make a stage that holds no whole chunks of what is written: its result is, from disk, by another one.

        Nothing is done where that doesn't fit either, or it would do no more than that one.
        """
        ((node, _, _),) = draft.roots
        writes = [sink for sink in self.sinks.get(node, []) if isinstance(sink, WriteSink)]
        plain = stage.kernels is None and not isinstance(stage.leaves[0].view.base, Pieced)
        kept = isinstance(node.op, Move) and node in self.slots
        if not writes or plain or kept or self.misfit is not None:
            return False
        before, sinks = len(self.stages), self.sinks[node]
        made, first = node, draft
        if isinstance(node.op, Move):  # a stage that makes a move reads it: its value is another node's
            made = identity(node.op.name, node)
            first = draft_of(made)
        held = made in self.slots
        value = self.slots.setdefault(made, Slot(node.grid, node.dtype, node.op.name, "disk"))
        written = identity("write", made)
        self.sinks[made], self.sinks[written] = [sink for sink in sinks if sink not in writes], writes
        for part in (first, draft_of(written, {made})):
            self._add(part, room)
        if self.problem is None:
            self.stages[-1].frees += [] if held else [value]
            return True
        del self.stages[before:]
        self.problem = self.misfit = None
        self.sinks[node] = sinks
        if not held:
            del self.slots[made]
        self.maker.make(draft, room)  # its results' slots have this tiling's grids again
        return False

    # --- rechunking by way of a copy -------------------------------------------------------------

    def _add_by_copies(self, draft: Draft, leaves: list[int], stage: Stage, room: int) -> bool:
        """Make a stage in two passes; nothing is done where these don't fit either."""
        before, views = len(self.stages), list(draft.builder.leaves)
        fits = True
        for i in leaves:
            fits &= self._copy(draft, i, stage, room)
        second, misfit = self.maker.make(draft, room)
        second.frees = [self.slots[draft.builder.leaves[i][0]] for i in leaves]
        if fits and misfit is None:
            self._append(second)
            return True
        del self.stages[before:]
        draft.builder.leaves[:] = views
        self.maker.make(draft, room)  # its results' slots have this tiling's grids again
        return False

    def _copy(self, draft: Draft, number: int, stage: Stage, room: int) -> bool:
        """A stage before this one that reads a leaf's chunks once and keeps them on disk, uncompressed.

        It is the first pass of two: both then read and write in shapes that suit them. Tells whether
        it fits.
        """
        node, maps = draft.builder.leaves[number]
        axes = sorted(m.axis for m in maps if m.axis is not None)
        place = {axis: i for i, axis in enumerate(axes)}
        view = tuple(m if m.axis is None else m._replace(axis=place[m.axis]) for m in maps)
        grid = tuple(Axis.regular(draft.space[a], draft.space[a]) for a in axes)
        copy = Node(Affine("copy", view), (node,), grid, node.dtype, node.device, draft.roots[0][0].where)
        self.slots[copy] = Slot(grid, node.dtype, "copy", "disk")
        first, misfit = self.maker.make(draft_of(copy), room)
        _cut_for_reading(self.slots[copy], [AxisMap(a) for a in axes], stage.tiles)
        self._append(first)
        draft.builder.leaves[number] = (copy, tuple(AxisMap(a) for a in axes))
        return misfit is None

    def _add_by_source_copies(self, draft: Draft, stage: Stage, room: int) -> bool:
        """Make a stage after copies of the sources whose chunks it would decode again and again for its pieces.

        The copies are on disk, where any part is read as it lies; later stages read them, too. Nothing is
        done where these stages don't fit.
        """
        sources = self._decoded_often(draft, stage)
        if not sources:
            return False
        before, fits = len(self.stages), True
        slots: dict[Node, Slot] = {}
        for source in sources:
            copy = identity("copy", source)
            slots[source] = self.slots[copy] = Slot(source.grid, source.dtype, "copy", "disk")
            first, misfit = self.maker.make(draft_of(copy), room)
            self._append(first)
            fits &= misfit is None
        self.slots.update(slots)
        second, misfit = self.maker.make(draft, room)
        if fits and misfit is None:
            self._append(second)
            self._copies.update(slots)
            return True
        for source in sources:
            del self.slots[source]
        del self.stages[before:]
        self.maker.make(draft, room)  # its results' slots have this tiling's grids again
        return False

    def _decoded_often(self, draft: Draft, stage: Stage) -> list[Node]:
        """The stored sources below reshapes that a stage decodes so often that a copy of them is cheaper."""
        below: dict[Node, None] = {}
        gathered = False
        for node, _ in draft.builder.leaves:
            if isinstance(node.op, Move) and node not in self.slots:
                found = list(postorder([node], stop=lambda n: n in self.slots or exists(n)))
                if any(isinstance(n.op, Reshape) for n in found):
                    below |= {n: None for n in found if exists(n) and isinstance(self.maker.base(n), StoredArray)}
                    gathered |= any(isinstance(n.op, Gather) for n in found)
        reads = traffic(stage).reads if below else {}

        def is_often(source: Node) -> bool:
            # What a gather reads isn't known, but that its boxes are long: across chunks they meet many.
            across = gathered and any(axis.nblocks > 1 for axis in source.grid[1:])
            if across and decoded_bytes(source) > stage.cache:
                return True
            return reads.get(self.maker.base(source), 0) > MOST_READS * source.nbytes

        return [source for source in below if is_often(source)]


def _wants_copy(stage: Stage, leaf: Leaf, shared: int, misfits: bool) -> bool:
    """Whether a copy of a leaf's source is cheaper than decoding it; `shared` bytes of chunks wait for other tiles."""
    base = leaf.view.base
    if not isinstance(base, StoredArray) or stage.cache >= min(decoded_bytes(base), shared):
        return False
    # A chunk is decoded whole: where it doesn't fit beside the tile, the copy is read in parts.
    return reads_per_chunk(leaf, stage.tiles) > (1 if misfits else MOST_READS)


def identity(name: str, node: Node) -> Node:
    """A node of the same value."""
    maps = tuple(AxisMap(a) for a in range(node.ndim))
    return Node(Affine(name, maps), (node,), node.grid, node.dtype, node.device, node.where)


def _cut_for_reading(slot: Slot, maps: Sequence[AxisMap], tiles: Grid) -> None:
    """Cut what is written to disk into blocks that a stage that reads it needn't cut, nor the one that makes it."""
    if slot.tier != "disk":
        return
    grid = tuple(
        axis if m.axis is None else _common(axis, tiles[m.axis].largest * abs(m.step))
        for axis, m in zip(slot.grid, maps, strict=True)
    )
    if math.prod(axis.largest for axis in grid) * slot.dtype.itemsize >= SHORT_RUN:
        slot.grid = grid


def _common(tiles: Axis, other: int) -> Axis:
    """Blocks of at most `other` that divide the tiles of an axis."""
    size = tiles.largest
    if size <= other or not tiles.is_regular():
        return tiles
    parts = next((k for k in range(-(-size // other), 4 * -(-size // other)) if size % k == 0), None)
    return tiles if parts is None else Axis.regular(tiles.length, size // parts)
