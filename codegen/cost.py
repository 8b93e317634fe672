"""Costs of records in a form that is evaluated at run time: nested lists, the operation first.

    2 * numel(result) * self.shape[2]   ->   ["*", ["*", 2, ["numel", "result"]], ["size", "self", 2]]

bench/harness/cost.cpp evaluates them.
"""

from __future__ import annotations

from codegen.formula import (
    META_FUNCTIONS,
    Attribute,
    Binary,
    BoolOp,
    Call,
    Compare,
    Conditional,
    Constant,
    FormulaError,
    Name,
    Number,
    Subscript,
    Tree,
    Unary,
)

# What a cost may ask of a tensor beyond what gradients may.
FUNCTIONS = {**META_FUNCTIONS, "nbytes": "nbytes"}
_BINARY = ("+", "-", "*", "/", "//")
_COMPARE = ("==", "!=", "<", "<=", ">", ">=")


def cost_tree(tree: Tree) -> list | int | float | bool:
    """The list for a formula, or FormulaError where a cost cannot have that."""
    match tree:
        case Number(value) | Constant(bool() as value):
            return value
        case Name(id):
            return ["arg", id]
        case Call("numel" | "nbytes" | "len" as function, (Name(id),), (), None):
            return [function, id]
        case Attribute(Name(id), "ndim"):
            return ["ndim", id]
        case Subscript(Attribute(Name(id), "shape"), index):
            return ["size", id, cost_tree(index)]
        case Subscript(Name(id), index):
            return ["item", id, cost_tree(index)]
        case Unary("-", value):
            return ["-", 0, cost_tree(value)]
        case Unary("not", value):
            return ["not", cost_tree(value)]
        case Binary(op, left, right) if op in _BINARY:
            return [op, cost_tree(left), cost_tree(right)]
        case Compare("is", Name(id), Constant(None)):
            return ["absent", id]
        case Compare("is not", Name(id), Constant(None)):
            return ["not", ["absent", id]]
        case Compare(op, left, right) if op in _COMPARE:
            return [op, cost_tree(left), cost_tree(right)]
        case BoolOp(op, values):
            return [op, *map(cost_tree, values)]
        case Conditional(condition, if_true, if_false):
            return ["if", cost_tree(condition), cost_tree(if_true), cost_tree(if_false)]
    raise FormulaError("a cost is arithmetic over numbers, numel(x), nbytes(x), x.shape[i] and x.ndim")
