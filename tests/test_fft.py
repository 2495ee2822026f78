"""Fourier transforms against NumPy's: every function, any chunks, lengths, norms, axes and dtypes."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.synthetic import synthetic_array
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.array_api import fft as jfft

NORMS = ("backward", "ortho", "forward")
LINES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SLABS = ("fftn", "ifftn", "rfftn", "irfftn")
REAL_INPUT = ("rfft", "ihfft", "rfftn")


def values(name: str, shape: tuple[int, ...], bits: int = 64, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    real = rng.standard_normal(shape)
    x = real if name in REAL_INPUT else real + 1j * rng.standard_normal(shape)
    return x.astype({("f", 64): "f8", ("f", 32): "f4", ("c", 64): "c16", ("c", 32): "c8"}[x.dtype.kind, bits])


def chunked(x: Any, chunks: Any) -> Any:
    return xp.asarray(x).rechunk(chunks)


def close(got: Any, expected: Any, points: int) -> None:
    """The same shape and dtype, and errors of a few units in the last place for each level of the transform."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    unit = float(np.finfo(expected.dtype).eps) / 2.2e-16
    rms = float(np.sqrt(np.mean(np.abs(expected) ** 2))) if expected.size else 0.0
    error = float(np.abs(got - expected).max(initial=0))
    assert error <= 1e-14 * unit * max(1, np.log2(max(2, points))) * max(rms, 1e-300)


