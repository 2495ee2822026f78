"""Decoded chunks that more than one task needs: decoded once, kept while the plan has room for them."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxchunk.run.ledger import Ledger

Array: TypeAlias = np.ndarray[Any, Any]


class _Entry(NamedTuple):
    chunk: Array
    nbytes: int
    left: int


class _Lasting(NamedTuple):
    chunk: Array
    nbytes: int
    source: weakref.ref[Any]
    stamp: Hashable


class ChunkCache:
    """Chunks by (opened array, index), under a limit in bytes.

    A chunk goes in only where there is room, and goes out after its last planned use: so a scan
    that doesn't fit keeps the part that was in first, instead of replacing all of it in turn.
    Two tasks that want one chunk at once share one decode. Chunks of sources in `lasting` stay for
    later runs, as far as `kept_limit` goes, and as long as their source is there; they are reserved in
    the ledger as they come in.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.limit = 0
        self.used = 0
        self.lasting: dict[int, Any] = {}
        self.kept_limit = 0
        self.kept_bytes = 0
        self.leaving = 0  # reserved for chunks that were let go of, until `have_left`
        self._lasting: dict[tuple[int, tuple[int, ...]], _Lasting] = {}
        self._kept: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._decoding: dict[Hashable, Future[Array]] = {}
        self._lock = threading.Lock()

    def concerns(self, source: Any) -> bool:
        """Whether any chunk of a source may be had from here, or is to be kept."""
        return bool(self._lasting) or id(source) in self.lasting

    def wants(self, source: Any, index: tuple[int, ...], nbytes: int) -> bool:
        """Whether a chunk is to be had from here, or to be kept for later runs."""
        return (id(source), index) in self._lasting or self._may_last(source, nbytes)

    def _may_last(self, source: Any, nbytes: int) -> bool:
        return id(source) in self.lasting and self.kept_bytes + nbytes <= self.kept_limit

    def get(
        self,
        source: Any,
        index: tuple[int, ...],
        nbytes: int,
        uses: int,
        decode: Callable[[], Array],
        now: int = 1,
    ) -> Array:
        """The chunk.

        Parameters
        ----------
        uses, now
            How often the stage wants it in all (0: not known, kept while there is room), and with this call.
        """
        key = (id(source), index)
        with self._lock:
            lasting = self._lasting.get(key)
            if lasting is not None:
                if lasting.stamp == source.chunk_stamp(index) and lasting.source() is source:
                    return lasting.chunk
                lasting = None
                self.ledger.unreserve(self._let_go(key))
            entry = self._kept.get(key)
            if entry is not None:
                self._count_use(key, entry, now)
                return entry.chunk
            future = self._decoding.get(key)
            if future is None:
                own: Future[Array] = Future()
                self._decoding[key] = own
                lasts = self._may_last(source, nbytes)
                if lasts:
                    self.ledger.reserve(nbytes)
                    self.kept_bytes += nbytes
        if future is not None:
            chunk = future.result()
            with self._lock:
                entry = self._kept.get(key)
                if entry is not None:
                    self._count_use(key, entry, now)
            return chunk
        try:
            stamp = source.chunk_stamp(index) if lasts else None
            chunk = decode()
        except BaseException as error:
            with self._lock:
                del self._decoding[key]
                if lasts:
                    self.kept_bytes -= nbytes
                    self.ledger.unreserve(nbytes)
            own.set_exception(error)
            raise
        with self._lock:
            del self._decoding[key]
            if lasts:
                self._lasting[key] = _Lasting(chunk, nbytes, weakref.ref(source), stamp)
            elif uses != now:
                self._insert(key, chunk, nbytes, max(uses - now, -1))
        own.set_result(chunk)
        return chunk

    def _insert(self, key: Hashable, chunk: Array, nbytes: int, left: int) -> None:
        while self.used + nbytes > self.limit:
            # Only chunks of unknown use give way.
            old = next((k for k, entry in self._kept.items() if entry.left < 0), None)
            if old is None:
                return
            self._drop(old)
        self._kept[key] = _Entry(chunk, nbytes, left)
        self.used += nbytes

    def give_way(self, nbytes: int) -> bool:
        """Have that much less room for chunks that several tasks want, where there is as much: what is over goes."""
        with self._lock:
            if nbytes > self.limit:
                return False
            self.limit -= nbytes
            while self.used > self.limit:
                self._drop(next(iter(self._kept)))
            return True

    def _count_use(self, key: Hashable, entry: _Entry, now: int) -> None:
        if entry.left < 0:
            self._kept.move_to_end(key)
        elif entry.left <= now:
            self._drop(key)
        else:
            self._kept[key] = entry._replace(left=entry.left - now)

    def _drop(self, key: Hashable) -> None:
        self.used -= self._kept.pop(key).nbytes

    def _let_go(self, key: tuple[int, tuple[int, ...]]) -> int:
        nbytes = self._lasting.pop(key).nbytes
        self.kept_bytes -= nbytes
        return nbytes

    def have_left(self) -> None:
        """The blocks of chunks that were let go of are back: nothing is reserved for them any more."""
        with self._lock:
            self.ledger.unreserve(self.leaving)
            self.leaving = 0

    def trim_kept(self, limit: int) -> None:
        """Let chunks go that were kept for later runs, until they take `limit` bytes at most.

        Those of sources that this run doesn't read go first, where it reads others again.
        """
        with self._lock:
            for key, entry in list(self._lasting.items()):
                source = entry.source()
                if source is None or source.stale or (self.lasting and key[0] not in self.lasting):
                    self.leaving += self._let_go(key)
            for key in reversed(list(self._lasting)):
                if self.kept_bytes > limit:
                    self.leaving += self._let_go(key)
            self.kept_limit = limit

    def let_go_of_dead(self) -> bool:
        """Let chunks go whose source is gone, since nothing can read them any more; whether there were any."""
        with self._lock:
            dead = [key for key, entry in self._lasting.items() if entry.source() is None]
            for key in dead:
                self.leaving += self._let_go(key)
        return bool(dead)

    def kept_sources(self) -> list[tuple[Any, int, int]]:
        """The sources of which chunks are kept for later runs, with how many of each, and their bytes.

        None stands for sources that are gone: their chunks go before the next run.
        """
        found: dict[int, tuple[Any, int, int]] = {}
        # No lock: who asks may have the ledger's, which is taken inside this one elsewhere.
        for entry in list(self._lasting.values()):
            source = entry.source()
            _, count, nbytes = found.get(id(source), (None, 0, 0))
            found[id(source)] = (source, count + 1, nbytes + entry.nbytes)
        return list(found.values())

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.used = 0
            self.limit = 0
