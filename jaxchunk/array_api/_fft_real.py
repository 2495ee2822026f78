"""Long real and Hermitian lines by way of complex ones.

Of even length: the elements in pairs are a complex line of half the length, with as many bytes. Its
coefficients are those of the even elements and of the odd ones in one, and come apart by symmetry.
Of odd length: a complex line of the same length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _views
from jaxchunk.array_api._fft_lines import Line, times
from jaxchunk.array_api._fft_long import Transform, copied, scaled
from jaxchunk.array_api._fft_roots import root
from jaxchunk.array_api._values import aligned
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import AxisMap

_add, _mul, _sub = aligned(lax.add), aligned(lax.mul), aligned(lax.sub)
_select, _complex = aligned(lax.select), aligned(lax.complex)


def long_rfft(node: Node, line: Line, transform: Transform) -> Node:
    """The transform of a real line that doesn't fit in the budget whole."""
    axis, n = line.axis, line.n
    dtype = line.dtype(node.dtype)
    if n % 2:
        line = Line("fft", axis, n, line.power)
        return _views.cut(transform(_build.cast(node, dtype), [line]), axis, 0, n // 2 + 1)
    pairs = copied(_elementwise("pair", _complex, [_every_other(node, axis, 0), _every_other(node, axis, 1)], dtype))
    mixed = transform(pairs, [Line("fft", axis, n // 2)])
    # Coefficient h is coefficient 0, and their mirror images run backwards.
    around = _views.concat([mixed, _views.cut(mixed, axis, 0, 1)], axis)
    operands = [around, _views.flip(around, [axis])]

    def unmixed(here: Any, there: Any, k: Any) -> Any:
        mirror = lax.conj(there)
        even, odd = lax.add(here, mirror), lax.sub(here, mirror)
        turned = _mul(odd, root(k, n, -1, dtype))
        # The odd elements came as imaginary parts: (even - i · turned) / 2.
        return times(lax.complex(*_minus_i(even, turned)), 0.5)

    done = _at_positions("unmix", unmixed, operands, axis, dtype, n)
    return scaled(done, float(n) ** line.power)


def _minus_i(x: Any, y: Any) -> tuple[Any, Any]:
    """The parts of x - i y."""
    return lax.add(lax.real(x), lax.imag(y)), lax.sub(lax.imag(x), lax.real(y))


def long_irfft(node: Node, line: Line, transform: Transform) -> Node:
    """The real transform of half a line that doesn't fit in the budget whole."""
    axis, n = line.axis, line.n
    dtype, real = node.dtype, line.dtype(node.dtype)
    if n % 2:
        mirror = _elementwise("conj", lax.conj, [_views.flip(_views.cut(node, axis, 1, n // 2 + 1), [axis])], dtype)
        full = _views.concat([node, mirror], axis)
        first = _at_positions("real first", _real_first, [full], axis, dtype, n)
        return _elementwise("real", lax.real, [transform(first, [Line("ifft", axis, n, line.power)])], real)
    half = n // 2
    operands = [_views.cut(node, axis, 0, half), _views.flip(_views.cut(node, axis, 1, half + 1), [axis])]

    def mixed(here: Any, there: Any, k: Any) -> Any:
        here, mirror = _real_first(here, k), lax.conj(_real_first(there, k))
        even, odd = lax.add(here, mirror), lax.sub(here, mirror)
        turned = lax.neg(_mul(odd, root(k, n, 1, dtype)))
        return times(lax.complex(*_minus_i(even, turned)), 0.5)

    pairs = transform(_at_positions("mix", mixed, operands, axis, dtype, n), [Line("ifft", axis, half, -1.0)])
    return scaled(_unpaired(pairs, axis, real), float(n) ** (line.power + 1))


def _real_first(x: Any, k: Any) -> Any:
    """A value without its imaginary part at position 0."""
    real = lax.complex(lax.real(x), lax.full_like(lax.real(x), 0))
    first = lax.broadcast_in_dim(lax.eq(k, lax.full_like(k, 0)), x.shape, tuple(range(x.ndim)))
    return lax.select(first, real, x)


def _unpaired(pairs: Node, axis: int, dtype: Any) -> Node:
    """Real and imaginary parts one after another along an axis."""
    shape = (*pairs.shape[:axis], 2 * pairs.shape[axis], *pairs.shape[axis + 1 :])
    wide = _views.expand_dims(pairs, [axis + 1])
    twice = _views.reshape(_views.broadcast_to(wide, (*shape[:axis], shape[axis] // 2, 2, *shape[axis + 1 :])), shape)

    def part(x: Any, k: Any) -> Any:
        odd = lax.eq(lax.bitwise_and(k, lax.full_like(k, 1)), lax.full_like(k, 1))
        return _select(odd, lax.imag(x), lax.real(x))

    return _at_positions("unpair", part, [twice], axis, dtype, 2)


def _every_other(node: Node, axis: int, first: int) -> Node:
    """The elements at even positions, or at odd ones, of an axis of even length."""
    maps = [AxisMap(a, first, 2) if a == axis else AxisMap(a) for a in range(node.ndim)]
    cuts = node.grid[axis].sliced(first, node.shape[axis]).strided(2)
    return _views.view("slice", node, maps, (*node.grid[:axis], cuts, *node.grid[axis + 1 :]))


def _elementwise(name: str, body: Callable[..., Any], operands: list[Node], dtype: Any) -> Node:
    return _build.blockwise(name, body, name, operands, dtype)


def _at_positions(name: str, body: Callable[..., Any], operands: list[Node], axis: int, dtype: Any, n: int) -> Node:
    """Arithmetic that knows the position along one axis; its last argument."""
    shape = operands[0].shape
    own = tuple(range(len(shape)))
    nodes = [*operands, _build.iota(shape[axis], operands[0].grid[axis])]
    maps = [own] * len(operands) + [(axis,)]
    return _build.blockwise(name, body, (name, axis, n, np.dtype(dtype).str), nodes, dtype, maps=maps, space=shape)
