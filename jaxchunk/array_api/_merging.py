"""Sorted runs of rows, and how they are merged: where they are split, and at how many levels.

Runs are sorted one by one and kept, in memory or on disk; then the exact places are found at which they
have to be split for each block of the result. Whoever reads a part of the result has it merged from what
lies between the splits. So data is read twice and written once besides the result. Where there are too
many runs to be merged at once, groups of them are merged first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._build import DType
from jaxchunk.graph.grid import Axis
from jaxchunk.graph.merges import Merge, Splits
from jaxchunk.graph.node import Limits, Node
from jaxchunk.graph.primitives import AxisMap, Blockwise, Work
from jaxchunk.plan.scratch import SORTED_BYTES, sort_entry

INT64 = np.dtype("int64")
# What sorting a run takes, in bytes for each byte of its rows: they are read, sorted and written.
TASK = 8
# The share of the budget that a task may take that makes a run, or finds where runs are split: one half.
_SHARE = 2
_MOST_RUNS = 1024
# Reading a row on its own takes as long as reading so many bytes.
_SAMPLE_BYTES = 2**12
# Finding splits is to read no more than a part of the rows that is one of so many.
_MUCH = 10
# What the task that makes a table of splits takes, in bytes for each byte of it.
_TABLE = 4
# Rows from sample to sample, at least.
_NEAREST = 16


class Rows(NamedTuple):
    """How elements are sorted as rows of columns: the first ones order them, equal rows stay in order.

    Attributes
    ----------
    name, key
        Of the operation.
    dtype, columns, ordering
        Of a row, and how many of its columns order it.
    make
        From a block of elements and the positions along its axis to columns.
    taken, finish
        The columns that the result is made of, and how, once they are sorted.
    result
        The result's dtype.
    numbered
        Whether rows are made with positions.
    """

    name: str
    key: Hashable
    dtype: DType
    columns: int
    ordering: int
    make: Callable[..., tuple[Any, ...]]
    taken: tuple[int, ...]
    finish: Callable[..., Any]
    result: DType
    numbered: bool

    @property
    def nbytes(self) -> int:
        return self.columns * self.dtype.itemsize

    def work(self, length: int) -> Work:
        """What sorting so many rows takes below the compiler."""
        one = self.dtype.itemsize if self.columns == 1 else SORTED_BYTES
        return Work(sort_entry([self.dtype.kind] * self.columns), self.columns * one * length)

    def positions(self, axis: Axis) -> tuple[Node, ...]:
        """The positions along an axis as a second operand, where rows are made of them."""
        return (_build.iota(axis.length, axis),) if self.numbered else ()

    def sort(self, columns: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
        """Columns of one block in order along an axis."""
        stable = self.columns > self.ordering
        return tuple(lax.sort(columns, dimension=axis, num_keys=self.ordering, is_stable=stable))


def in_runs(lines: Sequence[Node], rows: Rows, limits: Limits) -> Node:
    """The result for lanes of (lanes, length)."""
    length, chunk = lines[0].shape[1], lines[0].grid[1].largest
    run = _run_length(length, chunk, rows, limits)
    node = _runs(lines, rows, run)
    splits = _first_splits(length, rows, run, chunk, limits)
    node = _merged(node, rows, splits)
    while (run := run * splits.fan) < length:
        splits = _splits(length, rows, run, splits.block, limits)
        node = _merged(_build.made("merged runs", node), rows, splits)
    columns = [_views.squeeze(_views.cut(node, 2, c, c + 1), [2]) for c in rows.taken]
    return _build.blockwise(f"{rows.name} result", rows.finish, rows.key, columns, rows.result)


def _run_length(length: int, chunk: int, rows: Rows, limits: Limits) -> int:
    """Rows of a run: as many as a task can sort, whole chunks or equal parts of one where that leaves a step."""
    most = max(256, limits.budget // (_SHARE * TASK * rows.nbytes))
    parts = -(-chunk // most)
    near = [most // chunk * chunk] if parts == 1 else [chunk // k for k in range(parts, 2 * parts) if chunk % k == 0]
    run = next((n for n in near if len(_steps(n)) > 3), most // 256 * 256)
    return min(run, -(-length // 256) * 256)


def _runs(lines: Sequence[Node], rows: Rows, run: int) -> Node:
    """(lanes, length, columns): each run of each lane, sorted in a task of its own."""
    lanes, length = lines[0].shape
    grid = (Axis.regular(lanes, 1), Axis.regular(length, run), Axis.regular(rows.columns, rows.columns))
    # A block has the elements in every column: its shape is the result's.
    wide = [_views.broadcast_to(_views.expand_dims(x, [2]), (lanes, length, rows.columns)) for x in lines]
    blocks = [_views.rechunk(node, grid) for node in wide]

    def body(*values: Any) -> Any:
        given = (*(lax.slice_in_dim(v, 0, 1, axis=2) for v in values[: len(blocks)]), *values[len(blocks) :])
        columns = rows.sort(rows.make(*given), 1)
        return columns[0] if len(columns) == 1 else lax.concatenate(columns, 2)

    operands = (*blocks, *rows.positions(grid[1]))
    op = Blockwise(
        "sorted runs",
        body,
        ("sorted runs", rows.key),
        blocks[0].shape,
        (*[(0, 1, 2)] * len(blocks), (1,))[: len(operands)],
        exact=True,
        flops=5 * math.log2(max(2, run)),
        primitives=(rows.work(run),),
        body_bytes=rows.nbytes * run,
    )
    return _build.make(op, operands, grid, rows.dtype)


def _first_splits(length: int, rows: Rows, run: int, chunk: int, limits: Limits) -> Splits:
    """Splits of runs into blocks as long as a run, or as two where finding them would read much.

    Rows of several columns are put in order by way of copies: blocks of them are no longer.
    """
    splits, two = _splits(length, rows, run, run, limits), 2 * run
    much = splits.windows * _MUCH > length
    if much and rows.columns == 1 and (two % chunk == 0 or chunk % two == 0):
        return _splits(length, rows, run, two, limits)
    return splits


def _splits(length: int, rows: Rows, run: int, block: int, limits: Limits) -> Splits:
    """How runs are merged: as many at once as leave room to find the splits in, at no more than another level costs."""
    unit = max(1, block // run)  # groups are whole blocks
    fan = min(_MOST_RUNS // unit * unit, -(-length // run))
    level = 3 * length * rows.nbytes  # read, written, and read for samples
    while True:
        # One task's room, beside the tables that are kept in memory.
        room = limits.budget * 3 // 4 - min(limits.budget // 4, INT64.itemsize * -(-length // block) * fan)
        tried = [Splits(run, fan, block, length, step, rows.ordering, rows.dtype.itemsize) for step in _steps(run)]
        costs = [(max(0, _needed_bytes(s, rows.nbytes) - room), _search_bytes(s, rows.nbytes)) for s in tried]
        excess, search = best = min(costs)
        if fan <= max(2, unit) or (not excess and search <= level):
            return tried[costs.index(best)]
        fan = -(-fan // (2 * unit)) * unit


def _needed_bytes(splits: Splits, row: int) -> int:
    """What a task takes that finds the splits of a group, rows having so many bytes."""
    shape = (1, _blocks_of_a_group(splits), splits.fan)
    lent, working, _ = splits.demand(shape, INT64.itemsize)
    table = _TABLE * INT64.itemsize * math.prod(shape)
    return lent + working + table + splits.block * row


def _search_bytes(splits: Splits, row: int) -> int:
    """What is read to find splits, rows having so many bytes: samples, and a window for each block."""
    return splits.windows * row + splits.length // splits.step * min(splits.step * row, _SAMPLE_BYTES)


def _blocks_of_a_group(splits: Splits) -> int:
    """How many blocks a task finds the splits of: those of one group of runs, but for where blocks are longer."""
    return max(1, -(-min(splits.length, splits.run * splits.fan) // splits.block))


def _merged(node: Node, rows: Rows, splits: Splits) -> Node:
    """Groups of runs merged."""
    lanes, length, _ = node.shape
    grid = (node.grid[0], Axis.regular(-(-length // splits.step), splits.run // splits.step), node.grid[2])
    every = _views.view("samples", node, [AxisMap(0), AxisMap(1, 0, splits.step), AxisMap(2)], grid)
    blocks = -(-length // splits.block)
    table = (
        Axis.regular(lanes, 1),
        Axis.regular(blocks, _blocks_of_a_group(splits)),
        Axis.regular(splits.fan, splits.fan),
    )
    starts = _build.made("splits", _build.make(splits, (node, every), table, INT64))
    merge = Merge(splits.run, splits.fan, splits.block, length, rows.ordering, rows.columns)
    return _build.make(merge, (node, starts), (grid[0], Axis.regular(length, splits.block), grid[2]), node.dtype)


def _steps(run: int) -> list[int]:
    """The divisors of a run's length that leave neither too many samples of it nor too few."""
    most = max(_NEAREST, 2 * math.isqrt(run))
    divisors, rest, prime = [1], run, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        powers = [1]
        while rest % prime == 0:
            rest //= prime
            powers.append(powers[-1] * prime)
        if len(powers) > 1:
            divisors = [d * power for d in divisors for power in powers if d * power <= most]
        prime += 1
    return sorted(d for d in divisors if d >= _NEAREST)
