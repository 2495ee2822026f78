"""Basic indexing against NumPy: values, shapes, the cuts that remain, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk.array_api as xp
from jaxchunk.array_api._indexing import basic_index
from jaxchunk.graph.grid import Axis
from tests.helpers import arrays as a


@st.composite
def keys(draw: Any, shape: tuple[int, ...]) -> Any:
    """A key for a shape: integers, slices of any sign and bounds, at most one ellipsis, some Nones."""
    entries: list[Any] = []
    for n in shape[: draw(st.integers(0, len(shape)))]:
        slices = st.builds(
            slice,
            st.none() | st.integers(-n - 2, n + 2),
            st.none() | st.integers(-n - 2, n + 2),
            st.none() | st.integers(-3, 3).filter(bool),
        )
        entries.append(draw(st.integers(-n, n - 1) | slices if n else slices))
    # Entries after an ellipsis count from the last axis, so only whole slices are put there.
    if draw(st.booleans()):
        entries.append(...)
    for _ in range(draw(st.integers(0, 2))):
        entries.insert(draw(st.integers(0, len(entries))), None)
    return entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


@given(st.data(), a.arrays(("int64",)))
def test_against_numpy(data: Any, pair: Any) -> None:
    x, y = pair
    key = data.draw(keys(x.shape))
    a.check(y[key], x[key])


@given(st.data(), a.arrays(("int64",), min_dims=1, min_side=1))
def test_of_an_index(data: Any, pair: Any) -> None:
    x, y = pair
    first, second = data.draw(keys(x.shape)), None
    second = data.draw(keys(x[first].shape))
    a.check(y[first][second], x[first][second])


def test_after_an_ellipsis() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    y = xp.asarray(x, chunks=(1, 2, 3))
    for key in [(..., 0), (1, ..., 2), (..., None, slice(None, None, -1)), (None, ..., 1, slice(1, 3))]:
        a.check(y[key], x[key])


def test_cuts_stay() -> None:
    x = xp.zeros((10, 6), chunks=((4, 4, 2), (3, 3)))
    assert x[1:].chunks == ((3, 4, 2), (3, 3))
    assert x[5:9].chunks == ((3, 1), (3, 3))
    assert x[::-1].chunks == ((2, 4, 4), (3, 3))
    assert x[::2].chunks == ((2, 2, 1), (3, 3))
    assert x[3].chunks == ((3, 3),)
    assert x[None].chunks == ((1,), (4, 4, 2), (3, 3))


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    bounds=st.tuples(st.none() | st.integers(-20, 20), st.none() | st.integers(-20, 20)),
    step=st.integers(-4, 4).filter(bool),
)
def test_cuts_of_a_slice_are_where_blocks_change(sizes: list[int], bounds: Any, step: int) -> None:
    axis = Axis.from_sizes(sizes)
    blocks = np.repeat(np.arange(len(sizes)), sizes)[slice(*bounds, step)]
    changes = np.flatnonzero(np.diff(blocks)) + 1
    x = xp.zeros(axis.length, chunks=(tuple(sizes),))
    got = np.cumsum(x[slice(*bounds, step)].chunks[0])[:-1] if blocks.size else []
    assert set(changes) <= set(got)


def test_whole_array_is_the_same_node() -> None:
    node = xp.zeros((3, 4))._node
    for key in [..., (), slice(None), (slice(None), ...), slice(0, 3)]:
        assert basic_index(node, key) is node


def test_a_billion_elements_cost_nothing() -> None:
    x = xp.arange(12 * 4**15, dtype=xp.uint64)
    middle = x[6 * 4**15 : 6 * 4**15 + 5]
    assert np.asarray(middle).tolist() == [6 * 4**15 + i for i in range(5)]
    assert int(x[-1]) == 12 * 4**15 - 1


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (3, IndexError, "index 3 is out of bounds for axis 0 with size 3"),
        ((0, -5), IndexError, "index -5 is out of bounds for axis 1 with size 4"),
        ((0, 0, 0), IndexError, "too many indices"),
        ((..., ...), IndexError, "only one ellipsis"),
        (slice(None, None, 0), ValueError, "step 0"),
        (slice(0.5, 2), TypeError, "bound that is no int"),
        (1.0, TypeError, "an index is an int"),
        ("a", TypeError, "an index is an int"),
        ([0, 3], IndexError, "outside of an axis of length 3"),
        (np.asarray([0.0, 1.0]), IndexError, "of integers or bool"),
        (np.asarray([True, False]), IndexError, "they have to be the same"),
    ],
)
def test_bad_keys(key: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        xp.zeros((3, 4))[key]


def test_array_keys() -> None:
    x = xp.asarray([[1, 2], [3, 4]])
    assert np.asarray(x[xp.asarray(1)]).tolist() == [3, 4]
