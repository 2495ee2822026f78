"""How much more is planned than is held: ``python -m helpers.tightness``, after the long tests of the memory table."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from helpers.measure import MIB, TESTS

FIGURES = TESTS.parent / "out" / "tightness"


def note(name: str, mebibytes: int, measured: Any, directory: Path = FIGURES) -> None:
    """Keep what a job planned, held and grew by."""
    profile = measured["profile"]
    figures = {
        "planned": profile["planned_peak_bytes"],
        "held": profile["ledger_peak_bytes"],
        "growth": measured["growth"],
    }
    path = directory / str(mebibytes)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{name}.json").write_text(json.dumps(figures))


def noted(mebibytes: int, directory: Path = FIGURES) -> dict[str, Any]:
    paths = sorted((directory / str(mebibytes)).glob("*.json"))
    return {path.name.removesuffix(".json"): json.loads(path.read_text()) for path in paths}


def median(figures: dict[str, Any], of: str) -> float:
    """Of planned / held, or planned / growth."""
    return statistics.median(row["planned"] / max(1, row[of]) for row in figures.values())


def main(mebibytes: int = 256) -> None:
    figures = noted(mebibytes)
    if not figures:
        sys.exit(f"nothing was measured at {mebibytes} MiB: python -m pytest -m long tests/test_memory_table.py")
    print(f"{f'at {mebibytes} MiB':24} {'planned':>8} {'held':>8} {'growth':>8}   planned / held, / growth")
    for name, row in figures.items():
        sizes = " ".join(f"{row[key] / MIB:8.1f}" for key in ("planned", "held", "growth"))
        print(f"{name:24} {sizes}   {row['planned'] / row['held']:6.2f} {row['planned'] / max(1, row['growth']):6.2f}")
    print(f"{f'median of {len(figures)}':24} {'':26}   {median(figures, 'held'):6.2f} {median(figures, 'growth'):6.2f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
