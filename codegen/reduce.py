"""Reduce bodies: a fold over a pointwise step, and expressions of its state."""

from __future__ import annotations

import ast
from typing import Iterable

from codegen.expr import Body, Builder, Condition, Names, check_used, explore, number_variants
from codegen.graph import Graph, Node, TypeMismatch
from codegen.nodes import BOOL, COMPUTE
from codegen.program import FOLDS, Program, finish
from codegen.schema import Arg
from codegen.syntax import ExprError

_DIM_KINDS = {"int": "INT", "int?": "OPTIONAL_INT", "int[]": "LIST", "int[]?": "LIST"}


def _state_name(builder: Builder, node: ast.expr) -> str:
    """Returns the fold that `state:` names, selected by static conditions."""
    if isinstance(node, ast.IfExp):
        test = builder.static(node.test)
        if test is None:
            raise builder.error(node, "the state is chosen by conditions on non-tensor arguments only")
        return _state_name(builder, node.body if test else node.orelse)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "error":
        builder.value(node)
    if not isinstance(node, ast.Name) or node.id not in FOLDS:
        raise builder.error(node, "unknown state; there are " + ", ".join(FOLDS))
    return node.id


def _step(tree: ast.expr | None, args: tuple[Arg, ...]) -> ast.expr:
    """Returns the folded expression: by default, the only tensor argument."""
    if tree is not None:
        return tree
    tensors = [a.name for a in args if a.is_tensor]
    if len(tensors) != 1:
        raise ExprError("`step` may be left out only if there is one tensor argument")
    return ast.Name(id=tensors[0], ctx=ast.Load(), col_offset=0)


def build_reduce(
    name: str,
    record: dict[str, str | dict[str, str]],
    args: Iterable[Arg],
    types: dict[str, str],
    fields: list[str],
    names: Names = Names(),
) -> Body:
    """Builds a body from the keys state, step and final; `fields` are the output fields."""
    args = tuple(args)
    by_name = {a.name: a for a in args}
    state_tree = names.parse(record["state"])
    step_tree = _step(names.parse(record["step"]) if "step" in record else None, args)
    final = record.get("final")
    if final is not None and not isinstance(final, dict):
        final = {fields[0]: final}
    if final is not None and list(final) != fields:
        raise ExprError("`final` gives " + ", ".join(final) + "; the op returns " + ", ".join(fields))
    final_trees = {field: names.parse(text) for field, text in final.items()} if final else None

    dim = by_name.get("dim")
    kind = "ALL"
    if dim is not None:
        kind = _DIM_KINDS.get(dim.type_text, "")
        if not kind:
            raise ExprError(f"`dim` is {dim.type_text}; a reduction takes int, int?, int[] or int[]?")
    keepdim = by_name.get("keepdim")
    if keepdim is not None and keepdim.type_text != "bool":
        raise ExprError("`keepdim` is not bool")
    structural = [a.name for a in (dim, keepdim) if a is not None]
    visible = [a for a in args if a.name not in structural and a.type != "ScalarType"]
    used: set[str] = set()

    def build(known: dict[Condition, bool]) -> Program:
        graph = Graph()
        builder = Builder(graph, visible, types, known=known, absent=names.absent)
        try:
            state = _state_name(builder, state_tree)
            step = builder.value(step_tree)
            step = graph.cast(step, BOOL) if state in ("all", "any") else graph.number(step)
            builder.env = _components(graph, state, by_name)
            outputs = _final(graph, builder, state, final_trees, fields)
        except TypeMismatch as error:
            raise ExprError(str(error)) from None
        finally:
            used.update(builder.used)
        program = finish(
            graph,
            name,
            outputs,
            [a.name for a in args],
            fold=state,
            step=step,
            dim=dim.name if dim else "",
            dim_kind=kind,
            keepdim=keepdim.name if keepdim else "",
        )
        _check_final(program)
        return program

    programs, selector = explore(build, lambda p: p.text)
    check_used(visible, used)
    return Body(number_variants(programs), selector)


def _components(graph: Graph, state: str, args: dict[str, Arg]) -> dict[str, int]:
    names = {name: graph.add(Node("state", type_, component=i)) for i, (name, type_) in enumerate(FOLDS[state])}
    names["n"] = graph.add(Node("count", COMPUTE))
    if state in ("all", "any"):
        names[state] = names["result"]
    clash = sorted(set(names) & set(args))
    if clash:
        raise ExprError(f"`{clash[0]}` is both an argument and a part of the state")
    return names


def _final(
    graph: Graph, builder: Builder, state: str, trees: dict[str, ast.expr] | None, fields: list[str]
) -> list[tuple[str, int]]:
    if trees is not None:
        return [(field, builder.value(tree)) for field, tree in trees.items()]
    if state in ("welford", "logsumexp"):
        raise ExprError(
            f"state {state} needs a `final`: its components are " + ", ".join(name for name, _ in FOLDS[state])
        )
    if len(fields) != 1:
        raise ExprError("an op with several returns needs a `final` for each")
    return [(fields[0], graph.add(Node("state", FOLDS[state][0][1])))]


def _check_final(program: Program) -> None:
    stack = [o.node for o in program.outputs]
    while stack:
        node = program.nodes[stack.pop()]
        if node.op == "input":
            raise ExprError(f"`final` reads `{node.name}`; it sees the state, n and number arguments")
        stack += node.args
