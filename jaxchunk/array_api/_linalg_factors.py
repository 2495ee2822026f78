"""Decompositions of matrices: triangular, orthogonal, by eigenvalues and by singular values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jax import lax

from jaxchunk.array_api import _build, _linalg_cholesky, _linalg_qr, _linalg_svd
from jaxchunk.array_api._array import Array
from jaxchunk.array_api._build import DType
from jaxchunk.array_api._dtypes import real_of
from jaxchunk.array_api._linalg_arguments import matrices, square, stack_of
from jaxchunk.array_api._linalg_tasks import Cost, Packing, composite, real_part, task
from jaxchunk.array_api._values import Value
from jaxchunk.graph.node import Limits, Node


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """What `eig` gives."""

    eigenvalues: Array
    eigenvectors: Array


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The Cholesky factors of Hermitian, positive definite matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'. Only their
        lower halves are looked at.
    upper
        Whether to give the adjoint of the lower factor instead.

    Returns
    -------
    Array
        Of the shape and dtype of `x`: L with ``x = L @ conj(L.mT)``, or U with ``x = conj(U.mT) @ U``.

    Raises
    ------
    LinAlgError
        When it is computed, for a matrix that isn't positive definite: it says which.

    Notes
    -----
    A matrix that doesn't fit in one task is done by panels of columns, from left to right: each takes what all
    before it have to give in one product, and is written once. Blocks are square, so that three of them fit.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.cholesky(xp.asarray([[4.0, 2.0], [2.0, 2.0]])).compute()
    array([[2., 0.],
           [1., 1.]])
    """
    return Array(_linalg_cholesky.cholesky(square("cholesky", x), bool(upper)))


