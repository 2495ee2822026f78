"""Writing stored arrays: whole write units, each once; zarr-python reads back what was written."""

from __future__ import annotations

import io
import os
import tempfile
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers.synthetic import CountingStore, FailingStore, blocks, sink_store
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec
from zarr.storage import LocalStore, MemoryStore

from jaxchunk.errors import SourceChangedError
from jaxchunk.store import POOL, Target, open_array
from jaxchunk.store import blobs as blobs_module

VALUES = np.arange(1, 40 * 37 + 1, dtype="f8").reshape(40, 37)


def write(target: Target, values: np.ndarray[Any, Any], threads: int = 1) -> None:
    with target, ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda block: target.write_chunk(block[0], values[block[1]]), blocks(target.write_grid)))


def create(place: Any, values: np.ndarray[Any, Any] = VALUES, chunks: Any = (3, 4), **kwargs: Any) -> Target:
    return Target.create(place, shape=values.shape, dtype=values.dtype, chunks=chunks, **kwargs)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"shards": (12, 16)},
        {"compressors": None},
        {"compressors": [BloscCodec(cname="lz4", typesize=8, shuffle="shuffle")]},
        {"compressors": [GzipCodec()], "shards": (3, 4)},
        {"zarr_format": 2},
        {"zarr_format": 2, "compressors": numcodecs.LZ4()},
        {"zarr_format": 2, "compressors": numcodecs.BZ2()},
    ],
    ids=["default", "sharded", "raw", "blosc", "gzip", "v2", "v2 lz4", "v2 bz2"],
)
@pytest.mark.parametrize("where", ["local", "memory", "group", "store path"])
def test_zarr_python_reads_what_was_written(tmp_path: Path, where: str, parameters: dict[str, Any]) -> None:
    place: Any = tmp_path / "x.zarr" if where == "local" else MemoryStore() if where == "memory" else None
    if where == "group":
        place = zarr.create_group(tmp_path / "g", zarr_format=parameters.get("zarr_format", 3))
        write(create(place, path="a/b/x", **parameters), VALUES)
        z = zarr.open_group(tmp_path / "g", mode="r")["a/b/x"]
    elif where == "store path":
        write(create(LocalStore(tmp_path), path="x", **parameters), VALUES)
        z = zarr.open_array(tmp_path / "x", mode="r")
    else:
        write(create(place, **parameters), VALUES)
        z = zarr.open_array(place, mode="r")
    assert isinstance(z, zarr.Array)
    assert np.array_equal(z[:], VALUES)
    assert z.chunks == (3, 4) and z.shards == parameters.get("shards")
    assert z.dtype == "f8"


@pytest.mark.parametrize("threads", [1, 4])
def test_shards_that_stick_out_are_written_once_each_whatever_the_threads(tmp_path: Path, threads: int) -> None:
    for _ in range(10):
        target = create(tmp_path / "s.zarr", shards=(12, 16), overwrite=True)
        assert [axis.nblocks for axis in target.write_grid] == [4, 3]
        write(target, VALUES, threads)
        z = zarr.open_array(tmp_path / "s.zarr", mode="r")
        assert z.shards == (12, 16) and np.array_equal(z[:], VALUES)
        array = open_array(tmp_path / "s.zarr")
        for index, part in blocks(array.grid):
            out = np.empty(VALUES[part].shape)
            array.read_chunk(index, out)
            assert np.array_equal(out, VALUES[part])


@pytest.mark.parametrize("shards", [None, (6, 8)])
def test_each_object_is_set_exactly_once(shards: Any) -> None:
    store = CountingStore(MemoryStore())
    write(create(store, path="x", shards=shards), VALUES, threads=2)
    assert set(store.counts.sets.values()) == {1}
    assert len(store.counts.sets) == (7 * 5 if shards else 14 * 10)


def test_chunks_of_nothing_but_the_fill_value_are_written_too(tmp_path: Path) -> None:
    write(create(tmp_path / "x", np.zeros((4, 4)), (2, 2)), np.zeros((4, 4)))
    assert sum(path.is_file() for path in (tmp_path / "x/c").rglob("*")) == 4


