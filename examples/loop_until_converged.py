"""A loop that asks for a value at every step: the largest eigenvalue of a stored symmetric matrix."""

import os
import tempfile
from pathlib import Path

import numpy as np
import zarr

import jaxchunk as jc
import jaxchunk.array_api as xp

SIDE = int(os.environ.get("JAXCHUNK_EXAMPLE_SIDE", "4096"))


def main() -> None:
    rng = np.random.default_rng(0)
    direction = rng.standard_normal((SIDE, 1)).astype(np.float32)
    direction /= np.linalg.norm(direction)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.zarr"
        stored = zarr.create_array(path, shape=(SIDE, SIDE), chunks=(SIDE // 4, SIDE // 4), dtype="float32")
        stored[...] = 10 * direction @ direction.T + np.eye(SIDE, dtype=np.float32)  # eigenvalues 11, 1, 1, …

        a = jc.from_zarr(path)
        x = xp.ones((SIDE, 1), dtype=xp.float32)
        steps, before, norm = 0, 0.0, 1.0
        while abs(norm - before) > 1e-5 * norm:
            y = xp.matmul(a, x)
            before, norm = norm, float(xp.sqrt(xp.sum(y * y)))  # computes what this step needs, and remembers y
            x = y / norm
            steps += 1

        print(f"largest eigenvalue {norm:.4f} after {steps} steps (11 is right)")
        assert abs(norm - 11) < 1e-2


if __name__ == "__main__":
    main()
