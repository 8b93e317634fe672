"""The autograd wrapper and backward node of every differentiable operator."""

from __future__ import annotations

import ast

from codegen import cpp, emit_api
from codegen.formula_cpp import Translator, fact
from codegen.model import GradFormula, Op
from codegen.schema import REQUIRED, Arg

INCLUDES = """\
#include <limits>

#include "autograd/generated.h"
#include "mytorch/ops/t.h"
#include "mytorch/ops/transpose.h"
#include "ops/gradients.h"
"""


def node_name(op: Op) -> str:
    """AddBackward: what people see."""
    return "".join(part.capitalize() for part in op.schema.cpp_name.split("_") if part) + "Backward"


def node_type(op: Op) -> str:
    return f"Node_{op.schema.struct_id}"


def edge_args(op: Op) -> list[Arg]:
    """Tensor arguments with an edge, in schema order; the written one first."""
    g = op.grad
    named = {o.arg for o in g.outputs} | {a for f in g.formulas for a in f.args} | set(g.zero)
    w = cpp.written(op.schema)
    found = [a for a in op.schema.args if (a.is_tensor or a.is_tensor_list) and a.name in named]
    if w is not None and w not in found:
        found.insert(0, w)
    return found


def edge_index(op: Op, name: str) -> str:
    """Edge number as an expression; past a list it depends on the list's length."""
    fixed, lists = 0, []
    for a in edge_args(op):
        if a.name == name:
            return " + ".join([str(fixed), *lists])
        if a.is_tensor_list:
            lists.append(f"{a.name}_len")
        else:
            fixed += 1
    raise KeyError(name)


def num_edges(op: Op) -> str:
    fixed = sum(1 for a in edge_args(op) if not a.is_tensor_list)
    return " + ".join(
        [str(fixed), *(f"static_cast<uint32_t>({a.name}.size())" for a in edge_args(op) if a.is_tensor_list)]
    )


class Formulas(Translator):
    """C++ of the gradient formulas of one op: over incoming gradients and what its node keeps."""

    def __init__(self, op: Op, operators: dict[str, list[Op]]):
        super().__init__(op, operators)
        self.saves = {s.name: s for s in op.grad.saves}
        self.args = {a.name: a for a in op.schema.args}
        self.rets = [r.name for r in op.results]

    def grad_index(self, name: str) -> int | None:
        if name in self.args:
            return None
        if name == "grad":
            return next(i for i, r in enumerate(self.op.results) if r.differentiable)
        if name.startswith("grad_") and name[5:] in self.rets:
            return self.rets.index(name[5:])
        return None

    def incoming(self, tree: ast.expr) -> set[int]:
        """Which incoming gradients a tree reads."""
        found: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and self.grad_index(node.id) is not None:
                found.add(self.grad_index(node.id))
            elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "grads":
                found.add(int(node.slice.value))
        return found

    def name(self, id: str) -> str:
        index = self.grad_index(id)
        return super().name(id) if index is None else f"grads[{index}]"

    def fact(self, name: str, asked: str) -> str | None:
        index = self.grad_index(name)
        if index is not None:
            return fact(f"grads[{index}]", asked)
        if name not in self.saves:
            return f"is_given({name})" if asked == "defined" else None
        is_list = name in self.args and self.args[name].is_tensor_list
        if self.saves[name].value:
            return fact(name, asked, is_list)
        return {
            "shape": f"{name}_shape_" if is_list else f"as_list({name}_shape_)",
            "strides": f"as_list({name}_strides_)",
        }.get(asked, f"{name}_{asked}_")


# ---- what a node keeps --------------------------------------------------------------------------------

_META_TYPES = {
    "shape": "Dims",
    "strides": "Dims",
    "dtype": "ScalarType",
    "device": "Device",
    "ndim": "int64_t",
    "numel": "int64_t",
    "len": "int64_t",
    "defined": "bool",
}


def is_output(op: Op, name: str) -> bool:
    return name not in {a.name for a in op.schema.args}


def output_number(op: Op, name: str) -> int:
    return [r.name for r in op.results].index(name)