def test_fill_value_attributes_and_dimension_names_are_stored(tmp_path: Path) -> None:
    write(
        create(tmp_path / "x", fill_value=-1, attributes={"units": "K"}, dimension_names=("y", "x")),
        VALUES,
    )
    z = zarr.open_array(tmp_path / "x", mode="r")
    assert z.fill_value == -1 and dict(z.attrs) == {"units": "K"}
    assert z.metadata.to_dict()["dimension_names"] == ("y", "x")
    raw = np.frombuffer(numcodecs.Zstd().decode((tmp_path / "x/c/13/9").read_bytes())).reshape(3, 4)
    assert raw[0, 0] == VALUES[39, 36] and (raw.ravel()[1:] == -1).all()  # what sticks out is padded


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
@pytest.mark.parametrize("dtype", ["bool", "i1", "f4", "c16"])
def test_arrays_of_no_axes_and_of_no_elements(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    values = np.ones(shape, dtype)
    write(create(tmp_path / "x", values, tuple(max(1, n) for n in shape)), values)
    z = zarr.open_array(tmp_path / "x", mode="r")
    assert z.shape == shape and z.dtype == dtype and np.array_equal(z[...], values)


def test_values_need_not_be_contiguous_and_must_fit(tmp_path: Path) -> None:
    target = create(tmp_path / "x")
    target.write_chunk((0, 0), np.asfortranarray(VALUES[:3, :4]))
    with pytest.raises(ValueError, match=r"chunk \(13, 9\) of .*x has shape \(1, 1\), dtype float64"):
        target.write_chunk((13, 9), VALUES[:3, :4])
    with pytest.raises(ValueError, match="dtype float32"):
        target.write_chunk((0, 0), VALUES[:3, :4].astype("f4"))
    with pytest.raises(IndexError, match=r"\(14, 10\) chunks"):
        target.write_chunk((14, 0), VALUES[:3, :4])
    target.abort()


def test_nothing_is_there_before_the_commit_nor_after_an_abort(tmp_path: Path) -> None:
    target = create(tmp_path / "a/b/x.zarr")
    target.write_chunk((0, 0), VALUES[:3, :4])
    assert not (tmp_path / "a").exists()
    target.abort()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="was aborted"):
        target.write_chunk((0, 0), VALUES[:3, :4])
    with pytest.raises(RuntimeError, match="was aborted"):
        target.commit()
    with pytest.raises(KeyError), create(tmp_path / "x.zarr") as target:
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    create(tmp_path / "x.zarr").commit()
    assert [path.name for path in tmp_path.iterdir()] == ["x.zarr"]


def test_a_target_that_is_dropped_leaves_nothing(tmp_path: Path) -> None:
    target = create(tmp_path / "x.zarr")
    target.write_chunk((0, 0), VALUES[:3, :4])
    del target
    assert list(tmp_path.iterdir()) == []


