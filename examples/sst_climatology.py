"""A climatology, anomalies and a trend of sea-surface temperature, four times larger than the memory they get.

Makes a daily field over decades (seasons, trend, weather, land as NaN) as a compressed Zarr array, then, within a
budget of 512 MiB: the mean and the spread of every calendar month, standardised anomalies written to Zarr, and a
map of the trend. Checks a sample against NumPy and draws the result.

    python examples/sst_climatology.py --size "2 GiB" --budget "512 MiB" --out out/demo
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from _sst_field import DAYS, MONTHS, Field

import jaxchunk as jc
import jaxchunk.array_api as xp

Array = npt.NDArray[Any]


# -- the work: jaxchunk ----------------------------------------------------------------------------------------------


def analyse(source: Path, target: Path, field: Field) -> dict[str, Any]:
    """The lazy results: nothing is computed here."""
    sst = jc.from_zarr(source)
    by_month = xp.reshape(sst, (field.years, MONTHS, DAYS, field.lat, field.lon))

    climatology = xp.mean(by_month, axis=(0, 2), keepdims=True)
    spread = xp.std(by_month, axis=(0, 2), keepdims=True)
    anomalies = xp.reshape((by_month - climatology) / spread, field.shape)

    # Least squares against time in years, about its middle: the slope is a ratio of two sums. Whole years
    # are averaged first, so that the season does not look like a trend.
    yearly = xp.mean(by_month, axis=(1, 2))
    t = xp.arange(field.years, dtype=xp.float32) - (field.years - 1) / 2
    trend = xp.sum(yearly * t[:, None, None], axis=0) / xp.sum(t * t)

    return {
        "climatology": climatology[0, :, 0],
        "spread": spread[0, :, 0],
        "trend": trend,
        "anomalies": jc.to_zarr(anomalies, target, chunks=field.chunks, overwrite=True, compute=False),
    }


# -- is it right? ----------------------------------------------------------------------------------------------------


def check(source: Path, target: Path, field: Field, results: dict[str, Array]) -> float:
    """Compare random points of every result with NumPy in float64; returns the largest difference."""
    sst, anomalies = (zarr.open_array(path, mode="r") for path in (source, target))
    rng = np.random.default_rng()
    worst = 0.0
    for _ in range(2):
        i, j = int(rng.integers(field.lat)), int(rng.integers(field.lon - 8))
        at = (slice(None), i, slice(j, j + 8))
        values = np.asarray(sst[at], dtype=np.float64).reshape(field.years, MONTHS, DAYS, 8)
        mean, std = values.mean(axis=(0, 2)), values.std(axis=(0, 2))
        t = np.arange(field.years) - (field.years - 1) / 2
        slope = np.tensordot(t, values.mean(axis=(1, 2)), 1) / (t @ t)
        standardised = ((values - mean[:, None]) / std[:, None]).reshape(-1, 8)
        for name, got, want, tolerance in (
            ("climatology", results["climatology"][at], mean, 1e-3),
            ("spread", results["spread"][at], std, 1e-3),
            ("trend", results["trend"][at[1:]], slope, 1e-4),
            ("anomalies", np.asarray(anomalies[at]), standardised, 5e-3),
        ):
            np.testing.assert_allclose(got, want, rtol=0, atol=tolerance, err_msg=f"{name} at {i}, {j}")
            if not np.all(np.isnan(want)):
                worst = max(worst, float(np.nanmax(np.abs(got - want))))
    return worst


# -- telling ---------------------------------------------------------------------------------------------------------


def draw(results: dict[str, Array], target: Path, field: Field, picture: Path) -> None:
    """Four maps: the climatology of two months, the trend, the anomaly of one day."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    day = field.shape[0] - 1
    maps = (
        ("February, mean (°C)", results["climatology"][1], "viridis", None),
        ("August, mean (°C)", results["climatology"][7], "viridis", None),
        ("Trend (°C a year)", results["trend"], "RdBu_r", 0.06),
        (f"Standardised anomaly, day {day}", np.asarray(zarr.open_array(target, mode="r")[day]), "RdBu_r", 3),
    )
    figure, axes = plt.subplots(2, 2, figsize=(12, 6.5), layout="constrained")
    for ax, (title, values, colours, limit) in zip(axes.flat, maps, strict=True):
        span = {} if limit is None else {"vmin": -limit, "vmax": limit}
        image = ax.imshow(values, origin="lower", extent=(0, 360, -90, 90), aspect="auto", cmap=colours, **span)
        ax.set(title=title, facecolor="0.85")
        figure.colorbar(image, ax=ax)
    figure.savefig(picture, dpi=110)


