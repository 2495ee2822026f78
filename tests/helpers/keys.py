"""Keys for indexing and assignment: drawn at random, for NumPy and for the library."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from tests.helpers.arrays import chunkings

Pair = tuple[Any, Any]
"""The same key for NumPy and for the library."""

INDEX_DTYPES = ("int64", "int32", "int8", "uint8", "uint64")


@st.composite
def lazily(draw: Any, values: np.ndarray[Any, Any]) -> xp.Array:
    """Values as an array that is known as it is, or has to be computed first."""
    array = xp.asarray(values, chunks=draw(chunkings(values.shape)))
    if draw(st.booleans()):
        return array
    return ~~array if values.dtype == np.bool_ else array + xp.asarray(0, dtype=array.dtype)


@st.composite
def slices(draw: Any, n: int) -> slice:
    """A slice of any bounds and sign."""
    bound = st.none() | st.integers(-n - 2, n + 2)
    return slice(draw(bound), draw(bound), draw(st.none() | st.integers(-3, 3).filter(bool)))


@st.composite
def basic_keys(draw: Any, shape: tuple[int, ...], new_axes: int = 2) -> Any:
    """Integers, slices, at most one ellipsis, some Nones."""
    entries: list[Any] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        entries.append(draw(st.integers(-n, n - 1) | slices(n) if n else slices(n)))
    # Entries after an ellipsis count from the last axis, so only whole slices are put there.
    if draw(st.booleans()):
        entries.append(...)
    for _ in range(draw(st.integers(0, new_axes))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


@st.composite
def indices(draw: Any, n: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Positions along an axis of a length, of any integer dtype that has them."""
    seed = draw(st.integers(0, 2**32 - 1))
    dtype = draw(st.sampled_from(INDEX_DTYPES))
    low = 0 if np.dtype(dtype).kind == "u" else -n
    return np.random.default_rng(seed).integers(low, max(1, n), shape).astype(dtype)


@st.composite
def array_keys(draw: Any, shape: tuple[int, ...]) -> Pair:
    """At least one integer array, beside integers, slices, an ellipsis; the arrays broadcast. Axes aren't empty."""
    common = draw(st.sampled_from([(3,), (1,), (0,), (2, 3), (4, 1)]))
    first = draw(st.integers(0, len(shape) - 1))
    numpy_key: list[Any] = []
    key: list[Any] = []
    for axis, n in enumerate(shape):
        kind = "array" if axis == first else draw(st.sampled_from(["array", "int", "slice", "whole"]))
        if kind == "array":
            own = common[draw(st.integers(0, len(common) - 1)) :] if axis != first else common
            values = draw(indices(n, own))
            numpy_key.append(values)
            key.append(draw(lazily(values)))
        else:
            entry = {"int": st.integers(-n, n - 1), "slice": slices(n), "whole": st.just(slice(None))}[kind]
            numpy_key.append(draw(entry))
            key.append(numpy_key[-1])
    return tuple(numpy_key), tuple(key)


@st.composite
def mask_keys(draw: Any, shape: tuple[int, ...], alone: bool = False) -> Pair:
    """One mask over some axes next to each other, beside whole slices or an ellipsis, or more of a basic key."""
    at = draw(st.integers(0, len(shape)))
    count = draw(st.integers(0 if alone else 1, len(shape) - at)) if alone or at < len(shape) else 0
    if count == 0 and not alone:
        at, count = 0, len(shape)
    values = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random(shape[at : at + count])
    mask = values < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    before: list[Any] = [slice(None)] * at
    after: list[Any] = []
    if alone and draw(st.booleans()) and at + count == len(shape):
        before = [...]
    elif not alone:
        before = [draw(slices(n)) for n in shape[:at]]
        after = [draw(slices(n) | st.integers(-n, n - 1) if n else slices(n)) for n in shape[at + count :]]
    array = draw(lazily(np.asarray(mask)))
    return (*before, np.asarray(mask), *after), (*before, array, *after)
