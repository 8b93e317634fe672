"""Operators with the arguments of PyTorch's Python functions. `_core` keeps the operators of the records."""

import functools

from mytorch import _core

__all__ = [
    "as_tensor", "asarray", "nonzero", "std", "std_mean", "tensor", "unique", "unique_consecutive", "var", "var_mean",
]  # fmt: skip


def _with_unbiased(operator):
    """Lets an operator with `correction` take PyTorch's older `unbiased`, alone or after the dimensions."""

    @functools.wraps(operator)
    def run(*args, **keywords):
        values = args if "input" in keywords or "self" in keywords else args[1:]
        if "unbiased" not in keywords and len(values) < 2 and not (values and type(values[0]) is bool):
            return operator(*args, **keywords)
        first, values = args[: len(args) - len(values)], list(values)
        where = f"[{operator.__name__}]"
        if "correction" in keywords:
            raise TypeError(f"{where} unbiased and correction are two names of one argument: give one of them")
        dims = [values.pop(0)] if values and type(values[0]) is not bool else []
        if values:
            if "unbiased" in keywords:
                raise TypeError(f"{where} unbiased is given twice")
            keywords["unbiased"] = values.pop(0)
        if values:
            if "keepdim" in keywords:
                raise TypeError(f"{where} keepdim is given twice")
            keywords["keepdim"] = values.pop(0)
        if values:
            raise TypeError(f"{where} takes dim, unbiased and keepdim by position, not {len(args)} arguments")
        unbiased = keywords.pop("unbiased")
        if type(unbiased) is not bool:
            raise TypeError(f"{where} unbiased is {unbiased!r}: give True or False")
        return operator(*first, *dims, correction=int(unbiased), **keywords)

    run.__doc__ = f"{operator.__doc__}\n\nPyTorch's `unbiased=` is taken, too, also as `(dim, unbiased, keepdim)`."
    return run


var, std = _with_unbiased(_core.var), _with_unbiased(_core.std)
var_mean, std_mean = _with_unbiased(_core.var_mean), _with_unbiased(_core.std_mean)


def _wanted(results, inverse, counts):
    values, positions, numbers = results
    if not (inverse or counts):
        return values
    return (values, *([positions] if inverse else []), *([numbers] if counts else []))


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """Returns the different elements, or slices of `dim`, in order. With `return_inverse`, also the position of each
    element among them; with `return_counts`, also how often each occurs."""
    return _wanted(_core.unique(input, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """Returns the first element, or slice of `dim`, of each run of equal ones. With `return_inverse`, also the run of
    each element; with `return_counts`, also the lengths of the runs."""
    results = _core.unique_consecutive(input, return_inverse, return_counts, dim)
    return _wanted(results, return_inverse, return_counts)


def nonzero(input, *, as_tuple=False):
    """Returns the indices of the nonzero elements: one row each, or with `as_tuple` one tensor for each dimension."""
    return tuple(_core.nonzero_numpy(input)) if as_tuple else _core.nonzero(input)


def _listed(data, outer=()):
    """Returns data with its ranges as lists; the same object if it has none. `outer` are the lists that it lies in: one
    of itself, or a deep one, is no tensor."""
    if isinstance(data, range):
        return list(data)
    if isinstance(data, (list, tuple)) and id(data) not in outer and len(outer) < 64:
        listed = [_listed(part, (*outer, id(data))) for part in data]
        if any(a is not b for a, b in zip(listed, data)):
            return listed
    return data


def _with_ranges(function):
    """Lets a function that makes tensors take ranges. They are looked for once it has refused its argument, so that
    other calls cost nothing more."""

    @functools.wraps(function)
    def run(*args, **keywords):
        try:
            return function(*args, **keywords)
        except (TypeError, _core.ShapeError):
            listed = _listed(args[0]) if args else None
            if not args or listed is args[0]:
                raise
        return function(listed, *args[1:], **keywords)

    return run


tensor, as_tensor, asarray = map(_with_ranges, (_core.tensor, _core.as_tensor, _core.asarray))  # type: ignore[arg-type]
