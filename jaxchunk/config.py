"""Settings: memory budgets and how runs behave.

Precedence: ``with config.set(...)`` (this context only) > ``config.set(...)`` (the process) >
environment variables (``JAXCHUNK_DEVICE_MEMORY``, …) > defaults. A run takes one snapshot at its start.
"""

from __future__ import annotations

import contextvars
import functools
import math
import os
import re
import tempfile
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from jaxchunk import _machine

__all__ = ["Settings", "get", "parse_bytes", "set"]

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_UNITS |= {unit + "b": size for unit, size in _UNITS.items() if unit not in ("", "b")}
_UNITS |= {unit + "ib": 2 ** (10 * i) for i, unit in enumerate("kmgtp", start=1)}
_COUNTS = ("threads", "default_chunks")


@dataclass(frozen=True)
class Settings:
    """One snapshot of all settings.

    Attributes
    ----------
    device_memory, host_memory
        Budgets in bytes, or None: on a CPU there is one pool, `host_memory` or, where only that is
        given, `device_memory`; with neither, half of what the process could have of the memory, by its
        limits and by what others hold, and at most three quarters of what is free: taken once per process.
    spill_directory
        Where intermediates go that memory doesn't hold; None stands for the directory of temporary files.
    threads
        Threads that compute and do I/O together; None stands for the cores that the process may use, a
        control group's quota rounded up.
    progress
        True shows a progress bar, False doesn't, None shows it on a terminal for longer runs.
    default_chunks
        The block size along every axis of arrays that are created, or made from values by
        `asarray`, without `chunks`; None stands for blocks of at most 16 MiB. Results don't depend
        on it: tests set it to 2 or 3 (``JAXCHUNK_DEFAULT_CHUNKS=3``), so that small arrays are cut
        and what is tested is the work across blocks.
    """

    device_memory: int | None = None
    host_memory: int | None = None
    spill_directory: str | None = None
    threads: int | None = None
    progress: bool | None = None
    default_chunks: int | None = None

    @property
    def budget(self) -> int:
        """The bytes that data may take, on a CPU platform."""
        if self.host_memory is not None and self.device_memory is not None:
            return min(self.host_memory, self.device_memory)
        if self.host_memory is not None:
            return self.host_memory
        if self.device_memory is not None:
            return self.device_memory
        return _default_budget()

    @property
    def cores(self) -> int:
        """How many threads compute."""
        if self.threads is not None:
            return self.threads
        return _default_cores()

    @property
    def spill(self) -> Path:
        """The directory below which intermediates are spilled."""
        return Path(self.spill_directory or tempfile.gettempdir())


_process = Settings()
_context: contextvars.ContextVar[tuple[tuple[str, Any], ...]] = contextvars.ContextVar("jaxchunk_config", default=())


def parse_bytes(value: int | float | str, name: str) -> int:
    """A number of bytes from an int, or a text such as "512 MiB", "2GB", "1.5 GiB".

    Raises
    ------
    ValueError
        For what is no number of bytes: 0, negative, NaN, infinite, unknown units.
    TypeError
        For anything but a number or a text.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{name}={value!r}: a number of bytes or a text such as '2 GiB', not {type(value).__name__}")
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", value.lower())
        if match is None or match[2] not in _UNITS:
            raise ValueError(f"{name}={value!r}: write a number and a unit such as B, MB, MiB, GB, GiB")
        try:
            number = float(match[1]) * _UNITS[match[2]]
        except ValueError:
            raise ValueError(f"{name}={value!r}: {match[1]!r} is no number") from None
    else:
        number = value
    if not math.isfinite(number) or number < 1:
        raise ValueError(f"{name}={value!r}: a budget is a finite number of bytes, at least 1")
    return int(number)


def _count(value: object, name: str) -> int:
    """An int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r}: an int, not {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name}={value!r}: at least 1")
    return value


def _from_text(name: str, text: str, variable: str) -> Any:
    """The value of a setting as an environment variable gives it."""
    if name == "spill_directory":
        return text
    if name not in _COUNTS:
        return parse_bytes(text, variable)
    if not text.strip().isdecimal():
        raise ValueError(f"{variable}={text!r}: an int of at least 1")
    return _count(int(text), variable)


def _checked(changes: dict[str, Any]) -> dict[str, Any]:
    known = {f.name for f in fields(Settings)}
    checked: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"no setting is called {name!r}; there are {', '.join(sorted(known))}")
        if value is not None and name.endswith("_memory"):
            value = parse_bytes(value, name)
        elif name in _COUNTS and value is not None:
            value = _count(value, name)
        elif name == "progress" and value not in (None, True, False):
            raise TypeError(f"progress={value!r}: True, False or None")
        elif name == "spill_directory" and value is not None:
            value = os.fspath(value)
        checked[name] = value
    return checked


class set:
    """Change settings: for the process when called, for this context when used in ``with``.

    Parameters
    ----------
    **changes
        Fields of :class:`Settings`: `host_memory`, `device_memory`, `spill_directory`, `threads`,
        `progress`, `default_chunks`. Memory as bytes or texts such as "512 MiB". None stands for the default.

    Raises
    ------
    ValueError
        Budgets that are 0, negative, NaN or of an unknown unit; threads or chunks below 1; unknown settings.
    TypeError
        Values of another type.

    Examples
    --------
    >>> import jaxchunk as jc
    >>> with jc.config.set(host_memory="512 MiB"):
    ...     jc.config.get().budget
    536870912
    """

    def __init__(self, **changes: Any) -> None:
        global _process
        self._changes = _checked(changes)
        self._before = _process
        self._token: contextvars.Token[Any] | None = None
        _process = replace(_process, **self._changes)

    def __enter__(self) -> Settings:
        global _process
        _process = self._before
        self._token = _context.set((*_context.get(), *self._changes.items()))
        return get()

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        _context.reset(self._token)


def get() -> Settings:
    """The settings in force here and now.

    Raises
    ------
    ValueError
        A setting in the environment that is no number of bytes, or no number of at least 1.

    Examples
    --------
    >>> import jaxchunk as jc
    >>> with jc.config.set(threads=1):
    ...     jc.config.get().cores
    1
    """
    settings = _process
    changes: dict[str, Any] = {}
    for name in ("device_memory", "host_memory", "spill_directory", "default_chunks"):
        variable = f"JAXCHUNK_{name.upper()}"
        text = os.environ.get(variable)
        if text and getattr(settings, name) is None:
            changes[name] = _from_text(name, text, variable)
    changes |= dict(_context.get())
    return replace(settings, **changes) if changes else settings


@functools.cache
def _default_budget() -> int:
    # Taken once: a plan is for a budget, and what others hold changes from one moment to the next.
    return _machine.memory().default_budget


@functools.cache
def _default_cores() -> int:
    return _machine.cores()
