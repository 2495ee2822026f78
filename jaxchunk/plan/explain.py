"""A plan as a text that fits in a terminal: for each stage what is modelled, and once it ran what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxchunk.plan.machines import THIS, Machine
from jaxchunk.plan.report import size, to_dict
from jaxchunk.plan.traffic import TIERS

if TYPE_CHECKING:
    from jaxchunk.plan.plan import Plan

_LABEL, _COLUMN = 9, 50


class Row(NamedTuple):
    """A line of figures; `measured` is empty before a run, and where nothing is measured."""

    label: str
    modelled: str
    measured: str = ""


def explain(plan: Plan, compile: bool = False, machine: str | Machine | None = None) -> str:
    if compile:
        for stage in plan.stages:
            stage.warm()
    figures = to_dict(plan, machine)
    stages = figures["stages"]
    verb = "fits" if figures["fits"] else "doesn't fit"
    lines = [
        f"Plan of {len(stages)} stage{'s' * (len(stages) != 1)} {verb}: peak {size(figures['peak_bytes'])} "
        f"of the budget of {size(figures['budget'])} (modelled)"
    ]
    if figures["measured"] is not None:
        lines.append(f"   {'':{_LABEL}} {'modelled':{_COLUMN}}  measured")
    lines += _written(totals(figures))
    for number, stage in enumerate(stages):
        lines += ["", title(number, stage), *_written(rows(stage))]
    if figures["problem"] is not None:
        lines += ["", f"doesn't fit: {figures['problem']}"]
    return "\n".join(lines)


def title(number: int, stage: dict[str, Any]) -> str:
    """A stage's number, operations, and the user's line."""
    strips = "" if stage["strip_of"] is None else f", strip by strip with {stage['strip_of']}"
    misfit = "" if stage["fits"] else "  <- doesn't fit"
    return f"{number}. {stage['name']}{strips}   [{stage['where']}]{misfit}"


def totals(figures: dict[str, Any]) -> Iterator[Row]:
    """A plan's rows."""
    measured = figures["measured"]
    handed = figures["handed_out_bytes"]
    results = f", {size(handed)} of them results" if handed else ""
    yield Row(
        "memory",
        f"{size(figures['peak_bytes'])} at most{results}",
        f"{size(measured['ledger_peak_bytes'])} held at most" if measured else "",
    )
    storage = _moved(figures["bytes_read"], figures["bytes_written"], figures["passes"])
    found = _moved(measured["bytes_read"], measured["bytes_written"]) if measured else ""
    if storage or found:
        yield Row("storage", storage or "nothing", found or ("nothing" if measured else ""))
    spilled = _moved(figures["spill_read_bytes"], figures["spilled_bytes"])
    found = _moved(measured["spill_read_bytes"], measured["spilled_bytes"]) if measured else ""
    if spilled or found:
        yield Row("disk", f"{spilled}; {size(figures['peak_disk_bytes'])} at once", found)
    compiled = measured["compile_seconds"] if measured else 0
    compiling = f", {seconds(compiled)} of compiling" if compiled else ""
    yield Row(
        "time",
        f"about {seconds(figures['seconds'])}{_where(figures['machine'])}, most of it {figures['bound_by']}",
        f"{seconds(measured['seconds'])}{compiling}" if measured else "",
    )


def rows(stage: dict[str, Any]) -> Iterator[Row]:
    """A stage's rows."""
    measured = stage["measured"]
    tile = "×".join(map(str, stage["tile"])) or "1"
    tasks = f"{stage['tasks']:,} task{'s' * (stage['tasks'] != 1)}"
    yield Row(
        "kernel",
        f"{stage['kernel']['form']}, tile {tile}, {tasks}, {stage['in_flight']} at once",
        f"{measured['tasks']:,} done" if measured else "",
    )
    if stage["kernel"]["compiled_bytes"] is not None:
        own = f"{size(stage['kernel']['temporary_bytes'])} of it the kernel's"
        yield Row("", own, f"{size(stage['kernel']['compiled_bytes'])} (compiled)")
    values = f" + {size(stage['values_bytes'])} of values" if stage["values_bytes"] else ""
    yield Row(
        "memory",
        f"{size(stage['host_bytes'])}{values}",
        f"{size(measured['held_peak_bytes'])} held at most, all in all" if measured else "",
    )
    found = dict.fromkeys(TIERS, "")
    if measured:
        found["storage"] = _moved(measured["bytes_read"], measured["bytes_written"])
        found["disk"] = _moved(measured["spill_read_bytes"], measured["spilled_bytes"])
    for tier in TIERS:
        flow = stage["tiers"][tier]
        modelled = _moved(flow["read"], flow["written"], stage["passes"] if tier == "storage" else None)
        if modelled or found[tier]:
            yield Row(tier, modelled or "nothing", found[tier])
    yield Row("time", f"about {seconds(stage['seconds'])}, bound by {stage['bound_by']}", _times(measured))


def _where(machine: dict[str, Any]) -> str:
    """Whose rates a time is by, where they aren't this machine's own."""
    if machine["measured"]:
        return ""
    return " by default rates" if machine["name"] == THIS else f" on {machine['name']}"


def _times(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return ""
    parts = {kind: measured[f"{kind}_seconds"] for kind in ("read", "compute", "write", "wait")}
    told = ", ".join(f"{kind} {value:.2g}" for kind, value in parts.items() if value >= 0.001)
    return f"{seconds(measured['seconds'])}{f': {told}' if told else ''}"


def _moved(read: int, written: int, passes: float | None = None) -> str:
    """Bytes in and out, in words; nothing where there are none."""
    words = []
    if read:
        times = "" if passes is None else f" in {passes:.3g} pass{'es' * (f'{passes:.3g}' != '1')}"
        words.append(f"reads {size(read)}{times}")
    if written:
        words.append(f"writes {size(written)}")
    return ", ".join(words)


def seconds(value: float) -> str:
    """A time for people: 3 ms, 0.23 s, 4 min, 12 h."""
    if 0 < value < 0.01:
        return f"{value * 1e3:.1g} ms" if value >= 0.001 else f"{max(1, value * 1e6):.0f} µs"
    if value < 100:
        return f"{value:.2g} s"
    return f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:,.0f} h"


def _written(rows: Iterator[Row]) -> list[str]:
    return [f"   {row.label:{_LABEL}} {row.modelled:{_COLUMN}}  {row.measured}".rstrip() for row in rows]