def members(op: Op) -> list[str]:
    args = {a.name: a for a in op.schema.args}
    lines = []
    for save in op.grad.saves:
        if save.value:
            kind = "SavedTensor"
            if save.name in args and args[save.name].is_tensor_list:
                kind = "SavedTensorList"
            elif save.name in args and args[save.name].type == "Operand":
                kind = "SavedOperand"
            lines.append(f"  {kind} {save.name}_;")
        else:
            for fact in sorted(save.meta):
                kind = _META_TYPES[fact]
                if fact == "shape" and save.name in args and args[save.name].is_tensor_list:
                    kind = "std::vector<Dims>"
                lines.append(f"  {kind} {save.name}_{fact}_{{}};")
    for name in op.grad.numbers:
        lines.append(f"  {cpp.value_type(args[name])} {name}_{{}};")
    for a in edge_args(op):
        if a.is_tensor_list:
            lines.append(f"  uint32_t {a.name}_len = 0;")
    return lines


def readers(op: Op, name: str) -> list[str]:
    """The arguments whose gradient reads a saved value."""
    found = [o.arg for o in op.grad.outputs if name in o.saves]
    for f in op.grad.formulas:
        if any(s.name == name for s in f.saves):
            found += f.args
    return found


def save_statements(op: Op, result: str, inplace: bool, outputs: bool) -> list[str]:
    """Statements that fill the node's members; `outputs`: those that are results of the op."""
    args = {a.name: a for a in op.schema.args}
    w = cpp.written(op.schema)
    target = "self" if inplace and w is None else (w.name if w is not None else "")
    lines = []
    for save in op.grad.saves:
        if is_output(op, save.name) != outputs:
            continue
        if is_output(op, save.name):
            i = output_number(op, save.name)
            source = result if len(op.results) == 1 else f"std::get<{i}>({result})"
        else:
            source = save.name
        if save.value:
            if outputs and output_number(op, save.name) not in read_gradients(op):
                value = f"SavedTensor({source})"  # has no history, so no cycle
            elif outputs:
                value = f"SavedTensor::output({source}, node.get(), {output_number(op, save.name)})"
            elif args[save.name].is_tensor_list:
                value = f"SavedTensorList({source})"
            else:
                kind = "SavedOperand" if args[save.name].type == "Operand" else "SavedTensor"
                value = f"{kind}::before_write({source}, {target})" if target else f"{kind}({source})"
            conditions = [
                f"node->has_edge({edge_index(op, a)})" for a in readers(op, save.name) if not args[a].is_tensor_list
            ]
            # An optional argument is always saved: whether it is there chooses the body.
            optional = save.name in args and args[save.name].optional
            guard = (
                f"if ({' || '.join(conditions)}) "
                if conditions and not optional and len(conditions) == len(readers(op, save.name))
                else ""
            )
            lines.append(f"    {guard}node->{save.name}_ = {value};")
        else:
            for fact in sorted(save.meta):
                is_list = save.name in args and args[save.name].is_tensor_list
                value = {
                    "shape": f"shapes_of({source})" if is_list else f"shape_of({source})",
                    "strides": f"to_dims({source}.strides())",
                    "dtype": f"dtype_of({source})",
                    "device": f"device_of({source})",
                    "ndim": f"ndim_of({source})",
                    "numel": f"numel_of({source})",
                    "len": f"static_cast<int64_t>({source}.size())",
                    "defined": f"is_given({source})",
                }[fact]
                lines.append(f"    node->{save.name}_{fact}_ = {value};")
    if not outputs:
        for name in op.grad.numbers:
            lines.append(f"    node->{name}_ = keep({name});")
    return lines


def number_locals(op: Op, names: list[str]) -> list[str]:
    """Locals of the parameters' own types from the kept values."""
    args = {a.name: a for a in op.schema.args}
    return [f"    [[maybe_unused]] const auto {n} = given<{cpp.arg_type(args[n])}>({n}_);" for n in names]


# ---- apply ------------------------------------------------------------------------------------------


