"""The array object: a handle on a node of the graph, with NumPy's manners."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from jaxchunk.array_api import _views
from jaxchunk.array_api._advanced import assigned, index
from jaxchunk.array_api._apply import as_node, refuse_foreign
from jaxchunk.array_api._build import DType, Shape, cast, pinned
from jaxchunk.array_api._contraction import matmul
from jaxchunk.array_api._devices import Device, as_device, default_device
from jaxchunk.array_api._dtypes import Scalar, result_type
from jaxchunk.array_api._element import element
from jaxchunk.array_api._gather import in_memory
from jaxchunk.array_api._operators import Operators
from jaxchunk.array_api._pending import Pending
from jaxchunk.array_api._picture import html
from jaxchunk.graph import grid as grids
from jaxchunk.graph.grid import ChunksLike
from jaxchunk.graph.node import Node
from jaxchunk.graph.primitives import Affine, AxisMap, Const, Source

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


class Array(Operators):
    """An n-dimensional array that is computed when its values are asked for.

    Arrays are made by `asarray`, `arange`, `zeros` and the other creation functions, by
    `jaxchunk.from_zarr`, and by operating on arrays; not by calling this class. Shape, dtype and
    chunks are known at once and cost nothing. Values are computed by `compute()`, `float(x)`,
    `bool(x)`, `numpy.asarray(x)` and the like, within the memory budget.

    Attributes
    ----------
    shape, ndim, size, dtype
        As in NumPy.
    nbytes, itemsize
        Bytes of all elements and of one.
    chunks, chunksize, numblocks
        How the array is cut: the sizes of the blocks along each axis, the largest of them, and how
        many there are.
    device
        Where it is pinned, or the default device where it is not pinned to any.
    T, mT
        The transpose of a matrix, and of a stack of matrices.
    """

    __slots__ = ()

    # --- what it is ----------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return self._held.dtype

    @property
    def shape(self) -> Shape:
        return self._node.shape

    @property
    def ndim(self) -> int:
        return self._held.ndim

    @property
    def size(self) -> int:
        return self._node.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._node.nbytes

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """The sizes of the blocks along each axis; as long as there are blocks along it."""
        return tuple(tuple(axis.sizes()) for axis in self._node.grid)

    @property
    def chunksize(self) -> Shape:
        """The size of the largest block along each axis."""
        return grids.chunksize(self._node.grid)

    @property
    def numblocks(self) -> tuple[int, ...]:
        """How many blocks there are along each axis."""
        return grids.numblocks(self._node.grid)

    @property
    def device(self) -> Device:
        """Where the array is pinned, or else the default device, which asking for starts JAX."""
        pinned_to = self._held.device
        return pinned_to if isinstance(pinned_to, Device) else default_device()

    @property
    def T(self) -> Array:
        """The transpose of a matrix; ValueError for any other number of axes."""
        if self.ndim != 2:
            raise ValueError(f"T is the transpose of a matrix; this array has {self.ndim} axes: use mT or permute_dims")
        return self.mT

    @property
    def mT(self) -> Array:
        """The array with its last two axes exchanged; ValueError where there are fewer than two."""
        if self.ndim < 2:
            raise ValueError(f"mT needs an array with at least 2 axes, this one has {self.ndim}")
        order = [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]
        return Array(_views.permute(self._node, order))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-dimensional array has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        if isinstance(self._held, Pending):
            shape = tuple("?" if n is None else n for n in self._held.shape)
            return f"<jaxchunk Array ({', '.join(map(str, shape))}) {self.dtype}, of a size that isn't counted yet>"
        chunks = "" if math.prod(self.numblocks) == 1 or not self.shape else f", chunks of {self.chunksize}"
        return f"<jaxchunk Array {self.shape} {self.dtype}{chunks}, {format_bytes(self.nbytes)}, {self._state()}>"

    def _state(self) -> str:
        node = self._held
        if isinstance(node, Pending):
            return "lazy"
        if isinstance(node.op, Source):
            return node.op.array.name
        return "lazy" if node.value is None else "computed"

    def _repr_html_(self) -> str:
        if isinstance(self._held, Pending):
            return repr(self).replace("<", "&lt;").replace(">", "&gt;")
        facts = {
            "shape": str(self.shape),
            "dtype": str(self.dtype),
            "size": format_bytes(self.nbytes),
            "chunks": f"{self.chunksize}, {math.prod(self.numblocks)} of them",
            "state": self._state(),
        }
        return html(facts, self._node.grid)

    # --- its values ----------------------------------------------------------------------------

    def compute(self) -> np.ndarray[Any, Any]:
        """The values as a NumPy array (of no axes for a 0-dimensional array).

        Raises
        ------
        MemoryBudgetError
            Before anything runs, where this needs more memory than the budget has.

        Examples
        --------
        >>> import jaxchunk.array_api as xp
        >>> (xp.arange(4) * 2).compute()
        array([0, 2, 4, 6])
        """
        from jaxchunk.plan.api import compute_nodes

        return compute_nodes([self._node])[0]

    def persist(self) -> Array:
        """Compute the array now and keep it, in memory or on disk; what it was made from is let go.

        Returns
        -------
        Array
            Of the same values and chunks, with no operations left to do.
        """
        from jaxchunk.plan.api import persist_nodes

        return Array(persist_nodes([self._node])[0])

    def _scalar(self, kind: str, dtypes: str) -> Any:
        """The one element of a 0-dimensional array as a Python scalar, for `kind(x)`."""
        if self.ndim:
            raise TypeError(f"{kind}() takes an array with 0 axes; this one has shape {self.shape}")
        if self.dtype.kind not in dtypes:
            raise TypeError(f"{kind}() doesn't take an array of dtype {self.dtype}")
        value = element(self._node)
        return (self.compute() if value is None else value).item()

    def __bool__(self) -> bool:
        if self.ndim:
            raise ValueError(
                f"the truth value of an array of shape {self.shape} is ambiguous: reduce it with any() or all() first"
            )
        return bool(self._scalar("bool", "biufc"))

    def __int__(self) -> int:
        return int(self._scalar("int", "biuf"))

    def __index__(self) -> int:
        return int(self._scalar("operator.index", "iu"))

    def __float__(self) -> float:
        return float(self._scalar("float", "biuf"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex", "biufc"))

    def __iter__(self) -> Iterator[Array]:
        """The array's elements or rows: rows are lazy, elements are computed a block at a time."""
        if not self.shape:
            raise TypeError("a 0-dimensional array can't be iterated over")
        return self._elements() if self.ndim == 1 else (self[i] for i in range(len(self)))

    def _elements(self) -> Iterator[Array]:
        axis, dtype = self._node.grid[0], self.dtype
        for block in range(axis.nblocks):
            values = self[slice(*axis.block(block))].compute()
            yield from (Array(Node(Const(value), (), (), dtype, self._node.device)) for value in values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("copy=False: an array that is computed when asked for can't be handed out without a copy")
        values = self.compute()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __copy__(self) -> Array:
        return Array(self._held)

    def __deepcopy__(self, memo: Any) -> Array:
        # Nodes never change, and an assignment makes a new one.
        return Array(self._held)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "an array that is computed when it is asked for can't be pickled: pickle x.compute(), "
            "or store it with jaxchunk.to_zarr and open that"
        )

    # --- interchange ---------------------------------------------------------------------------

    # NumPy's functions and operators would compute all of the array without a word: with these two
    # its operators leave the operation to ours, and its functions are refused.
    __array_ufunc__ = None

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> NoReturn:
        import jaxchunk.array_api as xp

        name = func.__name__
        hint = f"use jaxchunk.array_api.{name}" if hasattr(xp, name) else "use a function of jaxchunk.array_api"
        raise TypeError(f"numpy.{name} would compute this lazy array: {hint}, or convert it with numpy.asarray first")

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        if api_version is not None and api_version not in _VERSIONS:
            raise ValueError(f"api_version={api_version!r}: the versions are {', '.join(_VERSIONS)}")
        import jaxchunk.array_api as xp

        return xp

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Compute the array and export it, in host memory, as a DLPack capsule."""
        if stream is not None:
            raise ValueError("stream: the values are exported in host memory, where there are no streams; leave it out")
        values = self.compute()
        if max_version is None and not values.flags.writeable:
            values = values.copy()  # before version 1 a capsule can't say that it is read-only
        return values.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self, /) -> tuple[Any, int]:
        """Host memory, where computed values are handed out."""
        return np.empty(0).__dlpack_device__()

    # --- other arrays from it ------------------------------------------------------------------

    def __getitem__(self, key: Any, /) -> Array:
        """A view at integers, slices, `...` and None; elements at integer arrays; those where a mask is true.

        All lazy. The shape of a selection by a mask is counted when it is first asked for.
        """
        node = index(self._node, key)
        return Array(node)

    def __setitem__(self, key: Any, value: Any, /) -> None:
        """Replace elements, at any key that can be read: this array object stands for a changed array then.

        The value broadcasts to what the key selects, and its dtype has to promote to the array's. Views made
        before see nothing of it.
        """
        self._point_to(assigned(self._node, key, self._assignable(value)))

    def _assignable(self, value: Any) -> Node:
        if isinstance(value, np.ndarray):
            value = Array(in_memory(np.array(value)))
        refuse_foreign("an assignment", (value,))
        if not isinstance(value, Array | Scalar | np.generic):
            raise TypeError(f"an assignment takes arrays and scalars, not {value!r} of type {type(value).__name__}")
        try:
            fits = result_type(self, value) == self.dtype
        except TypeError:
            fits = False
        if not fits:
            kind = getattr(value, "dtype", type(value).__name__)
            raise TypeError(f"{kind} can't be assigned into an array of {self.dtype}: convert one of them with astype")
        return cast(as_node(value, self.dtype), self.dtype)

    def __matmul__(self, other: Any, /) -> Array:
        return Array(matmul(self._node, other._node)) if isinstance(other, Array) else NotImplemented

    def __rmatmul__(self, other: Any, /) -> Array:
        return Array(matmul(other._node, self._node)) if isinstance(other, Array) else NotImplemented

    def __imatmul__(self, other: Any, /) -> Array:
        product: Array = self._become(self @ other)
        return product

    def rechunk(self, chunks: ChunksLike) -> Array:
        """The same array cut otherwise.

        Parameters
        ----------
        chunks
            A block size for all axes; or one entry an axis, each a block size, -1 for the whole
            axis, None for as it is, "auto" or a list of sizes; or a dict of some axes' entries; or
            "auto", for blocks of at most 16 MiB.

        Examples
        --------
        >>> import jaxchunk.array_api as xp
        >>> xp.zeros((6, 4)).rechunk((4, -1)).chunks
        ((4, 2), (4,))
        """
        node = self._node
        return Array(_views.rechunk(node, grids.normalize_chunks(chunks, node.shape, self.itemsize, node.grid)))

    def to_device(self, device: Device | str, /, *, stream: Any = None) -> Array:
        """The same array, pinned to a device.

        Parameters
        ----------
        device
            A device as `__array_namespace_info__().devices()` lists them, or a string such as "gpu:0".
        stream
            Not supported: only None.
        """
        if stream is not None:
            raise ValueError("stream: streams are not supported; leave it out")
        wanted = as_device(device)
        if wanted is None:
            raise TypeError("device is None; it takes a device or a string like 'gpu:0'")
        node = self._node
        if node.device is None or node.device == wanted:
            return Array(pinned(node, wanted))
        move = Affine("to_device", tuple(AxisMap(axis) for axis in range(node.ndim)))
        return Array(Node(move, (node,), node.grid, node.dtype, wanted))


def format_bytes(n: int) -> str:
    """A number of bytes for people: 512 B, 1.5 MiB."""
    if n < 1024:
        return f"{n} B"
    amount, units = float(n), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = ""
    while amount >= 1024 and (following := next(units, None)):
        amount, unit = amount / 1024, following
    return f"{amount:.4g} {unit}"
