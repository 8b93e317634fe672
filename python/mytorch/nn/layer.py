"""Modules that C++ computes."""

import weakref
from typing import Any

from mytorch import _core
from mytorch.nn import hooks
from mytorch.nn.module import Module
from mytorch.nn.parameter import Parameter
from mytorch.nn.utils.rnn import PackedSequence

# What Python has for layers of C++ that hold others.
_CONTAINERS = ("ModuleList", "Sequential")


class Layer(Module):
    """A module of C++: its constructor, `forward` and modes are there, and its tensors are those of the attributes. A
    subclass that defines forward computes it in Python, from the same tensors."""

    _make: Any = None
    _names: tuple = ()
    _defaults: dict = {}
    _sizes: dict = {}

    def __init__(self, *values, device=None, dtype=None):
        super().__init__()
        given = [value._layer if isinstance(value, Layer) else value for value in values]
        for name, value in zip(self._names, values):
            _check_exact(type(self).__name__, name, value)
        self._take(type(self)._make(*given))
        own = {**self._parameters, **self._buffers, **self._modules}
        self.__dict__["_arguments"] = dict(zip(self._names, values))
        for name, value in zip(self._names, values):
            if name not in own and not isinstance(value, Module):
                count = self._sizes.get(name, 0)
                self.__dict__[name] = (value,) * count if count > 1 and isinstance(value, int) else value
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def _take(self, layer):
        """Makes a layer of C++ this one's, with its tensors and parts."""
        self.__dict__["_layer"] = layer
        self._take_tensors()
        for name, child, kind in layer.children():
            self._modules[name] = _adopted(child, kind)
        self.__dict__["_inside"] = frozenset(self._modules)

    def _take_tensors(self):
        for name, tensor, is_buffer in self._layer.tensors():
            if is_buffer:
                self._buffers[name] = tensor
            else:
                self._parameters[name] = None if tensor is None else Parameter._of(tensor)

    # -- what C++ has to know --

    def __setattr__(self, name, value):
        if name == "training":
            self._layer.train(value)
        elif name in self.__dict__.get("_inside", ()):
            raise _core.UnsupportedError(
                f"'{name}' of {type(self).__name__} is computed with it in C++ and cannot be replaced: assign its "
                "parameters, or write the module in Python"
            )
        super().__setattr__(name, value)

    def _note(self, name, tensor):
        if "_layer" in self.__dict__:
            for own, _, _ in self._layer.tensors():
                if own == name:
                    self._layer.set(name, tensor)

    def register_parameter(self, name, param):
        super().register_parameter(name, param)
        self._note(name, param)

    def register_buffer(self, name, tensor, persistent=True):
        super().register_buffer(name, tensor, persistent)
        self._note(name, tensor)

    def __delattr__(self, name):
        super().__delattr__(name)
        self._note(name, None)

    def train(self, mode=True):
        super().train(mode)
        self._layer.train(mode)
        return self

    # -- texts --

    def extra_repr(self):
        arguments = self.__dict__.get("_arguments")
        if arguments is None:  # made by C++
            return self._layer.describe().partition("(")[2].removesuffix(")")
        shown = []
        for name, value in arguments.items():
            value = self.__dict__.get(name, value)
            if isinstance(value, (Module, _core.Tensor)):
                continue
            if name not in self._defaults or value != self._defaults[name] or len(arguments) == 1:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    # -- copies --

    def __getstate__(self):
        state = dict(self.__dict__)
        del state["_layer"]
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
        if "_arguments" in state:  # else a part, which the layer around it links
            self._make_again()

    def _make_again(self):
        """Makes the layer of C++ for the tensors that the module has."""
        given = [value._layer if isinstance(value, Layer) else value for value in self._arguments.values()]
        # The numbers that it draws are replaced, so none are taken from the generator.
        generator = _core._default_generator()
        before = generator.get_state()
        layer = type(self)._make(*given)
        generator.set_state(before)
        _relinked(self, layer)


class LazyLayer(Layer):
    """A layer that makes its tensors in the first call, from the sizes of the input. It then is one of the class that is
    not lazy."""

    _made = False

    def __call__(self, *args, **kwargs):
        result = super().__call__(*args, **kwargs)
        if not (self._made or self._layer.is_lazy()):
            self._finish(args[0] if args else next(iter(kwargs.values())))
        return result

    def _finish(self, input):
        from mytorch import _layers

        self._take_tensors()
        self.__dict__["_made"] = True
        name = type(self).__name__
        if getattr(_layers, name, None) is not type(self):
            return  # a class of the program stays what it is
        eager = getattr(_layers, name.removeprefix("Lazy"))
        dim = -1 if "Linear" in name else 1 if "Batch" in name else -int(name[-2]) - 1
        first = eager._names[0]
        self.__dict__["_arguments"] = {first: input.shape[dim], **self._arguments}
        self.__dict__[first] = input.shape[dim]
        self.__class__ = eager
        self._make_again()

    def __getstate__(self):
        if self._made:
            raise _core.UnsupportedError(
                f"{type(self).__name__} cannot be copied after its first call: copy its state into a new one"
            )
        return super().__getstate__()

    def has_uninitialized_params(self):
        """Returns whether there has been no call yet."""
        return not self._made

    def _check_made(self):
        if self._made:
            return
        raise _core.ArgumentError(
            f"the tensors of {type(self).__name__} are made in its first call: call the module once before"
        )


