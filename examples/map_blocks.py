"""Any JAX function on every block: here a small network, with its weights captured by the function."""

import os

import jax
import jax.numpy as jnp
import numpy as np

import jaxchunk as jc
import jaxchunk.array_api as xp

SIDE = int(os.environ.get("JAXCHUNK_EXAMPLE_SIDE", "4096"))
FEATURES, CLASSES = 32, 10


def main() -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    inner = jax.random.normal(keys[0], (FEATURES, 64)) / FEATURES**0.5
    outer = jax.random.normal(keys[1], (64, CLASSES)) / 8

    def classify(block: jax.Array, temperature: float) -> jax.Array:
        """(rows, features) → (rows, classes): called with exactly one block of the grid."""
        return jax.nn.softmax(jnp.tanh(block @ inner) @ outer / temperature)

    samples = xp.reshape(xp.arange(SIDE * FEATURES, dtype=xp.float32, chunks=(2**16,)), (SIDE, FEATURES))
    samples = jc.rechunk(xp.sin(samples), (1024, FEATURES))

    # Shape and dtype of a block's result are found by tracing; nothing runs until it is asked for.
    scores = jc.map_blocks(classify, samples, 0.5)
    best = xp.argmax(scores, axis=1)
    print(f"scores {scores.shape} {scores.dtype} in chunks {scores.chunksize}")

    first = np.sin(np.arange(5 * FEATURES, dtype=np.float32)).reshape(5, FEATURES)
    np.testing.assert_allclose(np.asarray(scores[:5]), np.asarray(classify(jnp.asarray(first), 0.5)), atol=1e-5)
    print("first classes:", np.asarray(best[:10]))


if __name__ == "__main__":
    main()
