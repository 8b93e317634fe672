"""The body language: Python expressions that become typed programs.

The host decides conditions over non-tensor arguments (`min is not None`, `approximate == 'tanh'`, a bool
argument) before the kernel runs. They split a body into variants, one program for each reachable
combination, and a decision tree selects among the variants.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from dataclasses import dataclass, field, replace
from typing import Callable, Iterable

from codegen.graph import Graph, Node, TypeMismatch
from codegen.nodes import BOOL, COMPUTE, HIDDEN_SUGAR, NODE_OPS, SUGAR
from codegen.program import Program, finish
from codegen.schema import Arg
from codegen.special import COEFFICIENTS, FUNCTIONS
from codegen.syntax import ExprError, parse, substitute

MAX_VARIANTS = 8
CONSTANTS = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}


@dataclass(frozen=True)
class Condition:
    """One condition that the host evaluates.

    kind: is_none (the argument is absent), str_eq (argument == value), flag (the bool argument is
    true) or num_cmp (argument `op` value; op is one of == < <= > >=).
    """

    kind: str
    arg: str
    op: str = ""
    value: str | float | None = None


@dataclass(frozen=True)
class Leaf:
    """The end of a decision: a variant or, if `variant` is -1, the error that rejects the call."""

    variant: int = -1
    error: str = ""


@dataclass(frozen=True)
class Decision:
    condition: Condition
    if_true: Decision | Leaf
    if_false: Decision | Leaf


@dataclass(frozen=True)
class Body:
    variants: tuple[Program, ...]
    selector: Decision | Leaf

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Returns the conditions of the selector, in order of first appearance."""
        found: dict[Condition, None] = {}

        def walk(tree: Decision | Leaf) -> None:
            if isinstance(tree, Decision):
                found[tree.condition] = None
                walk(tree.if_true)
                walk(tree.if_false)

        walk(self.selector)
        return tuple(found)

    def select(self, values: dict[str, object]) -> Program:
        """Returns the variant for these values (absent: None). Raises ExprError if the call is rejected."""
        tree = self.selector
        while isinstance(tree, Decision):
            tree = tree.if_true if holds(tree.condition, values) else tree.if_false
        if tree.error:
            raise ExprError(tree.error)
        return self.variants[tree.variant]


_COMPARE = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def holds(condition: Condition, values: dict[str, object]) -> bool:
    value = values.get(condition.arg)
    if condition.kind == "is_none":
        return value is None
    if condition.kind == "flag":
        return bool(value)
    if condition.kind == "str_eq":
        return value == condition.value
    return _COMPARE[condition.op](value, condition.value)


@dataclass(frozen=True)
class Names:
    """The names that a record defines for its bodies, in addition to the arguments.

    let: named subexpressions. absent: by optional argument, the number that stands for it if it is not given.
    """

    let: dict[str, ast.expr] = field(default_factory=dict)
    absent: dict[str, float] = field(default_factory=dict)

    def parse(self, text: str) -> ast.expr:
        return substitute(parse(text), self.let)


class _NeedDecision(Exception):
    def __init__(self, condition: Condition):
        super().__init__(str(condition))
        self.condition = condition


class _Rejected(Exception):
    """The variant under construction calls `error('...')`."""


def explore(
    build: Callable[[dict[Condition, bool]], object], same: Callable[[object], object]
) -> tuple[list, Decision | Leaf]:
    """Builds every variant. `build` raises _NeedDecision for an undecided condition."""
    built: list = []
    keys: dict[object, int] = {}
    leaves = 0

    def visit(known: dict[Condition, bool]) -> Decision | Leaf:
        nonlocal leaves
        try:
            variant = build(known)
        except _NeedDecision as need:
            yes = visit({**known, need.condition: True})
            no = visit({**known, need.condition: False})
            return yes if yes == no else Decision(need.condition, yes, no)
        except _Rejected as rejected:
            return Leaf(error=str(rejected))
        leaves += 1
        key = same(variant)
        if key not in keys:
            keys[key] = len(built)
            built.append(variant)
            if len(built) > MAX_VARIANTS:
                raise ExprError(f"more than {MAX_VARIANTS} variants")
        if leaves > 16 * MAX_VARIANTS:
            raise ExprError("too many combinations of static conditions")
        return Leaf(keys[key])

    tree = visit({})
    if not built:
        raise ExprError("every variant is an error")
    return built, tree