def unpack(op: Op, placeholder: str) -> list[str]:
    args = {a.name: a for a in op.schema.args}
    lines = []
    for save in op.grad.saves:
        if not save.value:
            continue
        n = save.name
        if n in args and args[n].is_tensor_list:
            lines.append(f"    const std::vector<Tensor> {n} = {n}_.unpack(this);")
        elif n in args and args[n].type == "Operand":
            stand_in = f", {placeholder}" if placeholder and not args[n].optional else ""
            lines += [
                f"    const UnpackedOperand {n}_unpacked({n}_, this{stand_in});",
                f"    [[maybe_unused]] const Operand {n} = {n}_unpacked.operand();",
            ]
        elif placeholder and not (n in args and args[n].optional):
            lines.append(f"    const Tensor {n} = {n}_.defined() ? {n}_.unpack(this) : {placeholder};")
        else:
            lines.append(f"    const Tensor {n} = {n}_.defined() ? {n}_.unpack(this) : Tensor();")
    return lines


def apply_derived(op: Op, ops: dict[str, Op]) -> list[str]:
    g = op.grad
    lines = []
    for name in g.zero:
        e = edge_index(op, name)
        lines.append(
            f"    if (wants({e})) out[{e}] = zero_gradient(this, {e}, *given_gradient(grads, {len(op.results)}));"
        )
    if not g.derived:
        return lines
    d = ops[g.derived]
    rets = [r.name for r in op.results]
    identity = [o for o in g.outputs if o.identity]
    computed = {o.arg for o in g.outputs if not o.identity}
    for o in identity:
        e = edge_index(op, o.arg)
        lines.append(f"    if (wants({e})) out[{e}] = grads[0];")
    if not computed:
        return lines
    order = [next(o for o in g.outputs if o.field == f) for f in d.schema.output_fields]
    lines.append(
        f"    const bool wanted[{len(order)}] = {{"
        + ", ".join("false" if o.identity else f"wants({edge_index(op, o.arg)})" for o in order)
        + "};"
    )
    lines.append("    if (!(" + " || ".join(f"wanted[{i}]" for i in range(len(order))) + ")) return;")
    lines.append(f"    [[maybe_unused]] const Tensor& some = *given_gradient(grads, {len(op.results)});")
    lines += unpack(op, "some")
    lines += number_locals(op, list(g.numbers))
    call = ["wanted"]
    for a in d.schema.args:
        if a.name == "grad" and "grad" not in {x.name for x in op.schema.args}:
            call.append("grads[0]")
        elif a.name.startswith("grad_") and a.name[5:] in rets:
            i = rets.index(a.name[5:])
            call.append(f"(grads[{i}].defined() ? grads[{i}] : zeros_for({i}))")
        else:
            call.append(a.name)
    lines.append(f"    auto results = Layered<ops::{d.schema.struct_id}, kFunction>::call({', '.join(call)});")
    for i, o in enumerate(order):
        if o.identity:
            continue
        e = edge_index(op, o.arg)
        source = "results" if len(order) == 1 else f"std::get<{i}>(results)"
        lines.append(f"    if (wanted[{i}]) out[{e}] = std::move({source});")
    return lines


def apply_formulas(op: Op, names: dict[str, list[Op]]) -> list[str]:
    f = Formulas(op, names)
    lines = unpack(op, "")
    lines += number_locals(op, list(op.grad.numbers))
    used: dict[int, int] = {}
    for formula in op.grad.formulas:
        for i in f.incoming(formula.formula.tree):
            used[i] = used.get(i, 0) + 1
    for name in op.grad.zero:
        e = edge_index(op, name)
        lines.append(
            f"    if (wants({e})) out[{e}] = zero_gradient(this, {e}, *given_gradient(grads, {len(op.results)}));"
        )
    for formula in op.grad.formulas:
        lines += one_formula(op, f, formula)
    return lines


