"""What `doctor` says of an installation, devices, memory and disk, and what it advises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxchunk as jc
from jaxchunk import _doctor, _machine
from jaxchunk._doctor import Diagnosis, Spill, admits, doctor, preallocation
from jaxchunk.plan.machines import LAPTOP

GIB = 2**30


@pytest.fixture(scope="module")
def healthy() -> Diagnosis:
    """A machine where nothing is to be done."""
    return replace(
        doctor(),
        jax_wanted=">=0.10.1,<0.10.2",
        jax_admitted=True,
        memory=_machine.Memory(64 * GIB, 60 * GIB, GIB, ()),
        default_budget=30 * GIB,
        budget=30 * GIB,
        cores=4,
        quota=None,
        threads=4,
        allocator="glibc",
        spill=Spill("/scratch", "ext4", 500 * GIB),
        machine=replace(LAPTOP, measured=True),
    )


def test_nothing_is_to_be_done_where_all_is_well(healthy: Diagnosis) -> None:
    assert healthy.advice == ()
    assert str(healthy).endswith("\n\n- Nothing to be done.")
    assert "/scratch: ext4, 500 GiB free" in str(healthy)


LIMITED = _machine.Memory(64 * GIB, 60 * GIB, GIB, (_machine.Limit("/sys/fs/cgroup/memory.max", 8 * GIB, 2 * GIB),))

FAULTS: dict[str, tuple[Mapping[str, Any], str, str]] = {
    "another JAX": (
        {"jax_admitted": False, "versions": {"jax": "0.10.2"}},
        "0.10.2 is none of those",
        'JAX: pip install "jax>=0.10.1,<0.10.2"',
    ),
    "a budget beyond a limit": (
        {"memory": LIMITED},
        "a limit of 8 GiB, 2 GiB of it in use, by /sys/fs/cgroup/memory.max",
        "Memory: the budget is more than the 7 GiB that there are: set a smaller host_memory.",
    ),
    "spilling to memory": ({"spill": Spill("/tmp", "tmpfs", 500 * GIB)}, "/tmp: tmpfs (in memory)", "stays in memory"),
    "a small disk": ({"spill": Spill("/tmp", "ext4", GIB)}, "1 GiB free", "room for less than 2 budgets"),
    "no directory": ({"spill": Spill("/no", None, None)}, "/no can't be used", "set spill_directory"),
    "not calibrated": ({"machine": LAPTOP}, "defaults", "run jaxchunk.calibrate() once"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_and_advised_on(healthy: Diagnosis, fault: str) -> None:
    changes, told, advice = FAULTS[fault]
    found = replace(healthy, **changes)
    assert told in str(found)
    assert len(found.advice) == 1 and advice in found.advice[0]
    assert str(found).endswith(f"- {found.advice[0]}")
    assert found.to_dict()["advice"] == list(found.advice)


def test_a_package_without_metadata_is_no_fault(healthy: Diagnosis) -> None:
    found = replace(healthy, jax_admitted=None, jax_wanted=None, versions={"jaxchunk": None})
    assert "jaxchunk not installed" in str(found) and "isn't known" in str(found)
    assert found.advice == ()


def test_a_quota_is_told(healthy: Diagnosis) -> None:
    assert "2; 2 threads" in str(replace(healthy, cores=2, threads=2)).replace("cores       ", "")
    assert "cores       2, a quota of 1.5; 1 threads" in str(replace(healthy, cores=2, quota=1.5, threads=1))


def test_this_machine(tmp_path: Path) -> None:
    with jc.config.set(host_memory="1 GiB", threads=3, spill_directory=tmp_path / "not" / "there"):
        found = doctor()
    assert (found.budget, found.threads) == (GIB, 3)
    assert found.default_budget == jc.config.Settings().budget
    assert found.platform == jax.default_backend() and len(found.devices) == len(jax.local_devices())
    assert found.versions["jax"] == jax.__version__
    assert found.memory.total > found.memory.resident > 0
    assert found.spill.directory == str(tmp_path / "not" / "there")
    assert found.spill.free is not None and found.spill.free > 0
    assert not (tmp_path / "not").exists()
    # All of it is plain data, with what follows from other figures.
    figures = json.loads(json.dumps(found.to_dict()))
    assert figures["memory"]["limit"] == found.memory.limit and figures["memory"]["free"] == found.memory.free
    assert figures["spill"]["in_memory"] == found.spill.in_memory


def test_the_jax_that_is_wanted_is_the_package_s_own() -> None:
    """The bounds that the project's metadata has, so that the two can't differ."""
    wanted = doctor().jax_wanted
    declared = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert wanted is not None
    line = next(line for line in declared.splitlines() if line.strip().startswith('"jax'))
    assert set(wanted.split(",")) == set(line.strip().strip('",').removeprefix("jax").split(","))


@pytest.mark.parametrize(
    ("wanted", "found", "admitted"),
    [
        (">=0.10.1,<0.10.2", "0.10.1", True),
        ("<0.10.2,>=0.10.1", "0.10.2", False),
        (">=0.10.1,<0.10.2", "0.10.0", False),
        (">=0.10.1,<0.11", "0.10.12", True),
        (">=0.9", "0.10", True),
        ("==0.10", "0.10.0", True),
        ("!=0.10.2,>0.9", "0.10.2", False),
        ("<=0.10.1", "0.10.1.dev20+g1", True),
    ],
)
def test_bounds_of_releases(wanted: str, found: str, admitted: bool) -> None:
    assert admits(wanted, found) is admitted


@pytest.mark.parametrize(
    ("backend", "environment", "fraction", "told"),
    [
        ("cpu", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}, 0.0, "takes no memory beforehand"),
        ("tpu", {}, 0.0, "its runtime's own"),
        ("gpu", {}, 0.75, "takes 75% of a device's memory at its start"),
        ("gpu", {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}, 0.5, "takes 50%"),
        ("cuda", {"XLA_CLIENT_MEM_FRACTION": ".9"}, 0.9, "takes 90%"),
        ("gpu", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 0.0, "up to 75% of a device's memory, as it is wanted"),
        ("gpu", {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, 0.75, "takes 75%"),
        ("gpu", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 0.0, "keeps none"),
    ],
)
def test_what_xla_takes_beforehand(backend: str, environment: Mapping[str, str], fraction: float, told: str) -> None:
    found = preallocation(backend, environment)
    assert found.fraction == fraction and told in found.takes
    variables = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR")
    assert all(name in found.change for name in variables) == (backend in ("gpu", "cuda"))


def test_the_spill_directory_s_file_system_is_that_of_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(_machine, "file_system", lambda path: asked.append(path) or "tmpfs")
    found = _doctor.spill_of(Path("/") / "no such directory" / "below")
    assert asked == [Path("/")] and found.in_memory


def test_the_allocator_s_variables_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    monkeypatch.setattr(_doctor, "set_up_allocator", lambda: True)
    assert "MALLOC_ARENA_MAX=2" in str(doctor())
    monkeypatch.setattr(_doctor, "set_up_allocator", lambda: False)
    assert "allocator   not glibc" in str(doctor())
