"""What the library holds at this moment, by what for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from jaxchunk import config
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Source
from jaxchunk.lower.compile import CACHE
from jaxchunk.plan.report import size
from jaxchunk.run.runtime import Runtime, runtime
from jaxchunk.run.values import DiskValue, HostValue


@dataclass(frozen=True)
class Holding:
    """One thing that is held.

    Attributes
    ----------
    kind
        "persisted", "remembered", "chunks", "buffers" or "running".
    name
        What a value was computed by, or a source's name.
    shape, dtype, where
        Of a value: its own, and the user's line that asked for it.
    reserved, held
        Bytes of the budget.
    disk
        Bytes of values on disk.
    count
        How many chunks.
    """

    kind: str
    name: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    where: str | None = None
    reserved: int = 0
    held: int = 0
    disk: int = 0
    count: int = 1

    @property
    def about(self) -> str:
        """All but the kind and the bytes, in words."""
        words = [self.name]
        if self.shape is not None:
            words.append(f"{self.shape} {self.dtype}")
        if self.kind == "chunks":
            words.append(f"{self.count:,} of its chunks")
        if self.disk:
            words.append(f"{size(self.disk)} on disk")
        if self.where is not None:
            words.append(f"[{self.where}]")
        return "  ".join(word for word in words if word)


@dataclass(frozen=True)
class Spilled:
    """A directory of values on disk: how many files, their bytes, and what is free beside them."""

    directory: str
    files: int
    nbytes: int
    free: int


@dataclass(frozen=True)
class MemoryReport:
    """What `memory_report` gives: printed, a table.

    Attributes
    ----------
    budget
        Bytes that data may take, under the settings in force.
    available
        Of it, what a plan made now can have: all that isn't persisted or in use. What is remembered
        or kept besides makes way.
    reserved, held
        The ledger's two sums; `holdings` are what they are made of.
    holdings
        Values, chunks and buffers, each with its bytes.
    kernels, kernel_bytes, kernel_limit
        Compiled kernels that are kept for structures met again, what they are taken to need, and what
        they may need: outside of the budget, in the runtime allowance.
    resident
        Bytes of the process in memory, whatever for; None where the system doesn't say.
    spilled
        Directories of values on disk.
    """

    budget: int
    available: int
    reserved: int
    held: int
    holdings: tuple[Holding, ...]
    kernels: int
    kernel_bytes: int
    kernel_limit: int
    resident: int | None
    spilled: tuple[Spilled, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same for machines: plain dicts, lists and numbers, bytes all of them."""
        return asdict(self)

    def __str__(self) -> str:
        table = [("", "reserved", "held", "")]
        table += [(h.kind, size(h.reserved), size(h.held), h.about) for h in self.holdings]
        table.append(("in all", size(self.reserved), size(self.held), f"of a budget of {size(self.budget)}"))
        lines = [f"{kind:11} {reserved:>10} {held:>10}   {about}".rstrip() for kind, reserved, held, about in table]
        lines += ["", *(f"{name:11} {told}" for name, told in self._besides())]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = [(h.kind, size(h.reserved), size(h.held), h.about) for h in self.holdings]
        cells.append(("in all", size(self.reserved), size(self.held), f"of a budget of {size(self.budget)}"))
        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in cells)
        besides = "".join(f"<li>{escape(name)}: {escape(told)}</li>" for name, told in self._besides())
        return f"<table><tr><th></th><th>reserved</th><th>held</th><th></th></tr>{rows}</table><ul>{besides}</ul>"

    def _besides(self) -> Iterator[tuple[str, str]]:
        yield "available", f"{size(self.available)} for the next plan"
        yield "kernels", f"{self.kernels} compiled, {size(self.kernel_bytes)} of at most {size(self.kernel_limit)}"
        if self.resident is not None:
            yield "process", f"{size(self.resident)} in memory, all in all"
        for s in self.spilled:
            files = f"{s.files} file{'s' * (s.files != 1)}"
            yield "disk", f"{size(s.nbytes)} in {files} below {s.directory}, {size(s.free)} free"


