"""mytorch/abi_ops.h: the argument structs and hashes that kernels are written against, in C11."""

from __future__ import annotations

from codegen.cpp import BANNER
from codegen.lock import Lock
from codegen.model import Op


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    lines = [BANNER.strip(),
             "// The argument struct of each operator that kernels may implement, and the hash of its schema.",
             "#ifndef MYTORCH_ABI_OPS_H_", "#define MYTORCH_ABI_OPS_H_", "",
             '#include "mytorch/abi.h"', ""]
    for op in ops:
        if not op.has_kernel:
            continue
        sid = op.schema.struct_id
        lines += [f"// {op.schema}", f"#define MT_HASH_{sid} 0x{op.schema.hash:016x}ull",
                  f"typedef struct mt_args_{sid} {{", "  mt_args_header header;"]
        lines += [f"  {f.c_type} {f.name};" for f in lock.fields(op.full_name)]
        lines += [f"}} mt_args_{sid};", ""]
    lines += ["#endif  // MYTORCH_ABI_OPS_H_", ""]
    text = "\n".join(lines)
    # Backends get a folder of their own, in which nothing of the framework lies.
    return {"include/mytorch/abi_ops.h": text, "backend/include/mytorch/abi_ops.h": text}
