"""The node operations of pointwise and reduce bodies: arity, typing, meaning and derivative.

This is the one table of them. Each is also an operator of the same name in ops.yaml, so that a
backend without kernels and without `compile` can still run a body, node by node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable

COMPUTE, BOOL, INDEX = "COMPUTE", "BOOL", "INDEX"


@dataclass(frozen=True)
class NodeOp:
    """One node operation.

    kind: `math` COMPUTE -> COMPUTE; `compare` two values of one type -> BOOL; `test` COMPUTE ->
    BOOL; `logical` BOOL -> BOOL; `bitwise` COMPUTE -> COMPUTE; `where` (BOOL, T, T) -> T.

    derivatives: one formula per operand in the body language, over the operands a, b, c, the
    adjoint `grad` and the node's own value `result`. "" is a derivative that is zero everywhere. A
    formula of the form `0 if C else V` is a guard: V is not computed with where C holds, see
    differentiate.py.
    """

    name: str
    arity: int
    kind: str
    evaluate: Callable[..., object]
    derivatives: tuple[str, ...]
    commutative: bool = False


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """Makes a function of `math` total: NaN outside of its domain, inf where it overflows."""

    def call(*args):
        if any(isinstance(a, float) and math.isnan(a) for a in args):
            return math.nan
        try:
            return function(*args)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def _odd(function: Callable[[float], float]) -> Callable[[float], float]:
    """Like _total, for an odd function, whose overflow has the argument's sign."""
    positive = _total(function)
    return lambda a: math.copysign(positive(abs(a)), a)


def _integers(*args) -> bool:
    return all(isinstance(a, int) for a in args)


def _div(a, b):
    if b == 0:
        if a == 0 or a != a or b != b:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _fmod(a, b):
    if _integers(a, b):
        return int(math.copysign(1, a)) * (abs(a) % abs(b))
    return _total(math.fmod)(a, b)


def _remainder(a, b):
    """Takes the divisor's sign, as Python's % and ATen's remainder."""
    if _integers(a, b):
        return a % b
    value = _fmod(a, b)
    return value + b if value != 0 and (value < 0) != (b < 0) else value


def _trunc(a):
    return a if isinstance(a, int) or not math.isfinite(a) else math.copysign(float(math.trunc(a)), a)


def _floor(a):
    if isinstance(a, int) or not math.isfinite(a):
        return a
    return math.copysign(float(math.floor(a)), a)


def _ceil(a):
    return a if isinstance(a, int) else -_floor(-a)


def _round(a):
    """Halves go to the even neighbour."""
    return a if isinstance(a, int) or not math.isfinite(a) else math.copysign(float(round(a)), a)


def _floor_divide(a, b):
    """ATen's (and CPython's): exact through fmod, so that it agrees with `remainder`."""
    if _integers(a, b):
        return a // b
    if b == 0:
        return _div(a, b)
    mod = _fmod(a, b)
    value = (a - mod) / b
    if mod != 0 and (b < 0) != (mod < 0):
        value -= 1
    if value == 0:
        return math.copysign(0.0, a / b)
    floor = _floor(value)
    return floor + 1 if value - floor > 0.5 else floor


def _trunc_divide(a, b):
    if _integers(a, b):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return _trunc(_div(a, b))


def _pow(a, b):
    if _integers(a, b):
        return a**b if b >= 0 else int(a == 1) if abs(a) != 1 else a ** (-b)
    try:
        return math.pow(a, b)
    except ValueError:  # a negative base, or zero to a negative power
        if a == 0:
            odd = float(b).is_integer() and b % 2 == 1
            return math.copysign(math.inf, a) if odd else math.inf
        return math.nan
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf


def _maximum(a, b):
    return a if a != a else b if b != b else max(a, b)


def _minimum(a, b):
    return a if a != a else b if b != b else min(a, b)


