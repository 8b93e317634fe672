"""Emits the programs of all pointwise and reduce operators, which backends/cuda compiles when they are first called, and
the node operations that they consist of."""

from __future__ import annotations

from pathlib import Path

from codegen import complex, cpp, emit_table
from codegen.lock import Lock
from codegen.model import Op
from codegen.nodes import ELEMENTARY, NODE_OPS

COSTLY = 12  # additions: what a kernel keeps in memory instead of computing it twice
WORDS = Path(__file__).resolve().parent.parent.parent / "dispatcher" / "table" / "program_row.h"


def node_ops() -> str:
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
    return cpp.header(about, [], [*lines, "}  // namespace mytorch::cuda", functions], "codegen/nodes.py")


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    lines = [
        cpp.BANNER.strip(),
        "#include <cstddef>",
        "#include <limits>",
        "",
        '#include "backends/cuda/programs/program.h"',
        '#include "mytorch/abi_ops.h"',
        # Copied, because a backend includes nothing of the framework.
        WORDS.read_text().partition("#pragma once")[2],
        "namespace mytorch::cuda {",
        "namespace {",
        "using namespace row;",
        "",
    ]
    rows = []
    for op in ops:
        if op.body is None or not op.has_kernel:
            continue
        sid = op.schema.struct_id
        lines += [*emit_table.open_space(op), *emit_table.programs(op, op.body.variants), "}"]
        rows.append(
            f"    {{{cpp.text(op.full_name)}, MT_HASH_{sid}, {emit_table.space(op)}::kPrograms, {len(op.body.variants)}}},"
        )
    lines += [
        "",
        "}  // namespace",
        "",
        "std::span<const ProgramOp> all_programs() {",
        "  static const ProgramOp all[] = {",
        *rows,
        "  };",
        "  return all;",
        "}",
        "",
        "}  // namespace mytorch::cuda",
        "",
    ]
    return {"cuda/programs.cpp": "\n".join(lines), "cuda/nodes.h": node_ops()}
