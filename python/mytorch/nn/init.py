"""Fills tensors with initial values, in place and without recording; each function returns the tensor."""

import math as _math
from typing import TYPE_CHECKING, Any

from mytorch import _core

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        ...


for _name in dir(_core._init):
    if not _name.startswith("_"):
        globals()[_name] = getattr(_core._init, _name)


def calculate_gain(nonlinearity, param=None):
    """Returns the factor on the standard deviation of weights that keeps the variance through a nonlinearity."""
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"the slope of leaky_relu is a number, not {slope!r}")
        return _math.sqrt(2 / (1 + slope**2))
    gains = {"sigmoid": 1.0, "tanh": 5 / 3, "relu": _math.sqrt(2), "selu": 0.75}
    gains |= {name: 1.0 for name in ("linear", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)))}
    if nonlinearity not in gains:
        raise ValueError(f"there is no nonlinearity '{nonlinearity}': one of leaky_relu, {', '.join(gains)}")
    return gains[nonlinearity]
