"""Fourier transforms: the operators whose names begin with `fft_`."""

from mytorch._prefixed import prefixed

globals().update(prefixed("fft_"))
