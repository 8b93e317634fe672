"""Facts about dtypes: limits, promotion and the default."""

import math
import sys

from mytorch import _core
from mytorch._size import Size

__all__ = [
    "broadcast_shapes", "can_cast", "finfo", "get_default_dtype", "iinfo", "is_complex", "is_floating_point",
    "promote_types", "result_type", "set_default_dtype",
]  # fmt: skip

_float, _int, _bool = float, int, bool

# Of each type: bits, log2 of eps, the exponent of the largest value, the exponent of the least normal one, resolution.
_FLOATS = {
    _core.float16: (16, -10, 15, -14, 1e-3),
    _core.bfloat16: (16, -7, 127, -126, 1e-2),
    _core.float32: (32, -23, 127, -126, 1e-6),
    _core.float64: (64, -52, 1023, -1022, 1e-15),
}
_REAL = {_core.complex64: _core.float32, _core.complex128: _core.float64}
_PLAIN = {_bool: _core.bool, _int: _core.int64, _float: _core.float32, complex: _core.complex64}


def _name(dtype):
    return str(dtype).rsplit(".", 1)[-1]


def _checked(where, dtype):
    dtype = _PLAIN.get(dtype, dtype)
    if not isinstance(dtype, _core.dtype):
        raise TypeError(f"[{where}] {dtype!r} is no dtype: give one such as mytorch.float32")
    return dtype


class finfo:
    """The limits of a floating-point type; for a complex type, of its parts."""

    def __init__(self, type=_core.float32):
        dtype = _checked("finfo", type)
        dtype = _REAL.get(dtype, dtype)
        if dtype not in _FLOATS:
            raise TypeError(f"[finfo] {dtype} has whole numbers: use mytorch.iinfo")
        self.dtype = _name(dtype)
        self.bits, eps, largest, least, self.resolution = _FLOATS[dtype]
        self.eps = math.ldexp(1.0, eps)
        self.max = sys.float_info.max if self.bits == 64 else math.ldexp(2.0 - self.eps, largest)
        self.min = -self.max
        self.tiny = self.smallest_normal = math.ldexp(1.0, least)

    def __eq__(self, other):
        return isinstance(other, finfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)

    def __repr__(self):
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


class iinfo:
    """The limits of a type of whole numbers."""

    def __init__(self, type):
        dtype = _checked("iinfo", type)
        if dtype.is_floating_point or dtype.is_complex or dtype is _core.bool:
            use = "it has two values" if dtype is _core.bool else "use mytorch.finfo"
            raise TypeError(f"[iinfo] {dtype} has no whole numbers: {use}")
        self.dtype = _name(dtype)
        self.bits = 8 * dtype.itemsize
        self.max = 2 ** (self.bits - dtype.is_signed) - 1
        self.min = -self.max - 1 if dtype.is_signed else 0

    def __eq__(self, other):
        return isinstance(other, iinfo) and self.dtype == other.dtype

    def __hash__(self):
        return hash(self.dtype)

    def __repr__(self):
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def is_floating_point(input):
    """Returns whether a tensor has a floating-point type."""
    return input.is_floating_point()


def is_complex(input):
    """Returns whether a tensor has a complex type."""
    return input.is_complex()


def promote_types(type1, type2):
    """Returns the type of a sum of two tensors of these types."""
    a, b = (_core.empty(0, dtype=_checked("promote_types", kind)) for kind in (type1, type2))
    return (a + b).dtype


def result_type(tensor1, tensor2):
    """Returns the type of a sum of two tensors or numbers."""
    a, b = (_stand_in(value) for value in (tensor1, tensor2))
    if not (isinstance(a, _core.Tensor) or isinstance(b, _core.Tensor)):
        return promote_types(type(a), type(b))
    return (a + b).dtype


def _stand_in(value):
    """Returns a tensor of the type and number of dimensions, without much to add; a number as it is."""
    if isinstance(value, _core.Tensor):
        return _core.zeros((0,) if value.ndim else (), dtype=value.dtype)
    if type(value) not in _PLAIN:
        raise TypeError(f"[result_type] {type(value).__name__} is no tensor and no number")
    return value if type(value) is bool else type(value)(1)  # a large number would not fit into a narrow type


def can_cast(from_, to):
    """Returns whether a type may become another in place, as the result of an operator: complex numbers stay complex,
    floats do not become integers, and nothing else becomes bool."""
    from_, to = _checked("can_cast", from_), _checked("can_cast", to)
    if from_.is_complex and not to.is_complex:
        return False
    if from_.is_floating_point and not (to.is_floating_point or to.is_complex):
        return False
    return from_ is _core.bool or to is not _core.bool


def broadcast_shapes(*shapes):
    """Returns the shape that results when tensors of these shapes are combined."""
    shapes = [(shape,) if isinstance(shape, _int) else tuple(shape) for shape in shapes]
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for at in range(-len(shape), 0):
            if shape[at] < 0:
                raise _core.ShapeError(f"[broadcast_shapes] {shape} has a negative size: give 0 or more")
            if shape[at] != 1 and result[at] not in (1, shape[at]):
                raise _core.ShapeError(
                    f"[broadcast_shapes] {', '.join(map(str, shapes))} do not fit: dimension {at} has sizes"
                    f" {result[at]} and {shape[at]}; sizes are equal or 1"
                )
            if shape[at] != 1:
                result[at] = shape[at]
    return Size(result)


def get_default_dtype():
    """Returns the type of tensors of floats that are made without a dtype: float32."""
    return _core.float32


def set_default_dtype(d):
    """Takes float32 alone, which is the default."""
    if not _checked("set_default_dtype", d).is_floating_point:
        raise _core.DtypeError(f"[set_default_dtype] {d} is no floating-point type: only float32 is taken")
    if _PLAIN.get(d, d) is not _core.float32:
        raise _core.UnsupportedError(
            f"[set_default_dtype] {d}: the default is always float32; pass dtype={d} where tensors are made, and call"
            f" model.to({d})"
        )
