"""Symbolic reverse differentiation of pointwise programs.

Conditions are carried along instead of multiplied in: a gradient through one arm of a `where` is computed as if
that arm were taken, and selected once at the end. If the adjoint were masked first and then multiplied by a
derivative that is infinite in the other arm, the result would be 0 * inf = NaN.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, replace

from codegen.expr import Body, Builder
from codegen.graph import Graph, Node
from codegen.nodes import BOOL, COMPUTE, NODE_OPS
from codegen.program import Program, finish
from codegen.syntax import parse

# A guard is (condition node, its required value). A contribution is (guards, outermost first; value).
Guards = tuple[tuple[int, bool], ...]

# Derivatives of maximum and minimum that pass the gradient of a tie to the first operand, and that of NaN to neither.
_FIRST_ON_TIE = {
    "maximum": ("grad if a >= b else 0", "grad if b > a else 0"),
    "minimum": ("grad if a <= b else 0", "grad if b < a else 0"),
}


@functools.cache
def _rule(text: str) -> ast.expr:
    return parse(text)


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def copy_program(program: Program, graph: Graph) -> list[int]:
    """Adds the nodes of a program unchanged. Returns the new ids by node number."""
    ids: list[int] = []
    for node in program.nodes:
        ids.append(graph.add(replace(node, args=tuple(ids[a] for a in node.args))))
    return ids


class _Reverse:
    def __init__(self, graph: Graph, wanted: set[str]):
        self.graph = graph
        self.wanted = wanted
        self.contributions: dict[int, list[tuple[Guards, int]]] = {}
        self._active: dict[int, bool] = {}

    def active(self, node: int) -> bool:
        """Returns whether a wanted input may have a gradient through `node`."""
        if node not in self._active:
            found = self.graph[node]
            if found.op == "input":
                self._active[node] = found.name in self.wanted and found.type == COMPUTE
            elif found.op not in NODE_OPS or found.type != COMPUTE:
                self._active[node] = False
            else:
                rules = NODE_OPS[found.op].derivatives
                self._active[node] = any(rule and self.active(a) for rule, a in zip(rules, found.args))
        return self._active[node]

    def _select(self, guard: tuple[int, bool], value: int) -> int:
        zero = self.graph.const(0.0)
        condition, holds = guard
        return self.graph.make("where", condition, *((value, zero) if holds else (zero, value)))

    def _collect(self, items: list[tuple[Guards, int]]) -> tuple[Guards, int]:
        """Sums contributions into one, keeping the guards that they all share."""
        while True:
            groups: dict[Guards, int] = {}
            for guards, value in items:
                groups[guards] = self.graph.make("add", groups[guards], value) if guards in groups else value
            items = list(groups.items())
            if len(items) == 1:
                return items[0]
            # Two arms of one condition form one value; otherwise, open the innermost guard.
            for guards, value in items:
                if not guards:
                    continue
                condition, holds = guards[-1]
                other = (*guards[:-1], (condition, not holds))
                if other in groups:
                    arms = (value, groups[other]) if holds else (groups[other], value)
                    merged = self.graph.make("where", condition, *arms)
                    items = [i for i in items if i[0] not in (guards, other)]
                    items.append((guards[:-1], merged))
                    break
            else:
                deepest = max(range(len(items)), key=lambda i: len(items[i][0]))
                guards, value = items[deepest]
                items[deepest] = (guards[:-1], self._select(guards[-1], value))

    def _send(self, node: int, guards: Guards, value: int) -> None:
        if self.active(node):
            self.contributions.setdefault(node, []).append((guards, value))

    def step(self, node: int) -> None:
        """Passes the adjoint of an operation on to its operands."""
        found = self.graph[node]
        guards, grad = self._collect(self.contributions.pop(node))
        if found.op == "where":
            condition, a, b = found.args
            self._send(a, (*guards, (condition, True)), grad)
            self._send(b, (*guards, (condition, False)), grad)
            return
        rules = NODE_OPS[found.op].derivatives
        if found.tie == "first":
            rules = _FIRST_ON_TIE[found.op]
        env = dict(zip("abc", found.args)) | {"grad": grad, "result": node}
        builder = Builder(self.graph, env=env)
        for rule, operand in zip(rules, found.args):
            if not rule or not self.active(operand):
                continue
            tree, inner = _rule(rule), guards
            if isinstance(tree, ast.IfExp) and (_is_zero(tree.body) or _is_zero(tree.orelse)):
                condition = builder.value(tree.test)
                keep = _is_zero(tree.orelse)
                tree = tree.body if keep else tree.orelse
                if self.graph.is_const(condition):
                    if bool(self.graph[condition].value) != keep:
                        continue
                else:
                    inner = (*guards, (condition, keep))
            self._send(operand, inner, builder.value(tree))

    def finish(self, node: int) -> int:
        guards, value = self._collect(self.contributions.pop(node))
        for guard in reversed(guards):
            value = self._select(guard, value)
        return value


def gradients(
    program: Program, grads: dict[str, str], wanted: list[str], graph: Graph
) -> tuple[dict[str, int], list[int]]:
    """Returns the gradient nodes by input name (absent: zero everywhere), and the ids of the forward's nodes in `graph`.

    grads: the name of the incoming gradient of each output field that has one.
    """
    ids = copy_program(program, graph)
    forward = len(graph.nodes)
    reverse = _Reverse(graph, set(wanted))
    for output in program.outputs:
        if output.name in grads and output.type == COMPUTE:
            incoming = graph.add(Node("input", COMPUTE, name=grads[output.name]))
            reverse._send(ids[output.node], (), incoming)
    for node in range(forward - 1, -1, -1):
        if graph[node].op in NODE_OPS and node in reverse.contributions:
            reverse.step(node)
    found = {graph[node].name: reverse.finish(node) for node in list(reverse.contributions)}
    return found, ids


def _substitute(graph: Graph, roots: list[int], table: dict[int, int]) -> list[int]:
    """Returns the roots, with some nodes replaced by others."""
    memo = dict(table)

    def visit(node: int) -> int:
        if node not in memo:
            found = graph[node]
            memo[node] = graph.add(replace(found, args=tuple(visit(a) for a in found.args)))
        return memo[node]

    return [visit(r) for r in roots]


@dataclass(frozen=True)
class Derived:
    """Gradient programs, one for each forward variant. `saved` are the forward values that they read."""

    programs: tuple[Program, ...]
    outputs: tuple[str, ...]  # the inputs that have a gradient; output i is the gradient of outputs[i]
    zero: tuple[str, ...]  # the inputs whose gradient is zero everywhere
    saved: tuple[str, ...]


def differentiate(
    body: Body, name: str, wanted: list[str], grads: dict[str, str], results: dict[str, str], arg_order: list[str]
) -> Derived:
    """Differentiates every variant of a pointwise body.

    wanted: the inputs with respect to which to differentiate.
    grads: output field -> name of its incoming gradient.
    results: output field -> the name under which the forward's output may be saved.

    The gradient either reads saved outputs or recomputes them from inputs, whichever saves fewer tensors. In a tie, it
    reads outputs, which computes less.
    """
    ways = []
    for read_results in (True, False):
        variants = [_one(p, wanted, grads, results if read_results else {}) for p in body.variants]
        zero = tuple(w for w in wanted if all(w not in roots for _, roots in variants))
        outputs = tuple(w for w in wanted if w not in zero)
        programs = []
        for i, (graph, roots) in enumerate(variants):
            ends = [(w, roots[w] if w in roots else graph.const(0.0)) for w in outputs]
            programs.append(finish(graph, name, ends, [*grads.values(), *arg_order, *results.values()], variant=i))
        read = {n.name for p in programs for n in p.inputs} - set(grads.values())
        saved = tuple(n for n in [*arg_order, *results.values()] if n in read)
        ways.append(Derived(tuple(programs), outputs, zero, saved))
    return min(ways, key=lambda w: len(w.saved))  # min() returns the first of equals


def _one(
    program: Program, wanted: list[str], grads: dict[str, str], results: dict[str, str]
) -> tuple[Graph, dict[str, int]]:
    graph = Graph(relaxed=True)
    found, ids = gradients(program, grads, wanted, graph)
    table = {}
    for output in program.outputs:
        node = ids[output.node]
        if output.name in results and graph[node].op in NODE_OPS and output.type != BOOL:
            table[node] = graph.add(Node("input", output.type, name=results[output.name]))
    names = list(found)
    roots = _substitute(graph, [found[n] for n in names], table)
    live = {n: r for n, r in zip(names, roots) if not graph.is_const(r, 0.0)}
    return graph, live


def saved_by_output(programs: tuple[Program, ...]) -> list[frozenset[str]]:
    """Returns, for each output, the names of the inputs that it reads in any variant."""
    found: list[set[str]] = [set() for _ in programs[0].outputs]
    for program in programs:
        for names, output in zip(found, program.outputs):
            stack, visited = [output.node], {output.node}
            while stack:
                node = program.nodes[stack.pop()]
                if node.op == "input":
                    names.add(node.name)
                new = set(node.args) - visited
                visited |= new
                stack += new
    return [frozenset(names) for names in found]