def _log(function: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    return lambda a: -math.inf if a == pole else _total(function)(a)


def _atanh(a):
    return math.copysign(math.inf, a) if abs(a) == 1 else _total(math.atanh)(a)


def _rsqrt(a):
    return _div(1.0, _total(math.sqrt)(a))


def _sigmoid(a):
    if a >= 0:
        return 1 / (1 + _total(math.exp)(-a))
    value = _total(math.exp)(a)
    return value / (1 + value)


def _math(name: str, evaluate: Callable, *derivatives: str, commutative: bool = False) -> NodeOp:
    return NodeOp(name, len(derivatives), "math", evaluate, derivatives, commutative)


def _no_derivative(kind: str, arity: int, table: dict[str, Callable], commutative: str) -> list[NodeOp]:
    return [
        NodeOp(name, arity, kind, function, ("",) * arity, name in commutative.split())
        for name, function in table.items()
    ]


_LIST = [
    _math("add", lambda a, b: a + b, "grad", "grad", commutative=True),
    _math("sub", lambda a, b: a - b, "grad", "-grad"),
    _math("mul", lambda a, b: a * b, "grad * b", "grad * a", commutative=True),
    _math("div", _div, "grad / b", "-grad * (result / b)"),
    _math("floor_divide", _floor_divide, "", ""),
    _math("trunc_divide", _trunc_divide, "", ""),
    _math("remainder", _remainder, "grad", "-grad * floor_divide(a, b)"),
    _math("fmod", _fmod, "grad", "-grad * trunc_divide(a, b)"),
    _math(
        "pow",
        _pow,
        "0 if b == 0 else grad * (b * a ** (b - 1))",
        "0 if a == 0 and b >= 0 else grad * (result * log(a))",
    ),
    _math(
        "maximum",
        _maximum,
        "0 if a < b else grad / 2 if a == b else grad",
        "0 if b < a else grad / 2 if a == b else grad",
    ),
    _math(
        "minimum",
        _minimum,
        "0 if a > b else grad / 2 if a == b else grad",
        "0 if b > a else grad / 2 if a == b else grad",
    ),
    # Not x / (x*x + y*y): that overflows for large operands and is 0/0 at the origin.
    _math(
        "atan2",
        lambda a, b: _total(math.atan2)(a, b),
        "0 if b == 0 else grad / (b + a * (a / b))",
        "0 if a == 0 else -grad / (a + b * (b / a))",
    ),
    _math("neg", lambda a: -a, "-grad"),
    _math("abs", abs, "grad * sign(a)"),
    _math("sign", lambda a: type(a)((a > 0) - (a < 0)), ""),  # NaN gives 0, as in ATen
    _math("sqrt", _total(math.sqrt), "grad / (2 * result)"),
    _math("rsqrt", _rsqrt, "-0.5 * grad * (result * result * result)"),
    _math("exp", _total(math.exp), "grad * result"),
    _math("exp2", _total(lambda a: math.pow(2.0, a)), f"grad * (result * {math.log(2)!r})"),
    _math("expm1", _total(math.expm1), "grad * (result + 1)"),
    _math("log", _log(math.log), "grad / a"),
    _math("log2", _log(math.log2), f"grad / (a * {math.log(2)!r})"),
    _math("log10", _log(math.log10), f"grad / (a * {math.log(10)!r})"),
    _math("log1p", _log(math.log1p, -1.0), "grad / (a + 1)"),
    _math("sin", _total(math.sin), "grad * cos(a)"),
    _math("cos", _total(math.cos), "-grad * sin(a)"),
    _math("tan", _total(math.tan), "grad * (1 + result * result)"),
    # (1 - a) * (1 + a) rather than 1 - a*a: no cancellation near the poles.
    _math("asin", _total(math.asin), "grad * rsqrt((1 - a) * (1 + a))"),
    _math("acos", _total(math.acos), "-grad * rsqrt((1 - a) * (1 + a))"),
    _math("atan", _total(math.atan), "grad / (1 + a * a)"),
    _math("sinh", _odd(math.sinh), "grad * cosh(a)"),
    _math("cosh", _total(math.cosh), "grad * sinh(a)"),
    _math("tanh", _total(math.tanh), "grad * (1 - result * result)"),
    _math("asinh", _total(math.asinh), "grad * rsqrt(1 + a * a)"),
    _math("acosh", _total(math.acosh), "grad * rsqrt((a - 1) * (a + 1))"),
    _math("atanh", _atanh, "grad / ((1 - a) * (1 + a))"),
    _math("erf", _total(math.erf), f"grad * ({2 / math.sqrt(math.pi)!r} * exp(-(a * a)))"),
    _math("erfc", _total(math.erfc), f"grad * ({-2 / math.sqrt(math.pi)!r} * exp(-(a * a)))"),
    _math("sigmoid", _sigmoid, "grad * ((1 - result) * result)"),
    _math("floor", _floor, ""),
    _math("ceil", _ceil, ""),
    _math("round", _round, ""),
    _math("trunc", _trunc, ""),
    *_no_derivative(
        "compare",
        2,
        {
            "eq": lambda a, b: a == b,
            "ne": lambda a, b: a != b,
            "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b,
            "gt": lambda a, b: a > b,
            "ge": lambda a, b: a >= b,
        },
        "eq ne",
    ),
    *_no_derivative(
        "logical",
        2,
        {"logical_and": lambda a, b: a and b, "logical_or": lambda a, b: a or b, "logical_xor": lambda a, b: a != b},
        "logical_and logical_or logical_xor",
    ),
    *_no_derivative("logical", 1, {"logical_not": lambda a: not a}, ""),
    *_no_derivative(
        "bitwise",
        2,
        {
            "bitwise_and": lambda a, b: a & b,
            "bitwise_or": lambda a, b: a | b,
            "bitwise_xor": lambda a, b: a ^ b,
            "bitwise_left_shift": lambda a, b: a << b,
            "bitwise_right_shift": lambda a, b: a >> b,
        },
        "bitwise_and bitwise_or bitwise_xor",
    ),
    *_no_derivative("bitwise", 1, {"bitwise_not": lambda a: ~a}, ""),
    NodeOp("isnan", 1, "test", lambda a: a != a, ("",)),
    # The arms' derivatives are guarded by the condition; differentiate.py does it, typing included.
    NodeOp("where", 3, "where", lambda c, a, b: a if c else b, ("", "grad", "grad")),
]

NODE_OPS: dict[str, NodeOp] = {op.name: op for op in _LIST}

# Nodes that are not operations.
LEAVES = ("input", "scalar", "const", "count", "state")

# Sugar: functions of the body language that expand into nodes. Each is (parameters, body). `clamp`
# takes its gradient from the first operand where it meets a bound, as ATen's clamp; `maximum`
# splits it.
SUGAR: dict[str, tuple[str, str]] = {
    "square": ("x", "x * x"),
    "reciprocal": ("x", "1 / x"),
    "relu": ("x", "0 if x <= 0 else x"),
    "clamp": ("x lo hi", "_minimum_first(_maximum_first(x, lo), hi)"),
    "clamp_min": ("x lo", "_maximum_first(x, lo)"),
    "clamp_max": ("x hi", "_minimum_first(x, hi)"),
    "lerp": ("x y w", "x + w * (y - x) if abs(w) < 0.5 else y - (y - x) * (1 - w)"),
    "isinf": ("x", "abs(x) == inf"),
    "isfinite": ("x", "abs(x) < inf"),
    "hypot": (
        "x y",
        "inf if abs(x) == inf or abs(y) == inf else " "_hypot(maximum(abs(x), abs(y)), minimum(abs(x), abs(y)))",
    ),
    "softplus": ("x", "maximum(x, 0) + log1p(exp(-abs(x)))"),
    "log_sigmoid": ("x", "minimum(x, 0) - log1p(exp(-abs(x)))"),
    "silu": ("x", "x * sigmoid(x)"),
    "logaddexp": ("x y", "_logaddexp(maximum(x, y), minimum(x, y))"),
    "xlogy": ("x y", "y if isnan(y) else 0 if x == 0 else x * log(y)"),
}
HIDDEN_SUGAR: dict[str, tuple[str, str]] = {
    # big >= small >= 0, and finite.
    "_hypot": ("big small", "0 if big == 0 else big * sqrt(1 + (small / big) * (small / big))"),
    # Where big is infinite the difference would be NaN.
    "_logaddexp": ("big small", "big if abs(big) == inf else big + log1p(exp(small - big))"),
}
