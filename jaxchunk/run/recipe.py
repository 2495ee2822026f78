"""Recipes: small computations that are done without a plan, since one of the same form has been planned before.

A recipe has the stages of that plan, of one task each, with places instead of arrays. It is run on the nodes of
another graph of the form: kernels are called one after another, on arrays of a few KiB.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxchunk.graph.grid import Box, Grid, box_shape
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Const
from jaxchunk.run.execute import inside_task
from jaxchunk.run.libraries import library_threads
from jaxchunk.run.pressure import is_out_of_memory
from jaxchunk.run.profile import StageCounters, Totals, record
from jaxchunk.run.runtime import Runtime
from jaxchunk.run.stage import Leaf, Output, Stage
from jaxchunk.run.values import HostValue
from jaxchunk.run.views import Window, fill_view

Array: TypeAlias = np.ndarray[Any, Any]


class Place(NamedTuple):
    """In a recipe, what stands for an array: the node that has it, or the number of the value made on the way."""

    node: int | None = None
    value: int | None = None


class Route(NamedTuple):
    """In a recipe, where a result goes: to requests, to later stages as a value, to nodes that remember that."""

    requests: tuple[int, ...] = ()
    value: int | None = None
    grid: Grid = ()
    users: tuple[int, ...] = ()


class Recipe(NamedTuple):
    """Stages of one task each, on places instead of arrays; of each constant its node, or what it always is.

    `nbytes` is what the plan took, `values` the bytes of all values that are made on the way.
    """

    stages: list[Stage]
    params: list[list[int | np.generic]]
    nbytes: int
    values: int


def follow(recipe: Recipe, nodes: Sequence[Node], budget: int, machine: Runtime) -> list[Array] | None:
    """The arrays that a graph asks for; None where other values have to make way first, which takes a plan.

    Parameters
    ----------
    nodes
        Of the graph, in the order of the recipe's places.
    """
    ledger = machine.ledger
    # Values have accounts of their own, beside what the plan had for them, and stay until the end.
    if ledger.reserved + recipe.nbytes + recipe.values > budget:
        return None
    started = time.perf_counter()
    more = recipe.nbytes + recipe.values
    peaks = ledger.held + more, ledger.reserved + more
    with machine.interrupt.deferred():
        ledger.budget = budget
        ledger.reserve(recipe.nbytes)
        try:
            with machine.pool.holding(recipe.nbytes), inside_task():
                run = _Run(recipe, nodes, machine)
                run.run()
        except jax.errors.JaxRuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None  # a plan's run makes room, or says what is wrong
        finally:
            ledger.unreserve(recipe.nbytes)
    machine.keeper.drop_unused(node for node in nodes if node.value is not None)
    for node in nodes:
        node.met = True
    for users, value in run.remembered:
        machine.keeper.remember([nodes[i] for i in users], value)
    _record(recipe, run.answers, peaks, time.perf_counter() - started)
    return [run.answers[i] for i in range(len(run.answers))]


class _Run:
    """One computation by a recipe."""

    def __init__(self, recipe: Recipe, nodes: Sequence[Node], machine: Runtime) -> None:
        self.recipe, self.nodes, self.machine = recipe, nodes, machine
        self.answers: dict[int, Array] = {}
        self.values: dict[int, HostValue] = {}
        self.remembered: list[tuple[tuple[int, ...], HostValue]] = []

    def run(self) -> None:
        kept: set[int] = set()
        try:
            with jax.enable_x64(True), jax.core.eval_context():
                for stage, params in zip(self.recipe.stages, self.recipe.params, strict=True):
                    with library_threads(stage.library_threads):
                        self._stage(stage, params)
            kept = {id(value) for _, value in self.remembered}
        finally:
            for value in self.values.values():
                if id(value) not in kept:
                    value.close()

    def _stage(self, stage: Stage, params: list[int | np.generic]) -> None:
        box = stage.box((0,) * len(stage.space))
        leaves = tuple(self._leaf(leaf, box) for leaf in stage.leaves)
        kernels = stage.kernels
        if kernels is None:
            for output in stage.outputs:
                self._deliver(output, box, leaves[0])
            return
        tile = box_shape(box)
        constants = kernels.packed([self._constant(p) for p in params])
        states, carries = kernels.initial_states(tile), kernels.initial_carries(tile)
        step = kernels.step(tile)
        outputs, states, _ = step.call(constants, stage.starts(box), leaves, (), states, carries)
        for output, value in zip(stage.outputs, outputs, strict=True):
            self._deliver(output, box, np.asarray(value))
        for number, group in enumerate(stage.groups):
            kept = tuple((0, 1) if a in group.dropped else span for a, span in enumerate(box))
            leaves = tuple(self._leaf(leaf, kept) for leaf in group.leaves)
            finish = kernels.finish(number, box_shape(kept))
            results = finish.call(constants, stage.starts(kept), leaves, tuple(states[f] for f in group.folds))
            for output, value in zip(group.outputs, results, strict=True):
                self._deliver(output, kept, np.asarray(value))

    def _constant(self, param: int | np.generic) -> np.generic:
        if not isinstance(param, int):
            return param
        op = self.nodes[param].op
        assert isinstance(op, Const)
        return op.value

    def _leaf(self, leaf: Leaf, box: Box) -> Array:
        shape = tuple(n if s else 1 for n, s in zip(box_shape(box), leaf.spans, strict=True))
        out = np.empty(shape, leaf.dtype)
        fill_view(leaf.view, box, out, self._fill)
        return out

    def _fill(self, place: Place, window: Window, out: Array) -> None:
        if place.node is None:
            assert place.value is not None
            self.values[place.value].fill(window, out)
            return
        node = self.nodes[place.node]
        array: Any = node.value if node.value is not None else node.op.array  # type: ignore[attr-defined]
        array.fill(window, out)

    def _deliver(self, output: Output, box: Box, tile: Array) -> None:
        index = (0,) * len(output.kept)
        shaped = output.shaped(index, box, tile)
        for route in output.sinks:
            for request in route.requests:
                self.answers[request] = np.array(shaped)
            if route.value is None:
                continue
            value = self.values.get(route.value)
            if value is None:
                value = HostValue(route.grid, output.dtype, output.name, self.machine.ledger)
                value.reserve(shaped.nbytes)
                value.put(index, output.box(index, box), shaped, self.machine.pool)
                self.values[route.value] = value
            if route.users:
                self.remembered.append((route.users, value))


def _record(recipe: Recipe, answers: dict[int, Array], peaks: tuple[int, int], seconds: float) -> None:
    """Add the run to open profiles, with what was held and reserved at most."""
    held, reserved = peaks
    record(
        Totals(
            runs=1,
            seconds=seconds,
            ledger_peak_bytes=held,
            reserved_peak_bytes=reserved,
            planned_peak_bytes=reserved,
            handed_out_bytes=sum(answer.nbytes for answer in answers.values()),
        ),
        [StageCounters(stage.name, tasks=1) for stage in recipe.stages],
    )
