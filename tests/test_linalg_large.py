"""Linear algebra out of core: matrices from a store, right by the identities they obey.

The usual cases, at an eighth of their data, are rows of `test_standard_large`; here are the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers.jobs import budget
from helpers.measure import MIB

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.array_api import linalg
from jaxchunk.errors import LinAlgError, MemoryBudgetError

EPS = 2.3e-16
Matrix = np.ndarray[Any, Any]


def matrix(rows: int, columns: int, dtype: str = "float64") -> Matrix:
    rng = np.random.default_rng(rows + columns)
    x = rng.standard_normal((rows, columns))
    return (x + 1j * rng.standard_normal((rows, columns)) if dtype == "complex128" else x).astype(dtype)


def stored(path: Path, x: Matrix, chunk: int) -> xp.Array:
    zarr.create_array(path, data=x, chunks=tuple(min(chunk, n) for n in x.shape))
    return jc.from_zarr(path)


def written(tmp_path: Path, nbytes: int, chunk: int, **results: xp.Array) -> list[Matrix]:
    """The results, computed together to stores within a budget that they keep to."""
    with budget(nbytes), jc.profile() as p:
        writes = [
            jc.to_zarr(x, tmp_path / f"{name}.zarr", compute=False, chunks=tuple(min(chunk, n) for n in x.shape))
            for name, x in results.items()
        ]
        jc.compute(*writes)
    figures = p.to_dict()
    assert figures["ledger_peak_bytes"] <= figures["planned_peak_bytes"] <= nbytes
    assert not any(stage.get("grown_bytes") for stage in figures["stages"])
    return [zarr.open_array(tmp_path / f"{name}.zarr", mode="r")[...] for name in results]


def close(x: Matrix, y: Matrix, scale: float, factor: float = 10) -> None:
    assert np.linalg.norm(x - y) <= factor * EPS * scale


def orthonormal(q: Matrix) -> None:
    n = q.shape[1]
    close(np.conj(q.T) @ q, np.eye(n), n)


def test_an_upper_cholesky_factor(tmp_path: Path) -> None:
    g = matrix(512, 512)
    x = g @ g.T / 512 + np.eye(512)
    y = stored(tmp_path / "x.zarr", x, 64)
    (factor,) = written(tmp_path, MIB, 64, factor=linalg.cholesky(y, upper=True))
    assert not np.tril(factor, -1).any()
    close(factor.T @ factor, x, np.linalg.norm(x))


def test_a_fault_of_a_large_matrix_is_found(tmp_path: Path) -> None:
    x = np.eye(512)
    x[300, 300] = -1
    y = stored(tmp_path / "x.zarr", x, 64)
    with (
        budget(MIB),
        pytest.raises(LinAlgError, match="the matrix is not positive definite, found in its columns"),
    ):
        jc.to_zarr(linalg.cholesky(y), tmp_path / "factor.zarr", chunks=(64, 64))
    assert not (tmp_path / "factor.zarr").exists()


@pytest.mark.parametrize("mode", ["complete", "reduced"])
@pytest.mark.parametrize(("rows", "columns"), [(200, 100), (100, 200)])
def test_qr_of_complex_matrices(tmp_path: Path, rows: int, columns: int, mode: Any) -> None:
    x = matrix(rows, columns, "complex128")
    q, r = linalg.qr(stored(tmp_path / "x.zarr", x, 40), mode=mode)
    q, r = written(tmp_path, MIB * 3 // 4, 40, q=q, r=r)
    assert q.shape == (rows, rows if mode == "complete" else min(rows, columns))
    assert not np.tril(r, -1).any()
    assert not np.diagonal(r).imag.any()
    orthonormal(q)
    close(q @ r, x, np.linalg.norm(x))


def test_qr_of_a_matrix_without_full_rank(tmp_path: Path) -> None:
    x = matrix(200, 200)
    x[:, 40:90] = x[:, :50]
    x[:, 150] = 0
    q, r = linalg.qr(stored(tmp_path / "x.zarr", x, 40))
    q, r = written(tmp_path, MIB, 40, q=q, r=r)
    orthonormal(q)
    close(q @ r, x, np.linalg.norm(x))


def test_qr_of_a_tall_matrix(tmp_path: Path) -> None:
    x = matrix(32768, 32)
    q, r = linalg.qr(stored(tmp_path / "x.zarr", x, 256))
    q, r = written(tmp_path, MIB, 256, q=q, r=r)
    assert not np.tril(r, -1).any()
    orthonormal(q)
    close(q @ r, x, np.linalg.norm(x))


def test_svd_of_a_wide_matrix(tmp_path: Path) -> None:
    x = matrix(32768, 32).T.copy()
    y = stored(tmp_path / "x.zarr", x, 256)
    u, s, vh = written(tmp_path, MIB, 256, **linalg.svd(y, full_matrices=False)._asdict())
    close((u * s) @ vh, x, np.linalg.norm(x))
    orthonormal(u)
    orthonormal(vh.T)
    with budget(MIB):
        close(linalg.svdvals(y).compute(), s, s[0])
        assert int(linalg.matrix_rank(y)) == 32


def test_pseudo_inverse_of_a_tall_matrix(tmp_path: Path) -> None:
    x = matrix(32768, 32)
    (inverse,) = written(tmp_path, MIB, 256, inverse=linalg.pinv(stored(tmp_path / "x.zarr", x, 256)))
    close(inverse @ x, np.eye(32), 32)


def test_svd_of_something_that_is_computed(tmp_path: Path) -> None:
    x = matrix(16384, 32)
    y = xp.sin(stored(tmp_path / "x.zarr", x, 256)) * 3
    u, s, vh = written(tmp_path, MIB, 256, **linalg.svd(y, full_matrices=False)._asdict())
    close((u * s) @ vh, np.sin(x) * 3, np.linalg.norm(x), 50)
    orthonormal(u)


# A matrix, its chunks and the budget; the long one has eight times as many bytes as the budget.
@pytest.mark.parametrize(
    ("n", "chunk", "nbytes"),
    [pytest.param(200, 40, MIB, id="small"), pytest.param(1448, 64, 2 * MIB, id="large", marks=pytest.mark.long)],
)
def test_slogdet(tmp_path: Path, n: int, chunk: int, nbytes: int) -> None:
    x = matrix(n, n)
    y = stored(tmp_path / "x.zarr", x, chunk)
    with budget(nbytes):
        sign, log = jc.compute(*linalg.slogdet(y))
    expected = np.linalg.slogdet(x)
    assert sign == expected.sign
    np.testing.assert_allclose(log, expected.logabsdet, rtol=1e-12)


def test_stacks_of_large_complex_matrices(tmp_path: Path) -> None:
    x = np.stack([matrix(130, 130, "complex128"), matrix(130, 130, "complex128") + np.eye(130)])
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(1, 65, 65))
    y = jc.from_zarr(tmp_path / "x.zarr")
    with budget(5 * MIB // 4):
        assert not jc.plan(linalg.solve(y, xp.ones((130, 1), dtype=xp.complex128))).problem
        solution = linalg.solve(y, xp.ones((130, 1), dtype=xp.complex128)).compute()
        sign, log = jc.compute(*linalg.slogdet(y))
    close(x @ solution, np.ones((2, 130, 1)), float(np.linalg.norm(x) * np.linalg.norm(solution)))
    expected = np.linalg.slogdet(x)
    np.testing.assert_allclose(sign, expected.sign, rtol=1e-10)
    np.testing.assert_allclose(log, expected.logabsdet, rtol=1e-12)


def test_a_large_singular_matrix_is_refused(tmp_path: Path) -> None:
    x = matrix(200, 200)
    x[:, 70] = x[:, 20]
    y = stored(tmp_path / "x.zarr", x, 40)
    with budget(MIB), pytest.raises(LinAlgError, match="singular to working precision: column 70"):
        linalg.solve(y, xp.ones(200)).compute()


def test_norms_and_diagonals_of_a_large_matrix(tmp_path: Path) -> None:
    x = matrix(1024, 1024)
    y = stored(tmp_path / "x.zarr", x, 64)
    with budget(MIB), jc.profile() as p:
        np.testing.assert_allclose(linalg.diagonal(y, offset=-3).compute(), np.diagonal(x, -3))
    assert p.to_dict()["bytes_read"] <= x.nbytes / 2
    with budget(MIB):
        for order in ("fro", 1, -1, np.inf, -np.inf):
            np.testing.assert_allclose(float(linalg.matrix_norm(y, ord=order)), np.linalg.norm(x, order), rtol=1e-12)


@pytest.mark.parametrize("call", [linalg.eigvals, linalg.eigvalsh, linalg.svdvals, lambda x: linalg.svd(x).U])
def test_what_needs_a_matrix_in_one_piece_is_refused_before_anything_runs(tmp_path: Path, call: Any) -> None:
    y = stored(tmp_path / "x.zarr", matrix(256, 256), 64)
    with budget(MIB), jc.profile() as p:
        plan = jc.plan(call(y))
        assert "doesn't fit" in plan.explain()
        with pytest.raises(MemoryBudgetError, match="would do"):
            plan.run()
    assert p.to_dict()["bytes_read"] == 0
