"""Plans: what will be run, made by a pure function of graph, storage and budget."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxchunk import config
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Blockwise, Check, Move
from jaxchunk.lower.compile import CACHE
from jaxchunk.plan.assemble import VALUES_SHARES, Assembler, identity
from jaxchunk.plan.cost import AtHand, at_hand
from jaxchunk.plan.drawing import svg
from jaxchunk.plan.explain import explain
from jaxchunk.plan.fuse import exists, stages
from jaxchunk.plan.machines import Machine
from jaxchunk.plan.page import fragment, page
from jaxchunk.plan.report import to_dict
from jaxchunk.plan.requests import Keep, Request, Write
from jaxchunk.plan.simplify import PlanLimits, Simplifier
from jaxchunk.plan.traffic import Traffic, traffic
from jaxchunk.run.keep import ONE_SHARE, REMEMBERED_SHARE, is_held
from jaxchunk.run.profile import StageCounters, Totals, record
from jaxchunk.run.runtime import Runtime, runtime
from jaxchunk.run.sinks import CheckSink, ResultSink, WriteSink
from jaxchunk.run.stage import Stage
from jaxchunk.run.values import HostValue, Slot
from jaxchunk.store.stored import StoredArray

# Budgets that many times as large are looked at for one that would do.
MOST_GROWN = 1024


class Plan:
    """How arrays and writes will be computed. Made by :func:`jaxchunk.plan`; nothing has run.

    Attributes
    ----------
    budget, peak
        The budget it was made for, and an upper bound of what the run takes of it; in bytes.
    problem
        Why it doesn't fit, or None.
    seconds
        How long making it took.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> plan = jc.plan(xp.sum(xp.ones((1000, 1000), chunks=100)))
    >>> len(plan.to_dict()["stages"])
    1
    """

    def __init__(self, requests: Sequence[Request], settings: config.Settings, persisted: int = 0) -> None:
        started = time.perf_counter()
        self.requests = list(requests)
        self.settings = settings
        self.budget = settings.budget
        self._persisted = persisted
        simplifier = Simplifier(PlanLimits(self.budget))
        simple = simplifier.simplify([r if isinstance(r, Node) else r.node for r in self.requests])
        reads = {n: _read(n) for n, r in zip(simple, self.requests, strict=True) if _is_read(n, r)}
        self._wanted = [reads.get(node, node) for node in simple]
        checks = [(_read(n) if exists(n) else n, check) for n, check in simplifier.guards.values()]
        self._sources: set[StoredArray] = set()
        self._make_sinks(checks)
        live = [node for node in dict.fromkeys([*self._wanted, *(node for node, _ in checks)]) if node.size]
        # Values that are there already: those this plan reads count, others make way.
        self._read = {node for node in postorder(live, stop=exists) if node.value is not None}
        values = {id(node.value): node.value for node in self._read if isinstance(node.value, HostValue)}
        taken = persisted + sum(value.reserved for value in values.values()) + self.handed_out
        wishes = self._rememberable(simplifier)
        met = {canonical for node, canonical in simplifier.known.items() if node.met}
        drafts, cuts = stages(live, wishes, met)
        self._known = list(simplifier.known)
        # A chain that was cut goes on from there the next time, too: a loop's past isn't computed again.
        remembered = {canonical: list(users) for canonical, users in wishes.items()}
        for node, canonical in simplifier.known.items():
            if canonical in cuts:
                remembered.setdefault(canonical, []).append(node)
        made = {node for draft in drafts for node, _, _ in draft.roots}
        keep = [node for node, request in zip(self._wanted, self.requests, strict=True) if isinstance(request, Keep)]
        # What is kept on request isn't remembered as well: that could be dropped.
        self._remember = {node: users for node, users in remembered.items() if node in made and node not in keep}
        room = max(0, self.budget - taken)
        for share in VALUES_SHARES:
            if share != VALUES_SHARES[0]:
                drafts, _ = stages(live, wishes, met)  # those at hand have changed
            self._assembler = Assembler(settings, room, self._make_sinks(checks), self._sources, share)
            self._assembler.assemble(drafts, [*keep, *self._remember])
            if not self._assembler.crowded:
                break
        self.peak = self._assembler.peak + taken
        self.problem = self._assembler.problem
        fits = self.problem is None
        if (fits and self.peak > self.budget) or (not fits and 2 * self.handed_out > self.budget):
            self.problem = (
                f"the results asked for at {self._wanted[0].where} ({self.handed_out:,} bytes), what is kept and the "
                f"way to them need {self.peak:,} bytes, "
                f"the budget is {self.budget:,}: write large results with to_zarr, or raise host_memory"
            )
        self.measured: list[StageCounters] | None = None
        self.totals: Totals | None = None
        self.at_hand: AtHand | None = None
        self.seconds = time.perf_counter() - started

    @property
    def stages(self) -> list[Stage]:
        return self._assembler.stages

    @cached_property
    def traffic(self) -> list[Traffic]:
        """What each stage reads and writes, modelled."""
        return [traffic(stage) for stage in self.stages]

    @property
    def misfit(self) -> Stage | None:
        """The stage that the problem is about, if it is about one."""
        return None if self.results_too_large else self._assembler.misfit

    @property
    def results_too_large(self) -> bool:
        """Whether the problem is about what is handed out, or kept."""
        return self.problem is not None and self.problem != self._assembler.problem

    def asked_of(self, sink: ResultSink) -> list[int]:
        """The requests, by number, that a result answers."""
        return [i for i, node in enumerate(self._wanted) if self._results.get(node) is sink]

    def users_of(self, slot: Slot) -> list[Node]:
        """The nodes that a value will be remembered for."""
        return [n for node, users in self._remember.items() if self._assembler.slots.get(node) is slot for n in users]

    def _make_sinks(self, checks: Sequence[tuple[Node, Check]]) -> dict[Node, list[Any]]:
        """Where each wanted node's tiles go, and those that are only looked at."""
        sinks: dict[Node, list[Any]] = {node: [] for node in self._wanted}
        self._results: dict[Node, ResultSink] = {}
        places = [r.place for r in self.requests if isinstance(r, Write) and r.place is not None]
        if len(places) != len(set(places)):
            names = [r.name for r in self.requests if isinstance(r, Write)]
            raise ValueError(f"two arrays are to be written to one place: {', '.join(sorted(names))}")
        for request, node in zip(self.requests, self._wanted, strict=True):
            if isinstance(request, Write):
                sinks[node].append(self._write_sink(request))
            elif not isinstance(request, Keep) and node not in self._results:
                self._results[node] = ResultSink(node.shape, node.dtype)
                sinks[node].append(self._results[node])
        self.handed_out = sum(result.nbytes for result in self._results.values())
        for node, check in checks:
            sinks.setdefault(node, []).append(CheckSink(check))
        return sinks

    def _write_sink(self, request: Write) -> WriteSink:
        unit = request.node.dtype.itemsize
        for axis in request.grid:
            unit *= axis.largest

        sources, open_target = self._sources, request.open_target

        def open_it() -> Any:
            return open_target(list(sources))

        # A unit padded at the array's edge, and its encoding at worst.
        return WriteSink(request.grid, 2 * unit + unit // 16 + 65536, open_it, request.name)

    def _rememberable(self, simplifier: Simplifier) -> dict[Node, list[Node]]:
        """Small enough results that the user holds arrays of: canonical node → the user's nodes.

        The latest come first: a loop asks for them again.
        """
        found: dict[Node, list[Node]] = {}
        total = 0
        for node, canonical in sorted(simplifier.known.items(), key=lambda pair: -pair[0].serial):
            if exists(canonical) or not canonical.size or not isinstance(canonical.op, Blockwise) or not is_held(node):
                continue
            if canonical not in found:
                over = total + canonical.nbytes > REMEMBERED_SHARE * self.budget
                if over or canonical.nbytes > ONE_SHARE * self.budget:
                    continue
                total += canonical.nbytes
            found.setdefault(canonical, []).append(node)
        return found

    # --- using it ----------------------------------------------------------------------------

    def to_dict(self, *, machine: str | Machine | None = None) -> dict[str, Any]:
        """All figures, for machines: plain dicts, lists and numbers. Nothing runs.

        Bytes, modelled: `budget`, `peak_bytes` (on a CPU equal to `peak_host_bytes` and
        `peak_device_bytes`), `peak_disk_bytes` (spilled at once), `runtime_allowance`,
        `handed_out_bytes`; `bytes_read` and `bytes_written` (of stored arrays, decoded),
        `spilled_bytes` and `spill_read_bytes` (to files of our own, and back). `sources` are the stored
        arrays, each with `name`, `bytes`, `bytes_read` and `passes`, how often it is read; `passes` is the
        same of all together, None where there are none. `flops`; `seconds`, of which `link_seconds` are the parts;
        `bound_by`, the link that takes longest; `machine`, the rates that they are by. `fits`, and the `problem`,
        None where it does. `measured` is what `jaxchunk.profile` gives of the last run, None before.

        `stages` are in the order in which they run, each with `name`, `operations`, `where` (the
        user's line), `grid` (runs of (count, size) of tiles along each axis), `tile`, `tasks`,
        `in_flight`; `device_bytes` and `host_bytes` (on a CPU one figure, its own), `values_bytes` and
        `disk_bytes` (values between stages that live while it runs); the sums above, and `tiers`, with
        `read` and `written` of "storage", "disk" and "host"; `seconds`, of which `link_seconds` are the
        parts, and `bound_by`; `strip_of`, the stage that it takes turns with; `fits`; `measured`, as in
        a profile; and `kernel`: `form` ("move", "loop", "fold", "scan", "direct" or "block"),
        `instructions`, `pieces` of a tile, `temporary_bytes`, and `compiled_bytes`, the compiler's own
        figure where it has been compiled.

        Parameters
        ----------
        machine
            As for `explain`.
        """
        return to_dict(self, machine)

    def explain(self, *, compile: bool = False, machine: str | Machine | None = None) -> str:
        """The plan as a text, for people; it works for a plan that doesn't fit, too.

        What all of it takes, then each stage: kernel, memory, bytes read and written by tier, seconds.
        All of it is modelled; after `run` the measured figures stand beside. What doesn't fit is told at
        the end.

        Parameters
        ----------
        compile
            Whether to compile each stage's kernel, and tell what the compiler says that it needs.
        machine
            Whose seconds: None stands for this machine, as `jaxchunk.calibrate` measured it; "laptop",
            "gpu" and "64 gpus" are others, on which this same plan would run on all cores and devices.

        Raises
        ------
        ValueError
            `machine` is no name of one.
        """
        return explain(self, compile, machine)

    def to_svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """The plan as a picture: what each stage reads, makes and writes, in bytes; what doesn't fit is red.

        Parameters
        ----------
        path
            A file to write it to as well.

        Returns
        -------
        str
            An SVG document, as long as there are stages whatever they are about. Nothing runs.
        """
        return _written(svg(self, self.to_dict()), path)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """A report in one file: peak and budget, the picture, and a table of all stages; measured too once it ran.

        Parameters
        ----------
        path
            A file to write it to as well.

        Returns
        -------
        str
            An HTML document that loads nothing and runs no scripts.
        """
        return _written(page(self), path)

    def _repr_html_(self) -> str:
        return fragment(self)

    def run(self, on_task: Callable[[Stage, int], None] | None = None) -> list[Any]:
        """Compute: one entry per request, a NumPy array, or None for a write.

        Parameters
        ----------
        on_task
            Called after each task, from its thread, with the stage and how many of its tasks are done.

        Raises
        ------
        MemoryBudgetError
            Before anything runs, where it can't be done within the budget.
        SourceChangedError
            Where a stored source was replaced since it was opened.
        RuntimeError
            Where the budget, or what is kept, has changed since the plan was made.
        """
        if self.problem is not None:
            raise MemoryBudgetError(f"{self.problem}. {self._advice()}")
        if config.get().budget != self.budget:
            now = config.get().budget
            raise RuntimeError(f"planned for {self.budget:,} bytes, and the budget is {now:,}: plan again")
        machine = runtime()
        with machine.run(self.settings):
            return self._run(machine, on_task or (lambda stage, done: None))

    def _advice(self) -> str:
        """A budget that would do, found by planning: twice as much until it does, then less by an eighth or so."""
        little, enough = self.budget, 2 * self.budget
        while not self._would_do(enough):
            if enough >= MOST_GROWN * self.budget:
                return "No larger budget was found that would do."
            little, enough = enough, 2 * enough
        for _ in range(3):
            middle = (little + enough + 1) // 2
            little, enough = (little, middle) if self._would_do(middle) else (middle, enough)
        return f"A budget of {enough:,} bytes (host_memory) would do."

    def _would_do(self, budget: int) -> bool:
        settings = replace(self.settings, host_memory=budget, device_memory=None)
        return Plan(self.requests, settings, self._persisted).problem is None

    def _run(self, machine: Runtime, on_task: Callable[[Stage, int], None]) -> list[Any]:
        started = time.perf_counter()
        compiled, compile_seconds = CACHE.compiled, CACHE.seconds
        if self.peak + machine.persisted - self._persisted > self.budget or any(n.value is None for n in self._read):
            raise RuntimeError("arrays were kept or let go since the plan was made: plan again")
        sources = self._sources
        for source in sources:
            source.check()
        machine.keeper.read_again(sources)
        conveniences = machine.keeper.forget(self.budget - self.peak, self._read)
        machine.count_peaks()
        for node, request in zip(self._wanted, self.requests, strict=True):
            if isinstance(request, Write) and not node.size:
                request.open_target(list(sources)).commit()  # nothing to compute, but an array to be made
        self.at_hand = at_hand(self.stages)
        counters = machine.execute(self.stages, self.settings, on_task, sources)
        self.measured = counters
        totals = Totals(
            runs=1,
            seconds=time.perf_counter() - started,
            plan_seconds=self.seconds,
            compile_seconds=CACHE.seconds - compile_seconds,
            kernels_compiled=CACHE.compiled - compiled,
            ledger_peak_bytes=machine.ledger.held_peak,
            reserved_peak_bytes=machine.ledger.reserved_peak,
            planned_peak_bytes=self.peak + conveniences + max((c.grown_bytes for c in counters), default=0),
            spilled_bytes=sum(c.spilled_bytes for c in counters),
            spill_read_bytes=sum(c.spill_read_bytes for c in counters),
            handed_out_bytes=self.handed_out,
            bytes_read=sum(c.bytes_read for c in counters),
            bytes_written=sum(c.bytes_written for c in counters),
        )
        self.totals = totals
        record(totals, counters)
        return self._answers(machine)

    def _answers(self, machine: Runtime) -> list[Any]:
        machine.keeper.drop_unused(self._read)
        for node in self._known:
            node.met = True
        kept = {node: slot.take() for node, slot in self._assembler.slots.items() if slot.value is not None}
        for node, users in self._remember.items():
            if node in kept:
                machine.keeper.remember(users, kept[node])
        answers: list[Any] = []
        for request, node in zip(self.requests, self._wanted, strict=True):
            if isinstance(request, Keep):
                answers.append(kept.get(node))
            elif isinstance(request, Write):
                answers.append(None)
            else:
                answers.append(self._results[node].array if node.size else np.empty(node.shape, node.dtype))
        return answers


def _written(text: str, path: str | os.PathLike[str] | None) -> str:
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _is_read(node: Node, request: Request) -> bool:
    """Whether a request takes a stage of its own that reads its node, and computes nothing."""
    if exists(node):
        return True
    if isinstance(request, Keep):
        return isinstance(node.op, Move)
    # A user's function makes blocks as they come; what is written has chunks of its own.
    exact = isinstance(node.op, Blockwise) and node.op.exact
    return exact and isinstance(request, Write) and request.grid != node.grid


def _read(node: Node) -> Node:
    """An array that exists as something to compute: all of it is read."""
    return identity("read", node)
