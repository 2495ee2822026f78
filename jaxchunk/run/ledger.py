"""The memory ledger: what is reserved, what is held.

*Reserved* is what the admitted work may take, by its plan, and what is kept. *Held* is the real
bytes: pool blocks lent or idle, results of kernels, encoded chunks, temporaries while they live.
Always held ≤ reserved ≤ budget: a stage reserves its whole planned peak before it starts.
"""

from __future__ import annotations

import threading


class LedgerError(AssertionError):
    """The model was too small: more is held than was reserved. A fault of the library, never of its user."""


class Ledger:
    """Two sums in bytes and their peaks; safe from any thread.

    Attributes
    ----------
    strict
        Whether held > reserved raises :class:`LedgerError` (as under test) or is only recorded.
    """

    def __init__(self, budget: int, strict: bool = False) -> None:
        self.budget = budget
        self.strict = strict
        self.reserved = 0
        self.held = 0
        self.reserved_peak = 0
        self.held_peak = 0
        self.overdrawn = 0
        # Re-entrant: a finalizer can run, and release, inside any allocation made under the lock.
        self._lock = threading.RLock()

    def reserve(self, nbytes: int) -> None:
        with self._lock:
            if self.reserved + nbytes > self.budget:
                raise LedgerError(
                    f"{nbytes:,} bytes on top of {self.reserved:,} reserved ones pass the budget of {self.budget:,}"
                )
            self.reserved += nbytes
            self.reserved_peak = max(self.reserved_peak, self.reserved)

    def unreserve(self, nbytes: int) -> None:
        with self._lock:
            self.reserved -= nbytes

    def hold(self, nbytes: int) -> None:
        with self._lock:
            self.held += nbytes
            self.held_peak = max(self.held_peak, self.held)
            over = self.held - self.reserved
            if over > 0:
                self.overdrawn = max(self.overdrawn, over)
                if self.strict:
                    self.held -= nbytes
                    raise LedgerError(f"{self.held + nbytes:,} bytes held, {self.reserved:,} reserved")

    def release(self, nbytes: int) -> None:
        with self._lock:
            self.held -= nbytes

    def begin_lap(self) -> int:
        """Count the peak of what is held anew, whenever something more is; gives the one before. Laps nest."""
        with self._lock:
            before, self.held_peak = self.held_peak, 0
            return before

    def end_lap(self, before: int) -> int:
        """The peak since the lap began; that of the whole run counts on."""
        with self._lock:
            lap, self.held_peak = self.held_peak, max(self.held_peak, before)
            return lap

    def room(self) -> int:
        """Bytes that may still be held."""
        with self._lock:
            return self.reserved - self.held
