"""The node operations of pointwise and reduce bodies: typing, meaning, derivative, accuracy and cost.

This is the only table of node operations, together with elementary.yaml, which has the functions of one number.
Operators, derivatives, vector loops, samples and the reference pages are generated from it, and tests compare the
lists of the backends with it. Each node operation is also an operator of the same name, so that a backend without kernels
and without `compile` can run a body node by node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import yaml

COMPUTE, BOOL, INDEX = "COMPUTE", "BOOL", "INDEX"


@dataclass(frozen=True)
class NodeOp:
    """One node operation.

    kind: `math` COMPUTE -> COMPUTE; `compare` two values of one type -> BOOL; `test` COMPUTE ->
    BOOL; `logical` BOOL -> BOOL; `bitwise` COMPUTE -> COMPUTE; `where` (BOOL, T, T) -> T.

    derivatives: one formula per operand in the body language, with the operands a, b, c, the adjoint `grad` and the
        node's own value `result`. "" means zero everywhere. A formula of the form `0 if C else V` is a guard: V does
        not enter the gradient if C holds (differentiate.py).
    integers: None if the operation is undefined on integers, else a set of `wraps` (the low bits of the result depend
        only on the low bits of the operands), `fits` (the result is in the range of the operands) and `divides` (a
        divisor of 0 is rejected).
    cost: in additions.
    ulp: the largest error of cpu-openmp in float32 and float64, in units in the last place.
    domain: for a function of one number, the interval outside of which it is NaN or infinite.
    doc: the text for an elementary function, whose record is generated from this row.
    result: `real` if the result of a complex operand is real.
    takes: the types, as in `types` of a record; `float` converts integers instead of rejecting them.
    """

    name: str
    arity: int
    kind: str
    evaluate: Callable[..., object]
    derivatives: tuple[str, ...]
    commutative: bool = False
    integers: frozenset[str] | None = None
    cost: int = 1
    ulp: tuple[float, float] | None = None
    domain: tuple[float, float] = (-math.inf, math.inf)
    doc: str = ""
    takes: str = "float"
    result: str = ""

    @property
    def approximate(self) -> bool:
        """Whether implementations differ in the last bits."""
        return self.name in ("pow", "atan2") or (self.ulp is not None and max(self.ulp) > 0.5)


def _total(function: Callable[..., float]) -> Callable[..., float]:
    """Makes a function of `math` total: NaN outside of its domain, inf on overflow."""

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
    """Like _total, for an odd function, whose overflow has the sign of its argument."""
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
    """Returns the remainder with the divisor's sign, like Python's % and ATen's remainder."""
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
    """Rounds halves to the even neighbor."""
    return a if isinstance(a, int) or not math.isfinite(a) else math.copysign(float(round(a)), a)


def _floor_divide(a, b):
    """ATen's (and CPython's) definition: exact through fmod, so that it agrees with `remainder`."""
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


def _op(kind: str, name: str, evaluate: Callable, *derivatives: str, integers: str | None = None, **more) -> NodeOp:
    words = None if integers is None else frozenset(integers.split())
    return NodeOp(name, len(derivatives), kind, evaluate, derivatives, integers=words, **more)


def _math(name: str, evaluate: Callable, *derivatives: str, **more) -> NodeOp:
    return _op("math", name, evaluate, *derivatives, **more)


def _compare(name: str, evaluate: Callable, commutative: bool = False) -> NodeOp:
    return _op("compare", name, evaluate, "", "", integers="", commutative=commutative)


def _logical(name: str, evaluate: Callable) -> NodeOp:
    return _op("logical", name, evaluate, "", "", commutative=True)


def _bitwise(name: str, evaluate: Callable, integers: str, commutative: bool = False) -> NodeOp:
    return _op("bitwise", name, evaluate, "", "", integers=integers, commutative=commutative)


