"""Sorted runs put in order: gathers that read what lies between exact splits."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxchunk.graph.gathers import Array, Demand, Gather, Operands, Shape
from jaxchunk.graph.grid import Box


@dataclass(frozen=True, eq=False)
class Merge(Gather):
    """Sorted runs as groups in order: any part of a group, read from between splits and put in order.

    Operands are (rows, starts). `rows`, (lanes, n, columns), are runs of `run` rows that are sorted by
    their first `keys` columns; `fan` runs make a group. `starts`, (lanes, blocks, fan), has for each
    block of `block` rows of the result where in each run of its group it begins: all before are in
    blocks before.
    """

    run: int
    fan: int
    block: int
    length: int
    keys: int
    columns: int
    name: str = "merge"

    @property
    def key(self) -> Hashable:
        return ("merge", self.run, self.fan, self.block, self.length, self.keys, self.columns)

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        (lane0, lane1), (start, stop), columns = box
        group = self.run * self.fan
        for lane in range(lane0, lane1):
            for g in range(start // group, -(-stop // group)):
                lo, hi = max(start, g * group), min(stop, (g + 1) * group)
                self._group(lane, g, (lo, hi), out[lane - lane0, lo - start : hi - start], columns, operands)

    def _group(
        self, lane: int, g: int, span: tuple[int, int], out: Array, columns: tuple[int, int], operands: Operands
    ) -> None:
        """Rows of one group, block by block."""
        begin = g * self.run * self.fan
        lengths = np.clip(self.length - begin - self.run * np.arange(self.fan), 0, self.run)
        end = begin + int(lengths.sum())
        first, last = span[0] // self.block, -(-span[1] // self.block)
        starts = self._splits(lane, first, operands)
        for block in range(first, last):
            stops = lengths if (block + 1) * self.block >= end else self._splits(lane, block + 1, operands)
            rows = self._between(lane, begin, starts, stops, operands)
            base = block * self.block
            lo, hi = max(span[0], base), min(span[1], base + len(rows))
            out[lo - span[0] : hi - span[0]] = rows[lo - base : hi - base, slice(*columns)]
            del rows  # before the next block is read
            starts = stops

    def _between(self, lane: int, begin: int, starts: Array, stops: Array, operands: Operands) -> Array:
        """Rows between splits of the runs that begin at a row, in order."""
        rows = operands.empty(0, (1, int((stops - starts).sum()), self.columns))
        at = 0
        for r, (lo, hi) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if lo < hi:
                span = (begin + r * self.run + lo, begin + r * self.run + hi)
                operands.read(0, ((lane, lane + 1), span, (0, self.columns)), rows[:, at : at + hi - lo])
                at += hi - lo
        flat: Array = rows[0]
        if self.columns == 1:
            flat[:, 0].sort()  # in place; equal rows are the same
        else:
            flat[...] = flat[order_of(flat[:, : self.keys])]
        return flat

    def _splits(self, lane: int, block: int, operands: Operands) -> Array:
        splits: Array = operands.read(1, ((lane, lane + 1), (block, block + 1), (0, self.fan)))[0, 0]
        return splits

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        # Blocks are put in order whole, with all columns, however little of them the box has.
        rows = self.block * itemsize * self.columns
        working = 0 if self.columns == 1 else 2 * rows
        boxes = ((1, min(self.run, self.block), self.columns), (1, 1, self.fan))
        return Demand(rows + 16 * self.fan, working + 64 * self.fan, boxes)


@dataclass(frozen=True, eq=False)
class Splits(Gather):
    """Where sorted runs are split so that each block of the merged result has its exact number of rows.

    Operands are (rows, samples) as for `Merge`; `samples` has every `step`-th row, and `step` divides `run`. The
    result is (lanes, blocks, fan), int64. Rows are ordered by their first `keys` columns, equal ones by
    their runs.

    The samples bound each split to a window of a few steps in each run: a sample that is the i-th of
    all has at least (i + 1) · step - fan · (step - 1) rows up to it, and at most (i + 1) · step.
    Windows are read, and the split is the exact one among their rows.
    """

    run: int
    fan: int
    block: int
    length: int
    step: int
    keys: int
    itemsize: int
    name: str = "splits"

    @property
    def key(self) -> Hashable:
        return ("splits", self.run, self.fan, self.block, self.length, self.step, self.keys)

    @property
    def window(self) -> int:
        """Rows that are read to find one block's splits, at most."""
        return 2 * (self.fan + 1) * self.step

    @property
    def windows(self) -> int:
        """Rows that are read to find all of them."""
        return -(-self.length // self.block) * self.window

    def fill(self, box: Box, out: Array, operands: Operands) -> None:
        (lane0, lane1), (k0, k1), (r0, r1) = box
        group = self.run * self.fan
        for lane in range(lane0, lane1):
            for g in range(k0 * self.block // group, -(-min(k1 * self.block, self.length) // group)):
                ks = range(max(k0, g * group // self.block), min(k1, -(-(g + 1) * group // self.block)))
                ranks = [k * self.block - g * group for k in ks]
                starts = self._group(lane, g, ranks, operands)
                out[lane - lane0, ks.start - k0 : ks.stop - k0] = starts[:, r0:r1]

    def _group(self, lane: int, g: int, ranks: Sequence[int], operands: Operands) -> Array:
        """The splits of one group at the given ranks within it."""
        per_run = self.run // self.step
        first = g * self.run * self.fan
        lengths = np.clip(self.length - first - self.run * np.arange(self.fan), 0, self.run)
        counts = -(-lengths // self.step)
        total = int(counts.sum())
        begin = g * self.fan * per_run
        samples = operands.read(1, ((lane, lane + 1), (begin, begin + total), (0, self.keys)))[0]
        run_of = np.repeat(np.arange(self.fan, dtype=np.int32), counts)[order_of(samples)]
        del samples
        starts = np.zeros((len(ranks), self.fan), np.int64)
        for row, rank in enumerate(ranks):
            low = rank // self.step
            high = min(total, -(-(rank + self.fan * (self.step - 1)) // self.step))
            below = np.bincount(run_of[:low], minlength=self.fan)
            above = np.bincount(run_of[:high], minlength=self.fan)
            lo = np.maximum(0, (below - 1) * self.step + 1) * (below > 0)
            hi = np.minimum(lengths, above * self.step)
            starts[row] = lo + self._among(lane, first, lo, hi, rank - int(lo.sum()), operands)
        return starts

    def _among(self, lane: int, first: int, lo: Array, hi: Array, rank: int, operands: Operands) -> Array:
        """How many of each run's rows in its window are among the first `rank` of all of them."""
        if rank <= 0:
            return np.zeros(self.fan, np.int64)
        rows = operands.empty(0, (1, int((hi - lo).sum()), self.keys))
        at = 0
        for r, (start, stop) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
            if start < stop:
                span = (first + r * self.run + start, first + r * self.run + stop)
                operands.read(0, ((lane, lane + 1), span, (0, self.keys)), rows[:, at : at + stop - start])
                at += stop - start
        run_of = np.repeat(np.arange(self.fan, dtype=np.int32), hi - lo)
        return np.bincount(run_of[order_of(rows[0])[:rank]], minlength=self.fan)

    def demand(self, shape: Shape, itemsize: int) -> Demand:
        samples = self.fan * -(-self.run // self.step)
        row = self.keys * self.itemsize
        most = max(samples, self.window)
        working = 4 * samples + 16 * most + 16 * self.fan * (shape[1] + 8)
        return Demand(most * row, working, ((1, self.step, self.keys), (1, samples, self.keys)))


def order_of(rows: Array) -> Array:
    """The order of rows by all their columns, equal ones as they come."""
    if rows.shape[1] == 1:
        return np.argsort(rows[:, 0], kind="stable")
    return np.lexsort(rows.T[::-1])
