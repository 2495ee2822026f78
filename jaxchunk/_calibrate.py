"""Measuring this machine's rates, by small computations of the library's own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import zarr

import jaxchunk.array_api as xp
from jaxchunk import _machine, config
from jaxchunk._api import from_array, persist
from jaxchunk._blocks import map_blocks
from jaxchunk._io import from_zarr, to_zarr
from jaxchunk.array_api._array import Array
from jaxchunk.graph.merges import order_of
from jaxchunk.lower.compile import local_device
from jaxchunk.plan.api import plan_requests
from jaxchunk.plan.cost import compiling_units, kind_of, operations
from jaxchunk.plan.machines import THIS, Machine, save, this_machine
from jaxchunk.plan.requests import Keep, Request
from jaxchunk.run.profile import StageCounters
from jaxchunk.run.runtime import runtime
from jaxchunk.run.stage import Stage

# The data that is read, written and computed on: large beside caches, small beside memories.
_MOST_BYTES = 64 * 2**20
# Less doesn't leave blocks for every thread.
_LEAST_BYTES = 2**20
_SMALL_CHUNK = 128
_BLOCKS = 512


def calibrate() -> Machine:
    """Measure what this machine's cores, devices and links do in a second, and keep it for later processes.

    The seconds in `Plan.explain` and `Plan.to_dict` are by these rates; without them, by those of a small
    server. It takes a few seconds on all the threads of the settings in force, with data of 64 MiB, or an
    eighth of the budget where that is less; some times as much is written below the spill directory.

    Returns
    -------
    Machine
        The rates, in bytes or operations a second; `to_dict()` gives them all.

    Raises
    ------
    MemoryBudgetError
        The budget, less what is persisted, is below some 16 MiB.
    OSError
        The spill directory, or that of the rates, can't be written to.

    Notes
    -----
    Rates are kept as JSON in ``$XDG_CACHE_HOME/jaxchunk`` (``~/.cache/jaxchunk``), a file for each host,
    processor and kind of device. They are by CPU seconds, so that what else the machine does meanwhile hardly
    counts. Files are read and written as the system caches them; how fast the disk itself is, `storage`,
    counts for what is larger than half of the memory that is free now. Remembered values and kept chunks
    make way, as for any plan.

    Examples
    --------
    >>> import jaxchunk as jc
    >>> jc.calibrate().decode  # bytes that one core decodes in a second  # doctest: +SKIP
    812345678.9
    """
    settings = config.get()
    settings.spill.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="jaxchunk-calibrate-", dir=settings.spill))
    try:
        with config.set(progress=False, default_chunks=None):
            rates = dict(_Measurements(directory).all())
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    devices = settings.cores if _on_cpu() else 1
    save(Machine(name=THIS, cores=settings.cores, devices=devices, measured=True, **rates))
    return this_machine()


class _Ran(NamedTuple):
    """A stage, and the seconds of all its threads: on a CPU only those in which they had a core."""

    stage: Stage
    read: float
    compute: float
    write: float
    all: float


class _Measurements:
    """Rates by name, found in runs one after another. Files go to a directory that the caller removes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        room = config.get().budget - runtime().persisted
        nbytes = max(_LEAST_BYTES, min(_MOST_BYTES, room // 8))
        # A side that sixteen chunks and small ones divide.
        self.side = int((nbytes / 4) ** 0.5) // 512 * 512
        # Normal deviates of two decimals: as compressible as measured data often is.
        rows = np.random.default_rng(0).standard_normal((self.side // 8, self.side), dtype="float32")
        self.data = np.tile(np.round(rows, 2), (8, 1))
        self.x = from_array(self.data, chunks=self.side // 4)

    def all(self) -> Iterator[tuple[str, Any]]:
        yield from self.storage()
        yield from self.disk()
        yield from self.memory()
        yield "storage", self.storage_itself()
        yield "cached", _machine.memory().free // 2
        for kind in ("dot", "transform", "sort", "factor"):
            yield kind, self.operations(kind)
        yield "task_seconds", self.task_seconds()
        yield "transfer", self.transfer()

    def storage(self) -> Iterator[tuple[str, float]]:
        """Stored chunks: compressed, as they are, and small ones, whose bytes hardly count."""
        x, chunk = self.x, self.side // 4
        packed, raw, small = (self.directory / name for name in ("packed.zarr", "raw.zarr", "small.zarr"))
        zarr.create_array(raw, data=self.data, chunks=(chunk, chunk), compressors=None)
        few = x[: max(_SMALL_CHUNK * 2, self.side // 8), :]
        recode, decode = _wrote(x, packed), _read(packed)
        yield "recode", x.nbytes / recode
        # As computed floats are: of digits that nobody rounded.
        full = from_array(self.data * np.linspace(1, 2, self.side, dtype="float32"), chunks=chunk)
        yield "encode", x.nbytes / _wrote(full, self.directory / "full.zarr")
        yield "decode", x.nbytes / decode
        yield "read", x.nbytes / _read(raw)
        # What small chunks take, less what as many bytes take in large ones.
        share, count = few.nbytes / x.nbytes, few.size // _SMALL_CHUNK**2
        yield "write_chunk_seconds", max(1e-6, (_wrote(few, small, _SMALL_CHUNK) - share * recode) / count)
        yield "read_chunk_seconds", max(1e-6, (_read(small) - share * decode) / count)

    def disk(self) -> Iterator[tuple[str, float]]:
        """Values on disk: kept there since the budget has less than twice their room."""
        budget = runtime().persisted + self.x.nbytes * 3 // 2
        with config.set(host_memory=budget, device_memory=None):
            wrote = [_run(Keep(xp.multiply(self.x, 2)._node))[0].write for _ in range(2)]
            yield "spill_write", _rate(self.x.nbytes, min(wrote))
            value = _kept(self.x)
            # The faster of two isn't faster than copying: a run this short has few ticks of the clock.
            read = [_run(xp.sum(value))[0].all for _ in range(2)]
            yield "spill_read", _rate(self.x.nbytes, min(read))

    def storage_itself(self) -> float:
        """A file to the disk and back, past what the system caches."""
        path = self.directory / "file"
        started = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            file.write(self.data.data)
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with open(path, "rb", buffering=0) as file:
            while file.read(2**20):
                pass
        return _rate(2 * self.data.nbytes, time.perf_counter() - started)

    def memory(self) -> Iterator[tuple[str, float]]:
        """Bytes copied and gone through, elements put in their places, operations in the caches, and compiling."""
        u = _kept(self.x)
        _run(xp.sum(u))
        (summed,) = _run(xp.sum(u))  # the first one compiled, and met memory for the first time
        through = summed.compute
        yield "memory", _rate(u.nbytes, through)
        target = np.empty_like(self.data)
        target.fill(0)
        started = time.thread_time()
        np.copyto(target, self.data)
        yield "host_memory", _rate(target.nbytes, time.thread_time() - started)
        runs = np.sort(np.random.default_rng(2).random((16, 2**16), dtype="float32")).reshape(-1, 1)
        started = time.thread_time()
        runs = runs[order_of(runs)]
        yield "gather", _rate(len(runs), time.thread_time() - started)
        (chained,) = _run(xp.sum(xp.exp(-xp.abs(xp.sin(u) * 2 + u * u)) + xp.sqrt(xp.abs(u)) + xp.tanh(u)))
        # What is left when the operands' way through memory is taken off.
        yield "elementwise", _rate(operations(chained.stage), max(0.1 * through, chained.compute - through))
        program = chained.stage.kernels.program
        # A shape that wasn't met before, so that it is compiled now.
        shape = (64, 4096 + 2 * (time.monotonic_ns() % 8192))
        started = time.process_time()
        wall = chained.stage.kernels.step(shape).seconds
        yield "compile_seconds", min(wall, time.process_time() - started) / compiling_units(program)

    def operations(self, kind: str) -> float:
        """The rate of one kind of kernels that aren't elementwise."""
        quarter = self.x[: self.side // 4, :]
        if kind == "dot":
            half = self.side // 2
            work = xp.matmul(self.x[:half, :half], self.x[half:, half:])
        elif kind == "transform":
            work = xp.abs(xp.fft.fft(quarter, axis=1))
        elif kind == "sort":
            work = xp.sort(quarter, axis=1)
        else:
            matrices = np.random.default_rng(1).standard_normal((2 * config.get().cores, 256, 256), dtype="float32")
            work = xp.linalg.qr(from_array(matrices, chunks=(1, 256, 256)))[1]
        rates = []
        for _ in range(2):  # the libraries below start threads of their own the first time
            ran = [r for r in _run(xp.sum(work)) if r.stage.kernels and kind_of(r.stage.kernels.program) == kind]
            rates.append(_rate(sum(operations(r.stage) for r in ran), sum(r.compute for r in ran)))
        return max(rates)

    def task_seconds(self) -> float:
        """What a task costs that does next to nothing, its kernel being there."""
        values = from_array(np.zeros(_BLOCKS * 8, "float32"), chunks=8)
        _run(map_blocks(_next, values))
        (ran,) = _run(map_blocks(_next, values))
        return ran.all / _BLOCKS

    def transfer(self) -> float | None:
        """Bytes to the device and back, where that is another place."""
        device = local_device()
        if _on_cpu():
            return None
        started = time.perf_counter()
        np.asarray(jax.block_until_ready(jax.device_put(self.data, device)))
        return _rate(2 * self.data.nbytes, time.perf_counter() - started)


def _next(block: Any) -> Any:
    return block + 1


def _on_cpu() -> bool:
    return str(local_device().platform) == "cpu"


def _kept(x: Array) -> Array:
    """New values, kept in memory or on disk by what the budget has room for."""
    kept = persist(xp.multiply(x, 2))
    assert isinstance(kept, Array)
    return kept


def _run(request: Array | Request) -> list[_Ran]:
    """A plan's stages after it ran."""
    plan = plan_requests([request._node if isinstance(request, Array) else request])
    started = time.process_time()
    plan.run()
    spent = time.process_time() - started
    assert plan.measured is not None
    ran = list(zip(plan.stages, plan.measured, strict=True))
    # Threads that wait for a core measure that, too. On a device of its own nothing says who waits for what.
    whole = sum(counters.seconds * _threads(stage) for stage, counters in ran)
    share = min(1.0, spent / max(whole, 1e-9)) if _on_cpu() else 1.0
    return [_Ran(stage, *_seconds(stage, counters, share)) for stage, counters in ran]


def _threads(stage: Stage) -> int:
    """Threads that compute: products of matrices are given to all cores by the only task there is."""
    if stage.kernels is not None and kind_of(stage.kernels.program) == "dot" and _on_cpu():
        return config.get().cores
    return max(1, min(stage.in_flight, stage.tasks))


def _seconds(stage: Stage, counters: StageCounters, share: float) -> tuple[float, float, float, float]:
    """A stage's seconds of reading, computing and writing, and all of them, of which threads had so large a share."""
    alone = _threads(stage) // max(1, min(stage.in_flight, stage.tasks))
    parts = (counters.read_seconds, counters.compute_seconds * alone, counters.write_seconds)
    read, compute, write = (part * share for part in parts)
    return read, compute, write, counters.seconds * _threads(stage) * share


def _wrote(x: Array, path: Path, chunk: int | None = None) -> float:
    """Seconds of threads that encoded and stored an array; of two runs, since the first one meets new memory."""
    seconds = []
    for _ in range(2):
        write = to_zarr(x, path, chunks=chunk, overwrite=True, compute=False)
        assert write is not None
        seconds.append(sum(ran.write for ran in _run(write)))
    return max(1e-9, min(seconds))


def _read(path: Path) -> float:
    """Seconds of threads that fetched and decoded an array; each time as one that wasn't seen before."""
    return max(1e-9, min(sum(ran.read for ran in _run(xp.sum(from_zarr(path)))) for _ in range(2)))


def _rate(amount: float, seconds: float) -> float:
    """By the second; where the clock saw nothing, by its least step."""
    return amount / max(seconds, 1e-9)
