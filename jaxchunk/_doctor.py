"""What this machine and this installation are, as the library sees them, and what could be better."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxchunk import _machine, config
from jaxchunk.plan.machines import Machine, rates_file, this_machine
from jaxchunk.plan.report import size
from jaxchunk.run.pool import LARGE_BLOCK, set_up_allocator

_PACKAGES = ("jaxchunk", "jax", "jaxlib", "numpy", "zarr", "numcodecs")
# What of a device's memory XLA takes when it starts, unless it is told otherwise.
_FRACTION = 0.75
# Less than so many budgets free where values are spilled is soon used up.
_SPILL_ROOM = 2
_ALLOCATOR_VARIABLES = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")


@dataclass(frozen=True)
class Preallocation:
    """What XLA takes of the devices' memory as it starts, and keeps.

    Attributes
    ----------
    takes
        In words.
    fraction
        Of each device's memory; 0 where none is taken beforehand.
    change
        The environment variables that change it, before JAX starts; empty where none does.
    """

    takes: str
    fraction: float
    change: str


@dataclass(frozen=True)
class Device:
    """A device of JAX's; `limit` and `used` are bytes of its own memory, None where it says nothing of them."""

    name: str
    kind: str
    limit: int | None
    used: int | None


@dataclass(frozen=True)
class Spill:
    """Where values are spilled: the file system's type, None where unknown; `free` bytes; None: it can't be made."""

    directory: str
    file_system: str | None
    free: int | None

    @property
    def in_memory(self) -> bool:
        """Whether its files take memory."""
        return self.file_system in _machine.IN_MEMORY


