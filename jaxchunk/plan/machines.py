"""Machines as rates: what a core, a device and their links do in a second.

There is one for this machine, measured by `jaxchunk.calibrate` and kept in a file, or a default; and
some by name, for plans that are costed on paper.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import tempfile
import warnings
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from jaxchunk._machine import cores, cpu_model, memory
from jaxchunk.lower.compile import local_device

# Another number where the meaning of a rate changes: files of before are then passed over.
_VERSION = 1

THIS = "this machine"


@dataclass(frozen=True)
class Machine:
    """Rates in bytes or operations a second; of one core where all are busy, and of one device.

    On a machine without an accelerator a core is a device.

    Attributes
    ----------
    name
        For people.
    cores, devices
        How many there are.
    decode, read
        Decoded bytes of stored chunks, compressed and not, by a core.
    encode, recode
        Bytes of chunks to be stored, compressed, by a core: of computed floats, which hardly shrink, and of
        integers and stored values moved, which do, and take longer.
    read_chunk_seconds, write_chunk_seconds
        What each stored chunk costs a core besides.
    spill_write, spill_read
        Bytes of values on disk, by a core.
    storage, cached
        The most that all of the machine reads or writes, of stored arrays and values on disk alike, where
        they are more bytes than the system is taken to cache.
    host_memory
        Bytes that a core copies.
    gather
        Elements that moves by data (takes, masks, merges of a sort) put in their places, by a core.
    transfer
        Bytes between host and one device; None where they share memory.
    memory
        Bytes of operands and results of kernels, by a device.
    elementwise, dot, transform, sort, factor
        Operations by a device, as the planner counts them for 32-bit numbers: elementwise functions and
        folds; sums of products; Fourier transforms; comparisons of sorts; matrix factorisations.
    task_seconds
        What each tile costs a core besides.
    compile_seconds
        What compiling a short kernel takes; nothing else goes on in that time.
    measured
        Whether `calibrate` has found the rates.
    """

    name: str
    cores: int
    devices: int
    decode: float
    read: float
    encode: float
    recode: float
    read_chunk_seconds: float
    write_chunk_seconds: float
    spill_write: float
    spill_read: float
    storage: float
    cached: int
    host_memory: float
    gather: float
    transfer: float | None
    memory: float
    elementwise: float
    dot: float
    transform: float
    sort: float
    factor: float
    task_seconds: float
    compile_seconds: float
    measured: bool = False

    def to_dict(self) -> dict[str, Any]:
        """All of it, for machines."""
        return asdict(self)


LAPTOP = Machine(
    name="laptop",
    cores=8,
    devices=8,
    decode=0.8e9,
    read=2e9,
    encode=0.8e9,
    recode=0.15e9,
    read_chunk_seconds=0.1e-3,
    write_chunk_seconds=0.3e-3,
    spill_write=1e9,
    spill_read=2e9,
    storage=2e9,
    cached=0,
    host_memory=5e9,
    gather=25e6,
    transfer=None,
    memory=6e9,
    elementwise=10e9,
    dot=50e9,
    transform=2.5e9,
    sort=1.5e9,
    factor=5e9,
    task_seconds=0.5e-3,
    compile_seconds=0.05,
)
"""Eight cores and an NVMe disk of 2 GB/s; what a core does is what one of a small server was measured to do."""

GPU = Machine(
    name="gpu",
    cores=16,
    devices=1,
    decode=0.8e9,
    read=2e9,
    encode=0.8e9,
    recode=0.15e9,
    read_chunk_seconds=0.1e-3,
    write_chunk_seconds=0.3e-3,
    spill_write=1e9,
    spill_read=2e9,
    storage=5e9,
    cached=0,
    host_memory=5e9,
    gather=25e6,
    transfer=25e9,
    memory=2e12,
    elementwise=5e12,
    dot=20e12,
    transform=1e12,
    sort=0.5e12,
    factor=1e12,
    task_seconds=0.5e-3,
    compile_seconds=0.5,
)
"""One accelerator of 2 TB/s behind a link of 25 GB/s, 16 cores, and disks of 5 GB/s."""

GPUS = replace(GPU, name="64 gpus", cores=64 * 16, devices=64, storage=64 * 5e9)
"""64 of them, each with its cores and disks: what they exchange goes through values on disk, at their rate."""

PROFILES = {machine.name: machine for machine in (LAPTOP, GPU, GPUS)}


def machine_of(wanted: str | Machine | None) -> Machine:
    """A machine by its name, or this one for None.

    Raises
    ------
    ValueError
        There is none of that name.
    """
    if wanted is None:
        return this_machine()
    if isinstance(wanted, Machine):
        return wanted
    if not isinstance(wanted, str):
        raise TypeError(f"machine={wanted!r}: a name, a Machine, or None for this one")
    if wanted not in PROFILES:
        raise ValueError(f"machine={wanted!r}: none of that name; there are {', '.join(map(repr, PROFILES))}")
    return PROFILES[wanted]


# --- this machine ------------------------------------------------------------------------------------


@cache
def identity() -> dict[str, str]:
    """What rates are kept by: the host's name, the processor, the kind of device."""
    return {"host": platform.node(), "processor": cpu_model(), "device": str(local_device().device_kind)}


def rates_file() -> Path:
    """Where this machine's rates are kept: below ``XDG_CACHE_HOME``, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    digest = hashlib.sha256(json.dumps(identity(), sort_keys=True).encode()).hexdigest()[:16]
    return Path(base) / "jaxchunk" / f"machine-{digest}.json"


def save(machine: Machine) -> Path:
    """Keep this machine's rates, for this process and for later ones."""
    path = rates_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"version": _VERSION, **identity(), "rates": machine.to_dict()}, indent=1)
    # Written beside and renamed: a reader finds the old file or the new one.
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".unfinished")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    _kept.cache_clear()
    return path


def this_machine() -> Machine:
    """This machine's rates: those that were measured, else those of one core of a small server for each core."""
    return _kept(str(rates_file()))


@cache
def _kept(path: str) -> Machine:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return _default()
    except OSError as error:
        warnings.warn(f"{path} can't be read ({error}): default rates are used", RuntimeWarning, stacklevel=3)
        return _default()
    try:
        return _parsed(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"{path} holds no rates ({type(error).__name__}: {error}): default ones are used; "
            "jaxchunk.calibrate() writes it anew",
            RuntimeWarning,
            stacklevel=3,
        )
        return _default()


def _parsed(kept: dict[str, Any]) -> Machine:
    """The machine that a file describes."""
    if kept["version"] != _VERSION:
        raise ValueError(f"of version {kept['version']}, not {_VERSION}")
    machine = Machine(**kept["rates"])
    for field in fields(Machine):
        value = getattr(machine, field.name)
        if field.name in ("name", "measured") or (value is None and field.name == "transfer"):
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not (0 < value < math.inf or (value == 0 and field.name == "cached"))
        ):
            raise ValueError(f"{field.name} is {value!r}")
    return machine


def _default() -> Machine:
    base, count = LAPTOP if local_device().platform == "cpu" else GPU, cores()
    devices = count if base is LAPTOP else 1
    return replace(base, name=THIS, cores=count, devices=devices, cached=memory().free // 2)
