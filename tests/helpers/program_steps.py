"""Random programs, drawn step by step."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from helpers.programs import Program, Value

SIDES = {1: (7, 1, 100, 1000, 5000, 30_000), 2: (17, 1, 3, 60, 170), 3: (9, 1, 2, 5, 20)}
DTYPES = ("float64", "float64", "float32", "int64", "int32", "uint8", "int8", "bool", "complex128")

Step = Callable[[Any, Program], Any]


@st.composite
def programs(draw: Any, steps: int = 8) -> Program:
    program = Program()
    shape = _shape(draw)
    for _ in range(draw(st.integers(1, 3))):
        _source(draw, program, shape if draw(st.integers(0, 3)) else _shape(draw))
    for _ in range(draw(st.integers(2, steps))):
        draw(st.sampled_from(STEPS))(draw, program)
    _ask(draw, program)
    # Floats come first, since hypothesis tends to what is first: the others are the exception.
    program.budget = draw(st.sampled_from([None, 8_000_000, 1_000_000, 200_000, 60_000, 20_000]))
    program.threads = draw(st.integers(1, 3))
    return program


def _shape(draw: Any) -> tuple[int, ...]:
    ndim = draw(st.integers(1, 3))
    side = st.sampled_from(SIDES[ndim])
    return tuple(max(1, draw(side), draw(side) - draw(st.integers(0, 2))) for _ in range(ndim))


def _cuts(draw: Any, shape: Sequence[int]) -> Any:
    """Regular or irregular cuts: no more than some seven blocks along an axis."""
    cuts: list[Any] = []
    for n in shape:
        if n < 2 or draw(st.booleans()):
            cuts.append(draw(st.integers(-(-n // 7), n)) if n else 1)
        else:
            places = sorted(draw(st.sets(st.integers(1, n - 1), max_size=4)))
            cuts.append(tuple(b - a for a, b in zip([0, *places], [*places, n], strict=True)))
    return tuple(cuts)


def _blocks(draw: Any, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(draw(st.integers(max(1, -(-n // 7)), max(1, n))) for n in shape)


def _source(draw: Any, p: Program, shape: tuple[int, ...]) -> None:
    dtype, seed = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 9))
    if draw(st.booleans()):
        p.add(f"lib.array({shape}, {dtype!r}, {seed}, {_cuts(draw, shape)})")
    else:
        cuts = _cuts(draw, shape) if draw(st.booleans()) else None
        packed = draw(st.booleans())
        p.add(f"lib.stored({shape}, {dtype!r}, {seed}, {_blocks(draw, shape)}, {cuts}, {packed})")


def _ask(draw: Any, p: Program) -> None:
    """What is computed, what written: of arrays that nothing is made from three, and perhaps another."""
    used = {n.id for line in p.lines for n in ast.walk(ast.parse(line.partition(" = ")[2])) if isinstance(n, ast.Name)}
    asked = [v for v in p.values if v.name not in used][-3:]
    if draw(st.booleans()):
        asked.append(draw(st.sampled_from(p.values)))
    for v in dict.fromkeys(asked):
        if v.array.size and draw(st.integers(0, 2)) == 0:
            p.written[v.name] = _blocks(draw, v.shape)
            if draw(st.booleans()):
                continue
        p.computed.append(v.name)


# --- steps ----------------------------------------------------------------------------------------------------


def _pick(draw: Any, p: Program, kinds: str = "biufc", exact: bool = False, dims: int = 0) -> Value | None:
    """A value of some kinds of dtypes, the later ones more often; None where there is none."""
    fit = [v for v in p.values if v.kind in kinds and v.ndim >= dims and (v.exact or not exact)]
    if not fit:
        return None
    return draw(st.sampled_from(fit[-3:] if draw(st.booleans()) else fit))


def _axis(draw: Any, v: Value) -> int:
    return draw(st.integers(-v.ndim, v.ndim - 1))


def _beside(draw: Any, p: Program, a: Value, shape: bool = False) -> Value:
    """Another value of the same dtype that broadcasts with it, or that has the same shape."""

    def fits(b: Value) -> bool:
        if b.array.dtype != a.array.dtype or (shape and b.shape != a.shape):
            return False
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return False
        return True

    return draw(st.sampled_from([b for b in p.values if fits(b)]))


def _binary(draw: Any, p: Program) -> None:
    a = _pick(draw, p)
    if a is None:
        return
    b = _beside(draw, p, a)
    forms = {
        "b": ["xp.logical_and({a}, {b})", "{a} | {b}", "{a} ^ {b}", "xp.logical_not({a}) & {b}"],
        "i": ["{a} + {b}", "{a} * {b}", "xp.maximum({a}, {b})", "{a} ^ {b}", "({a} - {b}) // 3", "{a} % 5 + {b}"],
        "f": ["{a} + {b}", "{a} - {b} * 2", "{a} * {b}", "xp.minimum({a}, {b})", "{a} / (xp.abs({b}) + 1)"],
        "c": ["{a} + {b}", "{a} * {b}", "xp.conj({a}) - {b}", "{a} / (xp.abs({b}) + 1)"],
    }
    form = draw(st.sampled_from(forms["i" if a.kind == "u" else a.kind]))
    p.add(form.format(a=a.name, b=b.name), a, b, magnitude=2 * a.magnitude * b.magnitude)


def _compare(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "iuf", exact=True)
    if a is not None:
        b = _beside(draw, p, a)
        if b.exact:
            p.add(f"{a.name} {draw(st.sampled_from(['<', '==', '>=', '!=']))} {b.name}", a, b)


def _where(draw: Any, p: Program) -> None:
    a, mask = _pick(draw, p), _pick(draw, p, "b")
    if a is None:
        return
    b = _beside(draw, p, a)
    if mask is not None:
        try:
            np.broadcast_shapes(a.shape, b.shape, mask.shape)
        except ValueError:
            mask = None
    if mask is not None:
        p.add(f"xp.where({mask.name}, {a.name}, {b.name})", mask, a, b)
    elif a.exact and a.kind in "iuf":
        p.add(f"xp.where({a.name} > 1, {a.name}, {b.name})", a, b)


def _unary(draw: Any, p: Program) -> None:
    a = _pick(draw, p)
    if a is None:
        return
    forms = {
        "b": ["xp.logical_not({a})", "xp.astype({a}, xp.int8)"],
        "u": ["xp.bitwise_invert({a})", "xp.astype({a}, xp.int64)", "xp.square({a})", "{a} >> 1"],
        "i": ["xp.abs({a})", "-{a}", "xp.astype({a}, xp.float64)", "xp.astype({a}, xp.int32)", "xp.sign({a})"],
        "f": ["xp.tanh({a})", "xp.exp(-xp.abs({a}))", "xp.sin({a})", "xp.sqrt(xp.abs({a}) + 1)", "xp.clip({a}, -2, 2)"],
        "c": ["xp.real({a})", "xp.abs({a})", "xp.conj({a})", "xp.square({a})"],
    }
    choices = list(forms[a.kind])
    if a.kind == "f" and a.exact:
        choices += ["xp.floor({a} / 2)", "xp.astype({a}, xp.int64)", "xp.sqrt(xp.abs({a}))", "xp.astype({a}, xp.bool)"]
    if a.kind == "f":
        choices += ["xp.astype({a}, xp.float32)", "xp.astype({a}, xp.complex128)"]
    form = draw(st.sampled_from(choices))
    p.add(form.format(a=a.name), a, magnitude=a.magnitude**2 if "square" in form else 0.0)


def _fold(draw: Any, p: Program) -> None:
    a = _pick(draw, p)
    if a is None:
        return
    axes = tuple(draw(st.sets(st.integers(0, a.ndim - 1)))) if a.ndim else ()
    axis = draw(st.sampled_from([None, axes]))
    names = {"b": ["any", "all", "count_nonzero"], "c": ["sum", "mean"]}.get(a.kind, ["sum", "max", "min"])
    if a.kind == "f":
        names = [*names, "mean", "var", "std", "prod"]
    name = draw(st.sampled_from(names))
    over = axes if axis is not None else tuple(range(a.ndim))
    count = math.prod(a.shape[k] for k in over)
    if not count and name not in ("sum", "any", "all", "count_nonzero"):
        return
    if name == "std" and a.kind == "f":  # a root of what is nearly 0 has no good digits
        p.add(f"xp.sqrt(xp.var({a.name}, axis={axis}) + 1)", a, magnitude=a.magnitude**2, exact=False)
        return
    if name == "prod":
        clipped = f"xp.clip({a.name}, -1, 1)"
        p.add(f"xp.prod({clipped}, axis={axis}, keepdims=False)", a)
        return
    magnitude = a.magnitude**2 if name == "var" else a.magnitude * max(1, count)
    exact = name not in ("mean", "var")
    keep = draw(st.booleans())
    p.add(f"xp.{name}({a.name}, axis={axis}, keepdims={keep})", a, magnitude=magnitude, exact=exact)


def _argfold(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "iuf", exact=True, dims=1)
    if a is not None and a.array.size:
        axis = draw(st.none() | st.integers(0, a.ndim - 1))
        p.add(f"xp.{draw(st.sampled_from(['argmax', 'argmin']))}({a.name}, axis={axis})", a)


def _slice(draw: Any, p: Program) -> None:
    a = _pick(draw, p)
    if a is None:
        return
    key: list[Any] = []
    for n in a.shape:
        if draw(st.integers(0, 5)) == 0 and n:
            key.append(draw(st.integers(-n, n - 1)))
        else:
            bound = st.none() | st.integers(-n - 1, n + 1)
            key.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -3]))))
    if draw(st.integers(0, 4)) == 0:
        key.insert(draw(st.integers(0, len(key))), None)
    p.add(f"{a.name}[{tuple(key)}]", a)


def _positions(draw: Any, n: int) -> str:
    """An index of a few places along an axis of n elements, in the library's own array."""
    places = draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=6))
    return f"xp.asarray({places}, chunks={draw(st.integers(1, len(places)))})"


