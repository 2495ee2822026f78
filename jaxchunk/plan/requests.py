"""What a plan is asked for, besides arrays: lazy writes, and values to be kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxchunk.graph.grid import Grid
from jaxchunk.graph.node import Node
from jaxchunk.store.stored import StoredArray


@dataclass(eq=False)
class Write:
    """A lazy write: an array and where it goes, as `to_zarr(..., compute=False)` gives it.

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
    place
        Stands for the array that is made; None for a region of one that is there.
    """

    node: Node
    grid: Grid
    open_target: Callable[[Sequence[StoredArray]], Any]
    name: str
    place: Hashable = None

    def __repr__(self) -> str:
        return f"<lazy write of {self.node.shape} {self.node.dtype} to {self.name}>"


@dataclass(eq=False)
class Keep:
    """A request to compute a node and keep its array as a source of its own."""

    node: Node


Request = Node | Write | Keep
