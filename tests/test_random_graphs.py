"""Random programs on random chunks under random budgets: NumPy's values, or an error before anything ran."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.measure import MIB
from helpers.program_steps import programs
from helpers.programs import Library, Program
from helpers.watchdog import uncaptured_stderr, watched
from hypothesis import HealthCheck, Phase, given, seed, settings
from zarr.storage import MemoryStore

import jaxchunk as jc
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.run.runtime import runtime

AMPLE = 8_000_000
# Budgets that are enough: some chunks of the array that has the largest, and what moves, products and codecs take
# for working, however small the chunks are.
BLOCKS, FIXED = 8, MIB
GRAPHS, PART = 2_000, 100


@pytest.fixture(scope="module")
def stderr(request: pytest.FixtureRequest) -> Iterator[Any]:
    with uncaptured_stderr(request.config) as file:
        yield file


def least(arrays: dict[str, Any], results: list[Any]) -> int:
    """A budget that is enough, by the table of memory: some chunks of whatever has the largest, and what is kept."""
    blocks = [math.prod(x.chunksize) * max(8, x.dtype.itemsize) for x in arrays.values()]
    return FIXED + BLOCKS * max(blocks) + sum(x.size * x.dtype.itemsize for x in results) + runtime().persisted


def check(program: Program) -> None:
    _run(program)
    _is_given_back()


def _run(program: Program) -> None:
    library = Library()
    budget = program.budget or AMPLE
    with jc.config.set(host_memory=budget, device_memory=budget, threads=program.threads):
        try:
            arrays = program.run(library)  # which persists, and counts what masks select
            assert all(x.chunks is not None for x in arrays.values())
        except MemoryBudgetError:
            assert budget < AMPLE
            return
    results = [arrays[name] for name in program.computed]
    budget = program.budget or least(arrays, results)
    with jc.config.set(host_memory=budget, device_memory=budget, threads=program.threads):
        targets = {name: MemoryStore() for name in program.written}
        writes = [
            jc.to_zarr(arrays[name], targets[name], chunks=chunks, compute=False)
            for name, chunks in program.written.items()
        ]
        plan = jc.plan(*results, *writes)
        if plan.problem is not None:
            assert program.budget is not None and budget < AMPLE, plan.problem
            _is_refused(plan, library, targets)
            return
        with jc.profile() as p:
            found = plan.run()
        _keeps_to(p, budget)
        expected = {v.name: v for v in program.values}
        for name, values in zip(program.computed, found, strict=False):
            expected[name].check(values)
        for name, store in targets.items():
            expected[name].check(zarr.open_array(store, mode="r")[...])
        with jc.profile() as p:  # with what is remembered
            again = jc.compute(*results)
        _keeps_to(p, budget)
        for values, first in zip(again, found, strict=False):
            np.testing.assert_array_equal(values, first)


def _is_refused(plan: Any, library: Library, targets: dict[str, MemoryStore]) -> None:
    """The error comes before anything is read, computed or written."""
    gets = library.counts.gets.total()
    with jc.profile() as p, pytest.raises(MemoryBudgetError, match="bytes"):
        plan.run()
    assert not p.to_dict()["stages"]
    assert library.counts.gets.total() == gets
    assert not any(store._store_dict for store in targets.values())


def _keeps_to(profile: Any, budget: int) -> None:
    figures = profile.to_dict()
    held, reserved, planned = (figures[f"{key}_peak_bytes"] for key in ("ledger", "reserved", "planned"))
    assert held <= reserved <= planned <= budget, (held, reserved, planned, budget)
    assert not any(stage["grown_bytes"] for stage in figures["stages"]), "the memory model was too small"


def _is_given_back() -> None:
    """When its arrays are gone, a program has left idle buffers and nothing else."""
    gc.collect()
    machine = runtime()
    machine.note_strays()
    assert machine.ledger.overdrawn == 0
    assert (machine.persisted, machine.keeper.remembered, machine.cache.kept_bytes) == (0, 0, 0)
    assert machine.ledger.held == machine.pool.mapped <= machine.ledger.reserved == sum(machine.buffers_reserved)


@given(programs())
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_random_programs(stderr: Any, program: Program) -> None:
    with watched(stderr):
        check(program)


@pytest.mark.long
@pytest.mark.parametrize("part", range(GRAPHS // PART))
def test_many_random_programs(stderr: Any, part: int) -> None:
    """None is made smaller where it fails: what is shown is a script of the lines that matter."""

    @seed(part)
    @settings(max_examples=PART, phases=[Phase.generate], derandomize=False, database=None, deadline=None)
    @settings(suppress_health_check=list(HealthCheck))
    @given(programs())
    def checked(program: Program) -> None:
        with watched(stderr):
            check(program)

    checked()


IMPORTS = """
import sys, threading, time
import jax
from jax._src.lib import lapack
from jaxchunk.run.libraries import library_threads

class Slowly:
    def find_spec(self, name, path=None, target=None):
        if name == "scipy.linalg":
            begun.set()
            time.sleep(0.3)

def compiles():
    begun.wait()
    lapack._lapack.initialize()

begun, errors = threading.Event(), []
threading.excepthook = lambda of: errors.append(of.exc_value)
assert "scipy.linalg" not in sys.modules
sys.meta_path.insert(0, Slowly())
compiling = threading.Thread(target=compiles)
compiling.start()
with library_threads(1):
    compiling.join()
assert begun.is_set() and not errors, errors
"""


def test_threads_that_load_lapack_wait_for_each_other() -> None:
    """A task and a compilation, at the same time, in a process that hasn't used linear algebra before."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
