"""The composites whose record gives a formula."""

from __future__ import annotations

import ast

from codegen import cpp
from codegen.emit_api import by_name
from codegen.formula import called
from codegen.formula_cpp import Translator, fact
from codegen.lock import Lock
from codegen.model import Op


class _Composite(Translator):
    """C++ of a formula over the parameters of the composite."""

    helpers = "composite"

    def __init__(self, op: Op, operators: dict[str, list[Op]]):
        super().__init__(op, operators)
        self.args = {a.name: a for a in op.schema.args}

    def fact(self, name: str, asked: str) -> str | None:
        arg = self.args.get(name)
        if asked == "defined":
            if arg.type == "Operand":
                return f"{name}.present()"
            return fact(name, asked) if arg.is_tensor else f"{name}.has_value()"
        return fact(name, asked, arg.is_tensor_list) if arg and arg.type == "Tensor" else None

    def cpp(self, node: ast.expr) -> str:
        match node:
            case ast.Subscript(ast.Attribute(value, "shape"), index):
                return f"{self.cpp(value)}.size({self.cpp(index)})"
            case ast.IfExp(ast.Compare(ast.Name(id), [ast.Is()], [ast.Constant(None)]), default, ast.Name(same)) if (
                id == same and not self.args[id].is_tensor
            ):
                return f"{id}.value_or({self.cpp(default)})"
            case ast.Call(ast.Name("error"), [ast.Constant(str() as message)]):
                return f"throw Error(ErrorCode::kValue, {cpp.text(f'[{self.op.schema.name}] {message}')})"
        return super().cpp(node)


def _params(op: Op) -> str:
    """Returns the parameters. Those that the formula does not use exist for compatibility."""
    return ", ".join(
        ("" if a.name in op.formula.names else "[[maybe_unused]] ") + cpp.params([a]) for a in op.schema.args
    )


def _body(op: Op, operators: dict[str, list[Op]]) -> list[str]:
    translate, tree = _Composite(op, operators), op.formula.tree
    if cpp.written(op.schema) is not None:
        return [f"  {translate.cpp(tree)};"]
    if isinstance(tree, ast.Call) and any(o.schema.mutates for o in operators.get(called(tree), ())):
        # Returns the written tensor without sharing it once more.
        write = ast.Call(tree.func, [ast.Name("result"), *tree.args[1:]], tree.keywords)
        return [f"  Tensor result = {translate.cpp(tree.args[0])};", f"  {translate.cpp(write)};", "  return result;"]
    return [f"  return {translate.cpp(tree)};"]


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    found = [op for op in ops if op.formula is not None]
    operators = by_name(ops)
    calls = {called(n) for op in found for n in ast.walk(op.formula.tree) if isinstance(n, ast.Call)}
    lines = ['#include "mytorch/generated/bodies.h"']
    lines += [f'#include "mytorch/ops/{name}.h"' for name in sorted(calls & set(operators))]
    lines += ['#include "ops/composites.h"', "", "namespace mytorch::composite {", ""]
    for op in found:
        result = "void" if cpp.written(op.schema) is not None else cpp.return_type(op.schema)
        lines += [f"{result} {op.function}({_params(op)}) {{", *_body(op, operators), "}", ""]
    return {"src/composites.cpp": cpp.source([*lines, "}  // namespace mytorch::composite"])}
