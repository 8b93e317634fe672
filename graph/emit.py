"""The wrappers of graph capture, for every operator that a graph holds as a node, and the rules of the records."""

from __future__ import annotations

from codegen import cpp, emit_api
from codegen.lock import Lock
from codegen.model import Op

FILES = 4


def rules(ops: list[Op]) -> list[str]:
    lines = ['#include "graph/rules/rule.h"', "", "namespace mytorch::graph {", "namespace {", ""]
    texts = [rule for op in ops for rule in op.rewrites]
    lines.append(f"const RuleText kRules[{max(len(texts), 1)}] = {{")
    for rule in texts:
        parts = ", ".join(cpp.text(part) for part in (rule.name, rule.pattern, rule.to, rule.condition))
        lines.append(f"    {{{parts}, RuleMode::k{rule.mode.capitalize()}}},")
    lines += ["};", "", "}  // namespace", ""]
    lines += [f"const RuleTexts kGeneratedRules = {{kRules, {len(texts)}}};", "", "}  // namespace mytorch::graph"]
    return lines


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {}
    buckets = list(emit_api.buckets([op for op in ops if op.is_node]).items())
    for number in range(FILES):
        own = buckets[number::FILES]
        lines = ['#include "graph/capture/wrappers.h"', *(emit_api.operators_include(bucket) for bucket, _ in own)]
        lines += ["", "namespace mytorch::graph {", "", f"void install_{number}() {{"]
        lines += [f"  install<ops::{op.schema.struct_id}>();" for _, group in own for op in group]
        lines += ["}", "", "}  // namespace mytorch::graph"]
        files[f"graph/install_{number}.cpp"] = cpp.source(lines)
    files["graph/install.cpp"] = cpp.source(
        [
            "namespace mytorch::graph {",
            *[f"void install_{number}();" for number in range(FILES)],
            "void install_wrappers() {",
            *[f"  install_{number}();" for number in range(FILES)],
            "}",
            "}  // namespace mytorch::graph",
        ]
    )
    files["graph/rules.cpp"] = cpp.source(rules(ops))
    return files
