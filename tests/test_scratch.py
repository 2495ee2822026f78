"""What JAX's primitives take besides what XLA reports: the table, and that plans and ledger count it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.jobs import budget
from helpers.measure import MIB, check_memory, measure
from helpers.synthetic import synthetic_array
from jax import lax

import jaxchunk as jc
import jaxchunk.array_api as xp
from benchmarks import calibrate_scratch as calibrate
from jaxchunk._jaxpr import live_bytes, primitives
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.graph.primitives import Work
from jaxchunk.plan.scratch import CAUTIOUS, CPU, CUSTOM_CALL, OTHER_LENGTHS, fft_entry, scratch_bytes


def works(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> dict[str, int]:
    avals = [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape in shapes]
    text = jax.jit(function).lower(*avals).as_text()
    return {w.name: w.nbytes or 0 for w in primitives(jax.make_jaxpr(function)(*avals).jaxpr, text)}


# --- the table against this machine ----------------------------------------------------------------------

QUICK = ["argsort", "prime rfft", "eigh"]


def check_entry(name: str, nbytes: int) -> None:
    """The table's figure is enough, and the large ones aren't far too much."""
    case = {**calibrate.CASES, **calibrate.REPORTED}[name]
    measured = calibrate.measure(name, nbytes)
    factor = CPU[case.entry].factor if case.entry in CPU else 0.0
    assert measured.unreported <= factor * measured.works_on + MIB, (name, measured, factor)
    if name in QUICK:
        assert measured.unreported >= 0.6 * factor * measured.works_on - MIB, (name, measured, factor)


@pytest.mark.parametrize("name", QUICK)
def test_the_table_s_largest_entries_hold_here(name: str) -> None:
    check_entry(name, 2 * MIB)


@pytest.mark.long
@pytest.mark.parametrize("name", [*calibrate.CASES, *calibrate.REPORTED])
def test_the_table_holds_here(name: str) -> None:
    check_entry(name, 8 * MIB)


def test_every_linear_algebra_primitive_is_in_the_table() -> None:
    names = {p.name for key, p in vars(lax.linalg).items() if key.endswith("_p")}
    assert len(names) > 10
    assert names - {"lu_pivots_to_permutation"} <= set(CPU)


# --- what a function is made of -----------------------------------------------------------------------------


def test_a_sort_works_on_a_line_at_a_time() -> None:
    assert works(jnp.sort, (100, 3000))["sort"] == 3000 * 16
    assert works(lambda x: jnp.sort(x, axis=0), (100, 3000))["sort"] == 100 * 16
    assert works(jnp.argsort, (3000,))["sort"] == 2 * 3000 * 16
    assert works(jnp.sort, (3000,), dtype="int32")["sort of integers"] == 3000 * 4


def test_linear_algebra_works_on_a_matrix_at_a_time() -> None:
    assert works(jnp.linalg.cholesky, (5, 40, 40))["cholesky"] == 40 * 40 * 4
    assert works(lambda a: jnp.linalg.svd(a, full_matrices=False)[1], (7, 40, 30))["svd"] == 40 * 30 * 4


@pytest.mark.parametrize(
    ("n", "entry"), [(1, "fft"), (1024, "fft"), (13**3 * 4, "fft"), (1009, OTHER_LENGTHS), (2 * 1009, OTHER_LENGTHS)]
)
def test_transforms_of_awkward_lengths_have_an_entry_of_their_own(n: int, entry: str) -> None:
    assert fft_entry([n]) == entry
    assert works(jnp.fft.fft, (3, n), dtype="complex64").get(entry) == n * 8
    assert works(jnp.fft.rfft, (3, n))[entry] == n * 8


@jax.custom_jvp
def with_a_rule(x: Any) -> Any:
    return jnp.sort(x)


with_a_rule.defjvps(lambda t, out, x: t)

WRAPPED: dict[str, Callable[[Any], Any]] = {
    "jit": jax.jit(jnp.sort),
    "vmap": jax.vmap(jnp.sort),
    "checkpoint": jax.checkpoint(jnp.sort),
    "custom_jvp": with_a_rule,
    "map": lambda x: lax.map(jnp.sort, x),
    "scan": lambda x: lax.scan(lambda c, row: (c, jnp.sort(row)), 0, x)[1],
    "while": lambda x: lax.while_loop(lambda v: v.sum() > 0, lambda v: jnp.sort(v) - 1, x),
    "cond": lambda x: lax.cond(x.sum() > 0, lambda v: v, lambda v: jnp.sort(v), x),
    "switch": lambda x: lax.switch(1, [jnp.sin, jnp.cos, jnp.sort], x),
    "two deep": jax.jit(lambda x: lax.map(jax.jit(jnp.sort), x)),
}


@pytest.mark.parametrize("how", WRAPPED)
def test_primitives_are_found_inside_of_others(how: str) -> None:
    assert works(WRAPPED[how], (20, 300))["sort"] == 300 * 16


def on_the_host(x: Any) -> Any:
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_what_is_not_known_is_never_taken_for_nothing() -> None:
    found = works(on_the_host, (1000,))
    assert found[CUSTOM_CALL] == 4000
    assert scratch_bytes([Work(*item) for item in found.items()], 0, "cpu") == CAUTIOUS * 4000
    assert CUSTOM_CALL not in works(lambda x: jnp.linalg.solve(x, x), (30, 30))
    # A platform that nobody has measured.
    assert scratch_bytes([Work("cholesky", 4000)], 0, "gpu") == CAUTIOUS * 4000
    assert scratch_bytes([Work("add", 4000)], 0, "gpu") == 0
    assert scratch_bytes([Work("sort")], 4000, "cpu") == 4400


LIVE = {
    "one result": (lambda x: jnp.sin(x), 1),
    "one after another": (lambda x: jnp.sin(jnp.cos(jnp.exp(x))), 2),
    "kept to the end": (lambda x: [jnp.sin(x), jnp.cos(x), jnp.exp(x)], 3),
    "a diamond": (lambda x: (lambda a, b: a * b)(jnp.sin(x), jnp.cos(x)), 3),
    "a call": (jax.jit(lambda x: jnp.sin(jnp.cos(x))), 2),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda i, v: jnp.sin(v) * 2, x), 4),
    "nothing": (lambda x: x, 0),
}


@pytest.mark.parametrize("name", LIVE)
def test_live_bytes(name: str) -> None:
    function, arrays = LIVE[name]
    jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((1000,), np.dtype("float32"))).jaxpr
    assert arrays * 4000 <= live_bytes(jaxpr) <= arrays * 4000 + 64


# --- plans and ledger ------------------------------------------------------------------------------------------

BLOCK = 64 * 1024
SORTED = BLOCK * 16 * 1.1


def lines() -> Any:
    return synthetic_array((4 * BLOCK,), (BLOCK,), "float32", lambda i: (i * 7919) % 10007)


def expected(z: Any) -> Any:
    return np.sort(z.store.values(((0, 4 * BLOCK),)).reshape(4, BLOCK), axis=1).sum(axis=0, dtype=np.float64)


def ask(z: Any) -> Any:
    return jc.map_blocks(jnp.sort, jc.from_zarr(z))


def test_scratch_is_planned_and_held() -> None:
    z = lines()
    plain = jc.map_blocks(lambda b: b + 1, jc.from_zarr(z))
    with jc.config.set(threads=1), budget(16 * MIB):
        more = (
            jc.plan(ask(z)).to_dict()["stages"][0]["host_bytes"] - jc.plan(plain).to_dict()["stages"][0]["host_bytes"]
        )
        assert more >= SORTED
        with jc.profile() as p:
            value = ask(z).compute()
        planned = jc.plan(ask(z)).to_dict()["peak_bytes"]
    np.testing.assert_array_equal(value.reshape(4, BLOCK).sum(axis=0, dtype=np.float64), expected(z))
    figures = p.to_dict()
    assert SORTED <= figures["ledger_peak_bytes"] <= figures["reserved_peak_bytes"] <= planned


def test_a_budget_for_the_block_but_not_for_its_scratch_is_refused() -> None:
    z = lines()
    y = xp.sum(ask(z))
    with jc.config.set(threads=1), budget(MIB), pytest.raises(MemoryBudgetError, match="rechunk"):
        y.compute()
    assert not z.store.counts.gets
    with jc.config.set(threads=1), budget(4 * MIB):
        assert float(y) == pytest.approx(float(expected(z).sum()))


def test_a_body_s_own_values_are_planned() -> None:
    def wide(block: Any) -> Any:
        return jnp.sum(jnp.sort(block[:, None] * block[None, :], axis=0), axis=0)  # 4 MiB of 4 KiB

    x = xp.asarray(np.linspace(0, 1, 4096, dtype=np.float32), chunks=1024)
    y = jc.map_blocks(wide, x)
    with jc.config.set(threads=1), budget(2 * MIB):
        assert not jc.plan(y).to_dict()["fits"]
    with jc.config.set(threads=1), budget(32 * MIB), jc.profile() as p:
        value = y.compute()
    n = np.linspace(0, 1, 4096, dtype=np.float32).reshape(4, 1024)
    np.testing.assert_allclose(value.reshape(4, 1024), n * n.sum(axis=1, keepdims=True), rtol=1e-4)
    figures = p.to_dict()
    assert 4 * MIB <= figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= 32 * MIB


@pytest.mark.long
def test_a_process_that_sorts_grows_by_no_more_than_was_planned() -> None:
    """Beyond the allowance, this is scratch."""
    measured = measure("sorted_blocks", length=4 * 2**23, chunk=2**23, nbytes=2**30)
    check_memory(measured, 2**30)
    assert measured["growth"] >= 2**23 * 2 * 16
    assert measured["value"] == 4
