"""Arrays and writes that plans are made of."""

from __future__ import annotations

from typing import Any

import jaxchunk as jc
import jaxchunk.array_api as xp
from helpers.jobs import budget
from helpers.synthetic import SinkStore, synthetic_array


def stored(shape: tuple[int, ...] = (1024, 1024), chunks: tuple[int, ...] = (128, 128)) -> Any:
    return synthetic_array(shape, chunks, "float32", lambda *index: sum(index) % 101)


def source(shape: tuple[int, ...] = (1024, 1024), chunks: tuple[int, ...] = (128, 128)) -> xp.Array:
    return jc.from_zarr(stored(shape, chunks))


def written(x: xp.Array, **options: Any) -> Any:
    return jc.to_zarr(x, SinkStore(), compute=False, **options)


def standardised(u: xp.Array) -> Any:
    return written((u - xp.mean(u, axis=0)) / xp.std(u, axis=0))


def let_go() -> None:
    """Have whatever earlier runs left to be remembered make way."""
    with budget(64 * 1024):
        float(xp.sum(xp.ones(4)))
