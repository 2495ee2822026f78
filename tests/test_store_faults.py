"""A chunk that can't be read never passes for one that was never written, nor for half of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from helpers.synthetic import FailingStore, Faults, blocks, synthetic_array
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.codecs.numcodecs import LZ4
from zarr.storage import MemoryStore

from jaxchunk.errors import StorageError
from jaxchunk.store import open_array

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")

ERRORS: list[Any] = [
    PermissionError,
    TimeoutError,
    ConnectionResetError,
    OSError(5, "EIO"),
    IsADirectoryError,
    KeyError("x"),
]


def third_of(path: Any) -> Any:
    z = zarr.create_array(path, shape=(9,), chunks=(3,), dtype="f8", fill_value=-5.0)
    z[0:3], z[6:9] = 1, 2
    return z


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_every_failure_to_fetch_is_raised_as_it_is_with_array_chunk_and_key(tmp_path: Path, error: Any) -> None:
    z = third_of(tmp_path / "t.zarr")
    array = open_array(zarr.open_array(FailingStore(z.store, key="c/2", error=error)))
    out = np.zeros(3)
    array.read_chunk((0,), out)
    assert (out == 1).all()
    array.read_chunk((1,), out)
    assert (out == -5).all()
    for _ in range(2):
        with pytest.raises(error if isinstance(error, type) else type(error)) as caught:
            array.read_chunk((2,), out)
        (note,) = caught.value.__notes__
        assert "chunk (2,)" in note and "t.zarr" in note and "'c/2'" in note
    assert not isinstance(caught.value, StorageError)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_metadata_that_cannot_be_read_is_no_missing_array(error: Any) -> None:
    store = MemoryStore()
    third_of(store)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        open_array(FailingStore(store, "zarr.json", error))


def damaged(tmp_path: Path) -> Any:
    array = open_array(tmp_path / "t.zarr")
    with pytest.raises(StorageError, match=r"chunk \(2,\) of array .*t\.zarr \(key 'c/2'\): ") as caught:
        array.read_chunk((2,), np.full(3, 9.0))
    return caught.value


@pytest.mark.parametrize("what", ["directory", "directory on the way", "dangling link", "dangling link on the way"])
def test_something_else_where_a_chunk_should_be(tmp_path: Path, what: str) -> None:
    third_of(tmp_path / "t.zarr")
    chunks = tmp_path / "t.zarr/c"
    array = open_array(tmp_path / "t.zarr")
    out = np.zeros(3)
    (chunks / "2").unlink()
    if what == "directory":
        (chunks / "2").mkdir()
        with pytest.raises(IsADirectoryError) as caught:
            array.read_chunk((2,), out)
        assert "chunk (2,)" in caught.value.__notes__[0]
    elif what == "dangling link":
        (chunks / "2").symlink_to(tmp_path / "nowhere")
        assert "is a link to" in str(damaged(tmp_path))
    else:
        (chunks / "0").unlink()
        chunks.rmdir()
        if what == "directory on the way":
            chunks.touch()
            with pytest.raises(NotADirectoryError):
                array.read_chunk((2,), out)
        else:
            chunks.symlink_to(tmp_path / "nowhere")
            assert "is a link to" in str(damaged(tmp_path))


CODECS = {
    "none": None,
    "zstd": [ZstdCodec()],
    "blosc": [BloscCodec()],
    "gzip": [GzipCodec()],
    "lz4": [LZ4()],
    "general": [GzipCodec(), ZstdCodec()],
}


@pytest.mark.parametrize(
    ("shards", "codec", "keep"),
    [
        (shards, codec, keep)
        for shards in (None, (200,))
        for codec in CODECS
        for keep in (0, 1, 0.5, -1, "longer", "garbage")
        # without compressor and checksum, other bytes are other values
        if codec != "none" or not (keep == "garbage" or (shards and keep == "longer"))
    ],
)
def test_truncated_and_damaged_chunks(tmp_path: Path, codec: str, keep: Any, shards: Any) -> None:
    z = zarr.create_array(
        tmp_path / "t", shape=(200,), chunks=(100,), shards=shards, dtype="f8", compressors=CODECS[codec]
    )
    z[:] = np.random.default_rng(0).random(200)
    path = tmp_path / "t/c/0"
    data = path.read_bytes()
    if keep == "longer":
        data = b"xx" + data if shards else data + b"xx"
    elif keep == "garbage":
        data = b"\x00\xff" * (len(data) // 2)
    else:
        data = (
            data[: int(len(data) * keep)]
            if isinstance(keep, float)
            else data[: keep if keep >= 0 else len(data) + keep]
        )
    path.write_bytes(data)
    array = open_array(tmp_path / "t")
    with pytest.raises(StorageError, match=r"chunk \(0,\) of array .* \(key 'c/0'\): "):
        array.read_chunk((0,), np.full(100, 7.0))


@pytest.mark.parametrize(
    "codec", [numcodecs.Zstd(), numcodecs.Blosc(), numcodecs.LZ4(), numcodecs.GZip(), numcodecs.Zlib(), None]
)
@pytest.mark.parametrize("length", [50, 150])
def test_a_whole_chunk_of_another_size_is_damage_not_half_a_buffer(tmp_path: Path, codec: Any, length: int) -> None:
    z = zarr.create_array(tmp_path / "t", shape=(100,), chunks=(100,), dtype="f8", compressors=codec, zarr_format=2)
    z[:] = 1
    other = np.ones(length)
    (tmp_path / "t/0").write_bytes(codec.encode(other) if codec else other.tobytes())
    with pytest.raises(StorageError, match=r"chunk \(0,\)"):
        open_array(tmp_path / "t").read_chunk((0,), np.full(100, 7.0))


def test_zstd_frames_that_do_not_say_their_size_and_gzip_of_several_members_are_read(tmp_path: Path) -> None:
    import gzip

    values = np.random.default_rng(0).random(100)
    for name, codec in (("z", numcodecs.Zstd()), ("g", numcodecs.GZip())):
        z = zarr.create_array(
            tmp_path / name, shape=(100,), chunks=(100,), dtype="f8", compressors=codec, zarr_format=2
        )
        z[:] = 0
    # Magic, a descriptor without content size and with a window, one raw last block.
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b0000_0000, 0x10]) + (800 << 3 | 1).to_bytes(3, "little") + values.tobytes()
    (tmp_path / "z/0").write_bytes(frame)
    (tmp_path / "g/0").write_bytes(gzip.compress(values[:30].tobytes()) + gzip.compress(values[30:].tobytes()))
    for name in "zg":
        out = np.empty(100)
        open_array(tmp_path / name).read_chunk((0,), out)
        assert np.array_equal(out, values)


def test_a_file_larger_than_any_chunk_can_be_is_not_read(tmp_path: Path) -> None:
    third_of(tmp_path / "t.zarr")
    os.truncate(tmp_path / "t.zarr/c/2", 2**40)  # sparse: takes no room
    assert "more than the" in str(damaged(tmp_path))


def test_the_codecs_own_exception_is_the_cause(tmp_path: Path) -> None:
    third_of(tmp_path / "t.zarr")
    path = tmp_path / "t.zarr/c/2"
    path.write_bytes(path.read_bytes()[:-2])
    error = damaged(tmp_path)
    assert "Zstd" in str(error.__cause__) and isinstance(error.__cause__, RuntimeError)


def test_a_shard_that_is_replaced_between_two_reads_is_read_anew(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "t", shape=(200,), chunks=(10,), shards=(200,), dtype="f8")
    values = np.random.default_rng(0).random(200)
    z[:] = values
    array = open_array(tmp_path / "t")
    out = np.empty(10)
    array.read_chunk((3,), out)
    z[:100] = 1  # shorter encoded chunks: all offsets move
    array.read_chunk((15,), out)
    assert np.array_equal(out, values[150:160])
    array.read_chunk((0,), out)
    assert (out == 1).all()


def test_synthetic_faults_follow_the_seed() -> None:
    faults = Faults(seed=1, fail=0.3, times=1, error=lambda: TimeoutError("slow"))
    array = open_array(synthetic_array((400,), (1,), "i8", lambda i: i, faults=faults))
    failed, out = 0, np.empty(1, "i8")
    for index, _ in blocks(array.grid):
        try:
            array.read_chunk(index, out)
        except TimeoutError:
            failed += 1
            array.read_chunk(index, out)  # the second time it works
        assert out[0] == index[0]
    assert 80 < failed < 160
    torn = open_array(synthetic_array((4,), (4,), "i8", lambda i: i, faults=Faults(truncate=1)))
    with pytest.raises(StorageError, match="has 16 bytes, but a chunk has 32"):
        torn.read_chunk((0,), np.empty(4, "i8"))
