"""The layers of C++ in Python, from layers.yaml: for each a function that makes it, one that calls it, and a class."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from codegen import cpp

ROOT = Path(__file__).resolve().parent
HEADERS = ROOT.parent / "nn"
TYPES = {
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string",
    "int[]": "std::vector<int64_t>",
    "int64s": "Int64s",
    "Tensor[]": "std::vector<Tensor>",
    "dtype": "ScalarType",
    "Pair": "std::tuple<Tensor, Tensor>",
    "PackedSequence": "nn::utils::rnn::PackedSequence",
    "TransformerEncoderLayer": "nn::TransformerEncoderLayer",
    "TransformerDecoderLayer": "nn::TransformerDecoderLayer",
}


@dataclass
class Arg:
    name: str
    type: str  # of layers.yaml; empty for fields of options
    default: str | None  # Python's text
    nullable: bool = False  # whether None is a value, too
    of_python: bool = False  # whether C++ does not know it


@dataclass
class Function:
    """A call of C++: arguments in order, then fields of a struct, then further arguments."""

    name: str
    args: list[Arg]
    fields: list[Arg]
    options: str
    then: list[Arg]
    renamed: dict[str, str]

    @property
    def all(self) -> list[Arg]:
        return self.args + self.fields + self.then

    def of_cpp(self) -> Function:
        """Returns the function without the arguments that only Python has."""
        args, fields = ([a for a in some if not a.of_python] for some in (self.args, self.fields))
        return Function(self.name, args, fields, self.options, self.then, self.renamed)


def split(text: str) -> list[str]:
    """Splits at the commas outside of brackets and quotes."""
    return [
        part.strip() for part in re.findall(r"(?:[^,\[<'(]|\[[^]]*\]|<[^>]*>|'[^']*'|\([^)]*\))+", text) if part.strip()
    ]


def arg(text: str, typed: bool) -> Arg:
    left, _, default = text.partition("=")
    type_, _, name = left.strip().rpartition(" ")
    assert bool(type_) == typed or name[0] == "*", text
    return Arg(name.strip("*?"), type_, default.strip() or None, name.endswith("?"), name[0] == "*")


def function(text: str, entry: dict, prefix: str = "") -> Function:
    name, _, rest = text.partition("(")
    args, bar, fields = rest.rstrip(")").partition("|")
    options = entry.get(f"{prefix}options", "")
    if bar and not options:
        options = f"Parts<nn::{name}Options>::Args"
    elif bar:
        space = entry.get("in", "") if not prefix else ""
        options = f"nn::{space}::{options}" if space else f"nn::{options}"
    return Function(
        name,
        [arg(part, True) for part in split(args)],
        [arg(part, False) for part in split(fields)],
        options,
        [arg(part, True) for part in split(entry.get("then", ""))],
        entry.get("fields", {}),
    )


def entries(kind: str) -> list[dict]:
    """Returns the entries of a list, one for each number of dimensions."""
    found = []
    for entry in yaml.safe_load((ROOT / "layers.yaml").read_text())[kind]:
        for n in entry.get("n", [0]):

            def with_n(value):
                if isinstance(value, dict):
                    return {key: with_n(each) for key, each in value.items()}
                return value.replace("{n}", str(n)) if isinstance(value, str) else value

            found.append({key: with_n(value) for key, value in entry.items() if key != "n"})
    return found


# ---- functions of C++ ----


def type_of(text: str) -> str:
    if text.endswith("?"):
        return f"std::optional<{type_of(text[:-1])}>"
    if match := re.fullmatch(r"int\[(\d)\]", text):
        return f"nn::Sizes<{match[1]}>"
    return TYPES.get(text, text)


def taken(a: Arg, at: int) -> str:
    """Returns the expression of an argument's value."""
    slot = f"s[{at}]"
    if a.type == "Tensor?":
        return f"tensor_or_none({slot})"
    if a.type == "Tensor":
        return f"{'tensor_or_none' if a.default == 'None' else 'tensor_of'}({slot})"
    type_ = type_of(a.type)
    value = f"take<{type_}>({slot}, {cpp.text(a.name)})"
    if a.default is None:
        return value
    if a.default == "None":
        return f"(present({slot}) ? {value} : {type_}())"
    default = cpp.text(a.default.strip("'")) if a.default[0] == "'" else a.default.lower()
    return f"(present({slot}) ? {value} : {type_}({default}))"


