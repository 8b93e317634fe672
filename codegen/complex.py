"""Complex operands of bodies: which bodies take them, and their gradients.

A node of a program computes with complex values if the compute type of the call is complex (docs/records.md says what
each node means). One body therefore serves real and complex operands. Its derivative does not: by PyTorch's convention
the gradient of a holomorphic f is grad * conj(f'(x)), which is conj(conj(grad) * f'(x)). The program of the real
gradient, between conjugations of the incoming gradient and of the results, is thus that of the complex one.
"""

from __future__ import annotations

from dataclasses import replace

from codegen.graph import Graph, Node
from codegen.nodes import BOOL, COMPUTE
from codegen.program import Program, finish

# Node operations that are holomorphic functions, wherever they are differentiable.
HOLOMORPHIC = frozenset(
    "add sub mul div neg pow exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh sigmoid".split()
)
# Those that conditions may consist of.
CONDITIONS = frozenset("eq ne logical_and logical_or logical_xor logical_not isnan".split())
# Others with a meaning for complex values: abs gives |x|, sign x / |x|, and an order is that
# of the real parts, for conditions on magnitudes.
OTHERS = frozenset("abs sign conj_physical lt le gt ge".split())
MEANINGFUL = HOLOMORPHIC | CONDITIONS | OTHERS | {"where"}


def _operations(program: Program) -> set[str]:
    return {n.op for n in program.nodes if not n.is_leaf}


def without_meaning(programs: tuple[Program, ...]) -> list[str]:
    """Returns the operations of a body that complex values do not have."""
    return sorted(set().union(*(_operations(p) for p in programs)) - MEANINGFUL - {"cast"})


def is_holomorphic(program: Program) -> bool:
    """Returns whether the values that reach the outputs, other than by conditions, come from holomorphic functions."""
    stack = [o.node for o in program.outputs if o.type == COMPUTE]
    seen: set[int] = set()
    while stack:
        i = stack.pop()
        node = program.nodes[i]
        if i in seen or node.type == BOOL:
            continue
        seen.add(i)
        if not node.is_leaf and node.op not in HOLOMORPHIC and node.op not in ("where", "cast"):
            return False
        stack += node.args
    return True


def conjugated(program: Program, incoming: list[str]) -> Program:
    """Returns the gradient program for complex operands of a holomorphic body. `incoming`: the gradients' names."""
    graph = Graph(relaxed=True)
    ids: list[int] = []
    for node in program.nodes:
        new = graph.add(replace(node, args=tuple(ids[a] for a in node.args)))
        is_gradient = node.op == "input" and node.name in incoming
        ids.append(graph.add(Node("conj_physical", COMPUTE, (new,))) if is_gradient else new)
    outputs = [(o.name, graph.make("conj_physical", ids[o.node])) for o in program.outputs]
    order = [n.name for n in program.nodes if n.name]
    return finish(graph, program.name, outputs, order, variant=program.variant)
