"""The dispatcher's description of each operator: arguments, results, programs, and its table row."""

from __future__ import annotations

from codegen import cpp, emit_abi, emit_api
from codegen.lock import Lock
from codegen.model import ACCEPTS, Op, Result
from codegen.program import Program
from codegen.schema import REQUIRED, SCALAR_TYPES, Arg

_ARG_TYPES = {
    "Tensor": "kTensor",
    "Operand": "kOperand",
    "Scalar": "kScalar",
    "int": "kInt",
    "bool": "kBool",
    "float": "kFloat",
    "str": "kStr",
    "ScalarType": "kScalarType",
    "Device": "kDevice",
    "Generator": "kGenerator",
    "Handle": "kHandle",
}
ANY_TYPE = (1 << len(SCALAR_TYPES)) - 1
COMPLEX_TYPES = sum(name.startswith("complex") << i for i, name in enumerate(SCALAR_TYPES))
_NODE_TYPES = {"COMPUTE": "MT_TYPE_COMPUTE", "BOOL": "MT_TYPE_BOOL", "INDEX": "MT_TYPE_INDEX"}


def arg_enum(arg: Arg) -> str:
    if arg.list and arg.type == "Tensor":
        return "kTensorList"
    if arg.list:
        return "kFloatList" if arg.type == "float" else "kIntList"
    return _ARG_TYPES[arg.type]


def default_text(arg: Arg) -> str:
    if arg.default is REQUIRED:
        return "nullptr"
    if arg.default is None:
        return '"None"'
    if isinstance(arg.default, tuple):
        return cpp.text("[" + ", ".join(str(v) for v in arg.default) + "]")
    return cpp.text(str(arg.default))


def space(op: Op) -> str:
    """Returns the namespace of an operator's descriptions, in which Args is its argument struct."""
    return f"of_{op.schema.struct_id}"


def open_space(op: Op) -> list[str]:
    return [f"namespace {space(op)} {{", *([f"using Args = mt_args_{op.schema.struct_id};"] if op.has_kernel else [])]


def offset(op: Op, name: str) -> str:
    return f"offsetof(Args, {name})" if op.has_kernel else "kNoField"


def promotes(op: Op, arg: Arg) -> bool:
    return arg.is_tensor and op.types.get(arg.name, "same") == "same" and op.meaning in ("pointwise", "reduce")


def accepted_types(op: Op, arg: Arg) -> int:
    """Returns the possible types of an operand, as bits. The frame checks those of pointwise ops and reductions."""
    if op.meaning not in ("pointwise", "reduce"):
        return ANY_TYPE
    if op.types.get(arg.name) == "bool":
        return 1
    categories = ACCEPTS.get(op.accepts.get(arg.name, ""), ("bool", "integer", "float"))
    if op.takes_complex and "float" in categories:
        categories = (*categories, "complex")
    words = ("bool", "float", "complex")
    category = lambda name: next((word for word in words if word in name), "integer")
    return sum((category(name) in categories) << i for i, name in enumerate(SCALAR_TYPES))


def program(op: Op, p: Program, prefix: str = "") -> list[str]:
    v = f"{prefix}{p.variant}"
    lines = [f"const mt_node kNodes{v}[] = {{"]
    for n in p.nodes:
        a = list(n.args) + [-1] * (3 - len(n.args))
        field = f"MT_FIELD_{n.field}" if n.op == "scalar" else "0"
        at = offset(op, n.name) if n.op in ("input", "scalar") else "0"
        lines.append(
            f"    {{{cpp.text(n.op)}, {_NODE_TYPES[n.type]}, {{{a[0]}, {a[1]}, {a[2]}}}, {field}, "
            f"{n.component}, {at}, 0, {cpp.number(float(n.value))}}},"
        )
    outputs = ", ".join(f"{{{o.node}, {offset(op, o.name)}}}" for o in p.outputs)
    fold = cpp.text(p.fold) if p.fold else "nullptr"
    dim = offset(op, p.dim) if p.dim else "0"
    keepdim = offset(op, p.keepdim) if p.keepdim else "0"
    lines += [
        "};",
        f"const mt_program_output kOutputs{v}[] = {{{outputs}}};",
        f"const mt_program kProgram{v} = {{sizeof(mt_program), {cpp.text(op.full_name)}, {p.variant}, 0, "
        f"0x{p.hash:016x}ull, kNodes{v}, {len(p.nodes)}, {len(p.outputs)}, kOutputs{v}, {fold}, {p.step}, "
        f"{dim}, MT_DIM_{p.dim_kind or 'ALL'}, {keepdim}}};",
    ]
    return lines


