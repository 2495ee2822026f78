"""Order as integers: keys that compare as the elements do.

XLA sorts integers several times faster than floats, and integers have no NaN: every NaN is the
largest key, so it comes last in both directions. Keys are of the elements' own size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from jaxchunk.array_api._build import DType, convert

_INTEGERS: dict[int, DType] = {4: np.dtype("int32"), 8: np.dtype("int64")}


def key_dtype(dtype: DType) -> DType:
    """The dtype of keys for elements of a real dtype."""
    if dtype.kind == "b":
        return np.dtype("uint8")
    return _INTEGERS[dtype.itemsize] if dtype.kind == "f" else dtype


def encode(x: Any, descending: bool = False, signed_zeros: bool = False) -> Any:
    """Keys of elements; with `signed_zeros`, -0 comes before +0 and both can be told apart again."""
    dtype = np.dtype(x.dtype)
    if dtype.kind != "f":
        keys = convert(x, key_dtype(dtype))
        return lax.bitwise_not(keys) if descending else keys
    keys = _turned(lax.bitcast_convert_type(x, key_dtype(dtype)))
    if not signed_zeros:
        # -0 comes right before +0. Floats can't be asked: XLA takes numbers below the normal ones for 0.
        keys = lax.select(lax.eq(keys, lax.full_like(keys, -1)), lax.full_like(keys, 0), keys)
    keys = lax.bitwise_not(keys) if descending else keys
    return lax.select(lax.ne(x, x), lax.full_like(keys, _last(keys)), keys)


def decode(keys: Any, dtype: DType, descending: bool = False) -> Any:
    """The elements of keys that tell zeros apart."""
    if dtype.kind != "f":
        return convert(lax.bitwise_not(keys) if descending else keys, dtype)
    bits = _turned(lax.bitwise_not(keys) if descending else keys)
    values = lax.bitcast_convert_type(bits, dtype)
    return lax.select(lax.eq(keys, lax.full_like(keys, _last(keys))), lax.full_like(values, np.nan), values)


def _turned(bits: Any) -> Any:
    """Negative numbers' bits in reverse order: its own inverse."""
    width = np.dtype(bits.dtype).itemsize * 8
    signs = lax.shift_right_arithmetic(bits, lax.full_like(bits, width - 1))
    return lax.bitwise_xor(bits, lax.bitwise_and(signs, lax.full_like(bits, _last(bits))))


def _last(keys: Any) -> int:
    return int(np.iinfo(keys.dtype).max)
