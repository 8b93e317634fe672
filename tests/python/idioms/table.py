"""The table of idioms, and what their checks share."""

import numpy as np
from mytorch import Tensor

# Idioms that do not run yet, each with what it lacks.
MISSING = {
    "categorical_distribution": "distributions",
    "default_device": "devices as contexts",
    "default_dtype": "a default of float64",
    "legacy_constructors": "Tensor(sizes), and Tensor of integers as float32",
    "mixed_precision": "autocast",
    "scaled_gradients": "amp.GradScaler",
    "shapes_as_tuples": "shapes of the type Size",
    "shapes_in_place": "unsqueeze_ and its kin",
    "sparse_adjacency": "sparse tensors",
}

IDIOMS = {}


def idiom(run):
    """Adds a function to the table; its name is the idiom's."""
    assert run.__name__ not in IDIOMS, run.__name__
    IDIOMS[run.__name__] = run
    return run


def close(a, b, tolerance=1e-5):
    a, b = (x.detach().tolist() if isinstance(x, Tensor) else x for x in (a, b))
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=tolerance, atol=tolerance)


def same(a, b):
    a, b = (x.tolist() if hasattr(x, "tolist") else x for x in (a, b))
    assert a == b, f"{a} is not {b}"
