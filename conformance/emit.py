"""Writes the data for `mytorch check`, the documentation and the tools: the records (ops.json), the sample inputs
(samples.json) and PyTorch's results (goldens/)."""

from __future__ import annotations

import json
import sys

from codegen import cpp, describe
from codegen.cost import cost_tree
from codegen.lock import Lock
from codegen.model import Op
from codegen.nodes import NODE_OPS
from conformance.cases import FOLDER, SampleError, collect


def _node_ops(op: Op) -> list[str]:
    """Returns the operations in the bodies, which determine the tolerance of results."""
    if op.body is None:
        return []
    return sorted({node.op for program in op.body.variants for node in program.nodes})


def record(op: Op) -> dict:
    s = op.schema
    return {
        "name": op.full_name,
        "schema": str(s),
        "aliases": list(op.aliases),
        "declarations": describe.declarations(op),
        "methods": describe.methods(op),
        "doc": op.doc,
        "accepts": describe.types(op),
        "meaning": op.meaning,
        "promote": op.promote,
        "autocast": op.autocast,
        "function": op.function,
        "kernel_optional": op.kernel_optional,
        "has_kernel": op.has_kernel,
        "derived": op.derived,
        "parent": op.parent,
        "types": op.types,
        "forms": list(op.forms),
        "inplace": cpp.has_inplace(op),
        "out": cpp.has_out(op),
        "dynamic": op.dynamic,
        "family": op.family,
        "tolerance": op.tolerance,
        "backward_stable": op.backward_stable,
        "non_finite_spreads": op.non_finite_spreads,
        "hash": f"0x{s.hash:016x}",
        "line": op.line,
        "nodes": _node_ops(op),
        "approximate": any(NODE_OPS[node].approximate for node in _node_ops(op) if node in NODE_OPS),
        "grad": {
            "kind": op.grad.kind,
            "no_grad": list(op.grad.no_grad),
            "zero": list(op.grad.zero),
            "args": sorted({o.arg for o in op.grad.outputs} | {a for f in op.grad.formulas for a in f.args}),
            "formulas": [{"args": list(f.args), "text": f.formula.text} for f in op.grad.formulas],
            "derived": op.grad.derived,
        },
        "args": [
            {
                "name": a.name,
                "type": a.type_text,
                "kw_only": a.kw_only,
                "default": None if not a.has_default else str(a.default),
                "required": not a.has_default,
                "written": bool(a.alias and a.alias.write),
            }
            for a in s.args
        ],
        "results": [{"name": r.name, "dtype": r.dtype, "differentiable": r.differentiable} for r in op.results],
        "fold": op.body.variants[0].fold if op.body is not None else "",
        "cost": {k: cost_tree(f.tree) for k, f in op.cost.items()},
    }


def _lines(items: list[dict]) -> str:
    """Returns a JSON array with one item per line, so that diffs are readable."""
    return "[\n" + ",\n".join(json.dumps(item, separators=(",", ":")) for item in items) + "\n]\n"


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    try:
        cases = collect(ops)
    except SampleError as error:
        sys.exit(str(error))
    goldens = (FOLDER.parent / "goldens").glob("*.json")
    return {
        **{f"share/goldens/{path.name}": path.read_text() for path in goldens},
        "share/ops.json": json.dumps([record(op) for op in ops], indent=1) + "\n",
        "share/samples.json": _lines(cases),
    }
