"""What is promised of large arrays: how often they are read, what is written, and that size isn't what counts."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB
from helpers.synthetic import SinkStore, sink_store, synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.run.runtime import runtime

long = pytest.mark.long


def keeps_to(profile: Any, nbytes: int) -> dict[str, Any]:
    figures: dict[str, Any] = profile.to_dict()
    held, reserved, planned = (figures[f"{key}_peak_bytes"] for key in ("ledger", "reserved", "planned"))
    assert 0 < held <= reserved <= planned <= nbytes
    assert not any(stage["grown_bytes"] for stage in figures["stages"]), "the memory model was too small"
    return figures


# --- rows into blocks, and a mean, in one run -----------------------------------------------------------------


GIGABYTE = (250_000, 625, 32 * MIB)  # columns, those of a block that is written, and room besides a chunk
SIXTEEN = (4_000_000, 10_000, 512 * MIB)


@pytest.mark.parametrize(
    ("columns", "width", "room", "axis"),
    [
        pytest.param(*GIGABYTE, 0, id="1 GB"),
        pytest.param(*SIXTEEN, 0, id="16 GB, axis 0", marks=long),
        pytest.param(*SIXTEEN, 1, id="16 GB, axis 1", marks=long),
    ],
)
def test_long_rows_are_recut_and_averaged_in_one_run(columns: int, width: int, room: int, axis: int) -> None:
    """Within a budget for one chunk of the source and a thirtieth of it all; each byte is read once."""
    rows, high, distinct = 1000, 10, 30
    z = synthetic_array((rows, columns), (high, columns), "float32", lambda i, j: (i * 7 + j * 3) % 1009, period=(3, 1))
    nbytes = room + 2 * high * columns * 4  # of the chunk: decoded, and encoded
    sink = sink_store((rows // 100, columns // width), windows=6)
    u = jc.from_zarr(z)
    with budget(nbytes), jc.profile() as p:
        mean, _ = jc.compute(xp.mean(u, axis=axis), jc.to_zarr(u, sink, chunks=(100, width), compute=False))
    keeps_to(p, nbytes)
    assert z.store.counts.bytes_read == 4 * rows * columns
    expected = np.zeros(mean.shape)
    for k in range(distinct):  # the rows come again and again
        row = z.store.values(((k, k + 1), (0, columns)))[0].astype(np.float64)
        if axis == 0:
            expected += row * len(range(k, rows, distinct)) / rows
        else:
            expected[k::distinct] = row.mean()
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    written = zarr.open_array(sink)
    for i, j in sink.kept:
        box = ((i * 100, i * 100 + 100), (j * width, j * width + width))
        np.testing.assert_array_equal(written[tuple(slice(*span) for span in box)], z.store.values(box))
    assert max(sink.counts.sets.values()) == 1
    assert sum(key.startswith("c/") for key in sink.counts.sets) == rows // 100 * (columns // width)


# --- what is left of a mean -------------------------------------------------------------------------------------

# The side, and that of its 8 × 8 chunks; in float32. A strip is an eighth.
SIZES = [pytest.param(8192, 1024, id="256 MiB"), pytest.param(16384, 2048, id="1 GiB", marks=long)]


@pytest.mark.parametrize(
    ("share", "reads"),
    [pytest.param(1 / 12, 2, id="some chunks"), pytest.param(3 / 8, 1, id="a strip"), pytest.param(5 / 2, 1, id="all")],
)
@pytest.mark.parametrize(("side", "chunk"), SIZES)
def test_a_centred_array_reads_its_source_twice_at_most(side: int, chunk: int, share: float, reads: int) -> None:
    """Once where the budget, given in sizes of the source, holds a strip of columns; nothing else is written."""
    z = synthetic_array((side, side), (chunk, chunk), "float32", lambda i, j: (i * i + 3 * j) % 101, period=(3, 2))
    blocks_an_axis = side // chunk
    sink = sink_store((blocks_an_axis,) * 2, windows=3)
    u = jc.from_zarr(z)
    nbytes = int(share * 4 * side**2)
    with budget(nbytes), jc.profile() as p:
        jc.to_zarr(u - xp.mean(u, axis=0), sink, chunks=(chunk, chunk))
    figures = keeps_to(p, nbytes)
    assert len(z.store.counts.gets) == blocks_an_axis**2
    assert z.store.counts.bytes_read <= reads * 4 * side**2
    assert figures["spilled_bytes"] == 0
    assert max(sink.counts.sets.values()) == 1
    assert sum(key.startswith("c/") for key in sink.counts.sets) == blocks_an_axis**2
    written = zarr.open_array(sink)
    for i, j in sink.kept:
        columns = z.store.values(((0, side), (j * chunk, j * chunk + chunk))).astype(np.float64)
        expected = (columns - columns.mean(0))[i * chunk : i * chunk + chunk]
        found = written[i * chunk : i * chunk + chunk, j * chunk : j * chunk + chunk]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("side", "chunk"), [pytest.param(1024, 128, id="4 MiB"), SIZES[1]])
def test_intermediates_that_fit_stay_off_the_disk(side: int, chunk: int) -> None:
    """A sum along rows needs all of the one along columns before it: it is kept, in memory where there is room."""
    z = synthetic_array((side, side), (chunk, chunk), "float32", lambda i, j: (i + 3 * j) % 7)
    u, whole = jc.from_zarr(z), 4 * side**2
    spilled = []
    for nbytes in (whole // 2, 3 * whole):
        with budget(nbytes), jc.profile() as p:
            y = xp.cumulative_sum(xp.cumulative_sum(u, axis=0), axis=1)
            jc.to_zarr(y, SinkStore(), chunks=(chunk, chunk))
        spilled.append(keeps_to(p, nbytes)["spilled_bytes"])
    assert spilled[0] > 0 == spilled[1]


# --- a terabyte -----------------------------------------------------------------------------------------------------


class EnoughError(Exception):
    """So many tasks have run."""


TASKS = 100
JOBS = {
    "mean": lambda u, chunk: xp.mean(u, axis=0),
    "elementwise": lambda u, chunk: jc.to_zarr(xp.sqrt(u) * 2 + 1, SinkStore(), compute=False),
    "centred": lambda u, chunk: jc.to_zarr(u - xp.mean(u, axis=0), SinkStore(), compute=False),
    "rechunked": lambda u, chunk: jc.to_zarr(u, SinkStore(), chunks=(chunk // 2, 3 * chunk), compute=False),
    "sorted": lambda u, chunk: jc.to_zarr(xp.sort(u, axis=0), SinkStore(), compute=False),
}


def terabyte(chunk: int, side: int = 2**19) -> Any:
    """Float32 whose chunks are made once: one or the other of four."""
    return synthetic_array((side, side), (chunk, chunk), "float32", lambda i, j: (i * 7 + j) % 1009, period=(2, 2))


@pytest.mark.parametrize("name", ["elementwise", "rechunked"])  # a task of the others is a whole strip
@pytest.mark.parametrize(
    ("chunk", "nbytes"),
    [pytest.param(512, 512 * MIB, id="512 MiB"), pytest.param(2048, 8_000_000_000, id="8 GB", marks=long)],
)
def test_the_first_tasks_of_a_terabyte_keep_to_the_budget(chunk: int, nbytes: int, name: str) -> None:
    z = terabyte(chunk)

    def stop(stage: Any, done: int) -> None:
        ran.append(stage)
        if len(ran) >= TASKS:
            raise EnoughError

    ran: list[Any] = []
    with budget(nbytes):
        plan = jc.plan(JOBS[name](jc.from_zarr(z), chunk))
        assert plan.problem is None
        assert not z.store.counts.gets
        with pytest.raises(EnoughError):
            plan.run(stop)
    ledger = runtime().ledger
    assert len(ran) >= TASKS
    assert z.store.counts.gets
    assert 0 < ledger.held_peak <= ledger.reserved_peak <= plan.peak <= nbytes


@pytest.mark.parametrize("name", JOBS)
def test_a_terabyte_is_no_more_work_to_plan_than_a_gigabyte(name: str) -> None:
    """In calls of functions: the chunks of neither are gone through."""

    def calls(side: int) -> int:
        u = jc.from_zarr(terabyte(512, side))
        request = JOBS[name](u, 512)
        count = 0

        def counted(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        with budget(64 * MIB):
            jc.plan(request)
            sys.setprofile(counted)
            try:
                jc.plan(request)
            finally:
                sys.setprofile(None)
        return count

    assert calls(2**19) < 3 * calls(2**14) < 2_000_000
