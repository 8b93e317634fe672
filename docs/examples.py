"""A C++ program for each operator, made from its samples. The pages show them, and the test docs.operators runs them.
"""

from __future__ import annotations

import math

from codegen import cpp
from codegen.model import Op
from codegen.schema import Arg

LARGEST = 1000  # elements of a tensor in an example
LEFT_OUT = "Generator"  # the type of arguments that an example leaves at their defaults


class Unsuitable(Exception):
    """Raised for a sample that makes no good example."""


def _dtype(name: str) -> str:
    words = {"uint8": "UInt8", "bfloat16": "BFloat16"}
    return "mytorch::k" + words.get(name, name[0].upper() + name[1:])


def _whole(value: float) -> str:
    return cpp.number(int(value) if float(value).is_integer() else value)


def _list(values) -> str:
    return "{" + ", ".join(cpp.number(v) for v in values) + "}"


def _shape(sizes: list[int]) -> str:
    return _list(sizes) if sizes else "mytorch::IntList()"


def _flat(values) -> list:
    return [x for v in values for x in _flat(v)] if isinstance(values, list) else [values]


def _sizes(values) -> list[int]:
    return [len(values), *(_sizes(values[0]) if values else [])] if isinstance(values, list) else []


def _tensor(spec: dict, dtype: str) -> str:
    """Returns an expression that makes a tensor in the form of a sample, of a type unless the sample has one."""
    if spec.get("layout", "contiguous") != "contiguous" or "special" in spec:
        raise Unsuitable
    dtype = spec.get("dtype", dtype)
    if "values" in spec:
        values = _flat(spec["values"])
        sizes = spec.get("shape", _sizes(spec["values"]))
        if not values or any(isinstance(v, str) for v in values):
            raise Unsuitable
        text = (
            f"mytorch::tensor({_list([float(v) if dtype.startswith(('float', 'complex')) else int(v) for v in values])}"
        )
        text += ")" if dtype == "float32" else f", {_dtype(dtype)})"
        return text if len(sizes) == 1 else f"{text}.reshape({_shape(sizes)})"
    sizes = spec["shape"]
    count = math.prod(sizes)
    if not 0 < count <= LARGEST or dtype in ("float16", "bfloat16"):
        raise Unsuitable
    if spec.get("unique") or spec.get("sorted"):
        order = "arange" if spec.get("sorted") else "randperm"
        text = f"mytorch::{order}({count}, {_dtype(dtype)})"
        return text if len(sizes) == 1 else f"{text}.reshape({_shape(sizes)})"
    low, high = spec.get("low", -1), spec.get("high", 1)
    if dtype == "bool":
        return f"mytorch::rand({_shape(sizes)}) > 0.5"
    if dtype.startswith("complex"):
        return f"mytorch::randn({_shape(sizes)}, {_dtype(dtype)})"
    if not dtype.startswith("float"):
        return f"mytorch::randint({math.ceil(low)}, {math.ceil(high)}, {_shape(sizes)}, {_dtype(dtype)})"
    more = "" if dtype == "float32" else f", {_dtype(dtype)}"
    if low < 0 and high - low > 2:
        return f"mytorch::randn({_shape(sizes)}{more})"
    text = f"mytorch::rand({_shape(sizes)}{more})"
    if high - low != 1:
        text += f" * {_whole(high - low)}"
    return text if low == 0 else f"{text} {'-' if low < 0 else '+'} {_whole(abs(low))}"


def _value(arg: Arg, value: object, dtype: str, name: str, lines: list[str]) -> str:
    """Returns the expression of an argument; a tensor becomes a variable of this name."""
    if value is None:
        return "{}"
    if arg.type == LEFT_OUT:
        raise Unsuitable
    if arg.type == "Device" and value == "cpu":
        return "mytorch::kCPU"
    if arg.is_tensor_list:
        names = []
        for i, spec in enumerate(value):
            names.append(
                _value_of_tensor(spec, dtype, f"{name}{i}", lines) if spec is not None else "mytorch::Tensor()"
            )
        return "{" + ", ".join(names) + "}"
    if isinstance(value, dict):
        return _value_of_tensor(value, dtype, name, lines)
    if arg.list:
        kind = "mytorch::IntList" if arg.name == "bins" else ""  # an overload of histogramdd takes tensors
        return kind + _list(value) if isinstance(value, (list, tuple)) else cpp.number(value)
    if arg.type == "ScalarType":
        return _dtype(value)
    if isinstance(value, str):
        if arg.type != "str":
            raise Unsuitable
        return cpp.text(value)
    if isinstance(value, float) and value.is_integer() and arg.type == "float":
        return cpp.number(value)
    return cpp.number(value)


