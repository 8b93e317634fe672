"""The backward node of every differentiable operator: data for autograd/recording.h, and gradient formulas. The policy
of every operator that autocast changes: data for autograd/autocast/wrappers.h."""

from __future__ import annotations

import ast

from codegen import cpp, emit_api
from codegen.autocast import is_masked
from codegen.formula import Save
from codegen.formula_cpp import Translator, fact
from codegen.lock import Lock
from codegen.model import GradFormula, Op
from codegen.schema import Arg

# recording.h is first: the generic layer_flags of layers.h, if declared before, would take over its calls.
INCLUDES = """\
#include <limits>

#include "autograd/recording.h"
#include "autograd/autocast/wrappers.h"
#include "mytorch/ops/t.h"
#include "mytorch/ops/transpose.h"
#include "ops/gradients.h"
"""


def node_name(op: Op) -> str:
    """Returns the public name, such as AddBackward."""
    return "".join(part.capitalize() for part in op.schema.name.split("_") if part) + "Backward"


def node_type(op: Op) -> str:
    return f"Node_{op.schema.struct_id}"


def edge_args(op: Op) -> list[Arg]:
    """Returns the tensor arguments that have an edge, in schema order, the written one first."""
    g = op.grad
    named = {o.arg for o in g.outputs} | {a for f in g.formulas for a in f.args} | set(g.zero)
    w = cpp.written(op.schema)
    found = [a for a in op.schema.args if (a.is_tensor or a.is_tensor_list) and a.name in named]
    if w is not None and w not in found:
        found.insert(0, w)
    return found


def edge_index(op: Op, name: str) -> str:
    """Returns the number of an edge as an expression; after a list, it depends on the length of the list."""
    fixed, lists = 0, []
    for a in edge_args(op):
        if a.name == name:
            return " + ".join([str(fixed), *lists])
        if a.is_tensor_list:
            lists.append(f"{a.name}_len")
        else:
            fixed += 1
    raise KeyError(name)


class Formulas(Translator):
    """Emits C++ for the gradient formulas of one op, which use incoming gradients and the values saved in the
    node."""

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
        """Returns the incoming gradients that a formula reads."""
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


# ---- saved values ------------------------------------------------------------------------------------

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
    """Returns the arguments whose gradient reads a saved value."""
    found = [o.arg for o in op.grad.outputs if name in o.saves]
    for f in op.grad.formulas:
        if any(s.name == name for s in f.saves):
            found += f.args
    return found


_FACTS = {
    "shape": "ShapeOf",
    "strides": "StridesOf",
    "dtype": "DTypeOf",
    "device": "DeviceOf",
    "ndim": "NDimOf",
    "numel": "NumelOf",
    "len": "LengthOf",
    "defined": "IsGiven",
}


def arg_number(op: Op, name: str) -> int:
    return [a.name for a in op.schema.args].index(name)


def reader_mask(op: Op, save: Save) -> int:
    """Returns the edges, as bits, that need a saved argument; 0 if it is always saved."""
    args = {a.name: a for a in op.schema.args}
    found = readers(op, save.name)
    # The presence of an optional argument selects the formula, so it is always saved.
    if args[save.name].optional or args[save.name].is_tensor_list or any(args[a].is_tensor_list for a in found):
        return 0
    edges = [a.name for a in edge_args(op)]
    return sum(1 << i for i, name in enumerate(edges) if name in found)


def saves(op: Op) -> list[str]:
    """Emits the saved values of a node, as templates of autograd/recording.h."""

    def member(name: str) -> str:
        return f"&{node_type(op)}::{name}_"

    found = []
    for save in op.grad.saves:
        n = save.name
        output = is_output(op, n)
        number = output_number(op, n) if output else arg_number(op, n)
        if not save.value:
            kind = "KeptResultFact" if output else "KeptFact"
            found += [f"{kind}<{member(f'{n}_{fact}')}, {number}, {_FACTS[fact]}>" for fact in sorted(save.meta)]
        elif output:
            read = "true" if number in read_gradients(op) else "false"
            found.append(f"SavedResult<{member(n)}, {number}, {read}>")
        else:
            found.append(f"SavedArgument<{member(n)}, {number}, {reader_mask(op, save):#b}>")
    return found + [f"KeptArgument<{member(n)}, {arg_number(op, n)}>" for n in op.grad.numbers]


