"""Functions behind the modules: `import mytorch.nn.functional as F`."""

from typing import TYPE_CHECKING, Any

from mytorch import _core
from mytorch._core import (  # the operators whose arguments are PyTorch's
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    gelu as _gelu,
    glu,
    group_norm,
    hardshrink,
    hardsigmoid as _hardsigmoid,
    hardswish as _hardswish,
    layer_norm,
    linear,
    log_sigmoid,
    mish as _mish,
    one_hot,
    pdist,
    rms_norm,
    scaled_dot_product_attention,
    sigmoid,
    silu as _silu,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
)

logsigmoid = log_sigmoid

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        ...


for _name in dir(_core._functional):
    if not _name.startswith("_"):
        globals()[_name] = getattr(_core._functional, _name)


def _usual_dim(ndim):
    # PyTorch's choice where `dim` is left out.
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input, dim=None, dtype=None):
    """The exponentials of the elements over their sum along a dimension."""
    return _core.softmax(input, _usual_dim(input.ndim) if dim is None else dim, dtype)


def log_softmax(input, dim=None, dtype=None):
    """The logarithm of softmax."""
    return _core.log_softmax(input, _usual_dim(input.ndim) if dim is None else dim, dtype)


def gelu(input, approximate="none"):
    """The input times the normal distribution's cumulative function, exact or by "tanh"."""
    return _gelu(input, approximate=approximate)


def silu(input, inplace=False):
    """The input times its sigmoid."""
    return input.silu_() if inplace else _silu(input)


def mish(input, inplace=False):
    """The input times tanh(softplus(input))."""
    return input.mish_() if inplace else _mish(input)


def hardswish(input, inplace=False):
    """The input times hardsigmoid."""
    return input.hardswish_() if inplace else _hardswish(input)


def hardsigmoid(input, inplace=False):
    """clamp(input / 6 + 1 / 2, 0, 1)."""
    return input.hardsigmoid_() if inplace else _hardsigmoid(input)


def _with_indices(plain, both):
    def pooled(*args, return_indices=False, **kwargs):
        return both(*args, **kwargs) if return_indices else plain(*args, **kwargs)

    pooled.__name__ = plain.__name__
    pooled.__doc__ = f"{plain.__doc__}; with return_indices=True, also the indices."
    return pooled


for _name in [each for each in dir(_core._functional) if each.endswith("_with_indices")]:
    _plain = _name.removesuffix("_with_indices")
    globals()[_plain] = _with_indices(globals()[_plain], globals()[_name])


def _in_place(function):
    def changed(input, *args, **kwargs):
        return function(input, *args, inplace=True, **kwargs)

    changed.__name__ = f"{function.__name__}_"
    changed.__doc__ = f"The in-place form of {function.__name__}."
    return changed


for _name in ("relu", "elu", "selu", "celu", "leaky_relu", "hardtanh", "threshold", "rrelu"):
    globals()[f"{_name}_"] = _in_place(globals()[_name])