def _take(draw: Any, p: Program) -> None:
    a = _pick(draw, p, dims=1)
    if a is None or not a.array.size:
        return
    axis = draw(st.integers(0, a.ndim - 1))
    index = _positions(draw, a.shape[axis])
    kind = draw(st.integers(0, 2))
    if kind == 0:
        p.add(f"xp.take({a.name}, {index}, axis={axis})", a)
    elif kind == 1:
        p.add(f"{a.name}[({':, ' * 0}{'slice(None), ' * axis}{index},)]", a)
    elif a.exact and a.kind in "iuf":
        p.add(f"xp.take_along_axis({a.name}, xp.argsort({a.name}, axis={axis}), axis={axis})", a)


def _select(draw: Any, p: Program) -> None:
    a, mask = _pick(draw, p, dims=1), _pick(draw, p, "b", dims=1)
    if a is None:
        return
    if mask is not None and mask.shape == a.shape[: mask.ndim]:
        p.add(f"{a.name}[{mask.name}]", a, mask)
    elif a.exact and a.kind in "iuf":
        nonzero = draw(st.booleans())
        p.add(f"xp.nonzero({a.name} > 1)[{a.ndim - 1}]" if nonzero else f"{a.name}[{a.name} > 1]", a)


def _assign(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "iufc", dims=1)
    if a is None or not a.array.size:
        return
    kind = draw(st.integers(0, 2))
    if kind == 0 and a.exact and a.kind in "iuf":
        p.add(f"lib.put({a.name}, {a.name} > 1, 3)", a)
    elif kind == 1:
        p.add(f"lib.put({a.name}, ({_positions(draw, a.shape[0])},), 2)", a)
    else:
        stop = draw(st.integers(0, a.shape[0]))
        step = draw(st.sampled_from([None, 2]))
        p.add(f"lib.put({a.name}, (slice(None, {stop}, {step}),), {a.name}[:1])", a)


