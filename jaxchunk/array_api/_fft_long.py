"""Long complex lines as shorter ones: passes over an intermediate that is larger than memory.

A line of p q points is a matrix of p rows in row-major order. *Columns* are transformed (p points
each), element (j, k) is multiplied by the root of unity at j k / (p q), and *rows* are transformed
(q points): the coefficients lie there column by column. This is the four-step algorithm. A row, or
a column, that is too long itself is a line as any other.

A line whose length has a large prime factor is a convolution with a chirp, of a padded length that
has small ones (Bluestein's algorithm).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._fft_lines import TASK_SHARE, Feed, Line, feed_of, fitted, made, needed_bytes, times
from jaxchunk.array_api._fft_roots import LONGEST, chirp, chirped, twiddled
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.node import Node, postorder
from jaxchunk.graph.primitives import Blockwise, Source
from jaxchunk.plan.scratch import fft_entry
from jaxchunk.plan.tile import JOIN_BYTES
from jaxchunk.run.values import SHORT_RUN
from jaxchunk.store.parts import in_parts, is_divisible
from jaxchunk.store.stored import StoredArray

Transform: TypeAlias = Callable[[Node, Sequence[Line]], Node]

# Columns are transformed so many at a time at least: what is read and written of each row is a run of bytes.
FEWEST_COLUMNS = 8
# And so many where budgets are large: the planner joins columns up to `JOIN_BYTES` only.
SOME_COLUMNS = 64
# A factor below isn't worth a pass of its own.
LEAST_FACTOR = 16


class Split(NamedTuple):
    """A matrix of p rows of q points."""

    p: int
    q: int


def long_line(node: Node, line: Line, budget: int, transform: Transform) -> Node | None:
    """The transform of complex lines that don't fit in the budget whole; None where there is no way."""
    along = _split_along_chunks(node, line, budget)
    if along is not None:
        return _four_step(in_parts_of(node, along[1]), line, along[0], transform)
    split = split_of(node, line, budget // 4)
    if split is not None:
        # A column has elements of many chunks: in strides one reads what is stored without any.
        return _four_step(copied(node) if _longest_chunk(node) else node, line, split, transform)
    if fft_entry([line.n]) == "fft" or line.n > LONGEST:
        return None
    return _by_convolution(node, line, budget, transform)


# --- four steps ----------------------------------------------------------------------------------


def split_of(node: Node, line: Line, room: int) -> Split | None:
    """How to split a line so that a row, and some columns, fit in some room.

    It has as few rows as there can be. Where two passes don't do, as many as there can be: a row is
    split again then.
    """
    needs = Needs(node, line)
    highest = JOIN_BYTES // (SOME_COLUMNS * node.dtype.itemsize)
    factors = [p for p in divisors(line.n)[1:-1] if p <= highest and needs.columns(p, FEWEST_COLUMNS) <= room]
    once = [p for p in factors if needs.row(line.n // p) <= room]
    several = [p for p in factors if p >= LEAST_FACTOR]
    if not once and not several:
        return None
    p = min(once) if once else max(several)
    return Split(p, line.n // p)


class Needs:
    """What the tasks of a split take, in bytes."""

    def __init__(self, node: Node, line: Line) -> None:
        self.line, self.dtype = line, node.dtype
        feed = feed_of(node)
        # A matrix is a reshape of the line; rows are read as columns left them, and turned on the way.
        self.feed = Feed(pieced=True, calls=feed.calls, platform=feed.platform)
        self.turned = Feed(calls=1, platform=feed.platform)

    def columns(self, p: int, count: int) -> int:
        """So many columns of p points."""
        return needed_bytes(self.dtype, self.feed, [self.line._replace(n=p)], count * p, False)

    def row(self, q: int) -> int:
        """A row of q points."""
        return needed_bytes(self.dtype, self.turned, [self.line._replace(n=q)], q, False)


def _stores_of(node: Node) -> list[StoredArray]:
    """The stores that a node is computed from."""
    arrays = [n.op.array for n in postorder([node], stop=made) if isinstance(n.op, Source)]
    return [array for array in arrays if isinstance(array, StoredArray)]


def _longest_side(array: StoredArray) -> int:
    return max((cuts.largest for cuts in array.grid), default=0)


def _longest_chunk(node: Node) -> int:
    """The longest side of a chunk of the stores that a node is computed from; 0 where there are none."""
    return max(map(_longest_side, _stores_of(node)), default=0)


def _split_along_chunks(node: Node, line: Line, budget: int) -> tuple[Split, int] | None:
    """A split in which a task's columns are whole chunks of a store, or whole parts of chunks, and how long these are.

    No copy is made then. None where there is no such split.
    """
    chunk, needs = _longest_chunk(node), Needs(node, line)
    if not chunk or line.n % chunk:
        return None
    least = SHORT_RUN // node.dtype.itemsize if _is_parted(node) else chunk
    lengths = [c for c in reversed(divisors(chunk)) if c >= min(chunk, least)]
    for length in lengths:
        for p in divisors(line.n // length)[1:-1]:
            small = needs.row(line.n // p) <= budget * TASK_SHARE and needs.columns(p, length) <= budget * 3 // 4
            # The planner joins columns up to so many bytes.
            if small and p * length * node.dtype.itemsize <= JOIN_BYTES:
                return Split(p, line.n // p), length
    return None


def _is_parted(node: Node) -> bool:
    """Whether the chunks of all stores that a node is computed from can be read in parts, along the longest side."""
    stored = _stores_of(node)
    return all(is_divisible(a) and a.layout.unit_nbytes == _longest_side(a) * a.dtype.itemsize for a in stored)


def in_parts_of(node: Node, length: int) -> Node:
    """The node, computed from stores whose chunks are read in parts of so many elements, where they are longer."""
    turned: dict[Node, Node] = {}
    for inner in postorder([node], stop=made):
        operands = tuple(turned.get(operand, operand) for operand in inner.operands)
        if isinstance(inner.op, Source) and isinstance(inner.op.array, StoredArray):
            array = in_parts(inner.op.array, length * inner.dtype.itemsize)
            if array is not inner.op.array:
                turned[inner] = Node(Source(array), (), array.grid, inner.dtype, inner.device, inner.where)
        elif operands != inner.operands and not made(inner):
            turned[inner] = Node(inner.op, operands, inner.grid, inner.dtype, inner.device, inner.where)
    return turned.get(node, node)


def _four_step(node: Node, line: Line, split: Split, transform: Transform) -> Node:
    return _views.reshape(forward(as_rows(node, line.axis, split), line, split, transform), node.shape)


def as_rows(node: Node, axis: int, split: Split) -> Node:
    """A line as a matrix."""
    return _views.reshape(node, (*node.shape[:axis], split.p, split.q, *node.shape[axis + 1 :]))


def forward(matrix: Node, line: Line, split: Split, transform: Transform) -> Node:
    """A line's coefficients from its matrix, as a matrix of q rows and p columns.

    It is made transposed, so that in each of its blocks lies next to each other what is so in the line.
    """
    columns = transform(matrix, [line._replace(n=split.p)])
    turned = twiddled(columns, line.axis, line.n, line.sign)
    return transform(_swapped(turned, line.axis), [line._replace(n=split.q)])


def backward(matrix: Node, line: Line, split: Split, transform: Transform) -> Node:
    """The steps of `forward` in reverse order: from coefficients as it leaves them to a line as a matrix."""
    rows = _swapped(transform(matrix, [line._replace(n=split.q)]), line.axis)
    return transform(twiddled(rows, line.axis, line.n, line.sign), [line._replace(n=split.p)])


def _swapped(matrix: Node, axis: int) -> Node:
    order = list(range(matrix.ndim))
    order[axis], order[axis + 1] = axis + 1, axis
    return _views.permute(matrix, order)


# --- convolution -----------------------------------------------------------------------------------


def _by_convolution(node: Node, line: Line, budget: int, transform: Transform) -> Node:
    """j k = (j² + k² - (k - j)²) / 2: a product by a chirp, a convolution with another, a product again."""
    axis, n = line.axis, line.n
    length = good_length(2 * n - 1)
    there, back = Line("fft", axis, length), Line("ifft", axis, length, -1.0)
    padded = fitted(chirped(node, axis, n, line.sign), axis, length)
    kernel = chirp(length, n, -line.sign, node.dtype)
    whole = Needs(padded, there).columns(length, 1) <= budget * TASK_SHARE
    split = None if whole else split_of(padded, there, budget // 4)
    if split is None:
        spectrum, response = transform(padded, [there]), transform(kernel, [there._replace(axis=0)])
        circle = transform(_product(spectrum, response, (axis,)), [back])
    else:
        # The product may be taken in any order of the coefficients: they are left as they come.
        spectrum = forward(as_rows(padded, axis, split), there, split, transform)
        response = forward(as_rows(kernel, 0, split), there._replace(axis=0), split, transform)
        matrix = backward(_product(spectrum, response, (axis, axis + 1)), back, split, transform)
        circle = _views.reshape(matrix, padded.shape)
    return scaled(chirped(fitted(circle, axis, n), axis, n, line.sign), float(n) ** line.power)


def _product(spectrum: Node, response: Node, axes: tuple[int, ...]) -> Node:
    maps = (tuple(range(spectrum.ndim)), axes)
    return _build.blockwise(
        "convolve", aligned(lax.mul), "convolve", (spectrum, response), spectrum.dtype, maps=maps, space=spectrum.shape
    )


def scaled(node: Node, factor: float) -> Node:
    """A real multiple of a node."""
    if factor == 1:
        return node
    return _build.blockwise("scale", lambda x: times(x, factor), ("scale", factor), (node,), node.dtype)


def good_length(least: int) -> int:
    """The shortest length from `least` on that has small factors, and many of two."""
    return min(odd << max(0, (-(-least // odd) - 1).bit_length()) for odd in (1, 3, 5, 9, 15))


@functools.lru_cache(64)
def divisors(n: int) -> list[int]:
    """All of a number's divisors, in order."""
    found = [1]
    for prime, count in _factors(n):
        found = [d * prime**i for d in found for i in range(count + 1)]
    return sorted(found)


def _factors(n: int) -> Iterator[tuple[int, int]]:
    p = 2
    while p * p <= n:
        count = 0
        while n % p == 0:
            n //= p
            count += 1
        if count:
            yield p, count
        p += 1
    if n > 1:
        yield n, 1


def copied(node: Node) -> Node:
    """The node as an intermediate of its own: an operation that wants an axis whole is made before it is read."""
    wide = _views.expand_dims(node, [node.ndim])
    maps = (tuple(range(wide.ndim)),)
    op = Blockwise("copy", lambda x: x, "copy", wide.shape, maps, whole=(node.ndim,))
    return _views.squeeze(_build.make(op, (wide,), wide.grid, node.dtype), [node.ndim])
