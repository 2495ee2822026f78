"""The ledger at every moment of a run, whoever looks."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from helpers.jobs import budget, nothing_is_left
from helpers.measure import MIB
from helpers.synthetic import synthetic_array

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.run.runtime import runtime


class Watched:
    """The ledger's lock: whenever it is let go of, no more is held than is reserved."""

    def __init__(self, ledger: Any) -> None:
        self.ledger, self.depth, self.over, self.seen = ledger, 0, 0, 0
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        self.lock.acquire()
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seen += 1
            self.over = max(self.over, self.ledger.held - self.ledger.reserved)
        self.lock.release()


@pytest.mark.parametrize("threads", [1, 3])
def test_at_no_moment_of_a_run_is_more_held_than_reserved(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    ledger = runtime().ledger
    watched = Watched(ledger)
    with budget(2 * MIB), jc.config.set(threads=threads):
        float(xp.sum(xp.ones(10, chunks=3)))  # what was kept before makes way
        monkeypatch.setattr(ledger, "_lock", watched)
        z = synthetic_array((512, 512), (64, 512), "float64", lambda i, j: i * 7 + j)
        x = jc.from_zarr(z)
        y = xp.cumulative_sum((x - xp.mean(x, axis=0)) / xp.std(x, axis=0), axis=1)
        assert abs(float(xp.sum(xp.sort(y, axis=0)[::3]))) < 1e9
        kept = jc.from_zarr(synthetic_array((64, 1024), (8, 1024), "float64", lambda i, j: i * 7 + j))
        for _ in range(3):
            assert float(xp.max(kept)) == 63 * 7 + 1023
        assert runtime().cache.kept_bytes
        assert float(xp.max(x)) == 511 * 8  # the chunks of the other source make way
        assert float(xp.max(x)) == 511 * 8
    assert watched.seen > 100
    assert watched.over <= 0
    monkeypatch.undo()
    nothing_is_left()
