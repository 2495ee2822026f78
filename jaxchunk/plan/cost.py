"""What a stage costs: seconds over each link of a machine, and the link that binds.

A task reads, computes and writes one after another, and tasks run side by side: so the links' seconds
add up, each link's being divided by those who share its work. The bytes are those that the plan knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

from jaxchunk.graph.gathers import Gather
from jaxchunk.graph.primitives import Blockwise
from jaxchunk.lower.program import Program
from jaxchunk.plan.machines import Machine
from jaxchunk.plan.traffic import Traffic, sink_tier
from jaxchunk.run.runtime import runtime
from jaxchunk.run.sinks import ValueSink, WriteSink
from jaxchunk.run.stage import Leaf, Stage
from jaxchunk.run.views import Pieced, View
from jaxchunk.store.codecs import PlainCodec
from jaxchunk.store.stored import StoredArray

LINKS = ("reading", "writing", "disk", "memory", "transfers", "arithmetic", "tasks", "compiling")
"""Stored arrays, decoded; and encoded; values on disk; bytes copied, and gone through by kernels; between host and
device; operations; what each tile costs besides; compiling kernels that aren't known yet."""

# A kernel of so many instructions takes twice as long to compile as a short one.
_INSTRUCTIONS = 20
# Every shape of a tile is compiled for; beyond some they are hardly met.
_MOST_SHAPES = 8
# Kernels that only put folds' states together are small, and compiled with less optimisation.
_TINY = 0.4

_KINDS = {
    "fft": "transform",
    "fft of other lengths": "transform",
    "sort": "sort",
    "sort of integers": "sort",
    "top_k": "sort",
    "dot_general": "dot",
    "conv_general_dilated": "dot",
    "custom_call": "elementwise",
}
"""Rates of JAX's primitives, as the planner calls them; the others are factorisations."""


class Cost(NamedTuple):
    """Seconds in all and over each of the links; the one that takes longest."""

    seconds: float
    links: dict[str, float]
    bound_by: str


class AtHand(NamedTuple):
    """What earlier runs left: the numbers of stages whose kernels are known, and bytes of chunks by source."""

    compiled: frozenset[int]
    chunks: dict[StoredArray, int]


def at_hand(stages: Sequence[Stage]) -> AtHand:
    """What stages would find if they ran now."""
    compiled = (s.number for s in stages if s.kernels is not None and s.kernels.is_compiled(s.whole_tile))
    return AtHand(frozenset(compiled), {source: nbytes for source, _, nbytes in runtime().cache.kept_sources()})


def plan_cost(
    stages: Sequence[Stage], moved: Sequence[Traffic], machine: Machine, found: AtHand | None = None
) -> list[Cost]:
    """The cost of each stage.

    Parameters
    ----------
    found
        What is at hand on this machine, for which the tasks in flight were chosen. None where the machine is
        another one: nothing is there, and as many tasks are in flight as it has cores.
    """
    costs, computed = [], set[Any]()
    for stage, traffic in zip(stages, moved, strict=True):
        fresh = _computes(stage, traffic, computed)
        if fresh:
            computed.update(sink.slot for sink, _ in traffic.writes if isinstance(sink, ValueSink))
        costs.append(_stage_cost(_Work(stage, traffic, machine, found, fresh)))
    return costs


def _computes(stage: Stage, moved: Traffic, computed: Set[Any]) -> bool:
    """Whether a stage's results are floats that were computed, by itself or by stages whose values it moves."""
    outputs = [*stage.outputs, *(output for group in stage.groups for output in group.outputs)]
    if all(output.dtype.kind in "biu" for output in outputs):
        return False
    return stage.kernels is not None or any(base in computed for base in moved.reads)


def in_all(costs: Sequence[Cost]) -> Cost:
    """The cost of stages, one after another."""
    return _total({link: sum(cost.links[link] for cost in costs) for link in LINKS})


def _stage_cost(work: _Work) -> Cost:
    links = {
        "reading": work.reading(),
        "writing": work.writing(),
        "disk": work.disk(),
        "memory": work.memory(),
        "transfers": work.transfers(),
        "arithmetic": work.arithmetic(),
        "tasks": work.tiles * work.machine.task_seconds / work.threads,
        "compiling": work.compiling(),
    }
    return _total(links)


def _total(links: dict[str, float]) -> Cost:
    """The sum of links' seconds, and the slowest."""
    return Cost(sum(links.values()), links, max(links, key=lambda link: links[link]))


