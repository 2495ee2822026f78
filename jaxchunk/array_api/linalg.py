"""Linear algebra: the standard's extension, on matrices that may be larger than memory.

All functions work on stacks of matrices, along axes before the last two, in any chunks. What a
matrix takes is in one piece where the budget holds it; else products, norms, `cholesky`, `qr`,
`solve`, `inv`, `det` and `slogdet` go over panels and blocks, and so do singular values of tall and
wide matrices. What only exists for matrices in one piece raises `MemoryBudgetError` before it runs.
"""

from jaxchunk.array_api._linalg_factors import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from jaxchunk.array_api._linalg_norms import (
    matrix_norm,
    vector_norm,
)
from jaxchunk.array_api._linalg_solvers import (
    det,
    inv,
    matrix_power,
    matrix_rank,
    pinv,
    slogdet,
    solve,
)
from jaxchunk.array_api._linalg_vectors import (
    cross,
    diagonal,
    outer,
    trace,
)
from jaxchunk.array_api._linear_algebra import (
    matmul,
    matrix_transpose,
    tensordot,
    vecdot,
)

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
