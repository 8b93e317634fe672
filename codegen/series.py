"""The lists of `chebyshev` in special.yaml as vector code: shorter for float32, and as polynomials in t, which take half
of the operations and are at least as accurate, unless their terms cancel."""

from __future__ import annotations

import ast
from fractions import Fraction

from codegen.special import COEFFICIENTS, FUNCTIONS

# The largest sum of |c[k] t^k| over |value|, or over this share of the largest value near a zero.
_MOST_GROWTH = 64.0
_NEAR_ZERO = 0.05
# What float32 leaves out, relative to the least value.
_REST = 2.0**-27


def _chebyshev_names() -> list[str]:
    found = set()
    for function in FUNCTIONS.values():
        for tree in (*function.let.values(), function.value):
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "chebyshev":
                    found.add(node.args[1].id)
    return sorted(found)


CHEBYSHEV: list[str] = _chebyshev_names()


def evaluate(c: tuple[float, ...], t: float) -> float:
    after, sum_ = 0.0, 0.0
    for value in reversed(c[1:]):
        after, sum_ = sum_, 2 * t * sum_ - after + value
    return t * sum_ - after + c[0]


def polynomial(c: tuple[float, ...]) -> list[float]:
    """Returns the coefficients of t^0, t^1, ... of a sum of c[k] T_k(t)."""
    sums = [Fraction(0)] * len(c)
    before, this = [Fraction(1)], [Fraction(0), Fraction(1)]
    for k, value in enumerate(c):
        for i, factor in enumerate(before):
            sums[i] += Fraction(value) * factor
        after = [Fraction(0)] + [2 * f for f in this]
        before, this = this, [a - (before[i] if i < len(before) else 0) for i, a in enumerate(after)]
    return [float(s) for s in sums]


_POINTS = [k / 200 - 1 for k in range(401)]


def for_float32(c: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the terms that float32 can tell from nothing."""
    least = min(abs(evaluate(c, t)) for t in _POINTS)
    n = len(c)
    while n > 1 and sum(map(abs, c[n - 1 :])) < _REST * least:
        n -= 1
    return c[:n]


def keeps_digits(c: tuple[float, ...]) -> bool:
    """Returns whether the terms of the polynomial in t do not cancel much more than those of Clenshaw's recurrence."""
    powers = [abs(f) for f in polynomial(c)]
    values = [abs(evaluate(c, t)) for t in _POINTS]
    least = _NEAR_ZERO * max(values)
    return all(
        sum(f * abs(t) ** k for k, f in enumerate(powers)) <= _MOST_GROWTH * max(value, least)
        for t, value in zip(_POINTS, values)
    )


def vector_code(name: str, float32: bool) -> tuple[str, list[float]]:
    """Returns how vectors evaluate a list, `Horner` or `Clenshaw`, and its numbers, the highest first."""
    c = for_float32(COEFFICIENTS[name]) if float32 else COEFFICIENTS[name]
    return ("Horner", polynomial(c)[::-1]) if keeps_digits(c) else ("Clenshaw", list(c)[::-1])
