"""Gradients of records: `grad: auto`, formulas in the body language, and formulas in ops."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Callable

from codegen.complex import conjugated, is_holomorphic
from codegen.differentiate import Derived, differentiate, saved_by_output
from codegen.expr import Body, build_pointwise
from codegen.formula import Save, merge_saves, parse_formula
from codegen.model import GradFormula, Gradient, GradOutput, Op, Result
from codegen.nodes import BOOL, COMPUTE, INDEX, NODE_OPS
from codegen.program import Program
from codegen.schema import REQUIRED, Arg, Return, Schema
from codegen.syntax import ExprError

NODE_TYPES = {"same": COMPUTE, "bool": BOOL, "index": INDEX}


@dataclass(frozen=True)
class Entry:
    """An entry `self, mat2: formula` of a record, or `arg: none` (with the text "none")."""

    args: tuple[str, ...]
    text: str
    line: int


# Their derivatives are written for complex operands, too, though they are not holomorphic.
_EXPLICIT = ("abs", "conj_physical")

Report = Callable[[int, str], None]


def gradient_names(results: tuple[Result, ...]) -> dict[str, str]:
    """Returns the name of the incoming gradient for each differentiable result, by the result's name."""
    differentiable = [r.name for r in results if r.differentiable]
    if len(differentiable) == 1:
        return {differentiable[0]: "grad"}
    return {name: f"grad_{name}" for name in differentiable}


def derived_name(schema: Schema) -> tuple[str, str]:
    """Returns (name, overload): add.Tensor has add_grad.Tensor, exp has exp_grad."""
    return f"{schema.name}_grad", schema.overload


def differentiable_args(schema: Schema, types: dict[str, str]) -> list[str]:
    return [a.name for a in schema.args if (a.is_tensor or a.is_tensor_list) and types[a.name] in ("same", "any")]


def _no_grad(schema: Schema, with_grad: list[str]) -> tuple[str, ...]:
    return tuple(a.name for a in schema.args if (a.is_tensor or a.is_tensor_list) and a.name not in with_grad)


# ---- pointwise: a derived op ---------------------------------------------------------------------


def derive_auto(op: Op) -> tuple[Gradient, Op | None]:
    """Derives the gradient of a pointwise op with `grad: auto`, and the derived op unless all gradients are zero."""
    assert op.body is not None
    wanted = differentiable_args(op.schema, op.types)
    by_result = gradient_names(op.results)
    grads = {r.field: by_result[r.name] for r in op.results if r.name in by_result}
    # An output of a fixed dtype is rounded to that dtype, so it cannot replace the computed value.
    results = {r.field: r.name for r in op.results if r.differentiable and not r.dtype}
    found = differentiate(op.body, "", wanted, grads, results, [a.name for a in op.schema.args])
    return _derived(op, found, op.body.selector, list(grads.values()), wanted)


def derive_formulas(op: Op, entries: list[Entry], report: Report) -> tuple[Gradient, Op | None]:
    """Builds the same kind of derived op from formulas in the body language."""
    texts: dict[str, str] = {}
    lines: dict[str, int] = {}
    for entry in entries:
        if len(entry.args) != 1:
            report(entry.line, "a pointwise op gives one formula for each argument")
        elif entry.text != "none":
            arg, text = entry.args[0], entry.text
            texts[arg] = f"0 if {arg} is None else ({text})" if arg in op.names.absent else text
            lines[arg] = entry.line
    incoming = list(gradient_names(op.results).values())
    extra = [Arg(name, "Tensor") for name in incoming]
    extra += [Arg(r.name, "Tensor") for r in op.results]
    types = {a: NODE_TYPES[t] for a, t in op.types.items()}
    types |= {r.name: BOOL for r in op.results if r.dtype == "bool"}
    args = [*extra[: len(incoming)], *op.schema.args, *extra[len(incoming) :]]

    def build(some: dict[str, str], calls: bool = False) -> Body:
        flags = {"relaxed": True, "as_number": True, "unused_ok": True, "calls": calls}
        return build_pointwise("", some, args, types, op.names, **flags)

    bad = False
    for arg, text in texts.items():  # build each formula separately, so that an error names its line
        try:
            build({arg: text})
        except ExprError as error:
            report(lines[arg], f"grad of `{arg}`, {error}")
            bad = True
    if bad or not texts:
        return Gradient("none"), None
    body = build(texts)
    zero = tuple(a for i, a in enumerate(texts) if all(_is_zero(p, i) for p in body.variants))
    outputs = tuple(a for a in texts if a not in zero)
    programs = body.variants
    if zero and outputs:
        body = build({a: texts[a] for a in outputs})
        programs = body.variants
    read = {n.name for p in programs for n in p.inputs} - set(incoming)
    saved = tuple(a.name for a in args if a.name in read)
    calls = build({a: texts[a] for a in outputs}, True).variants if outputs else ()
    calls = calls if any(_calls(p) for p in calls) else ()
    return _derived(op, Derived(programs, outputs, zero, saved), body.selector, incoming, list(texts), calls)


def _calls(program: Program) -> bool:
    return any(not n.is_leaf and n.op != "cast" and n.op not in NODE_OPS for n in program.nodes)


def _is_zero(program: Program, output: int) -> bool:
    node = program.nodes[program.outputs[output].node]
    return node.op == "const" and node.value == 0


