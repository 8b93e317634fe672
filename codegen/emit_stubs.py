"""The operators themselves: layers, checks, outputs, and the call of the kernel."""

from __future__ import annotations

from codegen import cpp, emit_abi, emit_api
from codegen.model import Op
from codegen.schema import Arg

INCLUDES = """\
#include <limits>

#include "dispatcher/frame/call.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/frame/promotion.h"
#include "dispatcher/frame/reduce.h"
#include "mytorch/generated/bodies.h"
"""


def info(op: Op) -> str:
    return f"kInfo_{op.schema.struct_id}"


def entry(op: Op) -> str:
    return f"entries::{op.schema.struct_id}"


def is_operand(arg: Arg) -> bool:
    return arg.is_tensor


def prepare(op: Op, skip_inputs: bool) -> tuple[list[str], list[str]]:
    """Statements that make the fields of `args` from the parameters: locals first, then assignments.

    skip_inputs: the tensor inputs are set later, from the array that promotion may have changed.
    """
    before, after = [], []
    for a in op.schema.args:
        n, kind = a.name, cpp.arg_type(a)
        if a.type == "Tensor" and a.list:
            before.append(f"  TensorListArg {n}_arg({n});")
            after.append(f"  args.{n} = {n}_arg.abi();")
        elif a.is_tensor:
            if a.type == "Operand":
                before.append(f"  OperandArg {n}_arg({n});")
                value = f"{n}_arg.abi()" if a.optional else f"required({n}_arg, {info(op)}, {cpp.text(n)})"
            elif a.optional:
                value = f"optional_abi({n})"
            else:
                value = f"required({n}, {info(op)}, {cpp.text(n)})"
            if not skip_inputs:
                after.append(f"  args.{n} = {value};")
        elif a.type == "str":
            before.append(f"  StrArg {n}_arg({n});")
            after.append(f"  args.{n} = {n}_arg.abi();")
        elif a.type == "Generator":
            on = next(t.name for t in op.schema.args if t.type == "Tensor")
            after.append(f"  args.{n} = random_call({n}, {on});")
        elif a.type in ("Scalar", "ScalarType", "Device") or a.list or a.optional:
            after.append(f"  args.{n} = abi_value({n});")
        else:
            assert kind in ("int64_t", "bool", "double"), kind
            after.append(f"  args.{n} = {n};")
    return before, after


def input_value(op: Op, a: Arg) -> str:
    if a.type == "Operand":
        return f"{a.name}_arg.abi()" if a.optional else f"required({a.name}_arg, {info(op)}, {cpp.text(a.name)})"
    if a.optional:
        return f"optional_abi({a.name})"
    return f"required({a.name}, {info(op)}, {cpp.text(a.name)})"


def flags(op: Op) -> str:
    parts = [f"layer_flags({a.name})" for a in op.schema.args if a.type in ("Tensor", "Operand")]
    return " | ".join(parts) or "0u"


def layered(op: Op) -> bool:
    """Whether a layer wraps the op: those that decompose above the layers are not looked at."""
    if op.derived:
        return True
    return op.grad.kind in ("derived", "formulas")


def fields(op: Op) -> tuple[str, ...]:
    return op.schema.output_fields


# ---- pointwise ----------------------------------------------------------------------------------------


def pointwise_head(op: Op) -> list[str]:
    s = op.schema
    before, after = prepare(op, True)
    inputs = [a for a in s.args if a.is_tensor]
    lines = [
        f"  mt_args_{s.struct_id} args;",
        *before,
        f"  const mt_tensor* inputs[{len(inputs)}] = {{" + ", ".join(input_value(op, a) for a in inputs) + "};",
        f"  mt_tensor hosts[{len(inputs)}];",
        *set_inputs(op),
        f"  args.header = {{sizeof(args), {{}}, {cpp.selector(op.body, op)}, 0}};",
        *after,
    ]
    return lines


def set_inputs(op: Op, indent: str = "  ") -> list[str]:
    inputs = [a for a in op.schema.args if a.is_tensor]
    return [f"{indent}args.{a.name} = inputs[{i}];" for i, a in enumerate(inputs)]


def pointwise_inputs(op: Op) -> list[str]:
    """Again: the general way may have replaced an operand."""
    return ["  if (args.header.flags == 0) [[unlikely]] {", *set_inputs(op, "    "), "  }"]


