"""Tensors that modules train or keep."""

from mytorch import _core


class Parameter(_core.Tensor):
    """A tensor that requires gradients and becomes a parameter of the module that it is assigned to. Shares the memory of
    `data`."""

    def __new__(cls, data, requires_grad=True):
        made = super().__new__(cls, data)
        return made.requires_grad_(requires_grad)

    @classmethod
    def _of(cls, tensor):
        """Returns a parameter that is the same tensor as one of C++."""
        return _core._same_as(cls, tensor)

    def __repr__(self):
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(_core.Tensor):
    """A tensor that becomes a buffer of the module that it is assigned to. Shares the memory of `data`."""

    def __new__(cls, data, *, persistent=True):
        made = super().__new__(cls, data)
        made.persistent = persistent
        return made
