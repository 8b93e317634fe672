"""Operator schemas: `name.overload(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor`.

The syntax is ATen's, with two differences: `Operand` is a tensor or a number, and there is no `out`
argument, because the `out=` form of every op is derived.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field, replace


class SchemaError(ValueError):
    """Raised for a schema that does not parse or that violates a rule of this file."""


class _Required:
    """Marks an argument without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()

# Base types, and the suffixes that each may have.
_SUFFIXES = {
    "Tensor": ("", "?", "[]", "?[]"),
    "Operand": ("", "?"),
    "Scalar": ("", "?"),
    "int": ("", "?", "[]", "[]?", "[N]", "[N]?"),
    "float": ("", "?", "[]", "[]?"),
    "bool": ("", "?"),
    "str": ("", "?"),
    "ScalarType": ("", "?"),
    "Device": ("", "?"),
    "Generator": ("?",),
    "Handle": ("?",),
}
_RETURN_SUFFIXES = {"Tensor": ("", "[]"), "Scalar": ("",), "bool": ("",), "int": ("",)}

SCALAR_TYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)

# Names that are not valid as fields of a C struct or as parameters of a C++ function.
_KEYWORDS = frozenset(
    "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl "
    "concept const const_cast consteval constexpr constinit continue co_await co_return co_yield "
    "decltype default delete do double dynamic_cast else enum explicit export extern false float "
    "for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr "
    "operator or or_eq private protected public register reinterpret_cast requires return short "
    "signed sizeof static static_assert static_cast struct switch template this thread_local "
    "throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t "
    "while xor xor_eq".split()
)


def fnv1a(text: str) -> int:
    """Returns the 64-bit FNV-1a hash of UTF-8 text."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


@dataclass(frozen=True)
class Alias:
    """`(a)`: the value shares memory with others of the same name. `(a!)`: it is also written."""

    name: str
    write: bool = False

    def __str__(self) -> str:
        return f"({self.name}{'!' if self.write else ''})"


@dataclass(frozen=True)
class Arg:
    """One argument. `type` is the base type; `int[2]? x` is type int, list, size 2, optional."""

    name: str
    type: str
    optional: bool = False
    list: bool = False
    size: int | None = None
    element_optional: bool = False  # Tensor?[]
    kw_only: bool = False
    default: object = field(default=REQUIRED)
    alias: Alias | None = None

    @property
    def has_default(self) -> bool:
        return self.default is not REQUIRED

    @property
    def is_tensor(self) -> bool:
        """Returns whether this is one tensor operand (not a list): Tensor, Tensor?, Operand or Operand?."""
        return self.type in ("Tensor", "Operand") and not self.list

    @property
    def is_tensor_list(self) -> bool:
        return self.type == "Tensor" and self.list

    @property
    def is_number(self) -> bool:
        """Returns whether this is one number that a program may read: Scalar, int or float, or an optional one."""
        return self.type in ("Scalar", "int", "float") and not self.list

    @property
    def type_text(self) -> str:
        """Returns the canonical type, without alias: `Tensor?[]`, `int[2]`, `float[]?`."""
        text = self.type
        if self.element_optional:
            text += "?"
        if self.list:
            text += f"[{'' if self.size is None else self.size}]"
        return text + ("?" if self.optional else "")

    def __str__(self) -> str:
        text = self.type + (str(self.alias) if self.alias else "") + self.type_text[len(self.type) :]
        text += f" {self.name}"
        return text + (f"={format_default(self.default)}" if self.has_default else "")


@dataclass(frozen=True)
class Return:
    """One result. `name` is empty if the schema gives none."""

    type: str
    name: str = ""
    list: bool = False
    alias: Alias | None = None

    @property
    def is_tensor(self) -> bool:
        return self.type == "Tensor" and not self.list

    @property
    def type_text(self) -> str:
        return self.type + ("[]" if self.list else "")

    def __str__(self) -> str:
        text = self.type + (str(self.alias) if self.alias else "") + ("[]" if self.list else "")
        return text + (f" {self.name}" if self.name else "")


@dataclass(frozen=True)
class Schema:
    name: str
    overload: str
    args: tuple[Arg, ...]
    returns: tuple[Return, ...]

    @property
    def full_name(self) -> str:
        """Returns `add.Tensor`, or `exp` if there is no overload name."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def struct_id(self) -> str:
        """Returns `add_Tensor`, which is unique for each schema, as in mt_args_add_Tensor and MT_HASH_add_Tensor."""
        return f"{self.name}_{self.overload}" if self.overload else self.name

    def arg(self, name: str) -> Arg:
        for arg in self.args:
            if arg.name == name:
                return arg
        raise KeyError(name)

    @property
    def tensor_args(self) -> tuple[Arg, ...]:
        return tuple(a for a in self.args if a.is_tensor)

    @property
    def mutates(self) -> bool:
        return any(a.alias is not None and a.alias.write for a in self.args)

    @property
    def output_fields(self) -> tuple[str, ...]:
        """Returns the output fields of the argument struct, one for each returned tensor that is not itself an argument.

        One output is `out`; of several each is its return name, or `out0`, `out1`, ...
        """
        written = {a.alias.name for a in self.args if a.alias and a.alias.write}
        outputs = [r for r in self.returns if r.type == "Tensor" and not (r.alias and r.alias.name in written)]
        if len(outputs) == 1:
            return ("out",)
        return tuple(r.name or f"out{i}" for i, r in enumerate(outputs))

    @property
    def hash(self) -> int:
        """Returns the hash of the full name and all names and types. Defaults are excluded, because they may
        change."""
        args = ",".join(
            ("*" if a.kw_only else "") + a.type + str(a.alias or "") + a.type_text[len(a.type) :] + " " + a.name
            for a in self.args
        )
        returns = ",".join(str(r) for r in self.returns)
        return fnv1a(f"{self.full_name}({args})->({returns})")

    def __str__(self) -> str:
        parts, star = [], False
        for arg in self.args:
            if arg.kw_only and not star:
                parts.append("*")
                star = True
            parts.append(str(arg))
        returns = ", ".join(str(r) for r in self.returns)
        if len(self.returns) != 1:
            returns = f"({returns})"
        return f"{self.full_name}({', '.join(parts)}) -> {returns}"


