"""Generates sources, headers and pages from ops.yaml.

    python3 -m codegen.generate --ops ops.yaml --lock abi/ops.lock [--out DIR] [--lock-mode warn|check|write] [--only ROOM]

Writes a file only if its content changes, and prints the generated sources, relative to DIR, one per line.
Files of an earlier run that are no longer generated are removed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from codegen import cpp, emit_abi, emit_api, emit_composites, emit_stubs, emit_table
from codegen.lock import Lock, LockError, check_and_update
from codegen.model import Op
from codegen.records import RecordErrors, load

ROOT = Path(__file__).resolve().parent.parent
CPP = (".cpp", ".h", ".inc", ".cu")  # files of C++


def emitter(path: Path) -> ModuleType:
    """Loads the emit.py of a room that reads the records itself, such as a backend. Its folder is not a package."""
    spec = importlib.util.spec_from_file_location(path.parent.name.replace("-", "_") + "_emit", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


OPTIONAL = ("python",)  # rooms whose files are generated apart, in the builds that have them


def emit(ops: list[Op], lock: Lock, only: str = "") -> dict[str, str]:
    """Returns all files by name: those of this folder's emitters and of every emit.py outside it; or of one room."""
    if only:
        emitters = [emitter(ROOT / only / "emit.py")]
    else:
        rooms = sorted([*ROOT.glob("*/emit.py"), *ROOT.glob("backends/*/emit.py")])
        rooms = [path for path in rooms if path.parent.name not in OPTIONAL]
        emitters = [emit_abi, emit_api, emit_stubs, emit_composites, emit_table, *map(emitter, rooms)]
    files = {name: text for module in emitters for name, text in module.emit(ops, lock).items()}
    return {name: cpp.wrapped(text) if name.endswith(CPP) else text for name, text in files.items()}


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
    parser.add_argument("--out", type=Path, help="without it nothing is generated")
    parser.add_argument(
        "--lock-mode",
        choices=("warn", "check", "write"),
        default="warn",
        help="what becomes of operators and fields that the lock does not have yet",
    )
    parser.add_argument("--only", default="", help="the room whose files are generated")
    args = parser.parse_args()
    try:
        ops = load(str(args.ops))
        lock = check_and_update(ops, args.lock, args.lock_mode)
    except (RecordErrors, LockError) as error:
        print(error, file=sys.stderr)
        return 1
    if args.out is None:
        return 0
    files = emit(ops, lock, args.only)
    write_all(files, args.out)
    for name in sorted(files):
        if name.endswith(".cpp"):
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
