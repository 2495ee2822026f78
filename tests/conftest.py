"""What every test gets: hypothesis without a clock, and a guard over the user's own configuration."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator

import jax
import pytest
import zarr
from hypothesis import HealthCheck, settings

# More held than was reserved is an error in every test, and in every process that a test starts.
os.environ["JAXCHUNK_STRICT"] = "1"

# A shell starts what runs in the background deaf to Ctrl-C, and so would be the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling a kernel takes longer than any deadline; a run in CI draws the same examples every time.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=25, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=500, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def user_configuration_untouched() -> Iterator[None]:
    """No call of the library changes JAX's or zarr's configuration, whatever else happens in it."""
    before = dict(jax.config.values), copy.deepcopy(zarr.config.config)
    yield
    # Parts of JAX that are imported later add settings of their own.
    after = {name: jax.config.values[name] for name in before[0]}, copy.deepcopy(zarr.config.config)
    assert after == before
