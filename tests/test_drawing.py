"""Plans drawn: what is red, what is escaped, how long a picture gets, what a page holds."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB
from helpers.plans import source, standardised, stored, written
from helpers.synthetic import synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.plan.drawing import RED
from jaxchunk.plan.plan import Plan

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> list[ElementTree.Element]:
    """The shapes of a picture that have a title: stages, sources, results."""
    return [g for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]


def red(svg: str) -> list[str]:
    """The titles of what is red."""
    found = []
    for box in boxes(svg):
        (shape,) = [child for child in box if child.tag in (f"{SVG}rect", f"{SVG}path")]
        if shape.get("stroke") == RED:
            found.append(str(box.findtext(f"{SVG}title")))
    return found


def texts(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext())


def test_the_picture_has_stages_sources_results_and_bytes(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "u.zarr", data=np.ones((1024, 1024), "float32"), chunks=(128, 128))
    u = jc.from_zarr(tmp_path / "u.zarr")
    with budget(MIB):
        write = jc.to_zarr((u - xp.mean(u, axis=0)) / 2, tmp_path / "v.zarr", compute=False)
        plan = jc.plan(write, xp.max(u, axis=1))
        picture = plan.to_svg(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text() == picture
    titles = [str(box.findtext(f"{SVG}title")) for box in boxes(picture)]
    assert any("sum" in title and __file__ in title for title in titles)
    assert str(tmp_path / "u.zarr") in titles and str(tmp_path / "v.zarr") in titles and "result" in titles
    assert "4 MiB" in texts(picture) and "KiB in memory" in texts(picture)
    assert titles.count("kept") == 1, "the result, which is remembered as well, and no value on the way"
    assert red(picture) == []


def test_equal_plans_have_equal_pictures() -> None:
    z = stored()

    def picture() -> tuple[str, str]:
        plan = jc.plan(standardised(jc.from_zarr(z)))
        names = r"memory://\d+"  # two targets are two places
        return re.sub(names, "", plan.to_svg()), re.sub(names, "", plan.to_html())

    assert len({picture() for _ in range(2)}) == 1


def test_the_stage_that_does_not_fit_is_red_and_no_other() -> None:
    u = source()
    with budget(2 * MIB):
        block = jc.map_blocks(lambda b: b * 2, xp.reshape(xp.sum(u, axis=0), (1024, 1)).rechunk(-1) + u.rechunk(-1))
        plan = jc.plan(xp.max(block))
        figures = plan.to_dict()
    (name,) = [stage["name"] for stage in figures["stages"] if not stage["fits"]]
    assert len(figures["stages"]) > 1
    assert plan.problem is not None and plan.problem.startswith(f"{name}, asked for at")
    (title,) = red(plan.to_svg())
    assert "<lambda>" in title
    assert f"{name}" in plan.explain() and "<- doesn't fit" in plan.explain()
    assert 'class="misfit"' in plan.to_html() and 'class="problem"' in plan.to_html()


def test_a_result_that_does_not_fit_is_red_and_its_stage_is_not() -> None:
    with budget(4 * MIB):
        plan = jc.plan(source()[:1000] * 2)
    assert plan.problem is not None and "results asked for" in plan.problem
    assert red(plan.to_svg()) == ["result"]
    assert all(stage["fits"] for stage in plan.to_dict()["stages"])


def test_names_are_escaped_and_cannot_break_the_picture(tmp_path: Path) -> None:
    name = "<b>&\"'\x07]]>.zarr"
    zarr.create_array(tmp_path / name, data=np.ones((4, 4)), chunks=(2, 2))
    plan = jc.plan(xp.sum(jc.from_zarr(tmp_path / name)))
    titles = [str(box.findtext(f"{SVG}title")) for box in boxes(plan.to_svg())]
    assert str(tmp_path / name).replace("\x07", "\N{REPLACEMENT CHARACTER}") in titles
    page = plan.to_html()
    assert "<b>" not in page and "\x07" not in page
    Parsed().feed(page)


def chain(links: int) -> Plan:
    """A plan of many stages, some of whose values skip others."""
    u = source((256, 256), (64, 64))
    x = u
    for _ in range(links):
        x = x - xp.mean(x, axis=0) * xp.max(u)
    return jc.plan(written(x))


def test_plans_of_many_stages_are_drawn_in_length_that_is_linear_in_them() -> None:
    pictures = {links: (len(plan.stages), plan.to_svg()) for links in (25, 100) for plan in [chain(links)]}
    (few, small), (many, large) = pictures.values()
    assert many >= 3.5 * few >= 80
    assert len(large) / many <= 1.2 * len(small) / few
    root = ElementTree.fromstring(large)
    assert float(root.get("width", "")) < 1000, "lanes are used again"
    assert len(boxes(large)) >= many


def test_many_sources_of_a_stage_are_folded_into_one() -> None:
    parts = [source((16, 16), (8, 8)) for _ in range(100)]
    picture = jc.plan(xp.sum(xp.concat(parts))).to_svg()
    assert "93 more" in texts(picture)
    assert len(boxes(picture)) == 1 + 8 + 2  # a stage, its sources, a result that is remembered as well


class Parsed(HTMLParser):
    """Elements that are opened and closed in turn, and what they refer to."""

    VOID = ("meta", "br", "img", "link")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)
        self.links += [value for name, value in attributes if name in ("href", "src")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_has_measured_figures_once_it_ran(tmp_path: Path) -> None:
    with budget(8 * MIB):
        plan = jc.plan(standardised(source()))
        before, fragment = plan.to_html(), plan._repr_html_()
        plan.run()
        after = plan.to_html(tmp_path / "plan.html")
    assert (tmp_path / "plan.html").read_text() == after
    for page in (before, after, fragment):
        parsed = Parsed()
        parsed.feed(page)
        assert not parsed.open
        assert {"svg", "table", "style"} <= parsed.tags and not {"script", "img", "link"} & parsed.tags
        assert not parsed.links
        assert "url(" not in page.replace("url(#jaxchunk-arrow)", "")
    assert "<th>measured</th>" not in before and "<th>measured</th>" in after
    assert "<html" not in fragment
    assert "held at most" in after and "held at most" not in before


def test_the_memory_bar_is_as_long_as_the_peak() -> None:
    with budget(8 * MIB):
        plan = jc.plan(xp.sum(source(), axis=0))
    bar = re.search(r"<svg[^>]*>(<rect.*?)</svg>", plan.to_html())
    assert bar is not None
    peak, whole = (float(w) for w in re.findall(r'width="([\d.]+)" height="22"', bar[1]))
    assert peak / whole == pytest.approx(plan.to_dict()["peak_bytes"] / (8 * MIB), rel=0.01)


def test_text_and_picture_do_not_grow_with_the_number_of_chunks() -> None:
    def lengths(n: int) -> tuple[int, int]:
        x = jc.from_zarr(synthetic_array((n, 1000), (100, 1000), "float32", lambda i, j: i + j))
        plan = jc.plan(xp.sum(x * 2 + 1, axis=0))
        return len(plan.explain()), len(plan.to_svg())

    few, many = lengths(1000), lengths(1_000_000_000)
    assert many[0] <= few[0] + 60 and many[1] <= few[1] + 60
