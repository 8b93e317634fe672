"""Tensors of modules that are computed from others: `register_parametrization(module, "weight", f)` makes
`module.weight` be f of a tensor that is trained in its place."""

import copy
import threading
from collections.abc import Sequence
from contextlib import contextmanager

from mytorch import _core
from mytorch._grad_mode import no_grad
from mytorch.nn.containers import ModuleDict, ModuleList
from mytorch.nn.module import Module
from mytorch.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_Tensor = _core.Tensor

_cached_depth = 0
_cache: dict = {}  # what has been computed in cached(), by the module's id and the tensor's name


@contextmanager
def cached():
    """A context in which each parametrized tensor is computed once, when it is first read."""
    global _cached_depth
    _cached_depth += 1
    try:
        yield
    finally:
        _cached_depth -= 1
        if not _cached_depth:
            _cache.clear()


def _put(module, name, tensor):
    # Into the dictionary itself: to a layer, the name of an argument such as `bias` is taken without its tensor, too.
    if isinstance(tensor, Parameter):
        module._parameters[name] = tensor
    else:
        module._buffers[name] = tensor
    module._note(name, tensor)


def _with_values(tensor, values):
    """Gives a tensor the memory of another, so that it stays the one that an optimizer trains. Returns it; but the
    shape of a tensor is fixed, and one with other sizes is a new tensor."""
    if values is tensor:
        return tensor
    if values.shape == tensor.shape:
        tensor.data = values.detach()
        return tensor
    values = values.detach()
    return Parameter(values, tensor.requires_grad) if isinstance(tensor, Parameter) else values


def _check_same(what, tensor, dtype, shape):
    if not isinstance(tensor, _Tensor):
        raise ValueError(f"{what} must return a tensor, not a {type(tensor).__name__}")
    for name, got, wanted in (("dtype", tensor.dtype, dtype), ("shape", tensor.shape, shape)):
        if got != wanted:
            raise ValueError(f"{what} changes the {name} from {wanted} to {got}: that takes unsafe=True")


def _inverse(parametrization, value):
    """Returns right_inverse of a value; without one, it is the identity."""
    if not hasattr(parametrization, "right_inverse"):
        return value
    try:
        return parametrization.right_inverse(value)
    except NotImplementedError:
        return value


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, in order, and what it is computed from: `original`, or, if right_inverse of
    the first one returns several tensors, `original0`, `original1` and so on."""

    def __init__(self, modules, original, unsafe=False):
        if len(modules) == 0:
            raise ValueError("ParametrizationList takes one or more modules")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            new = original
            for module in reversed(self):
                new = _inverse(module, new)
        self.is_tensor = isinstance(new, _Tensor)
        if not self.is_tensor and not isinstance(new, Sequence):
            raise ValueError(f"right_inverse must return a tensor or a sequence of tensors, not a {type(new).__name__}")
        self.ntensors = 1 if self.is_tensor else len(new)
        shape, before = original.shape, original.data
        if self.is_tensor:
            for what in ("dtype", "device"):
                if getattr(original, what) != getattr(new, what):
                    raise ValueError(
                        f"right_inverse of one tensor changes the {what} from {getattr(original, what)} to "
                        f"{getattr(new, what)}"
                    )
            _put(self, "original", _with_values(original, new))
        else:
            for at, part in enumerate(new):
                if not isinstance(part, _Tensor):
                    raise ValueError(f"element {at} of right_inverse is a {type(part).__name__}, not a tensor")
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _put(self, f"original{at}", part)
        if not unsafe:
            try:
                _check_same("a parametrization", self(), original.dtype, shape)
            except BaseException:  # the module keeps its tensor
                original.data = before
                raise

    def right_inverse(self, value):
        """Makes the originals those of a value of the tensor, by right_inverse of the parametrizations."""
        with no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"{type(module).__name__} has no right_inverse, which assigning a value needs")
                value = module.right_inverse(value)
            names = self._original_names()
            if self.is_tensor:
                value = [value]
            elif not isinstance(value, Sequence):
                raise ValueError(f"right_inverse must return a sequence of tensors, not a {type(value).__name__}")
            if len(value) != len(names):
                raise ValueError(f"right_inverse must return {len(names)} tensors, not {len(value)}")
            for name, tensor in zip(names, value):
                if not isinstance(tensor, _Tensor):
                    raise ValueError(f"right_inverse must return tensors, not a {type(tensor).__name__}")
                if tensor.dtype != getattr(self, name).dtype:
                    raise ValueError(
                        f"right_inverse returned {tensor.dtype}, but `{name}` has dtype {getattr(self, name).dtype}"
                    )
            for name, tensor in zip(names, value):
                _put(self, name, _with_values(getattr(self, name), tensor))

    def _original_names(self):
        return ["original"] if self.is_tensor else [f"original{at}" for at in range(self.ntensors)]

    def forward(self):
        """Computes the tensor."""
        first, *rest = self
        value = first(*(getattr(self, name) for name in self._original_names()))
        for module in rest:
            value = module(value)
        return value


# ---- classes of parametrized modules ----


def _check_called(module, name):
    """Refuses a layer whose calls begin in C++, in which its tensors cannot be replaced."""
    if "_inner_hooks" in module.__dict__:
        raise _core.UnsupportedError(
            f"'{name}' of a {type(module).__name__} inside of another layer cannot be computed in Python, since C++ "
            "calls the layer: write the outer module in Python"
        )


def _lists(module):
    """Returns the lists of a module's parametrizations by the tensors' names."""
    held = module.__dict__.get("_modules", {}).get("parametrizations")
    return held if isinstance(held, ModuleDict) else {}


def _value(module, name):
    parametrizations = _lists(module)[name]
    if not _cached_depth:
        return parametrizations()
    key = (id(module), name)
    if key not in _cache:
        _cache[key] = parametrizations()
    return _cache[key]


class _Calls(threading.local):
    """The calls of parametrized layers that a thread is in."""

    def __init__(self):
        self.open = []


_calls = _Calls()


class _Call:
    """A call of a parametrized layer. C++ gets the tensors when the call comes to it: not before, since reading them
    may have effects, as with spectral_norm, and a forward of Python may read them itself. It has them in the call only,
    so that their graph does not outlive the result's."""

    def __init__(self, module):
        self.module, self.lock = module, None

    def __enter__(self):
        _calls.open.append(self)

    def layer(self):
        """Returns the layer of C++, with its tensors computed."""
        if self.lock is None:  # another thread would take the tensors away
            self.lock = type(self.module)._call_lock
            self.lock.acquire()
        for name in _lists(self.module):
            self.module._note(name, _value(self.module, name))
        return self.module.__dict__["_layer"]

    def __exit__(self, *_):
        _calls.open.remove(self)
        if self.lock is not None:
            try:
                for name in _lists(self.module):
                    self.module._note(name, None)
            finally:
                self.lock.release()


