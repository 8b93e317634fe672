"""Types and values of schemas in C++."""

from __future__ import annotations

import math

from codegen.expr import Body, Condition, Decision, Leaf
from codegen.model import Op
from codegen.schema import REQUIRED, Arg, Schema

BANNER = "// Generated from ops.yaml by codegen. Do not edit."

_PLAIN = {"int": "int64_t", "float": "double", "bool": "bool", "ScalarType": "ScalarType", "Device": "Device"}


def source(lines: list[str]) -> str:
    """Returns a generated file of these lines."""
    return "\n".join([BANNER, *lines, ""])


def header(about: str, includes: list[str], lines: list[str]) -> str:
    """Returns a generated header; `about` is its first comment."""
    return source([f"// {about}", "#pragma once", "", *(f'#include "{path}"' for path in includes), *lines])


def text(value: str) -> str:
    """Returns a C++ string literal."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def arg_type(arg: Arg) -> str:
    """Returns the parameter type of an argument."""
    if arg.type == "Tensor":
        return "TensorList" if arg.list else "const Tensor&"
    if arg.type == "Operand":
        return "const Operand&"
    if arg.type == "Scalar":
        return "std::optional<Scalar>" if arg.optional else "const Scalar&"
    if arg.type == "str":
        return "std::optional<std::string_view>" if arg.optional else "Str"
    if arg.type == "Generator":
        return "std::optional<Generator>"
    if arg.type == "Handle":
        return "const Handle&"  # absent: without an object
    if arg.list:
        if arg.type == "float":
            return "OptionalFloatList" if arg.optional else "FloatList"
        return "OptionalIntList" if arg.optional else "IntList"
    plain = _PLAIN[arg.type]
    return f"std::optional<{plain}>" if arg.optional else plain


def value_type(arg: Arg) -> str:
    """Returns the type of an argument that outlives the call."""
    kinds = {
        "TensorList": "std::vector<Tensor>",
        "const Tensor&": "Tensor",
        "const Operand&": "Operand",
        "const Scalar&": "Scalar",
        "const Handle&": "Handle",
        "Str": "std::string",
        "std::optional<std::string_view>": "std::optional<std::string>",
        "IntList": "Dims",
        "OptionalIntList": "std::optional<Dims>",
        "FloatList": "std::vector<double>",
        "OptionalFloatList": "std::optional<std::vector<double>>",
    }
    kind = arg_type(arg)
    return kinds.get(kind, kind)


def number(value: float | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isinf(value):
            return ("-" if value < 0 else "") + "std::numeric_limits<double>::infinity()"
        if math.isnan(value):
            return "std::numeric_limits<double>::quiet_NaN()"
        return repr(value)
    return str(value)


def default(arg: Arg) -> str:
    """Returns the default argument, or "" if there is none."""
    value = arg.default
    if value is REQUIRED:
        return ""
    if value is None:
        return " = {}"
    if isinstance(value, tuple):
        return " = {" + ", ".join(number(v) for v in value) + "}" if value else f" = {arg_type(arg)}()"
    if arg.type == "ScalarType":
        return " = ScalarType::k" + {"bool": "Bool", "uint8": "UInt8"}.get(
            value,
            value.replace("bfloat", "BFloat").replace("float", "Float", 1).replace("int", "Int", 1)
            if not value.startswith("bfloat")
            else "BFloat16",
        )
    if arg.type == "Device":
        return f" = Device({text(value)})"
    if isinstance(value, str):
        return " = " + text(value)
    if arg.type == "float":
        return " = " + number(float(value))
    return " = " + number(value)


def return_type(schema: Schema) -> str:
    def one(r) -> str:
        if r.type == "Tensor":
            return "std::vector<Tensor>" if r.list else "Tensor"
        return {"int": "int64_t", "float": "double"}.get(r.type, r.type)

    kinds = [one(r) for r in schema.returns]
    if not kinds:
        return "void"
    return kinds[0] if len(kinds) == 1 else "std::tuple<" + ", ".join(kinds) + ">"


def result_type(schema: Schema) -> str:
    """Returns the return type of the function: a reference to the written argument, or the results."""
    return "const Tensor&" if written(schema) is not None else return_type(schema)


def params(args: tuple[Arg, ...] | list[Arg], defaults: bool = False) -> str:
    return ", ".join(f"{arg_type(a)} {a.name}{default(a) if defaults else ''}" for a in args)


def names(args: tuple[Arg, ...] | list[Arg]) -> str:
    return ", ".join(a.name for a in args)


def written(schema: Schema) -> Arg | None:
    """Returns the argument that the op writes and returns, such as the `self` of copy_."""
    for arg in schema.args:
        if arg.alias is not None and arg.alias.write and not arg.list:
            return arg
    return None


def written_lists(schema: Schema) -> list[Arg]:
    """Returns the lists of tensors that the op writes. Such an op returns nothing."""
    return [a for a in schema.args if a.alias is not None and a.alias.write and a.list]


def has_inplace(op: Op) -> bool:
    return "inplace" in op.forms and written(op.schema) is None


def has_out(op: Op) -> bool:
    """Returns whether the op has an out= form: its results are new tensors."""
    if op.derived or op.dynamic or op.meaning == "view" or written(op.schema) is not None:
        return False
    return bool(op.schema.returns) and all(
        r.type == "Tensor" and not r.list and r.alias is None for r in op.schema.returns
    )


def out_args(op: Op) -> list[str]:
    if len(op.schema.returns) == 1:
        return ["out"]
    return [r.name or f"out{i}" for i, r in enumerate(op.schema.returns)]


def condition(c: Condition, args: dict[str, Arg]) -> str:
    """Returns a static condition of a body as a C++ expression over the call's parameters."""
    arg = args[c.arg]
    kind = arg_type(arg)
    if c.kind == "is_none":
        if arg.type == "Tensor":
            return f"!{arg.name}.defined()"
        if arg.type == "Operand":
            return f"!{arg.name}.present()"
        return f"!{arg.name}.has_value()"
    if c.kind == "str_eq":
        return f"{arg.name} == std::string_view({text(c.value)})"
    if c.kind == "flag":
        return f"{arg.name}.value_or(false)" if kind.startswith("std::optional") else arg.name
    if arg.type == "Scalar" and c.op == "==":  # of a complex number, too
        value = float(c.value)
        literal = f"int64_t{{{int(value)}}}" if value.is_integer() else number(value)
        return f"{arg.name}{'->' if arg.optional else '.'}equals({literal})"
    if arg.type == "Scalar":
        value = f"{arg.name}->to_double()" if arg.optional else f"{arg.name}.to_double()"
    else:
        value = f"static_cast<double>({'*' if arg.optional else ''}{arg.name})"
    return f"{value} {c.op} {number(float(c.value))}"


def selector(body: Body, op: Op) -> str:
    """Returns the variant of a call as a C++ expression."""
    args = {a.name: a for a in op.schema.args}

    def walk(tree: Decision | Leaf) -> str:
        if isinstance(tree, Leaf):
            if tree.error:
                return f"refuse_arguments(ops::{op.schema.struct_id}::info, {text(tree.error)})"
            return f"uint16_t{{{tree.variant}}}"
        return f"({condition(tree.condition, args)} ? {walk(tree.if_true)} : {walk(tree.if_false)})"

    return walk(body.selector)
