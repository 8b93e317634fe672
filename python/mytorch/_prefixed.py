"""The operators of a namespace."""

from mytorch import _core


def prefixed(prefix):
    """Returns the operators whose names begin with a prefix, by the rest of their names."""
    return {name[len(prefix) :]: getattr(_core, name) for name in dir(_core) if name.startswith(prefix)}
