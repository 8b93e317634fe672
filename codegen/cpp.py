"""Types and values of schemas in C++."""

from __future__ import annotations

import math
import re

from codegen.expr import Body, Condition, Decision, Leaf
from codegen.model import Op
from codegen.schema import REQUIRED, Arg, Schema

BANNER = "// Generated from ops.yaml by codegen. Do not edit."
WIDTH = 120  # columns of a generated line

_PLAIN = {"int": "int64_t", "float": "double", "bool": "bool", "ScalarType": "ScalarType", "Device": "Device"}


def source(lines: list[str], of: str = "ops.yaml") -> str:
    """Returns a generated file of these lines."""
    return "\n".join([BANNER.replace("ops.yaml", of), *lines, ""])


def header(about: str, includes: list[str], lines: list[str], of: str = "ops.yaml") -> str:
    """Returns a generated header; `about` is its first comment, if there is one."""
    first = [f"// {about}"] * bool(about)
    return source([*first, "#pragma once", "", *(f'#include "{path}"' for path in includes), *lines], of)


# ---- long lines ------------------------------------------------------------------------------------------

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*|[^][(){}<>,;" \'/]+|.')

# Where a line may go on in a new one: a column, the depth in brackets, and whether it is inside of a string.
_Break = tuple[int, float, bool]


def wrapped(text_: str) -> str:
    """Breaks the lines of a source that are longer than WIDTH."""
    return "\n".join(part for line in text_.split("\n") for part in _fitting(line))


def _fitting(line: str) -> list[str]:
    if len(line) <= WIDTH or line.startswith("#"):
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if line.startswith("//", len(indent)):
        return _filled(line.split("//", 1)[1].split(), indent + "//")
    breaks, body, comment = _breaks(line, len(indent))
    if comment:
        return [*_fitting(indent + line[comment:]), *_fitting(line[:comment].rstrip())]
    if body:
        return [*_fitting(line[: body - 1]), *_fitting(f"{indent}  {line[body:-2]}"), indent + "}"]
    found, start, prefix = [], 0, ""
    while len(prefix) + len(line) - start > WIDTH:
        # The shallowest break, of these the last one. One that leaves half of the line empty is for want of another.
        end = start + WIDTH - len(prefix)
        fits = [b for b in breaks if start < b[0] <= end - b[2]]
        fits = [b for b in fits if b[0] > start + WIDTH * 2 // 5] or fits
        if not fits:
            break
        at, _, quoted = max(fits, key=lambda b: (-b[1], b[0]))
        # A string goes on in a literal of its own.
        found.append(prefix + line[start:at] + '"' if quoted else prefix + line[start:at].rstrip())
        start, prefix = at, indent + "    " + '"' * quoted
    return [*found, prefix + line[start:]]


def _breaks(line: str, start: int) -> tuple[list[_Break], int, int]:
    """Returns the breaks of a line, and where a body in braces that ends the line, and a comment behind it, begin; 0
    without one."""
    breaks: list[_Break] = []
    depth, body, templates = 0, 0, []
    for match in _TOKEN.finditer(line, start):
        token, at, end = match[0], match.start(), match.end()
        after = line[end : end + 1]
        if token.startswith("//"):
            return breaks, 0, at
        if token.startswith('"'):
            breaks += [(at + i + 1, depth + 0.5, True) for i, c in enumerate(token) if c == " "]
        elif token == "<" and line[at - 1] != " " and after != " ":
            templates.append(depth)
            depth += 1
        elif token == ">" and templates and templates[-1] == depth - 1 and line[at - 1] != "-":
            depth = templates.pop()
        elif token in "([{":
            if token == "{" and depth == 0:
                body = end + 1 if line[at - 2 :].startswith(") { ") else 0
            if after not in ")]}":
                breaks.append((end + (after == " "), depth + (0.25 if token == "{" else 0.75), False))
            depth += 1
        elif token in ")]}":
            depth -= 1
        elif token in ",;" and after == " ":
            breaks.append((end + 1, depth, False))
        elif token == " ":
            before_operator = line[end : end + 2] in ("? ", ": ", "||", "&&")
            preferred = before_operator or line[at - 2 : at] == " ="
            breaks.append((end, depth + (0.5 if preferred else 3), False))
    return breaks, body if body and line.endswith("; }") else 0, 0


def _filled(words: list[str], start: str) -> list[str]:
    """Returns a comment of these words, whose lines begin with `start`."""
    lines, line = [], start
    for word in words:
        if len(line) + len(word) + 1 > WIDTH and line != start:
            lines.append(line)
            line = start
        line += " " + word
    return [*lines, line]


# ---- types and values ------------------------------------------------------------------------------------


def text(value: str) -> str:
    """Returns a C++ string literal."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def array(kind: str, name: str, rows: list[str]) -> list[str]:
    """Returns a constant array, in one line if it fits."""
    line = f"constexpr {kind} {name}[] = {{{', '.join(rows)}}};"
    return [line] if len(line) <= WIDTH else [line[: line.index("{") + 1], *(f"    {row}," for row in rows), "};"]


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


def scalar_type(name: str) -> str:
    """Returns the constant of a type: kInt64 for int64."""
    words = {"uint": "UInt", "bfloat": "BFloat"}
    kind = name.rstrip("0123456789")
    return f"k{words.get(kind, kind.capitalize())}{name[len(kind):]}"


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
        return f" = ScalarType::{scalar_type(value)}"
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


def out_type(op: Op) -> str:
    """Returns the type of an out= form's results, which are its first arguments."""
    refs = ["const Tensor&"] * len(out_args(op))
    return refs[0] if len(refs) == 1 else f"std::tuple<{', '.join(refs)}>"


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
