"""How new arrays are cut: the one place where the default is decided."""

from __future__ import annotations

from collections.abc import Sequence

from jaxchunk import config
from jaxchunk.graph.grid import ChunksLike, Grid, normalize_chunks


def new_grid(chunks: ChunksLike | None, shape: Sequence[int], itemsize: int) -> Grid:
    """The grid of an array that is made, not derived from another one.

    Where `chunks` is None it is the setting `default_chunks`, and without that blocks of at most
    16 MiB. "auto" is those blocks whatever the setting.
    """
    if chunks is None:
        chunks = config.get().default_chunks
    return normalize_chunks(chunks, shape, itemsize)
