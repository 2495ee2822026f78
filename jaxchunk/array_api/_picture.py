"""An array's shape and cuts as a small drawing, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from jaxchunk.graph.grid import Axis, Grid

_SIDE = 120
_MOST_LINES = 40


def html(facts: Mapping[str, str], grid: Grid) -> str:
    """A table of facts beside a drawing of the last two axes and their cuts."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f'<div style="display:flex;gap:1em;align-items:center"><table>{rows}</table>{svg(grid)}</div>'


def svg(grid: Grid) -> str:
    """The last two axes as a rectangle of their proportions, with a line at each cut where there are few."""
    if not grid or not all(axis.runs for axis in grid):
        return ""
    rows, columns = grid[-2] if len(grid) > 1 else Axis.regular(1, 1), grid[-1]
    longest = max(rows.length, columns.length)
    # A side is never drawn thinner than a tenth of the other, so that its cuts can be seen.
    width, height = (max(_SIDE * n / longest, _SIDE / 10) for n in (columns.length, rows.length))
    lines = [f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height:.1f}"/>' for x in _cuts(columns, width)]
    lines += [f'<line x1="0" y1="{y:.1f}" x2="{width:.1f}" y2="{y:.1f}"/>' for y in _cuts(rows, height)]
    frame = f'<rect width="{width:.1f}" height="{height:.1f}" fill="#8fbcd4"/>'
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="-1 -1 {width + 2:.1f} {height + 2:.1f}"'
    return f'<svg {size} stroke="#1b4965">{frame}{"".join(lines)}</svg>'


def _cuts(axis: Axis, side: float) -> list[float]:
    if axis.nblocks > _MOST_LINES:
        return []
    return [axis.block(i)[0] * side / axis.length for i in range(1, axis.nblocks)]
