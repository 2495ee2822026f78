"""Asking for arrays: what everything that computes goes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxchunk import config
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Source
from jaxchunk.plan.plan import Plan
from jaxchunk.plan.recall import Recipes, form_of
from jaxchunk.plan.requests import Keep, Request
from jaxchunk.run.progress import shown
from jaxchunk.run.recipe import follow
from jaxchunk.run.runtime import runtime

RECIPES = Recipes()


def plan_requests(requests: Sequence[Request]) -> Plan:
    """A plan under the settings in force."""
    runtime().note_strays()
    return Plan(requests, config.get(), runtime().persisted)


def run_requests(requests: Sequence[Request]) -> list[Any]:
    """Plan and run, with a progress bar where the settings say so; small arrays asked for once more by a recipe."""
    machine = runtime()
    machine.refuse_in_task()
    with machine.lock:  # nothing is kept or let go between planning and running
        budget = config.get().budget
        nodes = [request for request in requests if isinstance(request, Node)]
        form = form_of(nodes, budget) if len(nodes) == len(requests) else None
        recipe = None if form is None else RECIPES.known(form)
        if form is not None and recipe is not None:
            answers = follow(recipe, form.nodes, budget, machine)
            if answers is not None:
                return answers
        plan = plan_requests(requests)
        with shown(plan.stages, plan.settings) as on_task:
            computed = plan.run(on_task)
        if form is not None:
            RECIPES.add(form, plan)
        return computed


def compute_nodes(nodes: Sequence[Node]) -> list[np.ndarray[Any, Any]]:
    """The arrays of nodes, in one run."""
    return run_requests(nodes)


def persist_nodes(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that are sources, of the values that the given ones have now."""
    values = run_requests([Keep(node) for node in nodes])
    kept = []
    for node, value in zip(nodes, values, strict=True):
        if value is None:  # it existed already, or there is nothing to keep
            kept.append(node)
        else:
            value.name = "persisted"
            source = Source(value, "persisted")
            kept.append(Node(source, (), node.grid, node.dtype, node.device))
            runtime().keeper.persisted.add(kept[-1])
    return kept
