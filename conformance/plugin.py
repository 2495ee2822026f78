"""The part that runs inside of pytest: picks one share of the tests and records what becomes of each.

The record is a file of one JSON object a line. A process that is started again on the same file takes
up where the last one ended: after the last test recorded, be it finished or only begun.
"""

from __future__ import annotations

import json
import resource
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--record", type=Path, help="file that results are appended to")
    group.addoption("--share", type=int, nargs=2, metavar=("I", "N"), help="run the tests of share I of N")
    group.addoption("--stop-at", type=int, help="bytes of resident memory at which to stop after a test")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record"):
        config.pluginmanager.register(Recorder(config))


class Recorder:
    """Selects, records and stops."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path = config.getoption("--record")
        self._share: tuple[int, int] = config.getoption("--share")
        self._limit: int = config.getoption("--stop-at")
        self._outcome: dict[str, Any] = {}

    def _write(self, **record: Any) -> None:
        with self._path.open("a") as file:
            print(json.dumps(record), file=file)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        index, shares = self._share
        begun = {record["begin"] for record in records(self._path) if "begin" in record}
        # By a checksum, which is the same in every process whatever the order they collect in.
        mine = [item for item in items if zlib.crc32(item.nodeid.encode()) % shares == index]
        self._write(collected=len(items), mine=len(mine))
        items[:] = [item for item in mine if item.nodeid not in begun]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome = {"outcome": "passed", "why": "", "text": "", "seconds": 0.0}
        self._write(begin=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcome["seconds"] += report.duration
        if hasattr(report, "wasxfail"):
            self._outcome |= {"outcome": "xfailed", "why": str(report.wasxfail)}
        elif report.outcome != "passed":
            self._outcome |= {"outcome": report.outcome, "why": _why(report), "text": report.longreprtext}

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(end=nodeid, **self._outcome)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        yield
        if nextitem is not None and psutil.Process().memory_info().rss > self._limit:
            item.session.shouldstop = "restart"

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        # The peak is in KiB, but for macOS.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        status = "restart" if session.shouldstop == "restart" else int(exitstatus)
        self._write(exit=status, peak=peak)


def _why(report: pytest.TestReport) -> str:
    """One line on why a test was skipped or failed."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else report.longreprtext).strip().partition("\n")[0]


def records(path: Path) -> list[dict[str, Any]]:
    """What a file holds so far; a line that a killed process left unfinished is left out."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines if line.endswith("}")]
