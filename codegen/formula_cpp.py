"""Formulas in C++: gradients and composites differ only in the spelling of names and facts of tensors."""

from __future__ import annotations

import ast

from codegen import cpp
from codegen.formula import called, fact_of
from codegen.model import Op
from codegen.schema import REQUIRED
from codegen.syntax import ExprError

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "/",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_FACTS = {
    "shape": "{}.sizes()",
    "strides": "{}.strides()",
    "dtype": "{}.dtype()",
    "device": "{}.device()",
    "ndim": "{}.dim()",
    "numel": "{}.numel()",
    "defined": "{}.defined()",
}
_LIST_FACTS = {"len": "static_cast<int64_t>({}.size())", "shape": "shapes_of({})"}


def fact(tensor: str, fact: str, is_list: bool = False) -> str:
    """Returns a fact of a tensor, or of a list of tensors, whose C++ expression is `tensor`."""
    return (_LIST_FACTS if is_list else _FACTS)[fact].format(tensor)


class Translator:
    """C++ of the formulas of one record. Subclasses define the spelling of a name and of a fact.

    operators: the records by C++ name, whose argument order resolves keywords. helpers: the namespace of
    functions that are no operators, those of ops/gradients.h or ops/composites.h.
    """

    helpers = "grads"

    def __init__(self, op: Op, operators: dict[str, list[Op]]):
        self.op = op
        self.operators = operators

    def name(self, id: str) -> str:
        return cpp.number(float(id)) if id in ("inf", "nan") else id

    def fact(self, name: str, fact: str) -> str | None:
        """Returns the C++ of a fact, or None if `name` is not a tensor."""
        raise NotImplementedError

    def refuse(self, node: ast.AST) -> ExprError:
        return ExprError(f"{self.op.full_name}: cannot translate `{ast.unparse(node)}`")

    def call(self, node: ast.Call) -> str:
        function = called(node)
        args = node.args if isinstance(node.func, ast.Name) else [node.func.value, *node.args]
        parts = [self.cpp(a) for a in args]
        if function in ("max", "min"):
            return f"std::{function}<double>({', '.join(parts)})"
        overloads = self.operators.get(function)
        if overloads is None:
            if node.keywords:
                raise self.refuse(node)
            return f"{self.helpers}::{function}({', '.join(parts)})"
        parts += self.keywords(node, overloads, len(parts))
        return f"mytorch::{function}({', '.join(parts)})"

    def keywords(self, node: ast.Call, overloads: list[Op], given: int) -> list[str]:
        """Returns the arguments after the first `given`, up to the last keyword, with the defaults of those in
        between."""
        values = {k.arg: k.value for k in node.keywords}
        if not values:
            return []
        for op in overloads:
            rest = op.schema.args[given:]
            names = [a.name for a in rest]
            if set(values) <= set(names):
                break
        else:
            raise self.refuse(node)
        parts = []
        for arg in rest[: max(map(names.index, values)) + 1]:
            if arg.name in values:
                parts.append(self.cpp(values[arg.name]))
            elif arg.default is REQUIRED:
                raise self.refuse(node)
            else:
                default = cpp.default(arg)
                parts.append(f"{cpp.value_type(arg)}()" if default == " = {}" else default[3:])
        return parts

    def cpp(self, node: ast.expr) -> str:
        asked = fact_of(node)
        if asked is not None and (text := self.fact(*asked)) is not None:
            absent = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is)
            return "!" + text if absent else text
        match node:
            case ast.Constant(None):
                return "{}"
            case ast.Constant(bool() as value):
                return "true" if value else "false"
            case ast.Constant(int() as value):
                return f"int64_t{{{value}}}"
            case ast.Constant(float() as value) | ast.UnaryOp(ast.USub(), ast.Constant(float() as value)):
                return cpp.number(value if isinstance(node, ast.Constant) else -value)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() as value)):
                return str(-value)
            case ast.Constant(str() as value):
                return cpp.text(value)
            case ast.Name(id):
                return self.name(id)
            case ast.Attribute(value, "mT"):
                return f"mytorch::transpose({self.cpp(value)}, -2, -1)"
            case ast.Attribute(value, "T"):
                return f"mytorch::t({self.cpp(value)})"
            case ast.Attribute(value, attr):
                return fact(self.cpp(value), attr)
            case ast.Subscript(ast.Name("grads" | "wanted" as id), ast.Constant(index)):
                return f"{id}[{index}]"
            case ast.Subscript(ast.Call() as value, ast.Constant(index)):
                return f"std::get<{index}>({self.cpp(value)})"
            case ast.Subscript(value, index):
                return f"element({self.cpp(value)}, {self.cpp(index)})"
            case ast.Call():
                return self.call(node)
            case ast.List(items):
                return f"IntList({{{', '.join(map(self.cpp, items))}}})"
            case ast.Tuple(items):
                return f"std::make_tuple({', '.join(map(self.cpp, items))})"
            case ast.UnaryOp(op, value):
                return f"({'!' if isinstance(op, ast.Not) else '-'}{self.cpp(value)})"
            case ast.BinOp(left, ast.Pow(), right):
                return f"std::pow({self.cpp(left)}, {self.cpp(right)})"
            case ast.BinOp(left, ast.MatMult(), right):
                return f"mytorch::matmul({self.cpp(left)}, {self.cpp(right)})"
            case ast.BinOp(left, op, right):
                return f"({self.cpp(left)} {_BINARY[type(op)]} {self.cpp(right)})"
            case ast.Compare(left, [op], [right]) if type(op) in _COMPARE:
                return f"({self.cpp(left)} {_COMPARE[type(op)]} {self.cpp(right)})"
            case ast.BoolOp(op, values):
                return "(" + (" && " if isinstance(op, ast.And) else " || ").join(map(self.cpp, values)) + ")"
            case ast.IfExp(test, body, orelse):
                return f"({self.cpp(test)} ? {self.cpp(body)} : {self.cpp(orelse)})"
        raise self.refuse(node)
