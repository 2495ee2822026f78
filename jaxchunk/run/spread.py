"""Independent jobs: done by whoever has threads to spare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Jobs: TypeAlias = list[Callable[[], None]]
Spread: TypeAlias = Callable[[Jobs], None]
"""Does jobs, perhaps on several threads, and waits for them."""


def in_turn(jobs: Jobs) -> None:
    """Do jobs one after another, on this thread."""
    for job in jobs:
        job()
