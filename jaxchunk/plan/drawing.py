"""A plan as a picture: stages one below the other, what they read on the left, what they write on the right.

Plain SVG, the same for the same plan. Its size grows with the stages, never with chunks or tasks.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxchunk.plan.explain import seconds
from jaxchunk.plan.report import size, slots_made
from jaxchunk.plan.traffic import Traffic, sink_tier, tier_of
from jaxchunk.run.sinks import ResultSink, ValueSink, WriteSink
from jaxchunk.run.values import Slot

if TYPE_CHECKING:
    from jaxchunk.plan.plan import Plan

COLOURS = {"storage": "#3b6ea5", "disk": "#b7791f", "host": "#3f7f5f"}
RED = "#c00000"
# Ports of a stage that are drawn one by one, and lines beside each other for values that skip stages.
_MOST_PORTS, _MOST_LANES = 8, 12
_SIDE, _BOX, _GUTTER, _LANE = 190, 330, 96, 9
_PITCH, _LEAST, _GAP, _TOP = 42, 80, 34, 44


class Port(NamedTuple):
    """One thing that a stage reads or writes; `maker` is the stage that a value comes from."""

    name: str
    tier: str
    nbytes: int
    maker: int | None = None
    red: bool = False


class Row(NamedTuple):
    """A stage's ports: from the left, to the right, and from the stage just above it."""

    left: list[Port]
    right: list[Port]
    above: list[Port]

    @property
    def height(self) -> int:
        return max(_LEAST, _PITCH * max(len(self.left), len(self.right)) + 8)


def svg(plan: Plan, figures: dict[str, Any]) -> str:
    """The picture.

    Parameters
    ----------
    figures
        What the plan's `to_dict` gives.
    """
    rows = _rows(plan)
    tops = [_TOP]
    for row in rows:
        tops.append(tops[-1] + row.height + _GAP)
    lanes = _lanes(rows)
    left = _SIDE + _GUTTER + _LANE * (1 + max(lanes.values(), default=-1))
    width, height = left + _BOX + _GUTTER + _SIDE + 20, tops[-1]
    parts = [_header(figures)]
    parts += _lane_lines(rows, tops, lanes, left)
    for number, (row, stage) in enumerate(zip(rows, figures["stages"], strict=True)):
        parts += _stage(number, stage, row, left, tops[number])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">'
        '<defs><marker id="jaxchunk-arrow" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" refX="8" '
        'refY="5" orient="auto"><path d="M0,1 L9,5 L0,9 z" fill="context-stroke"/></marker></defs>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


# --- what there is to draw -----------------------------------------------------------------------------


def _rows(plan: Plan) -> list[Row]:
    makers = {id(slot): number for number, stage in enumerate(plan.stages) for slot in slots_made(stage)}
    read_again = {id(base) for part in plan.traffic for base in part.reads if isinstance(base, Slot)}
    red = plan.results_too_large
    rows = []
    for number, part in enumerate(plan.traffic):
        read = [_input(base, nbytes, makers) for base, nbytes in part.reads.items()]
        above = [port for port in read if port.maker is not None and port.maker == number - 1]
        left = [port for port in read if port not in above]
        rows.append(Row(_folded(left), _folded(list(_outputs(part, read_again, red))), above))
    return rows


def _input(base: Any, nbytes: int, makers: dict[int, int]) -> Port:
    return Port(str(base.name), tier_of(base), nbytes, makers.get(id(base)))


def _outputs(part: Traffic, read_again: set[int], red: bool) -> Iterator[Port]:
    """What stays when the run is over."""
    for sink, nbytes in part.writes:
        tier = str(sink_tier(sink))
        if isinstance(sink, WriteSink):
            yield Port(sink.name, tier, nbytes)
        elif isinstance(sink, ResultSink):
            yield Port("result", tier, nbytes, red=red)
        elif isinstance(sink, ValueSink) and id(sink.slot) not in read_again:
            yield Port("kept", tier, nbytes)


def _folded(ports: list[Port]) -> list[Port]:
    """As many ports as are drawn: the last one stands for all others where there are more."""
    if len(ports) <= _MOST_PORTS:
        return ports
    shown, rest = ports[: _MOST_PORTS - 1], ports[_MOST_PORTS - 1 :]
    nbytes = sum(port.nbytes for port in rest)
    return [*shown, Port(f"{len(rest)} more", rest[0].tier, nbytes, red=any(port.red for port in rest))]


def _lanes(rows: Sequence[Row]) -> dict[int, int]:
    """For each stage whose values skip stages, the lane that they go down: as far to the right as is free."""
    last: dict[int, int] = {}
    for number, row in enumerate(rows):
        for port in row.left:
            if port.maker is not None:
                last[port.maker] = number
    free, lanes = list(range(_MOST_LANES)), {}
    used: list[tuple[int, int]] = []
    for maker in sorted(last):
        while used and used[0][0] <= maker:
            heapq.heappush(free, heapq.heappop(used)[1])
        lanes[maker] = heapq.heappop(free) if free else _MOST_LANES - 1
        if lanes[maker] not in [lane for _, lane in used]:
            heapq.heappush(used, (last[maker], lanes[maker]))
    return lanes


# --- how it is drawn -----------------------------------------------------------------------------------


def _header(figures: dict[str, Any]) -> str:
    fits = figures["fits"]
    words = (
        f"{'Fits' if fits else 'Does not fit'}: peak {size(figures['peak_bytes'])} of {size(figures['budget'])}; "
        f"reads {size(figures['bytes_read'])}, writes {size(figures['bytes_written'])}, "
        f"spills {size(figures['spilled_bytes'])}; about {seconds(figures['seconds'])}"
    )
    return _text(12, 22, words, size=14, colour="#222222" if fits else RED)


