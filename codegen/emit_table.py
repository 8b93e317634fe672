"""The dispatcher's description of each operator: arguments, results, programs, and its table row."""

from __future__ import annotations

from codegen import cpp, emit_abi, emit_api
from codegen.graph import Node
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


def arg_enum(arg: Arg) -> str:
    if arg.list and arg.type == "Tensor":
        return "kTensorList"
    if arg.list:
        return "kFloatList" if arg.type == "float" else "kIntList"
    return _ARG_TYPES[arg.type]


def default_text(arg: Arg) -> str:
    if arg.default is REQUIRED:
        return ""
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


def node(op: Op, n: Node) -> str:
    """Emits a node by the functions of dispatcher/table/program_row.h."""
    if n.op == "input":
        text = f"input({offset(op, n.name)})"
    elif n.op == "scalar":
        text = f"scalar({offset(op, n.name)}{f', MT_FIELD_{n.field}' * (n.field != 'SCALAR')})"
    elif n.op == "const":
        text = f"constant({cpp.number(float(n.value))})"
    elif n.op == "state":
        text = f"state({n.component})"
    else:
        text = f"node({', '.join([cpp.text(n.op), *map(str, n.args)])})"
    return {"COMPUTE": text, "BOOL": f"as_bool({text})", "INDEX": f"as_index({text})"}[n.type]


def program(op: Op, p: Program, name: str) -> list[str]:
    outputs = ", ".join(f"{{{o.node}, {offset(op, o.name)}}}" for o in p.outputs)
    given = [f"0x{p.hash:016x}", f"kNodes{name}", f"kOutputs{name}"]
    if p.fold:
        dim = [f".dim_offset = {offset(op, p.dim)}"] * bool(p.dim)
        keepdim = [f".keepdim_offset = {offset(op, p.keepdim)}"] * bool(p.keepdim)
        fold = [f".fold = {cpp.text(p.fold)}", f".step = {p.step}", f".dim_field = MT_DIM_{p.dim_kind}", *dim, *keepdim]
        given += [str(p.variant), f"{{{', '.join(fold)}}}"]
    elif p.variant:
        given.append(str(p.variant))
    return [
        f"constexpr mt_node kNodes{name}[] = {{{', '.join(node(op, n) for n in p.nodes)}}};",
        f"constexpr mt_program_output kOutputs{name}[] = {{{outputs}}};",
        f"constexpr mt_program kProgram{name} = program<Args>({', '.join(given)});",
    ]


def programs(op: Op, variants: tuple[Program, ...], kind: str = "") -> list[str]:
    """Emits the programs of all variants as k{kind}Programs in the operator's namespace, if there are any."""
    if not variants:
        return []
    lines = [line for p in variants for line in program(op, p, f"{kind}{p.variant}")]
    pointers = ", ".join(f"&kProgram{kind}{p.variant}" for p in variants)
    return [*lines, f"constexpr const mt_program* k{kind}Programs[] = {{{pointers}}};"]


def fields(values: dict[str, object]) -> str:
    """Returns designated initializers of the fields that are not False, None or "", the defaults."""
    chosen = {name: "true" if value is True else value for name, value in values.items() if value}
    return ", ".join(f".{name} = {value}" for name, value in chosen.items())


def argument(op: Op, arg: Arg, known: set[str]) -> str:
    values = {
        "name": cpp.text(arg.name),
        "type": f"ArgType::{arg_enum(arg)}" if arg_enum(arg) != "kTensor" else "",
        "optional": arg.optional,
        "kw_only": arg.kw_only,
        "written": arg.alias is not None and arg.alias.write,
        "promotes": promotes(op, arg),
        "default_text": default_text(arg),
        "offset": f"offsetof(Args, {arg.name})" if arg.name in known else "",
    }
    return f"{{{fields(values)}}}"


def result(op: Op, r: Result, known: set[str]) -> str:
    at = f"offsetof(Args, {r.field})" if r.field and r.field in known else ""
    dtype = "kRealResult" if r.real else f"always({cpp.scalar_type(r.dtype)})" if r.dtype else ""
    values = [cpp.text(r.name), *([at or "kNoField"] if at or dtype else []), *([dtype] if dtype else [])]
    return f"{{{', '.join(values)}}}"