# --- one axis ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(3, 4), (7, 9), ((1, 4, 2), (5, 1, 3))])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", LINES)
def test_lines_are_numpys_in_any_chunks(name: str, axis: int, chunks: Any) -> None:
    x = values(name, (7, 9))
    close(getattr(jfft, name)(chunked(x, chunks), axis=axis).compute(), getattr(np.fft, name)(x, axis=axis), 9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("name", LINES)
def test_lengths_crop_and_pad_and_norms_scale(name: str, n: int, norm: str) -> None:
    x = values(name, (2, 7))
    y = getattr(jfft, name)(chunked(x, (1, 3)), n=n, norm=norm)
    close(y.compute(), getattr(np.fft, name)(x, n=n, norm=norm), n)


@pytest.mark.parametrize("length", [1, 2, 3, 16, 31, 64, 97, 360, 1009])
@pytest.mark.parametrize("name", LINES)
def test_lengths_of_all_kinds(name: str, length: int) -> None:
    x = values(name, (length,))
    n = 2 * length - 1 if name in ("irfft", "hfft") else None
    close(getattr(jfft, name)(chunked(x, (17,)), n=n).compute(), getattr(np.fft, name)(x, n=n), length)


@pytest.mark.parametrize("name", LINES + SLABS)
def test_single_precision_stays_single(name: str) -> None:
    x = values(name, (6, 10), bits=32)
    close(getattr(jfft, name)(chunked(x, (4, 3))).compute(), getattr(np.fft, name)(x), 60)


@given(
    st.sampled_from(LINES),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.data(),
)
def test_drawn_lines_are_numpys(name: str, shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = data.draw(st.integers(1, 9))
    norm = data.draw(st.sampled_from(NORMS))
    chunks = tuple(data.draw(st.integers(1, m)) for m in shape)
    x = values(name, tuple(shape))
    y = getattr(jfft, name)(chunked(x, chunks), n=n, axis=axis, norm=norm)
    expected = getattr(np.fft, name)(x, n=n, axis=axis, norm=norm)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y.compute(), expected, rtol=1e-12, atol=1e-13)


# --- several axes --------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [None, (0,), (2, 0), (1, 2), (-1, 1, 0)])
@pytest.mark.parametrize("name", SLABS)
def test_slabs_are_numpys_over_any_axes(name: str, axes: Any) -> None:
    x = values(name, (4, 5, 6))
    y = getattr(jfft, name)(chunked(x, (3, 2, 4)), axes=axes)
    close(y.compute(), getattr(np.fft, name)(x, axes=axes), 120)


@pytest.mark.parametrize(("s", "axes"), [((3, 8), (0, 2)), ((-1, 4), (1, 2)), ((7,), (1,)), ((1, 1, 2), (2, 1, 0))])
@pytest.mark.parametrize("name", SLABS)
def test_slabs_crop_and_pad(name: str, s: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = values(name, (4, 5, 6))
    for norm in NORMS:
        y = getattr(jfft, name)(chunked(x, (3, 2, 4)), s=s, axes=axes, norm=norm)
        close(y.compute(), getattr(np.fft, name)(x, s=s, axes=axes, norm=norm), 120)


@pytest.mark.parametrize("name", SLABS)
def test_axes_one_after_another_are_axes_at_once(name: str) -> None:
    x = values(name, (64, 96))
    stages = []
    for nbytes in (2**30, 300 * 1024 if "r" in name else 500 * 1024):
        y = getattr(jfft, name)(chunked(x, (20, 30)), axes=(0, 1))
        with budget(nbytes):
            stages.append(len(jc.plan(y).stages))
            close(y.compute(), getattr(np.fft, name)(x), 6144)
    assert stages[0] < stages[1]


def test_no_axes_leave_an_array_as_it_is() -> None:
    x = values("fftn", (3, 4))
    np.testing.assert_array_equal(jfft.fftn(chunked(x, (2, 2)), axes=()).compute(), x)
    scalar = np.array(2.0 + 1j)
    np.testing.assert_array_equal(jfft.ifftn(xp.asarray(scalar)).compute(), scalar)


# --- identities ----------------------------------------------------------------------------------


def test_inverses_undo_forward_transforms() -> None:
    x, r = values("fft", (5, 12)), values("rfft", (5, 12))
    for norm in NORMS:
        for there, back in (("fft", "ifft"), ("fftn", "ifftn")):
            y = getattr(jfft, back)(getattr(jfft, there)(chunked(x, (2, 5)), norm=norm), norm=norm)
            np.testing.assert_allclose(y.compute(), x, atol=1e-14)
        for there, back in (("rfft", "irfft"), ("rfftn", "irfftn"), ("ihfft", "hfft")):
            y = getattr(jfft, back)(getattr(jfft, there)(chunked(r, (2, 5)), norm=norm), norm=norm)
            np.testing.assert_allclose(y.compute(), r, atol=1e-14)


def test_imaginary_parts_of_what_has_to_be_real_are_ignored() -> None:
    x = values("irfft", (9,))
    changed = x.copy()
    changed[0] += 5j
    changed[8] -= 3j
    np.testing.assert_allclose(jfft.irfft(xp.asarray(changed)).compute(), np.fft.irfft(x), atol=1e-14)


def test_infinities_stay_where_they_are_by_a_norm() -> None:
    got = jfft.ifft(xp.asarray(np.array([np.inf + 0j])), norm="ortho").compute()
    assert got.real[0] == np.inf


# --- chunks, places, laziness ----------------------------------------------------------------------


def test_results_keep_the_cuts() -> None:
    x = xp.zeros((6, 10), dtype=xp.complex128, chunks=((1, 2, 3), 4))
    assert jfft.fft(x, axis=0).chunks == ((1, 2, 3), (4, 4, 2))
    assert jfft.fft(x, n=20).chunks[0] == (1, 2, 3)
    r = xp.zeros((1000,), chunks=(100,))
    assert max(jfft.rfft(r).chunks[0]) == 50
    assert jfft.rfft(xp.zeros((1000,), chunks=(1000,))).chunks == ((501,),)


def test_blocks_of_a_transform_are_those_of_its_grid() -> None:
    x = values("fft", (6, 10))
    sizes = jc.map_blocks(lambda b: b * b.shape[1], jfft.fft(chunked(x, (6, (4, 1, 5)))))
    expected = np.fft.fft(x) * np.array([4] * 4 + [1] + [5] * 5)
    np.testing.assert_allclose(sizes.compute(), expected, atol=1e-12)


def test_arrays_without_elements() -> None:
    x = xp.zeros((0, 4), dtype=xp.complex128)
    assert jfft.fft(x).compute().shape == (0, 4)
    assert jfft.rfft(xp.zeros((0, 5))).compute().shape == (0, 3)
    np.testing.assert_array_equal(jfft.fft(x, axis=0, n=2).compute(), np.zeros((2, 4)))


def test_nothing_is_read_before_values_are_asked_for() -> None:
    z = synthetic_array((8, 100), (2, 30), "float64", lambda i, j: (i * 7 + j) % 11)
    y = jfft.irfft(jfft.rfft(jc.from_zarr(z)))
    assert not z.store.counts.gets
    np.testing.assert_allclose(y.compute(), z.store.values(((0, 8), (0, 100))), atol=1e-13)


def test_the_users_line_is_in_plans() -> None:
    x = xp.zeros((64,), dtype=xp.complex128)
    y = jfft.fft(x)
    assert {stage["where"].split(":")[0] for stage in jc.plan(y).to_dict()["stages"]} == {__file__}


def test_arithmetic_before_a_transform_is_done_in_its_task() -> None:
    x = values("fft", (16, 16))
    y = jfft.fft(chunked(x, (5, 16)) * 2 - 1)
    assert len(jc.plan(y).stages) == 1
    close(y.compute(), np.fft.fft(x * 2 - 1), 16)


# --- what goes with them -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 8, 1001])
def test_frequencies(n: int) -> None:
    for d in (1.0, 0.1, -3.0):
        np.testing.assert_allclose(jfft.fftfreq(n, d=d).compute(), np.fft.fftfreq(n, d), rtol=1e-15)
        np.testing.assert_allclose(jfft.rfftfreq(n, d=d).compute(), np.fft.rfftfreq(n, d), rtol=1e-15)


def test_frequencies_take_dtype_device_and_chunks() -> None:
    f = jfft.fftfreq(10, dtype=xp.float32, chunks=4)
    assert f.dtype == xp.float32
    assert f.chunks == ((4, 4, 2),)
    assert jfft.rfftfreq(10, chunks=(3,)).chunks == ((3, 3),)
    (device, *_) = xp.__array_namespace_info__().devices()
    assert jfft.fftfreq(10, device=device).device == device
    assert jfft.fftfreq(2**45)[2**44 - 1].compute() == (2**44 - 1) / 2**45


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), ()])
def test_shifts_are_numpys(axes: Any) -> None:
    x = values("fft", (4, 5, 3))
    for name in ("fftshift", "ifftshift"):
        y = getattr(jfft, name)(chunked(x, (2, 2, 3)), axes=axes)
        np.testing.assert_array_equal(y.compute(), getattr(np.fft, name)(x, axes=axes))


