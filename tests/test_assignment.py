"""x[key] = value: values at every key, who sees them, what is refused, and what many assignments cost."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from helpers.jobs import budget
from helpers.measure import MIB
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from tests.helpers import arrays as a
from tests.helpers import keys as k


def assigned(x: np.ndarray[Any, Any], key: Any, value: Any) -> np.ndarray[Any, Any]:
    """A changed copy; of what is assigned to one place more than once, the last counts."""
    x = np.array(x)
    places = np.arange(x.size).reshape(x.shape)[key]
    for place, one in zip(places.flat, np.broadcast_to(value, places.shape).flat, strict=True):
        x.flat[place] = one
    return x


@st.composite
def values(draw: Any, shape: tuple[int, ...], dtype: str) -> tuple[Any, Any]:
    """A value that broadcasts to a shape: a scalar, an array of it, or of a shape with ones in it, or a shorter one."""
    if draw(st.booleans()):
        return (True, True) if dtype == "bool" else (7, 7)
    own = tuple(n if draw(st.integers(0, 3)) else 1 for n in shape)[draw(st.integers(0, len(shape))) :]
    return draw(a.arrays((dtype,), shape=own))  # type: ignore[no-any-return]


DTYPES = ("int64", "float32", "bool", "complex128")


def check_assignment(data: Any, pair: Any, numpy_key: Any, key: Any) -> None:
    x, y = pair
    theirs, mine = data.draw(values(x[numpy_key].shape, x.dtype.name))
    expected = assigned(x, numpy_key, theirs)
    chunks = y.chunks
    y[key] = mine
    a.check(y, expected)
    assert y.chunks == chunks


@given(st.data(), a.arrays(DTYPES))
def test_basic_keys(data: Any, pair: Any) -> None:
    key = data.draw(k.basic_keys(pair[0].shape))
    check_assignment(data, pair, key, key)


@given(st.data(), a.arrays(DTYPES))
def test_a_mask_alone(data: Any, pair: Any) -> None:
    check_assignment(data, pair, *data.draw(k.mask_keys(pair[0].shape, alone=True)))


@given(st.data(), a.arrays(DTYPES, min_dims=1))
def test_a_mask_among_slices_and_integers(data: Any, pair: Any) -> None:
    check_assignment(data, pair, *data.draw(k.mask_keys(pair[0].shape)))


@given(st.data(), a.arrays(DTYPES, min_dims=1, min_side=1))
def test_integer_arrays(data: Any, pair: Any) -> None:
    check_assignment(data, pair, *data.draw(k.array_keys(pair[0].shape)))


@given(st.data(), a.arrays(("int64",), min_dims=1, min_side=1, max_side=5))
def test_several_assignments_of_all_kinds(data: Any, pair: Any) -> None:
    """Patches on patches on puts, with values that depend on what was there."""
    x, y = pair
    x = x.copy()
    for number in range(data.draw(st.integers(2, 5))):
        kind = data.draw(st.sampled_from(["basic", "basic", "mask", "array", "itself"]))
        if kind == "itself":
            # All of the right side is read before anything is assigned.
            y[::-1] = y + number
            x = (x + number)[::-1]
            continue
        if kind == "basic":
            numpy_key = key = data.draw(k.basic_keys(x.shape, new_axes=0))
        else:
            numpy_key, key = data.draw(k.mask_keys(x.shape) if kind == "mask" else k.array_keys(x.shape))
        y[key] = 100 * number
        x = assigned(x, numpy_key, 100 * number)
    a.check(y, x)


def test_steps_forwards_and_backwards() -> None:
    for start, stop, step in [(None, None, -1), (8, 1, -3), (1, None, 2), (None, 3, -2), (-2, None, -4), (5, 5, 1)]:
        x = np.arange(10.0)
        y = xp.asarray(x, chunks=3)
        n = len(range(*slice(start, stop, step).indices(10)))
        new = np.arange(n) + 100.0
        x[start:stop:step] = new
        y[start:stop:step] = xp.asarray(new, chunks=2)
        a.check(y, x)


def test_scalars_and_numpy_arrays() -> None:
    x = xp.zeros((2, 3), chunks=2)
    x[0, 0] = np.float64(1)
    x[0, 1] = xp.asarray(2, dtype=xp.float32)
    x[1] = np.asarray([4.0, 5, 6])
    x[0, 2] = np.float32(3)
    a.check(x, np.asarray([[1.0, 2, 3], [4, 5, 6]]))


# --- who sees it -------------------------------------------------------------------------------------

KEYS: list[Any] = [0, slice(1, None), [0, 2], [True, False, True], np.asarray([[True, False]] * 3), (slice(None), -1)]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_aliases_see_it_and_views_and_copies_made_before_do_not(key: Any) -> None:
    n = np.arange(6.0).reshape(3, 2)
    x = xp.asarray(n, chunks=(2, 1))
    alias, view, whole, other = x, x[1], x[...], copy.copy(x)
    derived, deep, selected = x * 2, copy.deepcopy(x), x[x > 2]
    copied = xp.asarray(x, copy=True)
    x[key] = -1
    changed = n.copy()
    changed[key] = -1
    assert alias is x
    a.check(alias, changed)
    a.check(view, n[1])
    for same in (whole, other, deep, copied):
        a.check(same, n)
    a.check(derived, n * 2)
    a.check(selected, n[n > 2])
    a.check(x * 2, changed * 2)


def test_views_are_arrays_of_their_own() -> None:
    x = xp.arange(6, chunks=2)
    view = x[2:]
    view[0] = 100
    a.check(x, np.arange(6))
    a.check(view, np.asarray([100, 3, 4, 5]))


def test_what_was_assigned_is_not_changed_by_later_changes_of_it() -> None:
    x, v, mask, index = xp.zeros(4, chunks=2), xp.ones(2), xp.asarray([True, False, False, True]), xp.asarray([1, 2])
    x[mask] = v
    x[index] = v * 2
    v[...] = 50.0
    mask[...] = True
    index[...] = 3
    a.check(x, np.asarray([1.0, 2, 2, 1]))


def test_numpy_values_and_keys_count_as_they_are_at_the_call() -> None:
    for n in (4, 400_000):
        value, key = np.ones(n), np.arange(n)
        x = xp.zeros(2 * n, chunks=n)
        x[key] = value
        x[n:] = value
        value[:] = 9
        key[:] = 0
        a.check(x, np.ones(2 * n))


def test_an_array_in_memory_that_was_computed_before() -> None:
    x = xp.arange(10, chunks=3) + 1
    first = x.compute()
    x[2] = 0
    np.testing.assert_array_equal(first, np.arange(1, 11))
    a.check(x, np.asarray([1, 2, 0, 4, 5, 6, 7, 8, 9, 10]))
    y = jc.persist(x)
    y[xp.asarray([0, 9])] = xp.asarray([-1, -2])
    a.check(y, np.asarray([-1, 2, 0, 4, 5, 6, 7, 8, 9, -2]))
    a.check(x, np.asarray([1, 2, 0, 4, 5, 6, 7, 8, 9, 10]))


def test_a_selection_is_assigned_to() -> None:
    n = np.arange(10)
    x = xp.asarray(n, chunks=3)
    y = x[x > 4]
    y[0] = 100
    y += 1
    a.check(y, np.asarray([101, 7, 8, 9, 10]))
    a.check(x, n)


def test_selections_move_from_one_array_to_another() -> None:
    n, m = np.arange(20.0).reshape(4, 5), -np.arange(20.0).reshape(4, 5)
    x, y = xp.asarray(n, chunks=3), xp.asarray(m, chunks=2)
    mask = x % 3 == 0
    y[mask] = x[mask]
    m[n % 3 == 0] = n[n % 3 == 0]
    a.check(y, m)
    y[~mask] += 1000
    m[n % 3 != 0] += 1000
    a.check(y, m)


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        (np.asarray([True, True, False, False]), np.asarray([4, 5, 6]), ValueError, "doesn't broadcast"),
        (np.asarray([[True], [False], [True], [False]]), 0, IndexError, "too many indices"),
        (slice(None), np.zeros(3, np.int64), ValueError, r"shape \(3,\) doesn't broadcast to shape \(4,\)"),
        (slice(0, 0), np.zeros(3, np.int64), ValueError, "doesn't broadcast"),
        (0, np.zeros(2, np.int64), ValueError, r"broadcast to shape \(\)"),
        (np.asarray([0, 1]), np.zeros(3, np.int64), ValueError, r"broadcast to shape \(2,\)"),
        (np.asarray([0, 1]), np.zeros((2, 1), np.int64), ValueError, r"broadcast to shape \(2,\)"),
        (np.asarray([0, 9]), 1, IndexError, "outside"),
        (9, 1, IndexError, "out of bounds"),
        (np.asarray([True, False, False, False]), 9.7, TypeError, "can't be assigned"),
        (0, 1.0, TypeError, "can't be assigned"),
        (0, 1j, TypeError, "can't be assigned"),
        (0, np.float32(1), TypeError, "float32 can't be assigned"),
        (0, np.asarray([1], np.uint64), TypeError, "can't be assigned"),
        (0, "a", TypeError, "takes arrays and scalars"),
        (0, None, TypeError, "takes arrays and scalars"),
        (slice(None), [1, 2, 3, 4], TypeError, "takes arrays and scalars"),
        (0, 2**63, OverflowError, "int64"),
        ((np.asarray([0]), None), 1, IndexError, "None in a key"),
        ("a", 1, TypeError, "an index is an int"),
    ],
    ids=str,
)
def test_errors_leave_the_array_as_it_was(key: Any, value: Any, error: type[Exception], message: str) -> None:
    x = xp.asarray([1, 2, 3, 4], chunks=3)
    held = x._node
    with pytest.raises(error, match=message):
        x[key] = value
    assert x._node is held
    a.check(x, np.asarray([1, 2, 3, 4]))


def test_a_bool_takes_no_numbers_and_a_narrow_integer_no_wide_ones() -> None:
    flags, small = xp.zeros(3, dtype=xp.bool), xp.zeros(3, dtype=xp.int8)
    with pytest.raises(TypeError, match="can't be assigned"):
        flags[0] = 1
    with pytest.raises(TypeError, match="int16 can't be assigned into an array of int8"):
        small[0] = xp.asarray(1, dtype=xp.int16)
    with pytest.raises(OverflowError):
        small[0] = 300
    small[0] = 100
    a.check(small, np.asarray([100, 0, 0], np.int8))


def test_a_position_that_only_a_run_can_see_is_refused_by_it() -> None:
    x = xp.zeros(4, chunks=2)
    x[xp.asarray([0, 4]) + 0] = 1.0
    with pytest.raises(IndexError, match="outside of an axis of length 4"):
        x.compute()


# --- in place ----------------------------------------------------------------------------------------


def test_operators_in_place() -> None:
    x = xp.asarray([7, 8, 9], chunks=2)
    alias = x
    x += 1
    x *= xp.asarray([1, 2, 3])
    x -= 2
    x //= 2
    x **= 2
    x %= 50
    x <<= 1
    x |= 1
    x ^= 3
    x &= 0xFF
    x >>= 1
    n = np.asarray([7, 8, 9])
    n = (((((((n + 1) * [1, 2, 3] - 2) // 2) ** 2 % 50) << 1 | 1) ^ 3) & 0xFF) >> 1
    a.check(alias, n)
    f = xp.asarray([1.0, 2.0])
    f /= 4
    a.check(f, np.asarray([0.25, 0.5]))
    m = xp.asarray([[1, 2], [3, 4]])
    m @= m
    a.check(m, np.asarray([[7, 10], [15, 22]]))
    x[1:] += 5
    n[1:] += 5
    a.check(x, n)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda x: x.__iadd__(1.5), TypeError),
        (lambda x: x.__itruediv__(2), TypeError),
        (lambda x: x.__iadd__(xp.ones((2, 3), dtype=xp.int64)), ValueError),
        (lambda x: x.__iadd__(xp.asarray([1, 2])), ValueError),
        (lambda x: x.__imatmul__(xp.ones((3, 3), dtype=xp.int64)[:, :1]), ValueError),
    ],
)
def test_operations_in_place_that_change_what_an_array_is(change: Any, error: type[Exception]) -> None:
    x = xp.asarray([1, 2, 3])
    with pytest.raises(error):
        change(x)
    a.check(x, np.asarray([1, 2, 3]))


# --- what it costs -----------------------------------------------------------------------------------


def work(x: xp.Array) -> dict[str, int]:
    """What computing an array takes, in numbers that don't depend on the machine."""
    with jc.profile() as p:
        x.compute()
    figures = p.to_dict()
    tasks = sum(stage["tasks"] for stage in figures["stages"])
    return {"tasks": tasks, "stages": len(figures["stages"]), "kernels": figures["kernels_compiled"]}


