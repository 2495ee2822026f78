"""What JAX's primitives take besides what XLA reports: buffers of the libraries that do their work.

A compiled kernel's `memory_analysis()` knows XLA's own buffers. Sorting, Fourier transforms, LAPACK
and calls back to Python take more from the system's allocator while they run, and give it back.
``python -m benchmarks.calibrate_scratch`` measures the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from jaxchunk.graph.primitives import Work

Unit: TypeAlias = Literal["line", "matrix", "array"]


class Scratch(NamedTuple):
    """Bytes taken for each byte of what one call of the library works on.

    Attributes
    ----------
    unit
        What that is: one line along the sorted or transformed axis, one matrix of a batch, or the
        whole array; of the operands and results the largest counts. Batches are worked off one by
        one, so they take no more.
    factor
        Bytes by byte.
    """

    unit: Unit
    factor: float


OTHER_LENGTHS = "fft of other lengths"
INTEGER_SORT = "sort of integers"
CUSTOM_CALL = "custom_call"
# For what nobody has measured: a platform without a table, a library that JAX doesn't come with.
CAUTIOUS = 4.0

# Primitives that not all accelerators have.
HOST_ONLY = frozenset({"eig", "schur", "hessenberg"})
# Bytes of a matrix from which on several threads do it faster than one: below, they mostly wait for each other.
SHARED_MATRIX = 16 * 2**20

# Unless it is integers by themselves, a sort moves values in boxes of this size, one for each operand.
SORTED_BYTES = 16

CPU: Mapping[str, Scratch] = {
    "sort": Scratch("line", 1.1),
    INTEGER_SORT: Scratch("line", 0.6),
    "top_k": Scratch("line", 1.0),
    # A line is counted as one of complex numbers, also where they are real.
    "fft": Scratch("line", 1.1),
    OTHER_LENGTHS: Scratch("line", 8.1),
    "cholesky": Scratch("matrix", 0.6),
    "lu": Scratch("matrix", 0.6),
    "qr": Scratch("matrix", 0.4),
    "geqrf": Scratch("matrix", 0.4),
    "householder_product": Scratch("matrix", 0.4),
    "eigh": Scratch("matrix", 1.3),
    "eig": Scratch("matrix", 1.3),
    "svd": Scratch("matrix", 2.1),
    "schur": Scratch("matrix", 0.4),
    "hessenberg": Scratch("matrix", 0.4),
    "tridiagonal": Scratch("matrix", 0.2),
    "triangular_solve": Scratch("matrix", 0.4),
    # Not measured, since one needs accelerators for some: as much as the neediest of their kind.
    **{
        name: Scratch("matrix", 2.1)
        for name in ("cholesky_update", "geqp3", "ormqr", "symmetric_product", "tridiagonal_solve")
    },
    # Panels of the operands, packed; for batches of small matrices, and integers, all of them.
    "dot_general": Scratch("array", 1.3),
    "conv_general_dilated": Scratch("array", 0.6),
    CUSTOM_CALL: Scratch("array", CAUTIOUS),
}
TABLES: Mapping[str, Mapping[str, Scratch]] = {"cpu": CPU}


def scratch_bytes(works: Iterable[Work], tile_bytes: int, platform: str) -> int:
    """The bound for a body: its primitives run one after another, so the neediest one counts.

    Parameters
    ----------
    works
        The body's primitives. Those that aren't in the table are XLA's own: what they take is reported.
    tile_bytes
        The size of those that have none of their own.
    """
    table = TABLES.get(platform)
    most = 0.0
    for work in works:
        if work.name in CPU:
            factor = CAUTIOUS if table is None else table[work.name].factor
            most = max(most, factor * (tile_bytes if work.nbytes is None else work.nbytes))
    return math.ceil(most)


def library_threads(works: Iterable[Work], in_flight: int, cores: int) -> int | None:
    """How many threads LAPACK is to use for a body on each of so many tasks at once; None where it isn't called."""
    matrices = [work.nbytes or 0 for work in works if work.name in CPU and CPU[work.name].unit == "matrix"]
    if not matrices:
        return None
    return max(1, cores // in_flight) if max(matrices) >= SHARED_MATRIX else 1


def sort_entry(kinds: Sequence[str]) -> str:
    """The table's entry for a sort, by the kinds of its operands' dtypes."""
    return INTEGER_SORT if len(kinds) == 1 and kinds[0] in "iu" else "sort"


def fft_entry(lengths: Sequence[int]) -> str:
    """The table's entry for a transform: lengths with a large prime factor are done by way of longer ones."""
    return "fft" if all(_largest_factor(n) <= 13 for n in lengths) else OTHER_LENGTHS


def _largest_factor(n: int) -> int:
    largest, p = 1, 2
    while p * p <= n:
        while n % p == 0:
            largest, n = p, n // p
        p += 1
    return max(largest, n)
