"""abi/ops.lock: the argument structs and hashes that released kernels rely on.

The file has a block for each op that has kernels, sorted by name:

    op add.Tensor
      hash 0xae09de64d914c799 fields 4 since 1.0
      field self const mt_tensor* since 1.0
      ...

Fields are in ABI order, which only ever grows at its end. The first hash is the current schema's;
the others are of older releases, each with the number of fields that its kernels know.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Iterable

from codegen.model import Op
from codegen.schema import Arg, Schema

# C type -> (size, alignment) on x86-64 and AArch64.
C_TYPES: dict[str, tuple[int, int]] = {
    "const mt_tensor*": (8, 8),
    "const char*": (8, 8),
    "mt_tensor_list": (16, 8),
    "mt_scalar": (16, 8),
    "int64_t": (8, 8),
    "mt_optional_int": (16, 8),
    "double": (8, 8),
    "mt_optional_float": (16, 8),
    "mt_int_list": (16, 8),
    "mt_float_list": (16, 8),
    "mt_dtype": (4, 2),
    "mt_device": (8, 4),
    "mt_random": (24, 8),
}
HEADER_SIZE = 16  # mt_args_header: size_t, mt_dtype, uint32_t


class LockError(ValueError):
    """Raised for changes that are not appends, and for a lock file that does not parse."""

    def __init__(self, messages: list[str]):
        super().__init__("\n".join(messages))
        self.messages = messages


@dataclass(frozen=True)
class LockField:
    name: str
    c_type: str
    since: str


@dataclass(frozen=True)
class LockHash:
    """`num_fields` is the number of the op's fields that a kernel with this hash knows."""

    hash: int
    num_fields: int
    since: str


@dataclass(frozen=True)
class FieldLayout:
    name: str
    c_type: str
    offset: int
    size: int


