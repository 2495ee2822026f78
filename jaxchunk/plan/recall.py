"""Small plans, recalled: code on tiny arrays asks for the same computation again and again, with other values.

A run that was one task a stage, on arrays in memory of a few KiB, is kept as a *recipe* by the *form* of the graph:
operations, shapes, cuts, which nodes have values and which are held, which constants are equal, but not what they
are. A graph of the same form is computed by the recipe: its kernels are called one after another, with no plan made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Affine, Blockwise, Const, Iota, Source
from jaxchunk.plan.plan import Plan
from jaxchunk.run.memory_array import MemoryArray
from jaxchunk.run.recipe import Place, Recipe, Route
from jaxchunk.run.sinks import ResultSink, ValueSink
from jaxchunk.run.stage import Leaf, Output, Stage
from jaxchunk.run.values import HostValue, Slot

# Larger arrays, and longer graphs, take longer to compute than to plan.
SMALL_BYTES = 2**16
MOST_NODES = 256
MOST_RECIPES = 256


class Form(NamedTuple):
    """What a recipe is kept by, and the graph's nodes in the order in which the key has them."""

    key: Hashable
    nodes: list[Node]


def form_of(roots: Sequence[Node], budget: int) -> Form | None:
    """The form of a small graph on arrays in memory; None for any other."""
    nodes: list[Node] = []
    for node in postorder(roots, stop=lambda n: n.value is not None):
        if len(nodes) == MOST_NODES or not 0 < node.nbytes <= SMALL_BYTES:
            return None
        nodes.append(node)
    places = {node: i for i, node in enumerate(nodes)}
    # A position that is read at one place is a constant of the plan's own, which could equal one of the user's.
    fixed = any(isinstance(node.op, Iota) for node in nodes)
    firsts: dict[Hashable, int] = {}
    parts = []
    for i, node in enumerate(nodes):
        known = _leaf_key(node, fixed)
        if known is not None:
            part: Hashable = (known[0], firsts.setdefault(known, i))
        elif node.value is None and _is_plain(node.op):
            literal = isinstance(node.op, Blockwise) and node.op.literal
            bits = tuple(_bits(o) for o in node.operands if isinstance(o.op, Const)) if literal else ()
            part = (node.op.key, bits, tuple(places[o] for o in node.operands))
        else:
            return None
        parts.append((part, node.grid, node.dtype.str, node.device, node.handles > 0, node.met))
    return Form((tuple(parts), tuple(places[root] for root in roots), budget), nodes)


def _leaf_key(node: Node, fixed: bool) -> tuple[Hashable, ...] | None:
    """Of a leaf in memory: what it is, and what says whether another one is the same."""
    if isinstance(node.value, HostValue):
        return "value", id(node.value)
    if node.value is not None:
        return None
    if isinstance(node.op, Const):
        bits = _bits(node)
        return (("const", bits), bits) if fixed and node.dtype == np.int64 else ("const", bits)
    if isinstance(node.op, Source) and isinstance(node.op.array, MemoryArray | HostValue):
        return "source", id(node.op.array)
    return None


def _is_plain(op: Any) -> bool:
    """Whether a node of this operation is planned by nothing but its key and its operands."""
    if isinstance(op, Blockwise):
        return not op.exact and (op.body is None or op.body_key is not None)
    return isinstance(op, Affine | Iota)


def _bits(node: Node) -> tuple[str, bytes]:
    assert isinstance(node.op, Const)
    return node.dtype.str, node.op.value.tobytes()


# --- recipes --------------------------------------------------------------------------------------------


class _NoRecipe(Exception):
    """The plan is no small one."""


class _Maker:
    """Makes the recipe of a plan."""

    def __init__(self, form: Form, plan: Plan) -> None:
        self.form, self.plan = form, plan
        self.places = {node: i for i, node in enumerate(form.nodes)}
        self.arrays: dict[int, int] = {}
        self.consts: dict[Hashable, int] = {}
        for i, node in enumerate(form.nodes):
            array = node.value if node.value is not None else getattr(node.op, "array", None)
            if array is not None:
                self.arrays.setdefault(id(array), i)
            elif isinstance(node.op, Const):
                self.consts.setdefault(_bits(node), i)
        self.values: dict[int, int] = {}
        self.sizes: dict[int, int] = {}

    def recipe(self) -> Recipe:
        stages = [self._stage(stage) for stage in self.plan.stages]
        return Recipe(stages, [self._params(stage) for stage in stages], self.plan.peak, sum(self.sizes.values()))

    def _stage(self, stage: Stage) -> Stage:
        if stage.tasks > 1 or stage.steps > 1:
            raise _NoRecipe
        if stage.kernels is not None and stage.kernels.spares(stage.whole_tile):
            raise _NoRecipe
        leaves = [self._leaf(leaf) for leaf in stage.leaves]
        outputs = [self._output(output) for output in stage.outputs]
        groups = [
            replace(
                group, leaves=[self._leaf(x) for x in group.leaves], outputs=[self._output(x) for x in group.outputs]
            )
            for group in stage.groups
        ]
        return replace(stage, leaves=leaves, outputs=outputs, groups=groups, frees=[], strip_of=None)

    def _leaf(self, leaf: Leaf) -> Leaf:
        base = leaf.view.base
        known = self.values if isinstance(base, Slot) else self.arrays
        number = known.get(id(base))
        if number is None:
            raise _NoRecipe
        place = Place(value=number) if isinstance(base, Slot) else Place(node=number)
        return leaf._replace(view=leaf.view._replace(base=place))

    def _output(self, output: Output) -> Output:
        return replace(output, sinks=[self._route(sink) for sink in output.sinks])

    def _route(self, sink: Any) -> Route:
        if isinstance(sink, ResultSink):
            return Route(requests=tuple(self.plan.asked_of(sink)))
        if not isinstance(sink, ValueSink) or sink.slot.tier != "host":
            raise _NoRecipe
        number = self.values.setdefault(id(sink.slot), len(self.values))
        self.sizes[number] = sink.slot.nbytes
        users = (self.places.get(node) for node in self.plan.users_of(sink.slot))
        return Route(value=number, grid=sink.slot.grid, users=tuple(i for i in users if i is not None))

    def _params(self, stage: Stage) -> list[int | np.generic]:
        params = [] if stage.kernels is None else stage.kernels.program.params
        return [self.consts.get((p.dtype.str, p.tobytes()), p) for p in params]


class Recipes:
    """The latest recipes of a process."""

    def __init__(self) -> None:
        self._recipes: OrderedDict[Hashable, Recipe] = OrderedDict()

    def add(self, form: Form, plan: Plan) -> None:
        """Keep the recipe of a plan that has run, if it was a small one. `form` is of the time before."""
        try:
            self._recipes[form.key] = _Maker(form, plan).recipe()
        except _NoRecipe:
            return
        if len(self._recipes) > MOST_RECIPES:
            self._recipes.popitem(last=False)

    def known(self, form: Form) -> Recipe | None:
        """The recipe of a form."""
        recipe = self._recipes.get(form.key)
        if recipe is not None:
            self._recipes.move_to_end(form.key)
        return recipe
