"""What plans say of seconds beside what their runs take: ``python -m benchmarks cost``.

Each row runs in a process of its own, which computes something small first: imports and the compiler's own
start are no part of a plan.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import ROOT, data
from benchmarks.rows import ROWS

FACTOR = 2.0
"""Predicted and measured seconds differ by no more, or the row is marked."""


class Told(NamedTuple):
    """One run of a row, all its plans together: seconds, and their parts.

    `alone` are the CPU seconds by the cores: what it takes at least, on a machine that does nothing else.
    """

    predicted: float
    measured: float
    alone: float
    links: dict[str, float]
    parts: dict[str, float]

    @property
    def bound_by(self) -> str:
        """The link that was said to take longest."""
        return max(self.links, key=lambda link: self.links[link])


def compare(cache: Path, scale: int, rows: list[str], budget: str, rounds: int, calibrate: bool) -> str:
    """Calibrate, run each row `rounds` times, and give the fastest of each as a Markdown table.

    Seconds by parts are, measured, those of one of its threads; beside them what compiling took.
    """
    paths = data.make(cache, scale, {name for row in rows for name in ROWS[row].inputs})
    if calibrate:
        print(_child("calibrate()"), file=sys.stderr)
    lines = [
        "| row | predicted s | measured s | CPU s / cores | predicted / measured | bound by | predicted | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        inputs = [paths[name] for name in ROWS[row].inputs]
        data.warm(inputs)
        chunk = data.INPUTS[ROWS[row].inputs[0]].scaled(scale).chunk
        job = {"row": row, "inputs": [str(path) for path in inputs], "chunk": chunk, "budget": budget}
        told = [Told(**json.loads(_child(f"child({job!r}, {str(cache)!r})"))) for _ in range(rounds)]
        lines.append(line(row, min(told, key=lambda t: t.measured)))
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def line(row: str, told: Told) -> str:
    """A row of the table."""
    ratio = told.predicted / told.measured
    mark = "" if 1 / FACTOR <= ratio <= FACTOR else " (!)"
    seconds = [f"{value:.2f}" for value in (told.predicted, told.measured, told.alone, ratio)]
    cells = [row, *seconds[:3], seconds[3] + mark, told.bound_by, _parts(told.links), _parts(told.parts)]
    return f"| {' | '.join(cells)} |"


SHOWN_SECONDS = 0.005
"""Parts that take less aren't told."""


def _parts(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if value >= SHOWN_SECONDS)


def _child(call: str) -> str:
    """The last line that a call of this module prints in a new process."""
    code = f"from benchmarks import cost; cost.{call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip() or f"{call} failed")
    return done.stdout.strip().splitlines()[-1]


# --- in the child ------------------------------------------------------------------------------------


def calibrate() -> None:
    """In the child: calibrate, and tell how long it took."""
    import jaxchunk

    start = time.perf_counter()
    machine = jaxchunk.calibrate()
    print(f"calibrated in {time.perf_counter() - start:.1f} s: {json.dumps(machine.to_dict())}")


def child(job: dict[str, Any], cache: str) -> None:
    """In the child: run a row, and print what its plans said and what was measured as JSON."""
    from benchmarks.peers import JaxChunk

    row, peer = ROWS[job["row"]], JaxChunk(job["budget"], Path(cache))
    float(peer.xp.sum(peer.xp.ones((8, 8), chunks=(4, 4))))
    with tempfile.TemporaryDirectory(prefix="cost-", dir=cache) as work, _told() as told:
        inputs = [peer.open(Path(path)) for path in job["inputs"]]
        result = peer.run(row, inputs)
        if row.stored is None:
            peer.value(result)
        else:
            peer.write(result, Path(work) / "result.zarr", row.stored(inputs[0].shape[0], int(job["chunk"])))
    links = {name: sum(one.links[name] for one in told) for name in told[0].links}
    parts = {name: sum(one.parts[name] for one in told) for name in told[0].parts}
    in_all = Told(
        predicted=sum(one.predicted for one in told),
        measured=sum(one.measured for one in told),
        alone=sum(one.alone for one in told),
        links=links,
        parts=parts,
    )
    print(json.dumps(in_all._asdict()))


@contextmanager
def _told() -> Iterator[list[Told]]:
    """A list that each plan which runs meanwhile is added to."""
    from jaxchunk.plan.plan import Plan

    told: list[Told] = []
    run = Plan.run

    def run_and_tell(plan: Plan, *arguments: Any) -> list[Any]:
        said = plan.to_dict()
        cpu = time.process_time()
        answers = run(plan, *arguments)
        cpu = time.process_time() - cpu
        measured = plan.to_dict()
        parts = dict.fromkeys(("read", "compute", "write", "wait"), 0.0)
        for stage in measured["stages"]:
            threads = max(1, min(stage["in_flight"], stage["tasks"]))
            for part in parts:
                parts[part] += stage["measured"][f"{part}_seconds"] / threads
        parts["compiling"] = measured["measured"]["compile_seconds"]
        took, cores = measured["measured"]["seconds"], plan.settings.cores
        told.append(Told(said["seconds"], took, cpu / cores, said["link_seconds"], parts))
        return answers

    Plan.run = run_and_tell  # type: ignore[method-assign, assignment]
    try:
        yield told
    finally:
        Plan.run = run  # type: ignore[method-assign]