def params(f: Function, self: bool) -> str:
    rows = ['{"self", Kind::kLayer, false, true, false}'] if self else []
    for a in f.all:
        kind = "kTensor" if a.type in ("Tensor", "Tensor?") else "kAny"
        optional = a.default in ("None", "True", "False") or a.type.endswith("?") or a.nullable
        rows.append(
            f"{{{cpp.text(a.name)}, Kind::{kind}, {str(optional).lower()}, {str(a.default is None).lower()}, false}}"
        )
    return ", ".join(rows)


def python_args(f: Function) -> str:
    return ", ".join(a.name if a.default is None else f"{a.name}={a.default}" for a in f.all)


def given(f: Function, first: int) -> tuple[list[str], list[str]]:
    """Returns the lines before a call, and its arguments."""
    lines = []
    values = [taken(a, first + i) for i, a in enumerate(f.args)]
    if f.fields:
        lines.append(f"  {f.options} o;")
        for i, a in enumerate(f.fields, first + len(f.args)):
            lines.append(f"  if (s[{i}]) give(o.{f.renamed.get(a.name, a.name)}, s[{i}], {cpp.text(a.name)});")
        values.append("o")
    return lines, values + [taken(a, first + len(f.args) + len(f.fields) + i) for i, a in enumerate(f.then)]


def entry_of(name: str, f: Function, body: list[str], self: bool = False) -> tuple[list[str], str]:
    """Returns the definition of a function of the module, and its entry in the list."""
    space, _, last = name.partition(".")
    is_method = self and bool(last)
    text = f"{name if is_method else last or name}({python_args(f)})"
    attribute = f"{space}_{last}" if is_method else last or name
    size = len(f.all) + self
    ident = name.replace(".", "_")
    lines = [f"PyObject* {ident}_call(PyObject* const* s) {{", *body, "}"]
    table = (
        f"Param {ident}_params[] = {{{params(f, self)}}};" if size else f"constexpr Param* {ident}_params = nullptr;"
    )
    lines += [
        table,
        f"constexpr Signature {ident}_signature = {{{cpp.text(text)}, {ident}_params, {size}, -1, {ident}_call}};",
    ]
    lines += [f"constexpr Function {ident}_function = {{{cpp.text(attribute)}, &{ident}_signature, 1}};", ""]
    return lines, f"{{{ident}_function, call<{ident}_function>, nullptr, nullptr}}"


def unlocked(f: Function, call: str, first: int) -> list[str]:
    """Returns the lines that run a call without the interpreter's lock if it is long."""
    at = next((i for i, a in enumerate(f.args) if a.type == "Tensor"), None)
    # An element of a layer's input costs more than one of an operator.
    work = "Unlocked::kElements" if at is None else f"elements(a{at})" + " * 16" * first
    same = "nullptr" if at is None else f"s[{at + first}]"  # the object that functions in place return
    lines, values = given(f, first)
    # What has been converted is kept: conversions need the lock.
    lines += [f"  const auto a{i} = {a};" for i, a in enumerate(values) if a != "o"]
    names = ", ".join("o" if a == "o" else f"a{i}" for i, a in enumerate(values))
    return lines + [f"  return run({same}, {work}, [&] {{ return plain({call.replace('ARGS', names)}); }});"]


