"""Clipping of gradients: functions of nn.utils. The argument `foreach` of PyTorch changes nothing."""

from mytorch import _core

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales all gradients by a common factor, so that their norm of order norm_type, taken as one vector, is at most
    max_norm. Returns the norm before, a tensor; with error_if_nonfinite, a norm that is NaN or infinite is an error."""
    return _core._clip_grad_norm(_listed(parameters), float(max_norm), float(norm_type), error_if_nonfinite)


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clamps each element of the gradients to [-clip_value, clip_value]."""
    _core._clip_grad_value(_listed(parameters), float(clip_value))


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Returns the norm of order norm_type of all tensors, taken as one vector."""
    tensors = _listed(tensors)
    if not tensors:
        return _core.tensor(0.0)
    norm = _core.get_total_norm(tensors, float(norm_type))
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(f"the norm of order {norm_type} is {norm.item()}")
    return norm


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales all gradients by max_norm / (total_norm + 1e-6) if that is less than 1."""
    grads = [p.grad.detach() for p in _listed(parameters) if p.grad is not None]
    if grads:
        _core.clip_grads_with_norm_(grads, total_norm, float(max_norm))


def _listed(tensors):
    tensors = [tensors] if isinstance(tensors, _core.Tensor) else list(tensors)
    for x in tensors:
        if not isinstance(x, _core.Tensor):
            raise TypeError(f"expected tensors, not {type(x).__name__}")
    return tensors
