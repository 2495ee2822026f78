"""Chunks that are large for the budget: read in parts where they are bare values, refused with what to do where not."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget, nothing_is_left
from helpers.measure import MIB, check_memory, measure
from helpers.synthetic import CountingStore, SyntheticStore, read_all, synthetic_array
from zarr.codecs import BytesCodec, Crc32cCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import MemoryBudgetError, SourceChangedError, StorageError
from jaxchunk.store import POOL, StoredArray, in_parts, mark_stale, open_array

BIG = BytesCodec(endian="big")
LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {"dtype": "<f4"},
    "v3, big-endian": {"dtype": "<f4", "serializer": BIG},
    "v3, transposed": {"dtype": "<f4", "filters": [TransposeCodec(order=(1, 0))]},
    "v2": {"dtype": "<f4", "zarr_format": 2},
    "v2, big-endian": {"dtype": ">f4", "zarr_format": 2},
    "v2, F order": {"dtype": "<f4", "zarr_format": 2, "order": "F"},
}


def stored(place: Any, values: np.ndarray[Any, Any], chunks: tuple[int, ...], **parameters: Any) -> Any:
    parameters = {"dtype": values.dtype, "compressors": None, **parameters}
    z = zarr.create_array(place, shape=values.shape, chunks=chunks, **parameters)
    z[...] = values
    return z


# --- the parts themselves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "chunks"), [((13, 17), (5, 6)), ((13, 17), (13, 17)), ((5, 3), (7, 9))])
def test_parts_of_any_size_hold_what_the_chunks_hold(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], layout: str, local: bool
) -> None:
    place = tmp_path / "x.zarr" if local else MemoryStore()
    values = np.random.default_rng(0).standard_normal(shape).astype("f4")
    stored(place, values, chunks, **LAYOUTS[layout])
    array = open_array(place)
    for most in (1, 4, 8, 12, 20, 44, 100):
        parted = in_parts(array, most)
        assert parted is not array and parted.layout.unit_nbytes <= max(4, most)
        assert parted is in_parts(array, most)  # so that what is kept of it is found again
        np.testing.assert_array_equal(read_all(parted), values)
    assert in_parts(array, 10_000) is array


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
def test_parts_of_three_axes_stored_in_any_order_and_in_shards(tmp_path: Path, order: tuple[int, ...]) -> None:
    values = np.arange(7 * 8 * 9, dtype="i8").reshape(7, 8, 9)
    filters = [TransposeCodec(order=order)] if order != (0, 1, 2) else None
    stored(tmp_path / "plain", values, (4, 5, 7), filters=filters, serializer=BIG)
    stored(tmp_path / "sharded", values, (4, 4, 3), shards=(8, 8, 6), filters=filters)
    for name in ("plain", "sharded"):
        for most in (8, 30, 100, 150):
            np.testing.assert_array_equal(read_all(in_parts(open_array(tmp_path / name), most)), values)


def test_a_part_is_one_range_and_two_where_it_goes_on_in_the_next_chunk() -> None:
    store = CountingStore(MemoryStore())
    values = np.arange(22, dtype="i4")
    stored(store, values, (11,))  # of a prime length
    parted = in_parts(open_array(store), 16)
    assert [axis.largest for axis in parted.grid] == [4]
    seen = []
    for index in range(6):
        store.counts.reset()
        out = np.empty(min(4, 22 - 4 * index), "i4")
        parted.read_chunk((index,), out)
        np.testing.assert_array_equal(out, values[4 * index : 4 * index + 4])
        assert store.counts.bytes_read == out.nbytes
        seen.append(sum(store.counts.gets.values()))
    assert seen == [1, 1, 2, 1, 1, 1]


def test_rows_divide_the_chunk_where_they_can() -> None:
    array = open_array(synthetic_array((300, 1000), (100, 1000), "f4", lambda i, j: i + j))
    assert in_parts(array, 33 * 4000).layout.unit == (25, 1000)
    assert in_parts(array, 3999).layout.unit == (1, 500)
    prime = open_array(synthetic_array((303, 1000), (101, 1000), "f4", lambda i, j: i + j))
    assert in_parts(prime, 33 * 4000).layout.unit == (33, 1000)


@pytest.mark.parametrize("parameters", [{"compressors": "auto"}, {"compressors": [Crc32cCodec()]}])
def test_what_is_compressed_or_checked_is_not_read_in_parts(parameters: dict[str, Any]) -> None:
    store = MemoryStore()
    stored(store, np.ones((10, 10)), (10, 10), **parameters)
    array = open_array(store)
    assert in_parts(array, 8) is array


def test_missing_chunks_are_nan_and_unreadable_ones_are_not(tmp_path: Path) -> None:
    values = np.arange(64.0).reshape(8, 8)
    z = stored(tmp_path / "x.zarr", values, (4, 8), fill_value=np.nan)
    (tmp_path / "x.zarr" / "c" / "0" / "0").unlink()
    np.testing.assert_array_equal(read_all(in_parts(open_array(z), 64)), np.r_[np.full((4, 8), np.nan), values[4:]])
    strict = in_parts(open_array(z, missing="error"), 64)
    with pytest.raises(StorageError, match=r"chunk \(0, 0\) of array .*x.zarr .*never written"):
        read_all(strict)
    file = tmp_path / "x.zarr" / "c" / "1" / "0"
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole + b"x", b""):
        file.write_bytes(damaged)
        parted = in_parts(open_array(z), 64)
        with pytest.raises(StorageError, match=r"chunk \(1, 0\) of array .*x.zarr .*key 'c/1/0'.* bytes"):
            parted.read_chunk((4, 0), np.empty((1, 8)))  # also where these bytes are there


def test_a_chunk_cut_short_in_a_store_is_damaged() -> None:
    store = MemoryStore()
    stored(store, np.arange(16.0), (16,))
    store._store_dict["c/0"] = store._store_dict["c/0"][:100]
    parted = in_parts(open_array(store), 16)
    out = np.empty(2)
    parted.read_chunk((0,), out)
    with pytest.raises(StorageError, match=r"chunk \(0,\) of array"):
        parted.read_chunk((7,), out)


def test_parts_are_stale_when_the_array_is(tmp_path: Path) -> None:
    stored(tmp_path / "x.zarr", np.arange(16.0), (16,))
    array = open_array(tmp_path / "x.zarr")
    before = in_parts(array, 16)
    mark_stale(array.location)
    for parted in (before, in_parts(array, 32)):
        with pytest.raises(SourceChangedError):
            parted.read_chunk((0,), np.empty(parted.layout.unit))


def test_parts_do_not_outlive_their_array(tmp_path: Path) -> None:
    stored(tmp_path / "x.zarr", np.arange(16.0), (16,))
    array = open_array(tmp_path / "x.zarr")
    in_parts(array, 16)
    name = array.name
    del array
    gc.collect()
    assert not [o for o in gc.get_objects() if isinstance(o, StoredArray) and o.name == name]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reading_a_part_takes_no_more_than_it_says(tmp_path: Path, layout: str) -> None:
    stored(tmp_path / "x.zarr", np.ones((1000, 900), "f4"), (512, 512), **LAYOUTS[layout])
    parted = in_parts(open_array(tmp_path / "x.zarr"), 2**17)
    POOL.drop_idle()
    np.testing.assert_array_equal(read_all(parted), 1)
    assert POOL.held_bytes <= parted.scratch_bytes + 2 * 2**16  # buffers come in multiples of 64 KiB
    assert parted.scratch_bytes <= 2 * 2**17
    POOL.drop_idle()


# --- computing with an eighth of one chunk ----------------------------------------------------------------------


SIDE = 4096
VALUES = np.random.default_rng(1).standard_normal((SIDE, SIDE), dtype="f4")  # 64 MiB
BUDGET = 8 * MIB


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_chunk_eight_times_the_budget_is_read_once(tmp_path: Path, layout: str) -> None:
    store = CountingStore(LocalStore(tmp_path / "x.zarr"))
    stored(store, VALUES, (SIDE, SIDE), **LAYOUTS[layout])
    x = jc.from_zarr(store)
    assert x.chunksize == (SIDE, SIDE)

    def read(work: Any) -> tuple[Any, float]:
        store.counts.reset()
        with budget(BUDGET), jc.profile() as p:
            result = work()
        figures = p.to_dict()
        assert figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= BUDGET
        assert figures["bytes_read"] >= store.counts.bytes_read
        return result, store.counts.bytes_read / VALUES.nbytes

    total, times = read(lambda: xp.sum(x, axis=0).compute())
    np.testing.assert_allclose(total, VALUES.sum(0, dtype="f8"), atol=1e-3)
    assert times <= 1.1
    part, times = read(lambda: x[7:4000:400, 100:116].compute())
    np.testing.assert_array_equal(part, VALUES[7:4000:400, 100:116])
    assert times <= 1.1
    for chunks in ((SIDE, 64), (64, SIDE)):
        _, times = read(lambda chunks=chunks: jc.to_zarr(x, tmp_path / "y.zarr", chunks=chunks, overwrite=True))
        assert times <= 1.1
        np.testing.assert_array_equal(zarr.open_array(tmp_path / "y.zarr")[...], VALUES)
    nothing_is_left()


def test_a_few_rows_of_a_large_chunk_are_all_that_is_read() -> None:
    z = synthetic_array((2**15, 1024), (2**15, 1024), "f4", lambda i, j: i * 7 + j)  # 128 MiB
    with budget(BUDGET):
        got = jc.from_zarr(z)[1000:1010].compute()
    store = z.store
    assert isinstance(store, SyntheticStore)
    np.testing.assert_array_equal(got, store.values([(1000, 1010), (0, 1024)]))
    assert store.counts.bytes_read <= MIB


def test_local_files_are_read_in_parts_within_the_allowance(tmp_path: Path) -> None:
    stored(tmp_path / "x.zarr", VALUES, (SIDE, SIDE))
    done = measure("deviation", path=str(tmp_path / "x.zarr"), nbytes=BUDGET)
    check_memory(done, BUDGET)
    assert done["value"] == pytest.approx(np.abs(VALUES - VALUES.mean(0)).mean(), rel=1e-5)
    assert done["profile"]["bytes_read"] <= 2.2 * VALUES.nbytes


def test_inner_chunks_are_read_one_at_a_time_from_a_shard_of_eight_times_the_budget() -> None:
    store = CountingStore(MemoryStore())
    z = zarr.create_array(store, shape=(SIDE, SIDE), chunks=(256, 256), shards=(SIDE, SIDE), dtype="f4")
    z[...] = np.broadcast_to(np.arange(SIDE, dtype="f4"), z.shape)
    store.counts.reset()
    with budget(BUDGET), jc.config.set(threads=1):
        assert float(xp.mean(jc.from_zarr(store))) == (SIDE - 1) / 2
    assert max(store.counts.gets.values()) == 1 + (SIDE // 256) ** 2  # the index, and each inner chunk


def test_a_damaged_part_ends_the_run_with_the_chunk_s_name(tmp_path: Path) -> None:
    stored(tmp_path / "x.zarr", VALUES, (SIDE, SIDE))
    file = tmp_path / "x.zarr" / "c" / "0" / "0"
    with file.open("r+b") as handle:
        handle.truncate(VALUES.nbytes // 2)
    with budget(BUDGET), pytest.raises(StorageError, match=r"chunk \(0, 0\) of array .*x.zarr .*33554432 bytes"):
        xp.sum(jc.from_zarr(tmp_path / "x.zarr")).compute()
    nothing_is_left()


# --- what doesn't fit says what to do ---------------------------------------------------------------------------


def test_a_compressed_chunk_too_large_is_refused_before_anything_is_read() -> None:
    store = CountingStore(MemoryStore())
    zarr.create_array(store, shape=(2048, 2048), chunks=(2048, 2048), dtype="f4")[...] = 1
    store.counts.reset()
    x = jc.from_zarr(store)
    for work in (xp.sum(x), x[:3], xp.sum(xp.reshape(x, (-1,)))):
        with budget(BUDGET), pytest.raises(MemoryBudgetError) as caught:
            work.compute()
        text = str(caught.value)
        assert "must be decoded whole" in text and "16,777,216 bytes" in text and "store the array again" in text
        assert "chunks=" in text and "shards=" in text and "test_store_parts.py:" in text
    assert not store.counts.gets
    with budget(48 * MIB):
        assert float(xp.sum(x)) == 2048 * 2048


def test_a_chunk_that_fits_is_not_blamed() -> None:
    z = synthetic_array((64, 64), (16, 16), "f8", lambda i, j: i + j, compressor="zstd")
    with budget(16 * 1024), pytest.raises(MemoryBudgetError) as caught:
        jc.map_blocks(lambda block: block, jc.rechunk(jc.from_zarr(z), (64, 64))).compute()
    assert "must be decoded whole" not in str(caught.value)


@pytest.mark.parametrize("parameters", [{"chunks": (64, 64), "shards": (2048, 2048)}, {"chunks": (2048, 2048)}])
def test_a_shard_too_large_to_be_assembled_is_refused(tmp_path: Path, parameters: dict[str, Any]) -> None:
    x = xp.ones((2048, 2048), dtype=xp.float32, chunks=64)
    with budget(BUDGET), pytest.raises(MemoryBudgetError, match=r"shards, are written whole, here 2048×2048.*shards="):
        jc.to_zarr(x, tmp_path / "y.zarr", **parameters)
    assert not list(tmp_path.iterdir())
