"""The older weight_norm and spectral_norm, which compute the weight before each call: its parts are `weight_g` and
`weight_v`, or `weight_orig`, `weight_u` and `weight_v`, of the module itself. Those of parametrizations compute it
whenever it is read."""

from mytorch import _core
from mytorch._grad_mode import no_grad
from mytorch.nn.parameter import Parameter
from mytorch.nn.utils import _norms
from mytorch.nn.utils.parametrize import _check_called, _put


def _find(module, kind, name):
    """Returns the hook that computes a tensor of a module, and a function that removes it; or None."""
    for number, (hook, *_) in list(module._forward_pre_hooks.items()):
        if isinstance(hook, kind) and hook.name == name:
            return hook, lambda: module._forward_pre_hooks.pop(number)
    return None


def _taken(module, kind, name):
    """Returns the parameter of a module that a hook is to compute, and takes it out."""
    _check_called(module, name)
    if _find(module, kind, name) is not None:
        raise RuntimeError(f"'{name}' of {type(module).__name__} is normalized already")
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"'{name}' of {type(module).__name__} is None: there is nothing to normalize")
    delattr(module, name)
    return weight


def _removed(module, kind, name, parts):
    """Makes what a hook has computed a parameter again, and takes its parts out."""
    found = _find(module, kind, name)
    if found is None:
        raise ValueError(f"'{name}' of {type(module).__name__} is not normalized by this")
    hook, remove = found
    with no_grad():
        weight = hook.compute_weight(module)
    for each in (name, *parts):
        delattr(module, each)
    _put(module, name, Parameter(weight))
    remove()
    return module


class WeightNorm:
    """Computes a weight from its norms and its direction."""

    def __init__(self, name, dim):
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module):
        """Returns the weight."""
        direction, norm = getattr(module, f"{self.name}_v"), getattr(module, f"{self.name}_g")
        return _norms.normed_weight(direction, norm, self.dim)

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name="weight", dim=0):
    """Makes a parameter the product of its norms over all dimensions but one, or, if dim is None, of all, and of its
    direction (Salimans and Kingma, 2016). parametrizations.weight_norm is newer, and loads the states of this one.
    Returns the module."""
    hook = WeightNorm(name, dim)
    weight = _taken(module, WeightNorm, name)
    module.register_parameter(f"{name}_g", Parameter(_norms.norm_except(weight.detach(), hook.dim)))
    module.register_parameter(f"{name}_v", Parameter(weight.detach()))
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module, name="weight"):
    """Undoes weight_norm: the parameter has the value of the product. Returns the module."""
    return _removed(module, WeightNorm, name, (f"{name}_g", f"{name}_v"))


class SpectralNorm:
    """Computes a weight divided by an estimate of its largest singular value."""

    def __init__(self, name="weight", n_power_iterations=1, dim=0, eps=1e-12):
        _norms.check_iterations(n_power_iterations)
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module, do_power_iteration=False):
        """Returns the weight, after the iterations, if wanted."""
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = _norms.as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(_norms.unit(_core.mv(matrix.t(), u), self.eps))
                    u.copy_(_norms.unit(_core.mv(matrix, v), self.eps))
        # The backward pass needs the vectors of this call, after further ones.
        return weight / _norms.sigma(matrix, u.clone(), v.clone())

    def __call__(self, module, inputs):
        setattr(module, self.name, self.compute_weight(module, module.training))


class _OlderSpectralState:
    """Before a state is loaded: finds v of a state of PyTorch's versions before 1.0, which has the weight instead."""

    def __init__(self, hook):
        self.hook = hook

    @no_grad()
    def __call__(self, module, state_dict, prefix, *_):
        key = prefix + self.hook.name
        if not all(each in state_dict for each in (key, f"{key}_orig", f"{key}_u")):
            return
        original, u = state_dict[f"{key}_orig"], state_dict[f"{key}_u"]
        scale = (original / state_dict.pop(key)).mean()
        matrix = _norms.as_matrix(original, self.hook.dim)
        v = _core.mv(matrix.pinverse(), u)
        state_dict[f"{key}_v"] = v * (scale / _norms.sigma(matrix, u, v))


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divides a parameter by its largest singular value, which steps of the power iteration estimate, in each call in
    training (Miyato et al., 2018). `dim` numbers the outputs: 0, or 1 of transposed convolutions. Returns the module.
    """
    hook = SpectralNorm(name, n_power_iterations, _norms.output_dim(module, dim), eps)
    weight = _taken(module, SpectralNorm, name)
    rows, columns = _norms.as_matrix(weight, hook.dim).shape
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(f"{name}_u", _norms.random_unit(weight, rows, eps))
    module.register_buffer(f"{name}_v", _norms.random_unit(weight, columns, eps))
    module.register_forward_pre_hook(hook)
    module.register_load_state_dict_pre_hook(_OlderSpectralState(hook))
    return module


def remove_spectral_norm(module, name="weight"):
    """Undoes spectral_norm: the parameter has the divided value. Returns the module."""
    _removed(module, SpectralNorm, name, (f"{name}_orig", f"{name}_u", f"{name}_v"))
    for number, hook in list(module._load_state_dict_pre_hooks.items()):
        if isinstance(hook, _OlderSpectralState) and hook.hook.name == name:
            del module._load_state_dict_pre_hooks[number]
    return module
