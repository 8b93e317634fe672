"""The operators whose names begin with `fft_`."""

from mytorch import _core

_prefix = "fft_"
for _name in dir(_core):
    if _name.startswith(_prefix):
        globals()[_name[len(_prefix) :]] = getattr(_core, _name)
del _name