class Line(NamedTuple):
    """What is told of one thing; `advice` is empty where nothing is to be done."""

    about: str
    told: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found: printed, a table, and what to do at its end.

    Attributes
    ----------
    python, versions
        Of the interpreter and of packages; None for what isn't installed as a package.
    jax_wanted, jax_admitted
        The releases of JAX that this one is tested with, as "<0.10.2,>=0.10.1", and whether the one here
        is among them; None where the package's metadata is missing.
    platform, devices
        What JAX computes on.
    preallocation
        What XLA takes of it at once.
    memory
        Of the host, with limits and what others hold.
    default_budget, budget
        Bytes for data by default, and under the settings in force.
    cores, quota, threads
        That the process may use; of them by a control group's quota; and in force.
    allocator
        How the C library gives memory back, in words; None where it isn't one that is known.
    spill
        Where values go that memory doesn't hold.
    machine, rates_file
        The rates that seconds are predicted by, and where measured ones are kept.
    """

    python: str
    versions: dict[str, str | None]
    jax_wanted: str | None
    jax_admitted: bool | None
    platform: str
    devices: tuple[Device, ...]
    preallocation: Preallocation
    memory: _machine.Memory
    default_budget: int
    budget: int
    cores: int
    quota: float | None
    threads: int
    allocator: str | None
    spill: Spill
    machine: Machine
    rates_file: str

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do, a sentence each; nothing where all is well."""
        return tuple(line.advice for line in self.lines() if line.advice)

    def to_dict(self) -> dict[str, Any]:
        """All of it, for machines: plain dicts, lists and numbers; and `advice`."""
        memory = self.memory
        spare = {"limit": memory.limit, "free": memory.free}
        found = {**asdict(self), "advice": list(self.advice)}
        found["memory"] |= spare
        found["spill"]["in_memory"] = self.spill.in_memory
        return found

    def __str__(self) -> str:
        lines = [f"{line.about:11} {line.told}".rstrip() for line in self.lines()]
        return "\n".join([*lines, "", *(f"- {sentence}" for sentence in self.advice or ("Nothing to be done.",))])

    __repr__ = __str__

    # --- the lines ---------------------------------------------------------------------------

    def lines(self) -> Iterator[Line]:
        """All that is told, in order."""
        yield from self._installation()
        yield from self._devices()
        yield from self._memory()
        yield from self._disk()
        yield self._rates()

    def _installation(self) -> Iterator[Line]:
        packages = ", ".join(f"{name} {found or 'not installed'}" for name, found in self.versions.items())
        yield Line("versions", f"Python {self.python}, {packages}")
        if self.jax_admitted is None:
            yield Line("jax", "which releases this one is tested with isn't known: the package isn't installed")
        elif self.jax_admitted:
            yield Line("jax", f"{self.versions['jax']} is one of those that this release is tested with")
        else:
            told = f"{self.versions['jax']} is none of those that this release is tested with ({self.jax_wanted})"
            yield Line("jax", told, f'JAX: pip install "jax{self.jax_wanted}": others may compute something wrongly.')

    def _devices(self) -> Iterator[Line]:
        for number, device in enumerate(self.devices):
            bytes_told = f", {size(device.used or 0)} of {size(device.limit)} in use" if device.limit else ""
            yield Line("devices" if number == 0 else "", f"{device.name} ({device.kind}){bytes_told}")
        change = self.preallocation.change
        yield Line("XLA", self.preallocation.takes + (f"; {change}" if change else ""))

    def _memory(self) -> Iterator[Line]:
        memory = self.memory
        yield Line(
            "memory",
            f"{size(memory.total)}, {size(memory.unused)} of them unused; this process holds {size(memory.resident)}",
        )
        for limit in memory.limits:
            yield Line("", f"a limit of {size(limit.nbytes)}, {size(limit.used)} of it in use, by {limit.source}")
        default = "" if self.budget == self.default_budget else f"; by default {size(self.default_budget)}"
        advice = ""
        possible = memory.free + memory.resident
        if self.budget > possible:
            advice = f"Memory: the budget is more than the {size(possible)} that there are: set a smaller host_memory."
        yield Line("budget", f"{size(self.budget)} for data{default}", advice)
        quota = "" if self.quota is None else f", a quota of {self.quota:g}"
        yield Line("cores", f"{self.cores}{quota}; {self.threads} threads")
        yield Line("allocator", self.allocator or "not glibc: freed memory goes back by its own rules, perhaps late")

    def _disk(self) -> Iterator[Line]:
        spill = self.spill
        setting = "spill_directory (jaxchunk.config.set, or JAXCHUNK_SPILL_DIRECTORY)"
        if spill.free is None:
            yield Line("spill", f"{spill.directory} can't be used", f"Spilling: set {setting} to one that can be.")
            return
        kind = "an unknown file system" if spill.file_system is None else spill.file_system
        advice = ""
        if spill.in_memory:
            advice = f"Spilling: what is spilled there stays in memory: set {setting} to a disk."
        elif spill.free < _SPILL_ROOM * self.budget:
            advice = f"Spilling: there is room for less than {_SPILL_ROOM} budgets: set {setting} to a larger disk."
        where = " (in memory)" if spill.in_memory else ""
        yield Line("spill", f"{spill.directory}: {kind}{where}, {size(spill.free)} free", advice)

    def _rates(self) -> Line:
        if self.machine.measured:
            return Line("rates", f"measured, kept in {self.rates_file}")
        told = "defaults: seconds in plans are those of a small server"
        return Line("rates", told, "Seconds: run jaxchunk.calibrate() once on this machine.")


def doctor() -> Diagnosis:
    """Look at the installation, devices, memory, disk and settings; nothing is changed.

    Returns
    -------
    Diagnosis
        Prints as a table with advice at its end; `advice` has the sentences, `to_dict()` all figures.

    Notes
    -----
    JAX is started, if it wasn't. Memory and disk are as they are at this moment; the default budget is the one
    that this process has taken, once.

    Examples
    --------
    >>> import jaxchunk as jc
    >>> diagnosis = jc.doctor()
    >>> diagnosis.budget == jc.config.get().budget
    True
    """
    settings = config.get()
    backend = jax.default_backend()
    wanted = _wanted("jax")
    return Diagnosis(
        python=platform.python_version(),
        versions={name: _version(name) for name in _PACKAGES},
        jax_wanted=wanted,
        jax_admitted=None if wanted is None else admits(wanted, jax.__version__),
        platform=backend,
        devices=tuple(_device(device) for device in jax.local_devices()),
        preallocation=preallocation(backend, os.environ),
        memory=_machine.memory(),
        default_budget=config.Settings().budget,
        budget=settings.budget,
        cores=config.Settings().cores,
        quota=_machine.cpu_quota(),
        threads=settings.cores,
        allocator=_allocator(),
        spill=spill_of(settings.spill),
        machine=this_machine(),
        rates_file=str(rates_file()),
    )


