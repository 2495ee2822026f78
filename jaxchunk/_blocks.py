"""Users' own functions of blocks: traced once, keyed by what they compute and what they captured."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxchunk.array_api._array import Array
from jaxchunk.array_api._conversion import from_numpy
from jaxchunk.array_api._dtypes import as_dtype
from jaxchunk.graph.grid import Axis, Grid
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Blockwise

Shape = tuple[int, ...]


def map_blocks(function: Callable[..., Any], *args: Any, dtype: Any = None, **kwargs: Any) -> Array:
    """Apply a function to every block of arrays that are cut alike.

    Parameters
    ----------
    function
        Anything JAX can trace. It is called with one block of each array, exactly as the arrays are
        chunked, and gives a block with as many axes. It is traced here and now, once for every shape
        that blocks have: what it captures counts as it is at this moment.
    *args
        Arrays, with the same number of blocks along each axis; or with one along an axis that others
        have more of, which is then given whole to each call. Anything else is passed on as it is.
    dtype
        Of the result; by default what the function gives.
    **kwargs
        Passed on to the function.

    Returns
    -------
    Array
        Lazy. Along each axis its blocks have the sizes that the function gives.

    Raises
    ------
    ValueError
        Arrays that are cut differently, or blocks of another number of axes.
    TypeError
        No array among the arguments; a function that doesn't give one array of a dtype of the
        standard; and whatever the function raises when it is traced.

    Notes
    -----
    Blocks are never cut or joined. Where one is too large for the budget, computing raises
    `MemoryBudgetError`: `rechunk` before. Arrays that the function captures are given to every call, and
    counted with it.

    The function is traced in the user's own JAX configuration, with 64-bit types where that has them or
    an array or `dtype` is 64 bits wide. Functions that compute the same share a kernel.

    Examples
    --------
    >>> import jax.numpy as jnp, jaxchunk as jc, jaxchunk.array_api as xp
    >>> jc.map_blocks(lambda block: jnp.flip(block), xp.arange(6, chunks=3)).compute()
    array([2, 1, 0, 5, 4, 3])
    """
    nodes = [x._node for x in args if isinstance(x, Array)]
    if not nodes:
        raise TypeError("map_blocks: none of the arguments is a jaxchunk array")
    wanted = None if dtype is None else as_dtype(dtype)
    layout = _Layout(nodes)

    def call(*blocks: Any) -> Any:
        given = iter(blocks)
        result = function(*(next(given) if isinstance(x, Array) else x for x in args), **kwargs)
        return result if wanted is None else jax.numpy.asarray(result).astype(wanted)

    dtypes = [node.dtype for node in nodes] + ([] if wanted is None else [wanted])
    # As the user's own JAX would trace it, but that 64-bit arrays aren't narrowed.
    wide = jax.numpy.zeros(()).dtype == np.float64 or any(_is_wide(d) for d in dtypes)
    with jax.enable_x64(bool(wide)):
        traces = {shapes: _Trace(call, shapes, [n.dtype for n in nodes]) for shapes in layout.block_shapes()}
    return Array(_node(getattr(function, "__name__", type(function).__name__), traces, layout, nodes))


def _is_wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize == (16 if dtype.kind == "c" else 8)


class _Layout:
    """The grid of calls: each array's axes aligned from the right, as in broadcasting."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        ndim = max(node.ndim for node in nodes)
        cuts: list[Axis | None] = [None] * ndim
        for node in nodes:
            for a, axis in enumerate(node.grid, start=ndim - node.ndim):
                if cuts[a] is None or (cuts[a].nblocks == 1 and axis.nblocks > 1):  # type: ignore[union-attr]
                    cuts[a] = axis
        self.grid: Grid = tuple(axis if axis is not None else Axis(()) for axis in cuts)
        self.extra: list[int] = []
        self.maps: list[tuple[int, ...]] = []
        for node in nodes:
            maps = []
            for a, axis in enumerate(node.grid, start=ndim - node.ndim):
                if axis == self.grid[a]:
                    maps.append(a)
                elif axis.nblocks == 1:
                    maps.append(self.whole(axis.length))
                else:
                    raise ValueError(
                        f"map_blocks: axis {a} is cut into {axis.nblocks} blocks {axis.runs} in one array and "
                        f"into {self.grid[a].nblocks} {self.grid[a].runs} in another: rechunk one of them"
                    )
            self.maps.append(tuple(maps))

    def whole(self, length: int) -> int:
        """An axis of its own, in one piece, for what every call is given whole."""
        self.extra.append(length)
        return len(self.grid) + len(self.extra) - 1

    @property
    def space(self) -> Shape:
        return (*(axis.length for axis in self.grid), *self.extra)

    def block_shapes(self) -> list[tuple[Shape, ...]]:
        """The distinct shapes of the arguments of a call, most common first."""
        sizes = [list(dict.fromkeys(size for _, size in axis.runs)) for axis in self.grid]
        return list(dict.fromkeys(self.arguments(s) for s in itertools.product(*sizes)))

    def arguments(self, block: Shape) -> tuple[Shape, ...]:
        lengths = (*block, *self.extra)
        return tuple(tuple(lengths[a] for a in maps) for maps in self.maps)


