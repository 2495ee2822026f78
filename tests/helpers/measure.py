"""Jobs in fresh processes, with the memory that they took: ``python -m helpers.measure JOB ARGUMENTS``."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
STATUS = Path("/proc/self/status")
MIB = 2**20


def measure(job: str, *, timeout: float = 300, environment: Mapping[str, str] | None = None, **arguments: Any) -> Any:
    """Run a function of `helpers.jobs`, or of another module ("memory_jobs.row"), in a process of its own.

    Returns
    -------
    dict
        `value`: what it gave; `growth`: the peak of resident memory over that after the imports and
        one trivial kernel, in bytes; `profile`: the library's own figures.
    """
    done = subprocess.run(
        [sys.executable, "-m", "helpers.measure", job, json.dumps(arguments)],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        raise AssertionError(f"{job} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def check_memory(measured: Any, budget: int) -> None:
    """held ≤ reserved ≤ planned ≤ budget, and the process grew by no more than was planned and the allowance."""
    profile = measured["profile"]
    held, reserved = profile["ledger_peak_bytes"], profile["reserved_peak_bytes"]
    planned = profile["planned_peak_bytes"]
    assert 0 < held <= reserved <= planned <= budget, (held, reserved, planned, budget)
    allowance = measured["allowance"]
    assert 0 < allowance <= 192 * MIB
    assert measured["growth"] <= planned + allowance, f"{measured['growth'] / MIB:.0f} MiB, planned {planned / MIB:.0f}"


def resident(field: str) -> int:
    """A memory figure of this process: VmRSS (now) or VmHWM (the peak), in bytes.

    `ru_maxrss` won't do: it starts from the peak of the process that started this one.
    """
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def job(name: str) -> Callable[..., Any]:
    """A job by its name."""
    module, _, function = name.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"helpers.{module or 'jobs'}"), function)
    return found


def main(name: str, arguments: str, begin: Callable[[int], None] | None = None) -> None:
    """Run a job, and print what `measure` gives; `begin` is called before, with the memory that is resident then."""
    import jaxchunk as jc
    import jaxchunk.array_api as xp

    function = job(name)
    float(xp.sum(xp.ones(16)))
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = resident("VmRSS")
    if begin is not None:
        begin(before)
    with jc.profile() as profile:
        value = function(**json.loads(arguments))
    figures = {
        "value": value,
        "growth": resident("VmHWM") - before,
        "allowance": jc.plan(xp.ones(1)).to_dict()["runtime_allowance"],
        "profile": profile.to_dict(),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
