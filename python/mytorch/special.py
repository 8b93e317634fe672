"""Special functions: the operators whose names begin with `special_`."""

from mytorch._prefixed import prefixed

globals().update(prefixed("special_"))
