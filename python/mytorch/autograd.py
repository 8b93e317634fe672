"""Differentiation of recorded operations."""

import sys
import warnings

from mytorch import _core
from mytorch import _function as function
from mytorch import _functional_gradients as functional
from mytorch._function import Function
from mytorch._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from mytorch._gradcheck import GradcheckError, gradcheck, gradgradcheck

__all__ = [
    "Function", "backward", "grad", "gradcheck", "gradgradcheck", "GradcheckError", "enable_grad", "functional", "inference_mode",
    "no_grad", "set_grad_enabled", "RemovableHandle", "Variable",
]  # fmt: skip

# `import mytorch.autograd.functional` finds the modules under PyTorch's names.
sys.modules[f"{__name__}.functional"] = functional
sys.modules[f"{__name__}.function"] = function


class RemovableHandle:
    """A hook that has been registered."""

    def __init__(self, tensor, number):
        self._tensor, self._number = tensor, number

    def remove(self):
        """Removes the hook; once."""
        if self._tensor is not None:
            self._tensor._remove_hook(self._number)
            self._tensor = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def _register_hook(self, hook):
    """Calls `hook` with the tensor's gradient each time it is computed; a tensor that it returns replaces the
    gradient."""
    return RemovableHandle(self, self._register_hook(hook))


def _register_post_accumulate_grad_hook(self, hook):
    """Calls `hook` with a leaf each time its grad has been accumulated."""
    return RemovableHandle(self, self._register_post_accumulate_grad_hook(hook))


_core.Tensor.register_hook = _register_hook  # type: ignore[method-assign]
_core.Tensor.register_post_accumulate_grad_hook = _register_post_accumulate_grad_hook  # type: ignore[method-assign]


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
    """Adds the gradients of tensors, weighted by `grad_tensors`, to the `grad` of the leaves that they depend on."""
    _core._backward(tensors, grad_tensors, retain_graph, create_graph, inputs)


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """Returns the gradients of the outputs with respect to the inputs, a tuple; changes no `grad`."""
    if not only_inputs:
        warnings.warn("[grad] only_inputs=False is ignored: gradients of the inputs alone are computed", FutureWarning,
                      stacklevel=2)  # fmt: skip
    if is_grads_batched:
        raise _core.UnsupportedError("[grad] is_grads_batched=True: call grad for each of the weights")
    if materialize_grads and allow_unused is False:
        raise ValueError("[grad] materialize_grads=True makes zeros of unused inputs: leave allow_unused=False out")
    unused = bool(materialize_grads if allow_unused is None else allow_unused)
    return _core._grad(outputs, inputs, grad_outputs, retain_graph, create_graph, unused, materialize_grads)


class _VariableType(type):
    def __call__(cls, data, requires_grad=False):
        if not isinstance(data, _core.Tensor):
            raise TypeError(f"[Variable] {type(data).__name__} is no tensor: use mytorch.tensor")
        return data.detach().requires_grad_(requires_grad)

    def __instancecheck__(cls, value):
        return isinstance(value, _core.Tensor)


class Variable(metaclass=_VariableType):
    """The tensor of old PyTorch programs: `Variable(data, requires_grad)` is a tensor over the memory of `data`."""


class set_detect_anomaly:
    """Sets whether errors and NaN of backward name the operation of forward, on this thread: at once, and, as a context,
    until its end."""

    def __init__(self, mode, check_nan=True):
        self._before = _core._is_anomaly_enabled()
        _core._set_anomaly(mode, check_nan)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _core._set_anomaly(self._before, True)


class detect_anomaly(set_detect_anomaly):
    """The mode set to True, as a context."""

    def __init__(self, check_nan=True):
        super().__init__(True, check_nan)


def is_anomaly_enabled():
    """Returns whether this thread's backward names operations."""
    return _core._is_anomaly_enabled()