def check_numbers(op: Op) -> list[str]:
    """Numbers that do not promote must fit a computation in integers, where the variant reads them."""
    if op.derived or op.promote == "float" or not (op.takes("integer") or op.takes("bool")):
        return []
    lines = []
    for a in op.schema.args:
        if a.type != "Scalar" or a.optional:
            continue
        reading = [p.variant for p in op.body.variants if any(n.name == a.name for n in p.scalars)]
        if not reading:
            continue
        guard = ""
        if len(reading) < len(op.body.variants):
            guard = "if (" + " || ".join(f"args.header.variant == {v}" for v in reading) + ") "
        lines.append(f"  {guard}check_number({info(op)}, {cpp.text(a.name)}, {a.name}, args.header.compute);")
    return lines


def pointwise(op: Op) -> list[str]:
    s = op.schema
    outs = fields(op)
    wanted = "const bool* wanted, " if op.derived else ""
    lines = [
        f"{cpp.return_type(s)} {s.struct_id}({wanted}{cpp.params(s.args)}) {{",
        *pointwise_head(op),
        f"  TensorImpl* outputs[{len(outs)}] = {{}};",
        f"  pointwise_outputs<Promote::k{op.promote.capitalize()}>({info(op)}, inputs, hosts, &args.header, outputs"
        f"{', wanted' if op.derived else ''});",
    ]
    for i in range(len(outs)):
        lines.append(f"  Tensor out_{i} = Tensor::adopt(outputs[{i}]);")
    lines += check_numbers(op) + pointwise_inputs(op)
    for i, f in enumerate(outs):
        lines.append(f"  args.{f} = " + (f"optional_abi(out_{i});" if op.derived else f"&outputs[{i}]->abi;"))
    if op.derived and len(outs) > 1:
        lines.append("  TensorImpl* const any = first_of(outputs);")
        lines.append("  if (any == nullptr) return {};")
        lines.append(f"  run_pointwise({entry(op)}, any, &args);")
    else:
        if op.derived:
            lines.append("  if (outputs[0] == nullptr) return {};")
        lines.append(f"  run_pointwise({entry(op)}, outputs[0], &args);")
    lines += [f"  return {give(len(outs))};", "}"]
    return lines


def give(n: int) -> str:
    if n == 1:
        return "out_0"
    return "{" + ", ".join(f"std::move(out_{i})" for i in range(n)) + "}"


def pointwise_into(op: Op, inplace: bool) -> list[str]:
    """The shared body of the in-place and out= forms: writes `out`."""
    lines = pointwise_head(op)
    out = "self" if inplace else "out"
    lines += [
        "  Tensor temporary;",
        f"  TensorImpl* const into = pointwise_into<Promote::k{op.promote.capitalize()}>({info(op)}, inputs, hosts, &args.header, "
        f"{out}, {'true' if inplace else 'false'}, &temporary);",
    ]
    lines += check_numbers(op) + pointwise_inputs(op)
    lines += [
        f"  args.{fields(op)[0]} = &into->abi;",
        f"  run_pointwise({entry(op)}, into, &args);",
        f"  finish_into({out}, temporary);",
    ]
    return lines


def pointwise_into_each(op: Op) -> list[str]:
    """The out= form of an op with several results."""
    outs = cpp.out_args(op)
    n = len(outs)
    lines = pointwise_head(op)
    lines += [
        f"  const Tensor* const outs[{n}] = {{" + ", ".join(f"&{o}" for o in outs) + "};",
        f"  TensorImpl* into[{n}];",
        f"  Tensor temporaries[{n}];",
        f"  pointwise_into_each<Promote::k{op.promote.capitalize()}>({info(op)}, inputs, hosts, &args.header, "
        "outs, into, temporaries);",
    ]
    lines += check_numbers(op) + pointwise_inputs(op)
    lines += [f"  args.{f} = &into[{i}]->abi;" for i, f in enumerate(fields(op))]
    lines.append(f"  run_pointwise({entry(op)}, into[0], &args);")
    return lines + [f"  finish_into({o}, temporaries[{i}]);" for i, o in enumerate(outs)]


# ---- reductions ---------------------------------------------------------------------------------------