def _value_of_tensor(spec: dict, dtype: str, name: str, lines: list[str]) -> str:
    text, kind = _tensor(spec, dtype), spec.get("matrix")
    if kind in ("positive", "symmetric"):
        lines.append(f"const Tensor random = {text};")
        product = "mytorch::matmul(random, random.mT())" if kind == "positive" else "random + random.mT()"
        text = product + (f" + mytorch::eye({spec['shape'][-1]})" if kind == "positive" else "")
    elif kind:
        text += f" + mytorch::eye({spec['shape'][-2]}, {spec['shape'][-1]}) * 4"
    lines.append(f"const Tensor {name} = {text};")
    return name


def _common_type(op: Op) -> str:
    """Returns the type of operands of no particular type."""
    return "float32" if op.meaning not in ("pointwise", "reduce") or op.takes("float") else "int64"


def _statements(op: Op, case: dict) -> list[str]:
    schema, given = op.schema, dict(case.get("args", {}))
    given = {n: v for n, v in given.items() if next(a for a in schema.args if a.name == n).type != LEFT_OUT}
    lines: list[str] = []
    last = max((i for i, a in enumerate(schema.args) if a.name in given or not a.has_default), default=-1)
    values = []
    for arg in schema.args[: last + 1]:
        dtype = {"bool": "bool", "index": "int64"}.get(op.types.get(arg.name), _common_type(op))
        if arg.name in given:
            values.append(_value(arg, given[arg.name], dtype, arg.name, lines))
        elif arg.has_default:
            values.append(cpp.default(arg).removeprefix(" = ") or "{}")
        else:
            raise Unsuitable
    call = f"mytorch::{schema.name}({', '.join(values)})"
    taken = {a.name for a in schema.args}
    if cpp.written(schema) is not None or cpp.written_lists(schema) or not schema.returns:
        return [*lines, f"{call};"]
    if len(schema.returns) > 1:
        names = [r.name if r.name and r.name not in taken else f"result{i}" for i, r in enumerate(schema.returns)]
        return [*lines, f"const auto [{', '.join(names)}] = {call};"]
    kind = "Tensor" if cpp.return_type(schema) == "Tensor" else "auto"
    return [*lines, f"const {kind} result = {call};"]


def _elements(case: dict) -> list[int]:
    """Returns the numbers of elements of the tensors of a sample."""
    found = []
    for value in case.get("args", {}).values():
        for spec in value if isinstance(value, list) else [value]:
            if isinstance(spec, dict) and "seed" not in spec:
                found.append(math.prod(spec["shape"]) if "shape" in spec else len(_flat(spec["values"])))
    return found


def _oddity(case: dict) -> tuple[int, bool]:
    """Orders samples: those of a few elements first, and among these those in the domain of the function."""
    return (sum(n < 2 or n > 64 for n in _elements(case)), "gradcheck" not in case)


def statements(op: Op, cases: list[dict]) -> list[str] | None:
    """Returns the statements of an example; None if no sample suits."""
    for case in sorted(cases, key=_oddity):
        if "error" in case or case.get("may_fail"):
            continue
        try:
            return _statements(op, case)
        except Unsuitable:
            continue
    return None


def program(lines: list[str]) -> list[str]:
    """Returns the program that a page shows."""
    return [
        '#include "mytorch/mytorch.h"',
        "",
        "using mytorch::Tensor;",
        "",
        "int main() {",
        *(f"  {line}" for line in lines),
        "}",
    ]


def translation_unit(examples: dict[str, list[str]]) -> str:
    """Returns one program that runs the statements of all examples, by the operators' full names."""
    lines = [
        "#include <cstdio>",
        "",
        '#include "mytorch/mytorch.h"',
        "",
        "using mytorch::Tensor;",
        "",
        "struct Example {",
        "  const char* name;",
        "  void (*run)();",
        "};",
        "static const Example kExamples[] = {",
    ]
    for name, statements_ in examples.items():
        lines += [f"    {{{cpp.text(name)}, [] {{", *(f"       {line}" for line in statements_), "     }},"]
    lines += [
        "};",
        "",
        "int main() {",
        "  int failures = 0;",
        "  for (const Example& example : kExamples) {",
        "    try {",
        "      example.run();",
        "    } catch (const mytorch::Error& error) {",
        '      std::printf("%s: %s\\n", example.name, error.what());',
        "      ++failures;",
        "    }",
        "  }",
        "  return failures;",
        "}",
    ]
    return cpp.source(lines)
