"""mytorch/abi_ops/NAME.h: the argument structs and hashes that kernels are written against, in C11.

A header for each function name, so that a new record rebuilds what uses it; mytorch/abi_ops.h has all.
"""

from __future__ import annotations

from codegen.cpp import header
from codegen.emit_api import by_name
from codegen.lock import Lock
from codegen.model import Op


def struct(op: Op, lock: Lock) -> list[str]:
    sid = op.schema.struct_id
    return [
        "",
        f"// {op.schema}",
        f"#define MT_HASH_{sid} 0x{op.schema.hash:016x}ull",
        f"typedef struct mt_args_{sid} {{",
        f'  MT_OPERATOR("{op.full_name}", MT_HASH_{sid})',
        "  mt_args_header header;",
        *(f"  {f.c_type} {f.name};" for f in lock.fields(op.full_name)),
        f"}} mt_args_{sid};",
    ]


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    # Backends get a separate folder, without headers of the framework.
    folder = "backend/include/mytorch"
    names = by_name([op for op in ops if op.has_kernel])
    files = {
        f"{folder}/abi_ops/{name}.h": header("", ["mytorch/abi.h"], [line for op in group for line in struct(op, lock)])
        for name, group in names.items()
    }
    paths = [f"mytorch/abi_ops/{name}.h" for name in sorted(names)]
    about = "Every operator that kernels may implement: its argument struct, and the hash of its schema."
    files[f"{folder}/abi_ops.h"] = header(about, paths, [])
    return files


def includes(ops: list[Op]) -> list[str]:
    """Returns the includes of sources that use the structs of these ops."""
    return [f'#include "mytorch/abi_ops/{n}.h"' for n in sorted({op.schema.name for op in ops if op.has_kernel})]
