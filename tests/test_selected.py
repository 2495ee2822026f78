"""Folds and elementwise functions of what a mask selects: without counting it, reading the data once."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from tests.helpers import arrays as a

NUMERIC_FOLDS = ("sum", "prod", "mean", "min", "max", "std", "var", "any", "all", "count_nonzero")


def expected(name: str, x: Any, axis: Any) -> Any:
    with np.errstate(all="ignore"):
        return getattr(np, name)(x, axis=axis)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NUMERIC_FOLDS)
@given(data=st.data(), pair=a.arrays(("float64", "float32"), min_dims=1))
def test_folds(name: str, data: Any, pair: Any) -> None:
    """Over all axes, the selected one alone, and others, of masks over one axis or all."""
    x, y = pair
    masked = data.draw(st.integers(1, x.ndim))
    keep = np.random.default_rng(data.draw(st.integers(0, 99))).random(x.shape[:masked]) < 0.5
    axis = data.draw(st.none() | st.integers(0, x.ndim - masked))
    theirs, mine = x[keep], y[xp.asarray(keep, chunks=2)]
    try:
        value = expected(name, theirs, axis)
    except ValueError:
        with pytest.raises(ValueError, match="no elements"):
            getattr(xp, name)(mine, axis=axis).compute()
        return
    got = getattr(xp, name)(mine, axis=axis)
    assert got.shape == np.shape(value)
    scale = float(np.abs(theirs).sum()) + float(np.abs(np.nan_to_num(value)).max(initial=0)) + 1
    tolerance = 1e-5 if x.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(got.compute(), value, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(st.data(), a.arrays(("int64", "uint8", "bool", "complex64"), min_dims=1))
def test_folds_of_other_dtypes(data: Any, pair: Any) -> None:
    x, y = pair
    keep = np.random.default_rng(data.draw(st.integers(0, 99))).random(x.shape) < 0.5
    mine = y[xp.asarray(keep, chunks=3)]
    a.check(xp.count_nonzero(mine), np.asarray(np.count_nonzero(x[keep])))
    a.check(xp.any(mine), np.asarray(x[keep].any()))
    if x.dtype != np.bool_:
        total = xp.sum(mine)
        np.testing.assert_allclose(total.compute(), x[keep].sum(), rtol=1e-5, atol=1e-5)
        assert total.dtype == xp.sum(y).dtype


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(a.arrays(("float64",), special=True, min_dims=1), st.integers(0, 99))
def test_nan_and_infinities_that_are_not_selected_do_not_matter(pair: Any, seed: int) -> None:
    x, y = pair
    mine, theirs = y[xp.isfinite(y)], x[np.isfinite(x)]
    for name in ("sum", "mean", "var"):
        np.testing.assert_allclose(
            getattr(xp, name)(mine).compute(), expected(name, theirs, None), rtol=1e-12, atol=1e-12
        )
    if theirs.size:
        a.check(xp.max(mine), np.asarray(theirs.max()))
    # Those that are selected do.
    wild = y[~xp.isfinite(y)]
    np.testing.assert_array_equal(xp.sum(wild).compute(), expected("sum", x[~np.isfinite(x)], None))


def test_corrections_dtypes_and_kept_axes() -> None:
    n = np.random.default_rng(0).integers(-9, 9, (30, 4)).astype(np.int8)
    x = xp.asarray(n, chunks=(7, 3))
    keep = n[:, 0] > 0
    s, t = x[xp.asarray(keep)], n[keep]
    a.check(xp.sum(s), np.asarray(t.sum(dtype=np.int64)))
    a.check(xp.sum(s, dtype=xp.float32), np.asarray(t.sum(dtype=np.float32)))
    a.check(xp.prod(s, axis=0, dtype=xp.int16), t.prod(axis=0, dtype=np.int16))
    a.check(xp.sum(s, axis=0, keepdims=True), t.sum(axis=0, keepdims=True, dtype=np.int64))
    a.check(xp.max(s, axis=(0, 1), keepdims=True), t.max(keepdims=True))
    a.check(xp.sum(s, axis=-2), t.sum(axis=0, dtype=np.int64))
    f, g = xp.astype(s, xp.float64), t.astype(np.float64)
    for correction in (0, 1, 2.5):
        weight = t.shape[0] - correction
        got = xp.var(f, axis=0, correction=correction).compute()
        np.testing.assert_allclose(got, ((g - g.mean(0)) ** 2).sum(0) / weight, rtol=1e-12)
        got = xp.std(f, correction=correction).compute()
        np.testing.assert_allclose(got, np.sqrt(((g - g.mean()) ** 2).sum() / (g.size - correction)), rtol=1e-12)


# --- nothing is counted ------------------------------------------------------------------------------


def stored(path: Path, n: int = 262_144, chunk: int = 16_384) -> tuple[Any, xp.Array]:
    values = np.random.default_rng(1).standard_normal(n)
    return values, jc.from_zarr(zarr.create_array(path, data=values, chunks=(chunk,)))


@pytest.mark.parametrize("name", ["sum", "mean", "std", "max", "count_nonzero"])
def test_data_is_read_once(tmp_path: Path, name: str) -> None:
    values, x = stored(tmp_path / "x.zarr")
    with jc.profile() as p:
        got = float(getattr(xp, name)(x[x > 0.5]))
    figures = p.to_dict()
    assert figures["runs"] == 1
    assert figures["bytes_read"] == values.nbytes
    assert figures["spilled_bytes"] == 0
    assert got == pytest.approx(getattr(np, name)(values[values > 0.5]), rel=1e-12)


def test_chains_of_functions_and_several_folds_read_once(tmp_path: Path) -> None:
    values, x = stored(tmp_path / "x.zarr")
    with jc.profile() as p:
        s = x[x > 0.5]
        t = xp.sqrt(s) * 2 + s**2 - xp.asarray(1.0)
        total, largest, many = jc.compute(xp.sum(t), xp.max(t), xp.count_nonzero(t > 3))
    figures = p.to_dict()
    assert figures["runs"] == 1
    assert figures["bytes_read"] == values.nbytes
    v = values[values > 0.5]
    w = np.sqrt(v) * 2 + v**2 - 1
    assert float(total) == pytest.approx(w.sum(), rel=1e-12)
    assert float(largest) == pytest.approx(w.max(), rel=1e-14)
    assert int(many) == np.count_nonzero(w > 3)


def test_making_and_showing_a_selection_runs_nothing(tmp_path: Path) -> None:
    _, x = stored(tmp_path / "x.zarr")
    with jc.profile() as p:
        s = x[x > 0]
        t = xp.exp(s)
        assert s.dtype == xp.float64
        assert s.ndim == 1
        assert "?" in repr(s)
        assert "counted" in t._repr_html_()
        assert str(s.device)
    assert p.to_dict()["runs"] == 0


def test_shapes_are_counted_once_and_plain_integers() -> None:
    n = np.arange(300_000)
    x = xp.asarray(n, chunks=30_000)
    with jc.profile() as p:
        s = x[x % 3 == 0]
        assert s.shape == (100_000,)
        assert type(s.shape[0]) is int
        assert (s.size, len(s)) == (100_000, 100_000)
        assert xp.square(s).shape == (100_000,)
        assert (s + s).shape == (100_000,)
    assert p.to_dict()["runs"] == 1
    assert s.chunks
    a.check(s[-3:], n[n % 3 == 0][-3:])
    a.check(xp.reshape(s, (100, 1000))[7, 8:10], n[n % 3 == 0].reshape(100, 1000)[7, 8:10])


def test_two_selections_by_one_mask_go_together_and_by_two_masks_as_arrays() -> None:
    n = np.arange(40)
    x = xp.asarray(n, chunks=7)
    mask = x % 4 == 1
    a.check(x[mask] + (x * 2)[mask], n[n % 4 == 1] * 3)
    a.check(x[x % 4 == 1] * x[x % 4 == 2], n[n % 4 == 1] * n[n % 4 == 2])
    with pytest.raises(ValueError, match="broadcast"):
        x[x % 4 == 1] + x[x < 3]
    a.check(x[mask] + xp.arange(10), n[n % 4 == 1] + np.arange(10))
    a.check(xp.sum(x[mask][x[mask] > 20]), np.asarray(n[(n % 4 == 1) & (n > 20)].sum()))
    y = x[mask]
    a.check(y - xp.astype(xp.mean(xp.astype(y, xp.float64)), xp.int64), n[n % 4 == 1] - 19)


def test_copies_share_and_pickles_are_refused() -> None:
    x = xp.arange(5)
    for y in (copy.copy(x[x > 1]), copy.deepcopy(x[x > 1]), copy.copy(x)):
        y[0] = 7
        assert x[:3].compute().tolist() == [0, 1, 2]
        assert int(y[0]) == 7
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(x)


# --- nothing is selected -----------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [3, 12])
def test_selections_in_few_blocks_or_none(chunk: int) -> None:
    x = xp.arange(12, dtype=xp.float64, chunks=(chunk,))
    y, z = x[x > 8], x[x > 100]
    assert (float(xp.min(y)), float(xp.max(y))) == (9, 11)
    assert float(xp.std(y)) == pytest.approx(0.816496580927726, rel=1e-15)
    assert float(xp.var(y, correction=1)) == pytest.approx(1.0, rel=1e-15)
    assert y.shape == (3,)
    assert float(xp.sum(z)) == 0
    assert float(xp.prod(z)) == 1
    assert np.isnan(float(xp.mean(z)))
    assert np.isnan(float(xp.var(z)))
    assert not bool(xp.any(z > 0))
    assert bool(xp.all(z > 0))
    for name in ("min", "max", "argmin", "argmax"):
        with pytest.raises(ValueError, match="no elements"):
            int(getattr(xp, name)(z))
    assert z.shape == (0,)
    with pytest.raises(ValueError, match="empty|no elements"):
        float(xp.max(z))  # now that it is counted
    a.check(xp.sort(z), np.empty(0))
    a.check(xp.concat([z, y]), np.asarray([9.0, 10, 11]))


def test_no_rows_selected() -> None:
    x = xp.ones((4, 3), chunks=2)
    s = x[xp.zeros(4, dtype=xp.bool)]
    a.check(xp.sum(s, axis=0), np.zeros(3))
    a.check(xp.sum(s, axis=1), np.zeros(0))
    a.check(xp.max(s, axis=1), np.zeros(0))
    with pytest.raises(ValueError, match="no elements"):
        xp.max(s, axis=0).compute()
    assert np.isnan(xp.mean(s, axis=0).compute()).all()
    empty = xp.ones((4, 0))[xp.asarray([True, False, True, True])]
    assert empty.shape == (3, 0)
    a.check(xp.sum(empty, axis=1), np.zeros(3))
    with pytest.raises(ValueError, match="no elements"):
        xp.max(xp.ones((4, 0))[xp.asarray([True, False, True, True])]).compute()


def test_within_a_small_budget() -> None:
    n = np.random.default_rng(2).standard_normal((1024, 1024))  # 8 MiB
    with budget(MIB), jc.profile() as p:
        x = xp.asarray(n, chunks=(128, 128))
        s = x[x > 1]
        assert float(xp.mean(s * 2)) == pytest.approx((n[n > 1] * 2).mean(), rel=1e-12)
        rows = x[x[:, 0] > 0]
        np.testing.assert_allclose(xp.mean(rows, axis=0)[:9].compute(), n[n[:, 0] > 0].mean(0)[:9], rtol=1e-10)
        a.check(s[::1000], n[n > 1][::1000])
        assert rows.shape == (np.count_nonzero(n[:, 0] > 0), 1024)
    figures = p.to_dict()
    assert 0 < figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= MIB
    assert not any(stage["grown_bytes"] for stage in figures["stages"])
