"""Elements of arrays at hand are looked up, and small arrays are computed once for all of their elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.array_api._element import SMALL, element
from jaxchunk.plan.plan import Plan
from jaxchunk.run.values import DiskValue
from tests.helpers.synthetic import synthetic_array

VIEWS = {
    "as it is": lambda x: x,
    "a slice": lambda x: x[1:, ::2],
    "turned round": lambda x: x[::-1, ::-1],
    "transposed": lambda x: x.mT,
    "a view of a view": lambda x: x[2:, :][:, ::-1].mT[1:],
    "broadcast": lambda x: x[:, None, :1] if isinstance(x, np.ndarray) else xp.broadcast_to(x[:, None, :1], (5, 1, 1)),
}


def check(x: Any, wanted: np.ndarray[Any, Any]) -> None:
    for i in np.ndindex(wanted.shape):
        found = element(x[i]._node)
        assert found is not None
        assert found.dtype == wanted.dtype
        assert found == wanted[i]


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "float64", "complex64"])
@pytest.mark.parametrize("chunks", [None, 2])
def test_elements(view: Any, dtype: str, chunks: int | None) -> None:
    values = (np.arange(35).reshape(5, 7) % 5).astype(dtype)
    x = xp.asarray(values, chunks=chunks)
    check(view(x), view(values))  # in memory from the start
    y = x == x
    check(view(y), view(values == values))  # lazy, and then computed as a whole
    assert y._node.value is not None


def test_constants_and_scalars() -> None:
    check(xp.full((2, 3), 7, dtype=xp.int16), np.full((2, 3), 7, np.int16))
    check(xp.asarray(3.5), np.asarray(3.5))


def test_changed_arrays() -> None:
    x = xp.asarray(np.arange(6.0), chunks=4)
    row = x[2:]
    x += 1
    x[0] = 9
    assert (float(element(row[0]._node)), float(element(x[2]._node)), float(element(x[0]._node))) == (2, 3, 9)


def test_small_arrays_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, run = [], Plan.run
    monkeypatch.setattr(Plan, "run", lambda plan, *arguments: (runs.append(plan), run(plan, *arguments))[1])
    x = xp.arange(50, chunks=8) * 3
    assert [int(element(x[i]._node)) for i in range(50)] == list(range(0, 150, 3))
    assert len(runs) == 1
    x = x + 1
    assert [int(element(x[i]._node)) for i in range(50)] == list(range(1, 151, 3))
    assert len(runs) == 2


def test_large_ones_are_left_alone() -> None:
    side = int((SMALL / 4) ** 0.5) + 1
    stored = synthetic_array((side, side), (16, 16), "float32", lambda i, j: i + j)
    large = jc.from_zarr(stored) + 1
    assert element(large[0, 0]._node) is None
    sums = xp.sum(large, axis=0)  # small, but not what it is made of
    assert element(sums[0]._node) is None
    assert not stored.store.counts.gets
    assert float(large[20, 20]) == 41
    assert stored.store.counts.gets == {"c/1/1": 1}


def test_arrays_nobody_holds_are_not_computed_whole() -> None:
    assert element((xp.arange(50) * 3)[7]._node) is None


def test_spilled_values(tmp_path: Any) -> None:
    with jc.config.set(host_memory="2 MiB", spill_directory=str(tmp_path)):
        x = jc.persist(xp.reshape(xp.arange(2**20, dtype=xp.float64, chunks=2**14), (1024, 1024)))
        assert isinstance(x._node.op.array, DiskValue)
        assert element(x[3, 5]._node) is None
        assert float(x[3, 5]) == 3 * 1024 + 5
