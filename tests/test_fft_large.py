"""Lines that are longer than memory: right, within the budget, and in as many passes as were promised."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import jobs, measure
from helpers.jobs import budget
from helpers.measure import MIB, TESTS, check_memory
from helpers.synthetic import synthetic_array
from hypothesis import given
from hypothesis import strategies as st

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.array_api import fft as jfft
from jaxchunk.array_api._fft_long import divisors, good_length
from jaxchunk.array_api._fft_roots import LONGEST, root, square_modulo
from jaxchunk.errors import MemoryBudgetError
from jaxchunk.plan.scratch import fft_entry

COMPLEX = 16  # bytes of a complex128


def line(shape: tuple[int, ...], real: bool = False, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return x if real else x + 1j * rng.standard_normal(shape)


def through_stores(tmp_path: Path, x: Any, function: Any, nbytes: int, chunks: Any, out: Any = None) -> tuple[Any, Any]:
    """What a function makes of a stored array, by way of another one, and the figures of the run."""
    zarr.create_array(tmp_path / "in.zarr", data=x, chunks=chunks, overwrite=True)
    with budget(nbytes), jc.profile() as profile:
        write = jc.to_zarr(
            function(jc.from_zarr(tmp_path / "in.zarr")),
            tmp_path / "out.zarr",
            chunks=out or chunks,
            overwrite=True,
            compute=False,
        )
        jc.plan(write).run()
    figures = profile.to_dict()
    held, reserved, planned = (figures[f"{k}_peak_bytes"] for k in ("ledger", "reserved", "planned"))
    assert 0 < held <= reserved <= planned <= nbytes
    assert not any(stage["grown_bytes"] for stage in figures["stages"]), "the memory model was too small"
    return zarr.open_array(tmp_path / "out.zarr", mode="r")[...], figures


def check(got: Any, expected: Any, points: int) -> None:
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    unit = float(np.finfo(expected.dtype).eps) / 2.2e-16
    rms = float(np.sqrt(np.mean(np.abs(expected) ** 2)))
    assert float(np.abs(got - expected).max()) <= 1e-14 * unit * math.log2(points) * rms


# --- four steps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_a_line_of_eight_times_the_budget(tmp_path: Path, name: str, norm: str) -> None:
    x = line((2**18,))
    got, figures = through_stores(tmp_path, x, lambda a: getattr(jfft, name)(a, norm=norm), MIB // 2, (2048,))
    check(got, getattr(np.fft, name)(x, norm=norm), x.size)
    assert figures["bytes_read"] == figures["bytes_written"] == x.nbytes
    assert figures["spilled_bytes"] <= 3 * x.nbytes


@pytest.mark.parametrize("n", [3**11, 5**4 * 7**3, 2**4 * 10007, 2**9 * 3 * 131])
def test_lines_of_other_factors(tmp_path: Path, n: int) -> None:
    x = line((n,))
    got, _ = through_stores(tmp_path, x, jfft.fft, MIB, (5000,), (4096,))
    check(got, np.fft.fft(x), n)


@pytest.mark.parametrize("chunks", [(70_001,), (1000,)])
def test_chunks_and_cuts_of_any_size(tmp_path: Path, chunks: tuple[int, ...]) -> None:
    x = line((2**18,))
    got, _ = through_stores(tmp_path, x, lambda a: jfft.fft(a[::-1]), 3 * MIB // 2, (3000,), (4096,))
    check(got, np.fft.fft(x[::-1]), x.size)
    with budget(20 * MIB):
        y = jfft.fft(xp.asarray(x).rechunk(chunks))
        check(y.compute(), np.fft.fft(x), x.size)


@pytest.mark.parametrize(("n", "given"), [(2**17 + 2**15, None), (2**18, None), (100_000, 2**17), (2**18, 2**17)])
def test_padded_and_cropped_lines(tmp_path: Path, n: int, given: int | None) -> None:
    x = line((n,))
    got, _ = through_stores(tmp_path, x, lambda a: jfft.fft(a, n=given), MIB, (4096,))
    check(got, np.fft.fft(x, n=given), n)


@pytest.mark.parametrize(("shape", "chunks", "axis"), [((3, 2**16), (2, 2048), 1), ((2**16, 3), (2048, 2), 0)])
def test_long_lines_beside_each_other(tmp_path: Path, shape: Any, chunks: Any, axis: int) -> None:
    x = line(shape)
    got, _ = through_stores(tmp_path, x, lambda a: jfft.fft(a, axis=axis), MIB, chunks)
    check(got, np.fft.fft(x, axis=axis), 2**16)


def test_a_long_line_among_the_axes_of_a_slab(tmp_path: Path) -> None:
    x = line((6, 2**15))
    got, _ = through_stores(tmp_path, x, jfft.fftn, MIB // 2, (3, 512))
    check(got, np.fft.fftn(x), x.size)


def test_rows_that_are_too_long_are_split_again(tmp_path: Path) -> None:
    x = line((2**17,))
    with budget(128 * 1024):
        plan = jc.plan(
            xp.sum(xp.abs(jfft.fft(jc.from_zarr(zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(512,))))))
        )
    transforms = [stage for stage in plan.to_dict()["stages"] if "fft" in stage["operations"]]
    assert len(transforms) > 2
    got, _ = through_stores(tmp_path, x, jfft.fft, 128 * 1024, (512,))
    check(got, np.fft.fft(x), x.size)


def test_single_precision_is_as_exact_as_it_can_be(tmp_path: Path) -> None:
    x = line((2**18,)).astype("c8")
    got, _ = through_stores(tmp_path, x, jfft.fft, MIB // 2, (4096,))
    check(got, np.fft.fft(x), x.size)


def test_inverses_of_long_lines_are_the_lines(tmp_path: Path) -> None:
    x = line((2**17,))
    got, _ = through_stores(tmp_path, x, lambda a: jfft.ifft(jfft.fft(a)), MIB // 2, (2048,))
    np.testing.assert_allclose(got, x, atol=1e-13)


# --- passes ------------------------------------------------------------------------------------------


def test_compressed_chunks_that_no_task_can_hold_take_one_pass_more(tmp_path: Path) -> None:
    """Others are read three times and written three times: a row of `test_standard_large`."""
    x = line((2**20,))
    got, figures = through_stores(tmp_path, x, jfft.fft, 4 * MIB, (8192,))
    check(got, np.fft.fft(x), x.size)
    assert figures["bytes_read"] + figures["spill_read_bytes"] <= 4 * x.nbytes
    assert figures["bytes_written"] + figures["spilled_bytes"] <= 4 * x.nbytes


def test_chunks_read_in_parts_below_arithmetic(tmp_path: Path) -> None:
    x, y = line((2**20,)), line((2**20,), seed=1)
    for name, values in (("x", x), ("y", y)):
        zarr.create_array(tmp_path / f"{name}.zarr", data=values, chunks=(2**16,), compressors=None)
    with budget(4 * MIB), jc.profile() as profile:
        z = jc.from_zarr(tmp_path / "x.zarr") * 2 - xp.conj(jc.from_zarr(tmp_path / "y.zarr"))
        jc.to_zarr(jfft.fft(z), tmp_path / "z.zarr", chunks=(4096,))
    figures = profile.to_dict()
    check(zarr.open_array(tmp_path / "z.zarr", mode="r")[...], np.fft.fft(x * 2 - np.conj(y)), x.size)
    assert figures["bytes_read"] == 2 * x.nbytes
    assert figures["bytes_written"] + figures["spilled_bytes"] <= 3 * x.nbytes


def test_positions_take_no_pass_of_their_own() -> None:
    n = 2**18
    with budget(MIB), jc.profile() as profile:
        spectrum = jfft.fft(xp.astype(xp.arange(n, chunks=(5000,)), xp.complex128))
        first = float(xp.real(spectrum[0]))
        total = float(xp.sum(xp.abs(spectrum) ** 2))
    assert first == n * (n - 1) / 2
    assert total == pytest.approx(n * float((np.arange(n, dtype="f8") ** 2).sum()), rel=1e-12)
    assert profile.to_dict()["planned_peak_bytes"] <= MIB


# --- real lines --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), [("rfft", 2**19), ("rfft", 3**11), ("ihfft", 2**17 * 3)])
def test_long_real_lines(tmp_path: Path, name: str, n: int) -> None:
    x = line((n,), real=True)
    got, figures = through_stores(tmp_path, x, getattr(jfft, name), MIB // 2, (2048,))
    check(got, getattr(np.fft, name)(x), n)
    if n % 2 == 0:
        assert figures["bytes_written"] + figures["spilled_bytes"] <= 4 * x.nbytes + 64, "half as long complex lines"


@pytest.mark.parametrize(
    ("name", "n", "norm"),
    [
        ("irfft", 2**19, "backward"),
        ("irfft", 2**19, "forward"),
        ("hfft", 2**19, "ortho"),
        ("irfft", 3**11, "ortho"),
        ("hfft", 3**11, "backward"),
    ],
)
def test_long_hermitian_lines(tmp_path: Path, name: str, n: int, norm: str) -> None:
    x = line((n // 2 + 1,))
    got, _ = through_stores(tmp_path, x, lambda a: getattr(jfft, name)(a, n=n, norm=norm), MIB, (4096,))
    check(got, getattr(np.fft, name)(x, n=n, norm=norm), n)


def test_long_real_lines_beside_each_other(tmp_path: Path) -> None:
    x = line((2**16, 3), real=True)
    got, _ = through_stores(tmp_path, x, lambda a: jfft.rfftn(a, axes=(0,)), MIB, (2048, 3), (1024, 3))
    check(got, np.fft.rfft(x, axis=0), 2**16)
    back, _ = through_stores(tmp_path, got, lambda a: jfft.irfftn(a, axes=(0,)), MIB, (1024, 3), (2048, 3))
    np.testing.assert_allclose(back, x, atol=1e-13)


# --- lengths without factors -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [65_537, 2 * 40_009])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_primes_where_the_librarys_scratch_does_not_fit(tmp_path: Path, name: str, n: int) -> None:
    x = line((n // 2 + 1 if name == "irfft" else n,), real=name == "rfft")
    kw = {"n": n, "norm": "ortho"} if name == "irfft" else {"norm": "ortho"}
    got, _ = through_stores(tmp_path, x, lambda a: getattr(jfft, name)(a, **kw), MIB, (2048,))
    check(got, getattr(np.fft, name)(x, **kw), 4 * n)


def test_primes_whose_convolution_fits_are_convolved_in_whole_lines(tmp_path: Path) -> None:
    n = 32_771  # its scratch has 4.2 MB, and the convolution's lines 1 MiB each
    x = line((2, n))
    got, figures = through_stores(tmp_path, x, jfft.fft, 12 * MIB // 2, (1, 4096))
    assert {stage["name"] for stage in figures["stages"]} >= {"convolve+ifft"}
    check(got, np.fft.fft(x), 4 * n)


@pytest.mark.parametrize("n", [3, 4, 7, 2**31 - 1, 2**33 + 17, LONGEST - 1])
def test_squares_and_roots_are_exact_at_any_length(n: int) -> None:
    rng = np.random.default_rng(n)
    k = np.unique(np.concatenate([[0, 1, n // 2, n - 1], rng.integers(0, n, 50)])).astype("i8")
    import jax

    with jax.enable_x64(True):
        squares = np.asarray(square_modulo(jax.numpy.asarray(k), 2 * n))
        roots = np.asarray(root(jax.numpy.asarray(k), n, -1, np.dtype("c16")))
    assert squares.tolist() == [int(i) ** 2 % (2 * n) for i in k]
    # Long double has 11 bits more; where it hasn't, this is as exact as NumPy's own.
    angles = -2 * np.arctan2(np.longdouble(0), np.longdouble(-1)) * k.astype("longdouble") / np.longdouble(n)
    np.testing.assert_allclose(roots, np.cos(angles) + 1j * np.sin(angles), atol=3e-16)
    assert roots[0] == 1


@given(st.integers(1, 10**6))
def test_divisors_and_good_lengths(n: int) -> None:
    found = divisors(n)
    assert found == sorted({d for d in range(1, math.isqrt(n) + 1) if n % d == 0 for d in (d, n // d)})
    good = good_length(n)
    assert n <= good < 1.35 * n + 1
    assert fft_entry([good]) == "fft"


def test_a_budget_that_holds_nothing_is_refused() -> None:
    z = synthetic_array((2**16,), (2**10,), "complex128", lambda i: i % 7)
    with budget(8 * 1024), pytest.raises(MemoryBudgetError, match="would do"):
        float(xp.sum(xp.abs(jfft.fft(jc.from_zarr(z)))))
    assert not z.store.counts.gets


# --- shapes of work at which others fail -------------------------------------------------------------


def one_tone(n: int, chunk: int, nbytes: int) -> dict[str, Any]:
    """A cosine of 5 periods in n points: where its spectrum is largest, and how large it is elsewhere."""
    k = xp.arange(n, dtype=xp.int64, chunks=(chunk,))
    x = xp.cos(xp.astype((5 * k) % n, xp.float64) * (2 * xp.pi / n))
    with budget(nbytes):
        height = xp.abs(jfft.rfft(x))
        shifted = xp.abs(jfft.fftshift(jfft.rfft(x)))
        at = int(xp.argmax(height))
        found = {"at": at, "there": float(height[at]), "shifted": int(xp.argmax(shifted))}
        elsewhere = xp.where(xp.arange(n // 2 + 1) == 5, xp.asarray(0.0), height)
        return {**found, "elsewhere": float(xp.max(elsewhere))}


def ramp(n: int, nbytes: int) -> dict[str, float]:
    """The energy of the spectrum of 0, 1, 2, … in one chunk, and its first coefficient."""
    with budget(nbytes):
        y = jfft.fft(xp.astype(xp.arange(n, chunks=(n,)), xp.complex128))
        return {"energy": float(xp.sum(xp.abs(y) ** 2)), "first": float(xp.real(y[0]))}


def real_line(path: str, out: str, nbytes: int) -> None:
    """A stored line's transform, stored."""
    with budget(nbytes):
        jc.to_zarr(jfft.rfft(jc.from_zarr(path)), out)


