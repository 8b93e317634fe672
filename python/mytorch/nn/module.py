"""The base class of all modules."""

import warnings
from collections import OrderedDict

from mytorch import _core
from mytorch._grad_mode import no_grad
from mytorch.nn import hooks, state
from mytorch.nn.parameter import Buffer, Parameter

_Tensor = _core.Tensor

# The dictionaries of each module.
_PARTS = ("_parameters", "_buffers", "_modules")
_HOOKS = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_hooks",
)


def _indented(text):
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"  {line}" for line in rest)])


class Module:
    """A part of a model, made of parameters, buffers and other modules: tensors and modules become its parts when they
    are assigned to its attributes. A subclass calls `super().__init__()` before it assigns any, and defines `forward`,
    which calls of the module call."""

    training = True

    def __init__(self):
        set_ = super().__setattr__
        set_("training", True)
        for name in _PARTS + _HOOKS:
            set_(name, {})
        set_("_non_persistent_buffers_set", set())

    def forward(self, *args, **kwargs):
        """Computes the result of a call. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: define it, or call one of its parts")

    # -- calls --

    def __call__(self, *args, **kwargs):
        if not (self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks):
            return self.forward(*args, **kwargs)
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args, kwargs):
        result = None
        called = set()
        try:
            for hook, with_kwargs in list(self._forward_pre_hooks.values()):
                changed = hook(self, args, kwargs) if with_kwargs else hook(self, args)
                if changed is None:
                    continue
                if with_kwargs:
                    if not (isinstance(changed, tuple) and len(changed) == 2):
                        raise RuntimeError("a forward pre-hook with kwargs returns None or (args, kwargs)")
                    args, kwargs = changed
                else:
                    args = changed if isinstance(changed, tuple) else (changed,)
            backward = None
            if (self._backward_hooks or self._backward_pre_hooks) and _core.is_grad_enabled():
                backward = hooks.BackwardHooks(self)
                args = backward.inputs(args)
            result = self.forward(*args, **kwargs)
            for number, (hook, with_kwargs, _) in list(self._forward_hooks.items()):
                called.add(number)
                changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                if changed is not None:
                    result = changed
            return backward.outputs(result) if backward is not None else result
        except Exception:
            for number, (hook, with_kwargs, always) in list(self._forward_hooks.items()):
                if not always or number in called:
                    continue
                try:
                    hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
                except Exception as fault:  # the first exception is the one to know of
                    warnings.warn(f"a forward hook that is always called failed, too: {fault!r}", stacklevel=3)
            raise

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Calls hook(module, args) before forward; what it returns replaces the arguments."""
        return hooks.add(self, "_forward_pre_hooks", (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Calls hook(module, args, output) after forward; what it returns replaces the output."""
        return hooks.add(self, "_forward_hooks", (hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook, prepend=False):
        """Calls hook(module, grad_input, grad_output) when the gradients of the inputs have been computed; what it
        returns replaces the gradients of the inputs."""
        return hooks.add(self, "_backward_hooks", hook, prepend)

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Calls hook(module, grad_output) before the gradients of the inputs are computed; what it returns replaces the
        gradients of the outputs."""
        return hooks.add(self, "_backward_pre_hooks", hook, prepend)

    # -- parts --

    def _note(self, name, tensor):
        """Is called when a tensor has been replaced."""

    def _own(self, name):
        if not isinstance(name, str):
            raise TypeError(f"the name of a part is a str, not {type(name).__name__}")
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"call super().__init__() of {type(self).__name__} before parts are assigned")
        if not name or "." in name:
            raise KeyError(f"'{name}' cannot name a part: give a name that is not empty and has no '.'")

    def _check_free(self, name, holder):
        self._own(name)
        taken = (
            hasattr(type(self), name) or name in self.__dict__ or any(name in self.__dict__[kind] for kind in _PARTS)
        )
        if name not in holder and taken:
            raise KeyError(f"{type(self).__name__} already has an attribute '{name}'")

    def register_parameter(self, name, param):
        """Adds a parameter, or, as None, the name of one that the module does without."""
        self._check_free(name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"the parameter '{name}' is a {type(param).__name__}: make it by nn.Parameter(tensor)")
        if param is not None and not param.is_leaf:
            raise ValueError(f"the parameter '{name}' is computed from others: give a leaf, or register a buffer")
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        """Adds a tensor that is not trained. Only a persistent one is part of the state."""
        self._check_free(name, self._buffers)
        if tensor is not None and not isinstance(tensor, _Tensor):
            raise TypeError(f"the buffer '{name}' is a {type(tensor).__name__}, not a Tensor")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        """Adds a module as a part."""
        self._check_free(name, self._modules)
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"the part '{name}' is a {type(module).__name__}, not a Module")
        self._modules[name] = module

    register_module = add_module

    def __setattr__(self, name, value):
        parts = self.__dict__.get("_parameters")
        if isinstance(value, Parameter):
            self._own(name)
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif parts is not None and name in parts:
            if value is not None:
                raise TypeError(
                    f"'{name}' of {type(self).__name__} is a parameter: assign an nn.Parameter or None, not a "
                    f"{type(value).__name__}"
                )
            self.register_parameter(name, None)
        elif isinstance(value, Module):
            self._own(name)
            self._forget(name, "_modules")
            self._modules[name] = value
        elif parts is not None and name in self._modules:
            if value is not None:
                raise TypeError(f"'{name}' of {type(self).__name__} is a module: assign a Module or None")
            self._modules[name] = None
        elif isinstance(value, Buffer) or (parts is not None and name in self._buffers):
            self._own(name)
            persistent = getattr(value, "persistent", name not in self._non_persistent_buffers_set)
            self._forget(name, "_buffers")
            self.register_buffer(name, value, persistent)
        else:
            super().__setattr__(name, value)

    def _forget(self, name, kept):
        """Removes what has a name, unless it is a part of this kind."""
        self.__dict__.pop(name, None)
        for kind in _PARTS:
            if kind != kept:
                self.__dict__[kind].pop(name, None)
        if kept != "_buffers":
            self._non_persistent_buffers_set.discard(name)

    def __getattr__(self, name):
        for kind in _PARTS:
            parts = self.__dict__.get(kind)
            if parts is not None and name in parts:
                return parts[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name):
        for kind in _PARTS:
            if name in self.__dict__.get(kind, ()):
                del self.__dict__[kind][name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self):
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    # -- lists of parts: each once, under its first name --

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Yields this module and all of its parts, and their parts, with their names."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self):
        """Yields this module, its parts and theirs."""
        for _, module in self.named_modules():
            yield module

    def named_children(self):
        """Yields the modules that are parts of this one itself, with their names."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        """Yields the modules that are parts of this one itself."""
        for _, module in self.named_children():
            yield module

    def _check_made(self):
        """Raises an error if the tensors of the module do not exist yet."""

    def _named_tensors(self, kind, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            module._check_made()
            for name, tensor in module.__dict__[kind].items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Yields the parameters with their names: "fc.weight"."""
        return self._named_tensors("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """Yields the parameters, as an optimizer takes them."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Yields the buffers with their names."""
        return self._named_tensors("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """Yields the buffers."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target):
        """Returns the module of a name such as "layers.0.fc"."""
        module = self
        for name in target.split(".") if target else ():
            if not isinstance(module, Module) or name not in module._modules:
                raise AttributeError(f"{type(module).__name__} has no module '{name}' (of '{target}')")
            module = module._modules[name]
        return module

    def set_submodule(self, target, module, strict=False):
        """Replaces the module of a name such as "layers.0.fc", or adds it, if not `strict`."""
        if not target:
            raise ValueError("set_submodule() takes the name of a part: the module itself cannot be replaced")
        if not isinstance(module, Module):
            raise ValueError(f"set_submodule() takes a Module, not {type(module).__name__}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not isinstance(parent, Module) or (strict and not hasattr(parent, name)):
            raise AttributeError(f"{type(parent).__name__} has no module '{name}' (of '{target}')")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"'{target}' is a {type(getattr(parent, name)).__name__}, not a Module")
        setattr(parent, name, module)

    def _get_tensor(self, target, kind, what):
        path, _, name = target.rpartition(".")
        parts = self.get_submodule(path).__dict__[kind]
        if name not in parts:
            raise AttributeError(f"there is no {what} '{target}'")
        return parts[name]

    def get_parameter(self, target):
        """Returns the parameter of a name such as "fc.weight"."""
        return self._get_tensor(target, "_parameters", "parameter")

    def get_buffer(self, target):
        """Returns the buffer of a name."""
        return self._get_tensor(target, "_buffers", "buffer")

    # -- modes and conversions --

    def apply(self, fn):
        """Calls a function with each part, and then with this module. Returns the module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode=True):
        """Sets training or, by False, evaluation mode of this module and its parts."""
        if not isinstance(mode, bool):
            raise ValueError(f"train() takes a bool, not {type(mode).__name__}")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        """Sets evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        """Sets requires_grad of all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        """Clears the gradients of all parameters, or fills them with zeros."""
        for parameter in self.parameters():
            if parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                # In place: others may hold it. One of create_graph=True leaves its graph.
                parameter.grad = parameter.grad.detach()
                parameter.grad.zero_()

    def _apply(self, fn, recurse=True):
        """Replaces the data of the parameters, which stay the same objects, so that optimizers go on training them, and
        the buffers by other tensors. `fn` does nothing to a tensor that it has converted, which several may share."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            with no_grad():
                grad = parameter.grad
                parameter.data = fn(parameter.data)
                if grad is not None:
                    parameter.grad = None
                    parameter.grad = fn(grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
                self._note(name, self._buffers[name])
        return self

    def to(self, *args, **kwargs):
        """Moves or converts parameters and buffers, in place: to(device), to(dtype), to(device, dtype), to(tensor).
        Only floating-point and complex tensors are converted."""
        device, dtype, non_blocking = _parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"modules are converted to types of floating-point or complex numbers, not to {dtype}")

        def convert(tensor):
            floats = tensor.is_floating_point() or tensor.is_complex()
            return tensor.to(
                device or tensor.device, dtype if dtype is not None and floats else tensor.dtype, non_blocking
            )

        return self._apply(convert)

    def cpu(self):
        """Moves the tensors to the CPU."""
        return self.to("cpu")

    def cuda(self, device=None):
        """Moves the tensors to a GPU."""
        if device is None:
            device = "cuda"
        elif isinstance(device, int):
            device = _core.device("cuda", device)
        return self.to(device)

    def float(self):
        """Converts to float32."""
        return self.to(_core.float32)

    def double(self):
        """Converts to float64."""
        return self.to(_core.float64)

    def half(self):
        """Converts to float16."""
        return self.to(_core.float16)

    def bfloat16(self):
        """Converts to bfloat16."""
        return self.to(_core.bfloat16)

    def type(self, dst_type):
        """Converts to a type."""
        return self.to(dst_type)

    # -- state --

    def get_extra_state(self):
        """Returns what is part of the state besides tensors. A subclass defines it and set_extra_state."""
        raise NotImplementedError

    def set_extra_state(self, state):
        """Takes what get_extra_state has returned."""
        raise NotImplementedError

    def state_dict(self, *, destination=None, prefix="", keep_vars=False):
        """Returns the parameters and persistent buffers by name. They share the memory of the module."""
        if destination is None:
            destination = OrderedDict()
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            hook(self, destination, prefix, {})
        return destination

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, tensor in self._own_state():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[f"{prefix}_extra_state"] = self.get_extra_state()

    def _own_state(self):
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield name, parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield name, buffer

    def register_state_dict_pre_hook(self, hook):
        """Calls hook(module, prefix, keep_vars) before the state is put together."""
        return hooks.add(self, "_state_dict_pre_hooks", hook)

    def register_state_dict_post_hook(self, hook):
        """Calls hook(module, state_dict, prefix, metadata) when the state has been put together."""
        return hooks.add(self, "_state_dict_hooks", hook)

    def register_load_state_dict_pre_hook(self, hook):
        """Calls hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        before a state is loaded; the hook may change the dictionary, which is a copy, and the lists."""
        return hooks.add(self, "_load_state_dict_pre_hooks", hook)

    def register_load_state_dict_post_hook(self, hook):
        """Calls hook(module, incompatible_keys) when a state has been loaded; it may change the lists of names."""
        return hooks.add(self, "_load_state_dict_hooks", hook)

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        """Loads the tensors of this module itself. A subclass may override it."""
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = dict(self._own_state())
        steps = []
        for name, tensor in own.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            given = state_dict[key]
            fault = state.misfit(tensor, given, assign)
            if fault:
                error_msgs.append(f"{key} {fault}")
            else:
                steps.append(
                    lambda name=name, tensor=tensor, given=given: state.take(self, name, tensor, given, assign)
                )
        extra = f"{prefix}_extra_state"
        has_extra = type(self).set_extra_state is not Module.set_extra_state
        if has_extra and extra in state_dict:
            steps.append(lambda: self.set_extra_state(state_dict[extra]))
        elif has_extra:
            missing_keys.append(extra)
        for key in state_dict:
            if key.startswith(prefix) and not (has_extra and key == extra):
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (self._modules if dot else own):
                    unexpected_keys.append(key)
        later = local_metadata.get("_later")
        if later is not None:
            later.extend(steps)
        else:
            for step in steps:
                step()

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies the tensors of a state into those of the module, or, by `assign`, takes them in their place. Names
        that only one side has are an error if `strict`, and are returned else. A state that does not fit changes
        nothing."""
        return state.load(self, state_dict, strict, assign, Module._load_from_state_dict)

    # -- copies --

    def __setstate__(self, state):
        # A shallow copy has the same parts, but in dictionaries of its own.
        for name, value in state.items():
            own = name in (*_PARTS, *_HOOKS, "_keys", "_non_persistent_buffers_set")
            self.__dict__[name] = value.copy() if own and isinstance(value, (dict, set)) else value

    # -- texts --

    def extra_repr(self):
        """Returns what stands between the brackets of the module's text."""
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        parts = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        if len(lines) == 1 and not parts:
            return f"{self._get_name()}({extra})"
        if not (lines or parts):
            return f"{self._get_name()}()"
        return "\n".join([f"{self._get_name()}(", *(f"  {line}" for line in (*lines, *parts)), ")"])


def _parse_to(args, kwargs):
    device, dtype, non_blocking = (
        kwargs.pop("device", None),
        kwargs.pop("dtype", None),
        kwargs.pop("non_blocking", False),
    )
    kwargs.pop("memory_format", None)  # tensors have the strides that their operators give them
    if kwargs:
        raise TypeError(f"to() has no argument '{next(iter(kwargs))}'")
    for arg in args:
        if isinstance(arg, _Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, _core.dtype):
            dtype = arg
        elif isinstance(arg, bool):
            non_blocking = arg
        elif arg is not None:
            device = arg
    if isinstance(device, int):
        device = _core.device("cuda", device)
    return _core.device(device) if device is not None else None, dtype, non_blocking