def test_members_being_written_do_not_show_in_their_group(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g")
    target = create(tmp_path / "g/sub/x")
    target.write_chunk((0, 0), VALUES[:3, :4])
    with pytest.warns(UserWarning, match="not recognized"):  # zarr-python's, about the hidden directory
        assert list(group.members(max_depth=None)) == []
    target.commit()
    assert sorted(name for name, _ in group.members(max_depth=None)) == ["sub", "sub/x"]
    assert zarr.open_group(tmp_path / "g/sub", mode="r").metadata.zarr_format == 3


def test_below_a_v2_group_the_array_and_the_groups_are_v2(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "g", zarr_format=2)
    write(create(tmp_path / "g/a/b/x"), VALUES)
    z = group["a/b/x"]
    assert isinstance(z, zarr.Array) and z.metadata.zarr_format == 2 and np.array_equal(z[:], VALUES)


def test_what_is_there_is_not_replaced_unless_asked_and_only_if_it_is_an_array(tmp_path: Path) -> None:
    write(create(tmp_path / "x"), VALUES)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        create(tmp_path / "x")
    zarr.create_group(tmp_path / "g")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/thesis.tex").touch()
    (tmp_path / "file").touch()
    for name in ("g", "documents", "file"):
        with pytest.raises(FileExistsError, match="isn't an array"):
            create(tmp_path / name, overwrite=True)
    with pytest.raises(NotADirectoryError, match="is a file"):
        create(tmp_path / "file/x")
    (tmp_path / "nothing").mkdir()
    write(create(tmp_path / "nothing"), VALUES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["documents", "file", "g", "nothing", "x"]
    store = MemoryStore()
    write(create(store, path="x"), VALUES)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        create(store, path="x")
    zarr.create_group(store, path="g")
    with pytest.raises(FileExistsError, match="isn't an array"):
        create(store, path="g", overwrite=True)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("path", ["x/y", "x/c/0/y", "x/a/b/c"])
def test_nothing_is_made_inside_of_an_array(tmp_path: Path, zarr_format: Any, local: bool, path: str) -> None:
    place = tmp_path / "g" if local else MemoryStore()
    zarr.create_array(place, name="x", shape=(2,), dtype="f4", zarr_format=zarr_format)[:] = 1
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=rf"{path} can't be made: .*/x is a Zarr array"):
        create(place, path=path)
    assert sorted(tmp_path.rglob("*")) == before
    write(create(place, path="beside/y"), VALUES)


def test_an_array_made_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = create(tmp_path / "x")
    zarr.create_array(tmp_path / "x", shape=(1,), dtype="i4")[:] = 5
    with pytest.raises(FileExistsError, match="was made meanwhile"):
        target.commit()
    assert zarr.open_array(tmp_path / "x", mode="r")[0] == 5
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_other_stores_are_written_in_place_and_never_over_what_is_read() -> None:
    store = MemoryStore()
    write(create(store, path="x"), VALUES)
    array = open_array(CountingStore(store), "x")
    with pytest.raises(ValueError, match="in place"):
        create(store, path="x", overwrite=True, reading=[array])
    other = open_array(zarr.create_array(MemoryStore(), shape=(2,), dtype="f4"))
    write(create(store, path="x", overwrite=True, reading=[other]), VALUES + 1)
    assert np.array_equal(zarr.open_array(store, path="x")[:], VALUES + 1)
    with pytest.raises(SourceChangedError, match="overwritten by this process"):
        array.read_chunk((0, 0), np.empty((3, 4)))


def test_an_abort_removes_what_was_written_to_another_store() -> None:
    store = MemoryStore()
    target = create(store, path="x")
    target.write_chunk((0, 0), VALUES[:3, :4])
    target.abort()
    assert not any(key.startswith("x/") for key in store._store_dict)


def test_a_failing_write_names_array_chunk_and_key_and_leaves_what_was_there(tmp_path: Path) -> None:
    store = FailingStore(MemoryStore(), "x/c/1/1", OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left") as caught:
        write(create(store, path="x"), VALUES)
    assert "while writing chunk (1, 1) of array" in caught.value.__notes__[0] and "'c/1/1'" in caught.value.__notes__[0]
    write(create(tmp_path / "x"), VALUES)
    target = create(tmp_path / "x", overwrite=True)
    hidden = next(path for path in tmp_path.iterdir() if path.name.startswith("."))
    (hidden / "c").touch()  # no directory can be made there
    with pytest.raises(NotADirectoryError) as caught_too, target:
        target.write_chunk((0, 0), VALUES[:3, :4])
    assert "while writing chunk (0, 0)" in caught_too.value.__notes__[0]
    assert np.array_equal(zarr.open_array(tmp_path / "x")[:], VALUES)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    write(create(tmp_path / "x"), VALUES)
    target = Target.region(tmp_path / "x", (slice(0, 3), slice(0, 4)))
    monkeypatch.setattr(blobs_module.io, "FileIO", Full)
    with pytest.raises(OSError, match="No space left"):
        target.write_chunk((0, 0), VALUES[:3, :4])
    monkeypatch.undo()
    assert not list((tmp_path / "x").rglob("*.partial"))
    assert np.array_equal(zarr.open_array(tmp_path / "x")[:], VALUES)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"shards": {"shape": (6, 8), "index_location": "start"}},
        {"shards": (6, 8), "serializer": BytesCodec(endian="big")},
        {"zarr_format": 2, "order": "F", "dtype": ">f8"},
        {"zarr_format": 2, "order": "F", "dtype": ">f8", "compressors": None},
        {"filters": [TransposeCodec(order=(1, 0))], "compressors": None},
    ],
    ids=str,
)
def test_regions_of_whole_units_are_written_in_place(tmp_path: Path, local: bool, parameters: dict[str, Any]) -> None:
    store = LocalStore(tmp_path) if local else MemoryStore()
    z = zarr.create_array(store, name="x", shape=(40, 37), chunks=(3, 4), **({"dtype": "f8"} | parameters))
    z[:] = VALUES
    before = open_array(store, "x")
    target = Target.region(store, (slice(12, 24), slice(32, None)), "x")
    assert target.shape == (12, 5)
    write(target, -VALUES[12:24, 32:], threads=2)
    expected = VALUES.copy()
    expected[12:24, 32:] *= -1
    assert np.array_equal(zarr.open_array(store, path="x", mode="r")[:], expected)
    with pytest.raises(SourceChangedError):
        before.check()


