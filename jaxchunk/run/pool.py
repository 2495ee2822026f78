"""Host buffers: page-aligned blocks that are used again.

Aligned memory reaches JAX without a copy, and the first touch of fresh memory costs half as much
as decoding a chunk into it. A block is lent as a NumPy array over an exporter object, and comes
back when that object dies: arrays can't tell, since NumPy and JAX keep references of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxchunk.run.ledger import Ledger
from jaxchunk.store.buffers import mapped

PAGE = mmap.PAGESIZE
# Seconds to wait for blocks to come back before more is held than was reserved.
PATIENCE = 5.0
# Seconds to wait for them at the end of a run.
HOMING = 0.1


class Pool:
    """Blocks by exact size; every byte mapped, lent or idle, is held in the ledger.

    Parameters
    ----------
    settle
        Makes those who hold blocks without using them let go.
    """

    def __init__(self, ledger: Ledger, settle: Callable[[], None] = lambda: None) -> None:
        self.ledger = ledger
        self.settle = settle
        self.mapped = 0
        self._idle: dict[int, list[mmap.mmap]] = defaultdict(list)
        # Finalizers only append here: they can run at any moment, inside any lock.
        self._returned: deque[tuple[int, mmap.mmap]] = deque()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An uninitialised array over a block."""
        count = 1
        for n in shape:
            count *= n
        nbytes = count * dtype.itemsize
        if nbytes == 0:
            return np.empty(shape, dtype)
        size = block_bytes(nbytes)
        with self.ledger._lock:
            self._collect()
            block = self._idle[size].pop() if self._idle[size] else None
        if block is None:
            self.hold(size)
            with self.ledger._lock:
                self.mapped += size
            block = mapped(size)
        lease = (ctypes.c_char * nbytes).from_buffer(block)
        weakref.finalize(lease, self._returned.append, (size, block))
        flat: np.ndarray[Any, Any] = np.frombuffer(lease, dtype, count)  # type: ignore[call-overload]
        return flat.reshape(shape)

    def _collect(self) -> None:
        while self._returned:
            size, block = self._returned.popleft()
            self._idle[size].append(block)

    def _unmap_one(self) -> bool:
        for size, blocks in self._idle.items():
            if blocks:
                blocks.pop().close()
                self.mapped -= size
                self.ledger.release(size)
                return True
        return False

    @property
    def idle(self) -> int:
        """Bytes of blocks that nobody uses."""
        return sum(size * len(blocks) for size, blocks in self._idle.items())

    @property
    def lent(self) -> int:
        return self.mapped - self.idle

    def come_home(self, expected: int) -> None:
        """Wait a moment for lent blocks to come back, until no more than `expected` bytes are lent."""
        deadline = time.monotonic() + HOMING
        asked = False
        while True:
            with self.ledger._lock:
                self._collect()
            if self.lent <= expected or time.monotonic() > deadline:
                return
            if asked:
                time.sleep(0.0002)
            self.settle()
            asked = True

    def trim(self, keep: int = 0) -> None:
        """Unmap idle blocks until what is held leaves `keep` bytes of them at most."""
        with self.ledger._lock:
            self._collect()
            while self.idle > keep and self._unmap_one():
                pass

    def hold(self, nbytes: int) -> None:
        """Hold bytes, after making room for them; released in the ledger."""
        deadline = time.monotonic() + PATIENCE
        while not self._held(nbytes):
            if time.monotonic() > deadline:
                self.ledger.hold(nbytes)
                return
            # JAX lets go of its arguments a moment after a kernel has ended, and queues its references.
            self.settle()
            time.sleep(0.0002)

    def _held(self, nbytes: int) -> bool:
        with self.ledger._lock:
            self._collect()
            while self.ledger.room() < nbytes:
                if not self._unmap_one():
                    return False
            self.ledger.hold(nbytes)
            return True

    @contextlib.contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        self.hold(nbytes)
        try:
            yield
        finally:
            self.ledger.release(nbytes)


class Tab:
    """What one stage holds besides blocks: closing it gives back all that is left, whatever went wrong."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.held = 0
        self._lock = threading.Lock()

    def hold(self, nbytes: int) -> None:
        self.pool.hold(nbytes)
        with self._lock:
            self.held += nbytes

    def release(self, nbytes: int) -> None:
        self.pool.ledger.release(nbytes)
        with self._lock:
            self.held -= nbytes

    def close(self) -> None:
        self.release(self.held)


def block_bytes(nbytes: int) -> int:
    """What a block for so many bytes takes."""
    return -(-nbytes // PAGE) * PAGE


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BLOCK = 2**20
"""Freed blocks of so many bytes go back to the system at once."""


def set_up_allocator() -> bool:
    """Have freed memory go back: glibc else raises its threshold to 32 MiB and keeps what lies below.

    False for another C library: its own policy has to do.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(_M_MMAP_THRESHOLD, LARGE_BLOCK) and libc.mallopt(_M_TRIM_THRESHOLD, LARGE_BLOCK))
    except (OSError, AttributeError):
        return False
