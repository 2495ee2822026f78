"""The command line: ``python -m benchmarks run | inputs | cost | step | plan``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks import cost, data, harness, loops, report
from benchmarks.peers import PEERS, size_of
from benchmarks.rows import ROWS

ALL_PEERS = (*PEERS, "floor")
SCALES = (1, 2, 4, 8, 16, 32)

PEERS_OF_THEIR_OWN = ("dask", "cubed")
"""Those that --peer-python is for."""


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    pythons = dict.fromkeys(ALL_PEERS, sys.executable)
    if options.command == "inputs":
        data.make(options.cache, options.scale, {name for row in options.rows for name in ROWS[row].inputs})
        return
    if options.command == "cost":
        print(
            cost.compare(options.cache, options.scale, options.rows, options.budget, options.rounds, options.calibrate)
        )
        return
    if options.peer_python:
        pythons |= dict.fromkeys(PEERS_OF_THEIR_OWN, options.peer_python)
    pythons |= {peer: given for peer in ALL_PEERS if (given := getattr(options, f"python_{peer}"))}
    if options.command != "run":
        print(loops.compare(options.command, options.peers, pythons))
        return
    settings = harness.Settings(
        rows=tuple(options.rows),
        peers=tuple(options.peers),
        pythons=pythons,
        cache=options.cache,
        budget=options.budget,
        scale=options.scale,
        rounds=options.rounds,
        timeout=options.timeout,
    )
    results = harness.run(settings)
    table = report.markdown(settings, results)
    print("\n" + table)
    settings.cache.mkdir(parents=True, exist_ok=True)
    (settings.cache / "results.md").write_text(table)
    (settings.cache / "results.json").write_text(json.dumps(report.raw(settings, results), indent=1))
    if any(m.problem and harness.MISSING not in m.problem for m in results.values()):
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    run = commands.add_parser("run", help="each row by each peer, in processes of their own: a Markdown table")
    _add_inputs(run)
    _add_peers(run, list(ALL_PEERS), ALL_PEERS)
    run.add_argument("--rounds", type=int, default=3, help="how often; the table has the medians (3)")
    _add_budget(run)
    run.add_argument("--timeout", type=float, default=600, help="seconds for one run of one row (600)")

    _add_inputs(commands.add_parser("inputs", help="only make the inputs"))

    seconds = commands.add_parser("cost", help="seconds that plans predict after calibrating, beside measured ones")
    _add_inputs(seconds)
    _add_budget(seconds)
    seconds.add_argument("--rounds", type=int, default=1, help="how often; the table has the fastest (1)")
    seconds.add_argument("--no-calibrate", dest="calibrate", action="store_false", help="by the rates that are kept")

    step = commands.add_parser("step", help="microseconds for a step of a loop on ten elements")
    _add_peers(step, list(loops.STEP_PEERS), loops.STEP_PEERS)
    plan = commands.add_parser("plan", help="seconds and memory to plan a mean over a million stored chunks")
    _add_peers(plan, ["jaxchunk"], loops.PLAN_PEERS)
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=_names(tuple(ROWS)), default=list(ROWS), help=f"some of {','.join(ROWS)} (all)")
    parser.add_argument(
        "--scale", type=int, default=1, choices=SCALES, help="divides the inputs' sides, for a quick try (1)"
    )
    parser.add_argument("--cache", type=Path, default=Path("out/benchmarks"), help="where inputs and results are kept")


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", type=_budget, default="512 MiB", help='of memory, e.g. "256 MiB" ("512 MiB")')


def _add_peers(parser: argparse.ArgumentParser, default: list[str], known: tuple[str, ...]) -> None:
    text = f"some of {','.join(known)} ({','.join(default)})"
    parser.add_argument("--peers", type=_names(known), default=default, help=text)
    parser.add_argument("--peer-python", help="the interpreter of an environment that has Dask and Cubed")
    for peer in ALL_PEERS:
        parser.add_argument(f"--python-{peer}", help=argparse.SUPPRESS)


def _names(known: tuple[str, ...]) -> type:
    """The type of an argument that is a list of known names, with commas."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse  # type: ignore[return-value]


def _budget(text: str) -> str:
    try:
        size_of(text)
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(f'{text!r}: a size is written like "512 MiB"') from error
    return text


if __name__ == "__main__":
    main()
