"""Selections by a mask: what is done without counting them, and what counts."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import zarr

import jaxchunk as jc
import jaxchunk.array_api as xp

A = np.random.default_rng(0).standard_normal((40, 30))
FOLDS = ("sum", "prod", "mean", "min", "max", "var", "std")


@pytest.mark.parametrize("name", FOLDS)
def test_folds_of_all_that_is_selected(name: str) -> None:
    x = xp.asarray(A, chunks=(7, 11))
    chosen, wanted = xp.sqrt(x[x > 0.3]) * 2 + 1, np.sqrt(A[A > 0.3]) * 2 + 1
    with jc.profile() as p:
        got = float(getattr(xp, name)(chosen))
    assert got == pytest.approx(getattr(np, name)(wanted), rel=1e-12)
    assert p.to_dict()["runs"] == 1
    assert "counted" in repr(chosen)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_folds_along_axes_of_selected_rows(name: str, axis: int | tuple[int, ...]) -> None:
    x = xp.asarray(A, chunks=(7, 11))
    got = getattr(xp, name)(x[x[:, 0] > 0], axis=axis)
    np.testing.assert_allclose(got.compute(), getattr(np, name)(A[A[:, 0] > 0], axis=axis), rtol=1e-10)


def test_counts_and_truth() -> None:
    x = xp.asarray(A, chunks=(7, 11))
    chosen = x[x > 0.3]
    assert int(xp.count_nonzero(chosen)) == (A > 0.3).sum()
    assert bool(xp.all(chosen > 0)) and not bool(xp.any(chosen < 0))
    assert float(xp.var(chosen, correction=1)) == pytest.approx(np.var(A[A > 0.3], ddof=1))
    assert float(xp.mean(chosen - xp.mean(chosen))) == pytest.approx(0, abs=1e-12)


def test_stored_data_is_read_once(tmp_path: object) -> None:
    zarr.save_array(f"{tmp_path}/x.zarr", A)
    x = jc.from_zarr(f"{tmp_path}/x.zarr")
    with jc.profile() as p:
        got = float(xp.mean(x[x > 0.3]))
    assert got == pytest.approx(A[A > 0.3].mean())
    assert p.to_dict()["bytes_read"] == A.nbytes


def test_nothing_selected() -> None:
    x = xp.arange(12, dtype=xp.float64, chunks=3)
    none = x[x > 100]
    assert float(xp.sum(none)) == 0 and np.isnan(float(xp.mean(none)))
    with pytest.raises(ValueError, match="the array is empty"):
        float(xp.max(none))
    assert none.shape == (0,)
    some = x[x > 8]
    assert (float(xp.min(some)), float(xp.max(some)), some.shape) == (9.0, 11.0, (3,))


def test_a_count_is_made_once() -> None:
    x = xp.arange(200_000, chunks=30_000)
    rows = xp.nonzero(x % 3 == 1)[0]
    with jc.profile() as p:
        assert rows.shape == (66_667,) and len(rows) == 66_667 and rows.size == 66_667
    assert p.to_dict()["runs"] == 1


def test_copies_share_and_pickles_are_refused() -> None:
    x = xp.arange(5)
    for y in (copy.copy(x), copy.deepcopy(x)):
        y[0] = 7
        assert int(x[0]) == 0 and int(y[0]) == 7
    with pytest.raises(TypeError, match="can't be pickled"):
        pickle.dumps(x)
