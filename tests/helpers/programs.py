"""Programs: lines of code that NumPy and the library both run, and what they have to give."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import zarr
from zarr.storage import MemoryStore

import jaxchunk as jc
import jaxchunk.array_api as xp
from helpers.synthetic import CountingStore, Counts

MOST = 40_000  # elements of an array
# What is drawn last along an axis is right up to this, relative to the largest number on the way to it.
PRECISION = {"float32": 1e-4, "complex64": 1e-4, "float64": 1e-9, "complex128": 1e-9}
# Floats up to here are integers that no arithmetic of one step rounds.
EXACT = {"float32": 2.0**20, "complex64": 2.0**20, "float64": 2.0**48, "complex128": 2.0**48}


# --- what the lines call ----------------------------------------------------------------------------------


def given(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Small integers, in whatever dtype."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0 if dtype in ("uint8", "bool") else -4, 5, tuple(shape))
    if dtype == "complex128":
        return values + 1j * rng.integers(-4, 5, tuple(shape))
    return values.astype(dtype)


class Library:
    """The library's side: `lib` in a program's lines."""

    def __init__(self) -> None:
        self.counts = Counts()

    def array(self, shape: Sequence[int], dtype: str, seed: int, chunks: Any) -> Any:
        return xp.asarray(given(shape, dtype, seed), chunks=chunks)

    def stored(self, shape: Sequence[int], dtype: str, seed: int, chunks: Any, cuts: Any, packed: bool) -> Any:
        """Stored in `chunks`, and cut otherwise as it is opened, where `cuts` says so."""
        store = CountingStore(MemoryStore(), self.counts)
        compressors = zarr.codecs.ZstdCodec(level=0) if packed else None
        z = zarr.create_array(store, shape=shape, chunks=chunks, dtype=dtype, compressors=compressors)
        z[...] = given(shape, dtype, seed)
        self.counts.reset()
        return jc.from_zarr(store, chunks=cuts)

    def rechunk(self, x: Any, chunks: Any) -> Any:
        return jc.rechunk(x, chunks)

    def persist(self, x: Any) -> Any:
        return jc.persist(x)

    def put(self, x: Any, key: Any, value: Any) -> Any:
        x = xp.asarray(x, copy=True)
        x[key] = value
        return x

    def doubled(self, x: Any) -> Any:
        return jc.map_blocks(lambda b: b * 2, x)

    def middle(self, x: Any) -> Any:
        return jc.map_blocks(lambda b: jnp.sort(jnp.stack([b, b * 2, -b]), axis=0)[1], x)

    def remade(self, x: Any) -> Any:
        q, r = xp.linalg.qr(x)
        return q @ r


class Plain:
    """NumPy's."""

    def array(self, shape: Sequence[int], dtype: str, seed: int, *chunks: Any) -> Any:
        return given(shape, dtype, seed)

    stored = array

    def rechunk(self, x: Any, chunks: Any) -> Any:
        return x

    def persist(self, x: Any) -> Any:
        return x

    def put(self, x: Any, key: Any, value: Any) -> Any:
        x = np.array(x)
        x[key] = value
        return x

    def doubled(self, x: Any) -> Any:
        return x * np.asarray(2, x.dtype)

    def middle(self, x: Any) -> Any:
        return np.sort(np.stack([x, x * np.asarray(2, x.dtype), -x]), axis=0)[1]

    def remade(self, x: Any) -> Any:
        return x


class _NumPy:
    """NumPy, but that it takes the library's arguments."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def asarray(self, values: Any, chunks: Any = None) -> Any:
        return np.asarray(values)

    def sort(self, x: Any, axis: int, descending: bool) -> Any:
        found = np.sort(x, axis=axis)
        return np.flip(found, axis) if descending else found

    def unique_values(self, x: Any) -> Any:
        return np.unique(x)

    def argsort(self, x: Any, axis: int) -> Any:
        return np.argsort(x, axis=axis, stable=True)


NUMPY = _NumPy()


# --- programs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Value:
    """An array of NumPy's, and how near to it the library has to come.

    Attributes
    ----------
    exact
        Every rounding on the way to it had nothing to round.
    magnitude
        The largest number on the way.
    precision
        The error that is let pass, relative to that.
    """

    name: str
    array: np.ndarray[Any, Any]
    exact: bool
    magnitude: float
    precision: float

    @property
    def kind(self) -> str:
        return self.array.dtype.kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def check(self, found: Any) -> None:
        found = np.asarray(found)
        assert (found.shape, found.dtype) == (self.array.shape, self.array.dtype), self.name
        if self.exact:
            np.testing.assert_array_equal(found, self.array, err_msg=self.name)
        else:
            atol = self.precision * self.magnitude
            np.testing.assert_allclose(found, self.array, rtol=0, atol=atol, err_msg=self.name)


@dataclass
class Program:
    """Lines, what NumPy gives for each, and how they are to be run."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    written: dict[str, tuple[int, ...]] = field(default_factory=dict)
    budget: int | None = None  # None: the least that is documented to be enough
    threads: int = 1

    def __post_init__(self) -> None:
        self._scope: dict[str, Any] = {"xp": NUMPY, "lib": Plain()}

    def add(self, text: str, *operands: Value, magnitude: float = 0.0, exact: bool = True, most: int = MOST) -> bool:
        """Add a line for an array; not where it would be too large, or not all finite."""
        with np.errstate(all="ignore"):
            array = np.asarray(eval(text, self._scope))
        name = f"v{len(self.values)}"
        if array.size > most or array.ndim > 4 or not np.isfinite(array).all():
            return False
        largest = float(np.abs(array.astype(complex if array.dtype.kind == "c" else float)).max(initial=0))
        magnitude = max(1.0, largest, magnitude, *(v.magnitude for v in operands))
        own = array.dtype.name
        if own in EXACT:
            exact = exact and magnitude < EXACT[own] and bool((array == np.round(array)).all())
        exact = exact and all(v.exact for v in operands)
        precision = max(PRECISION.get(own, 1e-9), *(v.precision for v in operands), 0.0)
        self.values.append(Value(name, array, exact, magnitude, precision))
        self.lines.append(f"{name} = {text}")
        self._scope[name] = array
        return True

    @property
    def wanted(self) -> list[Value]:
        return [v for v in self.values if v.name in self.computed or v.name in self.written]

    def needed(self) -> list[str]:
        """The lines that what is wanted depends on."""
        names = {v.name for v in self.wanted}
        kept: list[str] = []
        for line in reversed(self.lines):
            if line.partition(" = ")[0] in names:
                kept.append(line)
                names |= {n.id for n in ast.walk(ast.parse(line)) if isinstance(n, ast.Name)}
        return kept[::-1]

    def run(self, library: Library) -> dict[str, Any]:
        """The library's arrays."""
        scope: dict[str, Any] = {"xp": xp, "lib": library}
        for line in self.needed():
            exec(line, scope)
        return {name: x for name, x in scope.items() if isinstance(x, xp.Array)}

    def __repr__(self) -> str:
        return "\n".join(
            [
                *self.needed(),
                f"# computed: {' '.join(self.computed)}; written: {self.written}",
                f"# budget={self.budget}, threads={self.threads}",
            ]
        )
