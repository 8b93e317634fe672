"""The wrappers of graph capture, for every operator that a graph holds as a node."""

from __future__ import annotations

from codegen import cpp, emit_api, emit_stubs
from codegen.lock import Lock
from codegen.model import Op

FILES = 4


def is_node(op: Op) -> bool:
    """Returns whether a graph has nodes of an operator. A composite without kernel is recorded as the operators that
    it calls, unless it also works through a handle, which no other operator shows."""
    handle = any(arg.type == "Handle" for arg in op.schema.args)
    return op.meaning != "composite" or bool(op.kernel_optional) or handle


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {}
    buckets = list(emit_api.buckets([op for op in ops if is_node(op)]).values())
    for number in range(FILES):
        group = [op for bucket in buckets[number::FILES] for op in bucket]
        lines = ['#include "graph/wrappers.h"', *emit_api.below_includes(group)]
        lines += ["", "namespace mytorch::graph {", "", f"void install_{number}() {{"]
        for op in group:
            name = f"ops::{op.schema.struct_id}"
            if op.derived:
                lines.append(f"  install_derived<{name}>();")
            else:
                lines += [f"  install<{name}, {form}>();" for form in emit_stubs.forms(op)]
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
    return files
