"""What ends a test that hangs, and a process that takes too much memory."""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.measure import MIB, TESTS
from helpers.measure import main as measured

if TYPE_CHECKING:
    import pytest

# --- time ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def watched(file: Any, seconds: float = 120) -> Iterator[None]:
    """End this process, with what all its threads do, where the block takes so long: it waits for itself."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=file)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextlib.contextmanager
def uncaptured_stderr(config: pytest.Config) -> Iterator[Any]:
    """The error output as it was before pytest captured it: what is written there is seen though the process ends."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        descriptor = os.dup(2)
    with os.fdopen(descriptor, "w") as file:
        yield file


# --- memory -------------------------------------------------------------------------------------------------


class KilledError(AssertionError):
    """A process took more memory than it was let have."""


_numbers = itertools.count()
_SYSTEM = Path("/sys/fs/cgroup")
# Of version 1 and 2: what is used, the limit, and that of swap; where it is told what of it are files, and mapped ones.
_V1 = ("memory.usage_in_bytes", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
_V2 = ("memory.current", "memory.max", "memory.swap.max")
_FILES, _MAPPED = ("inactive_file", "active_file"), ("mapped_file", "file_mapped")


def _own_groups() -> Iterator[Path]:
    """Where the memory of this process is counted, by control groups of version 1 and 2."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                yield _SYSTEM / "memory" / path.lstrip("/")
            elif not controllers:
                yield _SYSTEM / path.lstrip("/")


@contextlib.contextmanager
def memory_group() -> Iterator[Path | None]:
    """A control group below our own, for a process to be put in; None where none can be made."""
    for own in _own_groups():
        group = own / f"jaxchunk-test-{os.getpid()}-{next(_numbers)}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if any((group / limit).exists() for _, limit, _ in (_V1, _V2)):
                yield group
                return
        finally:
            for _ in range(100):  # it lives a little longer than the last process in it
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.01)
    yield None


def _limit_growth(group: Path, beyond: int) -> None:
    """Let a control group have so much more than it has now, files that are only cached left out."""
    used, limit, swap = _V1 if (group / _V1[0]).exists() else _V2
    told = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    cached = sum(int(told[name]) for name in _FILES) - sum(int(told.get(name, 0)) for name in _MAPPED)
    nbytes = int((group / used).read_text()) - max(0, cached) + beyond
    (group / limit).write_text(str(nbytes))
    with contextlib.suppress(OSError):  # there is no swap to be limited
        (group / swap).write_text(str(nbytes) if limit == _V1[1] else "0")


def _resident(pid: int) -> int:
    """A process's resident memory; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def measure_within(beyond: int, group: Path | None, job: str, *, timeout: float = 300, **arguments: Any) -> Any:
    """`helpers.measure.measure`, where the process is killed that takes more than `beyond` bytes above its start.

    The control group sees to that; without one, resident memory is looked at every two milliseconds.

    Raises
    ------
    KilledError
        It was.
    """
    command = [sys.executable, "-m", "helpers.watchdog", job, json.dumps(arguments), str(beyond), str(group or "")]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
        process = subprocess.Popen(command, cwd=TESTS, env=environment, stdout=out, stderr=err)
        try:
            most = _watch(process, None if group else out, timeout)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode == -signal.SIGKILL:
            seen = "" if group else f": {most / MIB:.0f} MiB resident"
            raise KilledError(f"{job} took more than {beyond / MIB:.0f} MiB above its start{seen}")
        if process.returncode:
            raise AssertionError(f"{job} ended with {process.returncode}\n{err.read()[-4000:]}")
        return json.loads(out.read().splitlines()[-1])


def _watch(process: subprocess.Popen[bytes], told: Any, timeout: float) -> int:
    """Wait for a process; kill it where it passes the limit that it has written to `told`. Gives the most seen."""
    limit, most = sys.maxsize, 0
    end = time.monotonic() + timeout
    while process.poll() is None:
        if time.monotonic() > end:
            raise TimeoutError(f"{process.args} takes more than {timeout} seconds")
        if told is not None and limit == sys.maxsize:
            line = os.pread(told.fileno(), 100, 0).partition(b"\n")
            limit = int(line[0]) if line[1] else limit
        most = max(most, _resident(process.pid))
        if told is not None and most > limit:
            process.kill()
        time.sleep(0.002)
    return most


def main(job: str, arguments: str, beyond: str, group: str) -> None:
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))

    def begin(resident: int) -> None:
        if group:
            _limit_growth(Path(group), int(beyond))
        else:
            print(resident + int(beyond), flush=True)

    measured(job, arguments, begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
