"""Programs: the serialized single-assignment form of one body, as in abi.h's mt_program."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from codegen.graph import Graph, Node
from codegen.nodes import BOOL, COMPUTE, INDEX, NODE_OPS
from codegen.schema import fnv1a

# The folds of reduce bodies: the components of their states, in ABI order, with types.
FOLDS: dict[str, tuple[tuple[str, str], ...]] = {
    "sum": (("sum", COMPUTE),),
    "prod": (("prod", COMPUTE),),
    "max": (("max", COMPUTE),),
    "min": (("min", COMPUTE),),
    "argmax": (("index", INDEX), ("value", COMPUTE)),
    "argmin": (("index", INDEX), ("value", COMPUTE)),
    "all": (("result", BOOL),),
    "any": (("result", BOOL),),
    "welford": (("count", COMPUTE), ("mean", COMPUTE), ("m2", COMPUTE)),
    "logsumexp": (("max", COMPUTE), ("sum", COMPUTE)),
}


@dataclass(frozen=True)
class Output:
    """`name` is the field of the argument struct."""

    name: str
    node: int
    type: str


@dataclass(frozen=True)
class Program:
    """Node k computes value k from values before it; inputs come first, in the schema's order.

    fold: "" for pointwise programs. step: the node folded. dim, keepdim: fields of the argument
    struct, "" if the op has none. dim_kind: LIST, INT, OPTIONAL_INT or ALL, as MT_DIM_*.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    variant: int = 0
    fold: str = ""
    step: int = -1
    dim: str = ""
    dim_kind: str = "ALL"
    keepdim: str = ""

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.op == "input")

    @property
    def scalars(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.op == "scalar")

    @property
    def text(self) -> str:
        """Returns one line for each node, without name and variant; equal texts are equal programs."""
        lines = []
        for i, n in enumerate(self.nodes):
            words = [f"%{i} = {n.op}:{n.type.lower()}"] + [f"%{a}" for a in n.args]
            if n.op in ("input", "scalar"):
                words.append(n.name + (f":{n.field.lower()}" if n.field else ""))
            elif n.op == "const":
                words.append(n.value.hex())
            elif n.op == "state":
                words.append(str(n.component))
            lines.append(" ".join(words))
        if self.fold:
            lines.append(
                f"fold {self.fold} %{self.step} dim={self.dim}:{self.dim_kind.lower()} " f"keepdim={self.keepdim}"
            )
        lines += [f"out {o.name} = %{o.node}" for o in self.outputs]
        return "\n".join(lines) + "\n"

    @property
    def hash(self) -> int:
        return fnv1a(self.text)


def finish(
    graph: Graph,
    name: str,
    outputs: list[tuple[str, int]],
    arg_order: list[str],
    *,
    variant: int = 0,
    fold: str = "",
    step: int = -1,
    dim: str = "",
    dim_kind: str = "ALL",
    keepdim: str = "",
) -> Program:
    """Keeps the nodes that the outputs and the step need: inputs first, then scalars, constants and the rest."""
    needed: set[int] = set()
    stack = [node for _, node in outputs] + ([step] if fold else [])
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += graph[node].args
    rank = {"input": 0, "scalar": 1, "const": 2}
    position = {arg: i for i, arg in enumerate(arg_order)}

    def order(node: int) -> tuple:
        found = graph[node]
        return rank.get(found.op, 3), position.get(found.name, -1), node

    ordered = sorted(needed, key=order)
    number = {old: new for new, old in enumerate(ordered)}
    nodes = tuple(replace(graph[n], args=tuple(number[a] for a in graph[n].args)) for n in ordered)
    ends = tuple(Output(field, number[node], graph.type(node)) for field, node in outputs)
    return Program(name, nodes, ends, variant, fold, number[step] if fold else -1, dim, dim_kind, keepdim)


# ---- evaluation ----------------------------------------------------------------------------------