def reduce_dims(op: Op) -> str:
    program = op.body.variants[0]
    dims = {
        "ALL": "OptionalIntList()",
        "INT": f"OptionalIntList({program.dim})",
        "LIST": f"OptionalIntList({program.dim})",
        "OPTIONAL_INT": f"({program.dim}.has_value() ? OptionalIntList(*{program.dim}) : OptionalIntList())",
    }[program.dim_kind]
    return f"{{{dims}, {program.keepdim or 'false'}}}"


def dtype_arg(op: Op) -> str:
    return "dtype" if any(a.name == "dtype" for a in op.schema.args) else "std::nullopt"


def reduce_head(op: Op) -> list[str]:
    s = op.schema
    before, after = prepare(op, False)
    return [
        f"  mt_args_{s.struct_id} args;",
        *before,
        f"  args.header = {{sizeof(args), {{}}, {cpp.selector(op.body, op)}, 0}};",
        *after,
    ]


def tensor_input(op: Op) -> str:
    return next(a.name for a in op.schema.args if a.is_tensor)


def reduce(op: Op) -> list[str]:
    s = op.schema
    outs = fields(op)
    lines = [
        f"{cpp.return_type(s)} {s.struct_id}({cpp.params(s.args)}) {{",
        *reduce_head(op),
        f"  TensorImpl* outputs[{len(outs)}];",
        f"  reduce_outputs({info(op)}, {tensor_input(op)}, {reduce_dims(op)}, {dtype_arg(op)}, &args.header, outputs);",
    ]
    for i, f in enumerate(outs):
        lines += [f"  Tensor out_{i} = Tensor::adopt(outputs[{i}]);", f"  args.{f} = &outputs[{i}]->abi;"]
    lines += [f"  run_pointwise({entry(op)}, outputs[0], &args);", f"  return {give(len(outs))};", "}"]
    return lines


def reduce_into(op: Op) -> list[str]:
    lines = reduce_head(op)
    lines += [
        f"  const ReduceSpec spec = reduce_spec({info(op)}, {tensor_input(op)}, {reduce_dims(op)}, "
        + ("dtype.has_value() ? dtype : std::optional<ScalarType>()" if dtype_arg(op) == "dtype" else "std::nullopt")
        + ");",
        "  args.header.compute = to_abi(spec.compute);",
    ]
    for i, (o, f) in enumerate(zip(cpp.out_args(op), fields(op))):
        fixed = op.results[i].dtype
        kind = f"dtype_from_name({cpp.text(fixed)})" if fixed else "spec.result"
        lines += [
            f"  KernelInto into_{i}({entry(op)}, {o}, as_list(spec.sizes), {kind}, "
            f"{tensor_input(op)}.device(), &args, false);",
            f"  args.{f} = &into_{i}.target()->abi;",
        ]
    if len(fields(op)) > 1:
        lines.append(f"  check_apart({info(op)}, {{{', '.join(cpp.out_args(op))}}});")
    lines.append(f"  run_pointwise({entry(op)}, into_0.target(), &args);")
    lines += [f"  into_{i}.finish();" for i in range(len(fields(op)))]
    return lines


# ---- primitives and composites with kernels -----------------------------------------------------------


def kernel_head(op: Op) -> list[str]:
    s = op.schema
    before, after = prepare(op, False)
    lines = [f"  mt_args_{s.struct_id} args;", *before, "  args.header = {sizeof(args), {}, 0, 0};"]
    shaped = f"shape::{op.function}({cpp.names(s.args)})"
    if s.mutates:
        lines.append(f"  {shaped};")
    elif len(s.returns) == 1:
        lines.append(f"  const TensorSpec spec_0 = {shaped};")
    else:
        lines.append("  const auto [" + ", ".join(f"spec_{i}" for i in range(len(s.returns))) + f"] = {shaped};")
    return lines + after


