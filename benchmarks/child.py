"""One row by one peer, in this process: ``python -m benchmarks.child JOB.json``.

The parent times the process from start to end. Nothing is imported here before the peer itself needs
it; the result's values and the peak of resident memory are left in a file for the parent to look at.
"""

from __future__ import annotations

import json
import resource
import sys
from importlib.metadata import version
from pathlib import Path


def main(job_file: str) -> None:
    job = json.loads(Path(job_file).read_text())
    packages = run_floor(job) if job["peer"] == "floor" else run_peer(job)
    report = {
        "peak_bytes": peak_bytes(),
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in packages}},
    }
    Path(job["report"]).write_text(json.dumps(report))


def run_peer(job: dict[str, str]) -> tuple[str, ...]:
    import numpy as np

    from benchmarks.peers import PEERS
    from benchmarks.rows import ROWS

    row = ROWS[job["row"]]
    peer = PEERS[job["peer"]](job["budget"], Path(job["scratch"]))
    if row.needs and not hasattr(peer.xp, row.needs):
        sys.exit(f"{job['peer']} has no {row.needs}")
    inputs = [peer.open(Path(path)) for path in job["inputs"]]
    side, chunk = inputs[0].shape[0], int(job["chunk"])
    result = peer.run(row, inputs)
    if row.stored is None:
        np.save(job["result"], peer.value(result))
    else:
        peer.write(result, Path(job["result"]), row.stored(side, chunk))
    return peer.packages


def run_floor(job: dict[str, str]) -> tuple[str, ...]:
    import numpy as np

    from benchmarks import floor
    from benchmarks.rows import ROWS

    row = ROWS[job["row"]]
    inputs = [Path(path) for path in job["inputs"]]
    if row.stored is None:
        floor.read(inputs)
        return ("numcodecs", "numpy")
    first, result = floor.Stored.open(inputs[0]), Path(job["result"])
    chunks = row.stored(first.shape[0], int(job["chunk"]))
    if row.moves:
        floor.move(inputs[0], result, chunks)
    else:
        floor.read(inputs)
        floor.write(result, first.shape, chunks, np.dtype(row.dtype))
    return ("numcodecs", "numpy")


def peak_bytes() -> int:
    """The peak of this process's resident memory.

    Linux carries the parent's peak over in ``ru_maxrss``, but not in VmHWM.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main(sys.argv[1])
