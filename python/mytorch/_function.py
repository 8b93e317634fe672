"""Operations that a program differentiates by itself."""

from mytorch import _core
from mytorch._grad_mode import no_grad


class FunctionCtx:
    """What a call of a Function keeps for backward. Programs may add attributes; tensors that gradients go through belong
    in save_for_backward."""

    def __init__(self, count):
        self._handle = None
        self._count = count

    def save_for_backward(self, *tensors):
        """Saves tensors, or None, for backward; they must be arguments or results of the call."""
        _core._function_save(self._handle, tensors)

    @property
    def saved_tensors(self):
        """What save_for_backward has saved."""
        return _core._function_saved(self._handle)

    def mark_dirty(self, *args):
        """Declares arguments that forward modified in place; each is also a result."""
        _core._function_dirty(self._handle, args)

    def mark_non_differentiable(self, *args):
        """Declares results that have no gradient."""
        _core._function_no_gradient(self._handle, args)

    def set_materialize_grads(self, value):
        """Sets whether backward gets zeros, the default, or None for results without a gradient."""
        _core._function_materialize(self._handle, bool(value))

    @property
    def needs_input_grad(self):
        """Whether the gradient of each argument is wanted."""
        return tuple(_core._function_needs(self._handle, at) for at in range(self._count))


class Function:
    """The base of operations with a gradient of their own. A subclass defines the static methods forward(ctx, *args) and
    backward(ctx, *grads), which returns one gradient, or None, for each argument; or forward(*args) and
    setup_context(ctx, inputs, output). Programs call apply(*args)."""

    @staticmethod
    def forward(*args, **kwargs):
        raise NotImplementedError("a Function defines forward as a static method")

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError

    @staticmethod
    def backward(ctx, *grad_outputs):
        raise NotImplementedError("this Function has no backward: define it as a static method")

    vjp = backward

    def __init__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self).__name__} is called by {type(self).__name__}.apply(...)")

    @classmethod
    def apply(cls, *args):
        """Computes forward without recording, and records the call itself."""
        ctx = FunctionCtx(len(args))

        def run():
            if cls.setup_context is Function.setup_context:
                return cls.forward(ctx, *args)
            output = cls.forward(*args)
            cls.setup_context(ctx, args, output)
            return output

        once = getattr(cls.backward, "_once_differentiable", False)
        return _core._apply_function(cls, ctx, args, run, once)


def once_differentiable(function):
    """Decorates a backward that is not differentiable itself: differentiating its results is an error."""

    def backward(ctx, *grads):
        with no_grad():
            return function(ctx, *grads)

    backward._once_differentiable = True
    return backward
