"""What work costs, counted: chunks fetched, bytes read, written and spilled, kernels, calls made while planning."""

from __future__ import annotations

import math
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB, check_memory, measure
from helpers.synthetic import SinkStore, synthetic_array
from zarr.storage import MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from benchmarks import data
from benchmarks.peers import JaxChunk
from benchmarks.rows import ROWS
from jaxchunk.array_api._array import Array


def pattern(i: Any, j: Any) -> Any:
    return (i * 7 + j * 3) % 101


# --- narrow data stay narrow ------------------------------------------------------------------------

NARROW = [
    pytest.param((4096, 4096), (512, 512), (64, 4096), id="tiles to bands"),
    pytest.param((4096, 4096), (64, 4096), (4096, 64), id="rows to columns"),
    pytest.param((4096, 4096), (500, 300), (300, 500), id="ragged"),
]


@pytest.mark.parametrize(("shape", "chunks", "target"), NARROW)
def test_widening_for_a_moment_neither_spills_nor_reads_twice(shape: Any, chunks: Any, target: Any) -> None:
    z = synthetic_array(shape, chunks, "int8", pattern)
    sink = SinkStore(lambda key: True)
    whole = math.prod(shape)
    with budget(whole + 16 * MIB), jc.profile() as p:  # the int8 array fits, the int32 one (4 ×) does not
        wide = xp.astype(jc.from_zarr(z), xp.int32) + 1
        jc.to_zarr(xp.astype(jc.rechunk(wide, target), xp.int8), sink, chunks=target)
    assert set(z.store.counts.gets.values()) == {1}
    assert p.to_dict()["spilled_bytes"] == 0
    assert max(sink.counts.sets.values()) == 1
    expected = z.store.values([(0, n) for n in shape]) + np.int8(1)
    np.testing.assert_array_equal(zarr.open_array(sink)[...], expected)


def test_what_is_spilled_is_read_once_in_whatever_tiles() -> None:
    z = synthetic_array((1024, 1024), (128, 128), "float64", pattern)
    sink = SinkStore(lambda key: True)
    with budget(4 * MIB), jc.profile() as p:  # along rows in bands of them, then along columns
        rows = xp.fft.fft(jc.from_zarr(z), axis=1)
        jc.to_zarr(xp.fft.fft(rows, axis=0), sink, chunks=(1024, 8))
    figures = p.to_dict()
    assert figures["spilled_bytes"] == 16 * MIB
    assert figures["spill_read_bytes"] <= 1.1 * 16 * MIB
    expected = np.fft.fft2(z.store.values(((0, 1024), (0, 1024))))
    np.testing.assert_allclose(zarr.open_array(sink)[...], expected, atol=1e-9 * np.abs(expected).max())


# --- reshapes ---------------------------------------------------------------------------------------

FLAT = [
    pytest.param(lambda x: xp.sort(x)[::999], lambda x: np.sort(x)[::999], id="sort"),
    pytest.param(lambda x: xp.cumulative_sum(x)[::999], lambda x: np.cumsum(x)[::999], id="cumulative_sum"),
    pytest.param(
        lambda x: xp.max(xp.reshape(x, (256, -1)), axis=0)[::99], lambda x: x.reshape(256, -1).max(0)[::99], id="max"
    ),
]


@pytest.mark.parametrize(("function", "expected"), FLAT)
def test_square_chunks_of_a_flattened_array_are_decoded_once(function: Any, expected: Any) -> None:
    """Rows of all chunks beside each other don't fit: they are copied once, and read in parts from there."""
    z = synthetic_array((1024, 1024), (128, 128), "int64", pattern)
    with budget(2 * MIB), jc.profile() as p:
        got = function(xp.reshape(jc.from_zarr(z), (-1,))).compute()
    assert set(z.store.counts.gets.values()) == {1}
    assert p.to_dict()["ledger_peak_bytes"] <= p.to_dict()["planned_peak_bytes"] <= 2 * MIB
    np.testing.assert_array_equal(got, expected(z.store.values([(0, 1024), (0, 1024)]).reshape(-1)))


