"""Data types: which there are, how they promote, what can be asked about them; and the constants.

Dtypes are plain `numpy.dtype` objects. An array, here, is whatever has a ``dtype`` attribute that
is one: Arrays and NumPy's own arrays and scalars alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

DType: TypeAlias = np.dtype[Any]
DTypeLike: TypeAlias = DType | type[np.generic] | type[bool] | type[int] | type[float] | type[complex]
"""What stands for a dtype where one is asked for: the namespace's names of dtypes are NumPy's scalar types."""
Scalar: TypeAlias = bool | int | float | complex

bool_: DType = np.dtype("bool")
int8: DType = np.dtype("int8")
int16: DType = np.dtype("int16")
int32: DType = np.dtype("int32")
int64: DType = np.dtype("int64")
uint8: DType = np.dtype("uint8")
uint16: DType = np.dtype("uint16")
uint32: DType = np.dtype("uint32")
uint64: DType = np.dtype("uint64")
float32: DType = np.dtype("float32")
float64: DType = np.dtype("float64")
complex64: DType = np.dtype("complex64")
complex128: DType = np.dtype("complex128")

e = math.e
inf = math.inf
nan = math.nan
pi = math.pi
newaxis = None

_SIGNED = (int8, int16, int32, int64)
_UNSIGNED = (uint8, uint16, uint32, uint64)
_REAL = (float32, float64)
_COMPLEX = (complex64, complex128)

KINDS = MappingProxyType(
    {
        "bool": (bool_,),
        "signed integer": _SIGNED,
        "unsigned integer": _UNSIGNED,
        "integral": _SIGNED + _UNSIGNED,
        "real floating": _REAL,
        "complex floating": _COMPLEX,
        "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
    }
)
DTYPES = MappingProxyType({dtype.name: dtype for dtype in KINDS["bool"] + KINDS["numeric"]})
# By kind of value: what creation functions make of Python scalars and of `dtype=None`.
DEFAULT_DTYPES = MappingProxyType(
    {"bool": bool_, "integral": int64, "real floating": float64, "complex floating": complex128}
)

_DTYPE_SET = frozenset(DTYPES.values())
_REAL_OF = {complex64: float32, complex128: float64}
_COMPLEX_OF = {float32: complex64, float64: complex128}


def _family(dtype: DType) -> str:
    """Dtypes promote with one another inside a family only: bool, integers, floats with complex."""
    return "floating" if dtype.kind in "fc" else "integer" if dtype.kind in "iu" else "bool"


def _promotion_table() -> dict[tuple[DType, DType], DType]:
    table = {}
    for a in _DTYPE_SET:
        for b in _DTYPE_SET:
            common = np.promote_types(a, b)
            # NumPy lets uint64 with a signed integer become float64: a change of family as well.
            if _family(a) == _family(b) == _family(common):
                table[a, b] = common
    return table


_PROMOTION = _promotion_table()


def as_dtype(dtype: Any) -> DType:
    """The `numpy.dtype` that a user's dtype object stands for.

    Parameters
    ----------
    dtype
        One of the namespace's dtypes, a NumPy scalar type (`numpy.float32`), or one of Python's
        `bool`, `int`, `float`, `complex`, which stand for the default dtype of their kind.

    Raises
    ------
    TypeError
        If it is something else, or a dtype that the namespace does not have.
    """
    if isinstance(dtype, np.dtype):
        found: DType = dtype.newbyteorder("=")
    elif dtype is int:
        found = int64  # np.dtype(int) is 32 bits wide on some platforms
    elif isinstance(dtype, type) and (issubclass(dtype, np.generic) or dtype in (bool, float, complex)):
        found = np.dtype(dtype)
    else:
        raise TypeError(f"a dtype such as float32 is needed, got {dtype!r} of type {type(dtype).__name__}")
    if found not in _DTYPE_SET:
        raise TypeError(f"dtype {found} is not supported; the dtypes are {', '.join(DTYPES)}")
    return found


def dtype_of(x: Any) -> DType | None:
    """The dtype of an array or NumPy scalar, a supported one; None for everything else."""
    dtype = None if isinstance(x, type) else getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return None
    return dtype if dtype in _DTYPE_SET else as_dtype(dtype)


def promote(first: DType, second: DType) -> DType:
    """The dtype that two operands meet in.

    Raises
    ------
    TypeError
        For two dtypes that don't promote: of different families, or uint64 with a signed integer.
    """
    try:
        return _PROMOTION[first, second]
    except KeyError:
        raise TypeError(
            f"{first} and {second} don't promote to a common dtype; convert one of them with astype"
        ) from None


def scalar_dtype(scalar: Scalar, dtype: DType) -> DType:
    """The dtype in which a Python scalar meets an array of the given dtype.

    It is the array's own, but for a complex scalar with a real array: then the complex dtype of the
    same precision.

    Raises
    ------
    TypeError
        For a scalar of a kind that the dtype can't hold, such as a float with integers.
    OverflowError
        For an integer outside the range of an integer dtype.
    """
    family = _family(dtype)
    if isinstance(scalar, bool):
        fits = family == "bool"
    elif isinstance(scalar, int):
        fits = family != "bool"
        if family == "integer":
            info = iinfo(dtype)
            if not info.min <= scalar <= info.max:
                raise OverflowError(f"{scalar} is outside the range of {dtype}, {info.min} to {info.max}")
    elif isinstance(scalar, float | complex):
        fits = family == "floating"
    else:
        raise TypeError(f"a Python bool, int, float or complex is needed, got {scalar!r}")
    if not fits:
        kind = type(scalar).__name__
        raise TypeError(f"the Python {kind} {scalar!r} can't be combined with {dtype}; convert the array with astype")
    if isinstance(scalar, complex):
        return _COMPLEX_OF.get(dtype, dtype)
    return dtype


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that arrays, dtypes and Python scalars promote to together.

    Parameters
    ----------
    *arrays_and_dtypes
        At least one array or dtype. Python scalars take the dtype that the others promote to.

    Returns
    -------
    numpy.dtype

    Raises
    ------
    TypeError
        If there is no array or dtype among them, or no common dtype: kinds don't mix, and uint64
        doesn't with signed integers.
    OverflowError
        For an integer scalar outside the range of the integer dtype it meets.

    Examples
    --------
    >>> result_type(int8, uint8, 3)
    dtype('int16')
    """
    common: DType | None = None
    scalars: list[Scalar] = []
    for x in arrays_and_dtypes:
        dtype = dtype_of(x)
        if dtype is None and isinstance(x, Scalar):
            scalars.append(x)
            continue
        if dtype is None:
            dtype = as_dtype(x)
        common = dtype if common is None else promote(common, dtype)
    if common is None:
        raise TypeError("result_type needs at least one array or dtype")
    for scalar in scalars:
        common = promote(common, scalar_dtype(scalar, common))
    return common


