"""The benchmarks' rows as jobs of child processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import check, data
from benchmarks.rows import ROWS


def row_job(cache: Path, tmp_path: Path, name: str, scale: int, nbytes: int) -> dict[str, Any]:
    """The arguments of `helpers.jobs.row`, with the row's inputs made."""
    row = ROWS[name]
    paths = data.make(cache, scale, set(row.inputs))
    result = tmp_path / f"{name}.{'npy' if row.stored is None else 'zarr'}"
    return {
        "name": name,
        "inputs": [str(paths[given]) for given in row.inputs],
        "chunk": data.INPUTS[row.inputs[0]].scaled(scale).chunk,
        "budget": nbytes,
        "result": str(result),
    }


def check_row(cache: Path, scale: int, job: dict[str, Any]) -> None:
    """The result that a job has left is right."""
    inputs = [Path(path) for path in job["inputs"]]
    assert check.problem(ROWS[job["name"]], cache, scale, inputs, Path(job["result"])) is None
