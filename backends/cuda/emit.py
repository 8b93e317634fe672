"""Emits the node operations that programs consist of."""

from __future__ import annotations

from codegen import complex, cpp
from codegen.lock import Lock
from codegen.model import Op
from codegen.nodes import ELEMENTARY, NODE_OPS

COSTLY = 12  # additions: what a kernel keeps in memory instead of computing it twice


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    lists = {
        "kNodeOps": list(NODE_OPS),
        "kComplexOps": [name for name in NODE_OPS if name in complex.MEANINGFUL],
        "kCostlyOps": [name for name, op in NODE_OPS.items() if op.cost >= COSTLY],
    }
    lines = ["#include <string_view>", "", "namespace mytorch::cuda {"]
    for name, names in lists.items():
        lines.append(f"inline constexpr std::string_view {name}[] = {{{', '.join(map(cpp.text, names))}}};")
    functions = " \\\n  ".join(["#define MYTORCH_ELEMENTARY(X)", *(f"X({function.name})" for function in ELEMENTARY)])
    about = "The node operations: all, those of complex values, those that are not computed twice, and functions."
    text = cpp.header(about, [], [*lines, "}  // namespace mytorch::cuda", functions], "codegen/nodes.py")
    return {"cuda/nodes.h": text}
