"""The operator reference: docs/ops/FAMILY.md for each family of ops.yaml, and an index."""

from __future__ import annotations

import re
from pathlib import Path

from codegen.describe import declarations, methods, types
from codegen.emit_api import by_name
from codegen.families import Section, sections
from codegen.lock import Lock
from codegen.model import Op
from conformance.cases import collect, special
from docs.examples import program, statements, translation_unit

KINDS = {
    "pointwise": "elementwise",
    "reduce": "reduction",
    "view": "view",
    "composite": "composite",
    "primitive": "**primitive**",
}
MEANINGS = {
    "view": "A view: the result shares the memory of `{0}`.",
    "composite": "Decomposes into other operators: `{1}` in `ops/`.",
    "primitive": "A primitive: defined by its kernel, which every backend provides.",
}


def _title(section: Section) -> str:
    """Returns a page's title. Pages of the website lie elsewhere than what a title refers to."""
    return f"{section.family.capitalize()}: {re.sub(r' [(]docs/.*[)]', '', section.title)}"


def _text_of(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    return str(value)


def _arguments(op: Op) -> list[str]:
    if not op.schema.args:
        return []
    lines = ["| argument | type | default | promotion |", "|---|---|---|---|"]
    for arg in op.schema.args:
        part = ""
        if arg.is_tensor or arg.is_tensor_list:
            kind = op.types.get(arg.name, "same")
            takes_part = op.promote != "none" and kind == "same"
            part = "takes part" if takes_part else "its own type" if kind in ("same", "any") else kind
        default = f"`{_cell(_text_of(arg.default))}`" if arg.has_default else ""
        lines.append(f"| `{arg.name}` | {arg.type_text} | {default} | {part} |")
    return [*lines, ""]


def _meaning(op: Op) -> list[str]:
    lines = []
    if op.meaning in ("pointwise", "reduce"):
        mark = " =" if op.meaning == "pointwise" else ":"
        written = op.written
        text = [f"{key}{mark} {t}" for key, t in written.items()] if isinstance(written, dict) else written.split("\n")
        title = "For every element:" if op.meaning == "pointwise" else "Folds the elements of the reduced dimensions:"
        lines += [title, "", "```", *text, "```"]
    elif op.formula is not None:
        lines.append(f"Decomposes into other operators: `{op.formula.text}`.")
    else:
        first = op.schema.args[0].name if op.schema.args else ""
        lines.append(MEANINGS[op.meaning].format(first, op.function))
    if op.kernel_optional:
        lines.append("Backends may compute it in one kernel.")
    return [*lines, ""]


def _gradient(op: Op, derived: dict[str, Op]) -> list[str]:
    grad = op.grad
    if grad.kind == "none":
        return ["**Gradient:** none.", ""]
    lines = []
    if grad.kind == "decompose":
        lines.append("**Gradient:** through the operators into which it decomposes.")
    elif grad.kind == "derived" and grad.derived:
        own = derived[grad.derived]
        lines.append(f"**Gradient:** derived from the definition, as one operator, `{own.schema}`.")
    else:
        lines.append("**Gradient:**")
    for formula in grad.formulas:
        lines.append(f"- {', '.join(f'`{a}`' for a in formula.args)}: `{formula.formula.text}`")
    if grad.zero:
        lines.append(f"- zero for {', '.join(f'`{a}`' for a in grad.zero)}")
    none = [a for a in grad.no_grad if op.types.get(a) not in ("bool", "index")]
    if none:
        lines.append(f"- none for {', '.join(f'`{a}`' for a in none)}")
    if len(lines) > 1:
        lines.insert(1, "")
    return [*lines, ""]


def _sample(value: object) -> str:
    """Abbreviates an argument of a sample."""
    if isinstance(value, dict) and "shape" in value:
        shape = ", ".join(map(str, value["shape"])) + ("," if len(value["shape"]) == 1 else "")
        return f"{value['dtype']}({shape})" if "dtype" in value else f"({shape})"
    if isinstance(value, dict) and "values" in value:
        return _text_of(value["values"]).replace(" ", "")
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[" + ", ".join(_sample(v) for v in value) + "]"
    return repr(value) if isinstance(value, str) else _text_of(value)


def _refused(samples: list[dict]) -> list[str]:
    lines = []
    for case in samples:
        if "error" in case:
            args = ", ".join(f"{name}={_sample(value)}" for name, value in case.get("args", {}).items())
            lines.append(f"- `{args}`: \"{case['error']}\"")
    return ["**Errors:** these calls throw, with messages that contain:", "", *lines, ""] if lines else []


def _section(op: Op, samples: list[dict], derived: dict[str, Op], example: list[str] | None) -> list[str]:
    methods_ = [f"{line}  // a method of Tensor" for line in methods(op)]
    lines = [f"### `{op.full_name}`", "", op.doc, ""]
    lines += ["```cpp", "namespace mytorch {", *declarations(op), "}", *methods_, "```", ""]
    lines += [f"In PyTorch's notation: `{op.schema}`", ""]
    lines += _meaning(op)
    lines += _arguments(op)
    if accepted := types(op):
        lines += [f"**Types:** {accepted}", ""]
    lines += _gradient(op, derived)
    if op.autocast != "none":
        lines += [f"**Autocast:** {op.autocast}.", ""]
    if op.cost:
        lines += ["**Cost:** " + ", ".join(f"{k} `{f.text}`" for k, f in op.cost.items()), ""]
    if example is not None:
        lines += ["**Example:**", "", "```cpp", *program(example), "```", ""]
    return lines + _refused(samples)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(name: str, overloads: list[Op], page: str) -> str:
    kinds = ", ".join(dict.fromkeys(KINDS[op.meaning] for op in overloads))
    gradient = "yes" if any(op.grad.kind != "none" for op in overloads) else ""
    return f"| [`{name}`]({page}#{name.lower()}) | {kinds} | {gradient} | {_cell(overloads[0].doc)} |"


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    cases: dict[str, list[dict]] = {}
    for case in collect(ops):
        cases.setdefault(case["op"], []).append(case)
    examples = {op.full_name: statements(op, cases[op.full_name]) for op in ops if not op.derived}
    files = pages(ops, Path(ops[0].path).read_text(), special(ops), examples)
    files["docs/examples.cpp"] = translation_unit({name: lines for name, lines in examples.items() if lines})
    return files


def pages(
    ops: list[Op], source: str, samples: dict[str, list[dict]], examples: dict[str, list[str] | None]
) -> dict[str, str]:
    """Returns all pages. `source` is the text of ops.yaml; `samples` has the handwritten samples and `examples` the
    statements of an example, both by operator."""
    titles = {section.family: _title(section) for section in sections(source)}
    derived = {op.full_name: op for op in ops if op.derived}
    operators = by_name([op for op in ops if not op.derived])
    families: dict[str, list[str]] = {}
    for name, overloads in operators.items():
        families.setdefault(overloads[0].family, []).append(name)

    files = {}
    count = sum(len(overloads) for overloads in operators.values())
    index = [
        "# Operators",
        "",
        f"{len(operators)} operators with {count} overloads, by family. A primitive is defined by its kernel, which "
        "every backend provides; all other operators decompose into primitives and elementwise operations. Each page "
        "has an operator's C++ declarations, meaning, types, gradient and errors, and an example. `mytorch ops NAME` "
        "prints the same in a terminal, with the kernels of each backend.",
        "",
    ]
    for family, names in families.items():
        page, title = f"{family}.md", titles[family]
        lines = [f"# {title}", "", "[All operators](index.md)", ""]
        index += [f"## [{title}]({page})", "", "| operator | kind | gradient | |", "|---|---|---|---|"]
        for name in names:
            lines += [f"## {name}", "", f'`#include "mytorch/ops/{name}.h"`', ""]
            if aliases := operators[name][0].aliases:
                lines += [f"Also named {', '.join(f'`{alias}`' for alias in aliases)}.", ""]
            for op in operators[name]:
                lines += _section(op, samples.get(op.full_name, []), derived, examples.get(op.full_name))
            index.append(_row(name, operators[name], page))
        index.append("")
        files[f"docs/ops/{page}"] = "\n".join(lines).rstrip() + "\n"
    files["docs/ops/index.md"] = "\n".join(index).rstrip() + "\n"
    return files
