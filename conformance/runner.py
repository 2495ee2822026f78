"""Shares of the tests in processes of their own, started again when they have grown, and the verdict on all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance import suite
from conformance.plugin import records

ROOT = Path(__file__).resolve().parents[1]
# A test that gives no sign of life for so long hangs.
HANGS_AFTER = 900.0


@dataclass(frozen=True)
class Job:
    """What to run: see `python -m conformance --help`."""

    module: str
    examples: int
    chunks: int | None
    workers: int
    memory: int
    deadline: bool
    arguments: Sequence[str] = ()
    # How many processes, one after another, a worker takes its tests in: more even the load, fewer start faster.
    shares: int = 2

    @property
    def title(self) -> str:
        cut = "one chunk" if self.chunks is None else f"chunks of {self.chunks}"
        deadline = "" if self.deadline else ", no deadline"
        return f"{self.module}, {self.examples} examples, {cut}, {self.workers} workers{deadline}"


@dataclass
class Result:
    """What became of the tests: a record for each, and what the processes took."""

    tests: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    collected: int = 0
    restarts: int = 0
    peak: int = 0
    seconds: float = 0.0

    def add(self, other: Result) -> None:
        self.tests += other.tests
        self.errors += other.errors
        self.restarts += other.restarts
        self.peak = max(self.peak, other.peak)
        if self.collected not in (0, other.collected):
            self.errors.append(f"processes found {self.collected} and {other.collected} tests")
        self.collected = max(self.collected, other.collected)

    @property
    def skipped_by_suite(self) -> list[dict[str, Any]]:
        """Skips that are the suite's own, whatever is tested."""
        own = [t for t in self.tests if t["outcome"] == "skipped" and suite.SKIPPED_BY_SUITE in t["end"]]
        return [t for t in own if t["why"] == "flaky"][: suite.SKIPPED_COUNT]

    @property
    def bad(self) -> list[dict[str, Any]]:
        """Every test that neither passed nor is skipped by the suite itself."""
        own = {t["end"] for t in self.skipped_by_suite}
        return [t for t in self.tests if t["outcome"] != "passed" and t["end"] not in own]

    @property
    def passed(self) -> bool:
        return bool(self.tests) and not self.bad and not self.errors and len(self.tests) == self.collected

    def summary(self) -> str:
        counts = Counter(test["outcome"] for test in self.tests)
        kinds = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped", "xfailed"))
        lost = self.collected - len(self.tests)
        return (
            f"{'PASSED' if self.passed else 'FAILED'}: {kinds}, {len(self.errors)} errors, {lost} not run"
            f" ({len(self.skipped_by_suite)} of the skipped are the suite's own)"
            f" in {self.seconds:.0f} s; at most {self.peak >> 20} MiB a process, {self.restarts} restarts"
        )


def run(job: Job, root: Path, out: Path) -> Result:
    """Run the suite of a checkout; progress goes to the terminal, records and logs below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("share-*"):
        old.unlink()
    total, start, shares = Result(), time.monotonic(), job.shares * job.workers
    with ThreadPoolExecutor(job.workers) as pool:
        results = pool.map(lambda i: _run_share(job, i, shares, root, out), range(shares))
        try:
            for index, result in enumerate(results):
                total.add(result)
                counts = Counter(test["outcome"] for test in result.tests)
                told = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "no tests"
                elapsed = time.monotonic() - start
                print(f"[{index + 1}/{shares}] {told}; {result.peak >> 20} MiB; {elapsed:.0f} s", flush=True)
        except BaseException:  # interrupted: start no more
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    total.seconds = time.monotonic() - start
    return total


def _run_share(job: Job, index: int, shares: int, root: Path, out: Path) -> Result:
    """One share: processes, one after another, until each of its tests has been run."""
    record, log = out / f"share-{index}.jsonl", out / f"share-{index}.log"
    # Without a root directory of its own pytest looks for one among all paths given, and names tests after it.
    command = [sys.executable, "-m", "pytest", "array_api_tests", "--rootdir", str(root), "-q"]
    command += ["-p", "conformance.plugin"]
    command += ["-p", "no:cacheprovider", "--max-examples", str(job.examples), "--stop-at", str(job.memory)]
    command += ["--record", str(record), "--share", str(index), str(shares)]
    command += [] if job.deadline else ["--disable-deadline"]
    command += job.arguments
    environment = os.environ | {
        "ARRAY_API_TESTS_MODULE": job.module,
        "ARRAY_API_TESTS_VERSION": suite.VERSION,
        "HYPOTHESIS_STORAGE_DIRECTORY": str(out / "hypothesis"),
        "JAXCHUNK_DEFAULT_CHUNKS": str(job.chunks or ""),
        "JAXCHUNK_STRICT": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    result = Result()
    while True:
        with log.open("a") as output:
            process = subprocess.Popen(command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT)
            hung = not _waited(process, record)
        lines = records(record)
        result.tests = [line for line in lines if "end" in line]
        result.peak = max((line["peak"] for line in lines if "peak" in line), default=0)
        result.collected = max((line["collected"] for line in lines if "collected" in line), default=0)
        last = lines[-1] if lines else {}
        status = last.get("exit", "died")
        if status in (0, 1, 5):  # all passed, some failed, none left
            return result
        if status != "restart":
            if "begin" not in last:
                result.errors.append(f"share {index} ended with {process.returncode}, see {log}")
                return result
            result.errors.append(f"{last['begin']} {'hung' if hung else f'ended its process ({process.returncode})'}")
        result.restarts += 1


def _waited(process: subprocess.Popen[bytes], record: Path) -> bool:
    """Wait for a process; False where it was killed, since no test had begun or ended for too long."""
    heard = time.time()
    while True:
        try:
            process.wait(2)
            return True
        except subprocess.TimeoutExpired:
            if record.exists():
                heard = max(heard, record.stat().st_mtime)
            if time.time() - heard > HANGS_AFTER:
                process.kill()
                process.wait()
                return False
