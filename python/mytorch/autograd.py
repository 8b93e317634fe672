"""Differentiation of recorded operations."""

from mytorch import _core
from mytorch._grad_mode import enable_grad, no_grad, set_grad_enabled

__all__ = ["backward", "grad", "enable_grad", "no_grad", "set_grad_enabled", "RemovableHandle"]


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
    allow_unused=False,
    materialize_grads=False,
):
    """Returns the gradients of the outputs with respect to the inputs, a tuple; changes no `grad`."""
    return _core._grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
