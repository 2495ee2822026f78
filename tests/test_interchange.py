"""Values that come from elsewhere and go elsewhere: DLPack, buffers, devices; and what the namespace says of itself."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxchunk as jc
import jaxchunk.array_api as xp
from tests.helpers import arrays as a

HOST = (1, 0)


class Exporter:
    """An array of another library that has DLPack and nothing else; `device` is where it says to be."""

    def __init__(self, values: np.ndarray[Any, Any], device: tuple[int, int] = HOST) -> None:
        self.values, self.device = values, device

    def __dlpack__(self, **asked: Any) -> Any:
        if self.device != HOST and asked.get("copy") is False:
            raise BufferError("not in host memory")
        return self.values.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


# --- DLPack in ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", a.ALL)
@pytest.mark.parametrize("copy", [None, True, False])
def test_from_dlpack(dtype: str, copy: bool | None) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype)
    for given in (values, values[:, ::-1].T, Exporter(values)):
        wanted = given.values if isinstance(given, Exporter) else given
        a.check(xp.from_dlpack(given, copy=copy), wanted)


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("make", [xp.from_dlpack, xp.asarray])
@pytest.mark.parametrize("side", [4, 512])
def test_copies(make: Any, copy: bool | None, side: int) -> None:
    values = np.zeros((side, side))
    x = make(values, copy=copy)
    values[0, 0] = 7
    copied = copy is True or (copy is None and values.nbytes <= 2**20)
    assert float(x[0, 0]) == (0 if copied else 7)


def test_copy_false_where_a_copy_is_needed() -> None:
    with pytest.raises(BufferError, match="host memory"):
        xp.from_dlpack(Exporter(np.ones(3), device=(2, 0)), copy=False)
    pinned = xp.ones(3, device="cpu")
    with pytest.raises(BufferError, match="on cpu:0, not gpu:0"):
        xp.from_dlpack(pinned, device="gpu", copy=False)
    with pytest.raises(ValueError, match="on cpu:0, not gpu:0"):
        xp.asarray(pinned, device="gpu", copy=False)
    for given in (xp.ones(3), np.ones(3)):
        with pytest.raises(ValueError, match="copy=False, but the values are float64, not float32"):
            xp.asarray(given, dtype=xp.float32, copy=False)
    assert xp.asarray(pinned, device="cpu", copy=False) is pinned
    assert xp.from_dlpack(pinned, copy=False) is pinned


def test_from_dlpack_refuses() -> None:
    with pytest.raises(AttributeError, match="a list has no __dlpack__"):
        xp.from_dlpack([1, 2])
    with pytest.raises(TypeError, match="float16"):
        xp.from_dlpack(np.ones(3, np.float16))
    with pytest.raises(ValueError, match="platform"):
        xp.from_dlpack(np.ones(3), device="abacus")


def test_devices_of_what_comes() -> None:
    assert xp.from_dlpack(jnp.ones(3)).device == xp.Device("cpu")
    assert xp.from_dlpack(np.ones(3), device="cpu")._node.device == xp.Device("cpu")
    assert xp.from_dlpack(np.ones(3))._node.device is None
    assert xp.from_dlpack(xp.ones(3, device="cpu"))._node.device == xp.Device("cpu")


# --- DLPack out --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", a.ALL)
def test_others_take_ours(dtype: str) -> None:
    values = np.arange(7).astype(dtype)
    x = xp.asarray(values, chunks=3)
    for make in (np.from_dlpack, np.asarray):
        got = make(x)
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got, values)
    if np.dtype(dtype).itemsize < 8 or dtype == "complex64":
        np.testing.assert_array_equal(jax.dlpack.from_dlpack(x), values)


def test_dlpack_parameters() -> None:
    x = xp.arange(3) + 1
    assert tuple(x.__dlpack_device__()) == HOST
    options = itertools.product([None, (0, 8), (1, 0), (2, 0)], [None, HOST], [None, True, False])
    for max_version, dl_device, copy in options:
        capsule = x.__dlpack__(stream=None, max_version=max_version, dl_device=dl_device, copy=copy)
        assert type(capsule).__name__ == "PyCapsule"
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        x.__dlpack__(stream=1)


def test_what_was_handed_out_is_not_written_to() -> None:
    x = xp.arange(3) + 1
    x.compute()  # remembered: what is handed out may share its memory
    values = np.from_dlpack(x)
    if values.flags.writeable:
        values[0] = 9
    assert int(x[0]) == 1


# --- values that can't be taken as they are ----------------------------------------------------


def test_masked_arrays_keep_their_masks_or_are_refused() -> None:
    masked = np.ma.masked_array([1.0, 2.0], [False, True])
    for take in (xp.asarray, jc.from_array):
        with pytest.raises(TypeError, match="mask.*filled"):
            take(masked)
    a.check(xp.asarray(masked.filled(0.0)), np.asarray([1.0, 0.0]))


@pytest.mark.parametrize("given", [2**63, [2**63, 1], [[1], [2**63]], (2**63, -1), [2**64], [np.uint64(2**63), 1]])
def test_integers_never_turn_into_floats(given: Any) -> None:
    with pytest.raises(OverflowError, match="dtype=uint64"):
        xp.asarray(given)


def test_integers_of_their_dtype() -> None:
    a.check(xp.asarray([2**63, 1], dtype=xp.uint64), np.asarray([2**63, 1], np.uint64))
    with pytest.raises(OverflowError):
        xp.asarray([2**63, -1], dtype=xp.uint64)
    a.check(xp.asarray([2**63, 0.5]), np.asarray([2.0**63, 0.5]))
    assert xp.asarray([[], []]).dtype == xp.float64
    assert xp.asarray([True, 2]).dtype == xp.asarray([range(3)]).dtype == xp.int64


CASTS = [
    (given, wanted)
    for given in a.ALL
    for wanted in ("int8", "float64", "complex128")  # NumPy's float64 equals None
    if not given.startswith("complex") or wanted == "complex128"
]


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize(("dtype", "wanted"), CASTS)
def test_arrays_of_another_dtype(dtype: str, wanted: str, copy: bool | None) -> None:
    values = np.asarray([0, 1]).astype(dtype)
    for given in (values, xp.asarray(values)):
        a.check(xp.asarray(given, dtype=np.dtype(wanted), copy=copy), values.astype(wanted))
    a.check(xp.astype(xp.asarray(values), np.dtype(wanted), copy=bool(copy)), values.astype(wanted))


# --- devices -----------------------------------------------------------------------------------


def test_devices_are_values() -> None:
    device = xp.Device("gpu", 1)
    assert device == xp.Device("gpu", 1) != xp.Device("gpu", 0)
    assert {device: "found"}[xp.Device("gpu", 1)] == "found"
    assert pickle.loads(pickle.dumps(device)) == device
    assert len({*xp.__array_namespace_info__().devices()}) == len(xp.__array_namespace_info__().devices())


def test_where_arrays_are() -> None:
    info = xp.__array_namespace_info__()
    for device in info.devices():
        x = xp.ones(3, device=device)
        assert x.device == (x + 1).device == (xp.ones(3) + x).device == device
        assert xp.zeros_like(x).device == xp.asarray(x).device == xp.astype(x, xp.float32).device == device
        assert xp.ones(3).to_device(device).device == device
    assert xp.ones(3).device == info.default_device()


def test_to_device() -> None:
    x = xp.ones(3)
    assert x.to_device("cpu:0").device == x.to_device(xp.Device("cpu")).device == xp.Device("cpu")
    with pytest.raises(ValueError, match="different devices, cpu:0 and gpu:0"):
        x.to_device("cpu") + x.to_device("gpu")
    with pytest.raises(ValueError, match="stream"):
        x.to_device("cpu", stream=1)
    with pytest.raises(TypeError, match="device"):
        x.to_device(None)  # type: ignore[arg-type]


# --- inspection --------------------------------------------------------------------------------


def test_capabilities() -> None:
    capabilities = xp.__array_namespace_info__().capabilities()
    assert capabilities == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert xp.ones((1,) * 64).compute().shape == (1,) * 64


def test_dtypes_by_kind() -> None:
    info = xp.__array_namespace_info__()
    signed, unsigned = (info.dtypes(kind=f"{kind} integer") for kind in ("signed", "unsigned"))
    assert list(signed) == ["int8", "int16", "int32", "int64"]
    assert list(unsigned) == ["uint8", "uint16", "uint32", "uint64"]
    assert info.dtypes(kind="integral") == signed | unsigned
    floating = info.dtypes(kind=("real floating", "complex floating"))
    assert list(floating) == ["float32", "float64", "complex64", "complex128"]
    assert info.dtypes(kind="numeric") == signed | unsigned | floating
    assert info.dtypes() == info.dtypes(kind="bool") | info.dtypes(kind="numeric")
    assert info.dtypes(kind=()) == {}
    for device in info.devices():
        assert info.dtypes(device=device) == info.dtypes()
        assert info.default_dtypes(device=device) == info.default_dtypes()
    with pytest.raises(ValueError, match="kind"):
        info.dtypes(kind="decimal")
