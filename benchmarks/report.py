"""The results as Markdown: a line for each row, a column for each peer, and where it was measured."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import MISSING, Clock, Results, Settings
from benchmarks.rows import ROWS

BASE = "jaxchunk"
"""What the others are compared with."""


def markdown(settings: Settings, results: Results) -> str:
    """Two tables, of wall and of CPU seconds, and the circumstances they were measured in."""
    lines = [
        f"Seconds of the whole process, imports included (median of {settings.rounds}); in brackets its peak of",
        "resident memory in GiB; then how many times as long as jaxchunk. jaxchunk and Cubed have a budget of",
        f"{settings.budget}; Dask and the others take what they take. `floor` reads the input and writes the output",
        "with no arithmetic.",
        "",
        *_table(settings, results, "wall"),
        "",
        "CPU seconds of the same processes, which other work on the machine disturbs less:",
        "",
        *_table(settings, results, "cpu"),
        "",
        *_circumstances(settings, results),
    ]
    failed = [(key, m.problem) for key, m in results.items() if m.problem and MISSING not in m.problem]
    if failed:
        lines += ["", "Without a figure:", *(f"- {row} by {peer}: {why}" for (row, peer), why in failed)]
    return "\n".join(lines) + "\n"


def raw(settings: Settings, results: Results) -> dict[str, Any]:
    """Every sample, for machines."""
    return {
        "machine": machine(),
        "budget": settings.budget,
        "scale": settings.scale,
        "results": [{"row": row, "peer": peer, **asdict(m)} for (row, peer), m in results.items()],
    }


def _table(settings: Settings, results: Results, clock: Clock) -> Iterator[str]:
    yield "| work | " + " | ".join(settings.peers) + " |"
    yield "|---" * (len(settings.peers) + 1) + "|"
    for row in settings.rows:
        cells = [_cell(results, row, peer, clock) for peer in settings.peers]
        yield f"| {ROWS[row].text} | " + " | ".join(cells) + " |"
    means = [_geometric_mean(settings, results, peer, clock) for peer in settings.peers]
    yield "| geometric mean of the ratios | " + " | ".join(means) + " |"


def _cell(results: Results, row: str, peer: str, clock: Clock) -> str:
    measured = results[row, peer]
    if not measured.samples:
        return "–" if MISSING in (measured.problem or "") else "failed"
    cell = f"{measured.median(clock):.1f}"
    if clock == "wall":
        cell += f" ({measured.peak_bytes / 2**30:.2f})"
    ratio = _ratio(results, row, peer, clock)
    return cell if ratio is None else f"{cell} {ratio:.1f}×"


def _ratio(results: Results, row: str, peer: str, clock: Clock) -> float | None:
    base, measured = results.get((row, BASE)), results[row, peer]
    if peer == BASE or base is None or not base.samples or not measured.samples:
        return None
    return measured.median(clock) / base.median(clock)


def _geometric_mean(settings: Settings, results: Results, peer: str, clock: Clock) -> str:
    ratios = [ratio for row in settings.rows if (ratio := _ratio(results, row, peer, clock)) is not None]
    return f"{statistics.geometric_mean(ratios):.2f}×" if ratios else ""


def _circumstances(settings: Settings, results: Results) -> list[str]:
    versions: dict[str, str] = {}
    clashes = set()
    for measured in results.values():
        for name, version in measured.versions.items():
            if versions.setdefault(name, version) != version:
                clashes.add(name)
    told = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    lines = [f"Machine: {machine()}. Versions: {told}."]
    if clashes:
        lines.append(f"The peers' environments differ in {', '.join(sorted(clashes))}.")
    if settings.scale != 1:
        lines.append(f"Sides of the inputs divided by {settings.scale}: these figures say little about speed.")
    return lines


def machine() -> str:
    """Processor, cores this process may use, memory."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {cores} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"
