"""The format of printed tensors."""

from mytorch import _core

_NAMES = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
_PROFILES = {"default": (4, 1000, 3, 80, None), "short": (2, 1000, 2, 80, None), "full": (4, 2**62, 3, 80, None)}


def get_printoptions():
    """Returns the format of printed tensors, a dictionary. A linewidth of 0 is that of the terminal."""
    return dict(zip(_NAMES, _core._print_options()))


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """Sets the format of printed tensors for all threads; what is None stays. `profile` sets all: "default", "short" or
    "full". By default, scientific notation is chosen by the range of the values, and a profile brings that back."""
    options = get_printoptions()
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"there is no profile {profile!r}: one of {', '.join(_PROFILES)}")
        options = dict(zip(_NAMES, _PROFILES[profile]))
    given = (precision, threshold, edgeitems, linewidth, sci_mode)
    options |= {name: value for name, value in zip(_NAMES, given) if value is not None}
    options["threshold"] = min(options["threshold"], 2**62)  # infinity, too
    _core._set_print_options(*(options[name] for name in _NAMES))