def format_default(value: object) -> str:
    """Returns a default as the schema writes it."""
    if isinstance(value, str):
        return value if value in SCALAR_TYPES else f"'{value}'"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(format_default(v) for v in value) + "]"
    return str(value)


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SCHEMA = re.compile(rf"\s*({_NAME})(?:\.({_NAME}))?\((.*)\)\s*->\s*(.+?)\s*", re.S)
_TYPE = re.compile(rf"({_NAME})(\(([a-z])(!?)\))?((?:\?|\[\d*\])*)")
# Parts between commas that are outside of brackets and quotes.
_PARTS = re.compile(r"""(?:[^,(\['"]|\([^)]*\)|\[[^\]]*\]|'[^']*'|"[^"]*")+""")
# The Python types of a default of each type.
_DEFAULTS = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "Scalar": (bool, int, float),
    "Operand": (int, float),
    "str": (str,),
    "Device": (str,),
}


def _split(text: str) -> list[str]:
    return [part.strip() for part in _PARTS.findall(text) if part.strip()]


def _parse_default(text: str, arg: Arg) -> object:
    def fit(value: object) -> object:
        if type(value) not in _DEFAULTS.get(arg.type, ()):
            raise ValueError
        return float(value) if arg.type == "float" else value

    try:
        if text == "None" and arg.optional:
            return None
        if arg.type == "ScalarType" and text in SCALAR_TYPES:
            return text
        if arg.type in ("float", "Scalar") and text in ("inf", "-inf", "nan"):
            return float(text)
        value = ast.literal_eval(text)
        if not arg.list:
            return fit(value)
        values = value if isinstance(value, list) else [value] * (arg.size or 0)  # int[2] stride=1
        if len(values) != arg.size and (arg.size is not None or not isinstance(value, list)):
            raise ValueError
        return tuple(map(fit, values))
    except (ValueError, SyntaxError):
        raise SchemaError(f"default `{text}` does not fit type {arg.type_text}") from None


