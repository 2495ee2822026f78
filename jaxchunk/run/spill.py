"""The disk that intermediates go to: a directory for each process, and whether there is room in it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from jaxchunk.errors import StorageError
from jaxchunk.store.swap import remove_abandoned, try_lock

_PREFIX = "jaxchunk-spill-"
# Where a file system has no locks none succeeds, and nothing is ever taken for abandoned.
_TRIES = 3


def spill_directory(parent: Path) -> Path:
    """This process's directory for spilled values, removed when it ends; those of dead processes go now.

    It is kept locked, which tells whether its process lives, on whatever machine.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    for _ in range(_TRIES):
        made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
        # Until the process ends. Another one may have found the directory before it was locked, and removed it.
        if try_lock(os.open(made, os.O_RDONLY | os.O_CLOEXEC)) and made.exists():
            break
    atexit.register(_remove_own, made, os.getpid())
    return made


def _remove_abandoned(parent: Path) -> None:
    with contextlib.suppress(OSError):  # others' directories can't be listed everywhere
        for left in parent.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):  # another user's, or another process has just removed it
                remove_abandoned(str(left))


def _remove_own(directory: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child leaves its parent's alone
        shutil.rmtree(directory, ignore_errors=True)


def require_room(directory: Path, needed: int) -> None:
    """Raise StorageError where a directory's disk has fewer bytes free than will be spilled to it."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise _no_room(f"{needed:,} bytes of intermediates would be spilled to {directory}, where {free:,} are free")


@contextlib.contextmanager
def spilling(name: str, path: Path) -> Iterator[None]:
    """While a value is written to its file: a full disk is told as what it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise _no_room(f"no room is left in {path.parent}, where the intermediate {name} is spilled to") from error


def _no_room(what: str) -> StorageError:
    error = StorageError(
        f"{what}: choose another directory by jaxchunk.config.set(spill_directory=…), or JAXCHUNK_SPILL_DIRECTORY; "
        "a larger host_memory spills less"
    )
    error.errno = errno.ENOSPC
    return error
