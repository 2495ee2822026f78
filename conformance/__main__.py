"""The command line: fails where any test of the suite fails, errs, is xfailed or is skipped by anyone but the suite."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from conformance import suite
from conformance.runner import ROOT, Job, Result, run

OUT = ROOT / "out" / "conformance"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="examples that are drawn a test (20)")
    parser.add_argument("--chunks", type=int, help="block size along every axis of new arrays; by default one chunk")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (2)")
    parser.add_argument("--memory", type=int, default=1536, help="MiB at which a process is started afresh (1536)")
    parser.add_argument("--module", default="jaxchunk.array_api", help="the namespace to test, for comparisons")
    parser.add_argument("--no-deadline", action="store_true", help="no limit of time an example: compiling counts")
    parser.add_argument("--out", type=Path, default=OUT, help="where records and logs go (out/conformance)")
    parser.add_argument("arguments", nargs="*", help="more arguments for pytest, after --: -- -k sort --derandomize")
    given = parser.parse_args()
    job = Job(
        module=given.module,
        examples=given.examples,
        chunks=given.chunks,
        workers=given.workers,
        memory=given.memory << 20,
        deadline=not given.no_deadline,
        arguments=given.arguments,
    )
    root = suite.checkout(OUT)
    print(f"{job.title}; suite at {suite.commit(root)} (pinned: {suite.COMMIT})", flush=True)
    result = run(job, root, given.out.resolve())
    _tell(result, given.out.resolve() / "failures.txt")
    return 0 if result.passed else 1


def _tell(result: Result, path: Path) -> None:
    bad = sorted(result.bad, key=lambda test: test["end"])
    path.write_text("".join(f"{'=' * 80}\n{t['outcome']}: {t['end']}\n{t['text'] or t['why']}\n\n" for t in bad))
    skips = Counter(test["why"] for test in bad if test["outcome"] == "skipped")
    for test in bad:
        if test["outcome"] != "skipped":
            print(f"{test['outcome']}: {test['end']}\n    {test['why']:.200}")
    for why, count in skips.items():
        print(f"skipped: {count} × {why}")
    for error in result.errors:
        print(f"error: {error}")
    if bad:
        print(f"tracebacks: {path}")
    print(result.summary())


sys.exit(main())
