"""Hooks of modules: functions that calls of a module call, too."""

import itertools

from mytorch import _core

_numbers = itertools.count()


class RemovableHandle:
    """A hook that has been registered."""

    def __init__(self, hooks):
        self._hooks, self.id = hooks, next(_numbers)

    def remove(self):
        """Removes the hook; once."""
        self._hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def add(hooks, hook, prepend=False):
    """Adds a hook to a dictionary of them, as its last or first one."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        rest = [(key, hooks.pop(key)) for key in list(hooks) if key != handle.id]
        hooks.update(rest)
    return handle


def _is_differentiable(value):
    return isinstance(value, _core.Tensor) and value.requires_grad


class BackwardHooks:
    """The hooks of one call that see gradients. The tensors of the call become views, whose gradients are those of this
    call alone."""

    def __init__(self, module):
        self.module = module
        self.hooks = list(module._backward_hooks.values())
        self.before = list(module._backward_pre_hooks.values())
        self.grad_outputs = [None]
        self.grad_inputs = []
        self.wanted = 0

    def inputs(self, args):
        """Returns the arguments of the call."""
        if not self.hooks:
            return args
        self.grad_inputs = [None] * len(args)
        places = [at for at, arg in enumerate(args) if _is_differentiable(arg)]
        self.wanted = len(places)
        args = list(args)
        for at in places:
            args[at] = _core.alias(args[at])
            args[at].register_hook(lambda grad, at=at: self._input(at, grad))
        return tuple(args)

    def outputs(self, result):
        """Returns the result of the call."""
        several = isinstance(result, (tuple, list))
        values = list(result) if several else [result]
        self.grad_outputs = [None] * len(values)
        for at, value in enumerate(values):
            if _is_differentiable(value):
                values[at] = _core.alias(value)
                values[at].register_hook(lambda grad, at=at: self._output(at, grad))
        if not several:
            return values[0]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def _output(self, at, grad):
        self.grad_outputs[at] = grad
        for hook in self.before:
            replaced = hook(self.module, tuple(self.grad_outputs))
            if replaced is not None:
                self.grad_outputs = list(replaced) if isinstance(replaced, (tuple, list)) else [replaced]
        if self.wanted == 0 and self.hooks:
            self._call(tuple(self.grad_inputs))
        return self.grad_outputs[at]

    def _input(self, at, grad):
        self.grad_inputs[at] = grad
        have = sum(grad is not None for grad in self.grad_inputs)
        if have < self.wanted:
            return None
        replaced = self._call(tuple(self.grad_inputs))
        if replaced is None:
            return None
        if self.wanted > 1:
            raise RuntimeError(
                f"a backward hook of {type(self.module).__name__} returned gradients, but {self.wanted} inputs require "
                "them and some have gone on: register hooks on the tensors, or give the module one input"
            )
        return replaced[at]

    def _call(self, grad_inputs):
        result = None
        for hook in self.hooks:
            replaced = hook(self.module, grad_inputs, tuple(self.grad_outputs))
            if replaced is not None:
                grad_inputs = replaced if isinstance(replaced, (tuple, list)) else (replaced,)
                if len(grad_inputs) != len(self.grad_inputs):
                    raise RuntimeError(
                        f"a backward hook of {type(self.module).__name__} returned {len(grad_inputs)} gradients, but "
                        f"there are {len(self.grad_inputs)} inputs"
                    )
                result = grad_inputs
        return result
