"""What is wrong is said at once, by the right exception, with what existed before still there."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from zarr.storage import MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import SourceChangedError, StorageError


def put(path: Path, values: Any, chunks: Any = "auto") -> Path:
    zarr.create_array(path, data=np.asarray(values), chunks=chunks, overwrite=True)
    return path


def matrix() -> Any:
    return xp.reshape(xp.arange(12.0), (3, 4))


# --- at the call ------------------------------------------------------------------------------------------

CALLS = {
    # dtypes and kinds
    "bits of floats": (TypeError, lambda: xp.bitwise_and(xp.ones(3), xp.ones(3))),
    "sine of integers": (TypeError, lambda: xp.sin(xp.arange(3))),
    "text": (TypeError, lambda: xp.asarray("abc")),
    "an object": (TypeError, lambda: xp.asarray([object()])),
    "a dtype by name": (TypeError, lambda: xp.ones(3, dtype="no such")),
    "a dtype of NumPy's that isn't the standard's": (TypeError, lambda: jc.from_array(np.ones(3, np.float16))),
    "a NumPy array among operands": (TypeError, lambda: xp.add(xp.ones(3), np.ones(3))),
    "computing a NumPy array": (TypeError, lambda: jc.compute(np.ones(3))),
    "writing a NumPy array": (TypeError, lambda: jc.to_zarr(np.ones(3), MemoryStore())),
    "the truth of a float's dtype": (TypeError, lambda: xp.logical_and(xp.ones(3), xp.ones(3))),
    "an index that is a float": (TypeError, lambda: xp.ones(3)[1.0], IndexError),
    # shapes
    "shapes that don't go together": (ValueError, lambda: xp.ones(3) + xp.ones(4)),
    "matrices that don't go together": (ValueError, lambda: xp.matmul(matrix(), matrix())),
    "an inner axis that differs": (ValueError, lambda: xp.tensordot(matrix(), matrix(), axes=1)),
    "a matrix of one axis": (ValueError, lambda: xp.matrix_transpose(xp.ones(3))),
    "a reshape that loses": (ValueError, lambda: xp.reshape(matrix(), (5, 2))),
    "a reshape with two unknowns": (ValueError, lambda: xp.reshape(matrix(), (-1, -1))),
    "arrays of other shapes joined": (ValueError, lambda: xp.concat([xp.ones((2, 3)), xp.ones((2, 4))])),
    "nothing joined": (ValueError, lambda: xp.concat([])),
    "other shapes stacked": (ValueError, lambda: xp.stack([xp.ones(3), xp.ones(4)])),
    "a broadcast that can't be": (ValueError, lambda: xp.broadcast_to(xp.ones(3), (4,))),
    "a negative shape": (ValueError, lambda: xp.ones((-1, 3))),
    "the greatest of nothing": (ValueError, lambda: xp.max(xp.ones((0, 3)), axis=0)),
    "a squeeze of what is long": (ValueError, lambda: xp.squeeze(matrix(), axis=0)),
    "the truth of many": (ValueError, lambda: bool(xp.ones(3)), TypeError),
    # axes and indices
    "an axis too far": (IndexError, lambda: xp.sum(matrix(), axis=2)),
    "an axis before the first": (IndexError, lambda: xp.mean(matrix(), axis=-3)),
    "an axis twice": (ValueError, lambda: xp.sum(matrix(), axis=(0, 0))),
    "an order that isn't one": (ValueError, lambda: xp.permute_dims(matrix(), (0, 0))),
    "an index too far": (IndexError, lambda: matrix()[3]),
    "too many indices": (IndexError, lambda: matrix()[0, 0, 0]),
    "a step of zero": (ValueError, lambda: matrix()[::0]),
    "a running sum of a matrix along no axis": (ValueError, lambda: xp.cumulative_sum(matrix())),
    # chunks
    "chunks of none": (ValueError, lambda: xp.ones(3, chunks=0)),
    "negative chunks": (ValueError, lambda: xp.ones(3, chunks=(-2,))),
    "too many chunks": (ValueError, lambda: xp.ones(3, chunks=(1, 1))),
    "too few chunks": (ValueError, lambda: xp.ones((3, 3), chunks=(1,))),
    "blocks that don't add up": (ValueError, lambda: jc.rechunk(matrix(), ((1, 1), (4,)))),
    "a chunk for an axis that isn't there": ((ValueError, IndexError), lambda: jc.rechunk(matrix(), {2: 1})),
    "chunks that are text": (ValueError, lambda: jc.rechunk(matrix(), "some"), TypeError),
    "chunks that are fractions": (TypeError, lambda: jc.rechunk(matrix(), (1.5, 2)), ValueError),
    "NaN chunks": (ValueError, lambda: jc.rechunk(matrix(), (math.nan, 2)), TypeError),
    "stored chunks of none": (ValueError, lambda: jc.to_zarr(matrix(), MemoryStore(), chunks=(0, 4))),
    "irregular stored chunks": (ValueError, lambda: jc.to_zarr(matrix(), MemoryStore(), chunks=((1, 2), (4,)))),
    "shards that aren't multiples": (
        ValueError,
        lambda: jc.to_zarr(matrix(), MemoryStore(), chunks=(2, 2), shards=(3, 4)),
    ),
    "too few shards": (ValueError, lambda: jc.to_zarr(matrix(), MemoryStore(), chunks=(2, 2), shards=(4,))),
    # functions of blocks
    "arrays cut otherwise": (ValueError, lambda: jc.map_blocks(jnp.add, xp.ones(6, chunks=2), xp.ones(6, chunks=3))),
    "no array": (TypeError, lambda: jc.map_blocks(jnp.add, 1, 2)),
    "a block that loses an axis": (ValueError, lambda: jc.map_blocks(jnp.sum, xp.ones(6, chunks=2))),
    "not one array": (TypeError, lambda: jc.map_blocks(lambda b: (b, b), xp.ones(6, chunks=2))),
    # several
    "more paths than arrays": (ValueError, lambda: jc.store([xp.ones(3)], ["a", "b"])),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_raises_at_the_call(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error, call, *others = CALLS[name]
    kinds = error if isinstance(error, tuple) else (error,)
    with pytest.raises((*kinds, *others)) as caught, jc.profile() as p:
        call()
    assert len(str(caught.value)) > 15, "a sentence"
    assert p.to_dict()["runs"] == 0
    assert not list(tmp_path.iterdir())


BUDGETS: dict[str, Any] = {
    "NaN": math.nan,
    "infinite": math.inf,
    "zero": 0,
    "negative": -5,
    "text NaN": "nan",
    "text zero": "0 MiB",
    "text negative": "-1 GiB",
    "unknown unit": "3 parsecs",
    "no number": "much",
    "no text": "",
}


@pytest.mark.parametrize("value", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("name", ["host_memory", "device_memory"])
def test_budgets_that_are_none_are_refused_and_change_nothing(name: str, value: Any) -> None:
    before = jc.config.get()
    with pytest.raises(ValueError, match=name):
        jc.config.set(**{name: value})
    with pytest.raises(ValueError, match=name), jc.config.set(**{name: value}):
        pass
    assert jc.config.get() == before


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"host_memory": [1]}, TypeError),
        ({"host_memory": True}, TypeError),
        ({"memory": "1 GiB"}, ValueError),
        ({"threads": 0}, ValueError),
        ({"threads": 1.5}, TypeError),
        ({"progress": "yes"}, TypeError),
        ({"host_memory": "1 GiB", "threads": -1}, ValueError),
    ],
)
def test_wrong_settings_are_refused_all_together(changes: dict[str, Any], error: type[Exception]) -> None:
    before = jc.config.get()
    with pytest.raises(error):
        jc.config.set(**changes)
    assert jc.config.get() == before


# --- paths ----------------------------------------------------------------------------------------------------


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "no.zarr", str(tmp_path / "no" / "no.zarr")):
        with pytest.raises(FileNotFoundError, match="no.zarr"):
            jc.from_zarr(path)
    assert not list(tmp_path.iterdir())


def test_a_group_names_its_arrays(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    for name in ("speed", "height"):
        group.create_array(name, data=np.arange(3))
    with pytest.raises(ValueError) as caught:
        jc.from_zarr(tmp_path / "g.zarr")
    assert "speed" in str(caught.value)
    assert "height" in str(caught.value)


def test_an_existing_target_stays_unless_it_is_to_go(tmp_path: Path) -> None:
    path = put(tmp_path / "x.zarr", np.arange(6.0))
    lazy = [
        lambda: jc.to_zarr(xp.ones(3), path),
        lambda: jc.to_zarr(xp.ones(3), path, compute=False),
        lambda: jc.store([xp.ones(3), xp.ones(3)], [tmp_path / "y.zarr", path]),
    ]
    for call in lazy:
        with pytest.raises(FileExistsError, match="x.zarr"):
            call()
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(6.0))
    assert [p.name for p in tmp_path.iterdir()] == ["x.zarr"]


def test_what_is_no_array_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    zarr.open_group(tmp_path / "group", mode="w").create_array("x", data=np.arange(3))
    for name in ("file", "folder", "group"):
        with pytest.raises((FileExistsError, ValueError)):
            jc.to_zarr(xp.ones(3), tmp_path / name, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "folder" / "mine").read_text() == "mine"
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "group", mode="r")["x"][...], np.arange(3))


def test_a_target_that_appeared_between_asking_and_running(tmp_path: Path) -> None:
    write = jc.to_zarr(xp.ones(3), tmp_path / "x.zarr", compute=False)
    put(tmp_path / "x.zarr", np.arange(6.0))
    with pytest.raises(FileExistsError):
        jc.compute(write)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "x.zarr", mode="r")[...], np.arange(6.0))


def test_regions_that_do_not_fit(tmp_path: Path) -> None:
    path = put(tmp_path / "x.zarr", np.arange(10.0), chunks=(4,))
    cases: list[tuple[Any, Any, Any]] = [
        (xp.ones(3), [slice(0, 3)], ValueError),  # an edge inside a chunk
        (xp.ones(4), [slice(0, 8)], ValueError),  # another shape
        (xp.ones(4), [slice(8, 12)], (ValueError, IndexError)),  # past the end
        (xp.ones(4), [slice(0, 4), slice(0, 1)], (ValueError, IndexError)),  # another number of axes
        (xp.ones(2), [slice(0, 4, 2)], ValueError),  # a step
        (xp.ones(4, dtype=xp.int32), [slice(0, 4)], TypeError),  # another dtype
    ]
    for x, region, error in cases:
        with pytest.raises(error):
            jc.to_zarr(x, path, region=region)
    with pytest.raises(FileNotFoundError):
        jc.to_zarr(xp.ones(4), tmp_path / "no.zarr", region=[slice(0, 4)])
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], np.arange(10.0))
    jc.to_zarr(xp.ones(2), path, region=[slice(8, 10)])
    np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], [*range(8), 1, 1])


# --- what is stored is damaged -----------------------------------------------------------------------------


def damaged(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    for name in ("truncated", "empty", "garbage", "longer", "directory"):
        path = put(tmp_path / f"{name}.zarr", np.arange(100.0), chunks=(10,))
        chunk = path / "c" / "3"
        content = chunk.read_bytes()
        if name == "truncated":
            chunk.write_bytes(content[: len(content) // 2])
        elif name == "empty":
            chunk.write_bytes(b"")
        elif name == "garbage":
            chunk.write_bytes(b"\xff" * len(content))
        elif name == "longer":
            chunk.write_bytes(content * 200)
        else:
            chunk.unlink()
            chunk.mkdir()
        yield name, path


def test_a_damaged_chunk_is_told_by_array_chunk_and_key_and_others_can_be_read(tmp_path: Path) -> None:
    for name, path in damaged(tmp_path):
        x = jc.from_zarr(path)
        target = put(tmp_path / "target.zarr", np.arange(5.0))
        for ask in (
            lambda x=x: xp.sum(x).compute(),
            lambda x=x, target=target: jc.to_zarr(x + 1, target, overwrite=True),
        ):
            with pytest.raises(IsADirectoryError if name == "directory" else StorageError) as caught:
                ask()
            text = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
            assert f"{name}.zarr" in text
            assert "c/3" in text
            assert "(3,)" in text
            assert "test_bad_input.py" in text, "the user's line"
        np.testing.assert_array_equal(zarr.open_array(target, mode="r")[...], np.arange(5.0))
        np.testing.assert_array_equal(x[:30].compute(), np.arange(30.0))
        np.testing.assert_array_equal(x[40:].compute(), np.arange(40.0, 100))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_codec_that_is_not_installed_is_named_when_the_array_is_opened(tmp_path: Path) -> None:
    path = put(tmp_path / "x.zarr", np.arange(10.0))
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["codecs"].append({"name": "nobody.has_this", "configuration": {}})
    (path / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises((ValueError, KeyError, ImportError, StorageError), match="nobody.has_this"):
        jc.from_zarr(path)
    old = zarr.create_array(tmp_path / "old.zarr", data=np.arange(10.0), zarr_format=2)
    metadata = json.loads((tmp_path / "old.zarr" / ".zarray").read_text())
    metadata["compressor"] = {"id": "nobody_has_this"}
    (tmp_path / "old.zarr" / ".zarray").write_text(json.dumps(metadata))
    with pytest.raises((ValueError, KeyError, ImportError, StorageError), match="nobody_has_this"):
        jc.from_zarr(tmp_path / "old.zarr")
    assert old.shape == (10,)


def test_damaged_metadata_is_no_missing_array(tmp_path: Path) -> None:
    path = put(tmp_path / "x.zarr", np.arange(10.0))
    (path / "zarr.json").write_text("{ not json")
    with pytest.raises((ValueError, StorageError), match="x.zarr") as caught:
        jc.from_zarr(path)
    assert not isinstance(caught.value, FileNotFoundError)


# --- between plan and run -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["rewritten", "same again", "gone", "another shape"])
def test_a_source_that_was_replaced_between_plan_and_run(tmp_path: Path, how: str) -> None:
    path = put(tmp_path / "x.zarr", np.arange(100.0), chunks=(10,))
    target = put(tmp_path / "y.zarr", np.arange(5.0))
    x = jc.from_zarr(path)
    plan = jc.plan(xp.sum(x))
    write = jc.plan(jc.to_zarr(x * 2, target, overwrite=True, compute=False))
    if how == "rewritten":
        jc.to_zarr(xp.ones(100, chunks=10), path, overwrite=True)
    elif how == "same again":
        put(path, np.arange(100.0), chunks=(10,))
    elif how == "gone":
        shutil.rmtree(path)
    else:
        put(path, np.arange(50.0), chunks=(7,))
    for run in (plan.run, write.run, lambda: float(xp.max(x))):
        with pytest.raises(SourceChangedError, match="x.zarr"):
            run()
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[...], np.arange(5.0))


def test_a_budget_that_changed_between_plan_and_run() -> None:
    x = xp.ones((1000, 1000), chunks=100)
    with budget(64 * 2**20):
        plan = jc.plan(xp.sum(x))
    with budget(32 * 2**20), pytest.raises(RuntimeError, match="plan"):
        plan.run()
    with budget(64 * 2**20):
        assert float(plan.run()[0]) == 1e6


def test_what_a_function_of_blocks_asks_for_is_computed_while_it_is_traced() -> None:
    y = xp.arange(5)
    z = jc.map_blocks(lambda b: b + int(xp.sum(y)), xp.ones(6, chunks=2))
    np.testing.assert_array_equal(z.compute(), np.full(6, 11.0))


def test_asking_while_the_user_traces_with_jax_is_no_different_from_asking_elsewhere() -> None:
    y = xp.arange(5.0, chunks=2)
    assert float(jax.jit(lambda a: a + float(xp.sum(y)))(1.0)) == 11.0
    assert float(jax.grad(lambda a: a * float(xp.max(y)))(1.0)) == 4.0


# --- the user's own configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
def test_an_exception_leaves_the_configuration_of_others_as_it_was(tmp_path: Path, wide: bool) -> None:
    paths = dict(damaged(tmp_path))
    with jax.enable_x64(wide), zarr.config.set({"async.concurrency": 3}):
        before = dict(jax.config.values), json.dumps(zarr.config.config, default=str)
        for ask in (
            lambda: xp.sum(jc.from_zarr(paths["garbage"])).compute(),
            lambda: jc.from_zarr(tmp_path / "no.zarr"),
            lambda: jc.map_blocks(lambda b: 1 / 0, xp.ones(6, chunks=2)),
            lambda: xp.ones(3) + xp.ones(4),
        ):
            with pytest.raises((StorageError, FileNotFoundError, ZeroDivisionError, ValueError)):
                ask()
            assert (dict(jax.config.values), json.dumps(zarr.config.config, default=str)) == before
        assert jnp.ones(3).dtype == (jnp.float64 if wide else jnp.float32)
        assert (xp.ones(3) + 1).compute().dtype == np.float64
        assert jnp.ones(3).dtype == (jnp.float64 if wide else jnp.float32)


def test_the_error_of_a_user_s_function_is_the_user_s() -> None:
    def bad(block: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jc.map_blocks(bad, xp.ones(8, chunks=2))
    with pytest.raises(KeyError, match="mine"):
        jc.map_blocks(bad, xp.ones(8, chunks=2), dtype=xp.float64)
