"""Two small measurements: a step of a loop on a tiny array, and planning a mean over a million chunks.

Each peer runs in a process of its own: ``python -m benchmarks step`` and ``python -m benchmarks plan``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import ROOT

STEPS = 200
CHUNKS = 1_000_000
STEP_PEERS = ("jaxchunk", "jax", "numpy")
PLAN_PEERS = ("jaxchunk", "dask", "cubed")


def compare(what: str, peers: list[str], pythons: dict[str, str]) -> str:
    """Run `what` ("step" or "plan") by each peer and tell the figures as a Markdown table."""
    unit = {"step": "µs a step", "plan": "seconds | growth in MiB"}[what]
    lines = [f"| peer | {unit} |", "|---" * (1 + len(unit.split("|"))) + "|"]
    for peer in peers:
        code = f"from benchmarks import loops; loops.child({what!r}, {peer!r})"
        done = subprocess.run([pythons[peer], "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            lines.append(f"| {peer} | failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]} |")
        else:
            figures = json.loads(done.stdout.splitlines()[-1])
            lines.append(f"| {peer} | " + " | ".join(figures) + " |")
    return "\n".join(lines)


def child(what: str, peer: str) -> None:
    """In the child: measure, and print the figures as JSON."""
    figures = [f"{step(peer):.0f}"] if what == "step" else [f"{figure:.3f}" for figure in plan(peer)]
    print(json.dumps(figures))


def step(peer: str) -> float:
    """Microseconds a step of a loop with a convergence test on 10 float64 elements, once warm."""
    xp = _namespace(peer)
    x = xp.linspace(0.5, 1.5, 10)
    took = []
    for _ in range(STEPS):
        start = time.perf_counter()
        x = x - 0.1 * _f(xp, x)
        if float(xp.max(xp.abs(_f(xp, x)))) < 0:
            break  # a norm is never negative, but only its value tells
        took.append(time.perf_counter() - start)
    return median(took[STEPS // 2 :]) * 1e6


def _f(xp: Any, x: Any) -> Any:
    return xp.sin(x) * x - 1


def _namespace(peer: str) -> Any:
    if peer == "jaxchunk":
        import jaxchunk.array_api as xp

        return xp
    if peer == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.numpy
    import numpy

    return numpy


def plan(peer: str) -> tuple[float, float]:
    """Seconds and growth of the process, in MiB, to plan a mean over a million stored chunks."""
    import zarr

    from benchmarks.child import peak_bytes

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.zarr"
        # Chunks that were never written are stored chunks as far as planning can see.
        zarr.create_array(path, shape=(1000, 1000 * CHUNKS), chunks=(1000, 1000), dtype="float32")
        planner = _planner(peer)
        before = peak_bytes()
        start = time.perf_counter()
        planner(path)
        return time.perf_counter() - start, (peak_bytes() - before) / 2**20


def _planner(peer: str) -> Any:
    """Everything up to the point where work could start; imports and a first small plan done before."""
    if peer == "jaxchunk":
        import jaxchunk as jc
        import jaxchunk.array_api as xp

        jc.plan(xp.mean(xp.ones((8, 8), chunks=(4, 4))))
        return lambda path: jc.plan(xp.mean(jc.from_zarr(path)))
    if peer == "dask":
        import dask
        import dask.array as da

        dask.optimize(da.ones((8, 8), chunks=4).mean())
        return lambda path: dask.optimize(da.from_zarr(str(path)).mean())
    if peer == "cubed":
        import cubed
        import cubed.array_api as cxp

        return lambda path: cxp.mean(cubed.from_zarr(str(path))).plan()
    sys.exit(f"no planner to measure in {peer}")
