"""The elements of golden cases. A rule in integers computes them, which gives the same values in every language;
conformance/inputs.cpp also implements it."""

from __future__ import annotations

import math

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = {"complex64": "float32", "complex128": "float64"}  # with the types of the parts
TEXTS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def number(value: object) -> object:
    """Returns a number from its JSON form."""
    return TEXTS[value] if isinstance(value, str) else value


def flat(value: object) -> list:
    return [x for item in value for x in flat(item)] if isinstance(value, list) else [number(value)]


def shape_of(spec: dict) -> list[int]:
    if "shape" in spec:
        return list(spec["shape"])
    shape, value = [], spec["values"]
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else 0
    return shape


def as_matrices(kind: str, found: list[float], m: int, n: int) -> list[float]:
    """Returns row-major matrices (m, n) of a kind of conformance/samples/README.md, made of the elements."""
    k = min(m, n)
    for at in range(0, len(found), max(m * n, 1)):
        x = found[at : at + m * n]
        for i in range(m):
            for j in range(n):
                here = at + i * n + j
                if kind == "positive":
                    found[here] = sum(x[i * n + l] * x[j * n + l].conjugate() for l in range(n)) + (i == j)
                elif kind == "symmetric":
                    found[here] = (x[i * n + j] + x[j * n + i].conjugate()) / 2 + (3 * i if i == j else 0)
                elif kind == "well_conditioned":
                    found[here] = x[i * n + j] + (2 * k + 2 * i if i + j == k - 1 else 0)
                elif kind == "dominant":
                    found[here] = x[i * n + j] + (2 if i == j else 0)
    return found


def elements(spec: dict, dtype: str, tensor: int) -> list:
    """Returns the elements of the call's `tensor`-th tensor, counted from 0, in row-major order. For an expanded
    tensor, returns the elements of its memory."""
    shape = shape_of(spec)
    if spec.get("layout") == "broadcast" and shape and shape[0] > 0:
        shape = [1] + shape[1:]
    if dtype in COMPLEX and "values" not in spec:  # both parts by the same rule
        plain = {key: value for key, value in spec.items() if key not in ("matrix", "layout")}
        parts = elements({**plain, "shape": [*shape, 2]}, COMPLEX[dtype], tensor)
        found = [complex(*pair) for pair in zip(parts[::2], parts[1::2])]
        return as_matrices(spec["matrix"], found, *shape[-2:]) if "matrix" in spec else found
    count = math.prod(shape)
    if "values" in spec:
        given = flat(spec["values"])
        return [given[i % len(given)] for i in range(count)] if given else []
    found = []
    for i in range(count):
        r = (i * 37 + tensor * 11 + 5) % 101
        if dtype == "bool":
            found.append(r % 2 == 1)
        elif dtype in FLOATS:
            low, high = (math.floor(number(spec.get(k, d)) * 64) for k, d in (("low", -1), ("high", 1)))
            found.append((low + (high - low) * r // 101) / 64)
        else:
            low = math.ceil(number(spec.get("low", -1)))
            high = math.ceil(number(spec["high"])) if "high" in spec else 2
            low = max(low, 0) if dtype == "uint8" else low
            found.append(low + (r if spec.get("unique") else r % max(high - low, 1)))
    if "matrix" in spec:
        found = as_matrices(spec["matrix"], found, *shape[-2:])
    if spec.get("sorted") and shape and shape[-1] > 0:
        rows = [sorted(found[i : i + shape[-1]]) for i in range(0, count, shape[-1])]
        found = [x for row in rows for x in row]
    return found


def dtype_of(spec: dict, type_: str, open_: str) -> str:
    """Returns the type of a tensor whose argument has the type `type_` in the record."""
    return spec.get("dtype") or {"bool": "bool", "index": "int64"}.get(type_, open_)
