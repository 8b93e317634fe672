"""The types of tensors of old PyTorch programs: FloatTensor, LongTensor and their kin."""

from mytorch import _core, _more_arguments

_KINDS = {
    "ByteTensor": _core.uint8,
    "CharTensor": _core.int8,
    "ShortTensor": _core.int16,
    "IntTensor": _core.int32,
    "LongTensor": _core.int64,
    "HalfTensor": _core.float16,
    "BFloat16Tensor": _core.bfloat16,
    "FloatTensor": _core.float32,
    "DoubleTensor": _core.float64,
    "ComplexFloatTensor": _core.complex64,
    "ComplexDoubleTensor": _core.complex128,
    "BoolTensor": _core.bool,
}
_NAMES = {dtype: name for name, dtype in _KINDS.items()}


class _Kind(type):
    """The class of a dtype and a kind of device. It makes plain tensors, which are its instances by their dtype."""

    dtype: _core.dtype
    device_type: str

    def __call__(cls, *args):
        sizes = args[0] if len(args) == 1 and type(args[0]).__name__ == "Size" else args
        if all(type(size) is int for size in sizes):
            return _core.empty(tuple(sizes) or (0,), dtype=cls.dtype, device=cls.device_type)
        if len(args) != 1:
            raise TypeError(f"[{cls.__name__}] takes sizes, or one list, array or tensor, not {len(args)} arguments")
        if isinstance(args[0], _core.Tensor):
            if not isinstance(args[0], cls):
                raise TypeError(
                    f"[{cls.__name__}] of a {type_name(args[0])}: a tensor is not converted here; use"
                    f" x.type(mytorch.{cls.__qualname__})"
                )
            return args[0].detach()
        if isinstance(args[0], (bool, float, complex)):
            raise TypeError(f"[{cls.__name__}] {args[0]} is no list, array or tensor: use mytorch.tensor")
        return _more_arguments.tensor(args[0], dtype=cls.dtype, device=cls.device_type)

    def __instancecheck__(cls, value):
        return isinstance(value, _core.Tensor) and value.dtype is cls.dtype and value.device.type == cls.device_type


def kinds_of(device_type):
    """Returns the classes for a kind of device, by their names."""
    module = "mytorch" if device_type == "cpu" else f"mytorch.{device_type}"
    parts = {"__module__": module, "device_type": device_type}
    doc = "Makes uninitialized tensors of sizes, or tensors of lists and arrays."
    return {name: _Kind(name, (), {**parts, "__doc__": doc, "dtype": dtype}) for name, dtype in _KINDS.items()}


def type_name(tensor):
    """Returns the old name of a tensor's type, such as 'mytorch.FloatTensor'."""
    middle = "" if tensor.device.type == "cpu" else f"{tensor.device.type}."
    return f"mytorch.{middle}{_NAMES[tensor.dtype]}"


def dtype_and_device(kind):
    """Returns what an argument of Tensor.type stands for: a dtype, and the kind of device of an old type or None."""
    if isinstance(kind, _Kind):
        return kind.dtype, kind.device_type
    if isinstance(kind, str):
        root, *middle, name = kind.split(".") if "." in kind else ("", kind)
        if root in ("torch", "mytorch") and name in _KINDS and middle in ([], ["cuda"]):
            return _KINDS[name], "cuda" if middle else "cpu"
        raise _core.ArgumentError(
            f"[type] '{kind}' is no type of tensors: give a dtype such as mytorch.float32, or a name such as"
            " 'mytorch.FloatTensor'"
        )
    return kind, None


globals().update(kinds_of("cpu"))
__all__ = list(_KINDS)
