"""How each library opens the inputs, computes a value and writes an array."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.rows import Row

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def size_of(text: str) -> int:
    """Bytes of "512 MiB"."""
    number, unit = text.split()
    return int(float(number) * UNITS[unit])


class Peer:
    """One library. Made in the child process only, so that its imports are part of what is timed."""

    packages: tuple[str, ...] = ()
    """Whose versions the report names."""

    def __init__(self, budget: str, scratch: Path) -> None:
        self.budget = budget
        self.scratch = scratch
        self.xp: Any = None

    def open(self, path: Path) -> Any:
        raise NotImplementedError

    def rechunk(self, x: Any, chunks: tuple[int, int]) -> Any:
        return x.rechunk(chunks)

    def run(self, row: Row, inputs: list[Any]) -> Any:
        return row.body(self, *inputs)

    def value(self, x: Any) -> npt.NDArray[Any]:
        return np.asarray(x)

    def write(self, x: Any, path: Path, chunks: tuple[int, int]) -> None:
        raise NotImplementedError


class JaxChunk(Peer):
    packages: tuple[str, ...] = ("jaxchunk", "jax", "zarr", "numpy")

    def __init__(self, budget: str, scratch: Path) -> None:
        super().__init__(budget, scratch)
        self.jc = importlib.import_module("jaxchunk")
        self.xp = importlib.import_module("jaxchunk.array_api")
        self.jc.config.set(host_memory=budget)

    def open(self, path: Path) -> Any:
        return self.jc.from_zarr(path)

    def write(self, x: Any, path: Path, chunks: tuple[int, int]) -> None:
        self.jc.to_zarr(x, path, chunks=chunks)


class Dask(Peer):
    packages: tuple[str, ...] = ("dask", "zarr", "numpy")

    def __init__(self, budget: str, scratch: Path) -> None:
        super().__init__(budget, scratch)
        self.xp = importlib.import_module("dask.array")

    def open(self, path: Path) -> Any:
        return self.xp.from_zarr(str(path))

    def write(self, x: Any, path: Path, chunks: tuple[int, int]) -> None:
        self.xp.to_zarr(x.rechunk(chunks), str(path))


class Cubed(Peer):
    packages: tuple[str, ...] = ("cubed", "zarr", "numpy")

    def __init__(self, budget: str, scratch: Path) -> None:
        super().__init__(budget, scratch)
        self.cubed = importlib.import_module("cubed")
        self.xp = importlib.import_module("cubed.array_api")
        # Its units are decimal, so the budget is given in bytes; arrays made without a spec take this one.
        spec = {"work_dir": str(scratch), "allowed_mem": size_of(budget)}
        self.cubed.config.set({"spec": spec})

    def open(self, path: Path) -> Any:
        return self.cubed.from_zarr(str(path))

    def write(self, x: Any, path: Path, chunks: tuple[int, int]) -> None:
        self.cubed.to_zarr(x.rechunk(chunks), str(path))


class NumPy(Peer):
    """The whole array in memory."""

    packages: tuple[str, ...] = ("numpy", "zarr")

    def __init__(self, budget: str, scratch: Path) -> None:
        super().__init__(budget, scratch)
        self.zarr = importlib.import_module("zarr")
        self.xp = np

    def open(self, path: Path) -> Any:
        return self.zarr.open_array(path, mode="r")[...]

    def rechunk(self, x: Any, chunks: tuple[int, int]) -> Any:
        return x

    def write(self, x: Any, path: Path, chunks: tuple[int, int]) -> None:
        target = self.zarr.create_array(path, shape=x.shape, chunks=chunks, dtype=x.dtype)
        target[...] = np.asarray(x)


class Jax(NumPy):
    """The whole array on the device, each row one jitted function unless it asks for values on the way."""

    packages: tuple[str, ...] = ("jax", "zarr", "numpy")

    def __init__(self, budget: str, scratch: Path) -> None:
        super().__init__(budget, scratch)
        self.xp = importlib.import_module("jax.numpy")
        self.jit = importlib.import_module("jax").jit

    def open(self, path: Path) -> Any:
        return self.xp.asarray(super().open(path))

    def run(self, row: Row, inputs: list[Any]) -> Any:
        if row.asks:
            return super().run(row, inputs)
        return self.jit(functools.partial(row.body, self))(*inputs)


PEERS: dict[str, type[Peer]] = {
    "jaxchunk": JaxChunk,
    "dask": Dask,
    "cubed": Cubed,
    "numpy": NumPy,
    "jax": Jax,
}