def programs(op: Op) -> list[str]:
    """Emits the programs of all variants as kPrograms in the operator's namespace. Backends use it, too."""
    lines = [line for p in op.body.variants for line in program(op, p)]
    pointers = ", ".join(f"&kProgram{p.variant}" for p in op.body.variants)
    return [*lines, f"const mt_program* const kPrograms[] = {{{pointers}}};"]


def complex_programs(op: Op) -> list[str]:
    """Emits the programs for complex operands as kComplexPrograms, if the operator has others for them."""
    return _more_programs(op, op.complex_variants, "Complex")


def call_programs(op: Op) -> list[str]:
    """Emits the programs in which special functions are calls of operators as kCallPrograms, if there are any."""
    return _more_programs(op, op.call_variants, "Call")


def _more_programs(op: Op, variants: tuple[Program, ...], kind: str) -> list[str]:
    if not variants:
        return []
    lines = [line for p in variants for line in program(op, p, kind)]
    pointers = ", ".join(f"&kProgram{kind}{p.variant}" for p in variants)
    return [*lines, f"const mt_program* const k{kind}Programs[] = {{{pointers}}};"]


def result_type(result: Result) -> str:
    if result.real:
        return "kRealResult"
    return str(SCALAR_TYPES.index(result.dtype)) if result.dtype else "-1"


