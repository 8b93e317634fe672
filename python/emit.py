"""The operators of Python: for each name its signatures, and for each overload a function that converts the arguments
and calls the typed function of C++."""

from __future__ import annotations

import keyword
from pathlib import Path

from codegen import cpp, emit_api
from codegen.lock import Lock
from codegen.model import Op
from codegen.schema import Arg, fnv1a, format_default
from python import emit_layers

ROOT = Path(__file__).resolve().parent
FILES = 12
# Lists that may be written as arguments: x.view(2, 3).
SPREAD = ("size", "dims", "repeats", "shape")
# Operators whose tensors may be written as arguments: meshgrid(x, y).
SPREAD_TENSORS = ("meshgrid", "broadcast_tensors", "block_diag", "cartesian_prod", "einsum")
# Lists for which one integer may stand.
ONE_OR_SEVERAL = ("dim", "dims", "size", "shifts", "source", "destination", "stride", "normalized_shape")


def is_bound(op: Op) -> bool:
    """Returns whether Python has the operator: not gradients, internal ones, and those of process groups."""
    return not (op.derived or op.schema.name.startswith("_") or any(a.type == "Handle" for a in op.schema.args))


def kind(arg: Arg) -> str:
    if arg.list:
        if arg.type == "Tensor":
            return "kTensorsOrNone" if arg.element_optional else "kTensors"
        if arg.type == "float":
            return "kFloats"
        return "kIntsOrInt" if arg.size is not None or arg.name in ONE_OR_SEVERAL else "kInts"
    return {"str": "kText", "ScalarType": "kDtype"}.get(arg.type, f"k{arg.type}".replace("kint", "kInt"))


def kind_name(arg: Arg) -> str:
    found = kind(arg)
    return {"kfloat": "kFloat", "kbool": "kBool"}.get(found, found)


def param(arg: Arg) -> str:
    flags = [
        arg.optional,
        not arg.has_default and not (arg.optional and arg.type in ("Tensor", "Generator")),
        arg.kw_only,
    ]
    texts = ", ".join("true" if flag else "false" for flag in flags)
    return f"{{{cpp.text(arg.name)}, Kind::{kind_name(arg)}, {texts}}}"


def converted(arg: Arg, slot: str) -> tuple[str, str]:
    """Returns the type of the variable that holds an argument, and the expression that converts it."""
    if arg.list:
        if arg.type == "Tensor":
            return "std::vector<Tensor>", f"to_tensors({slot})"
        if arg.type == "float":
            return "Floats", f"Floats({slot})"
        return "Ints", f"Ints({slot}, {arg.size})" if arg.size is not None else f"Ints({slot})"
    kinds = {
        "Tensor": ("Tensor", f"tensor_of({slot})"),
        "Operand": ("Operand", f"to_operand({slot})"),
        "Scalar": ("Scalar", f"to_scalar({slot})"),
        "int": ("int64_t", f"to_int({slot})"),
        "float": ("double", f"to_float({slot})"),
        "bool": ("bool", f"to_bool({slot})"),
        "str": ("std::string_view", f"to_text({slot})"),
        "ScalarType": ("ScalarType", f"to_dtype({slot})"),
        "Device": ("Device", f"to_device({slot})"),
        "Generator": ("Generator", f"to_generator({slot})"),
    }
    return kinds[arg.type]


def default(arg: Arg) -> str:
    """Returns the value of an argument that is left out."""
    value = arg.default
    if arg.list and arg.type == "int":
        if value is None or not arg.has_default:
            return "Ints()"
        return "Ints{" + ", ".join(map(str, value)) + "}"
    if arg.list:
        return f"{converted(arg, '')[0]}()"
    if arg.type == "ScalarType":
        return f"ScalarType::{cpp.scalar_type(value)}"
    if arg.type == "Device":
        return f"Device({cpp.text(value)})"
    if arg.type == "str":
        return f"std::string_view({cpp.text(value)})"
    number = cpp.number(float(value) if arg.type == "float" else value)
    return f"{converted(arg, '')[0]}({number})"