def _derived(
    op: Op, found: Derived, selector: object, incoming: list[str], wanted: list[str], calls: tuple[Program, ...] = ()
) -> tuple[Gradient, Op | None]:
    no_grad = _no_grad(op.schema, wanted)
    if not found.outputs:
        return Gradient("derived", zero=found.zero, no_grad=no_grad), None
    fields = ["out"] if len(found.outputs) == 1 else [f"grad_{a}" for a in found.outputs]
    name, overload = derived_name(op.schema)
    full_name = f"{name}.{overload}" if overload else name

    def named(variants: tuple[Program, ...]) -> tuple[Program, ...]:
        return tuple(
            replace(p, name=full_name, variant=i, outputs=tuple(replace(o, name=f) for o, f in zip(p.outputs, fields)))
            for i, p in enumerate(variants)
        )

    programs = named(found.programs)
    body = Body(programs, selector)
    read = {n.name for p in programs for n in p.inputs}
    incoming = [g for g in incoming if g in read]  # nothing depends on the other gradients
    asked = {c.arg for c in body.conditions}
    numbers = [
        a
        for a in op.schema.args
        if not a.is_tensor and (a.name in asked or any(a.name == n.name for p in programs for n in p.scalars))
    ]
    results = {r.name: r for r in op.results}
    saved = [a.name for a in op.schema.args if a.is_tensor and (a.name in found.saved or a.name in asked)]
    saved += [name for name in found.saved if name in results]

    args = [Arg(g, "Tensor") for g in incoming]
    args += [Arg(s, "Tensor") if s in results else _plain(op.schema.arg(s)) for s in saved]
    args += [_plain(a) for a in numbers]
    returns = tuple(Return("Tensor", "" if len(fields) == 1 else f) for f in fields)
    schema = Schema(name, overload, tuple(args), returns)
    types = {g: "same" for g in incoming}
    types |= {s: op.types.get(s) or ("bool" if results[s].dtype == "bool" else "same") for s in saved}

    reads = saved_by_output(programs)
    outputs = tuple(
        GradOutput(
            arg,
            fields[i],
            tuple(s for s in saved if s in reads[i] or s in asked),
            all(
                p.nodes[p.outputs[i].node].op == "input" and p.nodes[p.outputs[i].node].name in incoming
                for p in programs
            ),
        )
        for i, arg in enumerate(found.outputs)
    )
    gradient = Gradient(
        "derived",
        full_name,
        outputs,
        (),
        found.zero,
        no_grad,
        tuple(Save(s, True) for s in saved),
        tuple(a.name for a in numbers),
    )
    doc = (
        f"The gradient of `{op.full_name}`: "
        + ", ".join(f"`{f}` with respect to `{a}`" for a, f in zip(found.outputs, fields))
        + "."
    )
    # Under `first`, the incoming gradient, which comes first, has the dtype of the first argument.
    promote = "first" if op.promote == "first" else "same"
    takes_complex = op.takes_complex
    complex_variants: tuple[Program, ...] = ()
    if takes_complex and op.full_name not in _EXPLICIT:
        if all(is_holomorphic(p) for p in op.body.variants):
            complex_variants = tuple(conjugated(p, incoming) for p in programs)
        else:
            takes_complex = False
    derived = Op(
        schema,
        doc,
        op.path,
        op.line,
        "pointwise",
        body=body,
        promote=promote,
        types=types,
        results=tuple(Result(f, "result" if len(fields) == 1 else f, "", True) for f in fields),
        grad=Gradient("decompose"),
        tolerance=dict(op.tolerance),
        backward_stable=op.backward_stable,
        derived=True,
        parent=op.full_name,
        takes_complex=takes_complex,
        complex_variants=complex_variants,
        call_variants=named(calls),
    )
    return gradient, derived


def _plain(arg: Arg) -> Arg:
    return replace(arg, kw_only=False, default=REQUIRED, alias=None)


# ---- formulas in ops -------------------------------------------------------------------------------


def formula_names(op: Op) -> tuple[set[str], set[str]]:
    """Returns (the names that a gradient formula may use, the tensors among them, which may be saved)."""
    tensors = {a.name for a in op.schema.args if a.is_tensor or a.is_tensor_list}
    tensors |= {r.name for r in op.results if r.field}
    names = {a.name for a in op.schema.args} | {r.name for r in op.results}
    names |= {"grads"} | {f"grad_{r.name}" for r in op.results if r.differentiable and r.name != "result"}
    if sum(r.differentiable for r in op.results) == 1 and not any(r.list for r in op.schema.returns):
        names.add("grad")
    return names, tensors


def formulas(op: Op, entries: list[Entry], report: Report) -> Gradient:
    """Checks the formulas of a record that is not pointwise."""
    names, tensors = formula_names(op)
    found = []
    for entry in entries:
        if entry.text == "none":
            continue
        joint = {"wanted"} if len(entry.args) > 1 else set()
        try:
            formula = parse_formula(entry.text, names | joint, tensors)
        except ExprError as error:
            report(entry.line, f"grad of `{', '.join(entry.args)}`: {error}")
            continue
        if len(entry.args) > 1 and isinstance(formula.tree, ast.Tuple) and len(formula.tree.elts) != len(entry.args):
            report(entry.line, f"grad of `{', '.join(entry.args)}`: gives {len(formula.tree.elts)} values")
        found.append(GradFormula(entry.args, formula, formula.uses))
    with_grad = [a for f in found for a in f.args]
    used = {n for f in found for n in f.formula.names}
    numbers = tuple(a.name for a in op.schema.args if a.name in used and a.name not in tensors)
    return Gradient(
        "formulas",
        formulas=tuple(found),
        no_grad=_no_grad(op.schema, with_grad),
        saves=merge_saves(f.saves for f in found),
        numbers=numbers,
    )
