"""Tensors, operators and gradients of mytorch. Names and meanings are PyTorch's."""

import builtins as _builtins
import math as _math
import typing as _typing
from importlib import import_module as _import_module

from mytorch import _core
from mytorch._core import *  # noqa: F403  the operators and types
from mytorch._core import __version__
from mytorch._legacy import *  # noqa: F403  FloatTensor and its kin
from mytorch._more_arguments import *  # type: ignore[assignment]  # noqa: F403  hides _core's of these names
from mytorch._types import *  # noqa: F403
from mytorch import _tensor_methods  # noqa: F401  adds methods to Tensor
from mytorch import autograd, backends, cuda, fft, linalg, random, special, testing
from mytorch._devices import get_default_device, set_default_device
from mytorch._files import load, save
from mytorch._printing import get_printoptions, set_printoptions
from mytorch._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from mytorch._size import Size
from mytorch.backends import (
    are_deterministic_algorithms_enabled,
    get_float32_matmul_precision,
    set_float32_matmul_precision,
    use_deterministic_algorithms,
)
from mytorch.random import get_rng_state, initial_seed, seed, set_rng_state

inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
newaxis = None

# Further names of types.
half, double, short, long = _core.float16, _core.float64, _core.int16, _core.int64
cfloat, cdouble = _core.complex64, _core.complex128


def is_tensor(obj):
    """Returns whether an object is a tensor."""
    return isinstance(obj, _core.Tensor)


def numel(input):
    """Returns the number of elements."""
    return input.numel()


if _typing.TYPE_CHECKING:
    from mytorch import data, nn, optim
else:

    def __getattr__(name):
        # Packages that take a while to import, when they are first used.
        if name in ("data", "nn", "optim"):
            return _import_module(f"mytorch.{name}")
        raise AttributeError(f"module 'mytorch' has no attribute '{name}'")


# Last, because they hide Python's own types in this module.
float, int = _core.float32, _core.int32

# `from mytorch import *` leaves Python's own names as they are.
_hidden = {"random", "testing"}  # modules that would hide Python's own, or a program's
__all__ = [name for name in globals() if name[0] != "_" and not hasattr(_builtins, name) and name not in _hidden]
__all__ += ["data", "nn", "optim"]
