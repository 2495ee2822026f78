"""Writing: every shape there is, several arrays at once, lazy writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

import jaxchunk as jc
import jaxchunk.array_api as xp


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0, 2), (1,), (1, 1), (5, 1, 2)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex128", "uint8"])
def test_any_shape_goes_to_zarr_and_back(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    values = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    jc.to_zarr(xp.asarray(values, chunks=2), tmp_path / "x.zarr")
    stored = zarr.open_array(tmp_path / "x.zarr", mode="r")
    assert stored.shape == shape and stored.dtype == dtype
    np.testing.assert_array_equal(stored[...], values)
    np.testing.assert_array_equal(jc.from_zarr(tmp_path / "x.zarr").compute(), values)


def test_lazy_writes_and_arrays_are_stored_in_one_run(tmp_path: Path) -> None:
    x = xp.arange(10, chunks=3)
    write = jc.to_zarr(x + 1, tmp_path / "a.zarr", compute=False)
    with jc.profile() as p:
        jc.store([write, x * 2], [tmp_path / "b.zarr"])
    assert p.to_dict()["runs"] == 1
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr")[...], np.arange(10) + 1)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "b.zarr")[...], np.arange(10) * 2)


def test_as_many_paths_as_arrays(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 arrays, but 1 paths"):
        jc.store([xp.ones(3), xp.ones(3)], [tmp_path / "a.zarr"])
    assert not list(tmp_path.iterdir())


def test_a_plan_tells_what_is_modelled_compiled_and_measured() -> None:
    x = xp.reshape(xp.arange(40_000.0, chunks=5_000), (200, 200))
    plan = jc.plan(xp.std(x + 1, axis=0))
    assert "(modelled)" in plan.explain() and "(compiled)" not in plan.explain() and "measured" not in plan.explain()
    assert "(compiled)" in plan.explain(compile=True)
    plan.run()
    assert "measured" in plan.explain()


def test_two_writes_to_one_place_are_refused(tmp_path: Path) -> None:
    jc.to_zarr(xp.zeros(3), tmp_path / "a.zarr")
    (tmp_path / "link.zarr").symlink_to(tmp_path / "a.zarr")
    for other in ("a.zarr", "link.zarr"):
        with pytest.raises(ValueError, match="one place"):
            jc.store([xp.ones(3), xp.ones(3)], [tmp_path / "a.zarr", tmp_path / other], overwrite=True)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "a.zarr")[...], np.zeros(3))


def test_a_region_takes_slices_and_nothing_that_makes_arrays(tmp_path: Path) -> None:
    jc.to_zarr(xp.zeros((4, 4)), tmp_path / "a.zarr", chunks=2)
    jc.to_zarr(xp.ones((2, 4)), tmp_path / "a.zarr", region=(slice(2, 4), slice(0, 4)))
    assert zarr.open_array(tmp_path / "a.zarr")[...].sum() == 8
    with pytest.raises(TypeError, match="region"):
        jc.to_zarr(xp.ones(4), tmp_path / "a.zarr", region=(0, slice(0, 4)))
    with pytest.raises(ValueError, match="region"):
        jc.to_zarr(xp.ones((2, 4)), tmp_path / "a.zarr", region=(slice(2, 4), slice(0, 4)), overwrite=True)


def test_a_write_inside_of_an_array_is_refused_at_the_call(tmp_path: Path) -> None:
    jc.to_zarr(xp.zeros(4), tmp_path / "a.zarr", chunks=2)
    before = sorted(tmp_path.rglob("*"))
    for inside in ("b.zarr", "c/b.zarr", "c/0/b.zarr"):
        with pytest.raises(ValueError, match=r"a\.zarr is a Zarr array"):
            jc.to_zarr(xp.ones(4), tmp_path / "a.zarr" / inside, compute=False)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kibibytes", [256, 600, 4096])
def test_tiles_that_line_up_with_no_chunk_keep_to_the_budget(tmp_path: Path, kibibytes: int) -> None:
    values = np.ones((1, 301, 7, 257), "uint8" if kibibytes < 600 else "float64")
    zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(1, 64, 3, 100))
    x = jc.from_zarr(tmp_path / "x.zarr")
    with jc.config.set(host_memory=kibibytes * 1024):
        for _ in range(3):
            np.testing.assert_array_equal(
                xp.sum(x, axis=(1, 3), keepdims=True).compute(), values.sum((1, 3), keepdims=True)
            )
            np.testing.assert_array_equal(
                xp.prod(x[:, :9, :, ::-50], axis=1).compute(), values[:, :9, :, ::-50].prod(1)
            )
            np.testing.assert_array_equal(xp.all(x, axis=(0, 2)).compute(), values.all((0, 2)))


MOVES = {
    "concat": (lambda x: xp.concat([x, x]), lambda n: np.concatenate([n, n])),
    "reshape": (lambda x: xp.reshape(x, (9, 8)), lambda n: n.reshape(9, 8)),
    "stack": (lambda x: xp.stack([x, x + 1]), lambda n: np.stack([n, n + 1])),
    "roll": (lambda x: xp.roll(x, 2, axis=1), lambda n: np.roll(n, 2, axis=1)),
    "tile": (lambda x: xp.tile(x, (2, 1)), lambda n: np.tile(n, (2, 1))),
    "repeat": (lambda x: xp.repeat(x, 3, axis=0), lambda n: np.repeat(n, 3, axis=0)),
    "a view": (lambda x: x[::-1, 1:7:2], lambda n: n[::-1, 1:7:2]),
    "a product": (lambda x: x * 2, lambda n: n * 2),
}


@pytest.mark.parametrize("budget", ["24 KiB", "1 MiB"])
@pytest.mark.parametrize("name", MOVES)
def test_anything_can_be_persisted(name: str, budget: str) -> None:
    ours, theirs = MOVES[name]
    values = np.arange(72.0).reshape(8, 9)
    with jc.config.set(host_memory=budget):
        kept = jc.persist(ours(xp.asarray(values, chunks=4)))
        np.testing.assert_array_equal(kept.compute(), theirs(values))
        np.testing.assert_array_equal((kept + 1).compute(), theirs(values) + 1)


@pytest.mark.parametrize("chunks", [(1, 4), (1, 7), (1, 1), "auto"])
def test_blocks_of_a_function_are_stored_in_any_chunks(tmp_path: Path, chunks: tuple[int, ...] | str) -> None:
    values = np.arange(7.0).reshape(1, 7)
    for x in (xp.asarray(values, chunks=(1, 2)), xp.flip(xp.asarray(values, chunks=(1, 2)))):
        path = tmp_path / f"{x.chunks}.zarr"
        jc.to_zarr(jc.map_blocks(lambda b: b * 2, x), path, chunks=chunks)
        np.testing.assert_array_equal(zarr.open_array(path)[...], x.compute() * 2)


@pytest.mark.parametrize("kibibytes", [260, 300, 340, 400, 500, 4096])
def test_shifted_windows_of_chunks_are_right_at_any_budget(tmp_path: Path, kibibytes: int) -> None:
    values = np.random.default_rng(0).standard_normal((200, 300))
    zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(37, 41))
    x = jc.from_zarr(tmp_path / "x.zarr")
    with jc.config.set(host_memory=kibibytes * 1024):
        inner = values[1:-1, 1:-1]
        np.testing.assert_allclose(float(xp.sum(x[1:-1, 1:-1] ** 2)), (inner**2).sum(), rtol=1e-12)
        laplace = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
        expected = values[2:, 1:-1] + values[:-2, 1:-1] + values[1:-1, 2:] + values[1:-1, :-2] - 4 * inner
        jc.to_zarr(laplace, tmp_path / "y.zarr", chunks=(20, 50))
        np.testing.assert_allclose(zarr.open_array(tmp_path / "y.zarr")[...], expected, rtol=1e-12, atol=1e-12)
