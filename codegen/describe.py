"""Texts about an operator, for its page and for `mytorch ops`."""

from __future__ import annotations

from dataclasses import replace

from codegen import cpp
from codegen.model import Op

PROMOTION = {
    "same": "Computed in the operands' common type, which is also the result's.",
    "float": "Computed in the operands' common type; integers and bools become float32.",
    "compare": "Computed in the operands' common type, integers in one that has all of their values; the result is bool.",
    "widen": "Computed in the operand's type; integers and bools become int64.",
    "first": "Computed in the first tensor's type, to which the others are converted.",
}
CATEGORIES = {"bool": "bool", "integer": "integers", "float": "floats"}


def declarations(op: Op) -> list[str]:
    """Returns the C++ declarations of the function, the in-place form and the out= form."""
    s = op.schema
    params = cpp.params(s.args, True)
    lines = [f"{cpp.result_type(s)} {s.name}({params});"]
    if cpp.has_inplace(op):
        lines.append(f"const Tensor& {s.name}_({params});")
    if cpp.has_out(op):
        outs = ", ".join(f"const Tensor& {o}" for o in cpp.out_args(op))
        lines.append(f"{cpp.out_type(op)} {s.name}_out({outs}{', ' if params else ''}{params});")
    return lines


def renamed(op: Op, name: str) -> Op:
    """Returns the operator under another function name."""
    return replace(op, schema=replace(op.schema, name=name))


def methods(op: Op) -> list[str]:
    """Returns the C++ declarations of the methods of Tensor."""
    if "method" not in op.forms:
        return []
    s = op.schema
    params = cpp.params([a for a in s.args if a.name != "self"], True)
    lines = [f"{cpp.result_type(s)} {s.name}({params}) const;"]
    if cpp.has_inplace(op):
        lines.append(f"const Tensor& {s.name}_({params}) const;")
    return lines


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def types(op: Op) -> str:
    """Returns the types that an operator takes and returns, in sentences."""
    parts = []
    if op.meaning in ("pointwise", "reduce"):
        only_floats = op.meaning == "reduce" and op.promote == "float"
        categories = [
            text
            for category, text in CATEGORIES.items()
            if op.takes(category) and (category == "float" or not only_floats)
        ]
        parts.append(f"takes {_listed(categories)}.")
    if op.meaning == "reduce" and op.promote == "float":
        parts.append("Computed in the operand's type.")
    elif op.promote in PROMOTION:
        parts.append(PROMOTION[op.promote])
    fixed = [r for r in op.results if r.dtype and op.promote != "compare"]
    parts += [f"`{r.name}` is {r.dtype}." for r in fixed]
    return " ".join(parts)
