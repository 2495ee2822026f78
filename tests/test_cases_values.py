"""Values that must never depend on names, on what is captured, on chunks, or on memory that others write to."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB
from zarr.storage import MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import SourceChangedError

Call = Any


def put(path: Path, values: Any, chunks: Any = None) -> Path:
    """A NumPy array as Zarr, over whatever is there."""
    zarr.create_array(path, data=np.asarray(values), chunks=chunks or "auto", overwrite=True)
    return path


# --- running sums ---------------------------------------------------------------------------------


def check_running_sum(values: np.ndarray[Any, Any], chunk: int) -> None:
    c = xp.cumulative_sum(xp.asarray(values, chunks=(chunk,)))
    assert c.dtype == values.dtype
    assert c.chunks == xp.asarray(values, chunks=(chunk,)).chunks
    exact = np.cumsum(values.astype(np.float64))
    np.testing.assert_allclose(c.compute(), exact, rtol=1e-5)


@pytest.mark.parametrize(
    ("length", "chunk"),
    [(1_875_000, 62_500), (1_000_003, 99_991), pytest.param(30_000_000, 1_000_000, marks=pytest.mark.long)],
)
def test_a_running_sum_neither_drifts_nor_steps_at_a_border(length: int, chunk: int) -> None:
    x = xp.full((length,), 0.1, dtype=xp.float32, chunks=(chunk,))
    c = xp.cumulative_sum(x)
    assert c.dtype == xp.float32
    assert c.chunks == x.chunks
    assert float(c[-1]) == pytest.approx(length * float(np.float32(0.1)), rel=1e-5)
    steps = xp.diff(c[chunk - 10 : chunk + 10]).compute()
    assert np.abs(steps - 0.1).max() <= 0.1


@pytest.mark.parametrize("chunk", [1, 7, 1000, 4096])
def test_a_running_sum_of_anything_keeps_to_the_exact_one(chunk: int) -> None:
    rng = np.random.default_rng(0)
    check_running_sum(rng.random(4096 if chunk > 1 else 200).astype(np.float32), chunk)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_running_sums_along_either_axis_of_more_rows_than_a_tile(axis: int, dtype: str) -> None:
    rng = np.random.default_rng(1)
    n = rng.integers(-9, 10, (700, 300)).astype(dtype)
    x = xp.asarray(n, chunks=(90, 64))
    with budget(3 * MIB):  # of which the result takes 1.6 at most
        c = xp.cumulative_sum(x, axis=axis)
        # The standard sums small integers in the default integer dtype.
        np.testing.assert_array_equal(c.compute(), np.cumsum(n, axis=axis, dtype=c.dtype))
    assert c.chunks == x.chunks


# --- one array is not another ------------------------------------------------------------------------


def test_an_array_written_anew_under_the_same_path_is_another_one(tmp_path: Path) -> None:
    path = put(tmp_path / "x.zarr", np.zeros((4, 4)))
    a = jc.from_zarr(path)
    assert not a.compute().any()
    put(path, np.ones((4, 4)))
    b = jc.from_zarr(path)
    np.testing.assert_array_equal(b.compute(), np.ones((4, 4)))
    # What was opened before: its own values, if they are remembered, or an error that says why not.
    with contextlib.suppress(SourceChangedError):
        assert not a.compute().any()


@pytest.mark.parametrize("shape", [(4, 4), (5, 7)])
@pytest.mark.parametrize("chunks", [None, (2, 2)])
def test_two_arrays_of_one_name_in_two_stores_are_two(shape: tuple[int, int], chunks: Any) -> None:
    sources = []
    for value in (0.0, 1.0):
        group = zarr.open_group(MemoryStore(), mode="w")
        sources.append(group.create_array("x", data=np.full(shape, value), chunks=chunks or "auto"))
    two = xp.concat([jc.from_zarr(z) for z in sources]).compute()
    np.testing.assert_array_equal(two, np.repeat([0.0, 1.0], shape[0])[:, None] * np.ones(shape[1]))
    total = jc.compute(*(xp.sum(jc.from_zarr(z)) for z in sources))
    assert [float(t) for t in total] == [0.0, shape[0] * shape[1]]


def test_sources_may_have_the_id_of_dead_ones() -> None:
    small = [float(xp.sum(jc.from_array(np.full(1000, i)))) for i in range(50)]
    large = [float(xp.sum(jc.from_array(np.full(200_000, i)))) for i in range(20)]
    assert small == [1000 * i for i in range(50)]
    assert large == [200_000 * i for i in range(20)]


def test_stores_may_have_the_id_of_dead_ones() -> None:
    def total(value: int) -> float:
        z = zarr.create_array(MemoryStore(), data=np.full(1000, value), chunks=(100,))
        x = jc.from_zarr(z)
        # Twice: a source that is read again has chunks worth keeping.
        assert float(xp.max(x)) == value
        return float(xp.sum(x))

    assert [total(i) for i in range(30)] == [1000 * i for i in range(30)]


def test_equal_operations_on_equal_looking_arrays_in_one_run_are_not_merged() -> None:
    arrays = [jc.from_array(np.full(8, i), chunks=(3,)) for i in range(6)]
    results = jc.compute(*(xp.sum(a * 2) for a in arrays))
    assert [int(r) for r in results] == [16 * i for i in range(6)]


# --- functions of blocks -------------------------------------------------------------------------------

CUTS = [(6, 2), (7, 2)]


@pytest.mark.parametrize(("length", "chunk"), CUTS)
def test_functions_that_differ_in_what_they_capture_differ(length: int, chunk: int) -> None:
    x = xp.ones(length, chunks=(chunk,))

    def times(k: Any) -> Call:
        return lambda block: block * k

    two, three = jc.compute(jc.map_blocks(times(2), x), jc.map_blocks(times(3), x))
    np.testing.assert_array_equal(two, np.full(length, 2.0))
    np.testing.assert_array_equal(three, np.full(length, 3.0))
    arrays = [jc.map_blocks(times(np.float64(k)), x).compute() for k in (5, 6)]
    np.testing.assert_array_equal(arrays, [np.full(length, 5.0), np.full(length, 6.0)])
    jaxes = [jc.map_blocks(times(jnp.float32(k)), x).compute() for k in (5, 6)]
    np.testing.assert_array_equal(jaxes, [np.full(length, 5.0), np.full(length, 6.0)])


K = 5


@pytest.mark.parametrize(("length", "chunk"), CUTS)
def test_a_global_counts_as_it_is_at_the_call(monkeypatch: pytest.MonkeyPatch, length: int, chunk: int) -> None:
    x = xp.ones(length, chunks=(chunk,))

    def function(block: Any) -> Any:
        return block + K

    early = jc.map_blocks(function, x)
    first = early.compute()
    monkeypatch.setitem(globals(), "K", 7)
    late = jc.map_blocks(function, x)
    np.testing.assert_array_equal(first, np.full(length, 6.0))
    np.testing.assert_array_equal(late.compute(), np.full(length, 8.0))
    np.testing.assert_array_equal(early.compute(), np.full(length, 6.0))


@pytest.mark.parametrize(("length", "chunk"), CUTS)
def test_partial_arguments_defaults_and_keywords_are_part_of_a_function(length: int, chunk: int) -> None:
    x = xp.ones(length, chunks=(chunk,))
    partial = [jc.map_blocks(functools.partial(jnp.add, np.float64(c)), x) for c in (1, 2)]

    def default(c: float) -> Call:
        def function(block: Any, c: float = c) -> Any:
            return block + c

        return function

    defaults = [jc.map_blocks(default(c), x) for c in (1.0, 2.0)]
    keywords = [jc.map_blocks(lambda block, c: block + c, x, c=c) for c in (1.0, 2.0)]
    arguments = [jc.map_blocks(lambda block, c: block + c, x, c) for c in (1.0, 2.0)]
    for pair in (partial, defaults, keywords, arguments):
        for value, result in zip((2.0, 3.0), jc.compute(*pair), strict=True):
            np.testing.assert_array_equal(result, np.full(length, value))


class Scaled:
    """A function that is a method of a mutable object."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, block: Any) -> Any:
        return block * self.factor

    __call__ = apply


