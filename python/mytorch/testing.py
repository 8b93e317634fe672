"""Comparison of values in tests."""

import cmath
from collections.abc import Mapping, Sequence

from mytorch import _core
from mytorch._types import promote_types

__all__ = ["assert_close"]

# The relative and the absolute tolerance of each type; others are compared exactly.
_TOLERANCES = {
    _core.float16: (1e-3, 1e-5),
    _core.bfloat16: (1.6e-2, 1e-5),
    _core.float32: (1.3e-6, 1e-5),
    _core.float64: (1e-7, 1e-7),
    _core.complex64: (1.3e-6, 1e-5),
    _core.complex128: (1e-7, 1e-7),
}
_NUMBERS = {int: _core.int64, float: _core.float64, complex: _core.complex128}


class _Failure(Exception):
    """What differs, and the keys that lead to it; in the structure, or in values, for which a program has its text."""

    def __init__(self, kind, text, path, structure=False):
        where = "".join(str([key]) for key in path)
        super().__init__(f"{text}\n\nThe failure occurred for item {where}" if path else text)
        self.kind, self.structure = kind, structure


def assert_close(
    actual,
    expected,
    *,
    allow_subclasses=True,
    rtol=None,
    atol=None,
    equal_nan=False,
    check_device=True,
    check_dtype=True,
    check_layout=True,
    check_stride=False,
    msg=None,
):
    """Raises an AssertionError unless `|actual - expected| <= atol + rtol * |expected|` for all elements.

    Tensors, arrays, numbers, and sequences and mappings of them are taken. The tolerances are by default those of the
    type: 1.3e-6 and 1e-5 for float32. Shapes are always compared; devices and dtypes unless their `check_` is False,
    strides if theirs is True. Tensors have one layout. `msg` is a text in place of the error's, or a function of it."""
    options = {
        "allow_subclasses": allow_subclasses,
        "tolerances": (rtol, atol),
        "equal_nan": equal_nan,
        "check": {"stride": check_stride, "device": check_device, "dtype": check_dtype},
    }
    try:
        _compare(actual, expected, (), options)
    except _Failure as failure:
        text = str(failure)
        if msg is not None and not failure.structure:
            text = msg(text) if callable(msg) else msg
        raised = failure.kind(text)
    else:
        return
    raise raised


def _compare(actual, expected, path, options):
    def fail(text, kind=AssertionError, structure=False):
        raise _Failure(kind, text, path, structure or kind is not AssertionError)

    both = (actual, expected)
    if all(isinstance(value, Sequence) and not isinstance(value, str) for value in both):
        if len(actual) != len(expected):
            fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", structure=True)
        for at in range(len(actual)):
            _compare(actual[at], expected[at], (*path, at), options)
    elif all(isinstance(value, Mapping) for value in both):
        if actual.keys() != expected.keys():
            missing, further = (
                sorted(a.keys() - b.keys(), key=str) for a, b in ((expected, actual), (actual, expected))
            )
            fail(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\nAdditional keys in the actual mapping: {further}",
                structure=True,
            )
        for key in actual:
            _compare(actual[key], expected[key], (*path, key), options)
    elif actual is None or expected is None:
        if actual is not expected:
            fail(f"None mismatch: {actual} is not {expected}")
    else:
        _compare_values(*map(_plain, both), fail, options)


def _plain(value):
    """Returns a number of NumPy as Python's."""
    return value.item() if type(value).__module__ == "numpy" and not hasattr(value, "__len__") else value


def _compare_values(actual, expected, fail, options):
    both = (actual, expected)
    if all(type(value) is bool for value in both):
        if actual is not expected:
            fail(f"Booleans mismatch: {actual} is not {expected}")
        return
    if all(isinstance(value, (int, float, complex)) for value in both):
        _compare_numbers(actual, expected, fail, options)
        return
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (options["allow_subclasses"] or type(actual) is type(expected)):
        try:
            tensors = [value.detach() if isinstance(value, _core.Tensor) else _core.as_tensor(value) for value in both]
        except (TypeError, _core.Error):
            related = False
    else:
        related = False
    if not related:
        fail(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", TypeError)
    _compare_tensors(*tensors, fail, options)


def _tolerances(dtypes, fail, options):
    rtol, atol = options["tolerances"]
    if (rtol is None) != (atol is None):
        name = "rtol" if rtol is None else "atol"
        fail(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {name}.", ValueError)
    if rtol is not None:
        return rtol, atol
    found = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(pair[0] for pair in found), max(pair[1] for pair in found)


def _compare_numbers(actual, expected, fail, options):
    kinds = [next(kind for kind in _NUMBERS if isinstance(value, kind)) for value in (actual, expected)]
    rtol, atol = _tolerances([_NUMBERS[kind] for kind in kinds], fail, options)
    if options["check"]["dtype"] and type(actual) is not type(expected):
        fail(f"The (d)types do not match: {type(actual)} != {type(expected)}.")
    if actual == expected or (options["equal_nan"] and cmath.isnan(actual) and cmath.isnan(expected)):
        return
    difference = abs(actual - expected)
    if not (cmath.isfinite(difference) and difference <= atol + rtol * abs(expected)):
        fail(_scalar_text(actual, expected, rtol, atol))


def _compare_tensors(actual, expected, fail, options):
    rtol, atol = _tolerances((actual.dtype, expected.dtype), fail, options)
    check = options["check"]
    for name, wanted in (("shape", True), ("stride()", check["stride"]), ("device", check["device"]),
                         ("dtype", check["dtype"])):  # fmt: skip
        a, b = (value.stride() if name == "stride()" else getattr(value, name) for value in (actual, expected))
        if wanted and a != b:
            fail(f"The values for attribute '{name}' do not match: {a} != {b}.")
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    if actual.dtype != expected.dtype:
        dtype = promote_types(actual.dtype, expected.dtype)
        actual, expected = actual.to(dtype), expected.to(dtype)
    close = _core.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=options["equal_nan"])
    if close.all():
        return
    if actual.ndim == 0:
        fail(_scalar_text(actual.item(), expected.item(), rtol, atol))
    fail(_tensor_text(actual, expected, close, rtol, atol))


def _scalar_text(actual, expected, rtol, atol):
    absolute = abs(actual - expected)
    relative = float("inf") if expected == 0 else absolute / abs(expected)
    exact = rtol == 0 and atol == 0
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {absolute}{_allowed(exact, atol)}\n"
        f"Relative difference: {relative}{_allowed(exact, rtol)}"
    )


def _tensor_text(actual, expected, close, rtol, atol):
    shape, close = close.shape, close.flatten()
    actual, expected = actual.flatten(), expected.flatten()
    if not (actual.dtype.is_floating_point or actual.dtype.is_complex):
        actual, expected = actual.long(), expected.long()  # differences of narrow types overflow
    absolute = (actual - expected).abs().masked_fill(close, 0)
    relative = (absolute / expected.abs()).masked_fill(close, 0)
    wrong, exact = close.numel() - int(close.sum()), rtol == 0 and atol == 0
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n",
        f"Mismatched elements: {wrong} / {close.numel()} ({wrong / close.numel():.1%})",
    ]
    for name, values, tolerance in (("absolute", absolute, atol), ("relative", relative, rtol)):
        worst, flat = values.max(0)
        at = tuple(index.item() for index in _core.unravel_index(flat, shape))
        lines.append(f"Greatest {name} difference: {worst.item()} at index {at}{_allowed(exact, tolerance)}")
    return "\n".join(lines)


def _allowed(exact, tolerance):
    return "" if exact else f" (up to {tolerance} allowed)"
