"""Storage: Zarr arrays read and written chunk by chunk."""

from jaxchunk.store.buffers import POOL, BufferPool
from jaxchunk.store.parts import in_parts, is_divisible
from jaxchunk.store.stored import StoredArray, mark_stale, open_array
from jaxchunk.store.target import Target

__all__ = ["POOL", "BufferPool", "StoredArray", "Target", "in_parts", "is_divisible", "mark_stale", "open_array"]