def can_cast(from_: Any, to: DTypeLike, /) -> bool:
    """Whether promotion alone leads from one dtype to another.

    Parameters
    ----------
    from_
        An array or a dtype.
    to
        A dtype.

    Returns
    -------
    bool
        False also for pairs that don't promote at all.

    Examples
    --------
    >>> can_cast(int8, int16), can_cast(int16, int8), can_cast(int8, float32)
    (True, False, False)
    """
    to = as_dtype(to)
    common = _PROMOTION.get((dtype_of(from_) or as_dtype(from_), to))
    return common is not None and common == to  # NumPy's float64 equals None


def isdtype(dtype: DTypeLike, kind: DTypeLike | str | tuple[DTypeLike | str, ...]) -> bool:
    """Whether a dtype is of a kind.

    Parameters
    ----------
    dtype
        A dtype.
    kind
        A dtype, to which it is compared; one of "bool", "signed integer", "unsigned integer",
        "integral", "real floating", "complex floating", "numeric"; or a tuple of such, one of
        which has to hold.

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        For the name of a kind that isn't there.
    TypeError
        For what is no dtype, or no kind.

    Examples
    --------
    >>> isdtype(float32, ("integral", "real floating"))
    True
    """
    dtype = as_dtype(dtype)
    kinds = kind if isinstance(kind, tuple) else (kind,)
    members = [member for k in kinds for member in _of_kind(k)]  # all of them: a misspelt kind raises also past a match
    return dtype in members


def _of_kind(kind: Any) -> tuple[DType, ...]:
    if not isinstance(kind, str):
        return (as_dtype(kind),)
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is not one of {', '.join(map(repr, KINDS))}")
    return KINDS[kind]


@dataclass(frozen=True)
class FInfo:
    """Limits of a real floating dtype, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """Limits of an integer dtype, as Python numbers."""

    bits: int
    max: int
    min: int
    dtype: DType


def _float_limits(dtype: DType) -> FInfo:
    info = np.finfo(dtype)
    return FInfo(
        bits=int(info.bits),
        eps=float(info.eps),
        max=float(info.max),
        min=float(info.min),
        smallest_normal=float(info.smallest_normal),
        dtype=dtype,
    )


def _int_limits(dtype: DType) -> IInfo:
    info = np.iinfo(dtype)
    return IInfo(int(info.bits), int(info.max), int(info.min), dtype)


_FINFO = {dtype: _float_limits(dtype) for dtype in _REAL}
_IINFO = {dtype: _int_limits(dtype) for dtype in KINDS["integral"]}


def finfo(type: Any, /) -> FInfo:
    """Limits of a floating dtype; of a complex one's components.

    Parameters
    ----------
    type
        An array or a dtype.

    Returns
    -------
    FInfo
        With attributes `bits`, `eps`, `max`, `min`, `smallest_normal` and `dtype` (a real one).

    Raises
    ------
    TypeError
        If the dtype isn't floating.
    """
    dtype = dtype_of(type) or as_dtype(type)
    if dtype.kind not in "fc":
        raise TypeError(f"finfo needs a floating dtype, got {dtype}")
    return _FINFO[real_of(dtype)]


def iinfo(type: Any, /) -> IInfo:
    """Limits of an integer dtype.

    Parameters
    ----------
    type
        An array or a dtype.

    Returns
    -------
    IInfo
        With attributes `bits`, `max`, `min` and `dtype`.

    Raises
    ------
    TypeError
        If the dtype isn't an integer one.
    """
    dtype = dtype_of(type) or as_dtype(type)
    if dtype.kind not in "iu":
        raise TypeError(f"iinfo needs an integer dtype, got {dtype}")
    return _IINFO[dtype]


def real_of(dtype: DType) -> DType:
    """The dtype of a complex one's components; any other dtype as it is."""
    return _REAL_OF.get(dtype, dtype)


def check_cast(from_: DType, to: DType) -> None:
    """Raise TypeError where `astype` has to refuse: from complex to real, which would drop a part."""
    if from_.kind == "c" and to.kind not in "cb":
        raise TypeError(f"can't cast {from_} to {to}: take the part that is meant with real, imag or abs first")