# --- rechunking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "a", "b"),
    [
        (1_000_000, 1000, 999),
        (1_000_000, 1000, 1001),
        (1_000_000, 777, 1000),
        pytest.param(10_000_000, 1000, 999, marks=pytest.mark.long),
    ],
)
def test_coprime_chunks_there_and_back_read_little_more_than_the_data(
    tmp_path: Path, length: int, a: int, b: int
) -> None:
    z = synthetic_array((length,), (a,), "float64", lambda i: i)
    whole = 8 * length
    with budget(4 * MIB):
        for source, target, chunk in (
            (z, tmp_path / "there.zarr", b),
            (tmp_path / "there.zarr", tmp_path / "back.zarr", a),
        ):
            with jc.profile() as p:
                jc.to_zarr(jc.rechunk(jc.from_zarr(source), (chunk,)), target, chunks=(chunk,))
            figures = p.to_dict()
            assert figures["bytes_read"] + figures["spilled_bytes"] <= 2.5 * whole
            assert figures["bytes_written"] <= 1.01 * whole
    assert sum(z.store.counts.gets.values()) <= 2.5 * -(-length // a)
    there, back = (zarr.open_array(tmp_path / f"{name}.zarr", mode="r") for name in ("there", "back"))
    assert there.chunks == (b,)
    assert back.chunks == (a,)
    np.testing.assert_array_equal(back[...], np.arange(float(length)))


def test_coprime_chunks_in_two_dimensions() -> None:
    z = synthetic_array((1000, 1000), (100, 100), "float64", lambda i, j: i * 1000 + j)
    there, back = MemoryStore(), MemoryStore()
    with budget(4 * MIB), jc.profile() as p:
        jc.to_zarr(jc.rechunk(jc.from_zarr(z), (99, 99)), there, chunks=(99, 99))
        jc.to_zarr(jc.rechunk(jc.from_zarr(there), (100, 100)), back, chunks=(100, 100))
    assert p.to_dict()["bytes_read"] + p.to_dict()["spilled_bytes"] <= 2 * 2.5 * 8e6
    np.testing.assert_array_equal(zarr.open_array(back)[...], np.arange(1e6).reshape(1000, 1000))


FLAT = [
    pytest.param((1000, 62_500), (10, 62_500), (100, 625), 8 * MIB, id="twin"),
    pytest.param((1000, 1_000_000), (10, 1_000_000), (100, 10_000), 128 * MIB, marks=pytest.mark.long, id="full"),
]


@pytest.mark.parametrize(("shape", "chunks", "target", "nbytes"), FLAT)
def test_long_compressed_rows_become_tiles(shape: Any, chunks: Any, target: Any, nbytes: int) -> None:
    measured = measure("rechunked", shape=shape, chunks=chunks, target=target, nbytes=nbytes, compressor="zstd")
    check_memory(measured, nbytes)
    value, figures = measured["value"], measured["profile"]
    assert value["right"] == value["kept"] > 0
    assert value["writes"] == 1
    assert value["keys"] == math.prod(-(-n // c) for n, c in zip(shape, target, strict=True))
    whole = 4 * math.prod(shape)
    assert figures["bytes_read"] <= 1.1 * whole, "each chunk is decoded once"
    assert figures["spilled_bytes"] <= 1.1 * whole


# --- only what is asked for ---------------------------------------------------------------------------------


def touched(plan: Any) -> int:
    """Elements of all the tiles that a plan computes."""
    return sum(
        math.prod(sum(count * size for count, size in axis) for axis in stage["grid"])
        for stage in plan.to_dict()["stages"]
    )


def test_a_window_of_a_range_touches_only_the_window() -> None:
    n = 12 * 4**15
    x = xp.arange(n, dtype=xp.uint64)
    window = x[n // 2 : n // 2 + 1000]
    assert touched(jc.plan(window)) == 1000
    np.testing.assert_array_equal(window.compute(), np.arange(n // 2, n // 2 + 1000, dtype=np.uint64))
    far = (x * 2 + 1)[::-1][3:7]
    assert touched(jc.plan(far)) == 4
    assert far.compute().tolist() == [2 * (n - 1 - k) + 1 for k in range(3, 7)]


@pytest.mark.parametrize(
    ("count", "nbytes"), [(12_500_000, 16 * MIB), pytest.param(200_000_000, 256 * MIB, marks=pytest.mark.long)]
)
def test_a_long_slice_of_a_range_is_summed_in_little_memory(count: int, nbytes: int) -> None:
    n = 12 * 4**15
    start = n // 2 - 17
    with budget(nbytes), jc.profile() as p:
        total = int(xp.sum(xp.arange(n, dtype=xp.uint64)[start : start + count]))
    assert total == (start * count + count * (count - 1) // 2) % 2**64
    figures = p.to_dict()
    assert figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= nbytes
    assert figures["spilled_bytes"] == 0


def calls(make: Any) -> int:
    """Python functions called."""
    number = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal number
        number += event == "call"

    sys.setprofile(count)
    try:
        make()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("axis", [0, 1, None])
def test_a_million_chunks_are_planned_as_ten_thousand(axis: int | None) -> None:
    def mean(blocks: int) -> Array:
        z = synthetic_array((10 * blocks, 10 * blocks), (10, 10), "float32", pattern)
        return xp.mean(jc.from_zarr(z), axis=axis)

    many, few = mean(1000), mean(100)
    with budget(64 * MIB):
        jc.plan(few)
        tracemalloc.start()
        plan = jc.plan(many)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # A search for tiles takes some more steps on a longer axis: nothing like 100 times as many.
        assert calls(lambda: jc.plan(many)) <= 3 * calls(lambda: jc.plan(few))
    assert peak < 5 * MIB
    assert len(plan.to_dict()["stages"]) == 1
    assert len(plan.explain()) < 5000


def test_one_element_of_a_mean_reads_only_its_own_chunks() -> None:
    def its_own(i: Any, j: Any) -> Any:
        # At once, since there are a million others.
        assert j.min() // 10 == 432, f"asked for column {j.min()}"
        return pattern(i, j)

    z = synthetic_array((10_000, 10_000), (10, 10), "float32", its_own)
    value = float(xp.mean(jc.from_zarr(z), axis=0)[4321])
    assert set(z.store.counts.gets.values()) == {1}
    assert len(z.store.counts.gets) == 1000
    expected = z.store.values(((0, 10_000), (4321, 4322))).astype(np.float64).mean()
    assert value == pytest.approx(expected, rel=1e-6)


def test_ten_rows_of_a_long_expression_read_their_chunks_alone() -> None:
    z = synthetic_array((10_000, 64), (100, 64), "float64", pattern)
    x = jc.from_zarr(z)
    y = xp.sqrt(xp.abs(x * 2 - 1))[::-1][5:15] + 1
    n = z.store.values(((9_985, 9_995), (0, 64)))
    np.testing.assert_allclose(y.compute(), np.sqrt(np.abs(n * 2 - 1))[::-1] + 1, rtol=1e-14)
    assert dict(z.store.counts.gets) == {"c/99/0": 1}


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("nbytes", [2 * MIB, 32 * MIB])
def test_neighbours_differences_decode_each_chunk_once(axis: int, nbytes: int) -> None:
    z = synthetic_array((1000, 600), (100, 120), "float64", lambda i, j: (i * i + j * j * 3) % 1013)
    x = jc.from_zarr(z)
    after, before = (x[1:], x[:-1]) if axis == 0 else (x[:, 1:], x[:, :-1])
    sink = SinkStore(lambda key: True)
    with budget(nbytes):
        jc.to_zarr(after - before, sink, chunks=(100, 120))
    n = z.store.values(((0, 1000), (0, 600)))
    np.testing.assert_array_equal(zarr.open_array(sink)[...], np.diff(n, axis=axis))
    assert set(z.store.counts.gets.values()) == {1}


def test_a_second_difference_folded_decodes_each_chunk_once() -> None:
    z = synthetic_array((100_000,), (1000,), "float64", lambda i: (i * i) % 1013)
    x = jc.from_zarr(z)
    with budget(MIB):
        value = float(xp.sum(xp.abs(x[2:] - 2 * x[1:-1] + x[:-2])))
    assert value == float(np.abs(np.diff(z.store.values(((0, 100_000),)), 2)).sum())
    assert set(z.store.counts.gets.values()) == {1}


# --- names for intermediate results cost nothing -----------------------------------------------------------


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return data.make(tmp_path_factory.mktemp("rows"), 16, set(data.INPUTS))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.needs is None])
def test_holding_every_subexpression_moves_no_more_bytes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, inputs: dict[str, Path], name: str
) -> None:
    row = ROWS[name]
    held: list[Any] = []
    make = Array.__init__

    def bytes_moved(hold: bool) -> int:
        def init(self: Array, *args: Any, **kw: Any) -> None:
            make(self, *args, **kw)
            if hold:
                held.append(self)

        monkeypatch.setattr(Array, "__init__", init)
        peer = JaxChunk("2 MiB", tmp_path)
        arrays = [peer.open(inputs[i]) for i in row.inputs]
        side = arrays[0].shape[0]
        with jc.profile() as p:
            result = row.body(peer, *arrays)
            if row.stored is None:
                np.asarray(result)
            else:
                peer.write(result, tmp_path / f"{hold}.zarr", row.stored(side, side // 8))
        figures = p.to_dict()
        return int(figures["bytes_read"] + figures["bytes_written"] + figures["spilled_bytes"])

    before = jc.config.get()
    try:
        free, all_held = bytes_moved(False), bytes_moved(True)
    finally:
        jc.config.set(host_memory=before.host_memory)
    assert len(held) > len(row.inputs)
    assert all_held <= 1.1 * free