def test_a_shifted_array_is_transformed_like_any_other() -> None:
    x = values("fft", (21,))
    y = jfft.ifft(jfft.ifftshift(jfft.fftshift(jfft.fft(chunked(x, (4,))))))
    np.testing.assert_allclose(y.compute(), x, atol=1e-14)


# --- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: jfft.fft(xp.ones((4,), dtype=xp.int64)), TypeError, "fft takes floating dtypes, got int64"),
        (lambda: jfft.rfft(xp.ones((4,), dtype=xp.complex64)), TypeError, "rfft takes real floating dtypes"),
        (lambda: jfft.irfft(xp.ones((4,), dtype=xp.bool)), TypeError, "irfft takes floating"),
        (lambda: jfft.hfft(xp.ones((4,), dtype=xp.int8)), TypeError, "hfft takes floating"),
        (lambda: jfft.ihfft(xp.ones((4,), dtype=xp.int64)), TypeError, "ihfft takes real floating"),
        (lambda: jfft.fftn(xp.ones((4,), dtype=xp.int64)), TypeError, "fftn takes floating"),
        (lambda: jfft.rfftn(xp.ones((4,), dtype=xp.complex64)), TypeError, "rfftn takes real"),
        (lambda: jfft.fft([1j, 2j]), TypeError, "list"),
        (lambda: jfft.fft(C, axis=2), IndexError, "axis=2 is out of bounds"),
        (lambda: jfft.fft(C, axis=1.0), TypeError, "an axis is an int"),
        (lambda: jfft.fft(C, n=0), ValueError, "n=0; there is at least 1 point"),
        (lambda: jfft.fft(C, n=2.5), TypeError, "a length is an int"),
        (lambda: jfft.fft(C, norm="unit"), ValueError, "norm='unit'; it is 'backward', 'ortho' or 'forward'"),
        (lambda: jfft.fft(C, norm=None), ValueError, "norm=None"),
        (lambda: jfft.fft(xp.ones((0,), dtype=xp.complex128)), ValueError, "length 0 gives 0 points"),
        (lambda: jfft.irfft(xp.ones((1,), dtype=xp.complex128)), ValueError, "length 1 gives 0 points"),
        (lambda: jfft.fft(xp.asarray(1j)), IndexError, "0 axes"),
        (lambda: jfft.fftn(C, s=(2, 2)), ValueError, "without axes"),
        (lambda: jfft.fftn(C, s=(2,), axes=(0, 1)), ValueError, "1 lengths, but there are 2 axes"),
        (lambda: jfft.fftn(C, s=(0, 2), axes=(0, 1)), ValueError, "s=0; there is at least 1 point"),
        (lambda: jfft.fftn(C, axes=(0, 0)), ValueError, "names an axis twice"),
        (lambda: jfft.fftn(C, axes=(0, 5)), IndexError, "axes=5 is out of bounds"),
        (lambda: jfft.rfftn(xp.ones((4,)), axes=()), ValueError, "at least one"),
        (lambda: jfft.fftfreq(0), ValueError, "at least 1 point"),
        (lambda: jfft.fftfreq(4, d=0), ValueError, "distance"),
        (lambda: jfft.rfftfreq(4, dtype=xp.complex64), TypeError, "real floating"),
        (lambda: jfft.fftshift(xp.ones((3,), dtype=xp.int64)), TypeError, "floating dtypes"),
        (lambda: jfft.fftshift(C, axes=2), IndexError, "out of bounds"),
        (lambda: jfft.ifftshift(C, axes=(1, 1)), ValueError, "twice"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_call(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


C = xp.ones((3, 4), dtype=xp.complex128)


def test_signatures() -> None:
    line = "(x: 'Array', /, *, n: 'int | None' = None, axis: 'int' = -1, norm: 'Norm' = 'backward') -> 'Array'"
    slab = (
        "(x: 'Array', /, *, s: 'Sequence[int] | None' = None, axes: 'Sequence[int] | None' = None, "
        "norm: 'Norm' = 'backward') -> 'Array'"
    )
    for name, signature in itertools.chain(((name, line) for name in LINES), ((name, slab) for name in SLABS)):
        assert str(inspect.signature(getattr(jfft, name))) == signature, name
    assert sorted(jfft.__all__) == sorted([*LINES, *SLABS, "fftfreq", "rfftfreq", "fftshift", "ifftshift"])
