"""The operators whose names begin with `special_`."""

from mytorch import _core

_prefix = "special_"
for _name in dir(_core):
    if _name.startswith(_prefix):
        globals()[_name[len(_prefix) :]] = getattr(_core, _name)
del _name
