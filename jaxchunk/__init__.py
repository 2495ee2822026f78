"""NumPy-style code on arrays of any size: lazy, chunked, compiled by JAX, within a memory budget.

`jaxchunk.array_api` is the array API namespace; this module has what goes beyond it.
"""

from jaxchunk import array_api, config, errors
from jaxchunk._api import compute, from_array, persist, plan, rechunk
from jaxchunk._blocks import map_blocks
from jaxchunk._io import from_zarr, store, to_zarr
from jaxchunk.run.profile import Profile as profile

__version__ = "0.1.0"

__all__ = [
    "array_api",
    "compute",
    "config",
    "errors",
    "from_array",
    "from_zarr",
    "map_blocks",
    "persist",
    "plan",
    "profile",
    "rechunk",
    "store",
    "to_zarr",
]