class _Work:
    """A stage's figures beside a machine's rates; the links' methods give seconds."""

    def __init__(self, stage: Stage, moved: Traffic, machine: Machine, found: AtHand | None, fresh: bool) -> None:
        self.stage, self.moved, self.machine, self.fresh = stage, moved, machine, fresh
        here = found is not None
        self.found = found or AtHand(frozenset(), {})
        self.program: Program | None = None if stage.kernels is None else stage.kernels.program
        self.tiles = math.prod(stage.tiles[a].nblocks for a in stage.outer) * stage.steps
        in_flight = max(1, stage.in_flight) if here else machine.cores
        self.tasks = max(1, min(in_flight, stage.tasks))
        # A task alone reads and writes its chunks on several threads.
        alone = stage.io_threads if here else machine.cores
        self.threads = max(1, alone) if self.tasks == 1 else self.tasks
        self.devices = min(self.tasks, machine.devices)

    def reading(self) -> float:
        seconds, nbytes = 0.0, 0
        for base, read in self.moved.reads.items():
            if isinstance(base, StoredArray):
                read = max(0, read - self.found.chunks.get(base, 0))
                codec = base.layout.codec
                raw = isinstance(codec, PlainCodec) and codec.is_raw
                chunk = base.dtype.itemsize * math.prod(axis.largest for axis in base.grid)
                seconds += read / (self.machine.read if raw else self.machine.decode)
                seconds += read / max(1, chunk) * self.machine.read_chunk_seconds
                nbytes += read
        return self._stored(seconds, nbytes)

    def writing(self) -> float:
        seconds, nbytes = 0.0, 0
        for sink, written in self.moved.writes:
            if isinstance(sink, WriteSink):
                # Chunks are compressed unless one asks for others.
                seconds += written / (self.machine.encode if self.fresh else self.machine.recode)
                seconds += math.prod(axis.nblocks for axis in sink.grid) * self.machine.write_chunk_seconds
                nbytes += written
        return self._stored(seconds, nbytes)

    def disk(self) -> float:
        read, written = self.moved.read("disk"), self.moved.written("disk")
        return self._stored(read / self.machine.spill_read + written / self.machine.spill_write, read + written)

    def memory(self) -> float:
        """Copies in host memory, and what kernels go through."""
        copied = self.moved.read("host") + self.moved.written("host")
        if self.program is None:
            copied += self._results()
            through = 0
        else:
            through = self._operands() + self._results()
        rate = self.machine.memory
        if self.program is not None and kind_of(self.program) == "dot":
            # Panels of the operands are copied, not gone through number by number.
            rate = max(rate, self.machine.host_memory)
        host = copied / self.machine.host_memory + self._gathered() / self.machine.gather
        return host / self.threads + through / rate / self.devices

    def transfers(self) -> float:
        if self.machine.transfer is None or self.program is None:
            return 0.0
        return (self._operands() + self._results()) / self.machine.transfer / self.devices

    def arithmetic(self) -> float:
        if self.program is None:
            return 0.0
        kind = kind_of(self.program)
        rate: float = getattr(self.machine, kind)
        # Products of matrices take all cores in one task.
        devices = self.machine.devices if kind == "dot" else self.devices
        return operations(self.stage) / rate / devices

    def compiling(self) -> float:
        stage, program = self.stage, self.program
        if program is None or stage.number in self.found.compiled:
            return 0.0
        shapes = min(_MOST_SHAPES, math.prod(max(1, len(axis.runs)) for axis in stage.tiles))
        folds = len(program.groups) * (1 + (stage.parts > 1))
        return self.machine.compile_seconds * (shapes * compiling_units(program) + folds * _TINY)

    def _stored(self, seconds: float, nbytes: int) -> float:
        """Seconds of cores, or of what they share where that is more."""
        beyond = max(0, nbytes - self.machine.cached)
        return max(seconds / self.threads, beyond / self.machine.storage)

    def _gathered(self) -> int:
        """Elements that are put in their places by data, each time they are."""
        return sum(self._given(leaf) for leaf in self.stage.leaves if _by_data(leaf.view))

    def _operands(self) -> int:
        """Bytes of the tiles that kernels are given."""
        return sum(leaf.dtype.itemsize * self._given(leaf) for leaf in self.stage.leaves)

    def _given(self, leaf: Leaf) -> int:
        """Elements of a leaf's tiles: again for each tile of the axes that it doesn't follow."""
        spanned = zip(self.stage.tiles, leaf.spans, strict=True)
        return math.prod(axis.length if spans else axis.nblocks for axis, spans in spanned)

    def _results(self) -> int:
        return sum(
            output.dtype.itemsize * math.prod(self.stage.space[a] for a in output.kept)
            for output in self.stage.outputs
            if any(sink_tier(sink) is not None for sink in output.sinks)
        )


def _by_data(view: View) -> bool:
    """Whether a view is of a move by data, or of moves of such."""
    base = view.base
    return isinstance(base, Pieced) and (isinstance(base.op, Gather) or any(map(_by_data, base.operands)))


def operations(stage: Stage) -> float:
    """Operations as rates count them: those on 64 bits count twice, since half as many fit in a vector."""
    if stage.kernels is None:
        return 0.0
    computed = (i.dtype for i in stage.kernels.program.body.instrs if i.kind in ("load", "call", "whole"))
    sizes = [dtype.itemsize // (2 if dtype.kind == "c" else 1) for dtype in computed]
    return stage.flops * max(1.0, max(sizes, default=4) / 4)


def compiling_units(program: Program) -> float:
    """How many short kernels' time compiling one of a program takes."""
    return 1 + program.size / _INSTRUCTIONS


def kind_of(program: Program) -> str:
    """The rate that a kernel's operations go by: the field of `Machine`."""
    if any(getattr(fold.reducer, "contracts", False) for fold in program.folds):
        return "dot"
    kinds = [_KINDS.get(name, "factor") for name in _primitives(program)]
    return next((kind for kind in kinds if kind != "elementwise"), "elementwise")


def _primitives(program: Program) -> Iterator[str]:
    """Names of JAX's primitives in bodies that want their operands whole."""
    for instr in program.body.instrs:
        if isinstance(instr.payload, Blockwise):
            yield from (work.name for work in instr.payload.primitives)
