"""LAPACK's threads: one for small matrices, and as before when a run is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.graph.primitives import Work
from jaxchunk.plan import stages
from jaxchunk.plan.scratch import SHARED_MATRIX, library_threads


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}


def test_threads_are_those_that_tasks_leave() -> None:
    assert library_threads([Work("sort", 100)], 2, 8) is None
    assert library_threads([Work("qr", 100)], 1, 8) == 1
    assert library_threads([Work("qr", SHARED_MATRIX)], 1, 8) == 8
    assert library_threads([Work("qr", 100), Work("lu", SHARED_MATRIX)], 3, 8) == 2
    assert library_threads([Work("qr", SHARED_MATRIX)], 8, 2) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_limits_them_and_gives_them_back(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    from jaxchunk.run import execute

    np.linalg.inv(np.eye(3))
    x = xp.asarray(np.stack([np.eye(4) * k for k in range(1, 5)]), chunks=(1, 4, 4))
    jc.compute(xp.linalg.inv(x))  # LAPACK is loaded
    before, seen = threads(), set()
    call = execute.StageRun.call

    def watched(self: Any, *arguments: Any) -> Any:
        seen.update(threads())
        if fails:
            raise OSError("no")
        return call(self, *arguments)

    monkeypatch.setattr(execute.StageRun, "call", watched)
    x = xp.asarray(np.stack([np.eye(4) * k for k in range(2, 6)]), chunks=(1, 4, 4))
    if fails:
        with pytest.raises(OSError, match="no"):
            jc.compute(xp.linalg.inv(x))
    else:
        np.testing.assert_allclose(jc.compute(xp.linalg.inv(x))[0], np.linalg.inv(x.compute()))
    assert seen == {1}
    assert threads() == before


def test_what_accelerators_have_not_is_done_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = SimpleNamespace(platform="tpu", id=0)
    monkeypatch.setattr(stages, "local_device", lambda pinned=None: accelerator)
    x = xp.asarray(np.diag([1.0, 2.0, 3.0]))
    values, vectors = xp.linalg.eig(x)
    np.testing.assert_array_equal(np.sort_complex(values.compute()), [1, 2, 3])
    assert {stage.kernels.device.platform for stage in jc.plan(vectors).stages if stage.kernels} == {"cpu"}
    (other,) = jc.plan(xp.linalg.svdvals(x)).stages
    assert other.kernels.device is accelerator
