"""Modules that C++ computes."""

import weakref
from typing import Any

from mytorch import _core
from mytorch.nn.containers import ModuleList, Sequential
from mytorch.nn.hooks import RemovableHandle
from mytorch.nn.module import Module
from mytorch.nn.parameter import Parameter
from mytorch.nn.utils.rnn import PackedSequence

# Arguments that are layers of C++ themselves.
_LAYERS = ("encoder_layer", "decoder_layer", "norm", "custom_encoder", "custom_decoder")


class Layer(Module):
    """A module of C++: its constructor, `forward`, options and modes are there, and its tensors are those of the
    attributes. A subclass that defines forward computes it in Python, from the same tensors."""

    _make: Any = None
    _names: tuple = ()
    _defaults: dict = {}

    def __init__(self, *values, device=None, dtype=None):
        super().__init__()
        for name, value in zip(self._names, values):
            _check_prototype(type(self).__name__, name, value)
        self.__dict__["_arguments"] = dict(zip(self._names, values))
        self._take(self._made())
        if "reset_parameters" in vars(type(self)) and _base(type(self)) is not type(self):
            self.reset_parameters()  # of the program's class
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def _made(self):
        given = {**self._arguments}
        for name in _LAYERS:
            if isinstance(given.get(name), Layer):
                given[name] = given[name]._layer
        return type(self)._make(*given.values())

    def _take(self, layer):
        """Makes a layer of C++ this one's, with its tensors and parts."""
        self.__dict__["_layer"] = layer
        self.__dict__["training"] = layer.is_training()
        self._take_tensors()
        for name, child, kind in layer.children():
            self._modules[name] = _adopted(child, kind)
        self.__dict__["_inside"] = frozenset(self._modules)

    def _take_tensors(self):
        for name, tensor, is_buffer in self._layer.tensors():
            if is_buffer:
                self._buffers[name] = tensor
            elif tensor is None or isinstance(tensor, Parameter):
                self._parameters[name] = tensor
            else:
                self._parameters[name] = Parameter._of(tensor)

    # -- attributes: what C++ has to know, and what it knows --

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            layer = self.__dict__.get("_layer")
            if layer is None or name.startswith("_"):
                raise
            try:
                return layer.option(name)
            except AttributeError:
                if name in self.__dict__.get("_arguments", ()):
                    return self._arguments[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        layer = self.__dict__.get("_layer")
        if layer is None:
            return super().__setattr__(name, value)
        self._check_outside(name)
        if name == "training":
            layer.train(value)
        elif not isinstance(value, (Module, Parameter)) and name not in self._parameters and name not in self._buffers:
            # A tensor that is no parameter may be computed from others, as by weight normalization.
            if isinstance(value, _core.Tensor) and layer.set(name, value):
                pass
            elif layer.set_option(name, value):
                if name in self.__dict__.get("_arguments", ()):
                    self._arguments[name] = value
                return None
        super().__setattr__(name, value)

    def _check_outside(self, name):
        if name in self.__dict__.get("_inside", ()):
            raise _core.UnsupportedError(
                f"'{name}' of {type(self).__name__} is computed with it in C++ and cannot be replaced: assign its "
                "parameters and options, or write the module in Python"
            )

    def _note(self, name, tensor):
        layer = self.__dict__.get("_layer")
        if layer is not None:
            layer.set(name, tensor)

    def register_parameter(self, name, param):
        super().register_parameter(name, param)
        self._note(name, param)

    def register_buffer(self, name, tensor, persistent=True):
        super().register_buffer(name, tensor, persistent)
        self._note(name, tensor)

    def add_module(self, name, module):
        self._check_outside(name)
        super().add_module(name, module)

    register_module = add_module

    def __delattr__(self, name):
        self._check_outside(name)
        super().__delattr__(name)
        self._note(name, None)

    def train(self, mode=True):
        super().train(mode)
        if "_layer" in self.__dict__:
            self._layer.train(mode)
        return self

    # -- hooks: inside of another layer no code of Python runs, so that C++ calls them --

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        if "_inner_hooks" not in self.__dict__:
            return super().register_forward_pre_hook(hook, prepend=prepend, with_kwargs=with_kwargs)
        return self._add_inner_hook("before", hook, prepend, with_kwargs)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        if "_inner_hooks" not in self.__dict__:
            options = {"prepend": prepend, "with_kwargs": with_kwargs, "always_call": always_call}
            return super().register_forward_hook(hook, **options)
        return self._add_inner_hook("after", hook, prepend, with_kwargs, always_call)

    def register_full_backward_hook(self, hook, prepend=False):
        if "_inner_hooks" not in self.__dict__:
            return super().register_full_backward_hook(hook, prepend)
        return self._add_inner_hook("backward", hook, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        if "_inner_hooks" in self.__dict__:
            raise _core.UnsupportedError(
                "a layer inside of another has no backward pre-hooks: register it on its parent"
            )
        return super().register_full_backward_pre_hook(hook, prepend)

    def _add_inner_hook(self, kind, hook, *options):
        if any(options):
            raise _core.UnsupportedError(
                "hooks of a layer inside of another take (module, input[, output]) in order alone"
            )
        handle = _InnerHandle(self, "_inner_hooks")
        self._inner_hooks[handle.id] = [kind, hook, self._hooked(kind, hook)]
        return handle

    def _hooked(self, kind, hook):
        """Adds a hook in C++. It knows the module weakly, which owns it."""
        module = weakref.ref(self)

        def first(changed):
            return changed[0] if isinstance(changed, tuple) else changed

        functions = {
            "before": lambda x, _: first(hook(module(), (x,))),
            "after": lambda x, y: hook(module(), (x,), y),
            "backward": lambda x, y: first(hook(module(), (x,), (y,))),
        }
        return self._layer.add_hook(kind, functions[kind])

    # -- texts --

    def extra_repr(self):
        arguments = self.__dict__.get("_arguments")
        if arguments is None:  # made by C++
            return self._layer.describe().partition("(")[2].removesuffix(")")
        shown = []
        for name, value in arguments.items():
            if name not in self._parameters:
                value = getattr(self, name)
            elif name in self._defaults:
                value = self._parameters[name] is not None
            if isinstance(value, (Module, _core.Tensor)):
                continue
            if name not in self._defaults or arguments[name] != self._defaults[name] or len(arguments) == 1:
                shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    # -- copies --

    def __getstate__(self):
        state = dict(self.__dict__)
        state.pop("_layer", None)
        if "_inner_hooks" in state:
            state["_inner_hooks"] = {key: [kind, hook, None] for key, (kind, hook, _) in self._inner_hooks.items()}
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if "_arguments" in state:  # else a part, which the layer around it links
            self._make_again()

    def _make_again(self):
        """Makes the layer of C++ for the tensors that the module has."""
        # The numbers that it draws are replaced, so none are taken from the generator.
        generator = _core._default_generator()
        before = generator.get_state()
        try:
            layer = self._made()
        finally:
            generator.set_state(before)
        _relinked(self, layer)


class LazyLayer(Layer):
    """A layer that makes its tensors in the first call, from the sizes of the input. It then is one of the class that is
    not lazy."""

    _has_tensors = False

    def __call__(self, *args, **kwargs):
        result = super().__call__(*args, **kwargs)
        if not (self._has_tensors or self._layer.is_lazy()):
            self._finish()
        return result

    def _finish(self):
        from mytorch import _layers

        self._take_tensors()
        self.__dict__["_has_tensors"] = True
        name = type(self).__name__
        if getattr(_layers, name, None) is not type(self):
            return  # a class of the program stays what it is
        eager = getattr(_layers, name.removeprefix("Lazy"))
        first = eager._names[0]
        self.__dict__["_arguments"] = {first: self._layer.option(first), **self._arguments}
        self.__class__ = eager
        self._make_again()

    def __getstate__(self):
        if self._has_tensors:
            raise _core.UnsupportedError(
                f"{type(self).__name__} cannot be copied after its first call: copy its state into a new one"
            )
        return super().__getstate__()

    def has_uninitialized_params(self):
        """Returns whether there has been no call yet."""
        return not self._has_tensors

    def _check_made(self):
        if self._has_tensors:
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
        return self._forward_to_size(input, list(output_size)[-len(self.kernel_size) :])


class LazyTransposed(LazyLayer, Transposed):
    """One that makes its tensors in the first call."""


class InPlace(Layer):
    """An activation that may overwrite its input."""

    inplace = False

    def forward(self, input):
        if not self.inplace:
            return self._forward(input)
        return getattr(input, f"{type(self)._in_place}_")()


class Recurrent(Layer):
    """A recurrent layer, which takes packed sequences, too."""

    def forward(self, input, hx=None):
        output, state = self._forward(input, hx)
        return (PackedSequence(*output) if isinstance(input, PackedSequence) else output), state

    def flatten_parameters(self):
        """Does nothing: the parameters need no common memory."""


class Channels(Layer):
    """A norm of channels with running statistics."""

    def reset_running_stats(self):
        """Begins the statistics anew."""
        if self.running_mean is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()


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


def _check_prototype(owner, name, value):
    """Refuses a module of which C++ would not call what Python has added."""
    if name not in _LAYERS or not isinstance(value, Module):
        return
    plain = isinstance(value, Layer) and _base(type(value)) is type(value) and "forward" not in vars(value)
    hooks = [part for part in value.modules() if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks]
    if not plain or hooks:
        what = "has hooks" if plain else "is of a class of Python"
        raise _core.UnsupportedError(
            f"{owner}: `{name}` {what}, which C++ does not call: write the stack with a ModuleList"
        )


def _base(kind):
    """Returns the class of C++ that a class is or derives from."""
    return next(each for each in kind.__mro__ if "_make" in each.__dict__)


class _InnerHandle(RemovableHandle):
    """A hook of a layer inside of another."""

    def remove(self):
        module = self._module() if self._module is not None else None
        held = module._inner_hooks.pop(self.id, None) if module is not None else None
        if held is not None:
            _core._nn.remove_hook(held[2])


class _Fixed:
    """A container whose parts are computed in C++."""

    def _refuse(self, *_, **__):
        raise _core.UnsupportedError(
            f"the {type(self).__name__} is computed in C++ and keeps its parts: assign their parameters and options, or "
            "write the module in Python"
        )

    _put = _set_all = __delitem__ = add_module = register_module = _refuse


class _FixedList(_Fixed, ModuleList):
    _empty = ModuleList  # slices are lists of their own


class _FixedSequential(_Fixed, Sequential):
    _empty = Sequential


# As programs print them. Pickles go by the qualified names.
_FixedList.__name__, _FixedSequential.__name__ = "ModuleList", "Sequential"


def _adopted(layer, kind):
    """Returns the module of Python for a part of a layer of C++."""
    from mytorch import _layers

    if kind in _CONTAINERS:
        made = _CONTAINERS[kind]()
        for name, child, inner in layer.children():
            made._modules[name] = _adopted(child, inner)
        return made
    base = getattr(_layers, kind)
    made = base.__new__(base)
    Module.__init__(made)
    made._take(layer)
    made.__dict__["_inner_hooks"] = {}
    arguments = _arguments_of(made)
    if arguments is not None:
        made.__dict__["_arguments"] = arguments
    return made


def _arguments_of(layer):
    """Returns the arguments that make a layer as it is, from its options; None if one is no value of Python."""
    found = {}
    for name in layer._names:
        if name in layer._parameters:
            found[name] = layer._parameters[name] is not None
            continue
        try:
            found[name] = layer._layer.option(name)
        except AttributeError:
            return None
    return found


def _relinked(module, layer):
    """Gives a layer of C++ the tensors of a module, whose layer it becomes."""
    if isinstance(module, Layer):
        module.__dict__["_layer"] = layer
        for name, _, _ in layer.tensors():
            plain = module.__dict__.get(name)
            layer.set(name, module._parameters.get(name, module._buffers.get(name, plain)))
        layer.train(module.training)
        for held in module.__dict__.get("_inner_hooks", {}).values():
            held[2] = module._hooked(held[0], held[1])
    for name, child, _ in layer.children():
        _relinked(module._modules[name], child)


_CONTAINERS = {"ModuleList": _FixedList, "Sequential": _FixedSequential}