def test_regions_that_cut_a_unit_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "x", shape=(40, 37), chunks=(3, 4), shards=(6, 8), dtype="f8")
    everything = slice(None)
    for region in ((slice(3, 12), everything), (slice(0, 9), everything), (everything, slice(0, 36))):
        with pytest.raises(ValueError, match=r"cuts a shard of .*x: its edges have to be multiples of [68] "):
            Target.region(tmp_path / "x", region)
    with pytest.raises(ValueError, match="step 2"):
        Target.region(tmp_path / "x", (slice(0, 12, 2), everything))
    with pytest.raises(ValueError, match=r"region has 1 slices, but .* has 2 axes"):
        Target.region(tmp_path / "x", (everything,))
    with pytest.raises(ValueError, match="a region of it"):
        Target.region(tmp_path / "x", (everything, everything), reading=[open_array(tmp_path / "x")])
    with pytest.raises(FileNotFoundError):
        Target.region(tmp_path / "y", (everything,))
    empty = Target.region(tmp_path / "x", (slice(6, 6), everything))
    assert empty.shape == (0, 37)
    empty.commit()


@pytest.mark.parametrize("where", ["local", "memory"])
def test_writing_takes_no_more_than_it_says(tmp_path: Path, where: str) -> None:
    values = np.random.default_rng(0).random((512, 512))
    for parameters in (
        *({}, {"shards": (512, 512)}, {"compressors": [GzipCodec()]}, {"compressors": None}),
        {"zarr_format": 2, "compressors": numcodecs.BZ2()},
    ):
        place: Any = tmp_path / "x" if where == "local" else MemoryStore()
        target = create(place, values, (256, 256), overwrite=True, **parameters)
        index, part = next(iter(blocks(target.write_grid)))
        POOL.drop_idle()
        tracemalloc.start()
        target.write_chunk(index, values[part])
        peak = tracemalloc.get_traced_memory()[1] + POOL.held_bytes
        tracemalloc.stop()
        assert peak <= target.encode_bytes + 100_000
        target.commit()


def test_sinks_keep_windows_only_and_count_everything() -> None:
    store = sink_store((14, 10), windows=5, seed=3, prefix="x/")
    write(create(store, path="x"), VALUES, threads=2)
    assert len(store.counts.sets) == 140 and set(store.counts.sets.values()) == {1}
    array = open_array(store, "x")
    for index, part in blocks(array.grid):
        out = np.empty(VALUES[part].shape)
        if index in store.kept:
            array.read_chunk(index, out)
            assert np.array_equal(out, VALUES[part])
        else:
            with pytest.raises(LookupError, match="kept only some keys"):
                array.read_chunk(index, out)


def test_two_threads_abort_and_write_without_leaving_a_torso(tmp_path: Path) -> None:
    for _ in range(20):
        target = create(tmp_path / "x")
        started = threading.Event()

        def scribble(target: Target = target, started: threading.Event = started) -> None:
            for index, part in blocks(target.write_grid):
                try:
                    target.write_chunk(index, VALUES[part])
                except (OSError, RuntimeError):
                    return
                started.set()

        thread = threading.Thread(target=scribble)
        thread.start()
        started.wait()
        target.abort()
        thread.join()
        assert os.listdir(tmp_path) == []


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]:
    shape = draw(st.lists(st.integers(0, 9), max_size=3))
    chunks = tuple(draw(st.integers(1, 5)) for _ in shape)
    multiples = [draw(st.integers(1, 3)) for _ in shape]
    shards = tuple(c * m for c, m in zip(chunks, multiples, strict=True))
    return tuple(shape), chunks, shards if shape and draw(st.booleans()) else None


@given(layouts(), st.sampled_from(["bool", "i2", "u8", "f4", "c16"]), st.booleans())
def test_any_shape_chunks_and_shards_round_trip(layout: Any, dtype: str, local: bool) -> None:
    shape, chunks, shards = layout
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 251).astype(dtype)
    with tempfile.TemporaryDirectory() as directory:
        place: Any = f"{directory}/x" if local else MemoryStore()
        write(create(place, values, chunks, shards=shards), values)
        z = zarr.open_array(place, mode="r")
        assert z.chunks == chunks and z.shards == shards
        assert np.array_equal(z[...], values)
        array = open_array(place)
        for index, part in blocks(array.grid):
            out = np.empty_like(values[part])
            array.read_chunk(index, out)
            assert np.array_equal(out, values[part])
