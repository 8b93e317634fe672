"""Comparison of gradients with finite differences."""

import warnings

from mytorch import _core

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient differs from the finite differences."""


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=False,
    check_batched_grad=False,
    check_forward_ad=False,
    check_backward_ad=True,
    fast_mode=False,
):
    """Compares the gradients of a function with finite differences of `eps`, all elements of the Jacobian matrix.

    Returns True, or raises a GradcheckError; with `raise_exception=False`, returns False. Inputs should be float64.
    `fast_mode` changes nothing: PyTorch then compares sums of elements only."""
    for name, wanted in (
        ("check_undefined_grad", check_undefined_grad),
        ("check_batched_grad", check_batched_grad),
        ("check_forward_ad", check_forward_ad),
        ("check_backward_ad", not check_backward_ad),
    ):
        if wanted:
            raise _core.UnsupportedError(f"[gradcheck] {name}={name != 'check_backward_ad'}: only gradients of backward"
                                         " are checked; leave the argument out")  # fmt: skip
    inputs = (inputs,) if isinstance(inputs, _core.Tensor) else tuple(inputs)
    checked = [at for at, x in enumerate(inputs) if isinstance(x, _core.Tensor) and x.requires_grad]
    if not checked:
        raise ValueError("[gradcheck] no input requires grad: call requires_grad_() on those to check")
    for at in checked:
        if inputs[at].is_complex():
            raise _core.UnsupportedError(f"[gradcheck] input {at} is complex: pass view_as_real of it")
        if inputs[at].dtype is not _core.float64:
            warnings.warn(f"[gradcheck] input {at} is {inputs[at].dtype}: use float64, or the check will likely fail",
                          stacklevel=2)  # fmt: skip
    try:
        _check(func, inputs, checked, eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func, inputs):
    results = func(*inputs)
    results = results if isinstance(results, (list, tuple)) else (results,)
    results = [y for y in results if isinstance(y, _core.Tensor) and (y.is_floating_point() or y.is_complex())]
    if any(y.is_complex() for y in results):
        raise _core.UnsupportedError("[gradcheck] an output is complex: return view_as_real of it")
    return results


def _numerical(func, inputs, at, eps):
    """Returns for each output the matrix of its derivatives: a row for each element of the input."""
    rows = []
    for element in range(inputs[at].numel()):
        values = []
        for step in (-eps, eps):
            moved = inputs[at].detach().clone().contiguous()
            moved.view(-1)[element] += step
            moved.requires_grad_()  # the function may compute gradients itself
            changed = _outputs(func, (*inputs[:at], moved, *inputs[at + 1 :]))
            values.append([y.detach().clone().reshape(-1) for y in changed])
        rows.append([(after - before) / (2 * eps) for before, after in zip(*values)])
    return [_core.stack(list(column)) for column in zip(*rows)]


def _analytical(output, x):
    columns = []
    for element in range(output.numel()):
        weights = _core.zeros_like(output).reshape(-1)
        weights[element] = 1
        slope = None
        if output.requires_grad:
            (slope,) = _core._grad(output, [x], weights.reshape(output.shape), True, False, True, False)
        columns.append((_core.zeros_like(x) if slope is None else slope).detach().reshape(-1))
    return _core.stack(columns, dim=1)


def _check(func, inputs, checked, eps, atol, rtol, nondet_tol):
    outputs = _outputs(func, inputs)
    for at in checked:
        if inputs[at].numel() == 0:
            continue
        for number, (output, numerical) in enumerate(zip(outputs, _numerical(func, inputs, at, eps))):
            if output.numel() == 0:
                continue
            analytical, again = _analytical(output, inputs[at]), _analytical(output, inputs[at])
            if (analytical - again).abs().max() > nondet_tol:
                raise GradcheckError(
                    f"Backward is not reentrant, i.e., running backward with same input and grad_output multiple times"
                    f" gives different values for output {number} with respect to input {at}: allow it by nondet_tol"
                )
            if not _core.allclose(analytical, numerical.to(analytical.dtype), rtol=rtol, atol=atol):
                raise GradcheckError(
                    f"Jacobian mismatch for output {number} with respect to input {at},\nnumerical:{numerical}\n"
                    f"analytical:{analytical}\n"
                )


def gradgradcheck(
    func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0
):
    """Compares second gradients with finite differences of the first. The first are weighted by `grad_outputs`, by
    default random numbers."""
    inputs = (inputs,) if isinstance(inputs, _core.Tensor) else tuple(inputs)
    if grad_outputs is None:
        grad_outputs = [_core.randn_like(y).requires_grad_() for y in _outputs(func, inputs)]
    grad_outputs = (grad_outputs,) if isinstance(grad_outputs, _core.Tensor) else tuple(grad_outputs)
    count = len(inputs)

    def slopes(*values):
        given, weights = values[:count], values[count:]
        sources = [x for x in given if isinstance(x, _core.Tensor) and x.requires_grad]
        return tuple(_core._grad(_outputs(func, given), sources, list(weights), True, True, True, True))

    return gradcheck(
        slopes,
        (*inputs, *grad_outputs),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
    )
