"""The public headers: one for each operator name, the methods of Tensor, and the declarations of functions that
records name."""

from __future__ import annotations

from codegen import cpp, describe
from codegen.lock import Lock
from codegen.model import Op
from codegen.schema import Arg, fnv1a

BUCKETS = 12  # a few seconds of compilation each; the number is fixed, so that a new record moves no other record


def by_name(ops: list[Op]) -> dict[str, list[Op]]:
    """Returns the overloads by function name, in the order of the records."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        found.setdefault(op.schema.name, []).append(op)
    return found


def buckets(ops: list[Op]) -> dict[int, list[Op]]:
    """Groups ops by function name, so that overloads and the derived gradients of a name stay together."""
    names = {op.full_name: op.schema.name for op in ops}
    found: dict[int, list[Op]] = {i: [] for i in range(BUCKETS)}
    for op in ops:
        name = names[op.parent] if op.derived else op.schema.name
        found[fnv1a(name) % BUCKETS].append(op)
    return {i: members for i, members in found.items() if members}


def with_options(op: Op) -> list[str]:
    """Emits the form of a function that creates a tensor in which TensorOptions replace dtype and device."""
    args = list(op.schema.args)
    names = [a.name for a in args]
    if "dtype" not in names or "device" not in names or op.meaning == "view" or not cpp.has_out(op):
        return []
    at = names.index("dtype")
    rest = args[at + 2 :]
    params = [cpp.params(args[:at], False), "const O& options", cpp.params(rest, True)]
    call = [*names[:at], "o.dtype_opt()", "o.device_opt()", *names[at + 2 :]]
    lines = [
        "template <detail::Options O>",
        f"Tensor {op.schema.name}({', '.join(p for p in params if p)}) {{",
        "  const TensorOptions o = options;",
        f"  return o.finish({op.schema.name}({', '.join(call)}));",
        "}",
    ]
    return lines + by_size(op.schema.name, names[at + 2 :]) if names[:at] == ["size"] else lines


def by_size(name: str, rest: list[str]) -> list[str]:
    """Emits libtorch's forms of a function whose only positional argument is a size, and those of mistakes."""
    lines = []
    if rest == ["generator"]:
        lines += [
            "template <class G>",
            f"requires(std::is_same_v<G, Generator>) Tensor {name}(IntList size, const G& generator) {{",
            f"  return {name}(size, {{}}, {{}}, generator);",
            "}",
            "template <class G, detail::Options O>",
            "requires(std::is_same_v<G, Generator>)",
            f"    Tensor {name}(IntList size, const G& generator, const O& options) {{",
            f"  return {name}(size, options, generator);",
            "}",
        ]
    return lines + [
        "template <detail::Integer... Sizes>",
        f"requires(sizeof...(Sizes) > 1) Tensor {name}(Sizes...) {{",
        f'  static_assert(sizeof...(Sizes) == 1, "sizes are one list: write {name}({{2, 3}})");',
        "  return {};",
        "}",
        "template <size_t n>",
        f"Tensor {name}(IntList, const char (&)[n]) {{",
        '  static_assert(n == 0, "write a type as kFloat32, and a device as Device(\\"cuda\\")");',
        "  return {};",
        "}",
    ]


def exact_forms(op: Op, ops: list[Op]) -> list[str]:
    """Emits the form of an overload for which a number or a list in braces needs no conversion, where it would fit two
    overloads equally well: `int` beside `bool`, and `int[]` beside `Tensor[]`."""
    lines = []
    for at, arg in enumerate(op.schema.args):
        kind = ("int", False) if arg.type == "int" and not arg.list else ("int", True)
        rival = {("int", False): ("bool", False), ("int", True): ("Tensor", True)}[kind]
        before = [cpp.arg_type(a) for a in op.schema.args[:at]]
        rivals = [
            o.schema.args[at]
            for o in ops
            if o is not op and len(o.schema.args) > at and [cpp.arg_type(a) for a in o.schema.args[:at]] == before
        ]
        if (arg.type, bool(arg.list)) != kind or not any((r.type, bool(r.list)) == rival for r in rivals):
            continue
        plain = cpp.params([arg], False)
        exact = f"{'std::initializer_list<int64_t>' if arg.list else 'Int'} {arg.name}"
        template = "" if arg.list else "template <detail::Integer Int>\n"
        names = [exact_call(a, arg) for a in op.schema.args]
        for line in describe.declarations(op):
            head, _, tail = line.removesuffix(";").partition(plain)
            suffix = "_out" if f" {op.schema.name}_out(" in line else ""
            outs = cpp.out_args(op) if suffix else []
            _, comma, rest = tail.partition(",") if tail.startswith(" =") and "," in tail else ("", "", tail)
            rest = comma + rest if comma else (")" if tail.startswith(" =") else tail)
            keyword = "inline " if arg.list else ""
            call = f"{op.schema.name}{suffix}({', '.join([*outs, *names])})"
            lines.append(f"{template}{keyword}{head}{exact}{rest} {{ return {call}; }}")
    return lines


