"""What users of chunked arrays have seen go wrong: order after masks, assignments, tiny numbers, scratch of sorts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB, check_memory, measure

import jaxchunk as jc
import jaxchunk.array_api as xp

# --- order -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [310, 64, 1000, 3000])
def test_what_a_mask_selects_is_in_the_order_of_the_array(chunk: int) -> None:
    i = np.arange(3000)
    m = ((i >= 700) & (i < 760) & ((i - 700) % 3 == 0)) | ((i >= 1900) & (i < 2100) & ((i - 1900) % 7 == 0))
    x = xp.arange(3000, chunks=(chunk,))
    for mask in (xp.asarray(m, chunks=(310,)), xp.asarray(m, chunks=(7,)), ~xp.asarray(~m, chunks=(chunk,))):
        y = np.asarray(x[mask])
        assert len(y) == 49
        assert (np.diff(y) > 0).all()
        assert y.sum() == 72512


@pytest.mark.parametrize("chunk", [5, 1, 42])
def test_a_mask_of_two_axes_selects_along_rows_of_the_array(chunk: int) -> None:
    a = xp.reshape(xp.arange(42, chunks=(chunk,)), (6, 7))
    for cut in (a, jc.rechunk(a, (4, 3)), jc.rechunk(a, (1, 1))):
        assert np.asarray(cut[cut % 5 == 3]).tolist() == [3, 8, 13, 18, 23, 28, 33, 38]


def test_a_slice_of_very_many_blocks_is_in_order() -> None:
    x = xp.arange(20_000, chunks=(1,))
    assert np.asarray(x[12_340:12_350]).tolist() == list(range(12_340, 12_350))
    assert np.asarray(x[x % 2000 == 7]).tolist() == list(range(7, 20_000, 2000))


# --- assignment through masks and positions ----------------------------------------------------------


def test_assignments_keep_dtype_and_shape() -> None:
    a = xp.asarray([1, 2, 3, 4], chunks=(3,))
    a[xp.asarray([True, False, True, False])] = 9
    assert a.dtype == xp.int64
    assert np.asarray(a).tolist() == [9, 2, 9, 4]
    b = xp.zeros(5, chunks=(2,))
    b[xp.asarray([3, 0])] = xp.asarray([7.0, 8.0])
    assert np.asarray(b).tolist() == [8, 0, 0, 7, 0]
    c = xp.zeros((4, 3), chunks=(2, 2))
    c[xp.asarray([True, False, False, True]), :] = xp.ones((2, 3))
    assert np.asarray(c).tolist() == [[1] * 3, [0] * 3, [0] * 3, [1] * 3]


@pytest.mark.parametrize(
    ("mask", "value", "error"),
    [
        ([True, True, False, False], xp.asarray([4, 5, 6]), ValueError),
        ([[True], [False], [True], [False]], 0, IndexError),
        ([True, False, False, True], 9.7, TypeError),
        ([True, False, False], 1, IndexError),
    ],
)
def test_assignments_that_do_not_fit_change_nothing(mask: Any, value: Any, error: type[Exception]) -> None:
    a = xp.asarray([1, 2, 3, 4], chunks=(3,))
    with pytest.raises(error):
        a[xp.asarray(mask)] = value
    assert a.dtype == xp.int64
    assert np.asarray(a).tolist() == [1, 2, 3, 4]


# --- numbers next to zero ----------------------------------------------------------------------------

FLUSHED = {
    "log": lambda x: xp.log(x),
    "sqrt": lambda x: xp.sqrt(x),
    "times infinity": lambda x: x * xp.inf,
    "is zero": lambda x: x == 0,
    "times": lambda x: x * 1e10,
    "sorted": lambda x: xp.sort(x),
    "sum": lambda x: xp.cumulative_sum(x * 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(FLUSHED))
def test_tiny_numbers_are_treated_alike_on_every_path(tmp_path: Path, name: str, dtype: str) -> None:
    """Flushed to zero or not, but the same for one and for a million, in memory, computed before, stored, and cut."""
    tiny = np.full(1_000_000, 1e-40 if dtype == "float32" else 1e-310, dtype)
    assert tiny[0] != 0
    z = zarr.create_array(tmp_path / "x.zarr", data=tiny, chunks=(100_000,))
    persisted = jc.persist(xp.flip(xp.asarray(tiny, chunks=300_000)))
    sources = [
        xp.asarray(tiny[:1]),
        xp.asarray(tiny, chunks=123_457),
        jc.from_zarr(z),
        persisted,
        xp.stack([xp.asarray(tiny[:7], chunks=2)])[0],
        xp.asarray(tiny[:1000])[xp.asarray([3, 2])],
    ]
    results = [FLUSHED[name](x).compute()[:1].tobytes() for x in sources]
    assert len(set(results)) == 1


@pytest.mark.parametrize("value", [1e-40, -1e-45])
def test_tiny_numbers_pass_through_moves_and_stores_unchanged(tmp_path: Path, value: float) -> None:
    n = np.full(1000, value, np.float32)
    x = xp.asarray(n, chunks=300)
    jc.to_zarr(x, tmp_path / "y.zarr", chunks=(128,))
    moved = xp.reshape(xp.flip(x), (10, 100)).T
    for got in (
        zarr.open_array(tmp_path / "y.zarr")[:],
        jc.from_zarr(tmp_path / "y.zarr").compute(),
        moved.compute().reshape(-1),
        x[xp.arange(1000) > -1].compute(),
        xp.sort(x).compute(),
        xp.unique_values(x).compute(),
    ):
        assert {got.tobytes()[k : k + 4] for k in range(0, got.nbytes, 4)} == {n[:1].tobytes()}


# --- a library's own scratch -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "nbytes"), [(1_250_000, 32 * MIB), pytest.param(20_000_000, 512 * MIB, marks=pytest.mark.long)]
)
def test_sorting_positions_of_one_large_chunk_takes_no_more_than_is_planned(length: int, nbytes: int) -> None:
    measured = measure("position_order", length=length, nbytes=nbytes)
    check_memory(measured, nbytes)
    assert measured["value"] == [True, True]


@pytest.mark.parametrize(("length", "nbytes"), [(2_500_000, 4 * MIB)])
def test_a_sort_is_planned_within_a_budget_that_its_line_does_not_fit(length: int, nbytes: int) -> None:
    x = jc.rechunk(xp.astype(xp.arange(length) * 7919 % 20_000_003, xp.float64), (250_000,))
    with budget(nbytes):
        plan = jc.plan(xp.sum(xp.sort(x) * xp.arange(float(length))))
        assert 0 < plan.to_dict()["peak_bytes"] <= nbytes
        value = float(plan.run()[0])
    n = np.sort((np.arange(length) * 7919 % 20_000_003).astype(np.float64))
    assert value == pytest.approx(float(np.dot(n, np.arange(length))), rel=1e-12)