def kernel(op: Op) -> list[str]:
    s = op.schema
    outs = fields(op)
    lines = [
        f"{cpp.return_type(s)} {s.struct_id}({cpp.params(s.args)}) {{",
        *kernel_head(op),
        "  args.header.compute = to_abi(spec_0.dtype);",
    ]
    fallback = (
        f"return composite::{op.function}({cpp.names(s.args)})"
        if op.meaning == "composite"
        else f"fail_devices({info(op)}, &args)"
    )
    lines.append(f"  if (!on_one_device({info(op)}, &args)) [[unlikely]] {fallback};")
    if op.dynamic:
        lines += [f"  DynamicOutputs outputs({info(op)}, {{" + ", ".join(f"spec_{i}" for i in range(len(outs))) + "});"]
        lines += [f"  args.{f} = nullptr;" for f in outs]
        lines += [f"  outputs.run({entry(op)}, &args);"]
        lines += [f"  Tensor out_{i} = outputs.take({i});" for i in range(len(outs))]
    else:
        layout = ""
        if op.layout_of:
            followed = " || ".join(f"is_channels_last({name})" for name in op.layout_of)
            lines.append(f"  const bool channels_last = {followed};")
            layout = ", channels_last"
        for i, f in enumerate(outs):
            lines += [f"  Tensor out_{i} = make_output(spec_{i}{layout});", f"  args.{f} = &out_{i}.impl()->abi;"]
        if op.meaning == "composite":
            lines += [
                f"  if (!try_kernel({entry(op)}, out_0.impl(), &args)) {{",
                f"    const Substitution substitution({entry(op)}, out_0.impl(), &args);",
                f"    return composite::{op.function}({cpp.names(s.args)});",
                "  }",
            ]
        else:
            lines.append(f"  run_primitive({entry(op)}, out_0.impl(), &args);")
    lines += [f"  return {give(len(outs))};", "}"]
    return lines


def kernel_into(op: Op, inplace: bool) -> list[str]:
    s = op.schema
    lines = kernel_head(op) + ["  args.header.compute = to_abi(spec_0.dtype);"]
    targets = ["self"] if inplace else cpp.out_args(op)
    if op.meaning == "composite":
        # Where the kernel does not take the call, the functional form is copied; where a random number
        # was taken for it, its meaning, which takes no other.
        room = "composite" if any(a.type == "Generator" for a in s.args) else "below"
        call = f"{room}::{op.function if room == 'composite' else s.struct_id}({cpp.names(s.args)})"
        lines.append(f"  if (!on_one_device({info(op)}, &args)) [[unlikely]] fail_devices({info(op)}, &args);")
    else:
        lines.append(f"  if (!on_one_device({info(op)}, &args)) [[unlikely]] fail_devices({info(op)}, &args);")
    for i, (o, f) in enumerate(zip(targets, fields(op))):
        lines += [
            f"  required({o}, {info(op)}, {cpp.text(o)});",
            f"  KernelInto into_{i}({entry(op)}, {o}, as_list(spec_{i}.sizes), spec_{i}.dtype, spec_{i}.device, "
            f"&args, {'true' if inplace else 'false'});",
            f"  args.{f} = &into_{i}.target()->abi;",
        ]
    if len(targets) > 1:
        lines.append(f"  check_apart({info(op)}, {{{', '.join(targets)}}});")
    if op.meaning == "composite":
        lines += [
            f"  if (!try_kernel({entry(op)}, into_0.target(), &args)) {{",
            f"    const Substitution substitution({entry(op)}, into_0.target(), &args);",
        ]
        if len(targets) == 1:
            lines.append(f"    copy_into(into_0.target_tensor(), {call});")
        else:
            lines.append(f"    auto results = {call};")
            lines += [f"    copy_into(into_{i}.target_tensor(), std::get<{i}>(results));" for i in range(len(targets))]
        lines.append("  }")
    else:
        lines.append(f"  run_primitive({entry(op)}, into_0.target(), &args);")
    lines += [f"  into_{i}.finish();" for i in range(len(targets))]
    return lines


def writing_kernel(op: Op) -> list[str]:
    """A primitive that writes an argument (copy_, fill_, the random ones)."""
    s = op.schema
    w = cpp.written(s).name
    head = kernel_head(op)
    # Inputs that share some elements with what is written are read from copies.
    apart = []
    for a in s.args:
        if a.is_tensor and a.name != w:
            apart += [
                f"  Tensor {a.name}_apart;",
                f"  if (overlaps_partly({w}.impl(), {a.name}.impl())) [[unlikely]] {{",
                f"    {a.name}_apart = copy_of({a.name}.impl());",
                f"    args.{a.name} = &{a.name}_apart.impl()->abi;",
                "  }",
            ]
    lines = [
        f"const Tensor& {s.struct_id}({cpp.params(s.args)}) {{",
        *head,
        f"  check_writable({info(op)}, {w}.impl());",
        *apart,
        f"  args.header.compute = {w}.impl()->abi.dl.dtype;",
    ]
    if op.meaning == "composite":
        meaning = f"    composite::{op.function}({cpp.names(s.args)});"
        lines += [
            f"  if (!on_one_device({info(op)}, &args)) [[unlikely]] {{",
            meaning,
            f"  }} else if (!try_kernel({entry(op)}, {w}.impl(), &args)) {{",
            f"    const Substitution substitution({entry(op)}, {w}.impl(), &args);",
            meaning,
            "  }",
        ]
    else:
        lines += [
            f"  if (!on_one_device({info(op)}, &args)) [[unlikely]] fail_devices({info(op)}, &args);",
            f"  run_primitive({entry(op)}, {w}.impl(), &args);",
        ]
    lines += [f"  {w}.impl()->bump_version();", f"  return {w};", "}"]
    return lines