@pytest.mark.parametrize("n", [200, pytest.param(5000, marks=pytest.mark.long)])
def test_rows_assigned_one_by_one(n: int) -> None:
    """Each patch is computed once, the array is read once, and the plan has as many stages for any number of rows."""
    figures = []
    for count in (n // 4, n):
        x = xp.zeros((count, 16), chunks=(50, 16))
        for i in range(count):
            x[i] = xp.asarray(np.full(16, float(i)))
        figures.append(work(x))
        a.check(x, np.repeat(np.arange(float(count))[:, None], 16, 1))
    few, many = figures
    assert many["stages"] == few["stages"] <= 2
    assert many["tasks"] <= 4 * few["tasks"]


@pytest.mark.parametrize("n", [100, pytest.param(3000, marks=pytest.mark.long)])
def test_computed_patches_are_computed_once_each(n: int) -> None:
    source = xp.arange(16.0)
    tasks = []
    for count in (n // 4, n):
        x = xp.zeros((count, 16), chunks=(10, 16))
        for i in range(count):
            x[i] = xp.sqrt(source) * i
        tasks.append(work(x)["tasks"])
    assert tasks[1] <= 4 * tasks[0] + 8


def test_a_tile_reads_only_the_patches_that_it_meets(tmp_path: Any) -> None:
    import zarr

    stored = zarr.create_array(tmp_path / "x.zarr", data=np.arange(6400.0).reshape(100, 64), chunks=(1, 64))
    rows = jc.from_zarr(stored)
    x = xp.zeros((100, 64), chunks=(10, 64))
    for i in range(100):
        x[i] = rows[i]
    with jc.profile() as p:
        a.check(x[20:30], np.arange(6400.0).reshape(100, 64)[20:30])
    assert p.to_dict()["bytes_read"] == 10 * 64 * 8


@pytest.mark.parametrize("kind", ["mask", "array", "row"])
def test_assignments_in_a_loop_with_many_steps(kind: str) -> None:
    n = np.zeros((300, 4))
    x = xp.asarray(n, chunks=100)
    for i in range(300):
        if kind == "mask":
            x[x[:, 0] == i - 1] = float(i)
            n[n[:, 0] == i - 1] = float(i)
        elif kind == "array":
            x[xp.asarray([i, (7 * i) % 300])] = float(i)
            n[[i, (7 * i) % 300]] = float(i)
        else:
            x[i] = x[i - 1] + 1
            n[i] = n[i - 1] + 1
    a.check(x, n)


def test_within_a_small_budget() -> None:
    n = np.zeros((2048, 256))  # 4 MiB
    rng = np.random.default_rng(0)
    where, rows = rng.integers(0, 2048, 500), rng.standard_normal((500, 256))
    with budget(2 * MIB), jc.profile() as p:
        x = xp.zeros((2048, 256), chunks=(64, 256))
        x[::2, 3:200:7] = 1.0
        x[xp.asarray(where)] = xp.asarray(rows, chunks=100)
        x[x > 1] = xp.asarray(1.5)
        total, some = float(xp.sum(x)), x[::37, ::5].compute()
    n[::2, 3:200:7] = 1
    n[where] = rows
    n[n > 1] = 1.5
    assert total == pytest.approx(n.sum(), rel=1e-12)
    np.testing.assert_array_equal(some, n[::37, ::5])
    figures = p.to_dict()
    assert 0 < figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= 2 * MIB
