"""Progress: a bar on a terminal, or whatever the user's callback makes of it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

from jaxchunk.config import Settings
from jaxchunk.run.stage import Stage

OnTask = Callable[[Stage, int], None]
# A run that is over before this isn't worth a bar.
_PATIENCE = 64


def quiet(stage: Stage, done: int) -> None:
    """Report nothing."""


@contextlib.contextmanager
def shown(stages: Sequence[Stage], settings: Settings) -> Iterator[OnTask]:
    """A callback for finished tasks: (stage, how many of its tasks are done)."""
    tasks = sum(stage.tasks for stage in stages)
    wanted = settings.progress if settings.progress is not None else sys.stderr.isatty() and tasks >= _PATIENCE
    if not wanted:
        yield quiet
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=settings.progress is None) as bar:
        bars = {stage.number: bar.add_task(stage.name, total=stage.tasks) for stage in stages}
        yield lambda stage, done: bar.update(bars[stage.number], completed=done)
