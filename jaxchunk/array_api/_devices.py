"""Devices: where arrays are pinned to, as plain values that need no JAX to be made or compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Device:
    """A device by the platform it belongs to and its number there.

    Making one starts nothing and asks no hardware: whether it is there shows when a computation is
    placed on it. `array_api.__array_namespace_info__().devices()` lists those that are.

    Parameters
    ----------
    platform
        "cpu", "gpu" or "tpu".
    index
        Its number among the platform's devices, as in `jax.devices(platform)[index]`.

    Examples
    --------
    >>> Device("gpu", 1)
    Device('gpu', 1)
    >>> str(Device("cpu"))
    'cpu:0'
    """

    platform: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.platform not in ("cpu", "gpu", "tpu"):
            raise ValueError(f"device platform {self.platform!r}: it is one of 'cpu', 'gpu', 'tpu'")
        if isinstance(self.index, bool) or not isinstance(self.index, int) or self.index < 0:
            raise ValueError(f"device index {self.index!r}: an int of at least 0")

    def __repr__(self) -> str:
        return f"Device({self.platform!r}, {self.index})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.index}"


def as_device(device: object, name: str = "device") -> Device | None:
    """What a user's `device` argument stands for: None, a Device or its string form, "gpu:0"."""
    if device is None or isinstance(device, Device):
        return device
    if isinstance(device, str):
        platform, _, index = device.partition(":")
        if not index or index.isdecimal():
            return Device(platform, int(index or 0))
        raise ValueError(f"{name}={device!r}: write it as 'cpu', 'gpu:0' or the like")
    raise TypeError(f"{name} is a {type(device).__name__}; it takes a jaxchunk Device, a string like 'gpu:0', or None")


def devices() -> tuple[Device, ...]:
    """The devices that JAX finds on this machine, the default one first; this starts JAX."""
    import jax

    found = [Device(d.platform, d.id) for d in jax.local_devices()]
    cpus = [Device("cpu", d.id) for d in jax.local_devices(backend="cpu")]
    return tuple(dict.fromkeys(found + cpus))


def default_device() -> Device:
    """Where free arrays are reported to be: JAX's default device; this starts JAX."""
    return devices()[0]
