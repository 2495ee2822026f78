"""What `helpers.measure` runs. Arguments and results are plain values, as JSON has them."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import zarr

import jaxchunk as jc
import jaxchunk.array_api as xp
from benchmarks.peers import JaxChunk
from benchmarks.rows import ROWS
from helpers.measure import job, resident
from helpers.synthetic import Faults, sink_store, synthetic_array
from jaxchunk.lower.compile import CACHE, KERNEL_BYTES
from jaxchunk.run.runtime import runtime


def budget(nbytes: int) -> Any:
    """The budget of a test: one pool, whatever the machine has."""
    return jc.config.set(device_memory=nbytes, host_memory=nbytes)


def row(name: str, inputs: list[str], chunk: int, budget: int, result: str) -> None:
    """A row of the benchmarks, written or saved to `result`."""
    peer = JaxChunk(f"{budget / 2**20} MiB", Path(result).parent)
    stored = ROWS[name].stored
    arrays = [peer.open(Path(path)) for path in inputs]
    side = arrays[0].shape[0]
    value = peer.run(ROWS[name], arrays)
    if stored is None:
        np.save(result, peer.value(value))
    else:
        peer.write(value, Path(result), stored(side, chunk))


def several(work: list[tuple[str, dict[str, Any]]]) -> None:
    """Several jobs, one after another, by their names as `helpers.measure` has them."""
    for name, arguments in work:
        job(name)(**arguments)


def selected(length: int, chunk: int, nbytes: int, path: str) -> None:
    """The multiples of three of an array in no order, stored."""
    x = jc.from_zarr(synthetic_array((length,), (chunk,), "float64", shuffled))
    with budget(nbytes):
        jc.to_zarr(x[x % 3 == 0], path, chunks=(chunk,))


def factorised(side: int, chunk: int, nbytes: int, path: str) -> None:
    """The Cholesky factor of one matrix, stored."""
    x = jc.from_zarr(synthetic_array((side, side), (chunk, chunk), "float64", decaying))
    with budget(nbytes):
        jc.to_zarr(xp.linalg.cholesky(x), path, chunks=(chunk, chunk))


def hoard(nbytes: int, seconds: float) -> None:
    """Take memory, and keep it for a while."""
    taken = np.ones(nbytes, np.uint8)
    time.sleep(seconds)
    assert taken[-1]


def deviation(path: str, nbytes: int) -> float:
    """The mean deviation from the means of the columns: an array that an early and a late consumer want."""
    x = jc.from_zarr(path)
    with budget(nbytes):
        return float(xp.mean(xp.abs(x - xp.mean(x, axis=0))))


def merged_axes(length: int, width: int, nbytes: int) -> list[float]:
    """Sums over a reshape that merges a cut axis with the last one: three of them, around the seam."""
    shape = (24, 20, 5, length)
    x = xp.reshape(xp.arange(math.prod(shape), dtype=xp.float32, chunks=(1_000_000,)), shape)
    x = jc.rechunk(x, (24, 20, 1, width))
    with budget(nbytes):
        sums = xp.sum(xp.reshape(x, (24, 20, -1)), axis=(0, 1))
        around = [float(v) for v in sums[length - 1 : length + 2].compute()]
        return [*around, float(sums.compute().astype(np.float64).sum())]


def one_chunk(side: int, nbytes: int) -> list[float]:
    """Means of a lazy array that the user says is one chunk, and of the same in the chunks that it has."""
    x = xp.reshape(xp.arange(side * side, dtype=xp.float64) * 7919 % 1009, (side, side))
    with budget(nbytes):
        return [float(xp.mean(x.rechunk(chunks))) for chunks in ((side, side), "auto", (side // 7, side // 3))]


def transformed(length: int, nbytes: int) -> list[list[float]]:
    """Real and imaginary parts of some frequencies of a line in one chunk."""
    x = xp.astype(xp.arange(length, chunks=(length,)), xp.complex128)
    with budget(nbytes):
        some = xp.fft.fft(x)[: length // 2 : length // 8].compute()
    return [[float(v.real), float(v.imag)] for v in some]


def many_sums(length: int, chunk: int, columns: int, nbytes: int) -> list[int]:
    """A sum for each pair of columns: siblings that would keep all their temporaries if they were one kernel."""
    d = [xp.astype(xp.arange(length, chunks=(chunk,)) % (k + 3), xp.uint8) for k in range(columns)]
    with budget(nbytes):
        return [
            int(v) for v in jc.compute(*(xp.sum(xp.astype(a, xp.int64) * xp.astype(b, xp.int64)) for a in d for b in d))
        ]


def rechunked(shape: list[int], chunks: list[int], target: list[int], nbytes: int, compressor: str | None) -> Any:
    """An array that takes no room, rechunked into a store that keeps some windows: are they right? And counts."""
    source = synthetic_array(shape, chunks, "float32", PATTERNS[len(shape)], compressor=compressor)
    sink = sink_store([-(-n // c) for n, c in zip(shape, target, strict=True)])
    with budget(nbytes):
        jc.to_zarr(jc.from_zarr(source), sink, chunks=target)
    written = zarr.open_array(sink)
    right = 0
    for coords in sink.kept:
        box = [(i * c, min(n, (i + 1) * c)) for i, c, n in zip(coords, target, shape, strict=True)]
        window = written[tuple(slice(*span) for span in box)]
        right += bool(np.array_equal(window, source.store.values(box)))
    return {
        "right": right,
        "kept": len(sink.kept),
        "writes": max(sink.counts.sets.values()),
        "keys": sum(key.startswith("c/") for key in sink.counts.sets),
    }


def shuffled(i: Any) -> Any:
    return i * 7919 % 20_000_003


DECAY = 0.999


def decaying(i: Any, j: Any) -> Any:
    """A matrix that is positive definite, and whose Cholesky factor is known."""
    return DECAY ** np.abs(i - j)


PATTERNS = {
    2: lambda i, j: (i * 7 + j * 3) % 1009,
    3: lambda i, j, k: (i * 7 + j * 3 + k) % 1009,
}


def rank_seven(shape: list[int], axis: int) -> list[float]:
    """Multiply and reduce, in float32, over an array of so many axes."""
    a = xp.ones(tuple(shape), dtype=xp.float32)
    b = xp.full(tuple(shape), 2, dtype=xp.float32)
    sums = xp.sum(a * b, axis=axis).compute()
    return [float(sums.min()), float(sums.max()), *sums.shape]


def sorted_blocks(length: int, chunk: int, nbytes: int) -> int:
    """How many blocks are in the order that sorting them all by position gives: the library below takes the memory."""
    x = xp.astype((xp.arange(length, chunks=(chunk,)) * 7919) % 10007, xp.float32)
    with budget(nbytes), jc.config.set(threads=1):
        order = jc.map_blocks(lambda b: b[jnp.argsort(b)], x)
        rises = jc.map_blocks(lambda b: jnp.all(b[1:] >= b[:-1], keepdims=True), order)
        return int(xp.sum(xp.astype(rises, xp.int64)))


def position_order(length: int, nbytes: int) -> list[bool]:
    """Positions in the order of their elements, which are one chunk: does each come once, and in order?"""
    values = xp.astype(xp.arange(length, chunks=(length,)) * 7919 % 20_000_003, xp.float64)
    with budget(nbytes):
        z = xp.argsort(values)
        some = z[:: length // 1000].compute()
        total = int(xp.sum(z))
    elements = some * 7919 % 20_000_003
    return [bool((np.diff(elements) >= 0).all()), total == length * (length - 1) // 2]


def replace_slowly(path: str, threads: int, spills: bool, spill: str) -> None:
    """Replace an array by one of 256 MiB, each read of which takes a while; on Ctrl-C go on a little, then give up.

    With `spills` it is folded along in a way that needs an intermediate on disk.
    """
    z = synthetic_array((8192, 8192), (512, 1024), "float32", PATTERNS[2], faults=Faults(delay=0.05))
    x = jc.from_zarr(z)
    y = xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1) if spills else x + 1
    with jc.config.set(threads=threads, spill_directory=spill), budget(64 * 2**20):
        try:
            jc.to_zarr(y, path, overwrite=True, chunks=(512, 1024))
        except KeyboardInterrupt:
            print("interrupted", float(xp.sum(xp.ones(10, chunks=2))), flush=True)
            nothing_is_left()
            print("finished", flush=True)
            raise


def nothing_is_left() -> None:
    """The ledger has what is mapped and remembered, and nothing else."""
    gc.collect()
    machine = runtime()
    machine.note_strays()  # as before the next run
    assert machine.persisted == 0
    assert machine.ledger.held == machine.pool.mapped + machine.keeper.remembered <= machine.ledger.reserved


def interrupted_at_any_moment(threads: int, times: int) -> None:
    """Print how many of so many Ctrl-C, spread over the length of a run, were raised; all is in order after each."""
    z = synthetic_array((400, 400), (50, 100), "float64", PATTERNS[2])
    x = jc.from_zarr(z)
    interrupted = 0
    with budget(8 * 2**20), jc.config.set(threads=threads):
        xp.mean(x * 2, axis=0).compute()
        started = time.monotonic()
        expected = xp.mean(x * 2, axis=0).compute()
        usual = time.monotonic() - started
        for k in range(times):
            timer = threading.Timer(usual * k / times, os.kill, [os.getpid(), signal.SIGINT])
            try:
                timer.start()
                xp.mean(x * 2, axis=0).compute()
                timer.join()
                time.sleep(0.2)  # too late for the run: it comes here
            except KeyboardInterrupt:
                interrupted += 1
            timer.join()
            nothing_is_left()
        np.testing.assert_array_equal(xp.mean(x * 2, axis=0).compute(), expected)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(interrupted)


def interrupted_with_a_handler() -> None:
    """Ctrl-C in a run where the user has a handler: it prints, the run goes on, and the handler stays."""
    signal.signal(signal.SIGINT, lambda *_: print("mine"))
    z = synthetic_array((40,), (1,), "float64", lambda i: i, faults=Faults(delay=0.02))
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    with jc.config.set(threads=2):
        print(float(xp.sum(jc.from_zarr(z) + 1)))
    signal.raise_signal(signal.SIGINT)


def many_shapes(shapes: int, limit: int) -> Any:
    """Sums of arrays of ever another length: resident memory when the kernel cache is full, and at the end."""
    CACHE.limit = limit
    compiled = CACHE.compiled
    seen = []
    for k in range(shapes):
        x = xp.arange(float(k + 3))
        assert float(xp.sum(x + 1)) == (k + 3) * (k + 4) / 2
        if k in (2 * limit // KERNEL_BYTES, shapes - 1):
            gc.collect()
            seen.append(resident("VmRSS"))
    return {"compiled": CACHE.compiled - compiled, "kept": len(CACHE._kernels), "resident": seen}