@functools.cache
def _sugar(name: str) -> tuple[tuple[str, ...], ast.expr]:
    parameters, body = SUGAR.get(name) or HIDDEN_SUGAR[name]
    return tuple(parameters.split()), parse(body)


def arity(function: str) -> int:
    """Returns the number of operands of a function of the body language; -1 if there is no such function."""
    if function in NODE_OPS:
        return NODE_OPS[function].arity
    if function in FUNCTIONS and not function.startswith("_"):
        return len(FUNCTIONS[function].operands)
    return len(_sugar(function)[0]) if function in SUGAR else -1


_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift",
    ast.RShift: "bitwise_right_shift",
}
_COMPARISONS = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_SYMBOLS = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLIPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_TIES = {"_maximum_first": "maximum", "_minimum_first": "minimum"}


class Builder:
    """Builds the nodes of expressions in one variant.

    args: the op's arguments by name. types: COMPUTE, BOOL or INDEX for the tensor arguments. env:
    names that stand for nodes that exist already. known: the static conditions decided in this
    variant. absent: the numbers that stand for optional arguments that are not given. calls: the functions of
    special.yaml become calls of their operators, for decomposition.
    """

    def __init__(
        self,
        graph: Graph,
        args: Iterable[Arg] = (),
        types: dict[str, str] | None = None,
        env: dict[str, int] | None = None,
        known: dict[Condition, bool] | None = None,
        absent: dict[str, float] | None = None,
        calls: bool = False,
    ):
        self.graph = graph
        self.absent = absent or {}
        self.calls = calls
        self.args = {a.name: a for a in args}
        self.types = types or {}
        self.env = env or {}
        self.known = known if known is not None else {}
        self.used: set[str] = set()
        self._dynamic = 0  # the number of run-time conditions around the current expression

    # ---- static conditions -----------------------------------------------------------------------

    def _decide(self, condition: Condition, at: ast.AST) -> bool:
        arg = self.args[condition.arg]
        self.used.add(arg.name)
        if condition.kind == "is_none" and not arg.optional:
            return False
        if arg.optional and condition.kind in ("num_cmp", "flag"):
            absent = Condition("is_none", arg.name)
            if self.known.get(absent) is not False:
                raise self.error(at, f"`{arg.name}` may be None here; test `{arg.name} is None` first")
        if condition in self.known:
            return self.known[condition]
        for other, value in self.known.items():
            if other.arg != condition.arg or not value:
                continue
            if other.kind == "is_none" and condition.kind == "str_eq":
                return False
            if other.kind == "str_eq" and condition.kind in ("str_eq", "is_none"):
                return False
            if other.kind == condition.kind == "num_cmp" and other.op == "==":
                return _COMPARE[condition.op](other.value, condition.value)
        raise _NeedDecision(condition)

    def _literal(self, node: ast.expr) -> object:
        """Returns the number or string that an expression denotes without arguments, or None."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str)):
            return node.value
        if isinstance(node, ast.Name) and node.id in CONSTANTS and not self._bound(node.id):
            return CONSTANTS[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._literal(node.operand)
            return -value if isinstance(value, (int, float)) else None
        return None

    def _bound(self, name: str) -> bool:
        return name in self.env or name in self.args

    def _arg(self, node: ast.expr) -> Arg | None:
        if isinstance(node, ast.Name) and node.id not in self.env:
            return self.args.get(node.id)
        return None

    def static(self, node: ast.expr) -> bool | None:
        """Returns the value of a static condition, or None if `node` is not one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return node.value
        if (arg := self._arg(node)) is not None and arg.type == "bool":
            return self._decide(Condition("flag", arg.name), node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self.static(node.operand)
            return None if value is None else not value
        if isinstance(node, ast.BoolOp):
            stop = isinstance(node.op, ast.Or)
            undecided = False
            for part in node.values:
                value = self.static(part)
                if value is stop and not undecided:
                    return stop  # the rest is not evaluated, as in Python
                undecided = undecided or value is None
            return None if undecided else not stop
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._static_compare(node)
        if isinstance(node, ast.Compare):
            parts = [self.static(p) for p in _pairs(node)]
            return None if None in parts else all(parts)
        return None

    def _static_compare(self, node: ast.Compare) -> bool | None:
        left, op, right = node.left, node.ops[0], node.comparators[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            arg = self._arg(left)
            if arg is None or not (isinstance(right, ast.Constant) and right.value is None):
                raise self.error(node, "`is` compares an argument with None, and nothing else")
            absent = self._decide(Condition("is_none", arg.name), node)
            return absent if isinstance(op, ast.Is) else not absent
        name = _COMPARISONS.get(type(op))
        if name is None:
            raise self.error(node, "this comparison is not part of the language")
        arg, value = self._arg(left), self._literal(right)
        if arg is None:
            arg, value, name = self._arg(right), self._literal(left), _FLIPPED[name]
        if arg is None or value is None:
            return None
        if arg.type == "str":
            if not isinstance(value, str) or name not in ("eq", "ne"):
                raise self.error(node, f"`{arg.name}` is a string: compare it with == or != to one")
            return self._decide(Condition("str_eq", arg.name, "", value), node) == (name == "eq")
        if isinstance(value, str):
            raise self.error(node, f"`{arg.name}` is not a string")
        if not arg.is_number:
            return None
        equal = self._decide(
            Condition("num_cmp", arg.name, _SYMBOLS["eq" if name == "ne" else name], float(value)), node
        )
        return not equal if name == "ne" else equal

    # ---- values ----------------------------------------------------------------------------------

    def error(self, node: ast.AST, message: str) -> ExprError:
        column = getattr(node, "col_offset", 0) + 1
        return ExprError(f"column {column}, at `{ast.unparse(node)}`: {message}")

    def value(self, node: ast.expr) -> int:
        """Returns the id of the node that computes an expression."""
        try:
            return self._value(node)
        except TypeMismatch as error:
            raise self.error(node, str(error)) from None

    def _value(self, node: ast.expr) -> int:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return self.graph.const(number)
            case ast.Name():
                return self._name(node)
            case ast.IfExp():
                return self._conditional(node)
            case ast.BinOp() if type(node.op) in _BINARY:
                return self.graph.make(_BINARY[type(node.op)], self.value(node.left), self.value(node.right))
            case ast.UnaryOp(op=ast.USub()):
                return self.graph.make("neg", self.value(node.operand))
            case ast.UnaryOp(op=ast.UAdd()):
                return self.graph.number(self.value(node.operand))
            case ast.UnaryOp(op=ast.Invert()):
                return self.graph.make("bitwise_not", self.value(node.operand))
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp() | ast.Compare():
                return self._logic(node)
            case ast.Call():
                return self._call(node)
        raise self.error(node, "this is not part of the body language")

    def _name(self, node: ast.Name) -> int:
        name = node.id
        if name in self.env:
            self.used.add(name)
            return self.env[name]
        arg = self.args.get(name)
        if arg is None:
            if name in CONSTANTS:
                return self.graph.const(CONSTANTS[name])
            raise self.error(node, "unknown name")
        if arg.type == "bool":
            return self.graph.const(self._decide(Condition("flag", name), node))
        self.used.add(name)
        if arg.optional:
            absent = self._known_absent(name)
            if absent is None and name in self.absent:
                absent = self._decide(Condition("is_none", name), node)
            if absent and name in self.absent:
                return self.graph.const(self.absent[name])
            if absent is None:
                raise self.error(node, f"`{name}` may be None here; test `{name} is None` first")
            if absent:
                raise self.error(node, f"`{name}` is used although it is None")
        if arg.is_tensor:
            return self.graph.add(Node("input", self.types.get(name, COMPUTE), name=name))
        if arg.is_number:
            return self.graph.add(Node("scalar", COMPUTE, name=name, field=arg.type.upper()))
        raise self.error(node, f"`{name}` is {arg.type_text}, which is no number")

    def _known_absent(self, name: str) -> bool | None:
        value = self.known.get(Condition("is_none", name))
        if value is None and any(c.arg == name and held and c.kind in ("str_eq",) for c, held in self.known.items()):
            return False
        return value

    def _conditional(self, node: ast.IfExp) -> int:
        static = self.static(node.test)
        if static is not None:
            return self.value(node.body if static else node.orelse)
        self._dynamic += 1
        test, body, orelse = self.value(node.test), self.value(node.body), self.value(node.orelse)
        self._dynamic -= 1
        return self.graph.make("where", test, body, orelse)

    def _logic(self, node: ast.expr) -> int:
        static = self.static(node)
        if static is not None:
            return self.graph.const(static)
        if isinstance(node, ast.UnaryOp):
            return self.graph.make("logical_not", self._bool(node.operand))
        if isinstance(node, ast.BoolOp):
            op = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
            return functools.reduce(lambda a, b: self.graph.make(op, a, b), map(self._bool, node.values))
        if len(node.ops) > 1:
            return functools.reduce(lambda a, b: self.graph.make("logical_and", a, b), map(self.value, _pairs(node)))
        if type(node.ops[0]) not in _COMPARISONS:
            raise self.error(node, "this comparison is not part of the language")
        return self.graph.make(_COMPARISONS[type(node.ops[0])], self.value(node.left), self.value(node.comparators[0]))

    def _bool(self, node: ast.expr) -> int:
        value = self.value(node)
        if self.graph.type(value) != BOOL:
            raise self.error(node, "`and`, `or` and `not` take bools; write `x != 0` or logical(x)")
        return value

    def _call(self, node: ast.Call) -> int:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.error(node, "call a function by its name, with positional arguments")
        name = node.func.id
        if name == "error":
            return self._reject(node)
        if name == "where" and len(node.args) == 3:
            return self._conditional(
                ast.copy_location(ast.IfExp(test=node.args[0], body=node.args[1], orelse=node.args[2]), node)
            )
        if name in ("polynomial", "chebyshev"):
            return self._series(node)
        args = [self.value(a) for a in node.args]
        if name in NODE_OPS:
            return self.graph.make(name, *args)
        if name in _TIES:
            return self.graph.make(_TIES[name], *args, tie="first")
        if name in ("min", "max"):
            if len(args) < 2:
                raise self.error(node, f"{name} takes two or more operands")
            return functools.reduce(lambda a, b: self.graph.make(f"{name}imum", a, b), args)
        if name in ("logical", "number") and len(args) == 1:
            return self.graph.cast(args[0], BOOL if name == "logical" else COMPUTE)
        if name in SUGAR or name in HIDDEN_SUGAR:
            parameters, body = _sugar(name)
            if len(parameters) != len(args):
                raise self.error(node, f"{name} takes {len(parameters)} operands, not {len(args)}")
            numbers = [self.graph.number(a) for a in args]
            return Builder(self.graph, env=dict(zip(parameters, numbers)), calls=self.calls).value(body)
        if name in FUNCTIONS:
            function = FUNCTIONS[name]
            if len(function.operands) != len(args):
                raise self.error(node, f"{name} takes {len(function.operands)} operands, not {len(args)}")
            numbers = list(map(self.graph.number, args))
            if self.calls and function.operator:
                return self.graph.add(Node(function.operator, COMPUTE, tuple(numbers)))
            inner = Builder(self.graph, env=dict(zip(function.operands, numbers)), calls=self.calls)
            for let, tree in function.let.items():
                inner.env[let] = inner.value(tree)
            return inner.value(function.value)
        raise self.error(node, f"unknown function `{name}`")

    def _series(self, node: ast.Call) -> int:
        """Builds polynomial(x, c) by Horner's scheme, or chebyshev(t, c) by Clenshaw's."""
        name = node.func.id
        if len(node.args) != 2 or getattr(node.args[1], "id", "") not in COEFFICIENTS:
            raise self.error(node, f"{name} takes an operand and the name of a list of codegen/special.yaml")
        make, const = self.graph.make, self.graph.const
        x = self.graph.number(self.value(node.args[0]))
        *rest, last = COEFFICIENTS[node.args[1].id]
        if name == "polynomial":
            sum_ = const(last)
            for c in reversed(rest):
                sum_ = make("add", make("mul", sum_, x), const(c))
            return sum_
        twice = make("add", x, x)
        after, sum_ = const(0.0), const(last)
        for c in reversed(rest[1:]):
            after, sum_ = sum_, make("add", make("sub", make("mul", twice, sum_), after), const(c))
        return make("add", make("sub", make("mul", x, sum_), after), const(rest[0]))

    def _reject(self, node: ast.Call) -> int:
        if len(node.args) != 1 or not isinstance(getattr(node.args[0], "value", None), str):
            raise self.error(node, "error('message') takes one string")
        if self._dynamic:
            raise self.error(node, "error() under a condition on tensor elements")
        raise _Rejected(node.args[0].value)


def _pairs(node: ast.Compare) -> list[ast.Compare]:
    """Returns a < b < c as [a < b, b < c]."""
    operands = [node.left, *node.comparators]
    return [
        ast.copy_location(ast.Compare(left=a, ops=[op], comparators=[b]), node)
        for a, op, b in zip(operands, node.ops, operands[1:])
    ]


def number_variants(programs: list[Program]) -> tuple[Program, ...]:
    return tuple(replace(p, variant=i) for i, p in enumerate(programs))


def check_used(args: Iterable[Arg], used: set[str], allowed: Iterable[str] = ()) -> None:
    unused = [a.name for a in args if a.name not in used and a.name not in allowed]
    if unused:
        raise ExprError("the body does not use " + ", ".join(f"`{name}`" for name in unused))


# ---- pointwise bodies ----------------------------------------------------------------------------


def build_pointwise(
    name: str,
    texts: dict[str, str],
    args: Iterable[Arg],
    types: dict[str, str],
    names: Names = Names(),
    *,
    relaxed: bool = False,
    as_number: bool = False,
    unused_ok: bool = False,
    calls: bool = False,
) -> Body:
    """Builds a pointwise body; `texts` has the expression of each output field.

    as_number: outputs are COMPUTE even if the expression is bool (gradients are numbers).
    """
    args = tuple(args)
    trees = {field: names.parse(text) for field, text in texts.items()}
    used: set[str] = set()

    def build(known: dict[Condition, bool]) -> Program:
        graph = Graph(relaxed)
        builder = Builder(graph, args, types, known=known, absent=names.absent, calls=calls)
        try:
            outputs = [(field, builder.value(tree)) for field, tree in trees.items()]
        finally:
            used.update(builder.used)
        if as_number:
            outputs = [(field, graph.number(node)) for field, node in outputs]
        return finish(graph, name, outputs, [a.name for a in args])

    programs, selector = explore(build, lambda p: p.text)
    if not unused_ok:
        check_used(args, used)
    for field in range(len(texts)):
        if len({p.outputs[field].type for p in programs}) > 1:
            raise ExprError("the variants' results have different types")
    return Body(number_variants(programs), selector)