@contextmanager
def stage(title: str) -> Iterator[None]:
    print(f"\n== {title}", flush=True)
    start = time.perf_counter()
    yield
    print(f"   {time.perf_counter() - start:.1f} s", flush=True)


def tell_memory(planned: dict[str, Any], measured: dict[str, Any], budget: str, growth: int) -> None:
    """Planned beside measured; the chain held ≤ reserved ≤ planned ≤ budget is what the library promises."""
    allowed = planned["peak_bytes"] + planned["runtime_allowance"]
    print(f"   budget         {budget}")
    print(f"   planned        {mib(planned['peak_bytes'])}")
    print(f"   reserved       {mib(measured['reserved_peak_bytes'])} at most")
    print(f"   held           {mib(measured['ledger_peak_bytes'])} at most")
    print(f"   process grew   {mib(growth)}, of {mib(allowed)} allowed (planned + runtime allowance)")
    print(f"   read           {mib(measured['bytes_read'])}, planned {mib(planned['bytes_read'])}")
    print(f"   written        {mib(measured['bytes_written'])}, planned {mib(planned['bytes_written'])}")
    print(f"   spilled        {mib(measured['spilled_bytes'])}")
    print(f"   compiled       {measured['kernels_compiled']} kernels in {measured['compile_seconds']:.1f} s")
    print("   seconds a stage, and of its threads:")
    for at in measured["stages"]:
        parts = ", ".join(f"{part} {at[f'{part}_seconds']:.1f}" for part in ("read", "compute", "write", "wait"))
        print(f"   {at['seconds']:8.1f}  {at['name']} ({parts})")


def mib(nbytes: float) -> str:
    return f"{nbytes / 2**20:,.0f} MiB"


def peak_resident() -> int:
    """The peak of this process's resident memory, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default=os.environ.get("JAXCHUNK_DEMO_SIZE", "2 GiB"), help="of the field")
    parser.add_argument("--budget", default="512 MiB", help="memory for the analysis")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the data and the picture")
    options = parser.parse_args()
    field = Field.of_size(options.size)
    source, target = options.out / "sst.zarr", options.out / "anomalies.zarr"
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)

    size = mib(4 * math.prod(field.shape))
    with stage(f"Making {field.years} years of daily temperature: {field.shape} float32, {size}"):
        # In a process of its own, so that the memory it takes is not counted as the analysis'; its products of
        # small matrices are faster without threads of their own.
        make = [sys.executable, str(Path(__file__).with_name("_sst_field.py")), str(source), options.size]
        subprocess.run(make, check=True, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})

    jc.config.set(host_memory=options.budget)
    jc.compute(xp.sum(xp.ones(8)))
    before = peak_resident()

    with stage(f"Planning within {options.budget}"):
        lazy = analyse(source, target, field)
        plan = jc.plan(*lazy.values())
    print(plan.explain())

    with stage("Running: climatology, spread, trend, anomalies to Zarr"), jc.profile() as profile:
        values = plan.run()
    tell_memory(plan.to_dict(), profile.to_dict(), options.budget, peak_resident() - before)
    results = {name: np.asarray(value) for name, value in zip(lazy, values, strict=True) if name != "anomalies"}

    with stage("Checking a random sample against NumPy"):
        print(f"   largest difference {check(source, target, field, results):.1e}")

    with stage("Drawing"):
        picture = options.out / "sst_climatology.png"
        draw(results, target, field, picture)
        print(f"   {picture}")


if __name__ == "__main__":
    main()