def preallocation(backend: str, environment: Any) -> Preallocation:
    """What XLA takes of the memory of a kind of device when it starts, under environment variables."""
    if backend == "cpu":
        takes = (
            "takes no memory beforehand: on a CPU it asks for what each kernel needs, whatever XLA_PYTHON_CLIENT_… say"
        )
        return Preallocation(takes, 0.0, "")
    if backend not in ("gpu", "cuda", "rocm"):
        takes = f"a {backend}'s memory is its runtime's own, whatever XLA_PYTHON_CLIENT_… say"
        return Preallocation(takes, 0.0, "")
    fraction = _fraction(environment)
    change = (
        "XLA_CLIENT_MEM_FRACTION (or XLA_PYTHON_CLIENT_MEM_FRACTION, its older name) sets the share, "
        "XLA_PYTHON_CLIENT_PREALLOCATE=false has it grow as it is wanted, "
        "XLA_PYTHON_CLIENT_ALLOCATOR=platform gives memory back at once, slowly; set them before JAX starts"
    )
    allocator = environment.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default").lower()
    if allocator == "platform":
        takes = "takes no memory beforehand and keeps none (XLA_PYTHON_CLIENT_ALLOCATOR=platform)"
        return Preallocation(takes, 0.0, change)
    if environment.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("false", "0"):
        takes = f"takes up to {fraction:.0%} of a device's memory, as it is wanted (XLA_PYTHON_CLIENT_PREALLOCATE)"
        return Preallocation(takes, 0.0, change)
    return Preallocation(f"takes {fraction:.0%} of a device's memory at its start, and keeps it", fraction, change)


def _fraction(environment: Any) -> float:
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        if environment.get(name):
            return float(environment[name])
    return _FRACTION


def admits(wanted: str, found: str) -> bool:
    """Whether a release is within bounds such as ">=0.10.1,<0.10.2"; one before a release counts as that one."""
    release = _numbers(found)
    for relation, bound in re.findall(r"(<=|>=|==|!=|<|>)\s*([0-9.]+)", wanted):
        limit = _numbers(bound)
        length = max(len(release), len(limit))
        a, b = (numbers + (0,) * (length - len(numbers)) for numbers in (release, limit))
        if not {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "==": a == b, "!=": a != b}[relation]:
            return False
    return True


def _numbers(release: str) -> tuple[int, ...]:
    """The numbers that a version begins with: 0.10.1 of "0.10.1.dev20"."""
    match = re.match(r"[0-9]+(\.[0-9]+)*", release)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _wanted(package: str) -> str | None:
    """The bounds that this package puts on a release of another one."""
    try:
        listed = requires("jaxchunk") or []
    except PackageNotFoundError:
        return None
    found = [re.fullmatch(rf"{package}\s*\(?([<>=!][^;()]*)\)?", entry.strip()) for entry in listed]
    return next((match[1].strip() for match in found if match), None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device(device: jax.Device) -> Device:
    stats = device.memory_stats() or {}
    return Device(str(device), device.device_kind, stats.get("bytes_limit"), stats.get("bytes_in_use"))


def _allocator() -> str | None:
    if not set_up_allocator():
        return None
    told = f"glibc: freed blocks of {size(LARGE_BLOCK)} and more go back at once"
    # Others' settings, or another allocator put before this one, may have it otherwise.
    also = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(_ALLOCATOR_VARIABLES)]
    return f"{told}; also set: {', '.join(also)}" if also else told


def spill_of(directory: Path) -> Spill:
    """The file system of a directory, or of the one that it would be made in."""
    there = directory
    while not there.exists() and there != there.parent:
        there = there.parent
    usable = there.is_dir() and os.access(there, os.W_OK)
    free = shutil.disk_usage(there).free if usable else None
    return Spill(str(directory), _machine.file_system(there), free)