def describe(op: Op, lock: Lock) -> list[str]:
    s = op.schema
    sid = s.struct_id
    lines = open_space(op)
    if op.body is not None:
        lines += programs(op) + complex_programs(op) + call_programs(op)
    fields = {f.name for f in lock.fields(op.full_name)} if op.has_kernel else set()
    if s.args:
        lines.append("const ArgInfo kArgs[] = {")
        for a in s.args:
            at = offset(op, a.name) if a.name in fields else "kNoField"
            flags = {
                "kOptional": a.optional,
                "kKwOnly": a.kw_only,
                "kWritten": a.alias is not None and a.alias.write,
                "kPromotes": promotes(op, a),
            }
            chosen = " | ".join(name for name, on in flags.items() if on) or "0"
            lines.append(f"    {{{cpp.text(a.name)}, ArgType::{arg_enum(a)}, {chosen}, {default_text(a)}, {at}}},")
        lines.append("};")
    results = [r for r in op.results]
    if results:
        found = []
        for r in results:
            at = offset(op, r.field) if r.field and r.field in fields else "kNoField"
            found.append(f"{{{cpp.text(r.name)}, {at}, {result_type(r)}}}")
        lines.append(f"const OutputInfo kResults[] = {{{', '.join(found)}}};")
    # Fields are in ABI order, so the fields that an older schema lacks come last.
    older = []
    if op.has_kernel and len(lock.hashes(op.full_name)) > 1:
        known = lock.fields(op.full_name)
        lines.append("const OlderSchema kOlder[] = {")
        for h in lock.hashes(op.full_name)[1:]:
            first = f"offsetof(Args, {known[h.num_fields].name})" if h.num_fields < len(known) else "sizeof(Args)"
            lines.append(f"    {{0x{h.hash:016x}ull, {first}}},")
        lines.append("};")
        older = [f"{space(op)}::kOlder", str(len(lock.hashes(op.full_name)) - 1)]
    functional = f"boxed<ops::{sid}, kFunction>"
    inplace = f"boxed<ops::{sid}, kInplace>" if cpp.has_inplace(op) else "nullptr"
    out = f"boxed<ops::{sid}, kOut>" if cpp.has_out(op) else "nullptr"
    wanted = f"boxed_wanted<ops::{sid}>" if op.derived else "nullptr"
    inputs = [a for a in s.args if a.is_tensor]
    mask = sum(promotes(op, a) << i for i, a in enumerate(inputs))
    accepts = [accepted_types(op, a) for a in inputs]
    accepted = any(bits != ANY_TYPE for bits in accepts)
    if accepted:
        lines.append("const uint16_t kAccepts[] = {" + ", ".join(f"0x{bits:x}" for bits in accepts) + "};")
    uniform = ANY_TYPE if mask == (1 << len(inputs)) - 1 else 0
    for bits in accepts:
        uniform &= bits
    uniform &= ~COMPLEX_TYPES  # they take the general path
    b = lambda x: "true" if x else "false"
    here = space(op)
    lines += [
        f"}}  // namespace {here}",
        f"const OpInfo kInfo_{sid} = {{{cpp.text(op.full_name)}, {cpp.text(s.name)}, {cpp.text(str(s))},",
        f"    {cpp.text(op.doc)},",
        f"    0x{s.hash:016x}ull, Meaning::k{op.meaning.capitalize()}, Promote::k{op.promote.capitalize()}, "
        f"{b(op.has_kernel)}, {b(op.derived)}, {b(op.dynamic)}, {b(op.grad.kind != 'none')}, 0x{mask:x}, "
        f"{len(inputs)}, 0x{uniform:x}, {f'{here}::kAccepts' if accepted else 'nullptr'},",
        f"    {here + '::kArgs' if s.args else 'nullptr'}, {len(s.args)}, "
        f"{here + '::kResults' if results else 'nullptr'}, {len(results)}, "
        f"{f'sizeof(mt_args_{sid})' if op.has_kernel else '0'}, "
        f"{here + '::kPrograms' if op.body is not None else 'nullptr'}, "
        f"{here + '::kComplexPrograms' if op.complex_variants else 'nullptr'}, "
        f"{here + '::kCallPrograms' if op.call_variants else 'nullptr'}, "
        f"{len(op.body.variants) if op.body is not None else 0},",
        f"    {', '.join([functional, inplace, out, wanted] + older)}}};",
        f"namespace entries {{ constinit OpEntry {sid}(&kInfo_{sid}); }}",
        "",
    ]
    return lines


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {}
    for number, members in emit_api.buckets(ops).items():
        lines = [
            "#include <cstddef>",
            "#include <limits>",
            "",
            '#include "dispatcher/boxed/boxed.h"',
            '#include "dispatcher/table/op.h"',
            *emit_abi.includes(members),
        ]
        lines += [*emit_api.below_includes(members), "", "namespace mytorch {", ""]
        for op in members:
            lines += describe(op, lock)
        files[f"src/table_{number:02d}.cpp"] = cpp.source([*lines, "}  // namespace mytorch"])
    rows = ", ".join(f"&entries::{op.schema.struct_id}" for op in ops)
    aliases = {alias: op.schema.name for op in ops for alias in op.aliases}
    files["src/table.cpp"] = cpp.source(
        [
            '#include "dispatcher/table/op.h"',
            "",
            "namespace mytorch {",
            "namespace entries {",
            *(f"extern OpEntry {op.schema.struct_id};" for op in ops),
            "}  // namespace entries",
            "",
            f"static OpEntry* const kEntries[] = {{{rows}}};",
            "static constexpr OpAlias kAliases[] = {",
            *(f"    {{{cpp.text(alias)}, {cpp.text(name)}}}," for alias, name in sorted(aliases.items())),
            "};",
            f"const OpTable kGeneratedOps = {{kEntries, {len(ops)}, kAliases, {len(aliases)}}};",
            "}  // namespace mytorch",
        ]
    )
    return files