def layer_functions(entry: dict) -> tuple[list[str], list[str], str]:
    """Returns the definitions for a layer, their entries, and the row of its class."""
    make = function(entry["make"], entry).of_cpp()
    of = f"nn::{make.name}"
    lines, values = given(make, 0)
    body = ["  callbacks_of_layer().clear();", *lines, f"  return made(std::make_shared<{of}>({', '.join(values)}));"]
    definition, listed = entry_of(make.name, make, body)
    definitions, rows = [*definition], [listed]
    calls = {"forward": entry.get("call", "(Tensor input)")} | entry.get("methods", {})
    for method, text in calls.items():
        f = function(f"{make.name}.{method}{text}", entry, "call_")
        cpp_name = {"forward": "layer", "_forward_to_size": "layer"}.get(method, f"layer.{method.strip('_')}")
        start = [f"  auto& layer = layer_as<{of}>(s[0]);", "  const Turn turn(s[0]);"]
        packed = [i for i, a in enumerate(f.args) if a.type == "TensorOrPacked"]
        if packed:
            rest = Function(f.name, [Arg("input", "PackedSequence", None), *f.args[1:]], f.fields, f.options, [], {})
            start += ["  if (!is_tensor(s[1])) {", *(f"  {line}" for line in unlocked(rest, "layer(ARGS)", 1)), "  }"]
            f.args[0] = Arg("input", "Tensor", None)
        body = start + unlocked(f, f"{cpp_name}(ARGS)", 1)
        if packed:
            f.args[0] = Arg("input", "TensorOrPacked", None)
        definition, listed = entry_of(f"{make.name}.{method}", f, body, self=True)
        definitions += definition
        rows.append(listed)
    return definitions, rows, f"class_of<{of}>({cpp.text(make.name)})"


def module(kind: str, space: str) -> tuple[list[str], list[str]]:
    """Returns the definitions and entries of functions of a namespace."""
    definitions, rows = [], []
    for entry in entries(kind):
        f = function(entry["make"], entry)
        body = unlocked(f, f"{space}::{f.name}(ARGS)", 0)
        definition, listed = entry_of(f"{kind}.{f.name}", f, body)
        definitions += definition
        rows.append(listed)
    return definitions, rows


INCLUDES = ['#include "mytorch/nn.h"', '#include "python/layers.h"', '#include "python/operators.h"', ""]
SPACES = {"functions": "nn::functional", "init": "nn::init", "rnn": "nn::utils::rnn"}


def source(part: str, definitions: list[str], rows: list[str], types: list[str] = ()) -> str:
    lines = [*INCLUDES, "namespace mytorch::python {", "namespace {", "", *definitions, "}  // namespace", ""]
    lines += [f"extern const Operator {part}_list[];", f"extern const int {part}_size;"]
    lines += [f"const Operator {part}_list[] = {{", *(f"    {row}," for row in rows), "};"]
    lines += [f"const int {part}_size = {len(rows)};"]
    if types:
        lines += ["", f"extern const LayerClass {part}_classes[];", f"extern const int {part}_num_classes;"]
        lines += [f"const LayerClass {part}_classes[] = {{", *(f"    {row}," for row in types), "};"]
        lines += [f"const int {part}_num_classes = {len(types)};"]
    return cpp.source([*lines, "", "}  // namespace mytorch::python"], "python/layers.yaml")


# ---- classes of Python ----


def docs() -> dict[str, str]:
    """Returns the comment above each class of the headers; for one without, that of its base."""
    found: dict[str, str] = {}
    for path in sorted(HEADERS.glob("include/mytorch/nn/*.h")):
        text = path.read_text()
        pattern = r"((?:^// .*\n|^//\n)+)(?:template <[^\n]*>\n)?class (\w+)"
        for comment, name in re.findall(pattern, text, re.M):
            found[name] = re.sub(r"^// ?", "", comment, flags=re.M).strip()
        for name, base in re.findall(r"^class (\w+) final[^{]*?\b(\w+Nd)<", text, re.M):
            if name not in found and base in found:
                found[name] = found[base]
    return found


