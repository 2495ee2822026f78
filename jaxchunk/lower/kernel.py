"""From programs to functions of a tile that JAX can compile: the one place that chooses their form.

On a CPU the form decides the speed. XLA fuses a chain of operations into the reduction at its end
and then doesn't vectorise it; so a tile is done in sub-tiles small enough for the caches, in one
loop, with accumulators that are vectors. What a kernel needs besides its arguments and results is
then a few sub-tiles, whatever it computes. On accelerators, and where a body wants its axes whole,
the tile is done in one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxchunk.lower.program import Block, Fold, Group, Program

SUBTILE = 32_768
LANES = 512

Array: TypeAlias = Any
State: TypeAlias = tuple[Array, ...]


class SubTiles(NamedTuple):
    """How a tile is cut for the loop: `split` in blocks of `size`, axes before it one at a time."""

    split: int
    size: int
    before: tuple[int, ...]
    full: int
    rest: int


def subtiles(tile: Sequence[int], target: int = SUBTILE) -> SubTiles | None:
    """The cut of a tile into pieces of about `target` elements, or None where one piece will do."""
    if math.prod(tile) <= 2 * target:
        return None
    split = len(tile) - 1
    while split > 0 and math.prod(tile[split:]) <= target // 2:
        split -= 1
    inner = math.prod(tile[split + 1 :])
    length = tile[split]
    size = max(1, min(length, target // inner))
    even = next((s for s in range(size, size // 2, -1) if length % s == 0), None)
    if even is not None:
        size = even
    elif split == len(tile) - 1 and size > LANES:
        size -= size % LANES
    return SubTiles(split, size, tuple(tile[:split]), length // size, length % size)


def evaluate(
    block: Block,
    tile: tuple[int, ...],
    load: Callable[[Any], Array],
    carry: Callable[[Any, Array], Array] | None = None,
) -> list[Array]:
    """Run a block's instructions on a (sub-)tile.

    `load` supplies what isn't computed from other values, `carry` runs the running folds.
    """
    values: list[Array] = []
    for instr in block.instrs:
        if instr.kind == "call":
            args = [values[a] for a in instr.args]
            values.append(instr.payload.body(*args))
        elif instr.kind == "whole":
            op = instr.payload
            blocks = [broadcast(values[a], followed(tile, m)) for a, m in zip(instr.args, op.maps, strict=True)]
            values.append(op.body(*blocks))
        elif instr.kind == "literal":
            values.append(instr.payload)
        elif instr.kind == "scan":
            assert carry is not None
            values.append(carry(instr, values[instr.args[0]]))
        else:
            values.append(load(instr))
    return values


def recycles(program: Program, tile: tuple[int, ...], target: int | None = SUBTILE) -> bool:
    """Whether a step kernel writes its outputs over old ones, where memory to be touched first would cost time."""
    if not program.outputs or program.exact or target is None:
        return False
    return subtiles(tile, target) is not None


def step_function(program: Program, tile: tuple[int, ...], target: int | None = SUBTILE) -> Callable[..., Any]:
    """The function of one tile.

    It takes (params, starts, leaves, spares, states, carries) and gives (outputs, states, carries):
    params one vector per dtype, starts the positions at which index values begin, leaves one array
    per leaf with the space's axes (size 1 where it doesn't follow one), spares old outputs that the
    new ones are written over, states the folds so far.
    """
    cut = None if program.direct or target is None else subtiles(tile, target)

    def step(params: Any, starts: Array, leaves: Any, spares: Any, states: Any, carries: Any) -> Any:
        piece = Piece(program, tile, params, starts, leaves)
        if cut is None:
            return piece.whole(states, carries)
        return piece.looped(cut, spares, states, carries)

    return step


class Piece:
    """One call of a step kernel while it is traced."""

    def __init__(self, program: Program, tile: tuple[int, ...], params: Any, starts: Array, leaves: Any) -> None:
        self.program, self.tile, self.starts, self.leaves = program, tile, starts, leaves
        self.params = unpack(program, params)

    def loader(self, at: Sequence[Array | int], sizes: tuple[int, ...]) -> Callable[[Any], Array]:
        def load(instr: Any) -> Array:
            if instr.kind == "param":
                return self.params[instr.payload]
            if instr.kind == "index":
                axis, slot, step = instr.payload
                shape = [1] * len(sizes)
                shape[axis] = sizes[axis]
                first = self.starts[slot] + step * jnp.asarray(at[axis], "int64")
                return lax.reshape(first + step * lax.iota("int64", sizes[axis]), shape)
            return cut_out(self.leaves[instr.payload], at, sizes)

        return load

    def whole(self, states: Any, carries: Any) -> Any:
        program, tile = self.program, self.tile
        new_carries = list(carries)

        def carry(instr: Any, value: Array) -> Array:
            slot = instr.payload
            scan = program.scans[slot]
            new_carries[slot], result = scan.scanner.scan(carries[slot], broadcast(value, tile), scan.axis)
            return result

        values = evaluate(program.body, tile, self.loader((0,) * len(tile), tile), carry)
        outputs = tuple(values[o] if program.exact else broadcast(values[o], tile) for o in program.outputs)
        new = tuple(
            fold.reducer.combine(state, lift(fold, values, tile))
            for fold, state in zip(program.folds, states, strict=True)
        )
        return outputs, new, tuple(new_carries)

    def looped(self, cut: SubTiles, outputs: Any, states: Any, carries: Any) -> Any:
        program, tile = self.program, self.tile
        # Lanes: a fold over the last axis keeps a vector along it until the loop is done, unless
        # it keeps an axis that the loop goes along (then the lanes are merged in each sub-tile).
        laned = [self.lanes(fold, cut) for fold in program.folds]
        accs = tuple(
            identity(fold, state_sizes(fold, tile, lanes)) for fold, lanes in zip(program.folds, laned, strict=True)
        )
        loop_carry = (outputs, accs, tuple(carries))
        for first, count, size in ((0, cut.full, cut.size), (cut.full * cut.size, 1 if cut.rest else 0, cut.rest)):
            trips = math.prod(cut.before) * count
            if trips == 0:
                continue

            def body(i: Array, state: Any, first: int = first, count: int = count, size: int = size) -> Any:
                at: list[Array | int] = [0] * len(tile)
                at[cut.split] = first + (i % count) * size
                rest = i // count
                for axis in reversed(range(cut.split)):
                    at[axis] = rest % tile[axis]
                    rest = rest // tile[axis]
                sizes = (*(1 for _ in cut.before), size, *tile[cut.split + 1 :])
                return self.subtile(at, sizes, laned, *state)

            loop_carry = lax.fori_loop(0, trips, body, loop_carry) if trips > 1 else body(jnp.int64(0), loop_carry)
        outputs, accs, new_carries = loop_carry
        merged = [
            merge_last(fold, acc) if lanes > 1 else acc
            for fold, acc, lanes in zip(program.folds, accs, laned, strict=True)
        ]
        new = tuple(
            fold.reducer.combine(state, acc) for fold, state, acc in zip(program.folds, states, merged, strict=True)
        )
        return outputs, new, new_carries

    def lanes(self, fold: Fold, cut: SubTiles) -> int:
        last = len(self.tile) - 1
        if last not in fold.dropped or any(a not in fold.dropped for a in range(cut.split + 1)):
            return 1
        if cut.split < last:
            return self.tile[last]
        return LANES if cut.size % LANES == 0 else 1

    def subtile(
        self, at: Sequence[Array | int], sizes: tuple[int, ...], laned: list[int], outputs: Any, accs: Any, carries: Any
    ) -> Any:
        program = self.program
        new_carries = list(carries)

        def carry(instr: Any, value: Array) -> Array:
            slot = instr.payload
            scan = program.scans[slot]
            old = cut_out(new_carries[slot], at, sizes)
            new, result = scan.scanner.scan(old, broadcast(value, sizes), scan.axis)
            new_carries[slot] = put_in(new_carries[slot], new, at)
            return result

        values = evaluate(program.body, sizes, self.loader(at, sizes), carry)
        outputs = tuple(
            put_in(out, broadcast(values[o], sizes), at) for out, o in zip(outputs, program.outputs, strict=True)
        )
        new_accs = []
        for fold, acc, lanes in zip(program.folds, accs, laned, strict=True):
            state = lift(fold, values, sizes, lanes)
            shape = state_sizes(fold, sizes, lanes)
            old = tuple(cut_out(a, at, shape) for a in acc)
            new = fold.reducer.combine(old, state)
            new_accs.append(tuple(put_in(a, n, at) for a, n in zip(acc, new, strict=True)))
        return outputs, tuple(new_accs), tuple(new_carries)


def finish_function(program: Program, group: Group, tile: tuple[int, ...]) -> Callable[..., Any]:
    """The function that makes a group's results of its states: (params, starts, leaves, states) → outputs."""

    def finish(params: Any, starts: Array, leaves: Any, states: Any) -> Any:
        piece = Piece(program, tile, params, starts, leaves)
        load = piece.loader((0,) * len(tile), tile)
        results = {
            number: program.folds[number].reducer.finish(state)
            for number, state in zip(group.folds, states, strict=True)
        }
        values = evaluate(group.epilogue, tile, lambda i: results[i.payload] if i.kind == "folded" else load(i))
        return tuple(values[o] for o in group.outputs)

    return finish