def _run(program: Program, values: dict[int, object], integer: bool, wanted: set[int]) -> None:
    """Computes the wanted nodes that `values` lacks and that do not depend on the reduced state."""
    for i, node in enumerate(program.nodes):
        if i in values or i not in wanted:
            continue
        if node.op == "const":
            whole = node.type == INDEX or (integer and node.value.is_integer())
            values[i] = bool(node.value) if node.type == BOOL else int(node.value) if whole else node.value
        elif node.op == "cast":
            value = values[node.args[0]]
            values[i] = bool(value != 0) if node.type == BOOL else int(value) if integer else float(value)
        else:
            values[i] = NODE_OPS[node.op].evaluate(*(values[a] for a in node.args))


def _closure(program: Program, roots: list[int]) -> set[int]:
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += program.nodes[node].args
    return seen


def _leaf_value(node: Node, value: object, integer: bool) -> object:
    if node.type == BOOL:
        return bool(value)
    return int(value) if integer or node.type == INDEX else float(value)


def _better(fold: str, value, best) -> bool:
    if best != best:
        return False
    return value != value or (value > best if fold.endswith("max") else value < best)


def _fold(fold: str, items: list) -> tuple:
    """Returns the components of the state after all items, naively and in order."""
    if fold == "sum":
        return (math.fsum(items) if all(map(math.isfinite, items)) else sum(items),)
    if fold == "prod":
        return (math.prod(items),)
    if fold in ("all", "any"):
        return (all(items) if fold == "all" else any(items),)
    if fold in ("max", "min", "argmax", "argmin"):
        index = 0
        for i, value in enumerate(items):
            if i and _better(fold, value, items[index]):
                index = i
        return (index, items[index]) if fold.startswith("arg") else (items[index],)
    if fold == "welford":
        mean = sum(items) / len(items) if items else 0.0
        return float(len(items)), mean, sum((v - mean) ** 2 for v in items)
    if fold == "logsumexp":
        top = _fold("max", items)[0] if items else -math.inf
        if not math.isfinite(top):  # exp(inf - inf) would be NaN, so each item equal to top counts as one
            return top, math.nan if top != top else float(sum(v == top for v in items))
        return top, math.fsum(math.exp(v - top) for v in items)
    raise KeyError(fold)


def evaluate(program: Program, inputs: dict[str, object], integer: bool = False) -> dict[str, object]:
    """Computes a program on Python numbers: doubles, or exact integers if `integer`.

    A pointwise program takes a number for each input and scalar. A reduce program takes a list for
    each input (a number is repeated), reduces all of it, and takes numbers for scalars.
    """
    if not program.fold:
        values = {
            i: _leaf_value(n, inputs[n.name], integer)
            for i, n in enumerate(program.nodes)
            if n.op in ("input", "scalar")
        }
        _run(program, values, integer, _closure(program, [o.node for o in program.outputs]))
        return {o.name: values[o.node] for o in program.outputs}

    before = _closure(program, [program.step])
    lists = {n.name: inputs[n.name] for n in program.inputs}
    count = max(len(v) for v in lists.values() if isinstance(v, (list, tuple)))
    items = []
    for k in range(count):
        values = {}
        for i, n in enumerate(program.nodes):
            if n.op in ("input", "scalar"):
                given = inputs[n.name]
                given = given[k] if isinstance(given, (list, tuple)) else given
                values[i] = _leaf_value(n, given, integer)
        _run(program, values, integer, before)
        items.append(values[program.step])
    state = _fold(program.fold, items)
    values = {}
    for i, n in enumerate(program.nodes):
        if n.op == "state":
            values[i] = state[n.component]
        elif n.op == "count":
            values[i] = count if integer else float(count)
        elif n.op == "scalar":
            values[i] = _leaf_value(n, inputs[n.name], integer)
    _run(program, values, integer, _closure(program, [o.node for o in program.outputs]))
    return {o.name: values[o.node] for o in program.outputs}
