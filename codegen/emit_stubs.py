"""The operators: the traits of each record, from which dispatcher/frame/forms.h builds its forms."""

from __future__ import annotations

from codegen import cpp, emit_abi, emit_api
from codegen.expr import Leaf
from codegen.lock import Lock
from codegen.model import Op

INCLUDES = """\
#include <limits>

#include "dispatcher/frame/forms.h"
#include "mytorch/generated/bodies.h"
"""


def base(op: Op) -> str:
    """Returns the struct of forms.h that supplies the forms of an operator."""
    composite = op.meaning == "composite"
    if op.derived:
        return "Derived"
    if cpp.written_lists(op.schema):
        return "ListWriting"
    if cpp.written(op.schema) is not None:
        if not op.has_kernel:
            return "WritingComposite"
        return "WritingKernelComposite" if composite else "Writing"
    if composite and op.has_kernel:
        return "KernelComposite"
    return op.meaning.capitalize()


def members(names: list[str] | tuple[str, ...]) -> str:
    return "Members<" + ", ".join(f"&Args::{n}" for n in names) + ">"


def exact_numbers(op: Op) -> list[int]:
    """Returns, for each argument, the variants, as bits, that read a number which must fit a computation in
    integers."""
    if op.meaning != "pointwise" or op.derived or op.promote == "float":
        return []
    if not (op.takes("integer") or op.takes("bool")):
        return []
    found = []
    for a in op.schema.args:
        reading = [p.variant for p in op.body.variants if any(n.name == a.name for n in p.scalars)]
        if a.type != "Scalar" or a.optional:
            reading = []
        found.append(0xFF if len(reading) == len(op.body.variants) else sum(1 << v for v in reading))
    return found if any(found) else []


def reduce_dims(op: Op) -> str:
    program = op.body.variants[0]
    dims = {
        "ALL": "OptionalIntList()",
        "INT": f"OptionalIntList({program.dim})",
        "LIST": f"OptionalIntList({program.dim})",
        "OPTIONAL_INT": f"{program.dim}.has_value() ? OptionalIntList(*{program.dim}) : OptionalIntList()",
    }[program.dim_kind]
    return f"{dims}, {program.keepdim or 'false'}"


def mask(op: Op, selected: set[str]) -> int:
    """Returns one bit for each argument."""
    return sum((a.name in selected) << i for i, a in enumerate(op.schema.args))


def traits(op: Op) -> list[str]:
    s = op.schema
    lines = [f"template <> struct Traits<ops::{s.struct_id}> : {base(op)} {{"]
    if op.has_kernel:
        lines.append(f"  using Args = mt_args_{s.struct_id};")
        lines.append(f"  using Fields = {members([a.name for a in s.args])};")
        if s.output_fields:
            lines.append(f"  using Outputs = {members(s.output_fields)};")
    if optional := mask(op, {a.name for a in s.args if a.is_tensor and a.optional}):
        lines.append(f"  static constexpr uint32_t optional = {optional:#x};")
    if op.meaning == "pointwise" and op.promote != "same":
        lines.append(f"  static constexpr Promote promote = Promote::k{op.promote.capitalize()};")
    if numbers := exact_numbers(op):
        lines.append(f"  static constexpr uint8_t exact[] = {{{', '.join(f'{n:#x}' for n in numbers)}}};")
    if op.body is not None and not (isinstance(op.body.selector, Leaf) and not op.body.selector.error):
        lines.append(f"  static uint16_t variant({cpp.params(s.args)}) {{ return {cpp.selector(op.body, op)}; }}")
    if op.meaning == "reduce":
        lines.append(f"  static ReduceDims dims({cpp.params(s.args)}) {{ return {{{reduce_dims(op)}}}; }}")
    if op.meaning in ("primitive", "composite") and op.has_kernel:
        lines.append(f"  static auto infer(const auto&... args) {{ return shape::{op.function}(args...); }}")
    if op.meaning in ("view", "composite"):
        space = {"view": "views", "composite": "composite"}[op.meaning]
        lines.append(f"  static auto compute(const auto&... args) {{ return {space}::{op.function}(args...); }}")
    if op.meaning == "composite" and not op.has_kernel and cpp.has_out(op):
        lines.append(f"  static constexpr ops::{s.struct_id}::Signature* through_layers = mytorch::{s.name};")
    if op.parts and cpp.written(op.schema) is not None:
        lines.append("  static constexpr bool kParts = true;")
        lines.append(f"  static auto by_parts(const auto&... args) {{ return parts::{op.parts}(args...); }}")
    if op.dynamic:
        lines.append("  static constexpr bool dynamic = true;")
    if op.layout_of:
        lines.append(f"  static constexpr uint32_t follows = {mask(op, set(op.layout_of)):#x};")
    lines.append("};")
    forms = ["kFunction", *["kInplace"] * cpp.has_inplace(op), *["kOut"] * cpp.has_out(op)]
    lines += [f"template struct Below<ops::{s.struct_id}, {form}>;" for form in forms]
    if op.derived:
        lines.append(f"template struct Decomposed<ops::{s.struct_id}>;")
    return lines


def by_composite(op: Op) -> list[str]:
    """Emits the function of a composite with a kernel for complex operands: its checks and its body, above the
    layers."""
    s = op.schema
    if not op.parts_generated:
        return []
    call = f"{op.function}({cpp.names(s.args)})"
    return [
        f"{cpp.return_type(s)} parts::{op.parts}({cpp.params(s.args)}) "
        f"{{ shape::{call}; return composite::{call}; }}"
    ]


def public(op: Op) -> list[str]:
    s = op.schema
    name, args, params = s.name, cpp.names(s.args), cpp.params(s.args)

    def call(form: str, given: str) -> str:
        return f"{{ return Layered<ops::{s.struct_id}, {form}>::call({given}); }}"

    if op.derived:
        return [f"{cpp.return_type(s)} {name}({params}) {call('kFunction', f'kAllWanted, {args}')}"]
    lines = by_composite(op) + [f"{cpp.result_type(s)} {name}({params}) {call('kFunction', args)}"]
    if cpp.has_inplace(op):
        lines.append(f"const Tensor& {name}_({params}) {call('kInplace', args)}")
    if cpp.has_out(op):
        outs = cpp.out_args(op)
        all_params = ", ".join([f"const Tensor& {o}" for o in outs] + ([params] if params else []))
        written = call("kOut", ", ".join(outs + ([args] if args else []))).replace("return ", "", 1).removesuffix(" }")
        result = outs[0] if len(outs) == 1 else f"std::tie({', '.join(outs)})"
        lines.append(f"{cpp.out_type(op)} {name}_out({all_params}) {written} return {result}; }}")
    return lines


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {}
    for number, members_ in emit_api.buckets(ops).items():
        lines = [INCLUDES.strip(), *emit_abi.includes(members_), emit_api.operators_include(number)]
        lines += [f'#include "mytorch/ops/{n}.h"' for n in sorted({op.schema.name for op in members_})]
        lines += ["", "namespace mytorch {"]
        for op in members_:
            lines += ["", *traits(op), *public(op)]
        files[f"src/ops_{number:02d}.cpp"] = cpp.source([*lines, "", "}  // namespace mytorch"])
    return files
