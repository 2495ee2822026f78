"""Asking for arrays: what everything that computes goes through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxchunk import config
from jaxchunk.graph.node import Node
from jaxchunk.plan.plan import Plan, Write


def plan_requests(requests: Sequence[Node | Write]) -> Plan:
    """A plan under the settings in force."""
    return Plan(requests, config.get())


def compute_nodes(nodes: Sequence[Node]) -> list[np.ndarray[Any, Any]]:
    """The arrays of nodes, in one run."""
    return [array for array in plan_requests(nodes).run() if array is not None]