# Elementary functions that `math` lacks under that name, or does not define for all arguments.
_VALUES: dict[str, Callable] = {
    "neg": lambda a: -a,
    "conj_physical": lambda a: a.conjugate(),
    "abs": abs,
    "sign": lambda a: type(a)((a > 0) - (a < 0)),  # NaN gives 0, as in ATen
    "rsqrt": _rsqrt,
    "exp2": _total(lambda a: math.pow(2.0, a)),
    "log": _log(math.log),
    "log2": _log(math.log2),
    "log10": _log(math.log10),
    "log1p": _log(math.log1p, -1.0),
    "sinh": _odd(math.sinh),
    "atanh": _atanh,
    "sigmoid": _sigmoid,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "trunc": _trunc,
}


def _elementary(name: str, row: dict) -> NodeOp:
    """One row of elementary.yaml."""
    evaluate = _VALUES[name] if name in _VALUES else _total(getattr(math, name))
    return NodeOp(
        name,
        1,
        "math",
        evaluate,
        (row.get("derivative", ""),),
        integers=frozenset(row["integers"]) if "integers" in row else None,
        cost=row.get("cost", 1),
        ulp=tuple(row["ulp"]) if "ulp" in row else None,
        domain=tuple(map(float, row.get("domain", (-math.inf, math.inf)))),
        doc=row["doc"],
        takes=row.get("takes", "float"),
        result=row.get("result", ""),
    )


_TABLE = yaml.safe_load((Path(__file__).parent / "elementary.yaml").read_text())
ELEMENTARY = tuple(_elementary(name, row) for name, row in _TABLE.items())

_LIST = [
    _math("add", lambda a, b: a + b, "grad", "grad", integers="wraps", commutative=True),
    _math("sub", lambda a, b: a - b, "grad", "-grad", integers="wraps"),
    _math("mul", lambda a, b: a * b, "grad * b", "grad * a", integers="wraps", commutative=True),
    # For integers, it is only reached by decomposition.
    _math("div", _div, "grad / b", "-grad * (result / b)", cost=4),
    _math("floor_divide", _floor_divide, "", "", integers="divides", cost=16),
    _math("trunc_divide", _trunc_divide, "", "", integers="divides", cost=6),
    _math("remainder", _remainder, "grad", "-grad * floor_divide(a, b)", integers="fits divides", cost=14),
    _math("fmod", _fmod, "grad", "-grad * trunc_divide(a, b)", integers="fits divides", cost=12),
    _math(
        "pow",
        _pow,
        # Where 0 is taken, the other arm is finite, or gradients of it would be 0 * inf = NaN.
        # At b = 0, b / a keeps the derivative with respect to b.
        "0 if b == 0 and not abs(a) > 0 else "
        "grad * (b / (a if b == 0 and abs(a) > 0 else 1) * a ** (0 if b == 0 else b - 1))",
        "0 if a == 0 and b >= 0 else grad * (result * log(1 if a == 0 and b >= 0 else a))",
        integers="",
        cost=60,
    ),
    _math(
        "maximum",
        _maximum,
        "0 if a < b else grad / 2 if a == b else grad",
        "0 if b < a else grad / 2 if a == b else grad",
        integers="fits",
    ),
    _math(
        "minimum",
        _minimum,
        "0 if a > b else grad / 2 if a == b else grad",
        "0 if b > a else grad / 2 if a == b else grad",
        integers="fits",
    ),
    _math(
        "atan2",
        lambda a, b: _total(math.atan2)(a, b),
        "0 if a == 0 and b == 0 else grad * _over_square(b, a)",
        "0 if a == 0 and b == 0 else -grad * _over_square(a, b)",
        cost=30,
    ),
    *ELEMENTARY,
    _compare("eq", lambda a, b: a == b, commutative=True),
    _compare("ne", lambda a, b: a != b, commutative=True),
    _compare("lt", lambda a, b: a < b),
    _compare("le", lambda a, b: a <= b),
    _compare("gt", lambda a, b: a > b),
    _compare("ge", lambda a, b: a >= b),
    _logical("logical_and", lambda a, b: a and b),
    _logical("logical_or", lambda a, b: a or b),
    _logical("logical_xor", lambda a, b: a != b),
    _op("logical", "logical_not", lambda a: not a, ""),
    _bitwise("bitwise_and", lambda a, b: a & b, "wraps fits", commutative=True),
    _bitwise("bitwise_or", lambda a, b: a | b, "wraps fits", commutative=True),
    _bitwise("bitwise_xor", lambda a, b: a ^ b, "wraps fits", commutative=True),
    _bitwise("bitwise_left_shift", lambda a, b: a << b, ""),
    _bitwise("bitwise_right_shift", lambda a, b: a >> b, "fits"),
    _op("bitwise", "bitwise_not", lambda a: ~a, "", integers="wraps"),
    _op("test", "isnan", lambda a: a != a, "", integers=""),
    # differentiate.py guards the derivatives of the arms by the condition, and gives them their types.
    _op("where", "where", lambda c, a, b: a if c else b, "", "grad", "grad", integers="wraps fits"),
]