def combine_function(program: Program, group: Group) -> Callable[..., Any]:
    """Joins the states of a group that two tasks made, the first task's first."""

    def combine(first: Any, second: Any) -> Any:
        return tuple(
            program.folds[number].reducer.combine(a, b) for number, a, b in zip(group.folds, first, second, strict=True)
        )

    return combine


def unpack(program: Program, params: Any) -> list[Array]:
    """Each parameter as an array of the space's rank, from one vector per dtype."""
    taken: dict[Any, int] = {}
    vectors = dict(zip(param_dtypes(program), params, strict=True))
    unpacked = []
    for value in program.params:
        i = taken.get(value.dtype, 0)
        taken[value.dtype] = i + 1
        unpacked.append(lax.reshape(vectors[value.dtype][i], (1,) * program.rank))
    return unpacked


def param_dtypes(program: Program) -> list[Any]:
    return list(dict.fromkeys(p.dtype for p in program.params))


def lift(fold: Fold, values: list[Array], sizes: tuple[int, ...], lanes: int = 1) -> State:
    """The state of a sub-tile; with lanes, the last axis is kept or folded onto that many lanes."""
    args = tuple(broadcast(values[a], fold_sizes(fold, i, sizes)) for i, a in enumerate(fold.args))
    last = len(sizes) - 1
    if last not in fold.dropped or fold.reducer.contracts or sizes[last] == 1:
        state = fold.reducer.lift(args, fold.dropped)
    elif lanes == 1 and sizes[last] % 128 == 0 and sizes[last] > 128:
        # All of the last axis at once: first onto 128 lanes, then the lanes in a tree.
        return merge_last(fold, lift(fold, values, sizes, 128))
    elif lanes == 1:
        state = fold.reducer.lift(args, fold.dropped)
    elif sizes[last] % lanes:
        # The loop's remainder: one lane of its own, beside others that hold nothing.
        one = fold.reducer.lift(args, fold.dropped)
        rest = identity(fold, (*state_sizes(fold, sizes, lanes)[:-1], lanes - 1))
        one = tuple(broadcast(s, state_sizes(fold, sizes)) for s in one)
        state = tuple(lax.concatenate([s, r], s.ndim - 1) for s, r in zip(one, rest, strict=True))
    elif lanes == sizes[last]:
        state = fold.reducer.lift(args, tuple(a for a in fold.dropped if a != last))
    else:
        wide = (*sizes[:last], sizes[last] // lanes, lanes)
        state = fold.reducer.lift(tuple(lax.reshape(a, wide) for a in args), fold.dropped)
        state = tuple(lax.reshape(s, (*s.shape[:last], s.shape[-1])) for s in state)
    # Every array of a state has the state's full shape, so that a loop can update a part of it.
    return tuple(broadcast(s, state_sizes(fold, sizes, lanes)) for s in state)


def fold_sizes(fold: Fold, operand: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """What a fold sees of a sub-tile: all of it, but for a contraction whose operands follow some axes only."""
    if not fold.reducer.contracts:
        return sizes
    return followed(sizes, fold.reducer.follows[operand])


def followed(sizes: tuple[int, ...], axes: Sequence[int | None]) -> tuple[int, ...]:
    """The sizes of what follows some of the axes."""
    return tuple(n if a in axes else 1 for a, n in enumerate(sizes))


def merge_last(fold: Fold, state: State) -> State:
    """Fold the lanes along the last axis in a tree, padded to a power of two with the identity."""
    width = state[0].shape[-1]
    padded = 1 << (width - 1).bit_length()
    if padded != width:
        pad = identity(fold, (*state[0].shape[:-1], padded - width))
        state = tuple(lax.concatenate([s, p], s.ndim - 1) for s, p in zip(state, pad, strict=True))
    while padded > 1:
        padded //= 2
        first = tuple(lax.slice_in_dim(s, 0, padded, axis=-1) for s in state)
        second = tuple(lax.slice_in_dim(s, padded, 2 * padded, axis=-1) for s in state)
        state = fold.reducer.combine(first, second)
    return state


def identity(fold: Fold, shape: tuple[int, ...]) -> State:
    return tuple(
        jnp.full(shape, value, dtype)
        for value, dtype in zip(fold.reducer.identity(fold.dtypes), fold.reducer.state_dtypes(fold.dtypes), strict=True)
    )


def state_sizes(fold: Fold, sizes: Sequence[int], lanes: int = 1) -> tuple[int, ...]:
    """The shape of a fold's state over a tile of these sizes."""
    shape = [1 if a in fold.dropped else n for a, n in enumerate(sizes)]
    if shape and lanes > 1:
        shape[-1] = lanes
    return tuple(shape)


def broadcast(value: Array, shape: tuple[int, ...]) -> Array:
    if value.shape == shape:
        return value
    return lax.broadcast_in_dim(value, shape, tuple(range(len(shape))))


def cut_out(value: Array, at: Sequence[Array | int], sizes: Sequence[int]) -> Array:
    """The sub-tile of a value; axes of size 1 are taken whole."""
    wanted = tuple(1 if n == 1 else s for n, s in zip(value.shape, sizes, strict=True))
    if wanted == value.shape:
        return value
    starts = [0 if n == 1 else a for n, a in zip(value.shape, at, strict=True)]
    return lax.dynamic_slice(value, [jnp.asarray(s, "int32") for s in starts], wanted)


def put_in(value: Array, part: Array, at: Sequence[Array | int]) -> Array:
    if part.shape == value.shape:
        return part
    # Where a part is as long as the value there is only one place for it.
    starts = [0 if n == p else a for n, p, a in zip(value.shape, part.shape, at, strict=True)]
    return lax.dynamic_update_slice(value, part, [jnp.asarray(s, "int32") for s in starts])


def x64() -> Any:
    """64-bit types within this block only, whatever the user's own setting."""
    return jax.enable_x64(True)