def number_locals(op: Op, names: list[str]) -> list[str]:
    """Emits locals with the types of the parameters, initialized from the saved values."""
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
            lines.append(f"    const Tensor {n} = unpack({n}_, this, {placeholder});")
        else:
            lines.append(f"    const Tensor {n} = unpack({n}_, this);")
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
        if not o.identity:
            lines.append(f"    give<{i}>(out[{edge_index(op, o.arg)}], wanted, results);")
    return lines


def apply_formulas(op: Op, names: dict[str, list[Op]]) -> list[str]:
    f = Formulas(op, names)
    lines = unpack(op, "")
    lines += number_locals(op, list(op.grad.numbers))
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
        lines += [f"      give<{i}>(out[{e}], wanted, results);" for i, e in enumerate(edges)]
    lines.append("    }")
    return lines


def refused(op: Op) -> list[int]:
    """Returns the arguments without a gradient, which must not require one, so that no gradient is silently
    missing."""
    w = cpp.written(op.schema)
    return [
        i
        for i, a in enumerate(op.schema.args)
        if a.name in op.grad.no_grad
        and a is not w
        and not a.is_tensor_list
        and op.types.get(a.name) not in ("bool", "index")
    ]


def read_gradients(op: Op) -> set[int]:
    """Returns the results whose incoming gradient some formula reads. The other results do not require a gradient."""
    every = set(range(len(op.results)))
    if op.grad.kind != "formulas" or any("grads" in f.formula.names for f in op.grad.formulas):
        return every
    f = Formulas(op, {})
    return set().union(*(f.incoming(x.formula.tree) for x in op.grad.formulas)) or every


def is_part(op: Op) -> bool:
    """Whether the record is a view whose gradient is `NAME_backward(grad, self.shape, ...)` with all other arguments:
    zeros around the gradient of the view, or its sums where the view repeats elements."""
    if op.meaning != "view" or op.grad.kind != "formulas":
        return False
    base = op.schema.name
    rest = "".join(f", {a.name}" for a in op.schema.args[1:])
    return [ast.unparse(f.formula.tree) for f in op.grad.formulas] == [f"{base}_backward(grad, self.shape{rest})"]


def node(op: Op, ops: dict[str, Op], names: dict[str, list[Op]]) -> list[str]:
    s, kind = op.schema, node_type(op)
    edges = [
        f"EdgesTo<{s.args.index(a)}, &{kind}::{a.name}_len>" if a.is_tensor_list else f"EdgeTo<{s.args.index(a)}>"
        for a in edge_args(op)
    ]
    lines = [
        f"struct alignas(16) {kind} final : NodeOf<{kind}> {{",
        *members(op),
        f"  static constexpr const char* kName = {cpp.text(node_name(op))};",
        f"  using Edges = List<{', '.join(edges)}>;",
    ]
    if kept := saves(op):
        lines.append(f"  using Saves = List<{', '.join(kept)}>;")
    if indices := refused(op):
        lines.append(f"  using NoGradient = std::integer_sequence<int, {', '.join(map(str, indices))}>;")
    if cpp.written(s) is not None or cpp.has_inplace(op):
        name = s.name if cpp.written(s) is not None else s.name + "_"
        lines.append(f"  static constexpr const char* kInplaceName = {cpp.text(name)};")
    if op.meaning == "view":
        lines.append("  static constexpr bool kView = true;")
    if len(op.results) > 1:
        history = sum(1 << i for i in read_gradients(op) if op.results[i].differentiable)
        lines.append(f"  static constexpr uint32_t kHistory = {history:#b};")
    if is_part(op):
        lines += [
            "  static constexpr bool kIsPart = true;",
            "  Tensor part_of(const Tensor& whole) const override {",
            *number_locals(op, list(op.grad.numbers)),
            f"    return whole.{s.name}({cpp.names(s.args[1:])});",
            "  }",
        ]
    lines.append("  void apply([[maybe_unused]] Tensor* grads, [[maybe_unused]] Tensor* out) override {")
    lines += apply_derived(op, ops) if op.grad.kind == "derived" else apply_formulas(op, names)
    return [*lines, "  }", "};", ""]


