"""Linear algebra: the operators whose names begin with `linalg_`."""

from mytorch._prefixed import prefixed

globals().update(prefixed("linalg_"))
