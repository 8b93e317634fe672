"""Shapes as a type of their own."""

import math
from operator import index


class Size(tuple):
    """A tuple of sizes that counts elements. Shapes of tensors are plain tuples, which are equal to it."""

    __slots__ = ()

    def __new__(cls, sizes=()):
        return super().__new__(cls, map(index, sizes))

    def numel(self):
        """Returns the number of elements of a tensor with these sizes."""
        return math.prod(self)

    def __getitem__(self, at):
        found = super().__getitem__(at)
        return Size(found) if isinstance(at, slice) else found

    def __add__(self, other):
        return Size(super().__add__(tuple(other)))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, count):
        return Size(super().__mul__(count))

    __rmul__ = __mul__

    def __repr__(self):
        return f"mytorch.Size({list(self)})"
