"""Loading of states: all is checked before anything changes."""

from collections import OrderedDict, namedtuple
from collections.abc import Mapping

from mytorch import _core
from mytorch._grad_mode import no_grad
from mytorch.nn.parameter import Parameter

IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])


def misfit(tensor, given, assign):
    """Returns why a tensor of a state cannot be loaded, or None."""
    if not isinstance(given, _core.Tensor):
        return f"is a {type(given).__name__}, not a Tensor"
    if given.shape != tensor.shape and not (given.shape == (1,) and tensor.shape == ()):
        return f"has shape {given.shape} in the state and {tensor.shape} in the module"
    if not assign:
        return "is complex in the state only" if given.is_complex() and not tensor.is_complex() else None
    if tensor.requires_grad and not (given.is_floating_point() or given.is_complex()):
        return f"is a parameter that requires gradients, which {given.dtype} cannot have"
    if isinstance(given, Parameter) and not given.is_leaf:
        return "is computed from others in the state"
    return None


def take(module, name, tensor, given, assign):
    """Copies a tensor of a state into that of a module, or, by `assign`, takes it in its place."""
    if given.shape != tensor.shape:
        given = given.reshape(tensor.shape)
    with no_grad():
        if not assign:
            tensor.copy_(given)
        elif name not in module._parameters:
            setattr(module, name, given.detach() if isinstance(given, Parameter) else given)
        elif isinstance(given, Parameter):
            setattr(module, name, given.requires_grad_(tensor.requires_grad))
        else:
            setattr(module, name, Parameter(given, tensor.requires_grad))


def _snapshot(module):
    """Returns a function that gives the module the tensors and values that it has now."""
    held = [
        (kind, name, tensor, None if tensor is None else tensor.detach().clone())
        for kind in ("_parameters", "_buffers")
        for name, tensor in module.__dict__[kind].items()
    ]

    def restore():
        with no_grad():
            for kind, name, tensor, values in held:
                if tensor is not None:
                    tensor.detach().copy_(values)
                module.__dict__[kind][name] = tensor
                module._note(name, tensor)

    return restore


def load(root, state_dict, strict, assign, default):
    """Loads a state into a module and its parts: Module.load_state_dict. `default` is Module._load_from_state_dict."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"a state is a dictionary, not a {type(state_dict).__name__}")
    keys = IncompatibleKeys([], [name for name in state_dict if not isinstance(name, str)])
    faults = []
    later = []  # what loads, when all has been checked
    undo = []

    def check(module, state, prefix):
        metadata = {"assign_to_params_buffers": True} if assign else {}
        if getattr(module._load_from_state_dict, "__func__", None) is default:
            metadata["_later"] = later
        else:  # loads at once, and may go on with what it has loaded
            undo.append(_snapshot(module))
        module._load_from_state_dict(state, prefix, metadata, True, *keys, faults)
        for name, child in module._modules.items():
            if child is not None:
                inner = f"{prefix}{name}."
                check(child, {key: value for key, value in state.items() if key.startswith(inner)}, inner)

    def call_hooks(module):
        for child in module._modules.values():
            if child is not None:
                call_hooks(child)
        for hook in list(module._load_state_dict_hooks.values()):
            hook(module, keys)

    try:
        check(root, OrderedDict((name, value) for name, value in state_dict.items() if isinstance(name, str)), "")
        hooked = any(module._load_state_dict_hooks for module in root.modules())
        wrong = strict and any(keys)
        if not faults and not (wrong and not hooked):
            if wrong:  # hooks see what has been loaded, and may clear the lists
                undo += [_snapshot(module) for module in root.modules()]
            for step in later:
                step()
            call_hooks(root)
        if strict and keys.unexpected_keys:
            faults.insert(0, f"not in the module: {', '.join(map(str, keys.unexpected_keys))}")
        if strict and keys.missing_keys:
            faults.insert(0, f"missing from the state: {', '.join(map(str, keys.missing_keys))}")
        if faults:
            raise RuntimeError(f"the state does not fit {type(root).__name__}: " + "; ".join(map(str, faults)))
    except BaseException:
        for restore in reversed(undo):
            restore()
        raise
    return keys
