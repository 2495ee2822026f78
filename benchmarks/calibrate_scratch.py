"""Measures the table of `jaxchunk.plan.scratch`: ``python -m benchmarks.calibrate_scratch [CASE ...]``.

Each case runs in a process of its own: how far does resident memory grow beyond what
`memory_analysis()` reports, for each byte of what one call of the library works on?
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import ROOT
from jaxchunk._jaxpr import primitives
from jaxchunk.plan.scratch import CPU, OTHER_LENGTHS
from jaxchunk.run.pool import set_up_allocator

MIB = 2**20
WARM_UP = MIB

Arrays = list[np.ndarray[Any, Any]]


class Case(NamedTuple):
    """A function, and inputs of about so many bytes for it."""

    entry: str
    function: Callable[..., Any]
    inputs: Callable[[int], Arrays]


def normal(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def vector(nbytes: int, dtype: str = "float32") -> Arrays:
    return [normal(nbytes // np.dtype(dtype).itemsize, dtype=dtype)]


def prime(nbytes: int, dtype: str) -> Arrays:
    n = nbytes // np.dtype(dtype).itemsize
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n -= 1
    return [normal(n, dtype=dtype)]


def square(nbytes: int, dtype: str = "float32") -> Arrays:
    side = int((nbytes / np.dtype(dtype).itemsize) ** 0.5)
    return [normal(side, side, dtype=dtype)]


def definite(nbytes: int, dtype: str = "float32") -> Arrays:
    (a,) = square(nbytes, dtype)
    return [a @ a.T + len(a) * np.eye(len(a), dtype=dtype)]


def integers(nbytes: int, dtype: str) -> Arrays:
    return [np.random.default_rng(0).integers(0, 100, nbytes // np.dtype(dtype).itemsize).astype(dtype)]


CASES = {
    "sort float32": Case("sort", lax.sort, vector),
    "sort float64": Case("sort", lax.sort, lambda n: vector(n, "float64")),
    "argsort": Case("sort", jnp.argsort, vector),
    "sort of three": Case("sort", lambda *x: lax.sort(x, num_keys=2), lambda n: vector(n) * 3),
    "sort int32": Case("sort of integers", lax.sort, lambda n: integers(n, "int32")),
    "sort int8": Case("sort of integers", lax.sort, lambda n: integers(n, "int8")),
    "top_k": Case("top_k", lambda x: lax.top_k(x, 10), vector),
    "fft": Case("fft", jnp.fft.fft, lambda n: vector(n, "complex64")),
    "rfft": Case("fft", jnp.fft.rfft, vector),
    "prime fft": Case(OTHER_LENGTHS, jnp.fft.fft, lambda n: prime(n, "complex64")),
    "prime rfft": Case(OTHER_LENGTHS, jnp.fft.rfft, lambda n: prime(n, "float32")),
    "cholesky": Case("cholesky", jnp.linalg.cholesky, definite),
    "lu": Case("lu", jax.scipy.linalg.lu_factor, square),
    "qr": Case("qr", jnp.linalg.qr, square),
    "qr float64": Case("qr", jnp.linalg.qr, lambda n: square(n, "float64")),
    "geqrf": Case("geqrf", lambda a: jnp.linalg.qr(a, mode="raw"), square),
    "householder_product": Case(
        "householder_product", lambda a: lax.linalg.householder_product(a, jnp.full(len(a), 0.1, a.dtype)), square
    ),
    "eigh": Case("eigh", jnp.linalg.eigh, definite),
    "eig": Case("eig", jnp.linalg.eig, square),
    "svd": Case("svd", jnp.linalg.svd, square),
    "svd float64": Case("svd", jnp.linalg.svd, lambda n: square(n, "float64")),
    "schur": Case("schur", lax.linalg.schur, square),
    "hessenberg": Case("hessenberg", lax.linalg.hessenberg, square),
    "tridiagonal": Case("tridiagonal", lax.linalg.tridiagonal, definite),
    "triangular_solve": Case(
        "triangular_solve", lambda a: lax.linalg.triangular_solve(a, a, left_side=True, lower=True), definite
    ),
    "matmul": Case("dot_general", jnp.matmul, lambda n: square(n) * 2),
    "matmul, transposed": Case("dot_general", lambda a: a.T @ a, square),
    "matmul, many small": Case("dot_general", lambda a: a @ a, lambda n: [normal(n // 16384, 64, 64)]),
    "convolve": Case("conv_general_dilated", lambda x: jnp.convolve(x, x[:31], mode="same"), vector),
}
# What the table leaves out: all of it is reported.
REPORTED = {
    "exp": Case("exp", jnp.exp, vector),
    "cumsum": Case("cumsum", lax.cumsum, vector),
    "gather": Case("gather", lambda x: x[jnp.arange(len(x))[::-1]], vector),
    "scatter": Case("scatter", lambda x: jnp.zeros_like(x).at[jnp.arange(len(x))[::-1]].add(x), vector),
}


class Measured(NamedTuple):
    """Bytes: growth of resident memory, what XLA reports of it, and what one call works on."""

    growth: int
    reported: int
    works_on: int

    @property
    def unreported(self) -> int:
        return self.growth - self.reported

    @property
    def factor(self) -> float:
        return self.unreported / self.works_on


def measure(name: str, nbytes: int) -> Measured:
    """One case in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.calibrate_scratch", "--child", "--bytes", str(nbytes), name]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return Measured(*json.loads(done.stdout.splitlines()[-1]))


def child(name: str, nbytes: int) -> Measured:
    case = {**CASES, **REPORTED}[name]
    set_up_allocator()  # as in the library's own processes
    # A small problem first: threads and code come with the first call.
    jax.block_until_ready(jax.jit(case.function)(*case.inputs(WARM_UP)))
    given = case.inputs(nbytes)  # kept: their memory must not come free meanwhile
    inputs = jax.block_until_ready([jax.device_put(x) for x in given])
    lowered = jax.jit(case.function).lower(*inputs)
    works = primitives(jax.make_jaxpr(case.function)(*inputs).jaxpr, lowered.as_text())
    compiled = lowered.compile()
    analysis: Any = compiled.memory_analysis()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = resident("VmRSS")
    jax.block_until_ready(compiled(*inputs))
    growth = resident("VmHWM") - before
    reported = analysis.output_size_in_bytes + analysis.temp_size_in_bytes
    sizes = {work.name: work.nbytes or 0 for work in works}
    return Measured(growth, reported, sizes.get(case.entry, nbytes))


def resident(field: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join([*CASES, *REPORTED]))
    parser.add_argument("--mebibytes", type=int, default=16, help="size of the inputs")
    parser.add_argument("--bytes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(child(given.cases[0], given.bytes)))
        return
    print(f"{'case':22} {'entry':22} {'growth MiB':>10} {'reported':>9} {'works on':>9} {'factor':>7} {'table':>6}")
    for name in given.cases or [*CASES, *REPORTED]:
        m = measure(name, given.bytes or given.mebibytes * MIB)
        entry = {**CASES, **REPORTED}[name].entry
        table = CPU[entry].factor if entry in CPU else 0.0
        sizes = f"{m.growth / MIB:10.1f} {m.reported / MIB:9.1f} {m.works_on / MIB:9.1f}"
        print(f"{name:22} {entry:22} {sizes} {m.factor:7.2f} {table:6.2f}", flush=True)


if __name__ == "__main__":
    main()