def variable(arg: Arg, at: int, op: Op) -> str:
    slot = f"s[{at}]"
    kind_, value = converted(arg, slot)
    if arg.name == "stride" and arg.list and arg.size is None:  # as many as the kernel has
        sizes = [a.size for a in op.schema.args if a.name == "kernel_size" and a.size]
        value = f"Ints({slot}, {sizes[0]})" if sizes else value
    if arg.type == "Tensor" and not arg.list:
        if arg.optional or arg.has_default:
            return f"const Tensor {arg.name}_ = {slot} ? tensor_of({slot}) : Tensor();"
        return f"const Tensor& {arg.name}_ = tensor_of({slot});"
    absent = arg.optional and (arg.default is None or not arg.has_default)
    if absent and not arg.list:
        if arg.type == "Operand":
            return f"const Operand {arg.name}_ = {slot} ? {value} : Operand();"
        return f"const auto {arg.name}_ = {slot} ? std::optional<{kind_}>({value}) : std::nullopt;"
    if not arg.has_default and not arg.optional:
        return f"const {kind_} {arg.name}_ = {value};"
    return f"const {kind_} {arg.name}_ = {slot} ? {value} : {default(arg)};"


def is_factory(op: Op) -> bool:
    """Returns whether a result may be made to require gradients: whether the operator takes a device."""
    names = [a.name for a in op.schema.args]
    return "device" in names and "dtype" in names and op.schema.name != "to" and len(op.schema.returns) == 1


def work(op: Op) -> str:
    terms = [f"elements({a.name}_)" for a in op.schema.args if a.is_tensor or a.is_tensor_list]
    return " + ".join(terms) or "0"


def overload(op: Op, ident: str, inplace: bool) -> list[str]:
    args = op.schema.args
    lines = [f"PyObject* {ident}(PyObject* const* s) {{"]
    lines += [f"  {variable(arg, at, op)}" for at, arg in enumerate(args)]
    call = ", ".join(f"{a.name}_" for a in args)
    name = op.schema.name
    selfs = [i for i, a in enumerate(args) if a.name == "self"]
    first = f"s[{selfs[0]}]" if selfs else "nullptr"
    if inplace or cpp.written(op.schema) is not None:
        written = cpp.written(op.schema)
        at = selfs[0] if written is None else args.index(written)
        suffix = "_" if inplace else ""
        lines += [
            "  {",
            f"    const Unlocked unlocked({work(op)});",
            f"    mytorch::{name}{suffix}({call});",
            "  }",
            f"  return Py_NewRef(s[{at}]);",
        ]
        return lines + ["}"]
    if cpp.has_out(op):
        at = len(args)
        outs = cpp.out_args(op)
        if len(outs) == 1:
            lines += [
                f"  if (s[{at}]) {{",
                f"    const Unlocked unlocked({work(op)});",
                f"    mytorch::{name}_out(tensor_of(s[{at}]){', ' * bool(call)}{call});",
                "  }",
                f"  if (s[{at}]) return Py_NewRef(s[{at}]);",
            ]
        else:
            given = ", ".join(f"outs[{i}]" for i in range(len(outs)))
            lines += [
                f"  if (s[{at}]) {{",
                f"    const std::vector<Tensor> outs = to_outs(s[{at}], {len(outs)});",
                f"    mytorch::{name}_out({given}, {call});",
                f"    return Py_NewRef(s[{at}]);",
                "  }",
            ]
    value = f"mytorch::{name}({call})"
    if is_factory(op):
        slot = f"s[{len(args) + cpp.has_out(op)}]"
        value += f".requires_grad_({slot} != nullptr && to_bool({slot}))"
    result = f"run({first}, {work(op)}, [&] {{ return {value}; }})"
    names = [r.name for r in op.schema.returns]
    if len(names) > 1 and all(names):
        fields = ", ".join(cpp.text(n) for n in names)
        lines += [
            "  static PyTypeObject* type = nullptr;  // guarded by the interpreter's lock",
            f"  if (!type) type = named_results({cpp.text(name)}, {{{fields}}});",
            f"  return as_named(type, {result});",
        ]
    else:
        lines.append(f"  return {result};")
    return lines + ["}"]