def list_writing_kernel(op: Op) -> list[str]:
    """A composite with a kernel that writes lists of tensors (the steps of optimizers)."""
    s = op.schema
    lists = cpp.written_lists(s)
    first = lists[0].name
    lines = [f"void {s.struct_id}({cpp.params(s.args)}) {{", f"  if ({first}.size() == 0) return;", *kernel_head(op)]
    for a in lists:
        lines.append(f"  for (const Tensor& each : {a.name}) check_writable({info(op)}, each.impl());")
    lines += [
        f"  args.header.compute = {first}[0].impl()->abi.dl.dtype;",
        f"  if (on_one_device({info(op)}, &args) && try_kernel({entry(op)}, {first}[0].impl(), &args)) {{",
    ]
    lines += [f"    for (const Tensor& each : {a.name}) each.impl()->bump_version();" for a in lists]
    return lines + [
        "    return;",
        "  }",
        f"  const Substitution substitution({entry(op)}, {first}[0].impl(), &args);",
        f"  composite::{op.function}({cpp.names(s.args)});",
        "}",
    ]


# ---- all together -------------------------------------------------------------------------------------


def below(op: Op) -> list[str]:
    s = op.schema
    if cpp.written_lists(s):
        return list_writing_kernel(op)
    if cpp.written(s) is not None:
        if op.has_kernel:
            return writing_kernel(op)
        return [
            f"const Tensor& {s.struct_id}({cpp.params(s.args)}) {{",
            f"  composite::{op.function}({cpp.names(s.args)});",
            f"  return {cpp.written(s).name};",
            "}",
        ]
    if op.meaning == "pointwise":
        lines = pointwise(op)
    elif op.meaning == "reduce":
        lines = reduce(op)
    elif op.meaning == "view":
        first = s.args[0].name
        lines = [
            f"Tensor {s.struct_id}({cpp.params(s.args)}) {{",
            f"  required({first}, {info(op)}, {cpp.text(first)});",
            f"  return make_view({first}, views::{op.function}({cpp.names(s.args)}));",
            "}",
        ]
    elif op.has_kernel:
        lines = kernel(op)
    else:
        lines = [
            f"{cpp.return_type(s)} {s.struct_id}({cpp.params(s.args)}) {{",
            f"  return composite::{op.function}({cpp.names(s.args)});",
            "}",
        ]
    if cpp.has_inplace(op):
        lines += [f"const Tensor& inplace_{s.struct_id}({cpp.params(s.args)}) {{"]
        if op.meaning == "pointwise":
            lines += pointwise_into(op, True)
        elif op.has_kernel and op.meaning != "reduce":
            lines += kernel_into(op, True)
        else:
            lines.append(f"  assign_inplace({info(op)}, self, below::{s.struct_id}({cpp.names(s.args)}));")
        lines += ["  return self;", "}"]
    return lines


