"""Functions of the parameters of modules."""

from mytorch import _core
from mytorch._clip import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm  # noqa: F401
from mytorch._grad_mode import no_grad
from mytorch.nn.utils import parametrizations, parametrize, rnn
from mytorch.nn.utils._normed import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm  # noqa: F401


def parameters_to_vector(parameters):
    """Returns the elements of all parameters in one vector."""
    return _core.cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec, parameters):
    """Copies the elements of a vector into the parameters."""
    at = 0
    parameters = list(parameters)
    total = sum(parameter.numel() for parameter in parameters)
    if vec.ndim != 1 or vec.numel() != total:
        raise ValueError(f"the parameters have {total} elements, but the vector has shape {vec.shape}")
    with no_grad():
        for parameter in parameters:
            parameter.copy_(vec[at : at + parameter.numel()].view(parameter.shape))
            at += parameter.numel()
