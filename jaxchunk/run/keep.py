"""What lives between runs: values that are remembered, and decoded chunks of sources read again and again.

Both are conveniences: a plan is made as if those it doesn't read weren't there, and they make way
for it, the oldest first.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from typing import Any

from jaxchunk.graph.node import Node
from jaxchunk.run.chunks import ChunkCache
from jaxchunk.run.pool import block_bytes
from jaxchunk.run.values import DiskValue, HostValue

# Shares of the budget: all remembered values together, and each one of them.
REMEMBERED_SHARE = 1 / 4
ONE_SHARE = 1 / 8


class Keeper:
    """The nodes whose values are remembered, oldest first, and the chunks that are kept.

    Attributes
    ----------
    persisted
        The sources that values are kept as on request, to be told of: they aren't let go here.
    """

    def __init__(self, chunks: ChunkCache) -> None:
        self.chunks = chunks
        self.persisted: weakref.WeakSet[Node] = weakref.WeakSet()
        self._nodes: dict[int, weakref.ref[Node]] = {}
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def remembered(self) -> int:
        """Bytes reserved for remembered values."""
        return sum({id(value): value.reserved for _, value in self.values()}.values())

    def values(self) -> list[tuple[Node, HostValue | DiskValue]]:
        """The nodes whose values are remembered; several may have one."""
        nodes = [ref() for ref in self._nodes.values()]
        return [(n, n.value) for n in nodes if n is not None and isinstance(n.value, HostValue | DiskValue)]

    def remember(self, nodes: Iterable[Node], value: HostValue | DiskValue) -> None:
        """Have nodes (equal ones, made more than once) stand for a value from now on."""
        for node in nodes:
            node.value = value
            self._nodes[node.serial] = weakref.ref(node)

    def forget(self, room: int, needed: Iterable[Node]) -> int:
        """Drop the oldest values, needed ones excepted, and kept chunks, until all fits in `room` bytes.

        Returns the bytes that what is left, and what this run may add to it, can take.
        """
        needed_values = {id(node.value) for node in needed}
        sizes = {id(value): value.reserved for _, value in self.values() if id(value) not in needed_values}
        total = sum(sizes.values())
        for node, value in self.values():
            if total > room and id(value) not in needed_values:
                node.value = None
                total -= sizes.pop(id(value), 0)
        self._nodes = {node.serial: weakref.ref(node) for node, _ in self.values()}
        wanted = sum(source_bytes(source) for source in self.chunks.lasting.values())
        self.chunks.trim_kept(max(0, min(room - total, max(wanted, self.chunks.kept_bytes))))
        return total + self.chunks.kept_limit

    def drop_unused(self, read: Iterable[Node]) -> None:
        """After a run: values that nobody holds and that this run didn't read were a loop's past."""
        read = set(read)
        for node, _ in self.values():
            if node not in read and not is_held(node):
                node.value = None
        self._nodes = {node.serial: weakref.ref(node) for node, _ in self.values()}

    def read_again(self, sources: Iterable[Any]) -> None:
        """Note what a run reads; sources that an earlier run has read, too, have chunks worth keeping."""
        self.chunks.lasting = {id(source): source for source in sources if source in self._seen}
        self._seen.update(sources)


def source_bytes(source: Any) -> int:
    """A bound for all its decoded chunks."""
    nbytes = source.dtype.itemsize
    for axis in source.grid:
        nbytes *= axis.length
    return int(nbytes + block_bytes(1) * math.prod(axis.nblocks for axis in source.grid))


def is_held(node: Node) -> bool:
    """Whether a user's array object stands for a node."""
    return node.handles > 0
