"""Rates of machines: measured, kept, read again, and what plans cost by them."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.plans import source, standardised, written
from helpers.synthetic import synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.plan import machines
from jaxchunk.plan.cost import LINKS, kind_of
from jaxchunk.plan.machines import GPU, LAPTOP, PROFILES, Machine, machine_of, rates_file, save, this_machine

MIB = 2**20


@pytest.fixture(autouse=True)
def cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Rates of this machine are kept for one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    machines._kept.cache_clear()


def test_calibrating_finds_all_rates_and_keeps_them(tmp_path: Path, cache_directory: Path) -> None:
    spill = tmp_path / "spill"
    with budget(32 * MIB), jc.config.set(spill_directory=str(spill), threads=2):
        machine = jc.calibrate()
    assert machine.measured and machine.cores == 2 and machine.transfer is None
    for field in fields(Machine):
        value = getattr(machine, field.name)
        if isinstance(value, float):
            # Far from what any machine does, one way or the other, is a fault of the measurement.
            low, high = (1e-7, 10) if field.name.endswith("seconds") else (1e5, 1e13)
            assert low < value < high, field.name
    assert machine.decode > machine.recode
    assert list(spill.glob("jaxchunk-calibrate-*")) == []
    assert [path.suffix for path in (cache_directory / "jaxchunk").iterdir()] == [".json"]
    machines._kept.cache_clear()
    assert this_machine() == machine  # from the file
    assert jc.plan(xp.sum(source())).to_dict()["machine"] == machine.to_dict()


def test_calibrating_keeps_to_a_narrow_budget_and_leaves_what_is_persisted(tmp_path: Path) -> None:
    with budget(16 * MIB), jc.config.set(spill_directory=str(tmp_path), threads=1):
        y = jc.persist(xp.ones((256, 256), chunks=64) * 3)
        with jc.profile() as p:
            jc.calibrate()
        assert p.to_dict()["ledger_peak_bytes"] <= p.to_dict()["planned_peak_bytes"] <= 16 * MIB
        assert float(xp.sum(y)) == 3 * 256**2


def test_a_machine_that_was_not_calibrated_has_default_rates(cache_directory: Path) -> None:
    machine = this_machine()
    assert not machine.measured and not rates_file().exists()
    assert machine.decode == LAPTOP.decode and machine.cores == jc.config.get().cores
    assert "by default rates" in jc.plan(xp.sum(source())).explain()
    save(replace(machine, measured=True))
    assert "by default rates" not in jc.plan(xp.sum(source())).explain()


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: "",
        lambda kept: json.dumps(kept)[:-20],
        lambda kept: "[]",
        lambda kept: json.dumps({**kept, "version": 0}),
        lambda kept: json.dumps({**kept, "rates": {**kept["rates"], "decode": -1.0}}),
        lambda kept: json.dumps({**kept, "rates": {**kept["rates"], "decode": "fast"}}),
        lambda kept: json.dumps({**kept, "rates": {**kept["rates"], "sort": math.nan}}),
        lambda kept: json.dumps({**kept, "rates": {**kept["rates"], "unknown": 1.0}}),
        lambda kept: json.dumps({**kept, "rates": {"name": "x"}}),
    ],
)
def test_a_damaged_file_costs_a_warning_and_the_defaults(damage: Any) -> None:
    before = this_machine()
    path = save(replace(before, decode=123e6, measured=True))
    path.write_text(damage(json.loads(path.read_text())))
    machines._kept.cache_clear()
    with pytest.warns(RuntimeWarning, match="calibrate"):
        assert replace(this_machine(), cached=before.cached) == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        this_machine()  # said once
    save(replace(before, decode=456e6))
    assert this_machine().decode == 456e6


def test_a_file_that_cannot_be_read_costs_a_warning(cache_directory: Path) -> None:
    rates_file().mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="can't be read"):
        assert not this_machine().measured


def test_rates_are_kept_by_host_processor_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(machines.identity()) == {"host", "processor", "device"}
    here = rates_file()
    monkeypatch.setattr(machines, "identity", lambda: {"host": "other", "processor": "x", "device": "cpu"})
    assert rates_file() != here and rates_file().parent == here.parent


def test_bytes_and_operations_by_rates_are_seconds() -> None:
    stored = synthetic_array((4096, 4096), (512, 512), "float32", lambda i, j: i + j, compressor="zstd")
    u = jc.from_zarr(stored)
    machine = replace(LAPTOP, cached=2**40)
    with budget(64 * MIB), jc.config.set(threads=2):
        plan = jc.plan(xp.sum(xp.exp(u)))
        (stage,) = plan.to_dict(machine=machine)["stages"]
    links = stage["link_seconds"]
    assert tuple(links) == LINKS and stage["seconds"] == pytest.approx(sum(links.values()))
    nbytes = 64 * MIB
    workers = min(machine.cores, stage["tasks"])
    assert links["reading"] == pytest.approx((nbytes / machine.decode + 64 * machine.read_chunk_seconds) / workers)
    assert links["arithmetic"] == pytest.approx(stage["flops"] / machine.elementwise / workers)
    assert links["memory"] == pytest.approx(nbytes / machine.memory / workers)
    assert links["writing"] == links["disk"] == links["transfers"] == 0
    assert links["compiling"] > 0 and links["tasks"] > 0
    # Storage that the cores share binds where it is slower than they are.
    slow = plan.to_dict(machine=replace(machine, storage=1e6, cached=MIB))
    assert slow["bound_by"] == slow["stages"][0]["bound_by"] == "reading"
    assert slow["link_seconds"]["reading"] == pytest.approx((nbytes - MIB) / 1e6)


def test_uncompressed_chunks_are_read_at_a_rate_of_their_own() -> None:
    cached = replace(LAPTOP, cached=2**40)

    def reading(compressor: str | None) -> float:
        stored = synthetic_array((2048, 2048), (512, 512), "float32", lambda i, j: i + j, compressor=compressor)
        figures = jc.plan(xp.sum(jc.from_zarr(stored))).to_dict(machine=cached)
        workers = min(cached.cores, figures["stages"][0]["tasks"])
        return float(figures["link_seconds"]["reading"] * workers - 16 * cached.read_chunk_seconds)

    assert reading("zstd") == pytest.approx(16 * MIB / cached.decode)
    assert reading(None) == pytest.approx(16 * MIB / cached.read)


def test_numbers_of_64_bits_count_twice() -> None:
    a = xp.ones((256, 256), dtype=xp.float32) * 2
    seconds = [
        jc.plan(xp.sum(xp.astype(a, dtype) * 3)).to_dict(machine="laptop")["link_seconds"]["arithmetic"]
        for dtype in (xp.float32, xp.float64)
    ]
    assert seconds[1] == pytest.approx(2 * seconds[0] * 4 / 3)  # and one conversion more


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda u: xp.sum(xp.exp(u)), "elementwise"),
        (lambda u: u @ u, "dot"),
        (lambda u: xp.fft.fft(u, axis=1), "transform"),
        (lambda u: xp.sort(u, axis=1), "sort"),
        (lambda u: xp.linalg.qr(u[:128, :64])[1], "factor"),
    ],
)
def test_kernels_go_by_the_rate_of_what_they_do(work: Any, kind: str) -> None:
    plan = jc.plan(work(xp.astype(source((256, 256)), xp.float32)))
    kinds = [kind_of(stage.kernels.program) for stage in plan.stages if stage.kernels is not None]
    assert kind in kinds
    slow = plan.to_dict(machine=replace(LAPTOP, **{kind: 1.0}))
    fast = plan.to_dict(machine="laptop")
    assert slow["bound_by"] == "arithmetic" and slow["seconds"] > 100 * fast["seconds"]


def test_values_on_disk_cost_the_disk() -> None:
    with budget(2 * MIB):
        plan = jc.plan(written(source((1024, 2048), (8, 2048)), chunks=(1024, 16)))
        figures = plan.to_dict(machine="laptop")
    assert figures["spilled_bytes"] > 0
    disk = figures["link_seconds"]["disk"]
    assert disk == pytest.approx((figures["spilled_bytes"] + figures["spill_read_bytes"]) / LAPTOP.storage)
    assert figures["link_seconds"]["writing"] >= figures["bytes_written"] / LAPTOP.recode / LAPTOP.cores


def test_computed_floats_are_encoded_at_a_rate_of_their_own() -> None:
    cached = replace(LAPTOP, cached=2**40)

    def writing(x: xp.Array) -> float:
        with budget(2 * MIB):
            plan = jc.plan(written(x, chunks=(2048, 16)))
        chunks = 128 * cached.write_chunk_seconds
        return float(plan.to_dict(machine=cached)["link_seconds"]["writing"] * 8 - chunks)

    u = source((2048, 2048), (16, 2048))
    assert writing(u) == pytest.approx(16 * MIB / cached.recode)
    assert writing(xp.exp(u)) == pytest.approx(16 * MIB / cached.encode)
    assert writing(xp.astype(u, xp.int32) * 2) == pytest.approx(16 * MIB / cached.recode)


def test_a_device_behind_a_link_costs_transfers() -> None:
    with budget(64 * MIB):
        plan = jc.plan(xp.sum(source((4096, 4096)) * 2))
        laptop, gpu = (plan.to_dict(machine=name)["link_seconds"]["transfers"] for name in ("laptop", "gpu"))
    assert GPU.transfer is not None
    assert laptop == 0 and gpu == pytest.approx(4 * 4096**2 / GPU.transfer)


def test_what_earlier_runs_left_costs_nothing_again() -> None:
    machines.save(replace(this_machine(), measured=True))
    with budget(64 * MIB):
        u = source((1024, 1024))
        first = jc.plan(xp.mean(u + 0.5, axis=0))
        said = first.to_dict()
        assert said["link_seconds"]["compiling"] > 0 and said["link_seconds"]["reading"] > 0
        first.run()
        assert first.to_dict()["link_seconds"] == said["link_seconds"]  # as it was before it ran
        second = jc.plan(xp.mean(u + 0.5, axis=0))
        assert second.to_dict()["link_seconds"]["compiling"] == 0
        assert second.to_dict(machine="laptop")["link_seconds"]["compiling"] > 0
        # From the second run on chunks of a source stay.
        second.run()
        third = jc.plan(xp.mean(u + 0.5, axis=0)).to_dict()
        assert third["bytes_read"] == 4 * MIB and third["link_seconds"]["reading"] == 0


def test_machines_are_chosen_by_name() -> None:
    with budget(64 * MIB):
        plan = jc.plan(standardised(source()))
        seconds = {name: plan.to_dict(machine=name)["seconds"] for name in PROFILES}
    assert set(PROFILES) == {"laptop", "gpu", "64 gpus"}
    assert all(value > 0 for value in seconds.values())
    assert "on 64 gpus" in plan.explain(machine="64 gpus")
    assert machine_of(LAPTOP) is LAPTOP
    with pytest.raises(ValueError, match="machine='abacus'.*'laptop', 'gpu', '64 gpus'"):
        plan.explain(machine="abacus")
    with pytest.raises(TypeError, match="machine=3"):
        plan.to_dict(machine=3)  # type: ignore[arg-type]


SIZES = {"100 GiB": 100 * 2**30, "1 TiB": 2**40, "1 PiB": 2**50}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("work", ["fft", "sort"])
def test_work_of_any_size_is_explained_on_paper(work: str, size: str) -> None:
    dtype = np.dtype("complex64" if work == "fft" else "float32")
    stored = synthetic_array((SIZES[size] // dtype.itemsize,), (2**24,), dtype, lambda i: i)
    x = jc.from_zarr(stored)
    with budget(8 * 2**30):
        plan = jc.plan(written(xp.fft.fft(x) if work == "fft" else xp.sort(x)))
        assert plan.seconds < 1
        hours = {}
        for name in PROFILES:
            figures = plan.to_dict(machine=name)
            hours[name] = figures["seconds"] / 3600
            text = plan.explain(machine=name)
            assert f"on {name}" in text and figures["bound_by"] in text
    assert figures["fits"] and figures["passes"] == 1
    assert figures["bytes_read"] == figures["bytes_written"] == SIZES[size]
    assert SIZES[size] <= figures["peak_disk_bytes"] <= 2.01 * SIZES[size]
    assert hours["laptop"] > hours["gpu"] > hours["64 gpus"] > hours["gpu"] / 100
    assert stored.store.counts.bytes_read == 0