def has_wrapper(op: Op) -> bool:
    return not op.derived and op.grad.kind in ("derived", "formulas")


def batching(ops: list[Op]) -> dict[str, str]:
    """Emits the wrappers of the layer of vmap, with the bodies of composites."""
    files = {}
    buckets = list(emit_api.buckets(ops).items())
    for number in range(4):
        own = buckets[number::4]
        group = [op for _, bucket in own for op in bucket]
        lines = ["#include <tuple>", '#include "autograd/vmap/wrappers.h"', '#include "mytorch/generated/bodies.h"']
        lines += [emit_api.operators_include(bucket) for bucket, _ in own]
        lines += ["", "namespace mytorch::autograd::batch {", ""]
        for op in group:
            found = {}
            if op.meaning == "primitive" or op.kernel_optional:
                found["Shapes"] = f"void check(const auto&... args) {{ (void)shape::{op.function}(args...); }}"
            if op.meaning == "composite":
                found["Body"] = f"auto call(const auto&... args) {{ return composite::{op.function}(args...); }}"
            for kind, function in found.items():
                lines.append(f"template <> struct {kind}<ops::{op.schema.struct_id}> : std::true_type {{")
                lines += [f"  static {function}", "};"]
        lines += ["", f"void install_{number}() {{"]
        lines += [f"  install<ops::{op.schema.struct_id}>();" for op in group]
        lines += ["}", "", "}  // namespace mytorch::autograd::batch"]
        files[f"autograd/vmap_{number}.cpp"] = cpp.source(lines)
    files["autograd/vmap.cpp"] = cpp.source(
        [
            "namespace mytorch::autograd::batch {",
            *[f"void install_{number}();" for number in range(4)],
            "void install_wrappers() {",
            *[f"  install_{number}();" for number in range(4)],
            "}",
            "}  // namespace mytorch::autograd::batch",
        ]
    )
    return files


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = batching(ops)
    by_full = {op.full_name: op for op in ops}
    names = emit_api.by_name(ops)
    installers = []
    for number, group in emit_api.buckets(ops).items():
        found = [op for op in group if has_wrapper(op) or op.derived]
        cast = [op for op in group if is_masked(op)]
        calls = {c for op in found for f in op.grad.formulas for c in f.formula.calls if c in names}
        lines = [INCLUDES.strip(), emit_api.operators_include(number)]
        lines += [f'#include "mytorch/ops/{c}.h"' for c in sorted(calls)]
        lines += ["", "namespace mytorch {"]
        lines += ["namespace autograd {", "namespace {", ""]
        for op in found:
            if not op.derived:
                lines += node(op, by_full, names)
        lines += ["}  // namespace", "", f"void install_{number:02d}() {{"]
        for op in found:
            sid = op.schema.struct_id
            if op.derived:
                lines.append(f"  install_decomposed<ops::{sid}>();")
            else:
                lines.append(f"  install<{node_type(op)}, ops::{sid}>();")
        for op in cast:
            policy = op.autocast.capitalize()
            lines.append(f"  autocast::install<ops::{op.schema.struct_id}, autocast::Policy::k{policy}>();")
        lines += ["}", "", "}  // namespace autograd", "}  // namespace mytorch"]
        files[f"autograd/autograd_{number:02d}.cpp"] = cpp.source(lines)
        installers.append(f"install_{number:02d}")
    files["autograd/install.cpp"] = cpp.source(
        [
            "namespace mytorch::autograd {",
            *[f"void {i}();" for i in installers],
            "// Fills the columns of autograd and autocast in the operator table.",
            "void install_wrappers() {",
            *[f"  {i}();" for i in installers],
            "}",
            "}  // namespace mytorch::autograd",
        ]
    )
    return files