def qr(x: Array, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """The QR decompositions of matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two, M × N, are the matrices'.
    mode
        ``"reduced"`` for the first K = min(M, N) columns of Q, ``"complete"`` for all M of them.

    Returns
    -------
    QRResult
        ``Q`` with orthonormal columns and ``R``, upper triangular with a real diagonal, such that
        ``x = Q @ R``. Asked for together, they are computed once.

    Notes
    -----
    A tall matrix that doesn't fit in one task is done by blocks of rows, which are read twice; any other one by
    panels of columns, each of which is done by blocks of rows. Memory holds a few square blocks of a panel's
    width. Q has orthonormal columns also where those of `x` depend on each other.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> q, r = xp.linalg.qr(xp.asarray([[3.0, 1.0], [4.0, 2.0]]))
    >>> abs(r).compute().round(3)
    array([[5. , 2.2],
           [0. , 0.4]])
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode={mode!r}; it takes 'reduced' and 'complete'")
    return QRResult(*map(Array, _linalg_qr.qr(matrices("qr", x), mode == "complete")))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decompositions of matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two, M × N, are the matrices'.
    full_matrices
        Whether to give all singular vectors, M on the left and N on the right, or only
        K = min(M, N) on either side. A tall array has far too many of them on the left.

    Returns
    -------
    SVDResult
        ``U`` with the left singular vectors in columns, the singular values ``S`` in decreasing order,
        ``Vh`` with the right singular vectors, conjugated, in rows: with K of each, ``x = (U * S[..., None, :]) @ Vh``.
        Asked for together, they are computed once.

    Raises
    ------
    MemoryBudgetError
        When they are computed, where a matrix doesn't fit and is neither tall nor wide; or all singular vectors
        of its longer side are asked for.

    Notes
    -----
    Of a tall or wide matrix that doesn't fit in one task, the triangle of a QR decomposition by blocks is done.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> u, s, vh = xp.linalg.svd(xp.asarray([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]), full_matrices=False)
    >>> s.compute()
    array([2., 1.])
    """
    return SVDResult(*map(Array, _linalg_svd.svd(matrices("svd", x), bool(full_matrices))))


def svdvals(x: Array, /) -> Array:
    """The singular values of matrices, in decreasing order.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'.

    Returns
    -------
    Array
        Real, of the precision of `x`, with one axis instead of the last two. Memory and errors are those of the
        reduced `svd`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.svdvals(xp.asarray([[0.0, 2.0], [1.0, 0.0]])).compute()
    array([2., 1.])
    """
    return Array(_linalg_svd.singular_values(matrices("svdvals", x)))


def eigh(x: Array, /) -> EighResult:
    """The eigenvalues and eigenvectors of Hermitian matrices.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'. Only their
        lower halves are looked at.

    Returns
    -------
    EighResult
        ``eigenvalues``, real and in increasing order, and ``eigenvectors``, orthonormal, in columns.
        Asked for together, they are computed once.

    Raises
    ------
    MemoryBudgetError
        When they are computed, where the budget doesn't hold a matrix and some five times as much beside it.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.eigh(xp.asarray([[0.0, 1.0], [1.0, 0.0]])).eigenvalues.compute().round(6)
    array([-1.,  1.])
    """
    values, vectors = _eigen("eigh", square("eigh", x), real_of(x.dtype), x.dtype)
    return EighResult(Array(values), Array(vectors))


def eigvalsh(x: Array, /) -> Array:
    """The eigenvalues of Hermitian matrices, in increasing order; memory and errors as for `eigh`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.eigvalsh(xp.asarray([[0.0, 2.0], [2.0, 0.0]])).compute().round(6)
    array([-2.,  2.])
    """
    return Array(_eigen("eigh", square("eigvalsh", x), real_of(x.dtype), x.dtype)[0])


def eig(x: Array, /) -> EigResult:
    """The eigenvalues and eigenvectors of matrices of any kind.

    Parameters
    ----------
    x
        An array of a floating dtype, of at least two axes; the last two are the matrices'.

    Returns
    -------
    EigResult
        ``eigenvalues`` and ``eigenvectors``, in columns of norm 1; both complex, in no particular order. Asked
        for together, they are computed once.

    Raises
    ------
    MemoryBudgetError
        When they are computed, where the budget doesn't hold a matrix and some ten times as much beside it.

    Notes
    -----
    Accelerators don't all have it: it is done on the host, whatever device the array is on.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.eig(xp.asarray([[0.0, -1.0], [1.0, 0.0]])).eigenvalues.compute().round(6)
    array([0.+1.j, 0.-1.j])
    """
    dtype = _complex("eig", x)
    return EigResult(*map(Array, _eigen("eig", square("eig", x), dtype, dtype)))


def eigvals(x: Array, /) -> Array:
    """The eigenvalues of matrices of any kind; dtype, memory and errors as for `eig`.

    Examples
    --------
    >>> import jaxchunk.array_api as xp
    >>> xp.linalg.eigvals(xp.asarray([[0.0, -1.0], [1.0, 0.0]])).compute().round(6)
    array([0.+1.j, 0.-1.j])
    """
    dtype = _complex("eigvals", x)
    return Array(_eigen("eig", square("eigvals", x), dtype, dtype)[0])


def _complex(name: str, x: Array) -> DType:
    return np.result_type(square(name, x).dtype, np.complex64)


EIGEN_COST = {"eigh": Cost(("eigh",), 2.0), "eig": Cost(("eig",), 3.0)}


def _eigen(name: str, node: Node, values: DType, vectors: DType) -> tuple[Node, Node]:
    """Eigenvalues and eigenvectors, of these dtypes. There is no other way than to have the matrix in one piece."""
    n = node.shape[-1]
    packing = Packing.of((n, n), (n,))

    def body(x: Value) -> Value:
        if name == "eigh":
            v, w = lax.linalg.eigh(x, symmetrize_input=False)
        else:
            w, v = lax.linalg.eig(x, compute_left_eigenvectors=False)
        return packing.pack(v, w)

    def part(number: int, dtype: DType) -> Node:
        def expand(operands: Sequence[Node], limits: Limits) -> Node:
            packed = task(name, body, None, operands, packing.shape, vectors, limits, EIGEN_COST[name])
            return _build.cast(
                real_part(packing.part(packed, number)) if dtype != vectors else packing.part(packed, number), dtype
            )

        label = f"{name}.{'values' if number else 'vectors'}"
        return composite(label, None, (node,), stack_of(node, packing.shapes[number], dtype), dtype, expand)

    return part(1, values), part(0, vectors)
