"""Compiled kernels and their cache.

Kernels are kept by structure in one process-wide LRU that is bounded in bytes. Each is compiled
from a function object of its own, which dies with it: JAX's own caches hang on function objects.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jaxlib.version
import numpy as np

from jaxchunk.lower.kernel import (
    SUBTILE,
    combine_function,
    finish_function,
    param_dtypes,
    recycles,
    state_sizes,
    step_function,
    x64,
)
from jaxchunk.lower.program import Block, Fold, Program, Scan

CACHE_BYTES = 64 * 2**20
# An executable's own size isn't told in full; this much was seen to stay for each (tests/test_kernel_cache.py).
KERNEL_BYTES = 350_000

# A tile of so few elements is done before it matters how well its kernel is optimised.
TINY = 4096

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Kernel:
    """A compiled function, with what the compiler says it needs besides arguments and results."""

    call: Callable[..., Any]
    temp_bytes: int | None
    seconds: float


class KernelCache:
    """Least recently used kernels are dropped first; a kernel wanted by two threads is compiled once."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self.compiled = 0
        self.seconds = 0.0
        self._kernels: OrderedDict[Hashable, Kernel] = OrderedDict()
        self._compiling: dict[Hashable, threading.Event] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Kernel]) -> Kernel:
        while True:
            with self._lock:
                known = self._kernels.get(key)
                if known is not None:
                    self._kernels.move_to_end(key)
                    return known
                event = self._compiling.get(key)
                if event is None:
                    self._compiling[key] = threading.Event()
                    break
            event.wait()
        try:
            kernel = make()
            with self._lock:
                self.compiled += 1
                self.seconds += kernel.seconds
                self._kernels[key] = kernel
                while self.nbytes > self.limit:
                    self._kernels.popitem(last=False)
            return kernel
        finally:
            with self._lock:
                self._compiling.pop(key).set()

    def __len__(self) -> int:
        return len(self._kernels)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kernels

    @property
    def nbytes(self) -> int:
        """Bytes that the kernels kept are taken to need."""
        return len(self) * KERNEL_BYTES

    def clear(self) -> None:
        with self._lock:
            self._kernels.clear()


CACHE = KernelCache()


