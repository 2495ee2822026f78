"""Store an array again in other chunks: from tiles, good for maps, to columns, good for time series."""

import os
import tempfile
from pathlib import Path

import numpy as np
import zarr

import jaxchunk as jc

SIDE = int(os.environ.get("JAXCHUNK_EXAMPLE_SIDE", "4096"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tiles, columns = Path(folder) / "tiles.zarr", Path(folder) / "columns.zarr"
        stored = zarr.create_array(tiles, shape=(SIDE, SIDE), chunks=(SIDE // 8, SIDE // 8), dtype="int32")
        stored[...] = np.arange(SIDE * SIDE, dtype=np.int32).reshape(SIDE, SIDE)

        x = jc.from_zarr(tiles)
        y = jc.rechunk(x, {0: -1, 1: 64})  # all of axis 0, 64 columns
        with jc.config.set(host_memory="256 MiB"), jc.profile() as profile:
            jc.to_zarr(y, columns)

        written = zarr.open_array(columns, mode="r")
        assert written.chunks == (SIDE, 64)
        np.testing.assert_array_equal(written[:, 100], stored[:, 100])
        measured = profile.to_dict()
        print(
            f"chunks {stored.chunks} → {written.chunks}; {measured['bytes_read'] / stored.nbytes:.2f} × the data read"
        )


if __name__ == "__main__":
    main()
