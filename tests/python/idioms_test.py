"""Everyday idioms of PyTorch programs, as people type them, with mytorch's names in place of torch's: one function each,
in the files of idioms/ by theme."""

import random
import unittest

import mytorch as mt
import numpy as np
from idioms import (  # noqa: F401  fill the table
    arithmetic,
    creation,
    gradients,
    indexing,
    loading,
    losses,
    models,
    modules,
    random_numbers,
    saving,
    shapes,
    training,
)
from idioms.table import IDIOMS, MISSING

_outcomes = {}


def outcome(name):
    """Runs an idiom once; returns its exception, or None."""
    if name not in _outcomes:
        mt.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            IDIOMS[name]()
            _outcomes[name] = None
        except Exception as error:
            _outcomes[name] = error
    return _outcomes[name]


class Idioms(unittest.TestCase):
    """One test for each idiom, and one of their share."""

    def check(self, name):
        error = outcome(name)
        if error is None:
            self.assertNotIn(name, MISSING, "the idiom runs now: take it out of MISSING")
        elif name not in MISSING:
            raise error

    def test_z_share(self):
        self.assertGreaterEqual(len(IDIOMS), 70)
        self.assertLessEqual(MISSING.keys(), IDIOMS.keys())
        failed = sorted(name for name in IDIOMS if outcome(name) is not None)
        self.assertGreaterEqual(len(IDIOMS) - len(failed), 0.95 * len(IDIOMS), f"these idioms fail: {failed}")


for _name in IDIOMS:
    setattr(Idioms, f"test_{_name}", lambda self, name=_name: self.check(name))


if __name__ == "__main__":
    unittest.main()