def memory_report() -> MemoryReport:
    """What the library holds right now, and what for; nothing is computed or let go.

    Returns
    -------
    MemoryReport
        Prints as a table; `to_dict()` gives the figures, in bytes. `holdings` add up to the ledger's
        two sums, `reserved` and `held`. Results that were handed out are the caller's, and not in it.

    Notes
    -----
    It can be called from any thread, also while a computation runs: what that takes is one line,
    "running".

    Examples
    --------
    >>> import jaxchunk as jc, jaxchunk.array_api as xp
    >>> y = jc.persist(xp.ones((100, 100)) * 2)
    >>> report = jc.memory_report()
    >>> sum(h.held for h in report.holdings) == report.held >= 80_000
    True
    """
    machine = runtime()
    with machine.ledger._lock:  # one moment for all figures
        machine.pool._collect()
        reserved, held = machine.ledger.reserved, machine.ledger.held
        chunks = list(_chunks(machine))
        holdings = [*_values(machine), *chunks, *_buffers(machine, sum(h.held for h in chunks))]
    rest = Holding(
        "running",
        "what a computation under way takes",
        reserved=reserved - sum(h.reserved for h in holdings),
        held=held - sum(h.held for h in holdings),
    )
    if rest.reserved or rest.held:
        holdings.append(rest)
    budget = config.get().budget
    return MemoryReport(
        budget=budget,
        available=max(0, budget - machine.persisted),
        reserved=reserved,
        held=held,
        holdings=tuple(h for h in holdings if h.reserved or h.held or h.disk),
        kernels=len(CACHE),
        kernel_bytes=CACHE.nbytes,
        kernel_limit=CACHE.limit,
        resident=_resident(),
        spilled=tuple(_spilled(directory) for directory in machine.spill_directories),
    )


def _values(machine: Runtime) -> Iterator[Holding]:
    persisted = sorted(machine.keeper.persisted, key=lambda node: node.serial)
    seen: set[int] = set()
    for node in persisted:
        assert isinstance(node.op, Source)
        value: Any = node.op.array
        yield _value("persisted", node, value)
        seen.add(id(value))
    for node, value in machine.keeper.values():
        if id(value) not in seen:
            yield _value("remembered", node, value)
            seen.add(id(value))


def _value(kind: str, node: Node, value: HostValue | DiskValue) -> Holding:
    held = value.nbytes if isinstance(value, HostValue) else 0
    disk = 0 if isinstance(value, HostValue) else node.nbytes
    name = "" if kind == "persisted" else node.op.name
    return Holding(kind, name, node.shape, str(node.dtype), node.where, value.reserved, held, disk)


def _chunks(machine: Runtime) -> Iterator[Holding]:
    for source, count, nbytes in machine.cache.kept_sources():
        name = "arrays that are gone" if source is None else source.name
        yield Holding("chunks", name, reserved=nbytes, held=nbytes, count=count)


def _buffers(machine: Runtime, chunks: int) -> Iterator[Holding]:
    """The pool's blocks, but for those that kept chunks lie in."""
    idle, lent = machine.buffers_reserved
    yield Holding("buffers", "idle, to be used again", reserved=idle, held=machine.pool.idle)
    yield Holding("buffers", "in use, or not given back yet", reserved=lent, held=machine.pool.lent - chunks)


def _resident() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _spilled(directory: Path) -> Spilled:
    sizes = []
    for entry in os.scandir(directory) if directory.is_dir() else ():
        try:
            sizes.append(entry.stat().st_blocks * 512)
        except FileNotFoundError:
            continue  # it has just been removed
    free = shutil.disk_usage(directory if directory.is_dir() else directory.parent).free
    return Spilled(str(directory), len(sizes), sum(sizes), free)
