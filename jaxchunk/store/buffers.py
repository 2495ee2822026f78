"""Reused memory for encoded bytes and padded chunks.

Touching fresh memory costs half as much as decoding into it, so readers and writers borrow buffers
and give them back. Idle buffers are memory all the same: `held_bytes` counts them, `drop_idle` frees them.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]

_GRAIN = 64 * 1024


def mapped(size: int) -> mmap.mmap:
    """Fresh memory, by huge pages where there are any: touching it first then costs a fifth."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    # Python's default is shared memory, which has no huge pages on most systems.
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel built without them
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


class BufferPool:
    """Page-aligned buffers, lent one at a time to whoever asks; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Bytes] = []
        self._held = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all buffers, lent and idle."""
        return self._held

    @contextlib.contextmanager
    def lend(self, nbytes: int) -> Iterator[Bytes]:
        """A buffer of exactly `nbytes`, its contents undefined, until the block ends."""
        buffer = self._take(nbytes)
        try:
            yield buffer[:nbytes]
        finally:
            with self._lock:
                self._idle.append(buffer)

    def drop_idle(self) -> int:
        """Free every buffer that nobody has borrowed; returns how many bytes that was."""
        with self._lock:
            freed = sum(buffer.nbytes for buffer in self._idle)
            self._idle.clear()
            self._held -= freed
            return freed

    def _take(self, nbytes: int) -> Bytes:
        with self._lock:
            fitting = [i for i, buffer in enumerate(self._idle) if buffer.nbytes >= nbytes]
            if fitting:
                return self._idle.pop(min(fitting, key=lambda i: self._idle[i].nbytes))
            if self._idle:  # too small for what is read now: replaced, so that sizes don't pile up
                self._held -= self._idle.pop().nbytes
            size = max(1, -(-nbytes // _GRAIN)) * _GRAIN
            self._held += size
        # Not malloc: a dropped mapping goes back to the system at once.
        return np.frombuffer(mapped(size), np.uint8)


POOL = BufferPool()
"""The buffers of all stored arrays and targets of this process."""
