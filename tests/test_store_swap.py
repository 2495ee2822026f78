"""Replacing an array: at any moment one of the two is there whole, and open arrays know that they are stale."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from jaxchunk.errors import SourceChangedError
from jaxchunk.store import Target, open_array
from jaxchunk.store import swap as swap_module

SIZE = 1000


def put(path: Any, value: float) -> None:
    with Target.create(path, shape=(SIZE,), dtype="f8", chunks=(100,), overwrite=True) as target:
        for i in range(10):
            target.write_chunk((i,), np.full(100, value))


def hidden(directory: Path) -> list[str]:
    return sorted(name for name in os.listdir(directory) if name.startswith("."))


def test_an_array_written_over_itself_is_read_to_the_end_first(tmp_path: Path) -> None:
    p = tmp_path / "x.zarr"
    zarr.create_array(p, shape=(SIZE,), chunks=(100,), dtype="f8")[:] = np.arange(SIZE)
    source = open_array(p)
    block = np.empty(100)
    with Target.create(p, shape=(SIZE,), dtype="f8", chunks=(100,), overwrite=True, reading=[source]) as target:
        for i in range(10):  # every output chunk needs a far input chunk
            source.read_chunk((9 - i,), block)
            target.write_chunk((i,), block[::-1] * 2)
    assert np.array_equal(zarr.open_array(p)[:], np.arange(SIZE)[::-1] * 2)
    for call in (source.check, lambda: source.read_chunk((0,), block)):
        with pytest.raises(SourceChangedError, match="overwritten by this process after it was opened"):
            call()
    open_array(p).read_chunk((0,), block)
    assert block[1] == 2 * (SIZE - 2)
    assert hidden(tmp_path) == []


def test_every_spelling_of_a_replaced_array_becomes_stale_and_no_other_array(tmp_path: Path) -> None:
    real = tmp_path / "data"
    real.mkdir()
    group = zarr.create_group(real / "g.zarr")
    for name in ("x", "other"):
        group.create_array(name, shape=(SIZE,), chunks=(100,), dtype="f8")
    (tmp_path / "link").symlink_to(real / "g.zarr/x")
    spellings: list[Any] = [tmp_path / "link", (real / "g.zarr/x").as_uri(), group["x"], real / "g.zarr/../g.zarr/x"]
    arrays = [open_array(place) for place in spellings]
    other = open_array(real / "g.zarr/other")
    put(tmp_path / "link", 3.0)  # through the link: what it points to is replaced, the link stays
    assert (tmp_path / "link").is_symlink() and zarr.open_array(real / "g.zarr/x")[0] == 3.0
    for array in arrays:
        with pytest.raises(SourceChangedError, match="overwritten by this process"):
            array.check()
    other.check()
    for place in spellings:
        newly = open_array(place)
        put(place, 4.0)
        with pytest.raises(SourceChangedError):
            newly.check()


def test_rewriting_the_same_path_never_gives_old_values(tmp_path: Path) -> None:
    for value in range(20):
        put(tmp_path / "x", float(value))
        block = np.empty(100)
        open_array(tmp_path / "x").read_chunk((0,), block)
        assert (block == value).all()


DYING = """
import os, sys
sys.path.insert(0, {tests!r})
import test_store_swap
rename, left = os.rename, {renames}
def die(source, target):
    global left
    if left == 0:
        os.kill(os.getpid(), 9)
    rename(source, target)
    left -= 1
os.rename, unlink = die, os.unlink
os.unlink = lambda path: os.kill(os.getpid(), 9) if path.endswith("swap") else unlink(path)
test_store_swap.put({path!r}, 2.0)
"""


@pytest.mark.parametrize(("renames", "torn_journal"), [(0, True), (0, False), (1, False), (2, False)])
def test_a_swap_killed_between_two_steps_is_finished_or_undone_at_the_next_open(
    tmp_path: Path, renames: int, torn_journal: bool
) -> None:
    p = tmp_path / "x"
    put(p, 1.0)
    code = DYING.format(tests=str(Path(__file__).parent), renames=renames, path=str(p))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    journal = tmp_path / ".x.jaxchunk-swap"
    assert set(json.loads(journal.read_text())) == {"new", "old"}
    if torn_journal:
        journal.write_text(journal.read_text()[:9])
    assert p.exists() == (renames != 1)
    open_array(p)
    assert (zarr.open_array(p, mode="r")[:] == (1.0 if renames == 0 else 2.0)).all()
    assert not journal.exists()
    Target.create(p, shape=(1,), dtype="f8", chunks=(1,), overwrite=True).abort()
    assert hidden(tmp_path) == []


def test_a_swap_whose_second_rename_fails_is_undone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p = tmp_path / "x"
    put(p, 1.0)
    rename = os.rename

    def refuse(source: str, target: str) -> None:
        if "jaxchunk-new" in source:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(swap_module.os, "rename", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        put(p, 2.0)
    monkeypatch.undo()
    assert (zarr.open_array(p)[:] == 1.0).all() and hidden(tmp_path) == []


CHILD = """
import sys
sys.path.insert(0, {tests!r})
from test_store_swap import put
print("ready", flush=True)
value = 0
while True:
    value += 1
    put({path!r}, float(value))
