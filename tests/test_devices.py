"""Arrays pinned to another device than the default one: two are made of this machine's processor."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import jax, numpy as np
import jaxchunk as jc, jaxchunk.array_api as xp

assert len(jax.devices()) == 2
n = np.arange(12.0).reshape(3, 4)
for device in ("cpu:1", "cpu:0"):
    x = xp.asarray(n, device=device, chunks=2)
    assert str(x.device) == device
    np.testing.assert_array_equal((x * 2 + 1).compute(), n * 2 + 1)
    np.testing.assert_array_equal(xp.sum(x, axis=0).compute(), n.sum(0))
    np.testing.assert_array_equal((x @ x.T).compute(), n @ n.T)
    for scale in (2.0, 3.0):
        assert float(xp.max(xp.asarray([1.0, 2.0], device=device) * scale)) == 2 * scale
placed = jax.device_put(np.arange(4.0, dtype="float32"), jax.devices()[1])
np.testing.assert_array_equal((xp.asarray(placed) + 1).compute(), np.arange(4.0) + 1)
"""


def test_tasks_run_on_the_device_that_their_array_is_pinned_to() -> None:
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