def _parametrized_class(base):
    """Returns a class of modules of a class some of whose tensors are computed."""
    from mytorch.nn.layer import Layer  # which imports this package

    def getattribute(self, name):  # is called for what the module itself does not have
        return _value(self, name) if name in _lists(self) else base.__getattr__(self, name)

    def setattribute(self, name, value):
        if name not in _lists(self):
            base.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            raise KeyError(f"'{name}' is parametrized: assign a tensor that is no Parameter, for right_inverse")
        elif isinstance(value, _Tensor):
            _lists(self)[name].right_inverse(value)
        else:
            raise TypeError(f"'{name}' is parametrized: assign a tensor, not a {type(value).__name__}")

    def names(self):
        return sorted({*base.__dir__(self), *_lists(self)})

    def getstate(self):
        raise RuntimeError("a parametrized module cannot be pickled: save its state_dict()")

    def deepcopy(self, memo):
        made = self.__class__.__new__(self.__class__)
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(base.__getstate__(self), memo))
        return made

    members = {"__getattr__": getattribute, "__setattr__": setattribute, "__dir__": names, "__getstate__": getstate}
    if not hasattr(base, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy
    if issubclass(base, Layer):

        def call(self, *args, **kwargs):
            with _Call(self):
                return base.__call__(self, *args, **kwargs)

        def forward(self, *args, **kwargs):
            with _Call(self):
                return base.forward(self, *args, **kwargs)

        def reset_parameters(self):
            with _Call(self):
                base.reset_parameters(self)

        def layer(self):
            for each in reversed(_calls.open):
                if each.module is self:
                    return each.layer()
            return self.__dict__["_layer"]

        members.update(__call__=call, forward=forward, _layer=property(layer), _call_lock=threading.RLock())
        if hasattr(base, "reset_parameters"):  # draws those that are not computed, for good
            members["reset_parameters"] = reset_parameters
    return type(f"Parametrized{base.__name__}", (base,), members)


def _begin(module):
    """Makes a module one of a parametrized class."""
    module.__class__ = _parametrized_class(type(module))
    module.parametrizations = ModuleDict()


def _end(module):
    del module.parametrizations
    module.__class__ = type(module).__bases__[0]


# ---- functions ----


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Makes a tensor of a module computed: reading `module.<tensor_name>` calls the parametrization with what
    `module.parametrizations.<tensor_name>` holds as `original`; further parametrizations take the result of those
    before. Assigning a tensor calls `right_inverse` of the parametrizations. Only if `unsafe` the parametrization may
    change the dtype or shape. Returns the module."""
    _check_called(module, tensor_name)
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _check_same("a parametrization", after, before.dtype, before.shape)
            _check_same("right_inverse", _inverse(parametrization, after), before.dtype, before.shape)
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        if original is None:
            raise ValueError(f"'{tensor_name}' of {type(module).__name__} is None: there is nothing to compute it from")
        parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _begin(module)
        module.parametrizations[tensor_name] = parametrizations
    else:
        raise ValueError(f"{type(module).__name__} has no parameter or buffer '{tensor_name}'")
    return module


def is_parametrized(module, tensor_name=None):
    """Returns whether a tensor of a module, or any of them, is parametrized."""
    parametrizations = getattr(module, "parametrizations", None)
    if not isinstance(parametrizations, ModuleDict):
        return False
    return len(parametrizations) > 0 if tensor_name is None else tensor_name in parametrizations


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Makes a tensor of a module a parameter or buffer again, with its value or, if not `leave_parametrized`, with that
    of the original. Returns the module."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"'{tensor_name}' of {type(module).__name__} is not parametrized")
    parametrizations = module.parametrizations[tensor_name]
    if parametrizations.is_tensor:
        original = parametrizations.original
        if leave_parametrized:
            with no_grad():
                original = _with_values(original, getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(f"'{tensor_name}' has several originals: none can be left in its place")
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        _end(module)
    _put(module, tensor_name, original)
    return module


def type_before_parametrizations(module):
    """Returns the class of a module, or, if it is parametrized, that which it was before."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Gives a module the parametrizations of another, of all tensors or of one, and their originals. Returns it."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        source = from_module.parametrizations[name]
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        for each in source._original_names():
            _put(to_module.parametrizations[name], each, getattr(source, each))
    return to_module