@dataclass(frozen=True)
class LockedOp:
    name: str
    fields: tuple[LockField, ...]
    hashes: tuple[LockHash, ...]  # the current one first

    def layout(self) -> tuple[FieldLayout, ...]:
        """Returns the offsets in the argument struct by C's layout rules; the header precedes the first field."""
        found, offset = [], HEADER_SIZE
        for f in self.fields:
            size, alignment = C_TYPES[f.c_type]
            offset = -(-offset // alignment) * alignment
            found.append(FieldLayout(f.name, f.c_type, offset, size))
            offset += size
        return tuple(found)

    def struct_size(self) -> int:
        end = max((f.offset + f.size for f in self.layout()), default=HEADER_SIZE)
        return -(-end // 8) * 8


@dataclass
class Lock:
    ops: dict[str, LockedOp]

    def fields(self, op: str) -> tuple[LockField, ...]:
        return self.ops[op].fields

    def hashes(self, op: str) -> tuple[LockHash, ...]:
        return self.ops[op].hashes

    def layout(self, op: str) -> tuple[FieldLayout, ...]:
        return self.ops[op].layout()

    def struct_size(self, op: str) -> int:
        return self.ops[op].struct_size()

    def text(self) -> str:
        lines = ["# Argument structs and hashes that kernels rely on. Written by codegen; append-only."]
        for op in sorted(self.ops.values(), key=lambda o: o.name):
            lines += ["", f"op {op.name}"]
            lines += [f"  hash 0x{h.hash:016x} fields {h.num_fields} since {h.since}" for h in op.hashes]
            lines += [f"  field {f.name} {f.c_type} since {f.since}" for f in op.fields]
        return "\n".join(lines) + "\n"


def c_type(arg: Arg) -> str:
    """Returns the field of one argument, by the table in abi.h."""
    if arg.type in ("Tensor", "Operand"):
        return "mt_tensor_list" if arg.list else "const mt_tensor*"
    if arg.list:
        return "mt_float_list" if arg.type == "float" else "mt_int_list"
    if arg.type in ("int", "bool"):
        return "mt_optional_int" if arg.optional else "int64_t"
    if arg.type == "float":
        return "mt_optional_float" if arg.optional else "double"
    return {
        "Scalar": "mt_scalar",
        "str": "const char*",
        "ScalarType": "mt_dtype",
        "Device": "mt_device",
        "Generator": "mt_random",
    }[arg.type]


def struct_fields(schema: Schema) -> list[tuple[str, str]]:
    """Returns (name, C type) for every field of a new op's struct: arguments, then outputs."""
    fields = [(a.name, c_type(a)) for a in schema.args]
    written = {a.alias.name for a in schema.args if a.alias and a.alias.write}
    outputs = [r for r in schema.returns if r.type == "Tensor" and not (r.alias and r.alias.name in written)]
    fields += [
        (name, "mt_tensor_list" if r.list else "const mt_tensor*") for name, r in zip(schema.output_fields, outputs)
    ]
    return fields


_LINES = {
    "op": re.compile(r"op (\S+)"),
    "hash": re.compile(r"  hash 0x([0-9a-f]{16}) fields (\d+) since (\d+\.\d+)"),
    "field": re.compile(r"  field (\w+) (.+) since (\d+\.\d+)"),
}


def parse_lock(text: str, path: str = "ops.lock") -> Lock:
    ops: dict[str, LockedOp] = {}
    op: LockedOp | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        kind = line.split()[0]
        match = _LINES[kind].fullmatch(line) if kind in _LINES else None
        if match is None or (op is None and kind != "op"):
            raise LockError([f"{path}:{number}: cannot read `{line}`"])
        if kind == "op":
            if match[1] in ops:
                raise LockError([f"{path}:{number}: op {match[1]} appears twice"])
            op = LockedOp(match[1], (), ())
        elif kind == "hash":
            op = replace(op, hashes=(*op.hashes, LockHash(int(match[1], 16), int(match[2]), match[3])))
        else:
            if match[2] not in C_TYPES:
                raise LockError([f"{path}:{number}: unknown type `{match[2]}`"])
            op = replace(op, fields=(*op.fields, LockField(match[1], match[2], match[3])))
        ops[op.name] = op
    return Lock(ops)


def _abi_version(lock_path: Path) -> str:
    """Returns MT_ABI_MAJOR.MT_ABI_MINOR of the abi.h beside the lock file."""
    header = (lock_path.parent / "include" / "mytorch" / "abi.h").read_text()
    found = [re.search(rf"#define MT_ABI_{part} (\d+)u?", header) for part in ("MAJOR", "MINOR")]
    if None in found:
        raise LockError([f"{lock_path.parent}/include/mytorch/abi.h does not define the ABI's version"])
    return ".".join(match[1] for match in found)


def _merge(op: Op, old: LockedOp | None, since: str, errors: list[str]) -> LockedOp:
    """Returns the op's block after appends. Adds other changes to `errors`."""
    schema = op.schema
    wanted = struct_fields(schema)
    if old is None:
        fields = tuple(LockField(name, type_, since) for name, type_ in wanted)
        return LockedOp(op.full_name, fields, (LockHash(schema.hash, len(fields), since),))

    def refuse(message: str) -> None:
        errors.append(f"{op.path}:{op.line}: [{op.full_name}] {message}")

    types = dict(wanted)
    known = {f.name for f in old.fields}
    for f in old.fields:
        if f.name not in types:
            refuse(f"field `{f.name}` was removed or renamed; released kernels read it")
        elif types[f.name] != f.c_type:
            refuse(f"field `{f.name}` changed from {f.c_type} to {types[f.name]}")
    added = [(name, type_) for name, type_ in wanted if name not in known]
    for name, _ in added:
        if any(a.name == name and not a.has_default for a in schema.args):
            refuse(f"the new argument `{name}` has no default; no released kernel could still be used")
    fields = old.fields + tuple(LockField(name, type_, since) for name, type_ in added)
    hashes = old.hashes
    if not hashes or hashes[0].hash != schema.hash:
        rest = tuple(h for h in hashes if h.hash != schema.hash)
        hashes = (LockHash(schema.hash, len(fields), since), *rest)
    return LockedOp(op.full_name, fields, hashes)


def check_and_update(ops: Iterable[Op], path: str | Path, mode: str = "check", since: str | None = None) -> Lock:
    """Compares ops with the lock file and returns the lock that holds for them.

    Raises LockError for every change that is not an append. `mode` "write" stores appends, "check" rejects them
    (the file is committed with the records), and "warn", for builds, lists them on stderr. `since` is the ABI's
    version, by default that of the abi.h beside the file.
    """
    path = Path(path)
    old = parse_lock(path.read_text(), str(path)) if path.exists() else Lock({})
    since = since or _abi_version(path)
    ops = [op for op in ops if op.has_kernel]
    errors: list[str] = []
    new = Lock({op.full_name: _merge(op, old.ops.get(op.full_name), since, errors) for op in ops})
    for name in sorted(set(old.ops) - set(new.ops)):
        fields = ", ".join(f"`{f.name}`" for f in old.ops[name].fields)
        errors.append(
            f"{path}: [{name}] the op was removed or renamed (fields {fields}); " "released kernels implement it"
        )
    if errors:
        raise LockError(errors)
    if mode == "write":
        if not path.exists() or path.read_text() != new.text():
            path.write_text(new.text())
        return new
    stale = [
        f"{path}: [{n}] is not up to date; run scripts/update-lock and commit the file"
        for n in sorted(new.ops)
        if n not in old.ops or new.ops[n] != old.ops[n]
    ]
    if stale and mode == "check":
        raise LockError(stale)
    for line in stale:
        print(line, file=sys.stderr)
    return new