def _order(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "iuf", exact=True, dims=1)
    if a is None:
        return
    axis = _axis(draw, a)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        p.add(f"xp.sort({a.name}, axis={axis}, descending={draw(st.booleans())})", a)
    elif kind == 1:
        p.add(f"xp.argsort({a.name}, axis={axis})", a)
    elif kind == 2:
        p.add(f"xp.unique_values({a.name})", a)
    elif kind == 3 and a.array.size:
        side = draw(st.sampled_from(["left", "right"]))
        line = f"xp.sort(xp.reshape({a.name}, (-1,)), axis=0, descending=False)"
        p.add(f"xp.searchsorted({line}, {a.name}, side={side!r})", a)
    else:
        b = _beside(draw, p, a)
        p.add(f"xp.isin({a.name}, {b.name})", a, b)


def _scan(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "iufc", dims=1)
    if a is not None and a.array.size:
        axis = _axis(draw, a)
        name = draw(st.sampled_from(["cumulative_sum", "diff"]))
        more = f", include_initial={draw(st.booleans())}" if name != "diff" else ""
        p.add(f"xp.{name}({a.name}, axis={axis}{more})", a, magnitude=a.magnitude * a.shape[axis])


def _move(draw: Any, p: Program) -> None:
    a = _pick(draw, p)
    if a is None:
        return
    kinds = ["permute", "reshape", "flip", "stack", "tile", "broadcast", "expand"]
    if a.ndim:
        kinds += ["concat", "roll", "repeat", "moveaxis"]
    kind = draw(st.sampled_from(kinds))
    axis = _axis(draw, a) if a.ndim else 0
    x = a.name
    if kind == "permute":
        p.add(f"xp.permute_dims({x}, {tuple(draw(st.permutations(range(a.ndim))))})", a)
    elif kind == "reshape":
        p.add(f"xp.reshape({x}, {_factors(draw, a.array.size)})", a)
    elif kind == "flip":
        p.add(f"xp.flip({x}, axis={axis if a.ndim else None})", a)
    elif kind in ("concat", "stack"):
        b = _beside(draw, p, a, shape=True)
        p.add(f"xp.{kind}([{x}, {b.name}], axis={axis})", a, b)
    elif kind == "roll":
        p.add(f"xp.roll({x}, {draw(st.integers(-5, 5))}, axis={axis})", a)
    elif kind == "repeat":
        p.add(f"xp.repeat({x}, {draw(st.integers(1, 3))}, axis={axis})", a)
    elif kind == "tile":
        p.add(f"xp.tile({x}, {tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)))})", a)
    elif kind == "moveaxis":
        p.add(f"xp.moveaxis({x}, {axis}, {_axis(draw, a)})", a)
    elif kind == "broadcast":
        p.add(f"xp.broadcast_to({x}, {(draw(st.integers(1, 3)), *a.shape)})", a)
    else:
        p.add(f"xp.expand_dims({x}, axis={draw(st.integers(0, a.ndim))})", a)


