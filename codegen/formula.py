"""Formulas over operators: the gradients of records that are not pointwise, and costs.

They are Python expressions, parsed with `ast` into the small tree below, which emitters turn into
C++.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Iterable, Iterator


class FormulaError(ValueError):
    """A formula that is refused."""


@dataclass(frozen=True)
class Name:
    id: str


@dataclass(frozen=True)
class Number:
    value: int | float


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Constant:
    """None, True or False."""

    value: bool | None


@dataclass(frozen=True)
class Attribute:
    value: Tree
    name: str


@dataclass(frozen=True)
class Subscript:
    value: Tree
    index: Tree


@dataclass(frozen=True)
class Slice:
    start: Tree | None
    stop: Tree | None
    step: Tree | None


@dataclass(frozen=True)
class Call:
    """function(args, kwargs), or receiver.function(...)."""

    function: str
    args: tuple[Tree, ...]
    kwargs: tuple[tuple[str, Tree], ...] = ()
    receiver: Tree | None = None


@dataclass(frozen=True)
class Sequence:
    kind: str  # tuple or list
    items: tuple[Tree, ...]


@dataclass(frozen=True)
class Unary:
    op: str  # - + ~ not
    value: Tree


@dataclass(frozen=True)
class Binary:
    op: str  # + - * / // % ** @ & | ^
    left: Tree
    right: Tree


@dataclass(frozen=True)
class Compare:
    op: str  # == != < <= > >= is, is not, in, not in
    left: Tree
    right: Tree


@dataclass(frozen=True)
class BoolOp:
    op: str  # and, or
    values: tuple[Tree, ...]


@dataclass(frozen=True)
class Conditional:
    condition: Tree
    if_true: Tree
    if_false: Tree


Tree = (
    Name
    | Number
    | Text
    | Constant
    | Attribute
    | Subscript
    | Slice
    | Call
    | Sequence
    | Unary
    | Binary
    | Compare
    | BoolOp
    | Conditional
)

# Attributes that need no elements of the tensor, and those that do.
META_ATTRIBUTES = ("shape", "strides", "dtype", "device", "ndim")
VALUE_ATTRIBUTES = ("mT", "T")
# Functions that look at their argument only so far, with the fact that they need (`shapes`: of a
# list).
META_FUNCTIONS = {"numel": "numel", "len": "len", "shapes": "shape"}


@dataclass(frozen=True)
class Save:
    """What a formula needs of one value: its elements, or only the facts named in `meta`.

    meta: shape, strides, dtype, device, ndim, numel, len, and `defined` (whether an optional is
    there).
    """

    name: str
    value: bool
    meta: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Formula:
    """names: every free name. calls: every function and method called. uses: per tensor named."""

    text: str
    tree: Tree
    names: frozenset[str]
    calls: frozenset[str]
    uses: tuple[Save, ...]


_UNARY = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}
_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARE = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def _convert(node: ast.AST) -> Tree:
    match node:
        case ast.Constant(value=bool() | None):
            return Constant(node.value)
        case ast.Constant(value=int() | float()):
            return Number(node.value)
        case ast.Constant(value=str()):
            return Text(node.value)
        case ast.Name():
            return Name(node.id)
        case ast.Attribute():
            if node.attr not in META_ATTRIBUTES + VALUE_ATTRIBUTES:
                raise FormulaError(f"unknown attribute `.{node.attr}` in `{ast.unparse(node)}`")
            return Attribute(_convert(node.value), node.attr)
        case ast.Subscript():
            return Subscript(_convert(node.value), _convert(node.slice))
        case ast.Slice():
            return Slice(*(None if part is None else _convert(part) for part in (node.lower, node.upper, node.step)))
        case ast.Call():
            return _convert_call(node)
        case ast.Tuple() | ast.List():
            kind = "tuple" if isinstance(node, ast.Tuple) else "list"
            return Sequence(kind, tuple(_convert(e) for e in node.elts))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return Number(-node.operand.value)
        case ast.UnaryOp():
            return Unary(_UNARY[type(node.op)], _convert(node.operand))
        case ast.BinOp() if type(node.op) in _BINARY:
            return Binary(_BINARY[type(node.op)], _convert(node.left), _convert(node.right))
        case ast.Compare() if len(node.ops) == 1:
            return Compare(_COMPARE[type(node.ops[0])], _convert(node.left), _convert(node.comparators[0]))
        case ast.BoolOp():
            return BoolOp("and" if isinstance(node.op, ast.And) else "or", tuple(_convert(v) for v in node.values))
        case ast.IfExp():
            return Conditional(_convert(node.test), _convert(node.body), _convert(node.orelse))
    raise FormulaError(f"`{ast.unparse(node)}` is not part of the formula language")


def _convert_call(node: ast.Call) -> Call:
    args = tuple(_convert(a) for a in node.args)
    if any(k.arg is None for k in node.keywords):
        raise FormulaError(f"`**` in `{ast.unparse(node)}`")
    kwargs = tuple((k.arg, _convert(k.value)) for k in node.keywords)
    if isinstance(node.func, ast.Name):
        return Call(node.func.id, args, kwargs)
    if isinstance(node.func, ast.Attribute):
        return Call(node.func.attr, args, kwargs, _convert(node.func.value))
    raise FormulaError(f"cannot call `{ast.unparse(node.func)}`")


def _children(tree: Tree) -> Iterator[Tree]:
    for value in vars(tree).values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, tuple):  # a keyword argument
                item = item[1]
            if isinstance(item, Tree):
                yield item


def _walk(tree: Tree) -> Iterator[Tree]:
    yield tree
    for child in _children(tree):
        yield from _walk(child)


def _collect_uses(tree: Tree, tensors: frozenset[str], functions: dict[str, str], uses: dict[str, set[str]]) -> None:
    """Notes for each tensor name the facts used of it; the fact `value` stands for its elements."""

    def note(name: str, fact: str) -> None:
        uses.setdefault(name, set()).add(fact)

    match tree:
        case Name(id) if id in tensors:
            note(id, "value")
        case Attribute(Name(id), name) if id in tensors and name in META_ATTRIBUTES:
            note(id, name)
        case Call(function, (Name(id),), (), None) if id in tensors and function in functions:
            note(id, functions[function])
        case Call("numel", (), (), Name(id)) if id in tensors:
            note(id, "numel")
        case Compare("is" | "is not", Name(id), Constant(None)) if id in tensors:
            note(id, "defined")
        case _:
            for child in _children(tree):
                _collect_uses(child, tensors, functions, uses)


def parse_formula(
    text: str, names: Iterable[str], tensors: Iterable[str], functions: dict[str, str] = META_FUNCTIONS
) -> Formula:
    """Parses a formula that may name `names`, of which `tensors` are values that would be saved.

    functions: those that need only a fact of their argument.
    """
    text = text.strip().replace("\n", " ")
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"column {error.offset or len(text) + 1}: not an expression: `{text}`") from None
    tree = _convert(node)
    found = {t.id for t in _walk(tree) if isinstance(t, Name)}
    unknown = sorted(found - set(names))
    if unknown:
        raise FormulaError(f"names `{unknown[0]}`, which is neither an argument nor saved")
    uses: dict[str, set[str]] = {}
    _collect_uses(tree, frozenset(tensors), functions, uses)
    saves = tuple(Save(n, "value" in facts, frozenset(facts - {"value"})) for n, facts in uses.items())
    calls = frozenset(t.function for t in _walk(tree) if isinstance(t, Call))
    return Formula(text, tree, frozenset(found), calls, saves)


def merge_saves(groups: Iterable[tuple[Save, ...]]) -> tuple[Save, ...]:
    """The union: one Save for each name, in order of first appearance."""
    merged: dict[str, Save] = {}
    for save in (s for group in groups for s in group):
        old = merged.get(save.name, save)
        merged[save.name] = Save(save.name, old.value or save.value, old.meta | save.meta)
    return tuple(merged.values())