def test_bound_methods_and_callable_objects_count_with_their_state() -> None:
    x = xp.ones(7, chunks=(2,))
    scaled = Scaled(2.0)
    lazies = [jc.map_blocks(scaled.apply, x), jc.map_blocks(scaled, x)]
    scaled.factor = 3.0
    lazies += [jc.map_blocks(scaled.apply, x), jc.map_blocks(scaled, x)]
    np.testing.assert_array_equal([v[0] for v in jc.compute(*lazies)], [2.0, 2.0, 3.0, 3.0])


def test_dtypes_asked_for_are_part_of_the_function_s_result() -> None:
    x = xp.ones(7, chunks=(2,))
    results = [jc.map_blocks(lambda block: block / 2, x, dtype=d) for d in (None, xp.float32, xp.int32)]
    assert [r.dtype for r in results] == [xp.float64, xp.float32, xp.int32]
    np.testing.assert_array_equal([v[-1] for v in jc.compute(*results)], [0.5, 0.5, 0])


def test_a_function_that_looks_at_the_block_s_shape_sees_that_of_every_block() -> None:
    x = xp.ones(7, chunks=(2,))
    sizes = jc.map_blocks(lambda block: block * block.shape[0], x).compute()
    np.testing.assert_array_equal(sizes, [2, 2, 2, 2, 2, 2, 1])


