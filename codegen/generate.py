"""Generates everything that follows from ops.yaml.

    python3 -m codegen.generate --ops ops.yaml --lock abi/ops.lock --out DIR [--write-lock]

Writes a file only when its content changes, and prints the list of sources, one per line. Files of an
earlier run that are no longer generated are removed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codegen import (emit_abi, emit_api, emit_autograd, emit_bench, emit_cpu, emit_cuda, emit_docs, emit_stubs,
                     emit_table, emit_tests)
from codegen.lock import LockError, check_and_update
from codegen.model import Op
from codegen.records import RecordErrors, load
from codegen.samples import special
from codegen.schema import fnv1a

BUCKETS = 12  # some seconds of compilation each; fixed, so that a new record moves no other


def buckets(ops: list[Op]) -> dict[int, list[Op]]:
    """By function name, so that overloads and a name's derived gradient keep together."""
    names = {op.full_name: op.schema.cpp_name for op in ops}
    found: dict[int, list[Op]] = {i: [] for i in range(BUCKETS)}
    for op in ops:
        name = names[op.parent] if op.derived else op.schema.cpp_name
        found[fnv1a(name) % BUCKETS].append(op)
    return {i: members for i, members in found.items() if members}


def write_all(files: dict[str, str], out: Path) -> None:
    known = {out / name for name in files}
    for path in out.rglob("*"):
        if path.is_file() and path not in known:
            path.unlink()
    for name, content in files.items():
        path = out / name
        if path.exists() and path.read_text() == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", required=True, type=Path)
    parser.add_argument("--lock", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--write-lock", action="store_true", help="append new ops and fields to the lock")
    args = parser.parse_args()
    try:
        ops = load(str(args.ops))
        lock = check_and_update(ops, args.lock, write=args.write_lock)
    except (RecordErrors, LockError) as error:
        print(error, file=sys.stderr)
        return 1
    parts = buckets(ops)
    files: dict[str, str] = {}
    files.update(emit_abi.emit(ops, lock))
    files.update(emit_api.emit(ops))
    files.update(emit_stubs.emit(ops, parts))
    files.update(emit_table.emit(ops, parts, lock))
    files.update(emit_autograd.emit(ops, parts))
    files.update(emit_tests.emit(ops))
    files.update(emit_bench.emit(ops))
    files.update(emit_docs.emit(ops, args.ops.read_text(), special(ops)))
    files.update(emit_cpu.emit(ops, lock))
    files.update(emit_cuda.emit(ops))
    write_all(files, args.out)
    for name in sorted(files):
        if name.endswith(".cpp"):
            print(args.out / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
