"""Elements at positions: take, take_along_axis, nonzero."""

from __future__ import annotations

from jaxchunk.array_api import _build, _gather, _views
from jaxchunk.array_api._advanced import unraveled
from jaxchunk.array_api._arguments import as_axis, need_array
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._pending import Found, Pending
from jaxchunk.graph.node import Node


def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Elements or rows along an axis at given positions.

    Parameters
    ----------
    x
        An array.
    indices
        Positions along the axis, a one-dimensional integer array; negative ones count from the end.
    axis
        The axis to take from; may be left out where `x` has only one.

    Returns
    -------
    Array
        Lazy, of the dtype of `x`, with as many elements along the axis as there are indices.

    Raises
    ------
    IndexError
        For positions outside of the axis: at once where the indices are in memory, else by the run.

    Notes
    -----
    A tile of the result reads the blocks of `x` that its positions lie in, each once.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.take(xp.asarray([10, 11, 12]), xp.asarray([2, 0, -1])).compute()
    array([12, 10, 12])
    """
    need_array("take", x)
    _need_indices("take", indices)
    if indices.ndim != 1:
        raise ValueError(f"take: indices of shape {indices.shape}; they have one axis; x[indices] takes any")
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: axis has to be given for an array with {x.ndim} axes")
        axis = 0
    axis = as_axis("take", axis, x.ndim)
    return Array(_gather.take(x._node, _gather.within(indices._node, x.shape[axis], "take"), axis))


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Elements along an axis at positions of their own for each place of the other axes.

    Parameters
    ----------
    x
        An array.
    indices
        Integers, of as many axes as `x`; the other axes broadcast with those of `x`.
    axis
        The axis that the positions are along.

    Returns
    -------
    Array
        Lazy, of the dtype of `x`, as long along the axis as `indices`.

    Raises
    ------
    IndexError
        For positions outside of the axis: at once where the indices are in memory, else by the run.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> x = xp.asarray([[3, 1, 2], [5, 4, 6]])
    >>> xp.take_along_axis(x, xp.asarray([[1], [0]]), axis=1).compute()
    array([[1],
           [5]])
    """
    need_array("take_along_axis", x)
    _need_indices("take_along_axis", indices)
    if indices.ndim != x.ndim:
        raise ValueError(f"take_along_axis: indices have {indices.ndim} axes and x {x.ndim}; they need as many")
    axis = as_axis("take_along_axis", axis, x.ndim)
    others = [tuple(1 if a == axis else n for a, n in enumerate(y.shape)) for y in (x, indices)]
    shape = _build.broadcast_shape(others)

    def spread(node: Node) -> Node:
        return _views.broadcast_to(node, tuple(node.shape[a] if a == axis else n for a, n in enumerate(shape)))

    index = spread(_gather.within(indices._node, x.shape[axis], "take_along_axis"))
    return Array(_gather.take_along(spread(x._node), index, axis))


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Where elements are not zero: one array of positions along each axis, in row-major order.

    Parameters
    ----------
    x
        An array with at least one axis.

    Returns
    -------
    tuple of Array
        Lazy, int64; their common length is counted when it is first asked for.

    Raises
    ------
    ValueError
        For an array without axes.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> rows, columns = xp.nonzero(xp.asarray([[0, 3], [7, 0]]))
    >>> columns.compute()
    array([1, 0])
    """
    need_array("nonzero", x)
    if x.ndim == 0:
        raise ValueError("nonzero: x has no axes; it needs at least one")
    node = x._node
    found = Found(_gather.flattened(_build.cast(node, _gather.BOOL)))

    def along(axis: int) -> Array:
        return Array(
            Pending(_gather.INT64, (None,), node.device, lambda: unraveled(found.positions(), node.shape)[axis])
        )

    return tuple(along(axis) for axis in range(x.ndim))


def _need_indices(name: str, indices: Array) -> None:
    need_array(name, indices, "indices")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"{name}: indices have dtype {indices.dtype}; they are integers")