def test_equal_functions_compile_once_and_other_captured_values_do_not_compile_again() -> None:
    x = xp.ones((64, 100), chunks=(1, 100))
    rng = np.random.default_rng(0)

    def with_capture(captured: Any) -> np.ndarray[Any, Any]:
        return jc.map_blocks(lambda block: block * captured, x).compute()

    first, second = jnp.asarray(rng.random(100)), jnp.asarray(rng.random(100))
    np.testing.assert_allclose(with_capture(first)[5], np.asarray(first))
    with jc.profile() as p:
        np.testing.assert_allclose(with_capture(second)[5], np.asarray(second))
    assert p.to_dict()["kernels_compiled"] == 0


@pytest.mark.parametrize("length", [250_000, pytest.param(4_000_000, marks=pytest.mark.long)])
def test_a_large_captured_array_is_an_argument(length: int) -> None:
    def run(seed: int) -> tuple[Any, dict[str, Any], int]:
        with jax.enable_x64(True):
            big = jnp.asarray(np.random.default_rng(seed).random(length))
        x = xp.ones((64, 1000), chunks=(1, 1000))
        with jc.profile() as p:
            y = jc.map_blocks(lambda b: b * big.mean() + jnp.fft.fft(big)[:1000].real, x)
            plan = jc.plan(y)
            value = y.compute()
        n = np.asarray(big)
        np.testing.assert_allclose(value, np.broadcast_to(n.mean() + np.fft.fft(n)[:1000].real, (64, 1000)), rtol=1e-9)
        return plan, p.to_dict(), n.nbytes

    with budget(256 * length + 16 * MIB):
        plan, first, nbytes = run(0)
        assert plan.to_dict()["peak_bytes"] >= nbytes
        assert first["compile_seconds"] < (1.0 if length > 10**6 else 5.0)
        _, second, _ = run(1)
        assert second["kernels_compiled"] == 0


# --- memory that is shared with others -----------------------------------------------------------------


@pytest.mark.parametrize("length", [1000, 1_000_000])
def test_what_is_kept_is_nobody_else_s(length: int) -> None:
    a = np.arange(length, dtype=np.float32)
    x = jc.from_array(a)
    kept = jc.persist(x + 0)
    a[:] = -1
    assert np.asarray(kept)[5] == 5
    view = np.asarray(kept)
    if view.flags.writeable:
        view[7] = 99
    assert float(kept[7]) == 7
    again = kept.compute()
    assert again[7] == 7


@pytest.mark.parametrize("length", [1000, 1_000_000])
def test_a_copy_that_was_asked_for_is_one(length: int) -> None:
    a = np.arange(length, dtype=np.float32)
    a[0] = -1
    c = xp.asarray(a, copy=True)
    a[0] = 3
    assert float(c[0]) == -1
    assert xp.asarray(c, copy=True).compute()[0] == -1


@pytest.mark.parametrize("length", [1000, 1_000_000])
def test_an_array_that_is_not_computed_cannot_be_handed_out_without_a_copy(length: int) -> None:
    x = jc.from_array(np.arange(length, dtype=np.float32))
    with pytest.raises(ValueError, match="copy"):
        np.asarray(x * 2, copy=False)


def test_persisting_a_numpy_array_itself_takes_its_values_of_that_moment() -> None:
    for length in (1000, 1_000_000):
        a = np.arange(length, dtype=np.float64)
        kept = jc.persist(jc.from_array(a))
        a[:] = -1
        np.testing.assert_array_equal(np.asarray(kept)[:3], [0, 1, 2])


def test_all_chunks_of_a_large_numpy_array_are_of_one_moment() -> None:
    a = np.arange(1_000_000, dtype=np.float64)
    x = jc.from_array(a, chunks=(100_000,))
    a[:] = -1
    # Above 1 MiB what counts is the moment of computing, for every chunk; below, that of the call.
    np.testing.assert_array_equal(np.unique(x.compute()), [-1])
    b = np.arange(1000, dtype=np.float64)
    y = jc.from_array(b, chunks=(100,))
    b[:] = -1
    np.testing.assert_array_equal(y.compute(), np.arange(1000))


def test_results_of_one_run_are_not_views_of_each_other_nor_of_what_is_remembered() -> None:
    x = jc.from_array(np.arange(1000.0))
    y = x * 2
    first, second = jc.compute(y, y)
    for values in (first, second, y.compute()):
        if values.flags.writeable:
            values[3] = -1
    assert float(y[3]) == 6
    assert float(xp.sum(y)) == 999_000


def test_a_jax_array_shared_with_numpy_is_read_as_it_is() -> None:
    a = jnp.arange(1000)
    x = xp.asarray(a)
    np.testing.assert_array_equal((x + 1).compute(), np.arange(1, 1001))
