"""Dtypes: which there are, how they promote, and what is said of those that don't."""

import itertools
import math

import numpy as np
import pytest

from jaxchunk.array_api import _dtypes as dt

BOOL = ["bool"]
SIGNED = ["int8", "int16", "int32", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
NAMES = BOOL + SIGNED + UNSIGNED + FLOATS + COMPLEX


def expected_promotion(a: str, b: str) -> str | None:
    """The standard's tables, written out by width: None where two dtypes don't promote."""
    if a == b:
        return a
    for family in (SIGNED, UNSIGNED, FLOATS, COMPLEX):
        if a in family and b in family:
            return max(a, b, key=family.index)
    if {a, b} <= {*SIGNED, *UNSIGNED}:
        signed, unsigned = (a, b) if a in SIGNED else (b, a)
        needed = UNSIGNED.index(unsigned) + 1
        return None if needed == len(SIGNED) else SIGNED[max(SIGNED.index(signed), needed)]
    if {a, b} <= {*FLOATS, *COMPLEX}:
        real, imaginary = (a, b) if a in FLOATS else (b, a)
        return COMPLEX[max(FLOATS.index(real), COMPLEX.index(imaginary))]
    return None


@pytest.mark.parametrize(("a", "b"), list(itertools.product(NAMES, NAMES)))
def test_promotion_is_the_standards(a, b):
    x, y = np.dtype(a), np.dtype(b)
    expected = expected_promotion(a, b)
    assert dt.can_cast(x, y) == (expected == b)
    if expected is not None:
        assert dt.result_type(x, y) == np.dtype(expected)
        return
    with pytest.raises(TypeError, match=rf"{a}.*{b}.*astype"):
        dt.result_type(x, y)


def test_the_dtypes_are_numpy_dtypes_and_no_others():
    assert list(dt.DTYPES) == NAMES
    for name in NAMES:
        exported = getattr(dt, "bool_" if name == "bool" else name)
        assert isinstance(exported, np.dtype)
        assert exported == dt.DTYPES[name] == np.dtype(name)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float32, "float32"),
        (np.dtype(">f8"), "float64"),
        (np.bool_, "bool"),
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        (complex, "complex128"),
    ],
)
def test_as_dtype_normalises(given, expected):
    assert dt.as_dtype(given) == np.dtype(expected)
    assert dt.as_dtype(given).isnative


@pytest.mark.parametrize("given", [None, "float32", 3, np.zeros(2), object(), str, list, [("a", np.int8)]])
def test_as_dtype_refuses_what_is_no_dtype(given):
    with pytest.raises(TypeError, match="dtype"):
        dt.as_dtype(given)


@pytest.mark.parametrize("given", [np.float16, np.dtype("datetime64[s]"), np.dtype(object), np.dtype("S3")])
def test_as_dtype_names_the_dtypes_there_are(given):
    with pytest.raises(TypeError, match="complex128"):
        dt.as_dtype(given)


FITTING = [
    (True, "bool", "bool"),
    (3, "int8", "int8"),
    (-128, "int8", "int8"),
    (2**64 - 1, "uint64", "uint64"),
    (3, "float32", "float32"),
    (3, "complex64", "complex64"),
    (2.5, "float32", "float32"),
    (2.5, "complex64", "complex64"),
    (math.inf, "float32", "float32"),
    (1j, "float32", "complex64"),
    (1j, "float64", "complex128"),
    (1j, "complex64", "complex64"),
]


@pytest.mark.parametrize(("scalar", "dtype", "expected"), FITTING)
def test_scalars_take_the_arrays_dtype(scalar, dtype, expected):
    assert dt.scalar_dtype(scalar, np.dtype(dtype)) == np.dtype(expected)
    for operands in itertools.permutations([scalar, np.zeros(3, dtype)]):
        assert dt.result_type(*operands) == np.dtype(expected)


@pytest.mark.parametrize(
    ("scalar", "dtype"),
    [(True, "int8"), (True, "float32"), (1, "bool"), (1.5, "int64"), (1.5, "bool"), (1j, "int64"), (1j, "bool")],
)
def test_scalars_of_another_kind_are_refused(scalar, dtype):
    with pytest.raises(TypeError, match=rf"{type(scalar).__name__}.*{dtype}.*astype"):
        dt.result_type(scalar, np.dtype(dtype))


