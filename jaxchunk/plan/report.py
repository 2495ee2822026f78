"""A plan for people and for machines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jaxchunk.plan.tile import reads_per_chunk
from jaxchunk.run.sinks import ValueSink, WriteSink
from jaxchunk.run.stage import Stage
from jaxchunk.run.views import Pieced
from jaxchunk.store.stored import StoredArray

if TYPE_CHECKING:
    from jaxchunk.plan.plan import Plan

# What the process may grow by besides data, by platform: compiled code, threads, compilation.
RUNTIME_ALLOWANCE = {"cpu": 192 * 2**20}
# Rates of a machine that hasn't been calibrated, bytes or operations a second: those of one core of a
# small server. What binds a stage is the link that takes longest.
RATES = {"storage": 800e6, "write": 230e6, "memory": 5e9, "flops": 2e9}


def stage_dict(stage: Stage) -> dict[str, Any]:
    """One stage's figures, all modelled."""
    read = sum(leaf_read_bytes(stage, leaf) for leaf in stage.leaves)
    written = spilled = 0
    for output in [*stage.outputs, *(o for g in stage.groups for o in g.outputs)]:
        nbytes = output.dtype.itemsize * math.prod(stage.space[a] for a in output.kept)
        written += nbytes * sum(isinstance(sink, WriteSink) for sink in output.sinks)
        spilled += nbytes * sum(isinstance(s, ValueSink) and s.slot.tier == "disk" for s in output.sinks)
    touched = sum(leaf.dtype.itemsize * math.prod(stage.space) for leaf in stage.leaves)
    cores = max(1, stage.in_flight)
    seconds = {
        "storage": read / RATES["storage"] / cores,
        "write": (written + spilled) / RATES["write"] / cores,
        "memory": touched / RATES["memory"] / cores,
        "flops": stage.flops / RATES["flops"] / cores,
    }
    bound = max(seconds, key=lambda link: seconds[link])
    return {
        "name": stage.name,
        "operations": stage.operations,
        "where": stage.where,
        "grid": [list(axis.runs) for axis in stage.tiles],
        "tile": [axis.largest for axis in stage.tiles],
        "tasks": stage.tasks,
        "device_bytes": stage.reserve,
        "host_bytes": stage.reserve,
        "in_flight": stage.in_flight,
        "bytes_read": read,
        "bytes_written": written,
        "spilled_bytes": spilled,
        "flops": stage.flops,
        "seconds": sum(seconds.values()),
        "bound_by": bound,
    }


def leaf_read_bytes(stage: Stage, leaf: Any) -> int:
    """Bytes decoded for a leaf, kept chunks counted once."""
    base = leaf.view.base
    if isinstance(base, Pieced):
        part = math.prod(n for n, spans in zip(stage.space, leaf.spans, strict=True) if spans) / math.prod(base.shape)
        return int(min(1.0, part) * sum(_decoded_bytes(view.base) for view in base.operands))
    if not isinstance(base, StoredArray):
        return 0
    nbytes = base.dtype.itemsize
    for m, axis in zip(leaf.view.maps, base.grid, strict=True):
        if m.axis is None:
            nbytes *= axis.largest
        else:
            nbytes *= min(axis.length, stage.space[m.axis] * abs(m.step))
    if stage.strip_of is not None and any(other.view.base is base for other in stage.strip_of.leaves):
        return 0  # the stage it takes turns with has decoded it
    times = 1.0 if stage.cache >= nbytes else reads_per_chunk(leaf, stage.tiles)
    return int(nbytes * times)


def _decoded_bytes(base: Any) -> int:
    if isinstance(base, Pieced):
        return sum(_decoded_bytes(view.base) for view in base.operands)
    return base.dtype.itemsize * math.prod(base.shape) if isinstance(base, StoredArray) else 0


def to_dict(plan: Plan) -> dict[str, Any]:
    stages = [stage_dict(stage) for stage in plan.stages]
    return {
        "stages": stages,
        "budget": plan.budget,
        "peak_bytes": plan.peak,
        "peak_device_bytes": plan.peak,
        "peak_host_bytes": plan.peak,
        "runtime_allowance": RUNTIME_ALLOWANCE["cpu"],
        "bytes_read": sum(s["bytes_read"] for s in stages),
        "bytes_written": sum(s["bytes_written"] for s in stages),
        "spilled_bytes": sum(s["spilled_bytes"] for s in stages),
        "fits": plan.problem is None,
    }


def explain(plan: Plan, compile: bool = False) -> str:
    figures = to_dict(plan)
    lines = [
        f"Plan: {len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}, "
        f"peak {size(plan.peak)} of {size(plan.budget)} (modelled), "
        f"reads {size(figures['bytes_read'])}, writes {size(figures['bytes_written'])}, "
        f"spills {size(figures['spilled_bytes'])}"
    ]
    for number, (stage, s) in enumerate(zip(plan.stages, figures["stages"], strict=True)):
        lines.append(
            f"  {number}. {s['name']}: {s['tasks']} tasks of {'×'.join(map(str, s['tile'])) or '1'}, "
            f"{stage.in_flight} in flight, {size(s['device_bytes'])} (modelled); "
            f"reads {size(s['bytes_read'])}, writes {size(s['bytes_written'] + s['spilled_bytes'])}; "
            f"{s['seconds']:.3g} s, bound by {s['bound_by']}   [{stage.where}]"
            + (f", strip by strip with {number - 1}" if stage.strip_of is not None else "")
        )
        if compile and stage.kernels is not None:
            temp = stage.kernels.step(stage.whole_tile).temp_bytes
            told = "no figure from the compiler" if temp is None else f"{size(temp)} of temporaries (compiled)"
            lines.append(f"     its kernel: {told}, {size(stage.temporaries)} (modelled)")
        if plan.measured is not None and number < len(plan.measured):
            m = plan.measured[number]
            lines.append(
                f"     measured: {m.seconds:.3g} s (read {m.read_seconds:.3g}, compute {m.compute_seconds:.3g}, "
                f"write {m.write_seconds:.3g} thread-seconds), {size(m.bytes_read)} read, "
                f"{size(m.bytes_written)} written, {size(m.spilled_bytes)} spilled"
            )
    if plan.problem is not None:
        lines.append(f"  doesn't fit: {plan.problem}")
    return "\n".join(lines)


def size(nbytes: float) -> str:
    """Bytes for people: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(nbytes) < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.3g} {unit}"
