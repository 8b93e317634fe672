"""The reference pages: docs/ops/NAME.md for every operator, with all its overloads, and an index."""

from __future__ import annotations

from codegen import cpp
from codegen.model import Op
from codegen.schema import Arg

PROMOTION = {
    "same": "The operands' common type, which is also the result's.",
    "float": "The operands' common type; integers and bools become float32.",
    "compare": "Computed in the operands' common type; the result is bool.",
    "widen": "The operand's type; integers and bools become int64.",
    "first": "The first tensor's type, to which the others are converted.",
}
ONLY = {
    "number": ", but no bools", "integer": ", integers only", "integral": ", integers and bools only",
    "float": ", floats only",
}
KINDS = {
    "pointwise": "Elementwise", "reduce": "Reductions", "view": "Views: the result shares memory",
    "composite": "Made of other operators", "primitive": "Primitives",
}


def _default(arg: Arg) -> str:
    return f"`{cpp_text(arg.default)}`" if arg.has_default else ""


def cpp_text(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value)


def _forms(op: Op) -> str:
    name = op.schema.cpp_name
    forms = [f"`mytorch::{name}(...)`"]
    if cpp.has_out(op):
        forms.append(f"`mytorch::{name}_out(out, ...)`")
    if cpp.has_inplace(op):
        forms.append(f"`mytorch::{name}_(...)`")
    if "method" in op.forms:
        forms.append(f"`x.{name}(...)`")
    return ", ".join(forms)


def _gradient(op: Op) -> list[str]:
    grad = op.grad
    if grad.kind == "none":
        return ["Not differentiable."]
    lines = []
    if grad.kind == "dissolve":
        lines.append("Differentiated through the operators it is made of.")
    if grad.kind == "derived" and grad.derived:
        lines.append(f"Derived from the definition, as one operator, `{grad.derived}`.")
    for formula in grad.formulas:
        lines.append(f"- {', '.join(f'`{a}`' for a in formula.args)}: `{formula.formula.text}`")
    if grad.zero:
        lines.append(f"Zero everywhere for {', '.join(f'`{a}`' for a in grad.zero)}.")
    none = [a for a in grad.no_grad if op.types.get(a) not in ("bool", "index")]
    if none:
        lines.append(f"None for {', '.join(f'`{a}`' for a in none)}.")
    if op.once_differentiable:
        lines.append("The gradient itself cannot be differentiated.")
    return lines


def _section(op: Op) -> list[str]:
    lines = [f"## `{op.full_name}`", "", "```", str(op.schema), "```", "", op.doc, ""]
    if op.schema.args:
        lines += ["| argument | type | default | takes part in promotion |", "|---|---|---|---|"]
        for arg in op.schema.args:
            part = ""
            if arg.is_tensor or arg.is_tensor_list:
                kind = op.types.get(arg.name, "same")
                part = {"same": "yes" if op.promote != "none" else "no", "any": "no"}.get(kind, f"no, {kind}")
                part += ONLY.get(op.accepts.get(arg.name), "")
            lines.append(f"| `{arg.name}` | {arg.type_text} | {_default(arg)} | {part} |")
        lines.append("")
    lines += [f"**Forms:** {_forms(op)}", ""]
    if op.promote in PROMOTION:
        lines += [f"**Types:** {PROMOTION[op.promote]}", ""]
    if op.body is not None:
        lines += ["**Definition**, as the program that every backend is given:", "", "```"]
        for program in op.body.variants:
            lines += program.text.splitlines()
        lines += ["```", ""]
    elif op.kernel_optional:
        lines += ["Made of other operators; a backend may do it in one kernel.", ""]
    if op.cost:
        lines += ["**Cost:** " + ", ".join(f"{k} `{f.text}`" for k, f in op.cost.items()), ""]
    lines += ["**Gradient**", "", *_gradient(op), ""]
    return lines


def emit(ops: list[Op]) -> dict[str, str]:
    pages: dict[str, list[Op]] = {}
    for op in ops:
        if not op.derived:
            pages.setdefault(op.schema.cpp_name, []).append(op)
    files = {}
    for name, overloads in pages.items():
        lines = [f"# {name}", "", f'`#include "mytorch/ops/{name}.h"`', ""]
        for op in overloads:
            lines += _section(op)
        files[f"docs/ops/{name}.md"] = "\n".join(lines).rstrip() + "\n"
    index = ["# Operators", ""]
    for kind, title in KINDS.items():
        found = sorted(((n, o[0]) for n, o in pages.items() if o[0].meaning == kind), key=lambda x: x[0])
        if not found:
            continue
        index += [f"## {title}", ""]
        index += [f"- [`{name}`]({name}.md): {op.doc}" for name, op in found]
        index.append("")
    files["docs/ops/index.md"] = "\n".join(index).rstrip() + "\n"
    return files