def one_formula(op: Op, f: Formulas, formula: GradFormula) -> list[str]:
    args = {a.name: a for a in op.schema.args}
    text = f.cpp(formula.formula.tree)
    incoming = sorted(f.incoming(formula.formula.tree))
    edges = [edge_index(op, a) for a in formula.args]
    is_list = len(formula.args) == 1 and args[formula.args[0]].is_tensor_list
    lines = []
    if is_list:
        n = formula.args[0]
        condition = f"wants_any(this, {edges[0]}, {n}_len)"
    else:
        condition = " || ".join(f"wants({e})" for e in edges)
    if len(incoming) == 1 and len(op.results) > 1:
        condition = f"grads[{incoming[0]}].defined() && ({condition})"
    lines.append(f"    if ({condition}) {{")
    if len(incoming) > 1:
        lines += [f"      if (!grads[{i}].defined()) grads[{i}] = zeros_for({i});" for i in incoming]
    if is_list:
        lines += [
            f"      std::vector<Tensor> results = {text};",
            f"      for (uint32_t i = 0; i < {n}_len; ++i) {{",
            f"        if (wants({edges[0]} + i)) out[{edges[0]} + i] = std::move(results[i]);",
            "      }",
        ]
    elif len(edges) == 1:
        lines.append(f"      out[{edges[0]}] = {text};")
    else:
        lines.append(f"      [[maybe_unused]] const bool wanted[] = {{{', '.join(f'wants({e})' for e in edges)}}};")
        lines.append(f"      auto results = {text};")
        for i, e in enumerate(edges):
            lines.append(f"      if (wanted[{i}]) out[{e}] = std::move(std::get<{i}>(results));")
    lines.append("    }")
    return lines


def node(op: Op, ops: dict[str, Op], names: dict[str, list[Op]]) -> list[str]:
    g = op.grad
    released = [s.name for s in g.saves if s.value]
    lines = [
        f"struct alignas(16) {node_type(op)} final : GeneratedNode {{",
        *members(op),
        f"  const char* name() const override {{ return {cpp.text(node_name(op))}; }}",
        "  void apply([[maybe_unused]] Tensor* grads, [[maybe_unused]] Tensor* out) override {",
    ]
    lines += apply_derived(op, ops) if g.kind == "derived" else apply_formulas(op, names)
    lines.append("  }")
    if released:
        lines.append("  void release_saved() override {")
        lines += [f"    {n}_.release();" for n in released]
        lines.append("  }")
    return lines + ["};", ""]


# ---- wrappers ---------------------------------------------------------------------------------------


def refusals(op: Op) -> list[str]:
    """An argument that has no gradient must not want one: nothing is silently without gradient."""
    w = cpp.written(op.schema)
    return [
        f"    refuse_gradient({a.name}, {cpp.text(op.schema.cpp_name)}, {cpp.text(a.name)});"
        for a in op.schema.args
        if a.name in op.grad.no_grad
        and a is not w
        and not a.is_tensor_list
        and op.types.get(a.name) != "bool"
        and op.types.get(a.name) != "index"
    ]


def make_node(op: Op) -> list[str]:
    results = (
        "static_cast<uint32_t>(result.size())"
        if op.schema.returns and op.schema.returns[0].list
        else str(len(op.results))
    )
    lines = [f"    node = make_node<{node_type(op)}>({num_edges(op)}, {results});"]
    for a in edge_args(op):
        if a.is_tensor_list:
            lines.append(f"    node->{a.name}_len = static_cast<uint32_t>({a.name}.size());")
    for a in edge_args(op):
        e = edge_index(op, a.name).replace("_len", "_len")
        e = " + ".join(p if p.isdigit() else f"node->{p}" for p in e.split(" + "))
        lines.append(f"    node->{'edges_from' if a.is_tensor_list else 'edge'}({e}, {a.name});")
    return lines


def read_gradients(op: Op) -> set[int]:
    """The results whose incoming gradient some formula reads; the others require none."""
    every = set(range(len(op.results)))
    if op.grad.kind != "formulas" or any("grads" in f.formula.names for f in op.grad.formulas):
        return every
    f = Formulas(op, {})
    return set().union(*(f.incoming(x.formula.tree) for x in op.grad.formulas)) or every