def options(platform: str, tiny: bool) -> dict[str, Any]:
    """Compiler options: `tiny` kernels are called too few times to be worth optimising."""
    if platform != "cpu":
        return {}
    chosen: dict[str, Any] = {}
    if tiny:
        chosen |= {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
    else:
        chosen["xla_cpu_prefer_vector_width"] = 512
    if tuple(int(n) for n in jaxlib.version.__version__.split(".")[:3]) == (0, 10, 2):
        # This release gives wrong numbers where a small product is squared and summed; without its
        # new fusion type it doesn't.
        chosen["xla_cpu_experimental_ynn_fusion_type"] = ""
    return chosen


def compile_function(
    function: Callable[..., Any], arguments: Any, platform: str, tiny: bool = False, donate: Sequence[int] = ()
) -> Kernel:
    """Trace and compile; `function` must be an object of its own."""
    started = time.perf_counter()
    with x64():
        lowered = jax.jit(function, donate_argnums=tuple(donate), keep_unused=True).lower(*arguments)
        compiled = lowered.compile(compiler_options=options(platform, tiny))
    return Kernel(compiled, temp_bytes(compiled), time.perf_counter() - started)


def temp_bytes(compiled: Any) -> int | None:
    """What a kernel needs for itself, by the compiler's account; None where it has none."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return int(analysis.temp_size_in_bytes)


class Kernels:
    """The kernels of one stage's program, by tile shape. The cache owns them: one that it drops is compiled again."""

    def __init__(self, program: Program, device: jax.Device) -> None:
        self.program = program
        self.device = device
        self._key = (program.key, device.platform, device.id)
        self._local: weakref.WeakValueDictionary[Hashable, Kernel] = weakref.WeakValueDictionary()
        self._params_host = self.packed(program.params)
        self._params: Any = None

    def packed(self, params: Sequence[np.generic]) -> tuple[np.ndarray[Any, Any], ...]:
        """Scalars in place of the program's own as kernels take them: a vector for each dtype."""
        vectors: dict[Any, list[Any]] = {dtype: [] for dtype in param_dtypes(self.program)}
        for value in params:
            vectors[value.dtype].append(value)
        return tuple(np.array(v, dtype) for dtype, v in vectors.items())

    def params(self) -> Any:
        """The lifted scalars on the device, moved there once."""
        if self._params is None:
            with x64():
                self._params = tuple(jax.device_put(v, self.device) for v in self._params_host)
        return self._params

    def step(self, tile: Shape) -> Kernel:
        """(params, starts, leaves, spares, states, carries) → (outputs, states, carries); donates the last three."""

        def make() -> Kernel:
            states, carries = self.states(tile), self.carries(tile)
            leaves = _leaves(self.program.body, tile)
            arguments = (self._params_avals(), self._starts_aval(), leaves, self.spares(tile), states, carries)
            function = step_function(self.program, tile, self._target)
            tiny = int(np.prod(tile)) <= TINY
            return compile_function(function, arguments, self.device.platform, tiny, donate=(3, 4, 5))

        return self._get(("step", tile), make)

    def known_step(self, tile: Shape) -> Kernel | None:
        """The step kernel of a tile where it has been compiled for this stage."""
        return self._local.get(("step", tile))

    def is_compiled(self, tile: Shape) -> bool:
        """Whether the step kernel of a tile needn't be compiled, having been wanted before, by whatever stage."""
        return ("step", tile) in self._local or (self._key, ("step", tile)) in CACHE

    def combine(self, group: int, tile: Shape) -> Kernel:
        """(states, states) → states of one group: the first are donated."""

        def make() -> Kernel:
            states = self.group_states(group, tile)
            function = combine_function(self.program, self.program.groups[group])
            donate = (0,) if self._has_room else ()
            return compile_function(function, (states, states), self.device.platform, True, donate=donate)

        return self._get(("combine", group, self._kept(group, tile)), make)

    def finish(self, group: int, tile: Shape) -> Kernel:
        """(params, starts, leaves, states) → the group's results."""

        def make() -> Kernel:
            leaves = _leaves(self.program.groups[group].epilogue, self._kept(group, tile))
            arguments = (self._params_avals(), self._starts_aval(), leaves, self.group_states(group, tile))
            function = finish_function(self.program, self.program.groups[group], self._kept(group, tile))
            donate = (3,) if self._passes_on(group) else ()
            return compile_function(function, arguments, self.device.platform, True, donate=donate)

        return self._get(("finish", group, self._kept(group, tile)), make)

    def _passes_on(self, group: int) -> bool:
        """Whether a group's results can be made in place of its states: as many, of the same dtypes."""
        if not self._has_room:
            return False
        plan, program = self.program.groups[group], self.program
        states = sorted(
            d.str for f in plan.folds for d in program.folds[f].reducer.state_dtypes(program.folds[f].dtypes)
        )
        return states == sorted(plan.epilogue.instrs[o].dtype.str for o in plan.outputs)

    @property
    def _has_room(self) -> bool:
        """Whether a kernel never fails for lack of memory: else states that it has taken can't be joined again."""
        return bool(self.device.platform == "cpu")

    @property
    def _target(self) -> int | None:
        return SUBTILE if self.device.platform == "cpu" else None

    def spares(self, tile: Shape) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Old outputs that a step writes its own over; none where it doesn't."""
        if not recycles(self.program, tile, self._target):
            return ()
        return tuple(jax.ShapeDtypeStruct(tile, self.program.body.instrs[o].dtype) for o in self.program.outputs)

    def new_spares(self, tile: Shape) -> Any:
        with x64():
            return tuple(jax.device_put(np.empty(s.shape, s.dtype), self.device) for s in self.spares(tile))

    def states(self, tile: Shape) -> tuple[tuple[jax.ShapeDtypeStruct, ...], ...]:
        return tuple(
            tuple(jax.ShapeDtypeStruct(state_sizes(fold, tile), d) for d in fold.reducer.state_dtypes(fold.dtypes))
            for fold in self.program.folds
        )

    def state_bytes(self, tile: Shape) -> int:
        """Bytes of all states of a tile."""
        return sum(s.dtype.itemsize * int(np.prod(s.shape)) for states in self.states(tile) for s in states)

    def group_states(self, group: int, tile: Shape) -> tuple[tuple[jax.ShapeDtypeStruct, ...], ...]:
        states = self.states(tile)
        return tuple(states[fold] for fold in self.program.groups[group].folds)

    def initial_states(self, tile: Shape) -> Any:
        """States that hold nothing yet, made on the host (they are overwritten by donation)."""
        return tuple(
            tuple(np.full(s.shape, value, s.dtype) for s, value in zip(states, _identity(fold), strict=True))
            for fold, states in zip(self.program.folds, self.states(tile), strict=True)
        )

    def carries(self, tile: Shape) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(
            jax.ShapeDtypeStruct(tuple(1 if a == scan.axis else n for a, n in enumerate(tile)), _start(scan).dtype)
            for scan in self.program.scans
        )

    def initial_carries(self, tile: Shape) -> Any:
        return tuple(
            np.full(aval.shape, _start(scan), aval.dtype)
            for aval, scan in zip(self.carries(tile), self.program.scans, strict=True)
        )

    def _kept(self, group: int, tile: Shape) -> Shape:
        return tuple(1 if a in self.program.groups[group].dropped else n for a, n in enumerate(tile))

    def _params_avals(self) -> Any:
        return tuple(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in self._params_host)

    def _starts_aval(self) -> Any:
        return jax.ShapeDtypeStruct((len(self.program.indices),), np.dtype("int64"))

    def _get(self, which: Hashable, make: Callable[[], Kernel]) -> Kernel:
        kernel = self._local.get(which)
        if kernel is None:
            kernel = self._local[which] = CACHE.get((self._key, which), lambda: self._made(make))
        return kernel

    def _made(self, make: Callable[[], Kernel]) -> Kernel:
        """What is lowered by shapes alone is compiled for the default device."""
        with jax.default_device(self.device):
            return make()


def _leaves(block: Block, tile: Shape) -> tuple[jax.ShapeDtypeStruct, ...]:
    """What a block's leaves are on a tile, in their order."""
    loads = {i.payload: i for i in block.instrs if i.kind == "load"}
    return tuple(
        jax.ShapeDtypeStruct(tuple(n if s else 1 for n, s in zip(tile, loads[k].spans, strict=True)), loads[k].dtype)
        for k in sorted(loads)
    )


def _identity(fold: Fold) -> tuple[Any, ...]:
    return fold.reducer.identity(fold.dtypes)


def _start(scan: Scan) -> np.ndarray[Any, Any]:
    return np.asarray(scan.scanner.start(scan.dtype))


def local_device(pinned: Any = None) -> jax.Device:
    """The JAX device that a device object of ours stands for; the default one where none is given."""
    if pinned is None:
        return jax.local_devices()[0]
    found = [d for d in jax.local_devices(backend=pinned.platform) if d.id == pinned.index]
    if not found:
        raise RuntimeError(f"there is no device {pinned} on this machine")
    return found[0]


def host_device() -> jax.Device:
    """The JAX device that is this machine's own processor."""
    return jax.local_devices(backend="cpu")[0]
