"""Where the suite is: a checkout that is at hand, or a clone at the pinned commit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

URL = "https://github.com/data-apis/array-api-tests"
COMMIT = "55fcc60"
VERSION = "2025.12"
CHECKOUT = "ARRAY_API_TESTS_DIR"
# The suite skips these itself, whatever is tested.
SKIPPED_BY_SUITE = "test_operators_and_elementwise_functions.py::test_remainder["
SKIPPED_COUNT = 5


def checkout(folder: Path) -> Path:
    """The suite's checkout: the one that the environment names, else a clone below `folder`.

    Raises
    ------
    SystemExit
        Where there is no checkout and no network, or a checkout that lacks its submodule or brings
        lists of tests to skip.
    """
    named = os.environ.get(CHECKOUT)
    root = Path(named).resolve() if named else _clone(folder / "array-api-tests")
    if not (root / "array_api_tests").is_dir():
        raise SystemExit(f"{CHECKOUT}={root}: no checkout of {URL}")
    if not (root / "array-api" / "src").is_dir():
        raise SystemExit(f"{root}: its submodule is missing; run git submodule update --init there")
    for name in ("skips.txt", "xfails.txt"):  # the suite reads these without being asked
        if (root / name).exists():
            raise SystemExit(f"{root / name}: tests would be passed over; remove the file")
    return root


def commit(root: Path) -> str:
    """Which commit a checkout is at, for the record."""
    if not (root / ".git").exists():
        return "unknown commit"
    return _git("rev-parse", "--short=7", "HEAD", cwd=root).strip()


def _clone(root: Path) -> Path:
    if not root.exists():
        fresh = root.with_name(root.name + ".partial")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        if not fresh.exists():
            _git("clone", "--quiet", URL, str(fresh))
        _git("checkout", "--quiet", COMMIT, cwd=fresh)
        _git("submodule", "--quiet", "update", "--init", cwd=fresh)
        fresh.rename(root)
    return root


def _git(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(
            f"git {arguments[0]} failed: {done.stderr.strip()}\n"
            f"Without a network, set {CHECKOUT} to a checkout of {URL} at {COMMIT}, with its submodule."
        )
    return done.stdout