# ---- bases of layers whose calls are more than one function of C++; _forward is that function ----


class Pooled(Layer):
    """A pooling that returns the indices of the elements, too, if `return_indices`."""

    return_indices = False

    def forward(self, input):
        return self._forward_with_indices(input) if self.return_indices else self._forward(input)


class Transposed(Layer):
    """A transposed convolution, whose call takes the size of its output."""

    def forward(self, input, output_size=None):
        if output_size is None:
            return self._forward(input)
        return self._forward_to_size(input, list(output_size)[-self._sizes["kernel_size"] :])


class LazyTransposed(LazyLayer, Transposed):
    """One that makes its tensors in the first call."""


class Recurrent(Layer):
    """A recurrent layer, which takes packed sequences, too."""

    def forward(self, input, hx=None):
        output, state = self._forward(input, hx)
        return (PackedSequence(*output) if isinstance(input, PackedSequence) else output), state

    def flatten_parameters(self):
        """Does nothing: the parameters need no common memory."""


class Table(Layer):
    """A table of rows."""

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **options):
        """Returns a table of given rows, whose memory it shares."""
        rows, width = embeddings.shape
        made = cls(rows, width, **options)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made


class TransformerBase(Layer):
    """An encoder and a decoder."""

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """Returns a mask of scores: minus infinity for the keys behind each query, else 0."""
        mask = _core.full((sz, sz), float("-inf"), dtype=dtype or _core.float32, device=device or "cpu")
        return mask.triu(1)


# ---- layers inside of others ----


def _check_exact(owner, name, value):
    """Refuses a module whose forward C++ would not call."""
    if not isinstance(value, Module):
        return
    if not isinstance(value, Layer) or type(value).forward is not _base(type(value)).forward:
        raise _core.UnsupportedError(
            f"{owner}: `{name}` is computed in C++, which cannot call {type(value).__name__}.forward of Python: write the "
            "stack with a ModuleList"
        )


def _base(kind):
    """Returns the class of C++ that a class is or derives from."""
    return next(each for each in kind.__mro__ if "_make" in each.__dict__)


class _Inner:
    """Hooks of layers that are computed inside of others, where no code of Python runs: C++ calls them."""

    def _hooked(self, kind, hook):
        module = weakref.ref(self)

        def before(x, _):
            changed = hook(module(), (x,))
            return changed[0] if isinstance(changed, tuple) else changed

        def after(x, y):
            return hook(module(), (x,), y)

        def backward(x, y):
            changed = hook(module(), (x,), (y,))
            return changed[0] if isinstance(changed, tuple) else changed

        functions = {"before": before, "after": after, "backward": backward}
        return _InnerHandle(self._layer.add_hook(kind, functions[kind]))

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        _refuse_options(prepend, with_kwargs)
        return self._hooked("before", hook)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        _refuse_options(prepend, with_kwargs, always_call)
        return self._hooked("after", hook)

    def register_full_backward_hook(self, hook, prepend=False):
        _refuse_options(prepend)
        return self._hooked("backward", hook)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        raise _core.UnsupportedError("a layer inside of another has no backward pre-hooks: register them on its parent")


def _refuse_options(*options):
    if any(options):
        raise _core.UnsupportedError("hooks of a layer inside of another take (module, input[, output]) in order alone")


class _InnerHandle(hooks.RemovableHandle):
    def __init__(self, handle):
        super().__init__({})
        self._handle = handle

    def remove(self):
        _core._nn.remove_hook(self._handle)


def _adopted(layer, kind):
    """Returns the module of Python for a part of a layer of C++."""
    from mytorch import nn

    if kind in _CONTAINERS:
        made = getattr(nn, kind)()
        for name, child, inner in layer.children():
            made._modules[name] = _adopted(child, inner)
        return made
    base = getattr(nn, kind)
    made = base.__new__(_inner_class(base))
    Module.__init__(made)
    made._take(layer)
    return made


_inner_classes: dict = {}


def _inner_class(base):
    if base not in _inner_classes:
        _inner_classes[base] = type(
            base.__name__, (_Inner, base), {"__reduce__": _reduce_inner, "__module__": base.__module__}
        )
    return _inner_classes[base]


def _reduce_inner(self):
    return _new_inner, (type(self).__mro__[2],), self.__getstate__()


def _new_inner(base):
    return base.__new__(_inner_class(base))


def _relinked(module, layer):
    """Gives a layer of C++ the tensors of a module, whose layer it becomes."""
    if isinstance(module, Layer):
        module.__dict__["_layer"] = layer
        for name, tensor, is_buffer in layer.tensors():
            layer.set(name, (module._buffers if is_buffer else module._parameters).get(name))
        layer.train(module.training)
    for name, child, _ in layer.children():
        _relinked(module._modules[name], child)
    return module
