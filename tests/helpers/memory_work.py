"""Work that is more than one function: products, long chains, arrays that are used twice, many arrays at once."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxchunk as jc
import jaxchunk.array_api as xp
from helpers.memory_jobs import NO_DATA, Given, Row, Shape, line, tall
from helpers.memory_table import F4, ROWS, between, real, whole


def middle_of_three(b: Any) -> Any:
    """The median of each value and its two neighbours in the row: with three copies and a sort."""
    return jnp.sort(jnp.stack([jnp.roll(b, -1, axis=1), b, jnp.roll(b, 1, axis=1)]), axis=0)[1]


def middle_by_numpy(x: Any) -> Any:
    return np.median([np.roll(x, -1, axis=1), x, np.roll(x, 1, axis=1)], axis=0)


def chain(x: Any, module: Any) -> Any:
    """Fifty operations on end."""
    for k in range(10):
        x = module.tanh(x * 1.5 + k / 10) - x / 3
    return x


def standardised(x: Any, module: Any) -> Any:
    return (x - module.mean(x)) / module.std(x)


def wide(n: int) -> Shape:
    """A quarter as many rows as `grid` has, or so."""
    return math.isqrt(n) // 4, 4 * math.isqrt(n) + 8


def square_side(n: int) -> int:
    return math.isqrt(n) + 1


def in_modules(work: Any) -> dict[str, Any]:
    """The same code for the library and for NumPy."""
    return {"call": lambda x: work(x, xp), "expected": lambda x: work(x, np)}


def two_hundred(x: Any) -> list[Any]:
    """Parts of a line, each multiplied by another number."""
    size = x.shape[0] // 200
    return [x[k * size : (k + 1) * size] * k for k in range(200)]


NARROW = between(-9, 9)
WORK: dict[str, Row] = {
    "map_blocks": Row(
        lambda x: jc.map_blocks(middle_of_three, x), (Given(NARROW, F4, tall),), middle_by_numpy, local=True
    ),
    "tall by wide": Row(
        xp.matmul,
        (Given(NARROW, shape=lambda n: (square_side(n), 48)), Given(NARROW, shape=lambda n: (48, square_side(n)))),
        np.matmul,
        expands=True,
        rtol=1e-12,
    ),
    "wide by tall": Row(
        xp.matmul,
        (Given(NARROW, shape=lambda n: tall(n)[::-1]), Given(NARROW, shape=tall)),
        np.matmul,
        handed=True,
        rtol=1e-12,
    ),
    "fifty operations": Row(given=(real,), local=True, rtol=1e-10, **in_modules(chain)),
    "standardised": Row(given=(real,), rtol=1e-9, **in_modules(standardised)),
    "x @ x.T": Row(lambda x: x @ x.T, (Given(NARROW, shape=wide),), lambda x: x @ x.T, rtol=1e-11),
    "x - x[::-1]": Row(lambda x: x - x[::-1], (real,), lambda x: x - x[::-1]),
    "200 sums": Row(
        lambda x: [xp.sum(part) for part in two_hundred(x)],
        (Given(whole.values, whole.dtype, line),),
        lambda x: [part.sum() for part in two_hundred(x)],
        handed=True,
    ),
    "200 arrays": Row(two_hundred, (Given(NARROW, shape=line),), two_hundred),
}

# All that runs on data: the functions, and this.
JOBS = {name: row for name, row in (ROWS | WORK).items() if row.kind != NO_DATA}
