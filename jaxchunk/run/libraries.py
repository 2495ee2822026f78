"""Threads of the libraries beneath XLA: LAPACK has a pool of its own, besides the tasks that call it.

Its threads spin while they wait for each other. On small matrices that takes several times as long as the work, on
busy cores many times; and with a task on each core there is nothing left for them to do.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import threadpoolctl


@contextlib.contextmanager
def library_threads(most: int | None) -> Iterator[None]:
    """Within, LAPACK uses at most so many threads in this process; None leaves it alone."""
    if most is None:
        yield
        return
    with _controller().limit(limits=most, user_api="blas"):
        yield


@functools.cache
def _controller() -> threadpoolctl.ThreadpoolController:
    # JAX loads SciPy's LAPACK with the first kernel that calls it: the controller knows what is loaded. This is
    # the module that JAX begins with, too: a thread that compiles then waits, where with another module of the
    # package each of the two would have the lock that the other one wants.
    import scipy.linalg.cython_blas  # noqa: F401

    return threadpoolctl.ThreadpoolController()
