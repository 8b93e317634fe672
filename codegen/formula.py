"""Formulas over operators: gradients of records that are not pointwise, composites of one expression, and
costs. Their trees are Python's own (`ast`); `check` refuses everything outside of the language.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Iterable

from codegen.syntax import ExprError, parse

# Attributes that do not need the tensor's elements, and those that do.
META_ATTRIBUTES = ("shape", "strides", "dtype", "device", "ndim")
VALUE_ATTRIBUTES = ("mT", "T")
# Functions that need only one fact about their argument, with that fact (`shapes`: of a list).
META_FUNCTIONS = {"numel": "numel", "len": "len", "shapes": "shape"}

_NODES = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.IfExp,
    ast.List,
    ast.Name,
    ast.Slice,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
)
_SYMBOLS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword)


@dataclass(frozen=True)
class Save:
    """The parts of a value that a formula needs: its elements, or only the facts in `meta`.

    meta: shape, strides, dtype, device, ndim, numel, len, and `defined` (whether an optional is given).
    """

    name: str
    value: bool
    meta: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Formula:
    """names: every free name. calls: every function and method called. uses: one Save per tensor named."""

    text: str
    tree: ast.expr
    names: frozenset[str]
    calls: frozenset[str]
    uses: tuple[Save, ...]


def called(node: ast.Call) -> str:
    """Returns the function or method that a call names."""
    return node.func.id if isinstance(node.func, ast.Name) else node.func.attr


def check(tree: ast.expr) -> None:
    """Raises ExprError for syntax that is not part of formulas."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is None:
            raise ExprError(f"`**` in `{ast.unparse(tree)}`")
        if isinstance(node, ast.Call) and not isinstance(node.func, (ast.Name, ast.Attribute)):
            raise ExprError(f"cannot call `{ast.unparse(node.func)}`")
        chained = isinstance(node, ast.Compare) and len(node.ops) > 1
        shift = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.LShift, ast.RShift))
        if chained or shift or not isinstance(node, _NODES + _SYMBOLS):
            raise ExprError(f"`{ast.unparse(node)}` is not part of the formula language")
    methods = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in methods:
            if node.attr not in META_ATTRIBUTES + VALUE_ATTRIBUTES:
                raise ExprError(f"unknown attribute `.{node.attr}` in `{ast.unparse(node)}`")


def fact_of(node: ast.AST, functions: dict[str, str] = META_FUNCTIONS) -> tuple[str, str] | None:
    """Returns (name, fact) for an expression that reads one fact of a named value, such as `self.shape`."""
    match node:
        case ast.Attribute(ast.Name(id), attr) if attr in META_ATTRIBUTES:
            return id, attr
        case ast.Call(ast.Name(function), [ast.Name(id)], []) if function in functions:
            return id, functions[function]
        case ast.Call(ast.Attribute(ast.Name(id), "numel"), [], []):
            return id, "numel"
        case ast.Compare(ast.Name(id), [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
            return id, "defined"
    return None


def _collect_uses(node: ast.AST, tensors: frozenset[str], functions: dict[str, str], uses: dict[str, set[str]]) -> None:
    """Collects the facts used of each tensor; the fact `value` stands for its elements."""
    found = fact_of(node, functions)
    if found is not None and found[0] in tensors:
        uses.setdefault(found[0], set()).add(found[1])
    elif isinstance(node, ast.Name) and node.id in tensors:
        uses.setdefault(node.id, set()).add("value")
    else:
        for child in ast.iter_child_nodes(node):
            _collect_uses(child, tensors, functions, uses)


def parse_formula(
    text: str, names: Iterable[str], tensors: Iterable[str], functions: dict[str, str] = META_FUNCTIONS
) -> Formula:
    """Parses a formula that may use `names`. `tensors` are the names whose values would be saved.

    functions: those that need only a fact of their argument. Raises ExprError.
    """
    tree = parse(text)
    check(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions_named = {node.func for node in calls}
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n not in functions_named}
    unknown = sorted(found - set(names))
    if unknown:
        raise ExprError(f"names `{unknown[0]}`, which is neither an argument nor saved")
    uses: dict[str, set[str]] = {}
    _collect_uses(tree, frozenset(tensors), functions, uses)
    saves = tuple(Save(n, "value" in facts, frozenset(facts - {"value"})) for n, facts in uses.items())
    text = text.strip().replace("\n", " ")
    return Formula(text, tree, frozenset(found), frozenset(map(called, calls)), saves)


def merge_saves(groups: Iterable[tuple[Save, ...]]) -> tuple[Save, ...]:
    """Returns the union: one Save for each name, in order of first appearance."""
    merged: dict[str, Save] = {}
    for save in (s for group in groups for s in group):
        old = merged.get(save.name, save)
        merged[save.name] = Save(save.name, old.value or save.value, old.meta | save.meta)
    return tuple(merged.values())