def _stage(number: int, stage: dict[str, Any], row: Row, left: int, top: int) -> Iterator[str]:
    colour, fill = ("#33475b", "#f2f5f8") if stage["fits"] else (RED, "#fde4e4")
    tile = "×".join(map(str, stage["tile"])) or "1"
    lines = [
        f"{stage['kernel']['form']}: {stage['tasks']:,} × {tile}, {stage['in_flight']} at once",
        f"{size(stage['host_bytes'])}{'' if stage['fits'] else ' – does not fit'}; "
        f"about {seconds(stage['seconds'])}, {stage['bound_by']}"
        + ("" if stage["strip_of"] is None else f"; strips with {stage['strip_of']}"),
        _end(stage["where"], 48),
    ]
    told = f"{', '.join(stage['operations'])} [{stage['where']}]"
    yield (
        f'<g><title>{escaped(told)}</title><rect x="{left}" y="{top}" width="{_BOX}" height="{row.height}" rx="4" '
        f'fill="{fill}" stroke="{colour}" stroke-width="{1.2 if stage["fits"] else 2.5}"/>'
    )
    yield _text(
        left + 10,
        top + 20,
        f"{number}. {_start(stage['name'], 40)}",
        size=13,
        colour=colour,
        style='font-weight="bold" ',
    )
    for i, line in enumerate(lines):
        yield _text(left + 10, top + 38 + 16 * i, line, colour=colour if not stage["fits"] else "#444444")
    yield "</g>"
    if row.above:
        x = left + _BOX // 2
        yield from _edge([(x, top - _GAP), (x, top)], row.above)
        yield _text(x + 8, top - _GAP // 2 + 4, _amounts(row.above), size=11)
    for i, port in enumerate(row.left):
        y = top + 8 + _PITCH * i + 17
        if port.maker is None:
            yield from _shape(8, y, port)
            yield from _edge([(_SIDE, y), (left, y)], [port])
        yield _text(left - 10, y - 4, size(port.nbytes), size=11, style='text-anchor="end" ')
    for i, port in enumerate(row.right):
        x, y = left + _BOX, top + 8 + _PITCH * i + 17
        yield from _edge([(x, y), (x + _GUTTER, y)], [port])
        yield _text(x + 10, y - 4, size(port.nbytes), size=11)
        yield from _shape(x + _GUTTER, y, port)


def _lane_lines(rows: Sequence[Row], tops: Sequence[int], lanes: dict[int, int], left: int) -> Iterator[str]:
    """Values that skip stages: out of their maker on the left, down a lane, and into each that reads them."""
    for number, row in enumerate(rows):
        for i, port in enumerate(row.left):
            if port.maker is not None:
                x = left - _GUTTER + 8 - _LANE * lanes[port.maker]
                start = tops[port.maker] + rows[port.maker].height - 6
                y = tops[number] + 8 + _PITCH * i + 17
                yield from _edge([(left, start), (x, start), (x, y), (left, y)], [port])


def _shape(x: int, y: int, port: Port) -> Iterator[str]:
    """A drum for what is stored, a box for what is in memory, a tray for a file of our own."""
    colour = RED if port.red else COLOURS[port.tier]
    style = f'fill="{"#fde4e4" if port.red else "#ffffff"}" stroke="{colour}" stroke-width="{2.5 if port.red else 1.2}"'
    w, h = _SIDE - 8, 30
    top = y - h // 2
    yield f"<g><title>{escaped(port.name)}</title>"
    if port.tier == "storage":
        lid, bow = f"M{x},{top + 5}", f"a{w / 2:.1f},5 0 0"
        yield f'<path d="{lid} {bow} 1 {w},0 v{h - 10} {bow} 1 {-w},0 z {lid} {bow} 0 {w},0" {style}/>'
    else:
        dash = ' stroke-dasharray="5 3"' if port.tier == "disk" else ""
        yield f'<rect x="{x}" y="{top}" width="{w}" height="{h}" rx="8" {style}{dash}/>'
    yield _text(x + 8, y + 6, _end(port.name, 26), size=11, colour=colour) + "</g>"


def _edge(points: Sequence[tuple[int, int]], ports: Sequence[Port]) -> Iterator[str]:
    """A line with an arrow, wider for more bytes."""
    nbytes = sum(port.nbytes for port in ports)
    tier = "disk" if any(port.tier == "disk" for port in ports) else ports[0].tier
    colour = RED if any(port.red for port in ports) else COLOURS[tier]
    width = 1 + 0.3 * max(0.0, math.log2(max(1, nbytes) / 2**16))
    path = " ".join(f"{'L' if i else 'M'}{x},{y}" for i, (x, y) in enumerate(points))
    yield (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:.1f}" marker-end="url(#jaxchunk-arrow)"/>'
    )


def _amounts(ports: Sequence[Port]) -> str:
    by_tier: dict[str, int] = defaultdict(int)
    for port in ports:
        by_tier[port.tier] += port.nbytes
    ways = {"disk": "by way of disk", "host": "in memory"}
    return ", ".join(f"{size(nbytes)} {ways[tier]}" for tier, nbytes in by_tier.items())


def _text(x: int, y: int, words: str, size: int = 12, colour: str = "#444444", style: str = "") -> str:
    """A line of text, with a white rim where it crosses others; `style` are further attributes."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" {style}stroke="#ffffff" stroke-width="2" '
        f'paint-order="stroke">{escaped(words)}</text>'
    )


def escaped(words: str) -> str:
    """Escaped, without the control characters that XML doesn't have."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words))


def _start(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _end(words: str, most: int) -> str:
    return words if len(words) <= most else f"…{words[1 - most :]}"
