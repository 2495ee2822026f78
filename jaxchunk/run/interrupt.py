"""Ctrl-C during a run: it ends between two steps, where all that is held stands in the ledger."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupt:
    """Whether the user has asked for the end of the run.

    Python raises KeyboardInterrupt anywhere, between holding memory and noting it too. So the first
    Ctrl-C is only noted; a second one, where the first takes too long, is raised at once.
    """

    def __init__(self) -> None:
        self.requested = False

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Within, Ctrl-C waits for `check`, or for the end. Handlers other than Python's own stay as they are."""
        self.requested = False
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def note(number: int, frame: Any) -> None:
            self.requested = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        self.check()

    def check(self) -> None:
        """Raise what was noted."""
        if self.requested:
            raise KeyboardInterrupt
