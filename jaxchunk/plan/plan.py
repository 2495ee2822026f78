"""Plans: stages with their tiles, tiers and memory, made by a pure function of graph and budget."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxchunk import config
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.graph.grid import Grid
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Affine, AxisMap, Blockwise, Concat, Reshape, Source
from jaxchunk.lower.compile import CACHE, Kernels
from jaxchunk.lower.program import Program
from jaxchunk.plan.fuse import Draft, bases, exists, stages
from jaxchunk.plan.memory import Need, stage_need
from jaxchunk.plan.report import explain, to_dict
from jaxchunk.plan.simplify import PlanLimits, Simplifier
from jaxchunk.plan.tile import choose, describe, reads_per_chunk
from jaxchunk.run.keep import ONE_SHARE, REMEMBERED_SHARE, is_held
from jaxchunk.run.pool import block_bytes
from jaxchunk.run.profile import StageCounters, Totals, record
from jaxchunk.run.runtime import Runtime, runtime
from jaxchunk.run.sinks import ResultSink, ValueSink, WriteSink
from jaxchunk.run.stage import GroupPlan, Leaf, Output, Stage
from jaxchunk.run.values import HostValue, Slot
from jaxchunk.run.views import Pieced, View
from jaxchunk.store.stored import StoredArray

# What the process may grow by besides data: compiled code, threads, compilation.
RUNTIME_ALLOWANCE = {"cpu": 192 * 2**20}
# Values between stages may take this share of what results leave; stages work with the rest.
VALUES_SHARE = 0.5


@dataclasses.dataclass
class Write:
    """A lazy write: an array and where it goes.

    Attributes
    ----------
    node
        What is written.
    grid
        The write units: chunks, or shards.
    open_target
        Of the stored arrays that the run reads: makes the target.
    name
        For messages.
    """

    node: Node
    grid: Grid
    open_target: Callable[[Sequence[StoredArray]], Any]
    name: str
    done: bool = False


@dataclasses.dataclass
class Keep:
    """A request to compute a node and keep its array as a source of its own."""

    node: Node


class Plan:
    """How arrays and writes will be computed. Made by :func:`jaxchunk.plan`; nothing has run.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> plan = jc.plan(xp.sum(xp.ones((1000, 1000), chunks=100)))
    >>> len(plan.to_dict()["stages"])
    1
    """

    def __init__(self, requests: Sequence[Node | Write | Keep], settings: config.Settings, persisted: int = 0) -> None:
        started = time.perf_counter()
        self.requests = list(requests)
        self.settings = settings
        self.budget = settings.budget
        self.kept = self._persisted = persisted
        self.stages: list[Stage] = []
        self.problem: str | None = None
        self.results: list[ResultSink | None] = []
        self.sources: set[StoredArray] = set()
        self._build()
        self.seconds = time.perf_counter() - started
        self.measured: list[StageCounters] | None = None

    # --- making it ---------------------------------------------------------------------------

    def _build(self) -> None:
        simplifier = Simplifier(PlanLimits(self.budget))
        simple = simplifier.simplify([r if isinstance(r, Node) else r.node for r in self.requests])
        wanted = self.wanted = [_read(node) if exists(node) else node for node in simple]
        sinks: dict[Node, list[Any]] = {}
        results: dict[Node, ResultSink] = {}
        self.slots: dict[Node, Slot] = {}
        keep: set[Node] = set()
        for request, node in zip(self.requests, wanted, strict=True):
            if isinstance(request, Write):
                self._add_write(request, node, sinks)
                self.results.append(None)
                continue
            if isinstance(request, Keep):
                keep.add(node)
                sinks.setdefault(node, [])
                self.results.append(None)
                continue
            if node not in results:
                results[node] = ResultSink(node.shape, node.dtype)
                sinks.setdefault(node, []).append(results[node])
            self.results.append(results[node])
        self.handed_out = sum(r.nbytes for r in results.values())
        live = [node for node in sinks if node.size]
        self.read = {node for node in postorder(live, stop=exists) if node.value is not None}
        values = {id(node.value): node.value for node in self.read if isinstance(node.value, HostValue)}
        self.kept += sum(value.reserved for value in values.values())
        self.remember = self._rememberable(simplifier)
        drafts = stages(live, self.remember)
        made = {node for draft in drafts for node, _, _ in draft.roots}
        self.remember = {node: users for node, users in self.remember.items() if node in made}
        self._tile_all(drafts, sinks, keep)

    def _rememberable(self, simplifier: Simplifier) -> dict[Node, list[Node]]:
        """Small enough results that the user holds arrays of: canonical node → the user's nodes."""
        found: dict[Node, list[Node]] = {}
        total = 0
        for node, canonical in sorted(simplifier.known.items(), key=lambda pair: -pair[0].serial):
            if exists(canonical) or not canonical.size or not isinstance(canonical.op, Blockwise) or not is_held(node):
                continue
            if canonical not in found:
                if canonical.nbytes > ONE_SHARE * self.budget or total + canonical.nbytes > REMEMBERED_SHARE * self.budget:
                    continue
                total += canonical.nbytes
            found.setdefault(canonical, []).append(node)
        return found

    def _add_write(self, request: Write, node: Node, sinks: dict[Node, list[Any]]) -> None:
        unit = request.node.dtype.itemsize
        for axis in request.grid:
            unit *= axis.largest
        open_target = request.open_target

        def open_it() -> Any:
            return open_target(sorted(self.sources, key=lambda s: s.name))

        # A unit padded at the array's edge, and its encoding at worst.
        sinks.setdefault(node, []).append(WriteSink(request.grid, 2 * unit + unit // 16 + 65536, open_it))

    def _tile_all(self, drafts: list[Draft], sinks: dict[Node, list[Any]], keep: set[Node]) -> None:
        made_by = {node: i for i, draft in enumerate(drafts) for node, _, _ in draft.roots}
        last_use: dict[Node, int] = {}
        for i, draft in enumerate(drafts):
            for base in draft.reads():
                if base in made_by:
                    last_use[base] = i
        end = len(drafts)
        last_use |= {node: end for node in (*keep, *self.remember) if node in made_by}
        slots = self.slots
        free = self.budget - self.handed_out - self.kept
        room_for_values = int(free * VALUES_SHARE)
        live = {i: 0 for i in range(end + 1)}
        self.peak = 0
        for i, draft in enumerate(drafts):
            for node, _, _ in draft.roots:
                if node in last_use:
                    fits = all(live[j] + node.nbytes * 1.1 + 4096 <= room_for_values for j in range(i, last_use[node] + 1))
                    if fits:
                        for j in range(i, last_use[node] + 1):
                            live[j] += int(node.nbytes * 1.1) + 4096
                    slots[node] = Slot((), node.dtype, node.op.name, "host" if fits else "disk")
            room = free - live[i]
            stage = self._stage(i, draft, slots, sinks, room)
            stage.frees = [slots[node] for node, last in last_use.items() if last == i]
            self.stages.append(stage)
        held: dict[int, int] = {}
        for node, last in last_use.items():
            for j in range(made_by[node], last + 1):
                held[j] = held.get(j, 0) + slots[node].nbytes
        self.peak = max((s.reserve + held.get(s.number, 0) for s in self.stages), default=0) + self.handed_out + self.kept
        if self.problem is None and self.peak > self.budget:
            self.problem = (
                f"the results and intermediates need {self.peak:,} bytes, the budget is {self.budget:,}: "
                "write large results with to_zarr, or raise host_memory"
            )

    def _stage(self, number: int, draft: Draft, slots: dict[Node, Slot], sinks: dict[Node, list[Any]], room: int) -> Stage:
        builder, program = draft.builder, draft.builder.program
        leaves = [self._leaf(node, maps, draft.space, slots) for node, maps in builder.leaves]
        outputs: list[Output] = []
        groups: list[GroupPlan] = []
        for group in program.groups:
            group_leaves = [self._leaf(n, m, draft.space, slots) for n, m in builder.group_leaves.get(group.dropped, [])]
            groups.append(GroupPlan(group.dropped, tuple(group.folds), group_leaves, []))
        for node, dropped, _ in draft.roots:
            kept = tuple(a for a in range(len(draft.space)) if dropped is None or a not in dropped)
            if draft.exact is node:
                kept = kept[: node.ndim]
            output = Output(node.op.name, kept, node.dtype, list(sinks.get(node, [])))
            if draft.exact is node:
                output.grid = node.grid
            if node in slots:
                output.sinks.append(ValueSink(slots[node]))
            if dropped is None:
                outputs.append(output)
            else:
                next(g for g in groups if g.dropped == dropped).outputs.append(output)
        everything = [*outputs, *(o for g in groups for o in g.outputs)]
        units = [1] * len(draft.space)
        for output in everything:
            for sink in output.sinks:
                if isinstance(sink, WriteSink):
                    for a, axis in zip(output.kept, sink.grid, strict=True):
                        units[a] = int(np.lcm(units[a], max(1, axis.largest)))
        fixed = {a: _one_block(draft.space[a]) for a in draft.whole}
        if draft.exact is not None:
            fixed |= dict(enumerate(_block_grid(draft.exact)))
        contraction = any(f.reducer.contracts for f in program.folds)
        ordered = draft.ordered
        moving = not program.folds and not program.scans and all(i.kind == "load" for i in program.body.instrs) and len(leaves) == 1 and all(leaves[0].spans)
        itemsize = max([1, *(leaf.dtype.itemsize for leaf in leaves), *(o.dtype.itemsize for o in everything)])
        axes = describe(draft.space, leaves, units, fixed, itemsize, contraction)
        kept_by_any = [set(range(len(draft.space)))] if outputs else [set(range(len(draft.space))) - set(g.dropped) for g in groups]
        outer_set = set().union(*kept_by_any) - ({ordered} if ordered is not None else set())
        outer = sorted(outer_set)
        inner = [a for a in range(len(draft.space)) if a not in outer_set and a != ordered]
        if ordered is not None:
            inner.append(ordered)
        threads = self.settings.cores
        traced = None if moving else program

        def need(tiles: Grid, outer: Sequence[int], parts: int, in_flight: int) -> Need:
            io = 1 if in_flight > 1 else threads
            return stage_need(traced, leaves, outputs, groups, tiles, outer, parts, in_flight, io)

        tiling, fits = choose(axes, outer, inner, room, threads, contraction, need, ordered is not None)
        stage = Stage(
            number=number,
            name="+".join(list(builder.operations)[-4:]) or (draft.roots[0][0].op.name),
            operations=list(builder.operations),
            where=draft.roots[0][0].where,
            space=draft.space,
            tiles=tiling.tiles,
            outer=tiling.outer,
            inner=tiling.inner,
            parts=tiling.parts,
            leaves=leaves,
            outputs=outputs,
            groups=groups,
            kernels=None if moving else Kernels(program, jax.local_devices(backend="cpu")[0]),
            ordered=ordered,
            in_flight=tiling.in_flight,
            reserve=tiling.need.total(tiling.in_flight),
            indices=program.indices,
        )
        for node, _, _ in draft.roots:
            if node in slots:
                output = next(o for o in everything if any(getattr(s, "slot", None) is slots[node] for s in o.sinks))
                slot = slots[node]
                slot.grid = output.grid if output.grid is not None else stage.kept_grid(output.kept)
                slot.shape = node.shape
        self._keep_chunks(stage, room - stage.reserve)
        stage.flops = builder.flops * _size(draft.space)
        if not fits and self.problem is None:
            self.problem = (
                f"{stage.name} (asked for at {stage.where}) needs {stage.reserve:,} bytes with its smallest tiles "
                f"{tuple(a.largest for a in stage.tiles)}, and there are {max(0, room):,} of a budget of {self.budget:,}: "
                f"raise host_memory (device_memory) to {stage.reserve + self.budget - room:,} bytes"
            )
        return stage

    def _keep_chunks(self, stage: Stage, left: int) -> None:
        """Room for decoded chunks that several tiles want."""
        wanted = 0
        bases_seen: dict[int, int] = {}
        for leaf in [*stage.leaves]:
            base = leaf.view.base
            for stored in _stored_bases(base):
                bases_seen[id(stored)] = bases_seen.get(id(stored), 0) + 1
                chunk = block_bytes(stored.dtype.itemsize * int(np.prod([a.largest for a in stored.grid], dtype=np.int64)))
                total = block_bytes(stored.dtype.itemsize * int(np.prod(stored.shape, dtype=np.int64)))
                shared = isinstance(base, Pieced) or bases_seen[id(stored)] > 1 or reads_per_chunk(leaf, stage.tiles) > 1.01
                if shared:
                    wanted += max(min(total, left), chunk)
        stage.cache = max(0, min(wanted, left))
        stage.reserve += stage.cache

    def _leaf(self, node: Node, maps: tuple[AxisMap, ...], space: tuple[int, ...], slots: dict[Node, Slot]) -> Leaf:
        used = {m.axis for m in maps}
        return Leaf(View(self._base(node, slots), maps), node.dtype, tuple(a in used for a in range(len(space))))

    def _base(self, node: Node, slots: dict[Node, Slot]) -> Any:
        if node in slots:
            return slots[node]
        if node.value is not None:
            return node.value
        if isinstance(node.op, Source):
            if isinstance(node.op.array, StoredArray):
                self.sources.add(node.op.array)
            return node.op.array
        assert isinstance(node.op, Concat | Reshape), node
        views = []
        for operand in node.operands:
            maps = tuple(AxisMap(a) for a in range(operand.ndim))
            while isinstance(operand.op, Affine) and operand.value is None and operand not in slots:
                from jaxchunk.plan.simplify import compose

                maps = compose(operand.op.maps, maps)
                operand = operand.operands[0]
            views.append(View(self._base(operand, slots), maps))
        return Pieced(node.op, tuple(views), node.shape, node.dtype, node.grid, node.op.name)

    # --- using it ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All figures, for machines: bytes, seconds; `stages` in the order in which they run."""
        return to_dict(self)

    def explain(self) -> str:
        """The plan as a text; it works for a plan that doesn't fit, too."""
        return explain(self)

    def run(self, on_task: Callable[[Stage, int], None] | None = None) -> list[Any]:
        """Compute: one entry per request, an array, or None for a write.

        Raises
        ------
        MemoryBudgetError
            Before anything runs, where it can't be done within the budget.
        SourceChangedError
            Where a stored source was replaced since it was opened.
        RuntimeError
            Where the budget has changed since the plan was made.
        """
        if self.problem is not None:
            raise MemoryBudgetError(self.problem)
        if config.get().budget != self.budget:
            raise RuntimeError(f"planned for {self.budget:,} bytes, and the budget is {config.get().budget:,}: plan again")
        return self._run(runtime(), on_task)

    def _run(self, machine: Runtime, on_task: Callable[[Stage, int], None] | None) -> list[Any]:
        started = time.perf_counter()
        compiled, compile_seconds = CACHE.compiled, CACHE.seconds
        with machine.run(self.settings):
            if machine.persisted != self._persisted or any(node.value is None for node in self.read):
                raise RuntimeError("arrays were kept or let go since the plan was made: plan again")
            for source in self.sources:
                source.check()
            machine.keeper.read_again(self.sources)
            conveniences = machine.keeper.forget(self.budget - self.peak, self.read)
            counters = machine.execute(self.stages, self.settings, on_task or (lambda stage, done: None))
            for source in self.sources:
                if not any(isinstance(r, Write) for r in self.requests):
                    source.check()
            self.measured = counters
            totals = Totals(
                runs=1,
                seconds=time.perf_counter() - started,
                plan_seconds=self.seconds,
                compile_seconds=CACHE.seconds - compile_seconds,
                kernels_compiled=CACHE.compiled - compiled,
                ledger_peak_bytes=machine.ledger.held_peak,
                reserved_peak_bytes=machine.ledger.reserved_peak,
                planned_peak_bytes=self.peak + conveniences,
                spilled_bytes=sum(c.spilled_bytes for c in counters),
                handed_out_bytes=self.handed_out,
                bytes_read=sum(c.bytes_read for c in counters),
                bytes_written=sum(c.bytes_written for c in counters),
            )
        record(totals, counters)
        return self._answers()

    def _answers(self) -> list[Any]:
        keeper = runtime().keeper
        keeper.drop_unused(self.read)
        kept = {node: slot.take() for node, slot in self.slots.items() if slot.value is not None}
        for node, users in self.remember.items():
            value = kept.get(node)
            if isinstance(value, HostValue):
                keeper.remember(users, value)
        answers: list[Any] = []
        for request, node, result in zip(self.requests, self.wanted, self.results, strict=True):
            if isinstance(request, Keep):
                answers.append(kept.get(node))
            elif result is None or isinstance(request, Write):
                answers.append(None)
            else:
                answers.append(result.array if node.size else np.empty(node.shape, node.dtype))
        return answers


def _read(node: Node) -> Node:
    """An array that exists as something to compute: all of it is read."""
    maps = tuple(AxisMap(a) for a in range(node.ndim))
    return Node(Affine("read", maps), (node,), node.grid, node.dtype, node.device, node.where)


def _one_block(length: int) -> Any:
    from jaxchunk.graph.grid import Axis

    return Axis.regular(length, max(1, length))


def _block_grid(node: Node) -> Grid:
    """The blocks that a user's function is called with: those of the operands along each axis."""
    op = node.op
    assert isinstance(op, Blockwise)
    cuts = {a: axis for o, m in zip(node.operands, op.maps, strict=True) for a, axis in zip(m, o.grid, strict=True)}
    return tuple(cuts[a] for a in range(len(op.space)) if a not in op.whole)


def _stored_bases(base: Any) -> list[StoredArray]:
    if isinstance(base, StoredArray):
        return [base]
    if isinstance(base, Pieced):
        return [s for view in base.operands for s in _stored_bases(view.base)]
    return []


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) if shape else 1


__all__ = ["Plan", "Program", "Write", "bases", "exists"]
