"""What this process may use of its machine: memory and cores, as the system and control groups have it.

Every function takes the root of the file tree that it looks at; on a system without ``/proc`` and
``/sys`` it finds nothing, and what the system calls tell is all there is.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# What systems write for "no limit" is some number near 2^63: nothing real is as large as this.
_NO_LIMIT = 2**60
# Where nothing at all can be found out.
_FALLBACK = 4 * 2**30


@dataclass(frozen=True)
class Limit:
    """A limit on memory that a control group sets.

    Attributes
    ----------
    source
        The file that says so.
    nbytes
        The limit.
    used
        What the group takes of it that the system can't just drop: pages of files that are only cached
        aren't in it.
    """

    source: str
    nbytes: int
    used: int


@dataclass(frozen=True)
class Memory:
    """What there is, in bytes.

    Attributes
    ----------
    total
        The machine's memory.
    unused
        What the machine could give without swapping: what others hold isn't in it.
    resident
        What this process holds already.
    limits
        Those of the control groups that this process is in, the innermost first.
    """

    total: int
    unused: int
    resident: int
    limits: tuple[Limit, ...]

    @property
    def limit(self) -> int:
        """The most that this process could ever have."""
        return min([self.total, *(limit.nbytes for limit in self.limits)])

    @property
    def free(self) -> int:
        """What this process can have besides what it holds: others, in its control groups too, keep theirs."""
        return max(0, min([self.unused, *(limit.nbytes - limit.used for limit in self.limits)]))

    @property
    def default_budget(self) -> int:
        """Half of what this process could have, what it holds included; at most three quarters of what is free.

        The second is the smaller one in narrow containers, where much of the limit is taken by the
        interpreter and its libraries, and beside large arrays of the user's own.
        """
        could = min(self.limit, self.free + self.resident)
        return max(1, min(could // 2, self.free * 3 // 4))


def memory(root: str | os.PathLike[str] = "/") -> Memory:
    """The memory of the machine and its limits, at this moment."""
    root = Path(root)
    info = _meminfo(root)
    total = info.get("MemTotal") or _physical() or _FALLBACK
    return Memory(total, info.get("MemAvailable", total), _resident(root), tuple(memory_limits(root)))


def memory_limits(root: str | os.PathLike[str] = "/") -> Iterator[Limit]:
    """Limits of the process's control groups, of version 2 and 1: its own group's and those of all around it."""
    root = Path(root)
    for group in _groups(root, ""):
        # Above `memory.high` a group is slowed down until it hardly moves, so it counts as a limit.
        yield from _limit(group, ("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file"))
    for group in _groups(root, "memory"):
        cached = ("total_inactive_file", "total_active_file")
        yield from _limit(group, ("memory.limit_in_bytes",), "memory.usage_in_bytes", cached)
        # Groups around this one that the process can't see; what is used of theirs isn't known.
        around = _stat(group).get("hierarchical_memory_limit", _NO_LIMIT)
        if around < _NO_LIMIT:
            yield Limit(str(group / "memory.stat"), around, 0)


def cpu_quota(root: str | os.PathLike[str] = "/") -> float | None:
    """How many cores' time the control groups grant, or None where they don't limit it."""
    root = Path(root)
    quotas = []
    for group in _groups(root, ""):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
    for group in _groups(root, "cpu"):
        quota_us, period_us = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
        if quota_us is not None and period_us is not None and min(quota_us, period_us) > 0:
            quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def cores(root: str | os.PathLike[str] = "/") -> int:
    """How many threads can compute at once: cores that the process may run on, a quota rounded up."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(root)
    return here if quota is None else max(1, min(here, math.ceil(quota)))


def cpu_model(root: str | os.PathLike[str] = "/") -> str:
    """The processor's name."""
    with contextlib.suppress(OSError):
        for line in (Path(root) / "proc/cpuinfo").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def file_system(path: str | os.PathLike[str], root: str | os.PathLike[str] = "/") -> str | None:
    """The type of the file system that a directory is on, "ext4" say; None where the system doesn't tell."""
    path = PurePosixPath(os.path.realpath(path))
    found: tuple[int, str] | None = None
    with contextlib.suppress(OSError):
        for line in (Path(root) / "proc/self/mounts").read_text(errors="replace").splitlines():
            fields = line.split(" ")
            if len(fields) < 3:
                continue
            # Blanks in names are written as octal codes.
            point = PurePosixPath(fields[1].replace("\\040", " ").replace("\\011", "\t"))
            # A later mount hides an earlier one at the same place.
            if path.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
                found = len(point.parts), fields[2]
    return found[1] if found else None


IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose files are in memory."""


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Directories of the process's control group and of those around it; of version 2 for no controller's name."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    fs = root / "sys/fs/cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller not in names.split(","):
            continue
        mounts = [fs, fs / "unified"] if not controller else [fs / names, fs / controller]
        # In a container the path may be one of the host's, of which it sees nothing but the group itself, as
        # the mount's root; "/.." stands for groups outside of what it sees.
        parts = [part for part in path.split("/") if part and part != ".."]
        for mount in dict.fromkeys(mounts):
            for depth in range(len(parts), -1, -1):
                group = mount.joinpath(*parts[:depth])
                if group.is_dir():
                    yield group


def _limit(group: Path, names: tuple[str, ...], usage: str, cached: tuple[str, ...]) -> Iterator[Limit]:
    for name in names:
        nbytes = _number(group / name)
        if nbytes is None or not 0 < nbytes < _NO_LIMIT:
            continue
        stat = _stat(group)
        used = (_number(group / usage) or 0) - sum(stat.get(kind, 0) for kind in cached)
        yield Limit(str(group / name), nbytes, max(0, used))


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no such file, or a word ("max") in it."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _stat(group: Path) -> dict[str, int]:
    """A group's `memory.stat`."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, value = line.split()
            found[name] = int(value)
    return found


def _meminfo(root: Path) -> dict[str, int]:
    """The lines of /proc/meminfo, in bytes."""
    found = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    return found


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _resident(root: Path) -> int:
    """Bytes of this process that are in memory."""
    try:
        pages = int((root / "proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
