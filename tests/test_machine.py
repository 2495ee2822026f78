"""Limits of memory and cores, found in made-up file trees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from jaxchunk import _machine, config

GIB = 2**30
PAGE = os.sysconf("SC_PAGE_SIZE")
NEVER = "9223372036854771712"  # what version 1 writes for no limit


def tree(root: Path, files: Mapping[str, str | int]) -> Path:
    """A machine of 64 GiB, 48 of them available, of which this process holds one; and more files."""
    base: dict[str, str | int] = {
        "proc/meminfo": f"MemTotal: {64 * 2**20} kB\nMemAvailable: {48 * 2**20} kB\nHugePages_Total: 0\n",
        "proc/self/statm": f"{3 * GIB // PAGE} {GIB // PAGE} 10 1 0 5 0\n",
    }
    for name, text in {**base, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def test_without_groups_half_of_what_is_free_and_held(tmp_path: Path) -> None:
    memory = _machine.memory(tree(tmp_path, {}))
    assert (memory.total, memory.unused, memory.resident, memory.limits) == (64 * GIB, 48 * GIB, GIB, ())
    assert (memory.limit, memory.free) == (64 * GIB, 48 * GIB)
    assert memory.default_budget == 49 * GIB // 2


def test_what_others_hold_leaves_less(tmp_path: Path) -> None:
    meminfo = f"MemTotal: {64 * 2**20} kB\nMemAvailable: {2 * 2**20} kB\n"
    memory = _machine.memory(tree(tmp_path, {"proc/meminfo": meminfo}))
    # Half of 2 + 1 GiB, and of the 2 that are free three quarters.
    assert memory.default_budget == 3 * GIB // 2


def test_a_system_that_tells_nothing_has_a_default(tmp_path: Path) -> None:
    memory = _machine.memory(tmp_path)
    assert memory.limits == () and memory.resident == 0
    assert memory.total == memory.unused == PAGE * os.sysconf("SC_PHYS_PAGES")
    assert _machine.cpu_quota(tmp_path) is None and _machine.cores(tmp_path) >= 1


def test_version_2_takes_the_least_of_all_groups_around(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/user.slice/job/step\n",
        "sys/fs/cgroup/user.slice/memory.max": 32 * GIB,
        "sys/fs/cgroup/user.slice/memory.current": 4 * GIB,
        "sys/fs/cgroup/user.slice/job/memory.max": 8 * GIB,
        "sys/fs/cgroup/user.slice/job/memory.high": 6 * GIB,
        "sys/fs/cgroup/user.slice/job/memory.current": 5 * GIB,
        "sys/fs/cgroup/user.slice/job/memory.stat": f"anon {2 * GIB}\ninactive_file {GIB}\nactive_file {2 * GIB}\n",
        "sys/fs/cgroup/user.slice/job/step/memory.max": "max",
    }
    memory = _machine.memory(tree(tmp_path, files))
    assert [(Path(limit.source).name, limit.nbytes, limit.used) for limit in memory.limits] == [
        ("memory.max", 8 * GIB, 2 * GIB),  # cached pages of files aren't counted as used
        ("memory.high", 6 * GIB, 2 * GIB),
        ("memory.max", 32 * GIB, 4 * GIB),
    ]
    assert (memory.limit, memory.free) == (6 * GIB, 4 * GIB)
    assert memory.default_budget == 5 * GIB // 2


def test_version_2_in_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/../../elsewhere\n", "sys/fs/cgroup/memory.max": 2 * GIB}
    assert _machine.memory(tree(tmp_path, files)).limit == 2 * GIB


def test_version_2_beside_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/a\n0::/b\n",
        "sys/fs/cgroup/unified/b/memory.max": 5 * GIB,
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": 7 * GIB,
    }
    assert sorted(limit.nbytes for limit in _machine.memory_limits(tree(tmp_path, files))) == [5 * GIB, 7 * GIB]


def test_version_1_with_a_group_of_its_own(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "9:name=systemd:/\n4:memory:/pool/job\n1:cpu:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NEVER,
        "sys/fs/cgroup/memory/pool/memory.limit_in_bytes": 16 * GIB,
        "sys/fs/cgroup/memory/pool/memory.usage_in_bytes": 15 * GIB,
        "sys/fs/cgroup/memory/pool/memory.stat": f"total_inactive_file {3 * GIB}\ntotal_active_file {GIB}\n",
        "sys/fs/cgroup/memory/pool/job/memory.limit_in_bytes": NEVER,
    }
    memory = _machine.memory(tree(tmp_path, files))
    assert [(limit.nbytes, limit.used) for limit in memory.limits] == [(16 * GIB, 11 * GIB)]
    assert (memory.limit, memory.free, memory.default_budget) == (16 * GIB, 5 * GIB, 3 * GIB)


def test_version_1_in_a_container_whose_path_is_the_hosts(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/0123456789ab\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 3 * GIB,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB,
    }
    memory = _machine.memory(tree(tmp_path, files))
    assert (memory.limit, memory.free) == (3 * GIB, 2 * GIB)


def test_version_1_says_what_groups_out_of_sight_allow(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NEVER,
        "sys/fs/cgroup/memory/memory.stat": f"cache 5\nhierarchical_memory_limit {4 * GIB}\n",
    }
    assert _machine.memory(tree(tmp_path, files)).limit == 4 * GIB


@pytest.mark.parametrize("text", ["max", "", "0", NEVER, "what"])
def test_what_is_no_limit_is_ignored(tmp_path: Path, text: str) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": text}
    assert _machine.memory(tree(tmp_path, files)).limits == ()


def test_narrow_containers_leave_room_for_the_process_itself(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/statm": f"1 {300 * 2**20 // PAGE} 0 0 0 0 0",
        "sys/fs/cgroup/memory.max": 512 * 2**20,
        "sys/fs/cgroup/memory.current": 312 * 2**20,
    }
    # Half of 500 MiB would be more than the 200 that are free.
    assert _machine.memory(tree(tmp_path, files)).default_budget == 150 * 2**20


def test_a_group_that_is_over_its_limit_leaves_a_budget_of_next_to_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.high": GIB,
        "sys/fs/cgroup/memory.current": 2 * GIB,
    }
    assert _machine.memory(tree(tmp_path, files)).default_budget == 1


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                "sys/fs/cgroup/a/cpu.max": "150000 100000",
            },
            1.5,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000",
                "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000",
            },
            0.5,
        ),
        (
            {
                "proc/self/cgroup": "2:cpu,cpuacct:/a\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
            },
            None,
        ),
    ],
)
def test_the_quota_of_cores(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    root = tree(tmp_path, files)
    assert _machine.cpu_quota(root) == quota
    here = len(os.sched_getaffinity(0))
    assert _machine.cores(root) == (here if quota is None else min(here, int(quota + 0.5) or 1))


def test_the_processor_and_file_systems(tmp_path: Path) -> None:
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n",
        "proc/self/mounts": "/dev/a / ext4 rw 0 0\ntmpfs /fast tmpfs rw 0 0\nx /fast/a\\040b xfs rw 0 0\nbad\n",
    }
    root = tree(tmp_path, files)
    assert _machine.cpu_model(root) == "Some CPU @ 2 GHz"
    assert _machine.file_system("/home/me", root) == "ext4"
    assert _machine.file_system("/fast/deep/er", root) == "tmpfs"
    assert _machine.file_system("/faster", root) == "ext4"
    assert _machine.file_system("/fast/a b/c", root) == "xfs"
    assert _machine.file_system("/", tmp_path / "nothing") is None


def test_the_default_budget_is_of_this_machine_and_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAXCHUNK_HOST_MEMORY", "JAXCHUNK_DEVICE_MEMORY"):
        monkeypatch.delenv(name, raising=False)
    with config.set(host_memory=None, device_memory=None) as settings:
        budget = settings.budget
        assert 0 < budget <= _machine.memory().limit // 2
        monkeypatch.setattr(_machine, "memory", None)  # not asked again
        assert config.get().budget == budget
