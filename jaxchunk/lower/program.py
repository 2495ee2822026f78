"""Programs: what one stage computes per tile, as linear lists of instructions.

A program is a list, value-numbered as it is built: equal instructions on equal arguments are one
value, so nothing is computed twice and its length is linear in the graph. The list is its own
cache key. Numbers that the user's code multiplies and adds by are not in it: they are parameters,
one per distinct value, so `x * 0.1` and `x * 0.2` are one kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jaxchunk.graph.primitives import Reducer, Scanner


class Instr(NamedTuple):
    """One value. `key` with `args` says which; `payload` is what runs.

    Kinds: "load" (a leaf's tile), "param" (a lifted scalar), "literal" (a scalar that belongs to
    the key), "index" (positions along an axis), "call" (a body), "whole" (a body that is given its
    operands' blocks as they are), "scan" (a running fold), "folded" (in a group's epilogue: a
    finished fold).
    """

    kind: str
    key: Hashable
    args: tuple[int, ...]
    payload: Any
    dtype: np.dtype[Any]
    spans: tuple[bool, ...]


class Fold(NamedTuple):
    reducer: Reducer
    args: tuple[int, ...]
    dropped: tuple[int, ...]
    dtypes: tuple[np.dtype[Any], ...]


class Scan(NamedTuple):
    scanner: Scanner
    axis: int
    dtype: np.dtype[Any]


@dataclass
class Block:
    """A list of instructions under one value numbering."""

    rank: int
    instrs: list[Instr] = field(default_factory=list)
    _numbers: dict[Hashable, int] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        key: Hashable,
        args: Sequence[int],
        payload: Any,
        dtype: np.dtype[Any],
        spans: Sequence[bool] | None = None,
    ) -> int:
        """The number of this value; the same one for the same instruction."""
        whole = (kind, key, tuple(args), dtype.str)
        known = self._numbers.get(whole) if key is not None else None
        if known is not None:
            return known
        if spans is None:
            spans = [any(self.instrs[a].spans[axis] for a in args) for axis in range(self.rank)]
        self.instrs.append(Instr(kind, key, tuple(args), payload, dtype, tuple(spans)))
        number = len(self.instrs) - 1
        if key is not None:
            self._numbers[whole] = number
        return number

    def key(self) -> Hashable:
        return tuple(
            (i.kind, i.key if i.key is not None else ("unique", id(i.payload)), i.args, i.dtype.str, i.spans)
            for i in self.instrs
        )


@dataclass
class Group:
    """Folds that drop the same axes, and what is made of their results (the epilogue)."""

    dropped: tuple[int, ...]
    folds: list[int]
    epilogue: Block
    outputs: list[int] = field(default_factory=list)


@dataclass
class Program:
    """A stage's whole computation on a tile of its index space.

    Attributes
    ----------
    body
        What is computed on the tile.
    folds, groups
        The folds over the tile, and by the axes they drop, their epilogues.
    scans
        Running folds: their carries pass from tile to tile.
    outputs
        Values of `body` that are results, tile by tile.
    params, indices
        The scalars and the (axis, offset, step) of positions that the instructions refer to: what
        varies between runs of one kernel.
    direct
        Whether a body, or a contraction, wants the tile in one piece.
    exact
        Whether the body gives blocks of shapes of its own.
    """

    body: Block
    folds: list[Fold] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    params: list[np.generic] = field(default_factory=list)
    indices: list[tuple[int, int, int]] = field(default_factory=list)
    direct: bool = False
    exact: bool = False

    @property
    def rank(self) -> int:
        return self.body.rank

    @cached_property
    def key(self) -> Hashable:
        """Structural: kernels are shared by it. Frozen at first use, when the program is complete."""
        return (
            self.rank,
            self.body.key(),
            tuple((f.reducer.key, f.args, f.dropped) for f in self.folds),
            tuple((g.dropped, tuple(g.folds), g.epilogue.key(), tuple(g.outputs)) for g in self.groups),
            tuple((s.scanner.key, s.axis) for s in self.scans),
            tuple(self.outputs),
            tuple(p.dtype.str for p in self.params),
            tuple(step for _, _, step in self.indices),
            self.direct,
            self.exact,
        )

    def param(self, value: np.generic) -> int:
        """The slot of a scalar, by type and bits."""
        for slot, known in enumerate(self.params):
            if known.dtype == value.dtype and known.tobytes() == value.tobytes():
                return slot
        self.params.append(value)
        return len(self.params) - 1

    def group(self, dropped: tuple[int, ...]) -> Group:
        for group in self.groups:
            if group.dropped == dropped:
                return group
        self.groups.append(Group(dropped, [], Block(self.rank)))
        return self.groups[-1]

    def fold(self, reducer: Reducer, args: tuple[int, ...], dropped: tuple[int, ...]) -> int:
        for number, known in enumerate(self.folds):
            if (known.reducer.key, known.args, known.dropped) == (reducer.key, args, dropped):
                return number
        self.folds.append(Fold(reducer, args, dropped, tuple(self.body.instrs[a].dtype for a in args)))
        self.group(dropped).folds.append(len(self.folds) - 1)
        return len(self.folds) - 1

    @property
    def size(self) -> int:
        """Instructions in all: what compile time grows with."""
        return len(self.body.instrs) + sum(len(g.epilogue.instrs) for g in self.groups)
