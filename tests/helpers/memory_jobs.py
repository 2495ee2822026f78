"""What a row of the memory table is, and how it is run: inputs of any size, results stored or handed out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.storage import MemoryStore

import jaxchunk as jc
from helpers.jobs import budget
from helpers.synthetic import evaluated, synthetic_array
from jaxchunk.array_api import Array

Box = Sequence[tuple[int, int]]
Values = npt.NDArray[Any]
Shape = tuple[int, ...]
Pattern = Callable[..., Values]
"""Values from open-mesh indices."""

ANY_SIZE = "any size"
ONE_MATRIX = "one matrix in one task"
NO_DATA = "no data"

OUTSIZE = 8  # of the data, in budgets
CHUNKS = 16  # to a budget
FIXED = 2**20  # bytes of the least budget that don't depend on the chunks


# --- shapes from a number of elements, and cuts from another ----------------------------------------


def grid(n: int) -> Shape:
    """A matrix of about as many rows as columns, neither a power of two."""
    side = math.isqrt(n) | 1
    return -(-n // side), side


def line(n: int) -> Shape:
    return (n,)


def root(n: int) -> Shape:
    """A line whose square has so many elements, for results that are far larger than what they are made from."""
    return (math.isqrt(n) + 1,)


def tall(n: int) -> Shape:
    return -(-n // 48), 48


def stack(n: int) -> Shape:
    """Matrices beside each other."""
    return -(-n // 1600), 40, 40


def cuts(shape: Shape, elements: int, beside: int = 0) -> Shape:
    """A block of so many elements at most, or a little less, for cuts that lie beside those of others.

    What is stacked or tall is cut along its first axis only.
    """
    if len(shape) == 2 and shape[1] > 48:
        side = math.isqrt(elements)
        rows = min(max(1, side - 5 * beside), shape[0])
        columns = elements // rows * (3 - beside % 2) // 3
        return rows, min(max(1, columns), shape[1])
    whole = math.prod(shape[1:])
    return (max(1, min(shape[0] or 1, elements // max(1, whole) - beside)), *shape[1:]) if shape else ()


def whole(shape: Shape) -> Box:
    return [(0, n) for n in shape]


@dataclass(frozen=True)
class Given:
    """An input: how its values follow from its indices, and its shape from a number of elements."""

    values: Pattern
    dtype: str = "float64"
    shape: Callable[[int], Shape] = grid
    numpy: bool = False  # an array of the user's own that takes no memory: all of its rows are one

    @property
    def itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    def at(self, box: Box) -> Values:
        """The values in a box."""
        axes = [np.arange(start, stop) for start, stop in box]
        if self.numpy:
            axes[0] = np.zeros_like(axes[0])
        return evaluated(self.values, axes, self.dtype)

    def opened(self, shape: Shape, chunk: Shape) -> Array:
        """The array in the library; integers are compressed where they are stored."""
        if self.numpy:
            return np.broadcast_to(self.at([(0, 1), *whole(shape[1:])]), shape)  # type: ignore[return-value]
        compressor = "zstd" if np.dtype(self.dtype).kind in "iu" else None
        return jc.from_zarr(synthetic_array(shape, chunk, self.dtype, self.values, compressor=compressor))


@dataclass(frozen=True)
class Row:
    """One function of the namespace, or one kind of work, in a job that can have any size.

    Attributes
    ----------
    given
        The inputs. Together they have `OUTSIZE` budgets at least, or else the results do.
    call
        The job. Gives an array or several. Without inputs it takes a number of elements, and a number for a chunk.
    expected
        NumPy's results, from the same arguments as `call`.
    right
        In place of `expected`, what must hold of inputs and results; raises AssertionError.
    local
        A block of the results follows from the same block of the inputs, so that it can be checked by itself.
    handed
        The results are small: they are computed, not stored.
    expands
        The data are the results; what they are made from is far smaller.
    rtol
        The largest error, relative to the largest magnitude of a result.
    blocks
        How many chunks the least budget has, beside `FIXED` bytes.
    most
        Bytes of data that are enough: the job takes long.
    """

    call: Callable[..., Any]
    given: tuple[Given, ...] = ()
    expected: Callable[..., Any] | None = None
    right: Callable[..., None] | None = None
    kind: str = ANY_SIZE
    local: bool = False
    handed: bool = False
    expands: bool = False
    rtol: float = 0.0
    blocks: int = 8
    most: int | None = None


def several(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


class Job:
    """A row at a size: as many elements as make the data `OUTSIZE` budgets."""

    def __init__(self, row: Row, nbytes: int, data: int | None = None, chunk: int | None = None) -> None:
        self.row, self.nbytes = row, nbytes
        self.chunk_bytes = chunk or nbytes // CHUNKS
        self.data = data or OUTSIZE * nbytes
        self.elements = self._elements()
        self.shapes = [given.shape(self.elements) for given in row.given]

    def _elements(self) -> int:
        given = self.row.given
        if not given or self.row.expands:
            return -(-self.data // 8)
        n = self.data // sum(g.itemsize for g in given)
        while sum(math.prod(g.shape(n)) * g.itemsize for g in given) < self.data:
            n += max(1, n // 64)
        return n

    def arguments(self) -> list[Any]:
        """What the job takes: lazy arrays, cut so that no two of them have their cuts in the same places."""
        if not self.row.given:
            return [self.elements, self.chunk_bytes // 8]
        return [
            given.opened(shape, cuts(shape, self.chunk_bytes // given.itemsize, beside))
            for beside, (given, shape) in enumerate(zip(self.row.given, self.shapes, strict=True))
        ]

    def results(self) -> tuple[Array, ...]:
        return several(self.row.call(*self.arguments()))

    def requests(self, results: Sequence[Array], targets: Sequence[Any]) -> list[Any]:
        """What `jaxchunk.compute` or `jaxchunk.plan` is asked for."""
        if self.row.handed:
            return list(results)
        # No block has more elements than a chunk of the widest array, and all have as many rows.
        itemsizes = [given.itemsize for given in self.row.given] + [x.dtype.itemsize for x in results]
        blocks = [cuts(x.shape, self.chunk_bytes // max(itemsizes), beside=3) for x in results]
        rows = min((block[0] for block in blocks if block), default=1)
        return [
            jc.to_zarr(x, target, chunks=(min(rows, block[0]), *block[1:]) if block else (), compute=False)
            for x, target, block in zip(results, targets, blocks, strict=True)
        ]

    def refusals(self, budgets: Sequence[int]) -> list[Any]:
        """Of plans of the job, what doesn't fit: None where all does."""
        results = self.results()
        problems = []
        for nbytes in budgets:
            with budget(nbytes):
                requests = self.requests(results, [MemoryStore() for _ in results])
                problems.append(jc.plan(*requests).problem)
        return problems

    @property
    def least(self) -> int:
        """The least budget that the table promises for chunks of this size."""
        return self.row.blocks * self.chunk_bytes + FIXED

    def run(self, directory: Path | None = None) -> list[Any]:
        """Compute the results within the budget: NumPy arrays or stored ones, left in a directory if there is one."""
        with budget(self.nbytes):
            results = self.results()
            stores = [MemoryStore() if directory is None else directory / f"{k}.zarr" for k in range(len(results))]
            values = jc.compute(*self.requests(results, stores))
        if not self.row.handed:
            return [zarr.open_array(store, mode="r") for store in stores]
        if directory is not None:
            for k, value in enumerate(values):
                np.save(directory / f"{k}.npy", value)
        return list(values)

    def check(self, found: Sequence[Any], windows: int | None = None) -> None:
        """The results are right: all of them, or so many blocks of each."""
        if not self.row.local:
            inputs = [given.at(whole(shape)) for given, shape in zip(self.row.given, self.shapes, strict=True)]
            self._compare(inputs or [self.elements, self.chunk_bytes // 8], found, windows)
            return
        lead = max(found, key=lambda x: len(x.shape))
        for box in boxes(lead, windows):
            inputs = [
                given.at(beside(box, lead.shape, shape))
                for given, shape in zip(self.row.given, self.shapes, strict=True)
            ]
            self._compare(inputs, [x[slices(beside(box, lead.shape, x.shape))] for x in found], None)

    def _compare(self, inputs: Sequence[Any], found: Sequence[Any], windows: int | None) -> None:
        row = self.row
        if row.right is not None:
            row.right(*inputs, *(x[...] for x in found))
            return
        assert row.expected is not None
        expected = several(row.expected(*inputs))
        assert len(expected) == len(found)
        for values, wanted in zip(found, map(np.asarray, expected), strict=True):
            assert (values.shape, values.dtype) == (wanted.shape, wanted.dtype)
            # Rounding errors of sums and transforms are in proportion to the largest values of all.
            finite = np.abs(wanted[np.isfinite(wanted)]) if row.rtol else np.zeros(1)
            atol = row.rtol * float(finite.max(initial=0))
            for box in boxes(values, windows):
                np.testing.assert_allclose(values[slices(box)], wanted[slices(box)], rtol=0, atol=atol)


def boxes(x: Any, windows: int | None) -> list[Box]:
    """All of an array, or so many of the blocks that it is stored in, the last among them."""
    if windows is None or not isinstance(x, zarr.Array):
        return [whole(x.shape)]
    draw = random.Random(windows)
    blocks = [-(-n // c) for n, c in zip(x.shape, x.chunks, strict=True)]
    places = [tuple(n - 1 for n in blocks), *(tuple(map(draw.randrange, blocks)) for _ in range(windows - 1))]
    return [[(i * c, min(n, (i + 1) * c)) for i, c, n in zip(at, x.chunks, x.shape, strict=True)] for at in places]


def beside(box: Box, lead: Shape, shape: Shape) -> Box:
    """The part of an array that belongs to a box of another: the same where axes are alike, and all of the others."""
    return [box[a] if a < len(lead) and lead[a] == n else (0, n) for a, n in enumerate(shape)]


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in box)


def table_row(name: str, nbytes: int, directory: str) -> None:
    """A row of the table, for `helpers.measure`; the results are left in a directory."""
    from helpers.memory_work import JOBS

    Job(JOBS[name], nbytes).run(Path(directory))


def left_in(directory: Path) -> list[Any]:
    """The results that `table_row` left."""
    paths = sorted(directory.iterdir(), key=lambda path: int(path.stem))
    return [np.load(path) if path.suffix == ".npy" else zarr.open_array(path, mode="r") for path in paths]
