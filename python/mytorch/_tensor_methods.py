"""Methods of tensors that are written in Python."""

from mytorch import _core, _more_arguments
from mytorch._legacy import dtype_and_device, type_name

_Tensor = _core.Tensor


def _type(self, dtype=None, non_blocking=False):
    """Returns the name of the tensor's type, or the tensor as another type: a dtype, a class such as
    `mytorch.LongTensor`, or its name. A class or name stands for a device, too."""
    if dtype is None:
        return type_name(self)
    kind, device = dtype_and_device(dtype)
    if device is None:
        return self.to(kind)
    return self.to(self.device if self.device.type == device else device, kind)


def _type_as(self, other):
    """Returns the tensor with the dtype and on the device of another."""
    return self.to(other.device, other.dtype)


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """Returns a tensor with a copy of `data`, of this tensor's dtype and on its device if none are given."""
    made = _more_arguments.tensor(data, dtype=dtype or self.dtype, device=self.device if device is None else device)
    return made.requires_grad_(requires_grad)


def _where(self, condition, other):
    """Returns this tensor's elements where `condition` is true, else those of `other`."""
    return _core.where(condition, self, other)


def _format(self, spec):
    """Formats a tensor without dimensions as its number, and others as their text."""
    if self.ndim == 0 and (spec or type(self) is _Tensor):
        return format(self.item(), spec)
    if spec:
        raise TypeError(
            f"[format] '{spec}' is for one number, and the tensor has shape {tuple(self.shape)}: format x.item() of a"
            " single element"
        )
    return str(self)


def _get_device(self):
    """Returns the number of the tensor's GPU; -1 on the CPU."""
    return -1 if self.device.type == "cpu" else self.device.index or 0


_METHODS = {
    "type": _type,
    "type_as": _type_as,
    "new_tensor": _new_tensor,
    "where": _where,
    "__format__": _format,
    "get_device": _get_device,
    "is_cpu": property(lambda self: self.device.type == "cpu", doc="Whether the tensor is in the CPU's memory."),
    "unique": _more_arguments.unique,
    "unique_consecutive": _more_arguments.unique_consecutive,
    "nonzero": _more_arguments.nonzero,
    "var": _more_arguments.var,
    "std": _more_arguments.std,
}


def _add_conversion(name, dtype):
    def convert(self):
        return self.to(dtype)

    convert.__name__, convert.__doc__ = name, f"Returns the tensor as {dtype}."
    _METHODS[name] = convert


for _name, _dtype in (
    ("byte", _core.uint8),
    ("char", _core.int8),
    ("short", _core.int16),
    ("cfloat", _core.complex64),
    ("cdouble", _core.complex128),
):
    _add_conversion(_name, _dtype)

for _name, _method in _METHODS.items():
    setattr(_Tensor, _name, _method)