def signature(name: str, op: Op, ident: str, inplace: bool) -> tuple[list[str], str]:
    """Returns the definition of the parameters, and the entry of a signature."""
    args = list(op.schema.args)
    rows = [param(a) for a in args]
    with_out = cpp.has_out(op) and not inplace
    if with_out:
        several = len(cpp.out_args(op)) > 1
        rows.append(f'{{"out", Kind::{"kTensors" if several else "kTensor"}, true, false, true}}')
    if is_factory(op) and not inplace:
        rows.append('{"requires_grad", Kind::kBool, true, false, true}')
    found = spread_arg(op)
    spread = args.index(found) if found else -1
    if op.schema.name in SPREAD_TENSORS:
        spread = next(i for i, a in enumerate(args) if a.is_tensor_list)
    text = python_signature(name, op, with_out)
    params = (
        f"Param {ident}_params[] = {{{', '.join(rows)}}};" if rows else f"constexpr Param* {ident}_params = nullptr;"
    )
    entry = f"{{{cpp.text(text)}, {ident}_params, {len(rows)}, {spread}, {ident}}}"
    return [params], entry


def python_default(arg: Arg) -> str:
    value = arg.default
    if value is None or not arg.has_default:
        return "None"
    if isinstance(value, tuple):
        return f"({', '.join(map(str, value))}{',' * (len(value) == 1)})"
    return format_default(value)


def python_signature(name: str, op: Op, with_out: bool) -> str:
    parts, star = [], False
    for arg in op.schema.args:
        if arg.kw_only and not star:
            parts.append("*")
            star = True
        optional = arg.has_default or (arg.optional and arg.type in ("Tensor", "Generator"))
        parts.append(f"{arg.name}={python_default(arg)}" if optional else arg.name)
    if with_out:
        parts += ["*"] * (not star) + ["out=None"]
    if is_factory(op):
        parts.append("requires_grad=False")
    return f"{name}({', '.join(parts)})"


def functions(ops: list[Op]) -> dict[str, tuple[list[Op], bool]]:
    """Returns the overloads of each name, and whether it is an in-place form."""
    found: dict[str, tuple[list[Op], bool]] = {}
    for name, group in emit_api.by_name([op for op in ops if is_bound(op)]).items():
        found[name] = (group, False)
        for op in group:
            for alias in op.aliases:
                found.setdefault(alias, (group, False))
    for name, (group, _) in list(found.items()):
        forms = [op for op in group if cpp.has_inplace(op)]
        if forms and f"{name}_" not in found:
            found[f"{name}_"] = (forms, True)
    return found


def is_method(op: Op) -> bool:
    return "method" in op.forms and any(a.name == "self" for a in op.schema.args)


def operator(name: str, group: list[Op], inplace: bool) -> tuple[list[str], str]:
    """Returns the definitions of a name, and its entry in the list."""
    lines, entries = [], []
    for op in group:
        ident = f"{name}_{op.schema.overload}_{'i' * inplace}f"
        lines += overload(op, ident, inplace)
        params, entry = signature(name, op, ident, inplace)
        lines += params
        entries.append(entry)
    table = f"{name}_signatures"
    lines += [f"constexpr Signature {table}[] = {{", *(f"    {e}," for e in entries), "};"]
    lines.append(f"constexpr Function {name}_function = {{{cpp.text(name)}, {table}, {len(entries)}}};")
    method = f"method<{name}_function>" if any(is_method(op) for op in group) else "nullptr"
    doc = "\n".join(python_signature(name, op, cpp.has_out(op) and not inplace) for op in group)
    doc += "\n\n" + (group[0].doc if not inplace else f"The in-place form of {group[0].schema.name}.")
    return lines, f"{{{name}_function, call<{name}_function>, {method}, {cpp.text(doc)}}}"


# ---- types for tools that read programs ----


def python_type(arg: Arg) -> str:
    kinds = {
        "Tensor": "Tensor",
        "Operand": "Tensor | _Number",
        "Scalar": "_Number",
        "str": "str",
        "ScalarType": "_dtype",
        "Device": "_device | str",
        "Generator": "Generator",
    }
    found = kinds.get(arg.type, f"_{arg.type}")
    if arg.list:
        found = f"Sequence[{found}{' | None' * arg.element_optional}]"
        if kind(arg) == "kIntsOrInt":
            found += " | _int"
    return found + " | None" * (arg.optional and "None" not in found.split(" | "))


