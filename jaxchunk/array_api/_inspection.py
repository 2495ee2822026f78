"""What this implementation of the standard can do, for code that asks."""

from __future__ import annotations

from typing import Any

from jaxchunk.array_api import _devices
from jaxchunk.array_api import _dtypes as dt
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._devices import Device, as_device


class Info:
    """What `__array_namespace_info__` gives: the standard's questions, as methods."""

    def capabilities(self) -> dict[str, Any]:
        """Whether masks as indices and data-dependent shapes are supported, and the most axes there can be."""
        # Values are handed out as NumPy arrays, which have 64 axes at most.
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Device:
        """Where arrays that aren't pinned are reported to be. This starts JAX."""
        return _devices.default_device()

    def devices(self) -> tuple[Device, ...]:
        """The devices that there are. This starts JAX."""
        return _devices.devices()

    def default_dtypes(self, *, device: Device | str | None = None) -> dict[str, DType]:
        """The dtypes that Python scalars stand for, and that of indices: the same on every device."""
        as_device(device)
        kinds = ("real floating", "complex floating", "integral")
        return {kind: dt.DEFAULT_DTYPES[kind] for kind in kinds} | {"indexing": dt.int64}

    def dtypes(
        self, *, device: Device | str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """The dtypes there are by name, of one kind or several where they are given.

        Parameters
        ----------
        device
            Makes no difference: every device has them all.
        kind
            Kinds as `isdtype` takes them.
        """
        as_device(device)
        return {name: dtype for name, dtype in dt.DTYPES.items() if kind is None or dt.isdtype(dtype, kind)}


def __array_namespace_info__() -> Info:
    """What this namespace supports: devices, dtypes, defaults and capabilities.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.__array_namespace_info__().default_dtypes()["integral"]
    dtype('int64')
    """
    return Info()
