"""Code written for the standard runs as it is: the helpers of array-api-compat, the functions of array-api-extra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import array_api_compat as compat
import array_api_compat.numpy  # compat imports it only when it meets NumPy
import array_api_extra as xpx
import numpy as np
import pytest

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.plan.plan import Plan
from tests.helpers.synthetic import synthetic_array

# Of its functions that the standard has too by now.
pytestmark = pytest.mark.filterwarnings("ignore:`xpx:DeprecationWarning")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Plan]]:
    """The plans that were run."""
    seen: list[Plan] = []
    run = Plan.run

    def noted(self: Plan, *arguments: Any) -> Any:
        seen.append(self)
        return run(self, *arguments)

    monkeypatch.setattr(Plan, "run", noted)
    yield seen


def lazy() -> Any:
    return xp.reshape(xp.arange(12.0, chunks=5), (3, 4)) * 2 - 7


# --- array-api-compat --------------------------------------------------------------------------


def test_helpers_run_nothing(runs: list[Plan]) -> None:
    x = lazy()
    assert compat.is_array_api_obj(x)
    assert compat.array_namespace(x) is xp
    assert compat.array_namespace(x, xp.ones(3), None, 1.0, api_version="2025.12") is xp
    assert compat.get_namespace(x) is xp
    assert compat.device(x) == x.device
    assert compat.to_device(x, "cpu").device == xp.Device("cpu")
    assert compat.size(x) == 12
    assert compat.is_writeable_array(x)
    for library in ("numpy", "cupy", "torch", "dask", "jax", "ndonnx", "pydata_sparse"):
        assert not getattr(compat, f"is_{library}_array")(x)
        assert not getattr(compat, f"is_{library}_namespace")(xp)
    assert not compat.is_array_api_strict_namespace(xp)
    assert runs == []


def test_numpy_is_another_namespace() -> None:
    with pytest.raises(TypeError, match="Multiple namespaces"):
        compat.array_namespace(lazy(), np.ones(3))


def test_is_lazy_array_asks_for_one_element() -> None:
    """It calls `bool` on one element of an array it doesn't know, and `bool` answers: one chunk is read."""
    stored = synthetic_array((4096, 4096), (512, 512), "float32", lambda i, j: i + j)
    assert not compat.is_lazy_array(jc.from_zarr(stored) * 2 + 1)
    assert stored.store.counts.gets == {"c/0/0": 1}


# --- array-api-extra ---------------------------------------------------------------------------

X = np.asarray([[4.0, -1.0, 2.5], [0.0, 3.0, -2.0]])
SPECIAL = np.asarray([[4.0, np.nan, 2.5], [np.inf, 3.0, -np.inf]])
POSITIONS = np.asarray([3, 0, 2, 3, 1, 0])

# Each function, as it would be called in either namespace: `m` is the namespace, `_` its asarray.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "angle": lambda m, _: xpx.angle(_(X + 1j * X[::-1])),
    "apply_where": lambda m, _: xpx.apply_where(_(X) > 0, _(X), m.log, fill_value=-1.0),
    "apply_where of two": lambda m, _: xpx.apply_where(_(X) > 0, (_(X), _(X) + 1), lambda a, b: a / b, lambda a, b: b),
    "argpartition": lambda m, _: m.take_along_axis(_(X), xpx.argpartition(_(X), 1), axis=-1)[:, 1],
    "at: add": lambda m, _: xpx.at(_(X), (0, slice(1, None))).add(2.0),
    "at: multiply a mask": lambda m, _: xpx.at(_(X), _(X) < 0).multiply(-1.0),
    "at: set": lambda m, _: xpx.at(_(X))[1].set(9.0, copy=True),
    "atleast_nd": lambda m, _: xpx.atleast_nd(_(POSITIONS), ndim=3),
    "broadcast_shapes": lambda m, _: xpx.broadcast_shapes((3, 1), (4,)),
    "cov": lambda m, _: xpx.cov(_(X)),
    "create_diagonal": lambda m, _: xpx.create_diagonal(_(POSITIONS), offset=-1),
    "default_dtype": lambda m, _: str(np.dtype(xpx.default_dtype(m, "complex floating"))),
    "deg2rad": lambda m, _: xpx.deg2rad(_(X)),
    "diag_indices": lambda m, _: xpx.diag_indices(4, xp=m),
    "expand_dims": lambda m, _: xpx.expand_dims(_(X), axis=(0, 2)),
    "isclose": lambda m, _: xpx.isclose(_(SPECIAL), _(SPECIAL + 1e-9), equal_nan=True),
    "isclose of integers": lambda m, _: xpx.isclose(_(POSITIONS), _(POSITIONS[::-1])),
    "isin": lambda m, _: xpx.isin(_(POSITIONS), _(POSITIONS[:2])),
    "kron": lambda m, _: xpx.kron(_(X), _(X[:, :2])),
    "nan_to_num": lambda m, _: xpx.nan_to_num(_(SPECIAL), fill_value=-1.0),
    "nanmax": lambda m, _: xpx.nanmax(_(SPECIAL), axis=1),
    "nanmean": lambda m, _: xpx.nanmean(_(SPECIAL[:1]), axis=1),
    "nanmin": lambda m, _: xpx.nanmin(_(SPECIAL), axis=0),
    "nansum": lambda m, _: xpx.nansum(_(SPECIAL[:1])),
    "nunique": lambda m, _: xpx.nunique(_(POSITIONS)),
    "one_hot": lambda m, _: xpx.one_hot(_(POSITIONS), 5),
    "pad": lambda m, _: xpx.pad(_(X), ((1, 0), (2, 3)), constant_values=7.0),
    "partition": lambda m, _: xpx.partition(_(POSITIONS), 2)[2],
    "rad2deg": lambda m, _: xpx.rad2deg(_(X)),
    "searchsorted": lambda m, _: xpx.searchsorted(_(np.sort(POSITIONS)), _(POSITIONS), side="right"),
    "setdiff1d": lambda m, _: xpx.setdiff1d(_(POSITIONS), _(POSITIONS[:2])),
    "sinc": lambda m, _: xpx.sinc(_(X)),
    "tril_indices": lambda m, _: xpx.tril_indices(4, offset=1, m=3, xp=m),
    "triu_indices": lambda m, _: xpx.triu_indices(4, offset=-1, xp=m),
    "union1d": lambda m, _: xpx.union1d(_(POSITIONS), _(POSITIONS + 2)),
    "unravel_index": lambda m, _: xpx.unravel_index(_(POSITIONS), (2, 2)),
    "lazy_apply": lambda m, _: xpx.lazy_apply(np.cumsum, _(POSITIONS), as_numpy=True),
}


def test_all_functions_are_called() -> None:
    names = {name.partition(":")[0].partition(" ")[0] for name in CALLS}
    assert names == {name for name in xpx.__all__ if name.islower()} - {"__version__", "testing"}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("chunks", [None, 2])
def test_extra(name: str, chunks: int | None) -> None:
    with jc.config.set(default_chunks=chunks):
        got = CALLS[name](xp, xp.asarray)
    wanted = CALLS[name](compat.numpy, np.asarray)
    for mine, theirs in zip(as_tuple(got), as_tuple(wanted), strict=True):
        if not isinstance(theirs, np.ndarray | np.generic):
            assert mine == theirs
            continue
        assert isinstance(mine, xp.Array)
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-13)


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)
