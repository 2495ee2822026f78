"""Discrete Fourier transforms: the standard's `fft` extension, for arrays of any size.

A transform needs its axis in one piece, and chunks needn't be: lines are read from whatever chunks
there are, as many at a time as the budget holds. A line that is longer than the budget holds is
split into shorter transforms (see each function's notes), so that one axis, too, can be larger than
memory.
"""

from jaxchunk.array_api._fft_functions import (
    fft,
    fftn,
    hfft,
    ifft,
    ifftn,
    ihfft,
    irfft,
    irfftn,
    rfft,
    rfftn,
)
from jaxchunk.array_api._fft_helpers import (
    fftfreq,
    fftshift,
    ifftshift,
    rfftfreq,
)

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]