def exact_call(arg: Arg, exact: Arg) -> str:
    if arg is not exact:
        return arg.name
    return f"IntList({arg.name})" if arg.list else f"static_cast<int64_t>({arg.name})"


def op_header(name: str, ops: list[Op]) -> str:
    lines = ["", "namespace mytorch {", ""]
    for op in ops:
        lines += [f"// {op.schema}", f"// {op.doc}", *describe.declarations(op), *with_options(op), ""]
    for op in ops:  # behind all overloads, among which they choose
        lines += [*forms, ""] if (forms := exact_forms(op, ops)) else []
    lines.append("}  // namespace mytorch")
    handles = any(arg.type == "Handle" for op in ops for arg in op.schema.args)
    return cpp.header("", ["mytorch/handle.h"] * handles + ["mytorch/tensor.h"], lines)


def forwarding(op: Op, alias: str) -> list[str]:
    """Emits the inline functions of an alias, which call those of the operator."""
    s = op.schema
    lines = []
    for line in describe.declarations(describe.renamed(op, alias)):
        suffix = line[line.index(f" {alias}") + 1 + len(alias) :].split("(")[0]
        outs = cpp.out_args(op) if suffix == "_out" else []
        call = ", ".join([*outs, *(a.name for a in s.args)])
        line = line.removesuffix(";")
        lines.append(f"inline {line} {{ return mytorch::{s.name}{suffix}({call}); }}")
    return lines + with_options(describe.renamed(op, alias))


def alias_header(alias: str, name: str, ops: list[Op]) -> str:
    lines = ["", "namespace mytorch {", ""]
    for op in ops:
        lines += forwarding(op, alias)
    lines += ["", "}  // namespace mytorch"]
    return cpp.header(f"{alias}: another name of {name}.", [f"mytorch/ops/{name}.h"], lines)


def namespace_header(space: str, ops: list[Op]) -> str:
    """Emits functions of a namespace of torch's: linalg::det for the operator, or its alias, linalg_det."""
    lines, includes = [], set()
    for op, name in with_aliases(ops):
        short = name.removeprefix(f"{space}_")
        if short == name or op.derived:
            continue
        includes.add(f"mytorch/ops/{op.schema.name}.h")
        lines += forwarding(op, short)
    lines = ["", f"namespace mytorch::{space} {{", "", *lines, "", f"}}  // namespace mytorch::{space}"]
    about = f"The functions of torch.{space}: {space}::NAME is the operator {space}_NAME."
    return cpp.header(about, sorted(includes), lines)


def with_aliases(ops: list[Op]) -> list[tuple[Op, str]]:
    """Returns each operator with each of its function names."""
    return [(op, name) for op in ops for name in (op.schema.name, *op.aliases)]


def methods(ops: list[Op]) -> str:
    lines = ["// Methods of Tensor: operators whose record says `forms: [method]`."]
    for op, name in with_aliases(ops):
        lines += [f"  {line}" for line in describe.methods(describe.renamed(op, name))]
    return cpp.source(lines)


def method_bodies(ops: list[Op]) -> str:
    found = [op for op in ops if "method" in op.forms]
    lines = [f'#include "mytorch/ops/{n}.h"' for n in sorted({op.schema.name for op in found})]
    lines += ["", "namespace mytorch {", ""]
    for op, name in with_aliases(found):
        s = op.schema
        rest = [a for a in s.args if a.name != "self"]
        call = ", ".join("*this" if a.name == "self" else a.name for a in s.args)
        result = cpp.result_type(s)
        lines.append(f"{result} Tensor::{name}({cpp.params(rest)}) const {{ return mytorch::{s.name}({call}); }}")
        if cpp.has_inplace(op):
            lines.append(
                f"const Tensor& Tensor::{name}_({cpp.params(rest)}) const {{ " f"return mytorch::{s.name}_({call}); }}"
            )
    return cpp.source([*lines, "", "}  // namespace mytorch"])