def _parse_type(text: str, suffixes: dict[str, tuple[str, ...]]):
    match = _TYPE.fullmatch(text)
    if not match:
        raise SchemaError(f"cannot read type `{text}`")
    base, alias_text, alias_name, write, suffix = match.groups()
    shape = re.sub(r"\[\d+\]", "[N]", suffix)
    if base not in suffixes or shape not in suffixes[base]:
        raise SchemaError(f"unknown type `{text}`")
    alias = Alias(alias_name, bool(write)) if alias_text else None
    if alias and base != "Tensor":
        raise SchemaError(f"only tensors have an alias: `{text}`")
    size = re.search(r"\[(\d+)\]", suffix)
    return base, alias, suffix, int(size.group(1)) if size else None


def _parse_arg(text: str, kw_only: bool) -> Arg:
    match = re.fullmatch(rf"(\S+)\s+({_NAME})\s*(?:=\s*(.+))?", text, re.S)
    if not match:
        raise SchemaError(f"cannot read argument `{text}`")
    type_text, name, default_text = match.groups()
    base, alias, suffix, size = _parse_type(type_text, _SUFFIXES)
    arg = Arg(name, base, suffix.endswith("?"), "[" in suffix, size, suffix == "?[]", kw_only, alias=alias)
    return arg if default_text is None else replace(arg, default=_parse_default(default_text.strip(), arg))


def _parse_return(text: str) -> Return:
    match = re.fullmatch(rf"(\S+)(?:\s+({_NAME}))?", text)
    if not match:
        raise SchemaError(f"cannot read return `{text}`")
    base, alias, suffix, _ = _parse_type(match.group(1), _RETURN_SUFFIXES)
    return Return(base, match.group(2) or "", suffix == "[]", alias)


def parse_schema(text: str) -> Schema:
    """Parses one schema. Raises SchemaError."""
    match = _SCHEMA.fullmatch(text)
    if not match:
        raise SchemaError("a schema is `name.overload(type name, ...) -> returns`")
    name, overload, args_text, returns_text = match.groups()
    before, *after = re.split(r"(?:^|,)\s*\*\s*(?:,|$)", args_text)
    if len(after) > 1:
        raise SchemaError("`*` appears twice")
    args = [_parse_arg(part, False) for part in _split(before)]
    args += [_parse_arg(part, True) for rest in after for part in _split(rest)]
    several = re.fullmatch(r"\((.*)\)", returns_text, re.S)
    returns = [_parse_return(part) for part in (_split(several[1]) if several else [returns_text])]
    schema = Schema(name, overload or "", tuple(args), tuple(returns))
    _check(schema)
    return schema


def _check(schema: Schema) -> None:
    seen: set[str] = set()
    outputs = schema.output_fields
    for name in [a.name for a in schema.args] + [r.name for r in schema.returns if r.name]:
        if name in seen:
            raise SchemaError(f"the name `{name}` is used twice")
        if name in _KEYWORDS:
            raise SchemaError(f"the name `{name}` is a keyword of C++")
        seen.add(name)
    for arg in schema.args:
        if arg.name == "header" or arg.name in outputs:
            raise SchemaError(f"the name `{arg.name}` is reserved")
    optional_seen = False
    for arg in schema.args:
        if not arg.kw_only:
            if optional_seen and not arg.has_default:
                raise SchemaError(f"`{arg.name}` has no default but follows one that does")
            optional_seen = optional_seen or arg.has_default
    aliases = {a.alias.name for a in schema.args if a.alias}
    for ret in schema.returns:
        if ret.alias and ret.alias.name not in aliases:
            raise SchemaError(f"the returned alias {ret.alias} names no argument")
    names = [bool(r.name) for r in schema.returns]
    if any(names) and not all(names):
        raise SchemaError("name all returns or none")
    if schema.name.endswith("_out"):
        raise SchemaError("`out=` forms are derived, not written")
