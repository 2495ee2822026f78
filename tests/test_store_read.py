"""Reading stored arrays: every layout gives the values that zarr-python gives, decoded into the caller's buffer."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers.synthetic import CountingStore, SyntheticStore, read_all, synthetic_array
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec
from zarr.codecs.numcodecs import LZ4, Delta
from zarr.storage import LocalStore, MemoryStore, StorePath, ZipStore

from jaxchunk.errors import SourceChangedError
from jaxchunk.store import POOL, StoredArray, open_array
from jaxchunk.store.codecs import PlainCodec

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8", "c8", "c16"]

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")


def sample(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(1).integers(0, 100, shape).astype(dtype)
    return values + values.astype(dtype) * 1j if np.dtype(dtype).kind == "c" else values


def is_plain(array: StoredArray) -> bool:
    return isinstance(array.layout.codec, PlainCodec)


V3 = {
    "default": {},
    "none": {"compressors": None},
    "zstd": {"compressors": ZstdCodec(level=3, checksum=True)},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle")},
    "gzip": {"compressors": GzipCodec()},
    "lz4": {"compressors": [LZ4()]},
    "crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
    "raw crc32c": {"compressors": [Crc32cCodec()]},
    "big-endian": {"serializer": BytesCodec(endian="big")},
    "v2 keys": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
    "sharded": {"shards": (12, 16)},
    "sharded, index first": {"shards": {"shape": (12, 16), "index_location": "start"}},
    "sharded, raw": {"shards": (6, 8), "compressors": None},
    "sharded, big-endian": {"shards": (6, 8), "serializer": BytesCodec(endian="big")},
}
V3_GENERAL = {
    "transpose": {"filters": [TransposeCodec(order=(1, 0))]},
    "delta": {"filters": [Delta(dtype="<f8")]},
    "two compressors": {"compressors": [GzipCodec(), ZstdCodec()]},
    "sharded, transpose": {"shards": (6, 8), "filters": [TransposeCodec(order=(1, 0))]},
}
V2 = {
    "default": {},
    "none": {"compressors": None},
    "zstd": {"compressors": numcodecs.Zstd()},
    "blosc": {"compressors": numcodecs.Blosc()},
    "gzip": {"compressors": numcodecs.GZip()},
    "zlib": {"compressors": numcodecs.Zlib()},
    "lz4": {"compressors": numcodecs.LZ4()},
    "nested keys": {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
}
V2_GENERAL = {
    "F order": {"order": "F"},
    "F order, raw": {"order": "F", "compressors": None},
    "bz2": {"compressors": numcodecs.BZ2()},
    "delta": {"filters": [numcodecs.Delta(dtype="<f8")]},
}


@pytest.mark.parametrize("store", ["local", "memory"])
@pytest.mark.parametrize(
    ("zarr_format", "how", "plain"),
    [(3, how, True) for how in V3]
    + [(3, how, False) for how in V3_GENERAL]
    + [(2, how, True) for how in V2]
    + [(2, how, False) for how in V2_GENERAL],
)
def test_every_codec_and_layout_reads_as_zarr_python_does(
    tmp_path: Path, store: str, zarr_format: Any, how: str, plain: bool
) -> None:
    parameters = {(3, True): V3, (3, False): V3_GENERAL, (2, True): V2, (2, False): V2_GENERAL}[zarr_format, plain][how]
    place = tmp_path / "x.zarr" if store == "local" else MemoryStore()
    values = sample((40, 37), "f8")
    z = zarr.create_array(place, shape=(40, 37), chunks=(3, 4), dtype="f8", zarr_format=zarr_format, **parameters)
    z[:] = values
    array = open_array(place)
    assert is_plain(array) is plain
    assert array.is_local is (store == "local")
    assert np.array_equal(read_all(array), values)
    assert [axis.largest for axis in array.grid] == [3, 4]
    assert [axis.largest for axis in array.write_grid] == list(z.shards or z.chunks)
    if store == "local" and not z.shards:
        chunks = [file for file in (tmp_path / "x.zarr").rglob("*") if file.is_file() and file.name[-1].isdigit()]
        assert max(file.stat().st_size for file in chunks) <= array.stored_bytes_bound()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("endian", ["<", ">"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_every_dtype_in_both_byte_orders(tmp_path: Path, dtype: str, endian: str, zarr_format: Any) -> None:
    stored = np.dtype(dtype).newbyteorder(endian)
    serializer = {"serializer": BytesCodec(endian="big")} if zarr_format == 3 and endian == ">" else {}
    if stored.itemsize == 1:
        serializer = {}
    values = sample((7, 5), dtype)
    z = zarr.create_array(
        tmp_path / "x", shape=(7, 5), chunks=(4, 5), dtype=stored, zarr_format=zarr_format, **serializer
    )
    z[:] = values
    array = open_array(tmp_path / "x")
    assert array.dtype == np.dtype(dtype) and array.dtype.isnative
    assert is_plain(array)
    assert np.array_equal(read_all(array), values)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_without_axes_without_elements_and_with_chunks_larger_than_they_are(
    tmp_path: Path, zarr_format: Any
) -> None:
    scalar = zarr.create_array(tmp_path / "scalar", shape=(), dtype="f4", zarr_format=zarr_format)
    scalar[...] = 3.5
    array = open_array(tmp_path / "scalar")
    out = np.zeros((), "f4")
    array.read_chunk((), out)
    assert out == 3.5 and array.grid == ()

    zarr.create_array(tmp_path / "empty", shape=(0, 5), chunks=(2, 2), dtype="f4", zarr_format=zarr_format)
    empty = open_array(tmp_path / "empty")
    assert empty.shape == (0, 5) and [axis.nblocks for axis in empty.grid] == [0, 3]
    assert read_all(empty).shape == (0, 5)

    large = zarr.create_array(tmp_path / "large", shape=(3,), chunks=(100,), dtype="i4", zarr_format=zarr_format)
    large[:] = [1, 2, 3]
    assert read_all(open_array(tmp_path / "large")).tolist() == [1, 2, 3]


def test_chunks_never_written_read_as_the_fill_value_or_raise_if_asked_to(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "t", shape=(9,), chunks=(3,), dtype="f8", fill_value=-5.0)
    z[0:3], z[6:9] = 1, 2
    assert read_all(open_array(z)).tolist() == [1, 1, 1, -5, -5, -5, 2, 2, 2]
    strict = open_array(z, missing="error")
    out = np.zeros(3)
    strict.read_chunk((0,), out)
    with pytest.raises(OSError, match=r"chunk \(1,\) of array .*t \(key 'c/1'\): was never written"):
        strict.read_chunk((1,), out)


@pytest.mark.parametrize("local", [True, False])
def test_missing_inner_chunks_and_missing_shards(tmp_path: Path, local: bool) -> None:
    place = tmp_path / "t" if local else MemoryStore()
    z = zarr.create_array(place, shape=(40,), chunks=(3,), shards=(12,), dtype="i8", fill_value=7)
    z[0:3], z[9:14] = 1, 2
    assert np.array_equal(read_all(open_array(place)), z[:])
    assert (z[:] == 7).sum() == 32


def test_v2_without_a_fill_value_reads_zeros(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype="f4", zarr_format=2)
    document = json.loads((tmp_path / "t/.zarray").read_text())
    document["fill_value"] = None
    (tmp_path / "t/.zarray").write_text(json.dumps(document))
    assert read_all(open_array(tmp_path / "t")).tolist() == [0, 0, 0, 0]


def test_all_spellings_of_a_place_open_the_same_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "with space"
    z = zarr.create_group(directory / "g.zarr").create_array("a/b", shape=(5,), chunks=(2,), dtype="i4")
    z[:] = range(5)
    (tmp_path / "link").symlink_to(directory)
    monkeypatch.chdir(directory)
    root = zarr.open_group(directory / "g.zarr", mode="r")
    spellings: list[Any] = [
        (str(directory / "g.zarr/a/b"),),
        (directory / "g.zarr/a/b",),
        ("g.zarr/a/b",),
        ("g.zarr/a/b/",),
        (tmp_path / "link/g.zarr", "a/b"),
        ((directory / "g.zarr/a/b").as_uri(),),
        (f"file://{directory}/g.zarr", "/a/b"),
        (f"file://localhost{directory}/g.zarr/a/b",),
        (z,),
        (root, "a/b"),
        (root["a"], "b"),
        (LocalStore(directory / "g.zarr"), "a/b"),
        (StorePath(LocalStore(directory / "g.zarr"), "a"), "b"),
        (CountingStore(LocalStore(directory / "g.zarr")), "a/b"),
    ]
    arrays = [open_array(*spelling) for spelling in spellings]
    for array in arrays:
        assert read_all(array).tolist() == [0, 1, 2, 3, 4]
        assert all(array.is_same_array(other.location) for other in arrays)


def test_url_and_zip_stores(tmp_path: Path) -> None:
    z = zarr.create_array("memory://jaxchunk-test/x", shape=(5,), chunks=(2,), dtype="i4", overwrite=True)
    z[:] = range(5)
    array = open_array("memory://jaxchunk-test/x")
    assert read_all(array).tolist() == [0, 1, 2, 3, 4] and not array.is_local
    assert "memory://jaxchunk-test/x" in array.name
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        zarr.create_array(store, shape=(5,), chunks=(2,), dtype="i4")[:] = range(5)
    with ZipStore(tmp_path / "x.zip", mode="r") as store:
        assert read_all(open_array(store)).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(FileNotFoundError, match="ZipStore"):
        open_array(tmp_path / "x.zip")


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no Zarr array at .*nothing"):
        open_array(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="no Zarr array at"):
        open_array(MemoryStore(), "x")
    with pytest.raises(TypeError, match="not list"):
        open_array([1, 2])
    with pytest.raises(ValueError, match="file of this machine"):
        open_array("file://elsewhere/x.zarr")
    for zarr_format in (2, 3):
        group = zarr.create_group(tmp_path / f"g{zarr_format}", zarr_format=zarr_format)
        group.create_array("a", shape=(1,), dtype="i4")
        group.create_array("b/c", shape=(1,), dtype="i4")
        with pytest.raises(ValueError, match=r"is a group, not an array; its arrays: (a, b/c|b/c, a)"):
            open_array(tmp_path / f"g{zarr_format}")


@pytest.mark.filterwarnings("ignore:The data type")
@pytest.mark.parametrize("dtype", ["f2", "U5", "S3", "M8[s]", "m8[s]", str, np.dtype([("a", "i4"), ("b", "f4")])])
def test_dtypes_that_the_standard_does_not_have_are_refused(tmp_path: Path, dtype: Any) -> None:
    zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype=dtype)
    with pytest.raises(TypeError, match=r"t has dtype .* dtypes are bool, int8, .*, complex128: .* float16 as float32"):
        open_array(tmp_path / "t")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_codec_that_is_not_installed_is_named_at_open(tmp_path: Path, zarr_format: Any) -> None:
    zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype="f4", zarr_format=zarr_format)
    path = tmp_path / "t" / ("zarr.json" if zarr_format == 3 else ".zarray")
    document = json.loads(path.read_text())
    if zarr_format == 3:
        document["codecs"][1] = {"name": "nosuchcodec", "configuration": {}}
    else:
        document["compressor"] = {"id": "nosuchcodec"}
    path.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=r"t needs a codec that isn't installed: .*nosuchcodec"):
        open_array(tmp_path / "t")


def test_an_unknown_dtype_or_grid_is_named_at_open(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype="f4")
    path = tmp_path / "t/zarr.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"data_type": "float12"}))
    with pytest.raises(TypeError, match=r"t has a dtype that zarr doesn't know: .*float12"):
        open_array(tmp_path / "t")
    path.write_text(json.dumps(document | {"chunk_grid": {"name": "rectangular", "configuration": {}}}))
    with pytest.raises(ValueError, match=r"t: its metadata can't be used: .*rectangular"):
        open_array(tmp_path / "t")
    path.write_text(json.dumps(document)[:40])
    with pytest.raises(OSError, match=r"its zarr.json is damaged"):
        open_array(tmp_path / "t")


def test_wrong_buffers_and_indices_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "t", shape=(5, 4), chunks=(2, 4), dtype="f4")
    array = open_array(tmp_path / "t")
    for out in (np.empty((2, 4), "f8"), np.empty((2, 3), "f4"), np.empty((4, 2), "f4").T):
        with pytest.raises(ValueError, match=r"needs a C-contiguous array of shape \(2, 4\), dtype float32"):
            array.read_chunk((0, 0), out)
    with pytest.raises(ValueError, match=r"shape \(1, 4\)"):
        array.read_chunk((2, 0), np.empty((2, 4), "f4"))
    for index in ((3, 0), (-1, 0), (0,)):
        with pytest.raises(IndexError, match=r"which has \(3, 1\) chunks"):
            array.read_chunk(index, np.empty((2, 4), "f4"))


def test_a_users_zarr_configuration_changes_nothing(tmp_path: Path) -> None:
    values = sample((6, 8), "f8")
    z = zarr.create_array(
        tmp_path / "t", shape=(6, 8), chunks=(3, 4), dtype="f8", filters=[TransposeCodec(order=(1, 0))]
    )
    z[:] = values
    with zarr.config.set(
        {"array.order": "F", "async.concurrency": 1, "codec_pipeline": {"path": "no.such.Pipeline", "batch_size": 9}}
    ):
        assert np.array_equal(read_all(open_array(tmp_path / "t")), values)


def test_a_chunk_is_fetched_once_and_alone_and_an_inner_chunk_by_its_range() -> None:
    store = CountingStore(MemoryStore())
    values = np.random.default_rng(0).random((64, 64))
    zarr.create_array(store, name="plain", shape=(64, 64), chunks=(16, 16), dtype="f8")[:] = values
    zarr.create_array(store, name="sharded", shape=(64, 64), chunks=(16, 16), shards=(64, 64), dtype="f8")[:] = values
    out = np.empty((16, 16))
    plain, sharded = open_array(store, "plain"), open_array(store, "sharded")
    store.counts.reset()
    plain.read_chunk((1, 2), out)
    assert dict(store.counts.gets) == {"plain/c/1/2": 1}
    store.counts.reset()
    sharded.read_chunk((1, 2), out)
    sharded.read_chunk((1, 3), out)
    assert dict(store.counts.gets) == {"sharded/c/0/0": 3}  # the index, then two ranges
    assert store.counts.bytes_read < 3 * 16 * 16 * 8
    assert np.array_equal(out, values[16:32, 48:64])


def test_huge_arrays_open_at_once_and_synthetic_values_are_what_they_say() -> None:
    z = synthetic_array(
        (2**40, 1000), (1000, 1000), "f4", lambda i, j: (i * 7 + j) % 1009, compressor="zstd", period=(3, 1)
    )
    array = open_array(z)
    out = np.empty((1000, 1000), "f4")
    store = z.store
    assert isinstance(store, SyntheticStore)
    for block in (0, 4, 10**9):
        array.read_chunk((block, 0), out)
        assert np.array_equal(out, store.values([(block * 1000, block * 1000 + 1000), (0, 1000)]))
        assert out[5, 7] == ((block % 3 * 1000 + 5) * 7 + 7) % 1009
    assert sum(store.counts.gets.values()) == 3


def test_lent_buffers_are_reused_and_counted(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "t", shape=(10, 100_000), chunks=(1, 100_000), dtype="f8")
    z[:] = np.random.default_rng(0).random((10, 100_000))
    array = open_array(tmp_path / "t")
    out = np.empty((1, 100_000))
    POOL.drop_idle()
    array.read_chunk((0, 0), out)
    held = POOL.held_bytes
    assert 0 < held <= array.scratch_bytes + 2**16
    for i in range(10):
        array.read_chunk((i, 0), out)
    assert POOL.held_bytes == held
    assert POOL.drop_idle() == held and POOL.held_bytes == 0


@pytest.mark.parametrize("how", [*V3, *V3_GENERAL])
def test_reading_takes_no_more_than_it_says(tmp_path: Path, how: str) -> None:
    parameters = (V3 | V3_GENERAL)[how]
    if "shards" in parameters:
        parameters = parameters | {"shards": (512, 512)}
    values = np.random.default_rng(0).random((500, 500))
    zarr.create_array(tmp_path / "x", shape=(500, 500), chunks=(256, 256), dtype="f8", **parameters)[:] = values
    array = open_array(tmp_path / "x")
    for index in ((0, 0), (1, 1)):
        out = np.empty([axis.block(i)[1] - axis.block(i)[0] for axis, i in zip(array.grid, index, strict=True)])
        array.read_chunk(index, out)  # imports and caches are no scratch
        POOL.drop_idle()
        tracemalloc.start()
        array.read_chunk(index, out)
        peak = tracemalloc.get_traced_memory()[1] + POOL.held_bytes
        tracemalloc.stop()
        assert peak <= array.scratch_bytes + 2 * 2**16 + 50_000  # buffers come in multiples of 64 KiB


def test_stamps_tell_a_rewritten_chunk_and_a_replaced_array(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype="f8")
    z[:] = 1
    array = open_array(tmp_path / "t")
    before = array.chunk_stamp((0,)), array.chunk_stamp((1,))
    assert None not in before
    array.check()
    z[:2] = 2
    assert array.chunk_stamp((0,)) != before[0] and array.chunk_stamp((1,)) == before[1]
    array.check()  # chunks changed in place aren't noticed, as documented
    zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype="f8", overwrite=True)
    assert array.chunk_stamp((0,)) is None
    with pytest.raises(SourceChangedError, match="t was replaced after it was opened"):
        array.check()
    with pytest.raises(SourceChangedError, match="t was replaced"):  # not fill values
        array.read_chunk((0,), np.empty(2))


def test_stamps_in_other_stores_are_digests() -> None:
    store = MemoryStore()
    zarr.create_array(store, name="x", shape=(4,), chunks=(2,), dtype="f8")
    array = open_array(store, "x")
    array.check()
    assert array.chunk_stamp((0,)) is None
    zarr.create_array(store, name="x", shape=(5,), chunks=(2,), dtype="f8", overwrite=True)
    with pytest.raises(SourceChangedError, match="replaced"):
        array.check()
    store._store_dict.clear()
    with pytest.raises(SourceChangedError, match="removed"):
        array.check()


def test_an_array_that_was_removed_does_not_read_as_fill_values(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "t", shape=(4,), chunks=(2,), dtype="f8")[:] = 1
    array = open_array(tmp_path / "t")
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(SourceChangedError, match="removed"):
        array.read_chunk((0,), np.empty(2))


def test_arrays_that_look_alike_are_not_taken_for_one_another(tmp_path: Path) -> None:
    stores = [MemoryStore(), MemoryStore()]
    for i, store in enumerate(stores):
        zarr.create_array(
            store, name="x", shape=(4,), chunks=(4,), dtype="f8", fill_value=i, config={"write_empty_chunks": True}
        )
    arrays = [open_array(store, "x") for store in stores]
    assert [read_all(array)[0] for array in arrays] == [0, 1]
    assert not arrays[0].is_same_array(arrays[1].location)
    same = [MemoryStore(), MemoryStore()]
    twins = [open_array(zarr.create_array(store, shape=(4,), chunks=(4,), dtype="f8")) for store in same]
    assert same[0] == same[1] and not twins[0].is_same_array(twins[1].location)