class _Trace:
    """The function traced at one set of block shapes: a program of its own, and the arrays it captured."""

    def __init__(self, call: Callable[..., Any], shapes: tuple[Shape, ...], dtypes: Sequence[np.dtype[Any]]) -> None:
        # Not with the module: it has JAX import what nothing else here needs.
        from jaxchunk._jaxpr import live_bytes, primitives

        avals = [jax.ShapeDtypeStruct(s, d) for s, d in zip(shapes, dtypes, strict=True)]
        closed = jax.make_jaxpr(call)(*avals)
        if len(closed.jaxpr.outvars) != 1:
            raise TypeError(f"map_blocks: the function gives {len(closed.jaxpr.outvars)} arrays, not one")
        self.jaxpr = closed.jaxpr
        self.captured = [np.asarray(c) for c in closed.consts]
        (out,) = closed.out_avals
        self.shape: Shape = tuple(out.shape)
        self.dtype = as_dtype(np.dtype(out.dtype))
        text = self._lowered()
        self.digest: Hashable = hashlib.sha256(text.encode()).hexdigest()
        self.primitives = primitives(self.jaxpr, text)
        self.live_bytes = live_bytes(self.jaxpr)

    def _lowered(self) -> str:
        """The text of what the program does, in which every constant stands by its bits."""
        consts = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in self.jaxpr.constvars]
        avals = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in self.jaxpr.invars]

        def flat(*values: Any) -> Any:
            return jax.core.eval_jaxpr(self.jaxpr, values[: len(consts)], *values[len(consts) :])

        with jax.enable_x64(True):
            text: str = jax.jit(flat).lower(*consts, *avals).as_text()
        return text

    def __call__(self, captured: Sequence[Any], blocks: Sequence[Any]) -> Any:
        (out,) = jax.core.eval_jaxpr(self.jaxpr, captured, *blocks)
        return out


def _node(name: str, traces: dict[tuple[Shape, ...], _Trace], layout: _Layout, nodes: Sequence[Node]) -> Node:
    first = next(iter(traces.values()))
    grid = _output_grid(traces, layout)
    # Captured arrays are operands, each on axes of its own that are in one piece.
    captured = [from_numpy(value, -1) for value in first.captured]
    maps = [*layout.maps, *(tuple(layout.whole(n) for n in value.shape) for value in first.captured)]

    def body(*values: Any) -> Any:
        own = [lax.reshape(v, tuple(v.shape[a] for a in m)) for v, m in zip(values, maps, strict=True)]
        blocks, consts = own[: len(nodes)], own[len(nodes) :]
        return traces[tuple(b.shape for b in blocks)](consts, blocks)

    key = tuple(trace.digest for trace in traces.values())
    whole = tuple(range(len(layout.grid), len(layout.space)))
    op = Blockwise(
        name,
        body,
        key,
        layout.space,
        tuple(maps),
        whole=whole,
        exact=True,
        flops=10.0,
        primitives=tuple(work for trace in traces.values() for work in trace.primitives),
        body_bytes=max(trace.live_bytes for trace in traces.values()),
    )
    return Node(op, (*nodes, *captured), grid, first.dtype)


def _output_grid(traces: dict[tuple[Shape, ...], _Trace], layout: _Layout) -> Grid:
    """The blocks of the result: along each axis what the function makes of the block's size there."""
    ndim = len(layout.grid)
    sizes: list[dict[int, int]] = [{} for _ in range(ndim)]
    for block in itertools.product(*(dict.fromkeys(s for _, s in axis.runs) for axis in layout.grid)):
        trace = traces[layout.arguments(block)]
        if len(trace.shape) != ndim:
            raise ValueError(
                f"map_blocks: the function makes blocks of {len(trace.shape)} axes of blocks of {ndim}; "
                "keep the axes (keepdims=True), or add them with None"
            )
        for a, (old, new) in enumerate(zip(block, trace.shape, strict=True)):
            if sizes[a].setdefault(old, new) != new:
                raise ValueError(f"map_blocks: the size along axis {a} depends on the block's size along others")
    return tuple(
        Axis(tuple((count, sizes[a][size]) for count, size in axis.runs)) for a, axis in enumerate(layout.grid)
    )
