"""Jacobian matrices, Hessian matrices and their products: mytorch.autograd.functional."""

from mytorch import _core
from mytorch._grad_mode import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _tuple(values, where, what):
    """Returns tensors as a tuple, and whether they were one."""
    many = isinstance(values, (tuple, list))
    values = tuple(values) if many else (values,)
    for value in values:
        if not isinstance(value, _core.Tensor):
            raise TypeError(f"[{where}] the {what} have a {type(value).__name__}: give a tensor or a tuple of tensors")
    return values, many


def _leaves(inputs, create_graph):
    """Returns what stands for the inputs: with a graph, views that lead back to them."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _result(values, many, create_graph):
    values = tuple(values) if create_graph else tuple(value.detach() for value in values)
    return values if many else values[0]


def _slopes(outputs, inputs, weights, create_graph, strict, where):
    """Returns the gradients; zeros where there is no dependence, unless `strict` makes that an error."""
    pairs = [(y, w) for y, w in zip(outputs, weights) if y.requires_grad]
    if strict and len(pairs) < len(outputs):
        raise RuntimeError(f"[{where}] an output does not depend on the inputs: leave strict=True out, or use them")
    found = [None] * len(inputs)
    if pairs:
        found = _core._grad([y for y, _ in pairs], list(inputs), [w for _, w in pairs], True, create_graph, True, False)
    for at, slope in enumerate(found):
        if strict and slope is None:
            raise RuntimeError(f"[{where}] the output does not depend on input {at}: leave strict=True out, or use it")
        if strict and create_graph and not slope.requires_grad:
            raise RuntimeError(
                f"[{where}] the gradient does not depend on input {at}: leave strict=True or create_graph=True out"
            )
    return [_core.zeros_like(x) if slope is None else slope for x, slope in zip(inputs, found)]


def _weights(v, tensors, where, what):
    """Checks the vector of a product; without one, a single element counts once."""
    if v is None:
        if len(tensors) != 1 or tensors[0].numel() != 1:
            raise RuntimeError(f"[{where}] v is missing: only a single element of the {what} needs none")
        return (_core.ones_like(tensors[0]),)
    v, _ = _tuple(v, where, "vectors")
    if [x.shape for x in v] != [x.shape for x in tensors]:
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        raise RuntimeError(f"[{where}] v has other shapes than the {what}: give {shapes}")
    return v


def _checked_strategy(where, strategy):
    if strategy != "reverse-mode":
        raise _core.UnsupportedError(f"[{where}] strategy '{strategy}': only 'reverse-mode' is there")


@enable_grad()
def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Returns the derivatives of a function's outputs by its inputs, with the shape of the output followed by the
    input's; for tuples, a tuple for each output of one for each input. `vectorize` is about speed in PyTorch, and
    changes nothing here."""
    _checked_strategy("jacobian", strategy)
    inputs, many_inputs = _tuple(inputs, "jacobian", "inputs")
    inputs = _leaves(inputs, create_graph)
    outputs, many_outputs = _tuple(func(*inputs), "jacobian", "outputs")
    result = []
    for output in outputs:
        rows = []
        for element in range(output.numel()):
            weight = _core.zeros_like(output.detach()).reshape(-1)
            weight[element] = 1
            rows.append(_slopes([output], inputs, [weight.reshape(output.shape)], create_graph, strict, "jacobian"))
        columns = [
            _core.stack(list(parts)).reshape((*output.shape, *x.shape)) for x, parts in zip(inputs, zip(*rows))
        ] or [_core.zeros((*output.shape, *x.shape), dtype=x.dtype, device=x.device) for x in inputs]
        result.append(_result(columns, many_inputs, create_graph))
    return tuple(result) if many_outputs else result[0]


def _single(func, where):
    def run(*inputs):
        outputs, _ = _tuple(func(*inputs), where, "outputs")
        if len(outputs) != 1 or outputs[0].numel() != 1:
            raise RuntimeError(f"[{where}] the function's output is not one tensor with a single element")
        return outputs[0].squeeze()

    return run


@enable_grad()
def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Returns the second derivatives of a function with a single number as its output; for a tuple of inputs, a tuple
    of tuples."""
    _checked_strategy("hessian", outer_jacobian_strategy)
    values, many = _tuple(inputs, "hessian", "inputs")

    def slopes(*given):
        return jacobian(_single(func, "hessian"), given, create_graph=True, strict=strict)

    rows = jacobian(slopes, values, create_graph, strict)
    return rows if many else rows[0][0]


@enable_grad()
def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns a function's outputs, and the product of a vector of their shapes and the Jacobian matrix."""
    inputs, many_inputs = _tuple(inputs, "vjp", "inputs")
    inputs = _leaves(inputs, create_graph)
    outputs, many_outputs = _tuple(func(*inputs), "vjp", "outputs")
    slopes = _slopes(outputs, inputs, _weights(v, outputs, "vjp", "outputs"), create_graph, strict, "vjp")
    return _result(outputs, many_outputs, create_graph), _result(slopes, many_inputs, create_graph)


def _pushed(outputs, inputs, v, create_graph, strict, where):
    """Returns the product of the Jacobian matrix and a vector: the gradient is linear in the weights of the outputs, so
    its own gradient by them is the product."""
    weights = [_core.zeros_like(y).requires_grad_() for y in outputs]
    slopes = _slopes(outputs, inputs, weights, True, strict, where)
    return _slopes(slopes, weights, v, create_graph, strict, where)


@enable_grad()
def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns a function's outputs, and the product of the Jacobian matrix and a vector of the inputs' shapes."""
    inputs, _ = _tuple(inputs, "jvp", "inputs")
    inputs = _leaves(inputs, create_graph)
    outputs, many = _tuple(func(*inputs), "jvp", "outputs")
    product = _pushed(outputs, inputs, _weights(v, inputs, "jvp", "inputs"), create_graph, strict, "jvp")
    return _result(outputs, many, create_graph), _result(product, many, create_graph)


@enable_grad()
def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns a function's single number, and the product of a vector and the Hessian matrix."""
    inputs, many = _tuple(inputs, "vhp", "inputs")
    inputs = _leaves(inputs, create_graph)
    output = _single(func, "vhp")(*inputs)
    weights = _weights(v, inputs, "vhp", "inputs")
    slopes = _slopes([output], inputs, [_core.ones_like(output)], True, strict, "vhp")
    product = _slopes(slopes, inputs, weights, create_graph, strict, "vhp")
    return _result([output], False, create_graph), _result(product, many, create_graph)


@enable_grad()
def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """Returns a function's single number, and the product of the Hessian matrix and a vector."""
    inputs, many = _tuple(inputs, "hvp", "inputs")
    inputs = _leaves(inputs, create_graph)
    output = _single(func, "hvp")(*inputs)
    weights = _weights(v, inputs, "hvp", "inputs")
    slopes = _slopes([output], inputs, [_core.ones_like(output)], True, strict, "hvp")
    product = _pushed(slopes, inputs, weights, create_graph, strict, "hvp")
    return _result([output], False, create_graph), _result(product, many, create_graph)
