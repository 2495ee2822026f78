"""Decoded chunks that more than one task needs: decoded once, kept while the plan has room for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


class ChunkCache:
    """Chunks by (opened array, index), under a limit in bytes.

    A chunk goes in only where there is room, and goes out after its last planned use: so a scan
    that doesn't fit keeps the part that was in first, instead of replacing all of it in turn.
    Two tasks that want one chunk at once share one decode.
    """

    def __init__(self) -> None:
        self.limit = 0
        self.used = 0
        self._kept: OrderedDict[Hashable, tuple[Array, int]] = OrderedDict()
        self._decoding: dict[Hashable, Future[Array]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, nbytes: int, uses: int, decode: Callable[[], Array]) -> Array:
        """The chunk; `uses` is how often the stage wants it in all (0: not known, kept while there is room)."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is not None:
                self._count_use(key, entry, nbytes)
                return entry[0]
            future = self._decoding.get(key)
            if future is None:
                own: Future[Array] = Future()
                self._decoding[key] = own
        if future is not None:
            chunk = future.result()
            with self._lock:
                entry = self._kept.get(key)
                if entry is not None:
                    self._count_use(key, entry, nbytes)
            return chunk
        try:
            chunk = decode()
        except BaseException as error:
            with self._lock:
                del self._decoding[key]
            own.set_exception(error)
            raise
        with self._lock:
            del self._decoding[key]
            if uses != 1:
                self._insert(key, chunk, nbytes, uses - 1)
        own.set_result(chunk)
        return chunk

    def _insert(self, key: Hashable, chunk: Array, nbytes: int, left: int) -> None:
        while self.used + nbytes > self.limit:
            # Only chunks of unknown use give way.
            old = next((k for k, (_, n) in self._kept.items() if n < 0), None)
            if old is None:
                return
            self._drop(old)
        self._kept[key] = (chunk, left)
        self.used += nbytes

    def _count_use(self, key: Hashable, entry: tuple[Array, int], nbytes: int) -> None:
        chunk, left = entry
        if left == 1:
            self._drop(key)
        elif left > 1:
            self._kept[key] = (chunk, left - 1)
        else:
            self._kept.move_to_end(key)

    def _drop(self, key: Hashable) -> None:
        chunk, _ = self._kept.pop(key)
        self.used -= chunk.nbytes

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.used = 0
            self.limit = 0
