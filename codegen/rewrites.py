"""Checks the rewriting rules of records (docs/records.md, "Rules"): texts that graph/rules/rule.cpp reads when a program
runs, so that a mistake in one is an error of code generation."""

from __future__ import annotations

import ast
import re
from typing import Callable

from codegen.model import Op, Rewrite
from codegen.schema import Arg
from codegen.syntax import ExprError

MODES = ("exact", "default", "fast")
ATTRIBUTES = ("shape", "ndim", "dtype", "device")
FUNCTIONS = {"number": 1, "numel": 1, "floating": 1, "itemsize": 1, "last": 2}
OPERATORS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
_RESULT = re.compile(r"result[1-9]?")

Table = dict[str, list[Op]]


def table(ops: list[Op]) -> Table:
    """Returns the overloads by base name, alias and full name."""
    found: Table = {}
    for op in ops:
        for name in {op.schema.name, op.full_name, *op.aliases}:
            found.setdefault(name, []).append(op)
    return found


def _where(node: ast.AST) -> str:
    return f"column {getattr(node, 'col_offset', 0) + 1}: "


def _tree(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ExprError(f"column {error.offset or 1}: not an expression: `{text}`") from None


def _assignment(text: str) -> tuple[list[str], ast.expr]:
    """Returns the names and the value of `a, b = value`, or no names and the value."""
    match = re.fullmatch(r"\s*(\w+(?:\s*,\s*\w+)*)\s*=(?!=)(.*)", text, re.DOTALL)
    if not match:
        return [], _tree(text)
    return re.split(r"\s*,\s*", match.group(1)), _tree(match.group(2).strip())


def _called(node: ast.Call) -> str:
    """Returns the name of an operator, with its overload if the call gives one."""
    match node.func:
        case ast.Name(id):
            return id
        case ast.Attribute(ast.Name(id), attr):
            return f"{id}.{attr}"
    raise ExprError(f"{_where(node)}only operators and functions are called")


def _literal(node: ast.AST) -> object:
    """Returns the constant that a node is, or raises LookupError."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if isinstance(value, (int, float)):
            return -value
    if isinstance(node, ast.Constant):
        return node.value
    raise LookupError


def _takes(arg: Arg, node: ast.AST, tensor: bool) -> bool:
    """Returns whether an argument can be what a pattern or a replacement gives. tensor: the expression is one."""
    if tensor:
        return arg.is_tensor
    if isinstance(node, ast.List):
        return arg.list and not arg.is_tensor_list
    try:
        value = _literal(node)
    except LookupError:
        return not arg.is_tensor_list
    if value is None:
        return arg.optional
    if isinstance(value, str):
        return arg.type in ("str", "ScalarType")
    if arg.list:
        return False
    kinds = ("Scalar", "Operand", "bool") if isinstance(value, bool) else ("Scalar", "Operand", "int", "float")
    return arg.type in kinds and not (arg.type == "int" and isinstance(value, float))


def _misfit(op: Op, node: ast.Call | None, given: list[tuple[str, ast.expr, bool]]) -> str:
    """Returns why an overload does not take arguments (keyword, expression, whether it is a tensor), or ""."""
    args = op.schema.args
    filled = set()
    for i, (keyword, value, tensor) in enumerate(given):
        if keyword:
            found = next((a for a in args if a.name == keyword), None)
            if found is None:
                return f"`{op.full_name}` has no argument `{keyword}`"
        elif i >= len(args) or args[i].kw_only:
            return f"`{op.full_name}` takes fewer arguments"
        else:
            found = args[i]
        if not _takes(found, value, tensor):
            return f"`{found.name}` of `{op.full_name}` is {found.type_text}, not `{ast.unparse(value)}`"
        filled.add(found.name)
    missing = [a.name for a in args if a.name not in filled and not a.has_default]
    return f"`{op.full_name}` needs `{missing[0]}`" if missing else ""


class _Pattern:
    """Checks a pattern and collects its names."""

    def __init__(self, ops: Table):
        self.ops = ops
        self.names: set[str] = set()
        self.made: set[str] = set()  # of these, the values of operators
        self.roots: list[Op] = []

    def check(self, node: ast.expr) -> bool:
        """Returns whether the expression is an operator's result."""
        match node:
            case ast.Name(id):
                if _RESULT.fullmatch(id):
                    raise ExprError(f"{_where(node)}the name `{id}` is that of a result")
                if id != "_":
                    self.names.add(id)
                return False
            case ast.NamedExpr(ast.Name(id), value):
                if not self.check(value):
                    raise ExprError(f"{_where(node)}`{id} :=` names an operator")
                self.names.add(id)
                self.made.add(id)
                return True
            case ast.List(elts):
                for each in elts:
                    if self.check(each):
                        raise ExprError(f"{_where(each)}a list holds numbers")
                return False
            case ast.Call(ast.Name("reshape"), args, keywords):
                if len(args) != 1 or keywords:
                    raise ExprError(f"{_where(node)}`reshape` of a pattern takes one value")
                self.check(args[0])
                return True
            case ast.Call():
                if any(k.arg is None for k in node.keywords):
                    raise ExprError(f"{_where(node)}`**` in a pattern")
                given = [("", a) for a in node.args] + [(k.arg or "", k.value) for k in node.keywords]
                return self._operator(node, _called(node), given)
            case ast.BinOp(left, op, right) if type(op) in OPERATORS:
                return self._operator(node, OPERATORS[type(op)], [("", left), ("", right)])
        try:
            _literal(node)
            return False
        except LookupError:
            pass
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._operator(node, "neg", [("", node.operand)])
        raise ExprError(f"{_where(node)}`{ast.unparse(node)}` is not part of a pattern")

    def _operator(self, node: ast.expr, name: str, given: list[tuple[str, ast.expr]]) -> bool:
        args = [(keyword, value, self.check(value)) for keyword, value in given]
        if name not in self.ops:
            raise ExprError(f"{_where(node)}unknown operator `{name}`")
        reasons, fits = [], []
        for op in self.ops[name]:
            if not op.is_node:
                reasons.append(f"a graph has no node of `{op.full_name}`, but the operators that it calls")
            elif reason := _misfit(op, None, args):
                reasons.append(reason)
            else:
                fits.append(op)
        if not fits:
            raise ExprError(f"{_where(node)}{reasons[0]}")
        self.roots = fits
        return True


def _check_names(tree: ast.expr, names: set[str], ops: Table) -> None:
    """Checks a replacement or a condition."""
    functions = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    overloads = {f.value for f in functions if isinstance(f, ast.Attribute)}
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                name = _called(node)
                if name in FUNCTIONS:
                    if len(node.args) != FUNCTIONS[name] or node.keywords:
                        raise ExprError(f"{_where(node)}`{name}` takes {FUNCTIONS[name]} arguments")
                elif name not in ops:
                    raise ExprError(f"{_where(node)}unknown operator or function `{name}`")
                else:
                    # Of what a call gives, only literals have a type before it runs.
                    given = [("", a, False) for a in node.args] + [(k.arg or "", k.value, False) for k in node.keywords]
                    reasons = [_misfit(op, node, given) for op in ops[name]]
                    if all(reasons):
                        raise ExprError(f"{_where(node)}{reasons[0]}")
            case ast.Name(id) if node not in functions and node not in overloads and id not in names:
                raise ExprError(f"{_where(node)}the pattern does not bind `{id}`")
            case ast.Attribute(_, attr) if node not in functions and attr not in ATTRIBUTES:
                raise ExprError(f"{_where(node)}unknown attribute `.{attr}`")
            case ast.NamedExpr():
                raise ExprError(f"{_where(node)}`:=` belongs to patterns")


def check(rule: Rewrite, op: Op, ops: Table, report: Callable[[int, str], None]) -> None:
    """Reports the mistakes of a rule of a record."""
    pattern = _Pattern(ops)
    part = f"rewrite `{rule.name}`, pattern"
    try:
        if not pattern.check(_tree(rule.pattern)):
            raise ExprError("column 1: is no operator")
        part = f"rewrite `{rule.name}`, to"
        names, tree = _assignment(rule.to)
        for name in names:
            if name == "_" or name in pattern.made:
                continue
            index = int(name[6:] or 0) if _RESULT.fullmatch(name) else None
            if index is None or all(index >= len(root.schema.returns) for root in pattern.roots):
                raise ExprError(f"column 1: `{name}` is neither a result nor a name that the pattern binds by `:=`")
        _check_names(tree, pattern.names, ops)
        if not any(own in ops and op in ops[own] for own in _operators(tree, pattern.names)):
            raise ExprError(f"column 1: does not call `{op.schema.name}`, under which the rule stands")
        part = f"rewrite `{rule.name}`, if"
        if rule.condition:
            _check_names(_tree(rule.condition), pattern.names, ops)
    except ExprError as error:
        report(rule.line, f"{part}, {error}")


def _operators(tree: ast.expr, names: set[str]) -> set[str]:
    called = {_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return called | {
        OPERATORS[type(n.op)] for n in ast.walk(tree) if isinstance(n, ast.BinOp) and type(n.op) in OPERATORS
    }
