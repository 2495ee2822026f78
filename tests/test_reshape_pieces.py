"""Reshape's region map against NumPy: every element of a box once, from the right place."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxchunk.graph.primitives import Reshape


@st.composite
def factorings(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    shape = []
    while size > 1:
        factor = draw(st.sampled_from([d for d in range(2, size + 1) if size % d == 0]))
        shape.append(factor)
        size //= factor
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@given(st.data(), st.sampled_from([1, 2, 6, 12, 24, 36, 60, 128, 210]))
def test_every_box_is_pieced_together(data: st.DataObject, size: int) -> None:
    old, new = data.draw(factorings(size)), data.draw(factorings(size))
    box = []
    for n in new:
        lo = data.draw(st.integers(0, n - 1))
        box.append((lo, data.draw(st.integers(lo + 1, n))))
    values = np.arange(size).reshape(old)
    got = np.full([hi - lo for lo, hi in box], -1)
    for piece in Reshape(old, new).pieces(tuple(box)):
        target = got[(..., *(slice(*s) for s in piece.target))]
        assert (target == -1).all()
        target[...] = values[tuple(slice(*s) for s in piece.source)].reshape(target.shape)
    np.testing.assert_array_equal(got, values.reshape(new)[tuple(slice(*s) for s in box)])
