"""A hash-consed graph of typed nodes, with simplifications that preserve every bit of the result."""

from __future__ import annotations

import math
from dataclasses import dataclass

from codegen.nodes import BOOL, COMPUTE, INDEX, LEAVES, NODE_OPS


class TypeMismatch(ValueError):
    """Raised for operands whose types an operation does not accept."""


@dataclass(frozen=True)
class Node:
    """One value. `args` are the ids of earlier nodes.

    name: the name of the argument (input, scalar).
    field: the type of a scalar's field in the argument struct: SCALAR, INT or FLOAT.
    component: the component of the reduced state.
    value: the value of a const; a BOOL const is 0 or 1.
    tie: for maximum and minimum, "first" if the gradient of a tie goes to the first operand. Only differentiation
        reads it; it is not part of a program.
    """

    op: str
    type: str
    args: tuple[int, ...] = ()
    name: str = ""
    field: str = ""
    component: int = 0
    value: float = 0.0
    tie: str = ""

    @property
    def is_leaf(self) -> bool:
        return self.op in LEAVES

    def key(self) -> tuple:
        # float.hex distinguishes 0.0 from -0.0 and makes NaN equal to itself.
        return (self.op, self.type, self.args, self.name, self.component, self.value.hex(), self.tie)


class Graph:
    """Nodes in an order in which every node follows its operands.

    `relaxed` allows simplifications that are fine for derivatives but would change the last bit of a forward
    body: ignoring the sign of a zero, and merging constant factors.
    """

    def __init__(self, relaxed: bool = False):
        self.nodes: list[Node] = []
        self.relaxed = relaxed
        self._ids: dict[tuple, int] = {}

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def add(self, node: Node) -> int:
        """Adds a node without simplification and returns its id."""
        key = node.key()
        if key not in self._ids:
            self._ids[key] = len(self.nodes)
            self.nodes.append(node)
        return self._ids[key]

    def type(self, node: int) -> str:
        return self.nodes[node].type

    def const(self, value: float | bool, type_: str = COMPUTE) -> int:
        return self.add(Node("const", BOOL if isinstance(value, bool) else type_, value=float(value)))

    def is_const(self, node: int, value: float | None = None) -> bool:
        found = self.nodes[node]
        if found.op != "const":
            return False
        return value is None or found.value.hex() == float(value).hex()

    # ---- typing ----------------------------------------------------------------------------------

    def cast(self, node: int, type_: str) -> int:
        """Returns `node` as a value of `type_`. COMPUTE to BOOL is x != 0."""
        found = self.nodes[node]
        if found.type == type_:
            return node
        if found.op == "const":
            if type_ == BOOL:
                return self.const(bool(found.value))
            return self.const(found.value, type_)
        if found.op == "cast" and found.type == COMPUTE and self.type(found.args[0]) == type_ == BOOL:
            return found.args[0]
        if type_ == INDEX:
            raise TypeMismatch("only an index can be an index")
        return self.add(Node("cast", type_, (node,)))

    def number(self, node: int) -> int:
        """Returns a COMPUTE value. Rejects an index, because the conversion would silently lose digits."""
        if self.type(node) == INDEX:
            raise TypeMismatch("an index is not a number here; `number(x)` converts it")
        return self.cast(node, COMPUTE)

    def _as_index(self, node: int) -> int | None:
        """Returns `node` as an index if the conversion is exact: for an index, a whole constant, or an int
        argument."""
        found = self.nodes[node]
        if found.type == INDEX:
            return node
        if found.op == "const" and found.type == COMPUTE and float(found.value).is_integer():
            return self.const(found.value, INDEX)
        if found.op == "scalar" and found.field == "INT":
            return self.add(Node("scalar", INDEX, name=found.name, field="INT"))
        return None

    def _unify(self, a: int, b: int) -> tuple[int, int]:
        if INDEX in (self.type(a), self.type(b)):
            pair = self._as_index(a), self._as_index(b)
            if None in pair:
                raise TypeMismatch("an index meets a value that is not one; `number(x)` converts it")
            return pair
        if self.type(a) == self.type(b) == BOOL:
            return a, b
        return self.number(a), self.number(b)

    def make(self, op: str, *args: int, tie: str = "") -> int:
        """Adds a typed, simplified node. Raises TypeMismatch."""
        info = NODE_OPS[op]
        if len(args) != info.arity:
            raise TypeMismatch(f"{op} takes {info.arity} operands, not {len(args)}")
        types = [self.type(a) for a in args]
        if info.kind == "where":
            if types[0] != BOOL:
                raise TypeMismatch("the condition is not bool; write `x != 0` or logical(x)")
            arms = self._unify(args[1], args[2])
            return self._simplify(op, self.type(arms[0]), (args[0], *arms))
        if info.kind == "compare":
            a, b = self._unify(*args)
            if self.type(a) == BOOL:
                if op in ("eq", "ne"):
                    differ = self.make("logical_xor", a, b)
                    return differ if op == "ne" else self.make("logical_not", differ)
                a, b = self.number(a), self.number(b)
            return self._simplify(op, BOOL, (a, b))
        if info.kind == "logical":
            if INDEX in types:
                raise TypeMismatch(f"{op} of an index")
            return self._simplify(op, BOOL, tuple(self.cast(a, BOOL) for a in args))
        if info.kind == "bitwise":
            logical = op.replace("bitwise", "logical")
            if all(t == BOOL for t in types) and logical in NODE_OPS:
                return self.make(logical, *args)
            if BOOL in types:
                raise TypeMismatch(f"{op} of a bool and a number; write logical(x) or number(x)")
        result = BOOL if info.kind == "test" else COMPUTE
        return self._simplify(op, result, tuple(self.number(a) for a in args), tie)

    # ---- simplification --------------------------------------------------------------------------

    def _simplify(self, op: str, type_: str, args: tuple[int, ...], tie: str = "") -> int:
        if all(self.is_const(a) for a in args):
            return self._fold(op, type_, args)
        rule = getattr(self, f"_rule_{op}", None)
        found = rule(*args) if rule else None
        if found is not None:
            return found
        if NODE_OPS[op].commutative:
            args = tuple(sorted(args))
        return self.add(Node(op, type_, args, tie=tie))

    def _fold(self, op: str, type_: str, args: tuple[int, ...]) -> int:
        values = [self.nodes[a].value for a in args]
        if NODE_OPS[op].kind == "bitwise":
            if not all(v.is_integer() for v in values):
                raise TypeMismatch(f"{op} of a number that is not whole")
            values = [int(v) for v in values]
        elif NODE_OPS[op].kind == "logical":
            values = [bool(v) for v in values]
        value = NODE_OPS[op].evaluate(*values)
        return self.const(bool(value)) if type_ == BOOL else self.const(float(value), type_)

    def _negated(self, node: int) -> int | None:
        found = self.nodes[node]
        return found.args[0] if found.op == "neg" else None

    def _rule_add(self, a: int, b: int) -> int | None:
        for x, y in ((a, b), (b, a)):
            # x + 0 is not x if x is -0, but x + -0 always is.
            if self.is_const(y, -0.0) or (self.relaxed and self.is_const(y, 0.0)):
                return x
        for x, y in ((a, b), (b, a)):
            if (inner := self._negated(y)) is not None:
                return self.make("sub", x, inner)
        return None

    def _rule_sub(self, a: int, b: int) -> int | None:
        if self.is_const(b, 0.0):
            return a
        if (inner := self._negated(b)) is not None:
            return self.make("add", a, inner)
        if self.relaxed and self.is_const(a, 0.0):
            return self.make("neg", b)
        return None

    def _rule_mul(self, a: int, b: int) -> int | None:
        for x, y in ((a, b), (b, a)):
            if self.is_const(y, 1.0):
                return x
            if self.is_const(y, -1.0):
                return self.make("neg", x)
        negated = self._negated(a), self._negated(b)
        if None not in negated:
            return self.make("mul", *negated)
        if not self.relaxed:
            return None
        for x, y in ((a, b), (b, a)):
            if not self.is_const(y):
                continue
            inner = self.nodes[x]
            if inner.op == "neg":
                return self.make("mul", inner.args[0], self.const(-self.nodes[y].value))
            if inner.op == "mul":
                for p, q in (inner.args, inner.args[::-1]):
                    if self.is_const(q):
                        return self.make("mul", p, self._fold("mul", COMPUTE, (q, y)))
        return None

    def _rule_div(self, a: int, b: int) -> int | None:
        if self.is_const(b, 1.0):
            return a
        if self.is_const(b, -1.0):
            return self.make("neg", a)
        value = self.nodes[b].value
        # A power of two: the product is exact. Only in derivatives, which are never of integers.
        if self.relaxed and self.is_const(b) and value and math.isfinite(value) and (abs(math.frexp(value)[0]) == 0.5):
            return self.make("mul", a, self.const(1 / value))
        return None

    def _rule_neg(self, a: int) -> int | None:
        inner = self.nodes[a]
        if inner.op == "neg":
            return inner.args[0]
        if inner.op == "mul":
            for x, y in (inner.args, inner.args[::-1]):
                if self.is_const(y):
                    return self.make("mul", x, self.const(-self.nodes[y].value))
        if self.relaxed and inner.op == "sub":
            return self.make("sub", inner.args[1], inner.args[0])
        return None

    def _rule_conj_physical(self, a: int) -> int | None:
        inner = self.nodes[a]
        if inner.op == "conj_physical":
            return inner.args[0]
        return a if inner.op in ("abs", "const") else None

    def _rule_abs(self, a: int) -> int | None:
        inner = self.nodes[a]
        if inner.op == "abs":
            return a
        return self.make("abs", inner.args[0]) if inner.op == "neg" else None

    def _rule_pow(self, a: int, b: int) -> int | None:
        # These identities hold exactly for NaN and infinities. 0.5 and -1 are not among them (-inf, integers).
        if self.is_const(b):
            exponent = self.nodes[b].value
            if exponent == 0:
                return self.const(1.0)
            if exponent == 1:
                return a
            if exponent == 2:
                return self.make("mul", a, a)
            if exponent == 3:
                return self.make("mul", self.make("mul", a, a), a)
        return None

    def _rule_where(self, c: int, a: int, b: int) -> int | None:
        if a == b or self.is_const(c, 1.0):
            return a
        if self.is_const(c, 0.0):
            return b
        if self.nodes[c].op == "logical_not":
            return self.make("where", self.nodes[c].args[0], b, a)
        return None

    def _rule_logical_and(self, a: int, b: int) -> int | None:
        for x, y in ((a, b), (b, a)):
            if self.is_const(y):
                return x if self.nodes[y].value else y
        return a if a == b else None

    def _rule_logical_or(self, a: int, b: int) -> int | None:
        for x, y in ((a, b), (b, a)):
            if self.is_const(y):
                return y if self.nodes[y].value else x
        return a if a == b else None

    def _rule_logical_xor(self, a: int, b: int) -> int | None:
        for x, y in ((a, b), (b, a)):
            if self.is_const(y):
                return self.make("logical_not", x) if self.nodes[y].value else x
        return None

    def _rule_logical_not(self, a: int) -> int | None:
        inner = self.nodes[a]
        if inner.op == "logical_not":
            return inner.args[0]
        # Exact for NaN, unlike `not a < b` -> `a >= b`.
        opposite = {"eq": "ne", "ne": "eq"}.get(inner.op)
        return self.add(Node(opposite, BOOL, inner.args)) if opposite else None