def older(op: Op, lock: Lock) -> list[str]:
    """Returns the schemas of earlier releases. Fields are in ABI order, so those that an older schema lacks come last."""
    known = lock.fields(op.full_name)
    rows = []
    for h in lock.hashes(op.full_name)[1:]:
        first = f"offsetof(Args, {known[h.num_fields].name})" if h.num_fields < len(known) else "sizeof(Args)"
        rows.append(f"{{0x{h.hash:016x}, {first}}}")
    return rows


def describe(op: Op, lock: Lock) -> list[str]:
    """Emits the operator's row, in the words of dispatcher/table/row.h."""
    s = op.schema
    known = {f.name for f in lock.fields(op.full_name)} if op.has_kernel else set()
    body = op.body.variants if op.body is not None else ()
    lines = [
        *programs(op, body),
        *programs(op, op.complex_variants, "Complex"),
        *programs(op, op.call_variants, "Call"),
    ]
    results = [result(op, r, known) for r in op.results]
    usual = '{"result", offsetof(Args, out)}' if op.has_kernel else '{"result"}'
    accepts = [accepted_types(op, a) for a in s.args if a.is_tensor]
    tables = {
        "accepts": ("uint16_t", "kAccepts", [f"0x{bits:x}" for bits in accepts if set(accepts) != {ANY_TYPE}]),
        "args": ("ArgInfo", "kArgs", [argument(op, a, known) for a in s.args]),
        "outputs": ("OutputInfo", "kResults", results if results != [usual] else []),
        "older": ("OlderSchema", "kOlder", older(op, lock) if op.has_kernel else []),
    }
    lines += [line for kind, name, rows in tables.values() if rows for line in cpp.array(kind, name, rows)]
    here = space(op)
    text = {
        "name": "" if op.has_kernel else cpp.text(op.full_name),
        "base": cpp.text(s.name) if s.name != op.full_name else "",
        "schema": cpp.text(str(s)),
        "doc": cpp.text(op.doc),
    }
    rest = {
        "hash": "" if op.has_kernel else f"0x{s.hash:016x}",
        "meaning": f"Meaning::k{op.meaning.capitalize()}" if op.meaning != "composite" else "",
        "promote": f"Promote::k{op.promote.capitalize()}" if op.promote != "none" else "",
        "dynamic": op.dynamic,
        "differentiable": "false" if op.grad.kind == "none" else "",
        "accepts": tables["accepts"][2] and f"{here}::kAccepts",
        "args": tables["args"][2] and f"{here}::kArgs",
        "outputs": tables["outputs"][2] and f"{here}::kResults",
        "programs": body and f"{here}::kPrograms",
        "complex_programs": op.complex_variants and f"{here}::kComplexPrograms",
        "call_programs": op.call_variants and f"{here}::kCallPrograms",
        "older": tables["older"][2] and f"{here}::kOlder",
    }
    record = f"ops::{s.struct_id}"
    of = f"{record}, {here}::Args" if op.has_kernel else record
    return [
        *open_space(op),
        *lines,
        "}",
        f"constinit const OpInfo {record}::info = info_of<{of}>({{",
        *(f"    .{name} = {value}," for name, value in text.items() if value),
        f"    {fields(rest)}}});",
        f"constinit OpEntry {record}::entry(&info);",
        "",
    ]


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {}
    for number, members in emit_api.buckets(ops).items():
        includes = ["#include <cstddef>", "#include <limits>", "", '#include "dispatcher/boxed/info.h"']
        includes += [*emit_abi.includes(members), emit_api.operators_include(number)]
        rows = [line for op in members for line in describe(op, lock)]
        files[f"src/table_{number:02d}.cpp"] = cpp.source(
            [*includes, "", "namespace mytorch {", "using namespace row;", "", *rows, "}  // namespace mytorch"]
        )
    aliases = sorted({alias: op.schema.name for op in ops for alias in op.aliases}.items())
    files["src/table.cpp"] = cpp.source(
        [
            '#include "mytorch/generated/operators.h"',
            "",
            "namespace mytorch {",
            "namespace ops {",
            f"static OpEntry* const kEntries[] = {{{', '.join(f'&{op.schema.struct_id}::entry' for op in ops)}}};",
            "}",
            "static constexpr OpAlias kAliases[] = {",
            *(f"    {{{cpp.text(alias)}, {cpp.text(name)}}}," for alias, name in aliases),
            "};",
            f"const OpTable kGeneratedOps = {{ops::kEntries, {len(ops)}, kAliases, {len(aliases)}}};",
            "}  // namespace mytorch",
        ]
    )
    return files