def measured(job: str, **arguments: Any) -> Any:
    """A function of this module in a process of its own, as `helpers.measure` does it."""
    code = "import sys; import test_fft_large as t; t.as_job(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, job, json.dumps(arguments)],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert not done.returncode, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def as_job(job: str, arguments: str) -> None:
    setattr(jobs, job, globals()[job])
    measure.main(job, arguments)


FULL = pytest.mark.long


@pytest.mark.parametrize(
    ("n", "chunk", "nbytes"),
    [
        (131_071, 8_000, 4 * MIB),
        (2**18, 8_000, MIB),
        pytest.param(8_388_593, 500_000, 256 * MIB, marks=FULL),
        pytest.param(2**24, 500_000, 64 * MIB, marks=FULL),
    ],
)
def test_one_tone_is_found_at_its_place(n: int, chunk: int, nbytes: int) -> None:
    figures = measured("one_tone", n=n, chunk=chunk, nbytes=nbytes)
    check_memory(figures, nbytes)
    found = figures["value"]
    coefficients = n // 2 + 1
    assert found["at"] == 5
    assert found["shifted"] == (5 + coefficients // 2) % coefficients
    assert found["there"] == pytest.approx(n / 2, rel=1e-9)
    assert found["elsewhere"] <= 1e-6 * n


@pytest.mark.parametrize(
    ("n", "nbytes"), [(131_071, 11 * MIB), (131_071, 2 * MIB), pytest.param(8_388_593, 700 * MIB, marks=FULL)]
)
def test_a_prime_length_takes_no_more_than_is_planned(n: int, nbytes: int) -> None:
    figures = measured("ramp", n=n, nbytes=nbytes)
    check_memory(figures, nbytes)
    assert figures["value"]["first"] == pytest.approx(n * (n - 1) / 2, rel=1e-12)
    assert figures["value"]["energy"] == pytest.approx(n * (n - 1) * n * (2 * n - 1) / 6, rel=1e-10)


@pytest.fixture
def roomy_path(tmp_path: Path) -> Iterator[Path]:
    """A directory for gigabytes: emptied after the test."""
    yield tmp_path
    for path in tmp_path.iterdir():
        shutil.rmtree(path)


@FULL
@pytest.mark.parametrize(("n", "nbytes"), [(2**26, 64 * MIB), (2**29, 256 * MIB)])
def test_a_real_line_many_times_the_budget(roomy_path: Path, n: int, nbytes: int) -> None:
    """Noise and three tones in a store: energy by Parseval's equation, and the tones where they belong."""
    chunk, tones = 2**19, {3: 2.0, n // 5: 0.5, n // 2 - 7: 1.0}
    z = zarr.create_array(roomy_path / "x.zarr", shape=(n,), chunks=(chunk,), dtype="f8", compressors=None)
    rng, energy = np.random.default_rng(0), 0.0
    for start in range(0, n, chunk):
        k = np.arange(start, start + chunk)
        x = rng.standard_normal(chunk) * 1e-3
        for frequency, height in tones.items():
            x += height * np.cos(2 * np.pi / n * (k * frequency % n))
        z[start : start + chunk] = x
        energy += float(x @ x)
    figures = measured("real_line", path=str(roomy_path / "x.zarr"), out=str(roomy_path / "y.zarr"), nbytes=nbytes)
    check_memory(figures, nbytes)
    profile = figures["profile"]
    assert profile["bytes_written"] + profile["spilled_bytes"] <= 2 * COMPLEX * n + 64 * chunk
    y = zarr.open_array(roomy_path / "y.zarr", mode="r")
    total, rest = 0.0, 0.0
    for start in range(0, n // 2 + 1, chunk):
        heights = np.abs(y[start : start + chunk])
        total += float((heights**2).sum())
        for frequency, height in tones.items():
            if start <= frequency < start + heights.size:
                assert heights[frequency - start] == pytest.approx(height * n / 2, rel=1e-4)
                heights[frequency - start] = 0
        rest = max(rest, float(heights.max()))
    total = 2 * total - abs(y[0]) ** 2 - abs(y[n // 2]) ** 2
    assert total / n == pytest.approx(energy, rel=1e-11)
    assert rest <= 1e-3 * math.sqrt(n) * 10