def result_type(op: Op) -> str:
    def one(r) -> str:
        return {"Tensor": "Tensor", "Scalar": "_Number"}.get(r.type, f"_{r.type}")

    kinds = [f"tuple[{one(r)}, ...]" if r.list else one(r) for r in op.schema.returns]
    if not kinds:
        return "None"
    return kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"


def spread_arg(op: Op) -> Arg | None:
    """Returns the list of integers that may be written as arguments: x.view(2, 3)."""
    positional = [a for a in op.schema.args if a.name != "self"]
    first = positional[0] if positional else None
    return first if first and first.type == "int" and first.list and first.name in SPREAD else None


def stub(name: str, op: Op, with_out: bool, method: bool, spread: bool = False) -> str:
    parts, star = ["self"] if method else [], False
    defaults = False
    for arg in op.schema.args:
        if method and arg.name == "self":
            continue
        if spread and arg == spread_arg(op):
            parts.append(f"*{arg.name}: _int")
            star = True
            continue
        if arg.kw_only and not star:
            parts.append("*")
            star = True
        optional = arg.has_default or (arg.optional and arg.type in ("Tensor", "Generator"))
        defaults = defaults or optional
        name_ = f"{arg.name}_" if keyword.iskeyword(arg.name) else arg.name
        parts.append(f"{name_}: {python_type(arg)}{' = ...' * (optional or (defaults and not star))}")
    if with_out:
        parts += ["*"] * (not star) + ["out: Any = ..."]
    if is_factory(op):
        parts.append("requires_grad: _bool = ...")
    return f"def {name}({', '.join(parts)}) -> {result_type(op)}: ..."


def stubs(ops: list[Op]) -> str:
    """Returns the types of mytorch._core."""
    head = (ROOT / "core_types.pyi").read_text()
    methods, free = [], []
    for name, (group, inplace) in functions(ops).items():
        for lines, members, method in ((free, group, False), (methods, [o for o in group if is_method(o)], True)):
            if method and (f"    def {name}(" in head or f"\n    {name}: " in head):
                continue
            forms = [(op, spread) for op in members for spread in (False, True) if not spread or spread_arg(op)]
            over = ["@overload"] if len(forms) > 1 else []
            for op, spread in forms:
                lines += over + [stub(name, op, cpp.has_out(op) and not inplace, method, spread)]
    inside = "".join(f"    {line}\n" for line in methods)
    return head.replace("    # the operators\n", inside) + "\n" + "\n".join(free) + "\n"


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    files = {"python/_core.pyi": stubs(ops)} | emit_layers.emit()
    found = functions(ops)
    parts: dict[int, list[str]] = {i: [] for i in range(FILES)}
    for name in found:
        parts[fnv1a(name.rstrip("_")) % FILES].append(name)
    for number, names in parts.items():
        lines = ['#include "mytorch/ops.h"', '#include "python/named_results.h"', '#include "python/operators.h"', ""]
        lines += ["namespace mytorch::python {", f"namespace operators_{number} {{", "namespace {", ""]
        most = max(len(op.schema.args) + 2 for name in names for op in found[name][0])
        lines += [f"static_assert({most} <= kMaxParams);", ""]
        entries = []
        for name in names:
            body, entry = operator(name, *found[name])
            lines += [*body, ""]
            entries.append(entry)
        lines += ["}  // namespace", ""]
        lines += ["extern const Operator list[];", "const Operator list[] = {", *(f"    {e}," for e in entries), "};"]
        lines += ["extern const int size;", f"const int size = {len(entries)};", ""]
        lines += [f"}}  // namespace operators_{number}", "}  // namespace mytorch::python"]
        files[f"python/operators_{number:02}.cpp"] = cpp.source(lines)
    lines = ['#include "python/operators.h"', "", "namespace mytorch::python {", ""]
    for number, names in parts.items():
        lines.append(f"namespace operators_{number} {{ extern const Operator list[]; }}")
    rows = [f"    {{operators_{number}::list, {len(names)}}}," for number, names in parts.items()]
    lines += ["", "const OperatorList operator_lists[] = {", *rows, "};"]
    lines += [f"const int num_operator_lists = {FILES};", "", "}  // namespace mytorch::python"]
    files["python/operators.cpp"] = cpp.source(lines)
    return files
