"""NumPy-style code on a Zarr array four times larger than the memory it may use."""

import os
import tempfile
from pathlib import Path

import numpy as np
import zarr

import jaxchunk as jc
import jaxchunk.array_api as xp

SIDE = int(os.environ.get("JAXCHUNK_EXAMPLE_SIDE", "8192"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "x.zarr", Path(folder) / "y.zarr"
        stored = zarr.create_array(source, shape=(SIDE, SIDE), chunks=(SIDE // 16, SIDE // 4), dtype="float32")
        rng = np.random.default_rng(0)
        for start in range(0, SIDE, SIDE // 16):
            stored[start : start + SIDE // 16] = rng.normal(5, 2, (SIDE // 16, SIDE))

        # The bound holds inside the block only; jc.config.set(...) as a plain call sets it for the process.
        with jc.config.set(host_memory=stored.nbytes // 4):
            x = jc.from_zarr(source)
            z = (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)  # nothing has run yet
            jc.to_zarr(z, target)

        z0 = np.asarray(zarr.open_array(target, mode="r")[:, 0])
        x0 = np.asarray(stored[:, 0], dtype=np.float64)
        np.testing.assert_allclose(z0, (x0 - x0.mean()) / x0.std(), atol=1e-3)
        print(f"{stored.nbytes / 2**20:.0f} MiB standardised within {stored.nbytes / 2**22:.0f} MiB")


if __name__ == "__main__":
    main()
