"""Hooks of modules: functions that calls of a module call, too."""

import itertools
import weakref

from mytorch import _core

_numbers = itertools.count()


class RemovableHandle:
    """A hook that has been registered: one of a dictionary of a module. It does not keep the module alive."""

    def __init__(self, module, kind=None):
        self._module = weakref.ref(module) if kind is not None else None
        self._kind = kind
        self.id = next(_numbers)

    def remove(self):
        """Removes the hook; once."""
        module = self._module() if self._module is not None else None
        if module is not None:
            module.__dict__[self._kind].pop(self.id, None)

    def __getstate__(self):  # a copy made with the module is a handle of its copy
        return {**self.__dict__, "_module": self._module() if self._module is not None else None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._module is not None:
            self._module = weakref.ref(self._module)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()


def add(module, kind, hook, prepend=False):
    """Adds a hook to a dictionary of a module, as its last or first one."""
    held = module.__dict__[kind]
    handle = RemovableHandle(module, kind)
    while handle.id in held:  # by a module that another process has pickled
        handle.id = next(_numbers)
    rest = dict(held) if prepend else {}
    for number in rest:
        del held[number]
    held[handle.id] = hook
    held.update(rest)
    return handle


def _is_differentiable(value):
    return isinstance(value, _core.Tensor) and value.requires_grad


def _joined(values, see, zeros=False):
    """Returns values whose differentiable tensors have passed one operation, so that the backward pass knows all of
    their gradients at once, and how many these are. Backward calls see(gradients), with None, or by `zeros` zeros, for
    tensors that it has not reached, and goes on with the gradients that are returned, if not None."""
    places = [at for at, value in enumerate(values) if _is_differentiable(value)]
    made, count = list(values), len(values)
    if len(places) == 1:
        (at,) = places

        def see_one(grad):
            changed = see([grad if each == at else None for each in range(count)])
            if changed is None:
                return None
            return changed[at] if changed[at] is not None else _core.zeros_like(grad)

        made[at] = _core.alias(values[at])
        made[at].register_hook(see_one)
    elif places:
        kinds = [(values[at].shape, values[at].device, values[at].dtype) for at in places]
        sizes = [values[at].numel() for at in places]
        flat = _core.cat([values[at].reshape(-1).to(kinds[0][1]) for at in places])
        reached = set()  # the others have zeros in the gradient of `flat`

        def parts(tensor):
            pieces = zip(places, kinds, tensor.split(sizes))
            return {at: piece.view(shape).to(device, dtype) for at, (shape, device, dtype), piece in pieces}

        def see_all(grad):
            grads = parts(grad)
            changed = see([grads.get(at) if zeros or at in reached else None for at in range(count)])
            reached.clear()
            if changed is None:
                return None
            new = [changed[at] if changed[at] is not None else _core.zeros_like(grads[at]) for at in places]
            return _core.cat([each.reshape(-1).to(grad.device, grad.dtype) for each in new])

        flat.register_hook(see_all)
        for at, part in parts(flat).items():
            made[at] = part
            part.register_hook(lambda _, at=at: reached.add(at))
    return made, len(places)


class BackwardHooks:
    """The hooks of one call that see gradients. Its tensors are replaced by equal ones, whose gradients are those of
    this call alone."""

    def __init__(self, module):
        self.module = module
        self.hooks = list(module._backward_hooks.values())
        self.before = list(module._backward_pre_hooks.values())
        self.grad_outputs = None  # of the backward pass that is under way
        self.count = self.wanted = 0

    def inputs(self, args):
        """Returns the arguments of the call."""
        self.count = len(args)
        if not self.hooks:
            return args
        args, self.wanted = _joined(args, self._see_inputs, zeros=True)
        return tuple(args)

    def outputs(self, result):
        """Returns the result of the call."""
        if not isinstance(result, (tuple, list)):
            return _joined([result], self._see_outputs)[0][0]
        values, _ = _joined(result, self._see_outputs)
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)

    def _see_outputs(self, grads):
        self.grad_outputs = tuple(grads)
        for hook in self.before:
            self.grad_outputs = self._replaced(hook(self.module, self.grad_outputs), self.grad_outputs, "outputs")
        grads = self.grad_outputs
        if self.hooks and not self.wanted:
            self._see_inputs([None] * self.count)
        return grads if self.before else None

    def _see_inputs(self, grads):
        if self.grad_outputs is None:  # a path that does not pass the outputs: of a second derivative
            return None
        before = grads = tuple(grads)
        grad_outputs, self.grad_outputs = self.grad_outputs, None
        for hook in self.hooks:
            grads = self._replaced(hook(self.module, grads, grad_outputs), grads, "inputs")
        return None if grads is before else grads

    def _replaced(self, given, grads, what):
        if given is None:
            return grads
        given = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        if len(given) != len(grads):
            raise RuntimeError(
                f"a backward hook of {type(self.module).__name__} returned {len(given)} gradients, but there are "
                f"{len(grads)} {what}"
            )
        return given
