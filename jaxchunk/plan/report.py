"""A plan's figures, for machines: modelled, and once it has run the measured ones beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxchunk.lower.kernel import SUBTILE, subtiles
from jaxchunk.plan.cost import AtHand, Cost, at_hand, in_all, plan_cost
from jaxchunk.plan.machines import Machine, machine_of
from jaxchunk.plan.traffic import TIERS, Traffic, nbytes_of
from jaxchunk.run.sinks import ValueSink
from jaxchunk.run.stage import Stage
from jaxchunk.run.values import Slot
from jaxchunk.store.stored import StoredArray

if TYPE_CHECKING:
    from jaxchunk.plan.plan import Plan

# What the process may grow by besides data, by platform: compiled code, threads, compilation.
RUNTIME_ALLOWANCE = {"cpu": 192 * 2**20}


def stage_dict(stage: Stage, moved: Traffic, cost: Cost) -> dict[str, Any]:
    """One stage's figures, all modelled."""
    tiers = {tier: {"read": moved.read(tier), "written": moved.written(tier)} for tier in TIERS}
    return {
        "name": stage.name,
        "operations": stage.operations,
        "where": stage.where,
        "kernel": kernel_dict(stage),
        "grid": [list(axis.runs) for axis in stage.tiles],
        "tile": [axis.largest for axis in stage.tiles],
        "tasks": stage.tasks,
        "device_bytes": stage.reserve,
        "host_bytes": stage.reserve,
        "in_flight": stage.in_flight,
        "bytes_read": tiers["storage"]["read"],
        "bytes_written": tiers["storage"]["written"],
        "spilled_bytes": tiers["disk"]["written"],
        "spill_read_bytes": tiers["disk"]["read"],
        "tiers": tiers,
        **passes([moved]),
        "flops": stage.flops,
        **_cost_dict(cost),
    }


def _cost_dict(cost: Cost) -> dict[str, Any]:
    return {"seconds": cost.seconds, "link_seconds": cost.links, "bound_by": cost.bound_by}


def kernel_dict(stage: Stage) -> dict[str, Any]:
    """What a stage runs on each tile: the form of its kernel, and the bytes that it takes for itself."""
    if stage.kernels is None:
        return {"form": "move", "instructions": 0, "pieces": 1, "temporary_bytes": 0, "compiled_bytes": None}
    program, tile = stage.kernels.program, stage.whole_tile
    if program.exact:
        form = "block"
    elif program.direct:
        form = "direct"
    elif program.scans:
        form = "scan"
    else:
        form = "fold" if program.folds else "loop"
    cut = None if program.direct or program.exact else subtiles(tile, SUBTILE)
    compiled = stage.kernels.known_step(tile)
    return {
        "form": form,
        "instructions": program.size,
        "pieces": 1 if cut is None else math.prod(cut.before) * (cut.full + bool(cut.rest)),
        "temporary_bytes": stage.temporaries + stage.scratch,
        "compiled_bytes": None if compiled is None else compiled.temp_bytes,
    }


def passes(moved: Sequence[Traffic]) -> dict[str, Any]:
    """How often stored arrays are read: bytes decoded, by the bytes that there are; each, and in all."""
    decoded: dict[StoredArray, int] = {}
    for part in moved:
        for base, nbytes in part.reads.items():
            if isinstance(base, StoredArray):
                decoded[base] = decoded.get(base, 0) + nbytes
    sources = [
        {"name": base.name, "bytes": nbytes_of(base), "bytes_read": nbytes, "passes": nbytes / max(1, nbytes_of(base))}
        for base, nbytes in decoded.items()
    ]
    whole = sum(nbytes_of(base) for base in decoded)
    return {"sources": sources, "passes": sum(decoded.values()) / whole if whole else None}


class Alive(NamedTuple):
    """Bytes of values between stages while one of them runs."""

    host: int
    disk: int


def values_alive(stages: Sequence[Stage]) -> list[Alive]:
    """For each stage: its own results and what earlier ones left, until after its last use."""
    host = disk = 0
    alive: list[Alive] = []
    for i, stage in enumerate(stages):
        if stage.strip_of is not None:
            continue
        # Stages that take turns begin and end together.
        turn = [stage, *(s for s in stages[i + 1 : i + 2] if s.strip_of is not None)]
        for slot in (slot for s in turn for slot in slots_made(s)):
            host += nbytes_of(slot) * (slot.tier == "host")
            disk += nbytes_of(slot) * (slot.tier == "disk")
        alive += [Alive(host, disk)] * len(turn)
        for slot in (slot for s in turn for slot in s.frees):
            host -= nbytes_of(slot) * (slot.tier == "host")
            disk -= nbytes_of(slot) * (slot.tier == "disk")
    return alive


def slots_made(stage: Stage) -> list[Slot]:
    """The values between stages that one makes."""
    outputs = [*stage.outputs, *(output for group in stage.groups for output in group.outputs)]
    return [sink.slot for output in outputs for sink in output.sinks if isinstance(sink, ValueSink)]


def to_dict(plan: Plan, machine: str | Machine | None = None) -> dict[str, Any]:
    costs = plan_cost(plan.stages, plan.traffic, machine_of(machine), _at_hand(plan, machine))
    alive = values_alive(plan.stages)
    numbers = {id(stage): number for number, stage in enumerate(plan.stages)}
    stages = []
    for number, stage in enumerate(plan.stages):
        figures = stage_dict(stage, plan.traffic[number], costs[number])
        figures["values_bytes"] = alive[number].host
        figures["disk_bytes"] = alive[number].disk
        figures["strip_of"] = None if stage.strip_of is None else numbers[id(stage.strip_of)]
        figures["fits"] = stage is not plan.misfit
        figures["measured"] = None if plan.measured is None else plan.measured[number].to_dict()
        stages.append(figures)
    return {
        "stages": stages,
        "budget": plan.budget,
        "peak_bytes": plan.peak,
        "peak_device_bytes": plan.peak,
        "peak_host_bytes": plan.peak,
        "peak_disk_bytes": max((a.disk for a in alive), default=0),
        "runtime_allowance": RUNTIME_ALLOWANCE["cpu"],
        "handed_out_bytes": plan.handed_out,
        **{name: sum(s[name] for s in stages) for name in _SUMS},
        **_cost_dict(in_all(costs)),
        "machine": machine_of(machine).to_dict(),
        **passes(plan.traffic),
        "fits": plan.problem is None,
        "problem": plan.problem,
        "measured": None if plan.totals is None else asdict(plan.totals),
    }


def _at_hand(plan: Plan, machine: str | Machine | None) -> AtHand | None:
    """What a run finds on this machine: now, or as its last one began."""
    return None if machine is not None else plan.at_hand or at_hand(plan.stages)


_SUMS = ("bytes_read", "bytes_written", "spilled_bytes", "spill_read_bytes", "flops")


def size(nbytes: float) -> str:
    """Bytes for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(nbytes) < 1024 or unit == "PiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if unit == "B" or nbytes >= 1000 else f"{nbytes:.3g} {unit}"
