"""The exceptions that are the library's own; everything else raised is Python's or the standard's."""

from __future__ import annotations

from numpy.linalg import LinAlgError

__all__ = ["LinAlgError", "MemoryBudgetError", "SourceChangedError", "StorageError"]


class MemoryBudgetError(MemoryError):
    """A computation needs more memory than its budget; raised before anything runs.

    The message names the operation, the user's line, what it needs, what there is and what would
    make it fit.
    """


class SourceChangedError(RuntimeError):
    """A stored array was replaced or rewritten after it was opened."""


class StorageError(OSError):
    """A chunk could not be read or written: the message names array, chunk and key.

    The store's own exception is its ``__cause__``.
    """
