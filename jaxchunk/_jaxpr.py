"""What a traced function will need: the primitives it is made of, and how much of it is live at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from jaxchunk.graph.primitives import Work
from jaxchunk.plan.scratch import CPU, CUSTOM_CALL, INTEGER_SORT, SORTED_BYTES, fft_entry, sort_entry

Equation: TypeAlias = Any

_LOOPS = ("scan", "while")
# LAPACK is the library that the table is about.
_FOREIGN_CALL = re.compile(r"custom_call @(?!lapack_)\w+")


def live_bytes(jaxpr: Jaxpr) -> int:
    """The most bytes that values live in at once, in the order of the program, its arguments left out.

    The compiler fuses most of them away, but may also order what is independent otherwise: this is
    a good bound of what it will report, and no strict one.
    """
    last_use: dict[Any, int] = {}
    for number, equation in enumerate(jaxpr.eqns):
        last_use |= {v: number for v in equation.invars if not isinstance(v, Literal)}
    last_use |= {v: len(jaxpr.eqns) for v in jaxpr.outvars if not isinstance(v, Literal)}
    arguments = {*jaxpr.invars, *jaxpr.constvars}
    live = peak = 0
    for number, equation in enumerate(jaxpr.eqns):
        made = sum(_nbytes(v) for v in equation.outvars)
        peak = max(peak, live + _while_made(equation, made))
        live += made
        touched = {v for v in (*equation.invars, *equation.outvars) if not isinstance(v, Literal)} - arguments
        live -= sum(_nbytes(v) for v in touched if last_use.get(v, number) == number)
    return peak


def _while_made(equation: Equation, made: int) -> int:
    """What an equation's results take while they are made, with what is live inside it."""
    if equation.primitive.name in _LOOPS:
        # The carries, and the slices of what is gone over, are copies.
        return made + max(live_bytes(j) + sum(_nbytes(v) for v in j.invars) for j in inner(equation))
    return max([made, *(live_bytes(j) for j in inner(equation))])


def primitives(jaxpr: Jaxpr, lowered: str) -> tuple[Work, ...]:
    """The primitives of a function, also inside loops, branches and functions that it calls.

    Parameters
    ----------
    lowered
        The function's StableHLO text, which tells of calls to libraries that JAX doesn't come with.
    """
    sizes: dict[str, int] = {}
    largest = 0
    for equation in _leaves(jaxpr):
        name = _entry(equation)
        sizes[name] = max(sizes.get(name, 0), _worked_on(equation, name))
        largest = max([largest, *(_nbytes(v) for v in (*equation.invars, *equation.outvars))])
    if _FOREIGN_CALL.search(lowered):
        sizes[CUSTOM_CALL] = largest
    return tuple(Work(name, nbytes) for name, nbytes in sizes.items())


def _entry(equation: Equation) -> str:
    """The name under which the scratch table has a primitive."""
    name: str = equation.primitive.name
    if name == "fft":
        return fft_entry(equation.params["fft_lengths"])
    if name == "sort":
        return sort_entry([v.aval.dtype.kind for v in equation.invars])
    return name


def _leaves(jaxpr: Jaxpr) -> Iterator[Equation]:
    for equation in jaxpr.eqns:
        below = list(inner(equation))
        if not below:
            yield equation
        for sub in below:
            yield from _leaves(sub)


def inner(equation: Equation) -> Iterator[Jaxpr]:
    """The programs that an equation runs: a loop's body, the branches of a condition, …"""
    stack = list(equation.params.values())
    while stack:
        value = stack.pop()
        if isinstance(value, ClosedJaxpr):
            yield value.jaxpr
        elif isinstance(value, Jaxpr):
            yield value
        elif isinstance(value, tuple | list):
            stack.extend(value)


def _worked_on(equation: Equation, name: str) -> int:
    """The bytes that one call of a library works on; see :class:`jaxchunk.plan.scratch.Scratch`."""
    avals = [v.aval for v in (*equation.invars, *equation.outvars) if hasattr(v.aval, "shape")]
    itemsize = max((a.dtype.itemsize for a in avals), default=0)
    if equation.primitive.name == "sort":
        length = avals[0].shape[equation.params["dimension"]]
        return int(length * (itemsize if name == INTEGER_SORT else SORTED_BYTES * len(equation.invars)))
    if equation.primitive.name == "fft":
        complex_size = max(a.dtype.itemsize * (1 if a.dtype.kind == "c" else 2) for a in avals)
        return int(max(equation.params["fft_lengths"]) * complex_size)
    if name == "top_k":
        return int(avals[0].shape[equation.params["axis"]] * itemsize)
    matrices = name in CPU and CPU[name].unit == "matrix"
    return max((math.prod(a.shape[-2:] if matrices else a.shape) * a.dtype.itemsize for a in avals), default=0)


def _nbytes(variable: Any) -> int:
    aval = variable.aval
    return math.prod(aval.shape) * int(aval.dtype.itemsize) if hasattr(aval, "shape") else 0