"""


def test_kill_9_at_random_moments_leaves_one_of_the_arrays_whole(tmp_path: Path) -> None:
    p = tmp_path / "x"
    put(p, 0.0)
    child_code = CHILD.format(tests=str(Path(__file__).parent), path=str(p))
    draw = random.Random(0)
    seen = set()
    for _ in range(5):
        child = subprocess.Popen([sys.executable, "-c", child_code], stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        time.sleep(draw.uniform(0.02, 0.15))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        array = open_array(p)
        values = np.empty((10, 100))
        for i in range(10):
            array.read_chunk((i,), values[i])
        assert len(np.unique(values)) == 1, "half of one array and half of another"
        seen.add(values[0, 0])
        assert np.array_equal(zarr.open_array(p, mode="r")[:], values.ravel())
    assert len(seen) > 1  # the children did replace it
    put(p, -1.0)
    assert hidden(tmp_path) == []


def test_the_leftovers_of_the_dead_are_removed_and_those_of_the_living_are_not(tmp_path: Path) -> None:
    p = tmp_path / "x"
    living = Target.create(p, shape=(100,), dtype="f8", chunks=(100,))
    code = f"""
import os, numpy as np
from jaxchunk.store import Target
t = Target.create({str(p)!r}, shape=(100,), dtype="f8", chunks=(100,))
t.write_chunk((0,), np.ones(100))
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    assert len(hidden(tmp_path)) == 2
    other = Target.create(p, shape=(100,), dtype="f8", chunks=(100,))
    assert len(hidden(tmp_path)) == 2  # the two living ones
    living.write_chunk((0,), np.ones(100))
    living.commit()
    other.abort()
    assert os.listdir(tmp_path) == ["x"] and (zarr.open_array(p)[:] == 1).all()


def test_a_process_that_ends_by_an_exception_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
from jaxchunk.store import Target
keep = Target.create({str(tmp_path / "x")!r}, shape=(100,), dtype="f8", chunks=(100,))
raise KeyboardInterrupt
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"KeyboardInterrupt" in done.stderr and os.listdir(tmp_path) == []


def test_a_forked_child_does_not_remove_what_its_parent_writes(tmp_path: Path) -> None:
    target = Target.create(tmp_path / "x", shape=(100,), dtype="f8", chunks=(100,))
    code = f"""
import os, sys
from jaxchunk.store import Target
keep = Target.create({str(tmp_path / "y")!r}, shape=(100,), dtype="f8", chunks=(100,))
if os.fork() == 0:
    sys.exit()
os.wait()
sys.exit(0 if len([n for n in os.listdir({str(tmp_path)!r}) if n.startswith(".y")]) == 1 else 1)
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0
    target.abort()


def test_an_open_waits_for_a_swap_that_is_under_way(tmp_path: Path) -> None:
    p = tmp_path / "x"
    put(p, 1.0)
    # Another process is between its two renames: journal there, lock held, final place empty.
    code = f"""
import fcntl, json, os, time
parent, p = {str(tmp_path)!r}, {str(p)!r}
fd = os.open(parent, os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_EX)
journal = parent + "/.x.jaxchunk-swap"
open(journal, "x").write(json.dumps(dict(new=parent + "/.x.jaxchunk-new-1", old=parent + "/.x.jaxchunk-old-1")))
os.rename(p, parent + "/.x.jaxchunk-old-1")
print("between", flush=True)
time.sleep(0.3)
os.rename(parent + "/.x.jaxchunk-old-1", p)
os.unlink(journal)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"between\n"
    assert not p.exists()
    block = np.empty(100)
    open_array(p).read_chunk((0,), block)
    assert (block == 1.0).all()
    child.wait()
    child.stdout.close()
