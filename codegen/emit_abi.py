"""mytorch/abi_ops/NAME.h: the argument structs and hashes that kernels are written against, in C11.

A header for each function name, so that a new record rebuilds what uses it; mytorch/abi_ops.h has all.
"""

from __future__ import annotations

from codegen.cpp import BANNER
from codegen.emit_api import by_name
from codegen.lock import Lock
from codegen.model import Op


def header(name: str, ops: list[Op], lock: Lock) -> str:
    lines = [
        BANNER.strip(),
        f"// {name} for kernels: the argument struct of each overload, and the hash of its schema.",
        "#pragma once",
        "",
        '#include "mytorch/abi.h"',
        "",
    ]
    for op in ops:
        sid = op.schema.struct_id
        lines += [
            f"// {op.schema}",
            f"#define MT_HASH_{sid} 0x{op.schema.hash:016x}ull",
            f"typedef struct mt_args_{sid} {{",
            f'  MT_OPERATOR("{op.full_name}", MT_HASH_{sid})',
            "  mt_args_header header;",
        ]
        lines += [f"  {f.c_type} {f.name};" for f in lock.fields(op.full_name)]
        lines += [f"}} mt_args_{sid};", ""]
    return "\n".join(lines)


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    # Backends get a separate folder, without headers of the framework.
    folder = "backend/include/mytorch"
    names = by_name([op for op in ops if op.has_kernel])
    files = {f"{folder}/abi_ops/{name}.h": header(name, group, lock) for name, group in names.items()}
    files[f"{folder}/abi_ops.h"] = "\n".join(
        [
            BANNER.strip(),
            "// Every operator that kernels may implement.",
            "#pragma once",
            "",
            *(f'#include "mytorch/abi_ops/{name}.h"' for name in sorted(names)),
            "",
        ]
    )
    return files


def includes(ops: list[Op]) -> list[str]:
    """Returns the includes of sources that use the structs of these ops."""
    return [f'#include "mytorch/abi_ops/{n}.h"' for n in sorted({op.schema.name for op in ops if op.has_kernel})]
