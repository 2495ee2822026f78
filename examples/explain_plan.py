"""See what a computation would take before it runs, and what it took after."""

import os
import tempfile
from pathlib import Path

import numpy as np
import zarr

import jaxchunk as jc
import jaxchunk.array_api as xp
from jaxchunk.errors import MemoryBudgetError

SIDE = int(os.environ.get("JAXCHUNK_EXAMPLE_SIDE", "4096"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "u.zarr"
        stored = zarr.create_array(path, shape=(SIDE, SIDE), chunks=(SIDE // 4, SIDE // 4), dtype="float32")
        values = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
        stored[...] = values

        u = jc.from_zarr(path)
        result = xp.mean(xp.sqrt(u * u + 1), axis=0)

        with jc.config.set(host_memory="256 MiB"):
            plan = jc.plan(result)
            print(plan.explain())  # kernels, tiles, memory, bytes, seconds: modelled, nothing has run
            with jc.profile() as profile:
                (value,) = plan.run()
            print(plan.explain())  # with what was measured beside it
            page = plan.to_html(Path(folder) / "plan.html")  # the same with a picture; a notebook shows it by itself
            print(f"a page of {len(page):,} characters")
        np.testing.assert_allclose(value, np.mean(np.sqrt(values * values + 1), axis=0), rtol=1e-4)

        planned, measured = plan.to_dict(), profile.to_dict()
        print(f"planned {planned['peak_bytes']:,} bytes, held {measured['ledger_peak_bytes']:,} at most")
        print(f"read {measured['bytes_read']:,} bytes, compiled {measured['kernels_compiled']} kernels")

        print(jc.memory_report())  # what is kept between runs, and what for

        # A plan that cannot fit says so before anything runs.
        with jc.config.set(host_memory=stored.nbytes // 1000):
            try:
                jc.compute(xp.sum(u * u, axis=0))
            except MemoryBudgetError as error:
                print(f"too little memory: {error}")
            else:
                raise AssertionError("a chunk alone is larger than this budget")


if __name__ == "__main__":
    main()