@pytest.mark.parametrize(("scalar", "dtype"), [(128, "int8"), (-1, "uint8"), (2**63, "int64"), (2**64, "uint64")])
def test_integers_out_of_range_are_refused(scalar, dtype):
    with pytest.raises(OverflowError, match=rf"{scalar}.*{dtype}"):
        dt.result_type(np.dtype(dtype), scalar)


def test_result_type_of_several():
    assert dt.result_type(np.zeros(2, "int8"), 3, np.dtype("uint8"), 200) == np.dtype("int16")
    assert dt.result_type(np.float32(1), 2.0) == np.dtype("float32")
    assert dt.result_type(np.float64(1), np.zeros(2, "float32")) == np.dtype("float64")
    for nothing in [(), (1,), (1, 2.5)]:
        with pytest.raises(TypeError, match="at least one"):
            dt.result_type(*nothing)
    with pytest.raises(TypeError, match="float16"):
        dt.result_type(np.zeros(2, "float16"))


def test_can_cast_takes_arrays():
    assert dt.can_cast(np.zeros(2, "int8"), dt.int16)
    assert not dt.can_cast(np.zeros(2, "int16"), dt.int8)


@pytest.mark.parametrize("name", NAMES)
def test_isdtype(name):
    kinds = {
        "bool": BOOL,
        "signed integer": SIGNED,
        "unsigned integer": UNSIGNED,
        "integral": SIGNED + UNSIGNED,
        "real floating": FLOATS,
        "complex floating": COMPLEX,
        "numeric": SIGNED + UNSIGNED + FLOATS + COMPLEX,
    }
    dtype = np.dtype(name)
    for kind, members in kinds.items():
        assert dt.isdtype(dtype, kind) is (name in members)
        assert dt.isdtype(dtype, (kind, dtype)) is True
    for other in NAMES:
        assert dt.isdtype(dtype, np.dtype(other)) is (name == other)
        assert dt.isdtype(dtype, ("bool", np.dtype(other))) is (name in ("bool", other))


def test_isdtype_refuses_unknown_kinds():
    with pytest.raises(ValueError, match="integral"):
        dt.isdtype(dt.int8, "integer")
    with pytest.raises(ValueError, match="flaoting"):
        dt.isdtype(dt.int8, ("integral", "flaoting"))
    with pytest.raises(TypeError, match="dtype"):
        dt.isdtype("int8", "integral")


@pytest.mark.parametrize("name", FLOATS + COMPLEX)
def test_finfo(name):
    reference = np.finfo(name)
    for given in (np.dtype(name), np.zeros(2, name)):
        info = dt.finfo(given)
        assert info.dtype == reference.dtype
        assert (type(info.bits), info.bits) == (int, reference.bits)
        for field in ("eps", "max", "min", "smallest_normal"):
            assert type(getattr(info, field)) is float
            assert getattr(info, field) == float(getattr(reference, field))


@pytest.mark.parametrize("name", SIGNED + UNSIGNED)
def test_iinfo(name):
    reference = np.iinfo(name)
    for given in (np.dtype(name), np.zeros(2, name)):
        info = dt.iinfo(given)
        assert info.dtype == np.dtype(name)
        for field in ("bits", "max", "min"):
            assert type(getattr(info, field)) is int
            assert getattr(info, field) == getattr(reference, field)


def test_infos_refuse_other_kinds():
    with pytest.raises(TypeError, match="int32"):
        dt.finfo(dt.int32)
    with pytest.raises(TypeError, match="float32"):
        dt.iinfo(np.zeros(2, "float32"))
    with pytest.raises(TypeError, match="bool"):
        dt.iinfo(dt.bool_)


def test_casts():
    for name in NAMES:
        for to in NAMES:
            refused = name in COMPLEX and to not in [*COMPLEX, "bool"]
            if refused:
                with pytest.raises(TypeError, match=rf"{name}.*{to}.*real"):
                    dt.check_cast(np.dtype(name), np.dtype(to))
            else:
                dt.check_cast(np.dtype(name), np.dtype(to))


def test_parts_defaults_and_constants():
    assert [dt.real_of(np.dtype(n)).name for n in ("complex64", "complex128", "float32", "int8")] == [
        "float32",
        "float64",
        "float32",
        "int8",
    ]
    assert {k: v.name for k, v in dt.DEFAULT_DTYPES.items()} == {
        "bool": "bool",
        "integral": "int64",
        "real floating": "float64",
        "complex floating": "complex128",
    }
    assert (dt.e, dt.pi, dt.inf, dt.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(dt.nan)
