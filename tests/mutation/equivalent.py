"""Mutants of kernels.py that compute the same as the original: (file, line, changed line) with the reason."""

EQUIVALENT: dict[tuple[str, str, str], str] = {}