NODE_OPS: dict[str, NodeOp] = {op.name: op for op in _LIST}

# Nodes that are not operations.
LEAVES = ("input", "scalar", "const", "count", "state")

# Sugar: functions of the body language that expand into nodes, as (parameters, body). `clamp` passes the gradient at
# a bound to its first operand, like ATen's clamp; `maximum` splits it.
SUGAR: dict[str, tuple[str, str]] = {
    "square": ("x", "x * x"),
    "reciprocal": ("x", "1 / x"),
    "relu": ("x", "0 if x <= 0 else x"),
    "clamp": ("x lo hi", "_minimum_first(_maximum_first(x, lo), hi)"),
    "clamp_min": ("x lo", "_maximum_first(x, lo)"),
    "clamp_max": ("x hi", "_minimum_first(x, hi)"),
    # From the nearer end, so that both ends are met. Ends whose difference is no finite number are weighed.
    "lerp": (
        "x y w",
        "x * (1 - w) + y * w if not (abs(y - x) < inf) else x + w * (y - x) if abs(w) < 0.5 else y - (y - x) * (1 - w)",
    ),
    # In steps, as 2^e may be out of range where the product is not. The derivative holds at x = 0, too.
    "ldexp": (
        "x e",
        "x * exp2(e) if not (abs(e) < inf) else x if abs(x) == inf or x == 0 and exp2(floor(e / 3)) == inf else "
        "x * exp2(floor(e / 3)) * exp2(floor(e / 3)) * exp2(e - 2 * floor(e / 3))",
    ),
    "isinf": ("x", "abs(x) == inf"),
    "isfinite": ("x", "abs(x) < inf"),
    "hypot": (
        "x y",
        "inf if abs(x) == inf or abs(y) == inf else _hypot(maximum(abs(x), abs(y)), minimum(abs(x), abs(y)))",
    ),
    "softplus": ("x", "maximum(x, 0) + log1p(exp(-abs(x)))"),
    "log_sigmoid": ("x", "minimum(x, 0) - log1p(exp(-abs(x)))"),
    "silu": ("x", "x * sigmoid(x)"),
    "logaddexp": ("x y", "_logaddexp(maximum(x, y), minimum(x, y))"),
    "xlogy": ("x y", "y if isnan(y) else 0 if x == 0 else x * log(y)"),
}
HIDDEN_SUGAR: dict[str, tuple[str, str]] = {
    # x / (x * x + y * y), by the larger operand: squares overflow. At the origin, it has a value, which is not used.
    "_over_square": ("x y", "_over_big(x, y, 1 if x == 0 and y == 0 else x if abs(x) > abs(y) else y)"),
    "_over_big": (
        "x y big",
        "(1 if abs(x) > abs(y) else x / big) / (big * (1 + _squared((y if abs(x) > abs(y) else x) / big)))",
    ),
    "_squared": ("x", "x * x"),
    # For finite big >= small >= 0.
    "_hypot": ("big small", "0 if big == 0 else big * sqrt(1 + (small / big) * (small / big))"),
    # If big is infinite, the difference would be NaN.
    "_logaddexp": ("big small", "big if abs(big) == inf else big + log1p(exp(small - big))"),
}
