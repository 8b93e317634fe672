"""ops.json: the records in machine-readable form, for conformance, documentation and tools."""

from __future__ import annotations

import json

from codegen import cpp
from codegen.model import Op


def record(op: Op) -> dict:
    s = op.schema
    return {
        "name": op.full_name, "schema": str(s), "doc": op.doc, "meaning": op.meaning, "promote": op.promote,
        "function": op.function, "kernel_optional": op.kernel_optional, "has_kernel": op.has_kernel,
        "derived": op.derived, "parent": op.parent, "types": op.types, "forms": list(op.forms),
        "inplace": cpp.has_inplace(op), "out": cpp.has_out(op), "dynamic": op.dynamic, "samples": op.samples,
        "tolerance": op.tolerance, "hash": f"0x{s.hash:016x}", "line": op.line,
        "grad": {"kind": op.grad.kind, "no_grad": list(op.grad.no_grad), "zero": list(op.grad.zero),
                 "args": sorted({o.arg for o in op.grad.outputs} | {a for f in op.grad.formulas for a in f.args})},
        "once_differentiable": op.once_differentiable,
        "args": [{"name": a.name, "type": a.type_text, "kw_only": a.kw_only,
                  "default": None if not a.has_default else str(a.default), "required": not a.has_default,
                  "written": bool(a.alias and a.alias.write)} for a in s.args],
        "results": [{"name": r.name, "dtype": r.dtype, "differentiable": r.differentiable} for r in op.results],
        "fold": op.body.variants[0].fold if op.body is not None else "",
        "cost": {k: f.text for k, f in op.cost.items()},
    }


def emit(ops: list[Op]) -> dict[str, str]:
    return {"share/ops.json": json.dumps([record(op) for op in ops], indent=1) + "\n"}
