"""A plan as HTML: figures, memory against the budget, the picture and a table of stages. No script, nothing loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jaxchunk.plan.drawing import RED, escaped, svg
from jaxchunk.plan.explain import rows, totals
from jaxchunk.plan.report import size, to_dict

if TYPE_CHECKING:
    from jaxchunk.plan.plan import Plan

_STYLE = """
.jaxchunk-plan { font-family: sans-serif; font-size: 13px; color: #222222; background: #ffffff; }
.jaxchunk-plan table { border-collapse: collapse; margin: 1em 0; }
.jaxchunk-plan th, .jaxchunk-plan td { border: 1px solid #cccccc; padding: 3px 8px; }
.jaxchunk-plan th, .jaxchunk-plan td { text-align: left; vertical-align: top; }
.jaxchunk-plan tr.misfit td, .jaxchunk-plan .problem { background: #fde4e4; color: #c00000; }
.jaxchunk-plan .problem { padding: 8px; border: 2px solid #c00000; }
.jaxchunk-plan .picture { overflow: auto; max-height: 48em; border: 1px solid #cccccc; }
"""
_BAR = 600


def page(plan: Plan) -> str:
    """A whole document in one file."""
    title = f"Plan of {len(plan.stages)} stage{'s' * (len(plan.stages) != 1)}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body>{fragment(plan)}</body></html>\n"
    )


def fragment(plan: Plan) -> str:
    """What a notebook shows: the same, without a document around it."""
    figures = to_dict(plan)
    problem = "" if plan.problem is None else f'<p class="problem">Does not fit: {escaped(plan.problem)}</p>'
    ran = figures["measured"] is not None
    return (
        f'<div class="jaxchunk-plan"><style>{_STYLE}</style>{problem}{_totals(figures)}{memory_bar(figures)}'
        f'<div class="picture">{svg(plan, figures)}</div>{_table(figures["stages"], ran)}'
        "<p>All figures are modelled from shapes; once the plan has run measured ones stand beside them.</p></div>"
    )


def memory_bar(figures: dict[str, Any]) -> str:
    """The peak, and what was held at most, along the budget."""
    budget, peak, measured = figures["budget"], figures["peak_bytes"], figures["measured"]
    scale = _BAR / max(budget, peak, 1)
    fill, line = ("#9bbfe0", "#33475b") if figures["fits"] else ("#f0a0a0", RED)
    parts = [
        f'<rect x="1" y="4" width="{scale * peak:.1f}" height="22" fill="{fill}"/>',
        f'<rect x="1" y="4" width="{scale * budget:.1f}" height="22" fill="none" stroke="{line}"/>',
    ]
    words = f"peak {size(peak)} planned, of a budget of {size(budget)}"
    if measured is not None:
        held = scale * measured["ledger_peak_bytes"]
        parts.append(f'<rect x="1" y="10" width="{held:.1f}" height="10" fill="#3b6ea5"/>')
        words += f"; {size(measured['ledger_peak_bytes'])} held at most (dark)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_BAR + 2}" height="48" font-family="sans-serif" '
        f'font-size="12">{"".join(parts)}<text x="1" y="42" fill="{line}">{words}</text></svg>'
    )


def _totals(figures: dict[str, Any]) -> str:
    ran = figures["measured"] is not None
    head = _line(["", "modelled", "measured"][: 3 if ran else 2], "th")
    return f"<table>{head}{''.join(_line(list(row)[: 3 if ran else 2]) for row in totals(figures))}</table>"


def _table(stages: Sequence[dict[str, Any]], ran: bool) -> str:
    columns = ["", "stage", "line", "", "modelled", *(["measured"] if ran else [])]
    return f"<table>{_line(columns, 'th')}{''.join(_stage_lines(stages, ran))}</table>"


def _stage_lines(stages: Sequence[dict[str, Any]], ran: bool) -> Iterator[str]:
    for number, stage in enumerate(stages):
        figures = list(rows(stage))
        misfit = "" if stage["fits"] else ' class="misfit"'
        first = [str(number), ", ".join(stage["operations"]), stage["where"]]
        span = f' rowspan="{len(figures)}"'
        head = "".join(f"<td{span}>{escaped(cell)}</td>" for cell in first)
        for i, row in enumerate(figures):
            cells = "".join(f"<td>{escaped(cell)}</td>" for cell in list(row)[: 3 if ran else 2])
            yield f"<tr{misfit}>{head if i == 0 else ''}{cells}</tr>"


def _line(cells: Sequence[str], kind: str = "td") -> str:
    return f"<tr>{''.join(f'<{kind}>{escaped(cell)}</{kind}>' for cell in cells)}</tr>"
