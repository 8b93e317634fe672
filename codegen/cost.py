"""The costs of records as nested lists, the operation first, for evaluation at run time.

    2 * numel(result) * self.shape[2]   ->   ["*", ["*", 2, ["numel", "result"]], ["size", "self", 2]]

bench/harness/cost.cpp evaluates them.
"""

from __future__ import annotations

import ast

from codegen.formula import META_FUNCTIONS
from codegen.syntax import ExprError

# Costs may use the bytes of a tensor; gradients may not.
FUNCTIONS = {**META_FUNCTIONS, "nbytes": "nbytes"}
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//"}
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


def cost_tree(tree: ast.expr) -> list | int | float | bool:
    """Returns the list for a formula. Raises ExprError for an expression that costs do not support."""
    match tree:
        case ast.Constant(bool() | int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
        case ast.Name(id):
            return ["arg", id]
        case ast.Call(ast.Name("numel" | "nbytes" | "len" as function), [ast.Name(id)], []):
            return [function, id]
        case ast.Attribute(ast.Name(id), "ndim"):
            return ["ndim", id]
        case ast.Subscript(ast.Attribute(ast.Name(id), "shape"), index):
            return ["size", id, cost_tree(index)]
        case ast.Subscript(ast.Name(id), index):
            return ["item", id, cost_tree(index)]
        case ast.UnaryOp(ast.USub(), value):
            return ["-", 0, cost_tree(value)]
        case ast.UnaryOp(ast.Not(), value):
            return ["not", cost_tree(value)]
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            return [_BINARY[type(op)], cost_tree(left), cost_tree(right)]
        case ast.Compare(ast.Name(id), [ast.Is()], [ast.Constant(None)]):
            return ["absent", id]
        case ast.Compare(ast.Name(id), [ast.IsNot()], [ast.Constant(None)]):
            return ["not", ["absent", id]]
        case ast.Compare(left, [op], [right]) if type(op) in _COMPARE:
            return [_COMPARE[type(op)], cost_tree(left), cost_tree(right)]
        case ast.BoolOp(op, values):
            return ["and" if isinstance(op, ast.And) else "or", *map(cost_tree, values)]
        case ast.IfExp(condition, if_true, if_false):
            return ["if", cost_tree(condition), cost_tree(if_true), cost_tree(if_false)]
    raise ExprError("a cost is arithmetic over numbers, numel(x), nbytes(x), x.shape[i] and x.ndim")