def bodies(ops: list[Op]) -> str:
    """Emits the declarations of the functions that records name: shape functions, views, composites."""
    # By namespace. Several records may name one function.
    found: dict[str, dict[str, None]] = {space: {} for space in ("composite", "parts", "shape", "views")}

    def declare(space: str, result: str, op: Op) -> None:
        found[space][f"{result} {op.function}({cpp.params(op.schema.args)});"] = None

    for op in ops:
        if op.meaning == "view":
            declare("views", "ViewSpec", op)
        if op.meaning == "composite":
            result = "void" if cpp.written(op.schema) is not None else cpp.return_type(op.schema)
            declare("composite", result, op)
        if op.parts:
            found["parts"][part(op)] = None
        if op.meaning == "primitive" or op.kernel_optional:
            if op.schema.mutates:
                declare("shape", "void", op)
            else:
                n = len(op.schema.returns)
                specs = "TensorSpec" if n == 1 else "std::tuple<" + ", ".join(["TensorSpec"] * n) + ">"
                declare("shape", specs, op)
    about = "The functions that records name, defined by hand in ops/. Several records may name one."
    lines = ["#include <tuple>", "", '#include "mytorch/handle.h"', '#include "mytorch/tensor.h"']
    lines += ['#include "ops/spec.h"', "", "namespace mytorch {"]
    for space, functions in found.items():
        lines += ["", f"namespace {space} {{", *functions, f"}}  // namespace {space}"]
    return cpp.header(about, [], [*lines, "", "}  // namespace mytorch"])


def operator(op: Op) -> list[str]:
    """Emits the struct that represents an operator in templates (dispatcher/table/layers.h)."""
    s = op.schema
    types = (["const bool*"] if op.derived else []) + [cpp.arg_type(a) for a in s.args]
    forms = ["kInplace"] * cpp.has_inplace(op) + ["kOut"] * cpp.has_out(op)
    record = ", ".join([f"{cpp.result_type(s)}({', '.join(types)})", *forms])
    lines = [f"struct {s.struct_id} : Record<{record}> {{", "  static const OpInfo info;", "  static OpEntry entry;"]
    if op.parts and cpp.written(s) is None:
        lines.append(f"  static constexpr auto by_parts = &parts::{op.parts};")
    if lists := cpp.written_lists(s):
        lines.append(f"  static constexpr uint32_t written_lists = {sum(1 << s.args.index(a) for a in lists):#x};")
    return [*lines, "};"]


def operators(ops: list[Op]) -> str:
    """Emits the structs of some operators."""
    lines = ["", "namespace mytorch {", ""]
    if parts := [part(op) for op in ops if op.parts]:
        lines += ["namespace parts {", *parts, "}", ""]
    lines += ["namespace ops {", *(line for op in ops for line in operator(op)), "}", "", "}  // namespace mytorch"]
    about = "Operators for the templates of dispatcher/table/layers.h, and their rows in the table."
    return cpp.header(about, ["dispatcher/table/layers.h", "mytorch/tensor.h"], lines)


def operators_include(number: int) -> str:
    """Returns the include of the operators of a bucket."""
    return f'#include "mytorch/generated/operators_{number:02d}.h"'


def part(op: Op) -> str:
    """Declares the function over the parts of complex operands."""
    result = "void" if cpp.written(op.schema) is not None else cpp.return_type(op.schema)
    return f"{result} {op.parts}({cpp.params(op.schema.args)});"


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {}
    names = by_name(ops)
    for name, overloads in names.items():
        files[f"include/mytorch/ops/{name}.h"] = op_header(name, overloads)
        for alias in overloads[0].aliases:
            files[f"include/mytorch/ops/{alias}.h"] = alias_header(alias, name, overloads)
    public = sorted({name for op, name in with_aliases(ops) if not op.derived})
    files["include/mytorch/ops.h"] = cpp.header("Every operator.", [f"mytorch/ops/{name}.h" for name in public], [])
    for space in ("linalg", "special"):
        files[f"include/mytorch/{space}.h"] = namespace_header(space, ops)
    files["include/mytorch/tensor_methods.inc"] = methods(ops)
    grouped = buckets(ops)
    folder = "private/mytorch/generated"
    for number, members in grouped.items():
        files[f"{folder}/operators_{number:02d}.h"] = operators(members)
    files[f"{folder}/operators.h"] = cpp.header(
        "Every operator.", [f"mytorch/generated/operators_{number:02d}.h" for number in grouped], []
    )
    files[f"{folder}/bodies.h"] = bodies(ops)
    files["src/methods.cpp"] = method_bodies(ops)
    return files