def wrappers(op: Op) -> list[str]:
    s = op.schema
    args = cpp.names(s.args)
    wants = ", ".join(a.name for a in edge_args(op))
    w = cpp.written(s)
    lines = []

    def inplace(name: str, form: str, self: str) -> None:
        lines.extend(
            [
                f"const Tensor& {name}({cpp.params(s.args)}) {{",
                f"  NodePtr<{node_type(op)}> node;",
                f"  if (any_requires_grad_write({self}, {wants})) {{",
                f"    check_inplace({self}, {cpp.text(s.cpp_name if w else s.cpp_name + '_')});",
                *make_node(op),
                *save_statements(op, self, True, False),
                "  }",
                f"  Layered<ops::{s.struct_id}, {form}>::next<kLayerAutograd>({args});",
                "  if (node) {",
                f"    rebase_history({self}, node);",
                *save_statements(op, self, True, True),
                "  }",
                f"  return {self};",
                "}",
                "",
            ]
        )

    if w is not None:
        inplace(f"wrap_{s.struct_id}", "kFunction", w.name)
        return lines
    result = cpp.return_type(s)
    lines += [
        f"{result} wrap_{s.struct_id}({cpp.params(s.args)}) {{",
        f"  {result} result = Layered<ops::{s.struct_id}, kFunction>::next<kLayerAutograd>({args});",
        f"  if (any_requires_grad({wants})) {{",
        *refusals(op),
        f"    NodePtr<{node_type(op)}> node;",
        *make_node(op),
        *save_statements(op, "result", False, False),
    ]
    read = read_gradients(op)
    if op.meaning == "view":
        lines.append(f"    as_view(result, {s.args[0].name}, node);")
    elif s.returns and s.returns[0].list:
        lines.append(
            "    for (size_t i = 0; i < result.size(); ++i) set_history(result[i], node, static_cast<uint32_t>(i));"
        )
    else:
        for i, r in enumerate(op.results):
            source = "result" if len(op.results) == 1 else f"std::get<{i}>(result)"
            if s.returns[i].type == "Tensor" and r.differentiable and i in read:
                lines.append(f"    set_history({source}, node, {i});")
    lines += [*save_statements(op, "result", False, True), "  }", "  return result;", "}", ""]
    if cpp.has_inplace(op):
        inplace(f"wrap_inplace_{s.struct_id}", "kInplace", "self")
    return lines


def has_wrapper(op: Op) -> bool:
    return not op.derived and op.grad.kind in ("derived", "formulas")


def emit(ops: list[Op], buckets: dict[int, list[Op]]) -> dict[str, str]:
    files = {}
    by_full = {op.full_name: op for op in ops}
    names: dict[str, list[Op]] = {}
    for op in ops:
        names.setdefault(op.schema.cpp_name, []).append(op)
    installers = []
    for number, group in buckets.items():
        found = [op for op in group if has_wrapper(op) or op.derived]
        if not found:
            continue
        calls = {c for op in found for f in op.grad.formulas for c in f.formula.calls if c in names}
        below = found + [by_full[op.grad.derived] for op in found if op.grad.kind == "derived" and op.grad.derived]
        lines = [cpp.BANNER.strip(), INCLUDES.strip(), *emit_api.below_includes(below)]
        lines += [f'#include "mytorch/ops/{c}.h"' for c in sorted(calls)]
        lines += ["", "namespace mytorch {"]
        lines += ["namespace autograd {", "namespace {", ""]
        for op in found:
            if not op.derived:
                lines += node(op, by_full, names) + wrappers(op)
        lines += ["}  // namespace", "", f"void install_{number:02d}() {{"]
        for op in found:
            sid = op.schema.struct_id
            wrapper = f"Decomposed<ops::{sid}>::call" if op.derived else f"wrap_{sid}"
            lines.append(f"  Layered<ops::{sid}, kFunction>::wrap<kLayerAutograd>({wrapper});")
            if not op.derived and cpp.has_inplace(op):
                lines.append(f"  Layered<ops::{sid}, kInplace>::wrap<kLayerAutograd>(wrap_inplace_{sid});")
        lines += ["}", "", "}  // namespace autograd", "}  // namespace mytorch", ""]
        files[f"autograd/autograd_{number:02d}.cpp"] = "\n".join(lines)
        installers.append(f"install_{number:02d}")
    files["autograd/install.cpp"] = "\n".join(
        [
            cpp.BANNER.strip(),
            "namespace mytorch::autograd {",
            *[f"void {i}();" for i in installers],
            "// Fills autograd's column of the operator table.",
            "void install_wrappers() {",
            *[f"  {i}();" for i in installers],
            "}",
            "}  // namespace mytorch::autograd",
            "",
        ]
    )
    return files