def public(op: Op) -> list[str]:
    s = op.schema
    args = cpp.names(s.args)
    lines = []
    if op.derived:
        n = len(fields(op))
        lines += [
            f"namespace derived {{",
            f"{cpp.return_type(s)} {s.struct_id}(const bool* wanted, {cpp.params(s.args)}) {{",
            f"  if (layers_wanted({flags(op)})) [[unlikely]] {{",
            f"    if (auto* layer = {entry(op)}.autograd[kFunctional]) {{",
            f"      return reinterpret_cast<decltype(&below::{s.struct_id})>(layer)(wanted, {args});",
            "    }",
            "  }",
            f"  return below::{s.struct_id}(wanted, {args});",
            "}",
            "}  // namespace derived",
            f"{cpp.return_type(s)} {s.cpp_name}({cpp.params(s.args)}) {{",
            f"  constexpr bool kAll[{n}] = {{{', '.join(['true'] * n)}}};",
            f"  return derived::{s.struct_id}(kAll, {args});",
            "}",
        ]
        return lines
    result = "const Tensor&" if cpp.written(s) is not None else cpp.return_type(s)

    w = cpp.written(s)

    def form(name: str, target: str, column: str) -> None:
        lines.append(f"{result if column == 'kFunctional' else 'const Tensor&'} {name}({cpp.params(s.args)}) {{")
        if layered(op):
            lines.append(f"  if (layers_wanted({flags(op)})) [[unlikely]] {{")
            lines.append(f"    if (auto* layer = {entry(op)}.autograd[{column}]) {{")
            lines.append(f"      return reinterpret_cast<decltype(&below::{target})>(layer)({args});")
            lines.append("    }")
            lines.append("  }")
        if cpp.written_lists(s):
            flags_of = " | ".join(f"layer_flags({a.name})" for a in cpp.written_lists(s))
            lines.append(f"  if (layers_wanted({flags_of})) [[unlikely]] refuse_list_gradient({info(op)});")
        # An op that no layer wraps and no kernel serves is its composite.
        direct = op.meaning == "composite" and not op.has_kernel and not layered(op) and w is None
        lines.append(f"  return composite::{op.function}({args});" if direct else f"  return below::{target}({args});")
        lines.append("}")

    form(s.cpp_name, s.struct_id, "kFunctional")
    if cpp.has_inplace(op):
        if layered(op) or op.has_kernel:
            form(s.cpp_name + "_", "inplace_" + s.struct_id, "kInplace")
        else:
            # Decomposes above the layers: computed, then copied.
            lines += [
                f"const Tensor& {s.cpp_name}_({cpp.params(s.args)}) {{",
                f"  assign_inplace({info(op)}, self, mytorch::{s.cpp_name}({args}));",
                "  return self;",
                "}",
            ]
    if cpp.has_out(op):
        outs = cpp.out_args(op)
        lines.append(
            f"void {s.cpp_name}_out("
            + ", ".join(f"const Tensor& {o}" for o in outs)
            + (", " if s.args else "")
            + cpp.params(s.args)
            + ") {"
        )
        own = " | ".join(f"layer_flags({o})" for o in outs)
        lines.append(f"  if (layers_wanted({flags(op)} | {own})) [[unlikely]] refuse_out_gradient({info(op)});")
        if op.meaning == "pointwise":
            lines += pointwise_into(op, False) if len(outs) == 1 else pointwise_into_each(op)
        elif op.meaning == "reduce":
            lines += reduce_into(op)
        elif op.has_kernel:
            lines += kernel_into(op, False)
        else:
            call = f"mytorch::{s.cpp_name}({args})"
            if len(outs) == 1:
                lines.append(f"  assign_out({info(op)}, {outs[0]}, {call});")
            else:
                lines.append(f"  auto results = {call};")
                gets = ", ".join(f"std::get<{i}>(results)" for i in range(len(outs)))
                lines.append(f"  assign_outs({info(op)}, {{{', '.join(outs)}}}, {{{gets}}});")
        lines.append("}")
    return lines


def emit(ops: list[Op], buckets: dict[int, list[Op]]) -> dict[str, str]:
    files = {}
    for number, members in buckets.items():
        layouts = ['#include "dispatcher/frame/layout.h"'] if any(op.layout_of for op in members) else []
        lines = [
            cpp.BANNER.strip(),
            INCLUDES.strip(),
            *layouts,
            *emit_abi.includes(members),
            *emit_api.below_includes(members),
        ]
        lines += [f'#include "mytorch/ops/{n}.h"' for n in sorted({op.schema.cpp_name for op in members})]
        lines += ["", "namespace mytorch {", ""]
        lines += [f"extern const OpInfo {info(op)};" for op in members]
        lines += ["", "namespace below {"]
        for op in members:
            lines += ["", *below(op)]
        lines += ["", "}  // namespace below"]
        for op in members:
            lines += ["", *public(op)]
        lines += ["", "}  // namespace mytorch", ""]
        files[f"src/ops_{number:02d}.cpp"] = "\n".join(lines)
    return files