# The layers with parameters that reset_parameters() draws again.
RESETS = r"Linear|Bilinear|^Transformer$|Embedding|Conv|(Batch|Instance|Layer|RMS|Group)Norm|RNN|GRU|LSTM|MultiheadAttention$|Adaptive.*Loss$"
PLAIN_BASES = ("Channels", "Table", "TransformerBase")  # which leave forward as it is


def python_parameters(f: Function) -> str:
    return "".join(f", {a.name}" if a.default is None else f", {a.name}={a.default}" for a in f.all)


def python_class(entry: dict, comments: dict[str, str]) -> str:
    make = function(entry["make"], entry)
    name = make.name
    calls = {"forward": entry.get("call", "(Tensor input)")} | entry.get("methods", {})
    base = entry.get("base") or ("LazyLayer" if entry.get("lazy") else "Layer")
    lines = [f"class {name}({base}):"]
    doc = comments.get(name) or comments.get(name.removeprefix("Lazy"), "")
    if doc:
        lines += [f'    r"""{doc}"""'.replace("\n", "\n    ").replace("\n    \n", "\n\n"), ""]
    cpp_args = make.of_cpp().all
    names = [a.name for a in cpp_args]
    defaults = [f"{cpp.text(a.name)}: {a.default}" for a in cpp_args if a.default is not None]
    lines += [
        f"    def __init__(self{python_parameters(make)}, *, device=None, dtype=None):",
        f"        super().__init__({', '.join(names)}{', ' * bool(names)}device=device, dtype=dtype)",
        *(f"        self.{a.name} = {a.name}" for a in make.all if a.of_python),
        "",
        '    __module__ = "mytorch.nn"',
        f"    _make = staticmethod(_nn.{name})",
        f"    _names = ({''.join(f'{cpp.text(n)}, ' for n in names)})",
        f"    _defaults = {{{', '.join(defaults)}}}",
        *([f'    _in_place = "{name.lower()}"'] if base == "InPlace" else []),
    ]
    for method, text in calls.items():
        f = function(f"{name}.{method}{text}", entry, "call_")
        given = "".join(f", {a.name}" for a in f.all)
        called = "_forward" if method == "forward" and "base" in entry and base not in PLAIN_BASES else method
        lines += ["", f"    def {called}(self{python_parameters(f)}):"]
        lines += [f"        return _nn.{name}_{method}(self._layer{given})"]
    if re.search(RESETS, name):
        lines += ["", "    def reset_parameters(self):", '        """Draws the parameters again."""']
        lines += ["        self._layer.reset_parameters()"]
    return "\n".join(lines) + "\n"


def emit() -> dict[str, str]:
    files = {}
    definitions, rows, types = [], [], []
    half = len(entries("layers")) // 2
    for part, some in (("layers_a", entries("layers")[:half]), ("layers_b", entries("layers")[half:])):
        definitions, rows, types = [], [], []
        for entry in some:
            more, listed, row = layer_functions(entry)
            definitions += more
            rows += listed
            types.append(row)
        files[f"python/{part}.cpp"] = source(part, definitions, rows, types)
    for kind, space in SPACES.items():
        files[f"python/nn_{kind}.cpp"] = source(kind, *module(kind, space))
    comments = docs()
    head = [
        '"""The layers of C++. Generated from layers.yaml."""',
        "",
        "from mytorch import _core",
        "from mytorch.nn.layer import (",
        "    Channels, InPlace, Layer, LazyLayer, LazyTransposed, Pooled, Recurrent, Table, TransformerBase, Transposed",
        ")",
        "",
        "_nn = _core._nn",
        "",
        "",
    ]
    classes = [python_class(entry, comments) for entry in entries("layers")]
    files["python/_layers.py"] = "\n".join(head) + "\n\n".join(classes)
    return files