def _factors(draw: Any, n: int) -> tuple[int, ...]:
    """A shape of n elements."""
    sides: list[int] = []
    while n > 1 and len(sides) < 2:
        side = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
        sides.append(side)
        n //= side
    return (*sides, n) if draw(st.booleans()) or n == 0 else (*sides, -1)


def _recut(draw: Any, p: Program) -> None:
    a = _pick(draw, p, dims=1)
    if a is not None and a.array.size:
        p.add(f"lib.rechunk({a.name}, {_cuts(draw, a.shape)})", a)


def _blockwise(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "if", dims=1)
    if a is not None and a.array.size:
        p.add(f"lib.{draw(st.sampled_from(['doubled', 'middle']))}({a.name})", a)


def _product(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "ifc", dims=2)
    if a is None or not a.array.size:
        return
    magnitude = a.magnitude**2 * a.array.size
    if a.ndim == 2 and draw(st.booleans()):
        p.add(f"xp.tensordot({a.name}, {a.name}, axes=((0,), (0,)))", a, magnitude=magnitude)
    else:
        p.add(f"xp.matmul({a.name}, xp.matrix_transpose({a.name}))", a, magnitude=magnitude)


def _transform(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "fc", dims=1)
    if a is None or not a.array.size:
        return
    axis = _axis(draw, a)
    name = "fft" if a.kind == "c" else "rfft"
    p.add(f"xp.fft.{name}({a.name}, axis={axis})", a, magnitude=a.magnitude * a.shape[axis], exact=False)


def _factorise(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "f", dims=2)
    if a is None or not a.array.size or a.shape[-2] > 24:
        return
    n = a.shape[-2]
    # Well conditioned whatever the values: eigenvalues between n and n times the length of a row and one.
    bounded = f"xp.tanh({a.name})"
    system = f"(xp.matmul({bounded}, xp.matrix_transpose({bounded})) + {n} * xp.eye({n}, dtype={a.name}.dtype))"
    form = draw(st.sampled_from(["xp.linalg.solve({m}, {a})", "xp.linalg.cholesky({m})", "lib.remade({m})"]))
    p.add(form.format(m=system, a=a.name), a, magnitude=a.magnitude * 100 * a.shape[-1], exact=False)


def _centred(draw: Any, p: Program) -> None:
    a = _pick(draw, p, "fc", dims=1)
    if a is not None and a.array.size:
        p.add(f"{a.name} - xp.mean({a.name}, axis={_axis(draw, a)}, keepdims=True)", a, exact=False)


def _persist(draw: Any, p: Program) -> None:
    a = _pick(draw, p)
    if a is not None:
        p.add(f"lib.persist({a.name})", a)


def _another(draw: Any, p: Program) -> None:
    _source(draw, p, _shape(draw) if draw(st.booleans()) else p.values[0].shape)


STEPS: list[Step] = [
    *[_binary, _slice, _move, _fold] * 2,
    *[_unary, _compare, _where, _argfold, _take, _select, _assign, _order, _scan, _recut, _blockwise, _product],
    *[_transform, _factorise, _centred, _persist, _another],
]
