"""NumPy-style code on arrays of any size: lazy, chunked, compiled by JAX, within a memory budget.

`jaxchunk.array_api` is the array API namespace; this module has what goes beyond it.
"""

from jaxchunk._imports import collector_paused

with collector_paused():
    from jaxchunk import array_api, config, errors
    from jaxchunk._api import compute, from_array, persist, plan, rechunk
    from jaxchunk._blocks import map_blocks
    from jaxchunk._calibrate import calibrate
    from jaxchunk._doctor import doctor
    from jaxchunk._io import from_zarr, store, to_zarr
    from jaxchunk._memory_report import memory_report
    from jaxchunk.run.profile import Profile as profile

__version__ = "0.1.0"

__all__ = [
    "array_api",
    "calibrate",
    "compute",
    "config",
    "doctor",
    "errors",
    "from_array",
    "from_zarr",
    "map_blocks",
    "memory_report",
    "persist",
    "plan",
    "profile",
    "rechunk",
    "store",
    "to_zarr",
]
