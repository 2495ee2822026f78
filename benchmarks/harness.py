"""Starts each (row, peer) pair in a process of its own and measures it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks import ROOT, check, data
from benchmarks.rows import ROWS

MISSING = " has no "
"""In a child's last line: the peer lacks what the row needs, which is no failure."""

Clock = Literal["wall", "cpu"]


@dataclass(frozen=True)
class Settings:
    """What one call of the benchmarks runs."""

    rows: tuple[str, ...]
    peers: tuple[str, ...]
    pythons: dict[str, str]
    """The interpreter of each peer."""
    cache: Path
    budget: str
    scale: int
    rounds: int
    timeout: float


@dataclass
class Sample:
    """One run: seconds from start to end of the process, its CPU seconds, its peak of resident memory."""

    wall: float
    cpu: float
    peak_bytes: int


@dataclass
class Measured:
    """All runs of one row by one peer."""

    samples: list[Sample] = field(default_factory=list)
    problem: str | None = None
    """Why there are none (or no more): the peer's last words, a wrong value, too long."""
    versions: dict[str, str] = field(default_factory=dict)

    def median(self, clock: Clock) -> float:
        """Seconds by one of the two clocks."""
        return statistics.median(sample.wall if clock == "wall" else sample.cpu for sample in self.samples)

    @property
    def peak_bytes(self) -> int:
        return max(sample.peak_bytes for sample in self.samples)


Results = dict[tuple[str, str], Measured]


def run(settings: Settings) -> Results:
    """Every row by every peer, `rounds` times over; the peers take turns, so that none has the quiet hour."""
    names = {name for row in settings.rows for name in ROWS[row].inputs}
    paths = data.make(settings.cache, settings.scale, names)
    if "jaxchunk" in settings.peers:
        # The peers' modules were compiled when pip installed them; a checkout's would be anew in every process.
        subprocess.run([settings.pythons["jaxchunk"], "-m", "compileall", "-q", str(ROOT / "jaxchunk")], check=True)
    results: Results = {(row, peer): Measured() for row in settings.rows for peer in settings.peers}
    for turn in range(settings.rounds):
        for row in settings.rows:
            for peer in settings.peers:
                measured = results[row, peer]
                if measured.problem is None:
                    _once(settings, row, peer, paths, measured)
                    last = measured.problem or f"{measured.samples[-1].wall:.2f} s"
                    print(f"round {turn + 1} {row} {peer}: {last}", flush=True)
    return results


def _once(settings: Settings, row: str, peer: str, paths: dict[str, Path], measured: Measured) -> None:
    work = settings.cache / "work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "scratch").mkdir(parents=True)
    inputs = [paths[name] for name in ROWS[row].inputs]
    result = work / ("result.npy" if ROWS[row].stored is None else "result.zarr")
    job = {
        "row": row,
        "peer": peer,
        "inputs": [str(path) for path in inputs],
        "chunk": data.INPUTS[ROWS[row].inputs[0]].scaled(settings.scale).chunk,
        "budget": settings.budget,
        "scratch": str(work / "scratch"),
        "result": str(result),
        "report": str(work / "report.json"),
    }
    (work / "job.json").write_text(json.dumps(job))
    data.warm(inputs)
    code, wall, cpu, words = _timed(settings.pythons[peer], work, settings.timeout)
    if code != 0:
        measured.problem = words
        return
    report = json.loads((work / "report.json").read_text())
    measured.versions = report["versions"]
    if peer != "floor":
        measured.problem = check.problem(ROWS[row], settings.cache, settings.scale, inputs, result)
    if measured.problem is None:
        measured.samples.append(Sample(wall, cpu, report["peak_bytes"]))
    shutil.rmtree(work)


def _timed(python: str, work: Path, timeout: float) -> tuple[int, float, float, str]:
    """Run one child: exit code, wall and CPU seconds, and the last line it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (work / "output.txt").open("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            [python, "-m", "benchmarks.child", str(work / "job.json")],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        # The alarm is in the parent: waiting by wait4 gives the CPU seconds of this child alone.
        signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.setitimer(signal.ITIMER_REAL, timeout)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        lines = output.read().strip().splitlines() or ["no output"]
    if process.returncode == -signal.SIGKILL:
        lines = [f"killed after {wall:.0f} s"]
    return process.returncode, wall, usage.ru_utime + usage.ru_stime, lines[-1]
