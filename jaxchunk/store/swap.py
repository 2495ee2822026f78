"""Replacing a directory by another so that one of the two is always there, whole.

Everything happens in the parent directory of the array ``x``, under hidden names:

``.x.jaxchunk-new-TOKEN``
    The array being written. Its process keeps it locked (flock), so that the leftovers of a dead
    process can be told from the work of a living one.
``.x.jaxchunk-swap``
    The journal, there only while the two renames of a swap are made.
``.x.jaxchunk-old-TOKEN``
    The replaced array, being deleted.

This outlives the death of the process at any moment. It does not wait for the disk (no fsync, as
zarr-python doesn't), so it promises nothing about a power failure within seconds of the write.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_NEW, _OLD, _JOURNAL = "new", "old", "swap"


class NewDirectory:
    """A directory that becomes `final` when committed; dropped before that, or at the process's end, it vanishes."""

    def __init__(self, final: str, parent: str) -> None:
        self.final = final
        self._token = uuid.uuid4().hex
        self.path = _hidden(parent, final, f"{_NEW}-{self._token}")
        with exclusive(parent):
            os.mkdir(self.path)
            lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try_lock(lock)
        self._discard = weakref.finalize(self, _remove_and_close, self.path, lock, os.getpid())

    def commit(self, replace: bool, before_swap: Callable[[], None]) -> None:
        """Put the directory in its final place.

        Parameters
        ----------
        replace
            Whether what is there now may be replaced.
        before_swap
            Called when nothing can go wrong but the renames themselves.
        """
        home = os.path.dirname(self.final)
        old = _hidden(home, self.final, f"{_OLD}-{self._token}")
        os.makedirs(home, exist_ok=True)
        with exclusive(home):
            if not os.path.isdir(self.final) or not os.listdir(self.final):
                os.rename(self.path, self.final)
            elif not replace:
                raise FileExistsError(f"{self.final} was made meanwhile; pass overwrite=True to replace it")
            else:
                before_swap()
                self._swap(old, _hidden(home, self.final, _JOURNAL))
        self._discard()  # nothing is at self.path any more; lets the lock go
        shutil.rmtree(old, ignore_errors=True)

    def _swap(self, old: str, journal: str) -> None:
        with open(journal, "x") as file:
            json.dump({"new": self.path, "old": old}, file)
        try:
            os.rename(self.final, old)
            try:
                os.rename(self.path, self.final)
            except BaseException:
                os.rename(old, self.final)
                raise
        finally:
            os.unlink(journal)

    def discard(self) -> None:
        """Remove the directory, if it wasn't committed."""
        self._discard()


def recover(final: str) -> None:
    """Finish or undo a swap that was interrupted; costs one failing stat where there was none."""
    parent = os.path.dirname(final)
    journal = _hidden(parent, final, _JOURNAL)
    if not os.path.exists(journal):
        return
    with exclusive(parent):  # a living process that is swapping holds this: wait for it
        try:
            if os.path.exists(journal):
                _resolve(journal, final)
        except OSError:  # a reader that may not write here; what is in the final place is whole all the same
            if not os.path.isdir(final):
                raise


def clean_up(final: str, parent: str) -> None:
    """Besides `recover`, remove what dead processes left of arrays that were to be at `final`."""
    recover(final)
    prefixes = tuple(os.path.basename(_hidden(parent, final, f"{kind}-")) for kind in (_NEW, _OLD))
    with exclusive(parent):
        leftovers = [entry.path for entry in os.scandir(parent) if entry.name.startswith(prefixes)]
        for path in leftovers:
            with suppress(FileNotFoundError):
                remove_abandoned(path)


def _resolve(journal: str, final: str) -> None:
    with open(journal) as file:
        try:
            names = json.load(file)
        except ValueError:  # killed while the journal was written: no rename was made yet
            names = {}
    new, old = names.get("new"), names.get("old")
    if not os.path.exists(final):
        for candidate in (new, old):
            if candidate and os.path.exists(candidate):
                os.rename(candidate, final)
                break
    os.unlink(journal)
    for rest in (new, old):
        if rest:
            shutil.rmtree(rest, ignore_errors=True)


def _hidden(parent: str, final: str, suffix: str) -> str:
    return os.path.join(parent, f".{os.path.basename(final)}.jaxchunk-{suffix}")


@contextmanager
def exclusive(directory: str) -> Iterator[None]:
    """One process, and one thread of it, at a time; without effect where the file system has no such locks."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove_abandoned(path: str) -> None:
    """Remove a directory that no living process has locked; it is locked meanwhile."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if try_lock(fd):
            shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(fd)


def _remove_and_close(path: str, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child must not remove what its parent is writing
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
