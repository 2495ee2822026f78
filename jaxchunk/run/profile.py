"""What runs measured: bytes, seconds and peaks, per stage and in all."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any


@dataclass
class StageCounters:
    """One stage's measurements; seconds are summed over threads."""

    name: str
    tasks: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    spilled_bytes: int = 0
    spill_read_bytes: int = 0
    read_seconds: float = 0.0
    compute_seconds: float = 0.0
    write_seconds: float = 0.0
    wait_seconds: float = 0.0
    grown_bytes: int = 0
    held_peak_bytes: int = 0
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, **amounts: float) -> None:
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def read(self, nbytes: int, seconds: float) -> None:
        self.add(bytes_read=nbytes, read_seconds=seconds)

    def finish(self, threads: int) -> None:
        """The stage is over: what its threads didn't read, compute or write in they waited."""
        busy = self.read_seconds + self.compute_seconds + self.write_seconds
        self.wait_seconds = max(0.0, threads * self.seconds - busy)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


@dataclass
class Totals:
    """Over every run within a profile."""

    runs: int = 0
    seconds: float = 0.0
    plan_seconds: float = 0.0
    compile_seconds: float = 0.0
    kernels_compiled: int = 0
    ledger_peak_bytes: int = 0
    reserved_peak_bytes: int = 0
    planned_peak_bytes: int = 0
    spilled_bytes: int = 0
    spill_read_bytes: int = 0
    handed_out_bytes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Profile:
    """Measurements of all runs made inside a ``with jaxchunk.profile() as p:`` block, on any thread.

    Blocks may be nested: each has all runs within it.

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> with jc.profile() as p:
    ...     value = float(xp.sum(xp.ones((1000,), chunks=100)))
    >>> p.to_dict()["runs"]
    1
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.stages: list[StageCounters] = []

    def __enter__(self) -> Profile:
        _open.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _open.remove(self)

    def to_dict(self) -> dict[str, Any]:
        """All figures, in bytes and seconds: peaks are the largest of all runs, the others sums.

        `runs`, `seconds` (wall), `plan_seconds`, `compile_seconds`, `kernels_compiled`; `ledger_peak_bytes`
        (held), `reserved_peak_bytes`, `planned_peak_bytes`; `bytes_read` and `bytes_written` (of stored
        arrays, decoded), `spilled_bytes` and `spill_read_bytes` (written to values on disk, and read back),
        `handed_out_bytes`; and `stages`, a dict for each stage that ran, with its `name`, `tasks`, bytes,
        `held_peak_bytes`, wall `seconds`, and seconds summed over threads: `read_seconds`,
        `compute_seconds`, `write_seconds`, `wait_seconds`.
        """
        return {**asdict(self.totals), "stages": [stage.to_dict() for stage in self.stages]}


_open: list[Profile] = []


def record(totals: Totals, stages: list[StageCounters]) -> None:
    """Add one run's figures to every open profile."""
    for profile in list(_open):
        mine = profile.totals
        for name, value in asdict(totals).items():
            old = getattr(mine, name)
            setattr(mine, name, max(old, value) if "peak" in name else old + value)
        profile.stages.extend(stages)
