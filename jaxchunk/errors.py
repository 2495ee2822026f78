"""The exceptions that are the library's own; everything else raised is Python's or the standard's."""

from __future__ import annotations

from numpy.linalg import LinAlgError

__all__ = ["LinAlgError", "MemoryBudgetError", "SourceChangedError", "StorageError"]


class MemoryBudgetError(MemoryError):
    """A computation needs more memory than its budget; raised before anything runs.

    The message names the operation, the user's line, what it needs, what there is and what would
    make it fit. Two cases show during the run only: a kernel turns out to need more than was planned for it,
    which the message calls a fault of the library; and something else has taken memory of a device that the
    budget promises.
    """


class SourceChangedError(RuntimeError):
    """A stored array was replaced, removed or written to through this library after it was opened.

    Open it again to read what is there now.
    """


class StorageError(OSError):
    """Stored bytes are damaged, or absent where they have to be there: the message names array, chunk and key.

    What a codec raised is its ``__cause__``. Where the storage itself fails, its own exception arrives
    instead, with array, chunk and key in a note. Also raised, with ``errno.ENOSPC``, where the disk that
    intermediates go to has no room.
    """
