"""Memory that was promised and isn't there, since something else took it: what is done again, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxchunk.errors import MemoryBudgetError
from jaxchunk.run.stage import Stage, Task


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device's allocator had nothing left."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


class Attempt:
    """A task that may have to be done again: results that it has passed on once aren't passed on a second time.

    A task gives its results in the same order whenever it is done.

    Attributes
    ----------
    task
        What is done.
    state_bytes
        What its states hold while it is done.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.state_bytes = 0
        self._passed = 0
        self._at = 0

    def begin(self) -> None:
        self._at = 0

    def once(self, pass_on: Callable[..., None], *arguments: Any) -> None:
        """Pass a result on, unless an attempt before this one did."""
        if self._at == self._passed:
            pass_on(*arguments)
            self._passed += 1
        self._at += 1


def not_there(stage: Stage, device: Any, budget: int, error: BaseException) -> MemoryBudgetError:
    """What to raise where not even one task, with everything else let go of, gets its memory."""
    task = (stage.reserve - stage.cache) // max(1, stage.in_flight)
    return MemoryBudgetError(
        f"{stage.name}, asked for at {stage.where}: memory that the budget of {budget:,} bytes promises wasn't there. "
        f"One task, which takes {task:,} bytes by the plan, was tried by itself with all that could be let go of gone, "
        f"and {device} had not enough left: something else has taken it, another process perhaps. Have it freed, or "
        f"set a smaller budget (host_memory, device_memory), for which tasks are cut smaller. The device says: {error}"
    )
