"""The data of the demo: a made-up daily sea-surface temperature as compressed Zarr, in plain NumPy and zarr.

python examples/_sst_field.py PATH SIZE
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

Array = npt.NDArray[Any]

MONTHS, DAYS = 12, 30
"""The calendar of many climate models: twelve months of thirty days."""
YEAR = MONTHS * DAYS
UNITS = {"MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True)
class Field:
    """The shape of the data: `years` of days on a grid of `lat` by `lon` points; a chunk is a year of a quarter."""

    years: int
    lat: int
    lon: int

    @classmethod
    def of_size(cls, text: str) -> Field:
        """At least "2 GiB" of float32 over 20 years (6 where that is little), on a grid twice as wide as high."""
        number, unit = text.split()
        nbytes = float(number) * UNITS[unit]
        years = 20 if nbytes >= 2**29 else 6
        lat = 8 * math.ceil((nbytes / 4 / years / YEAR / 2) ** 0.5 / 8)
        return cls(years, lat, 2 * lat)

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.years * YEAR, self.lat, self.lon

    @property
    def chunks(self) -> tuple[int, int, int]:
        return YEAR, self.lat // 2, self.lon // 2


def make_field(path: Path, field: Field) -> None:
    """Write the field a year at a time."""
    target = zarr.create_array(path, shape=field.shape, chunks=field.chunks, dtype="float32", overwrite=True)
    lat, lon, land = geography(field)
    mean = 28 * np.cos(lat) ** 2 - 1 + 1.5 * np.cos(3 * lon) * np.cos(lat)
    swing = 7 * np.sin(lat)
    warming = true_trend(field) / YEAR

    def year(index: int) -> None:
        block = np.empty((YEAR, field.lat, field.lon), dtype=np.float32)
        for day, noise in enumerate(weather(np.random.default_rng([2024, index]), field)):
            season = math.sin(2 * math.pi * (day - 75) / YEAR)
            values = mean + swing * season + warming * (index * YEAR + day) + noise
            # Hundredths of a degree, as such products are stored; it is also what makes them compress.
            block[day] = np.where(land, np.nan, np.round(values, 2))
        target[index * YEAR : (index + 1) * YEAR] = block

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(year, range(field.years)))


def geography(field: Field) -> tuple[Array, Array, Array]:
    """Latitudes (a column) and longitudes (a row) in radians, and where land is."""
    lat = np.deg2rad(np.linspace(-89, 89, field.lat, dtype=np.float32))[:, None]
    lon = np.deg2rad(np.linspace(0, 360, field.lon, endpoint=False, dtype=np.float32))[None, :]
    continents = np.sin(2 * lon + 0.7) * np.cos(lat) + 0.6 * np.sin(3 * lat + lon) + 0.3 * np.cos(5 * lon - 2 * lat)
    return lat, lon, np.asarray(continents > 0.75)


def true_trend(field: Field) -> Array:
    """Degrees a year: more in the north, some structure along the equator."""
    lat, lon, _ = geography(field)
    return np.asarray(0.02 + 0.02 * np.sin(lat) + 0.01 * np.cos(2 * lon) * np.cos(lat))


def weather(rng: np.random.Generator, field: Field) -> Iterator[Array]:
    """A year of it, day by day: noise of about 0.6 degrees that lasts for days and spreads over some ten points."""
    to_lat, to_lon = between_spots(field.lat), between_spots(field.lon)
    spots = rng.normal(0, 0.9, (YEAR // 5 + 1, to_lat.shape[1], to_lon.shape[1])).astype(np.float32)
    for day in range(YEAR):
        step, share = divmod(day, 5)
        today = spots[step] + (spots[step + 1] - spots[step]) * (share / 5)
        yield to_lat @ today @ to_lon.T


def between_spots(n: int) -> Array:
    """The matrix that interpolates linearly from a spot at every eighth point to all `n` of them."""
    distance = np.arange(n)[:, None] / 8 - np.arange(n // 8 + 1)
    return np.asarray(np.maximum(0, 1 - np.abs(distance)), dtype=np.float32)


if __name__ == "__main__":
    make_field(Path(sys.argv[1]), Field.of_size(sys.argv[2]))
