"""Writes suites.json for `mytorch bench` and bench/peers/torch_ops.py: the cases of bench/suites.yaml, each checked
against its record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from codegen import cpp
from codegen.lock import Lock
from codegen.model import Op

FILE = Path(__file__).parent / "suites.yaml"
KEYS = {"name", "op", "form", "args", "dtype", "program"}
TENSOR_KEYS = {"shape", "dtype", "low", "high", "layout", "of", "raised"}
LAYOUTS = ("contiguous", "transposed", "sliced", "broadcast", "channels_last")
FORMS = ("function", "out", "inplace")


class SuiteError(ValueError):
    """Raised for a case that does not fit its record; the text names the case."""


def _check_tensor(arg: str, value: dict, args: dict) -> str:
    unknown = set(value) - TENSOR_KEYS
    if unknown:
        return f"unknown key {sorted(unknown)[0]!r} of {arg}"
    if "shape" not in value:
        return f"{arg} has no shape"
    if value.get("layout", "contiguous") not in LAYOUTS:
        return f"{arg} has the unknown layout {value['layout']!r}"
    if "of" in value and not isinstance(args.get(value["of"]), dict):
        return f"{arg} is a view of {value['of']!r}, which is not a tensor of the case"
    return ""


def _check(case: dict, ops: dict[str, Op]) -> str:
    """Returns a description of the problem with a case, or ""."""
    if set(case) - KEYS:
        return f"unknown key {sorted(set(case) - KEYS)[0]!r}"
    if "name" not in case:
        return "it has no name"
    if ("op" in case) == ("program" in case):
        return "it names either an op or a program"
    if "program" in case:
        return ""
    op = ops.get(case["op"])
    if op is None:
        return f"unknown operator {case['op']!r}"
    form = case.get("form", "function")
    if form not in FORMS:
        return f"unknown form {form!r}"
    if (form == "out" and not cpp.has_out(op)) or (form == "inplace" and not cpp.has_inplace(op)):
        return f"{op.full_name} has no form {form!r}"
    known = {a.name: a for a in op.schema.args}
    args = case.get("args", {})
    for name, value in args.items():
        if name not in known:
            return f"{op.full_name} has no argument {name!r}"
        if isinstance(value, dict) and (wrong := _check_tensor(name, value, args)):
            return wrong
    missing = [a.name for a in known.values() if not a.has_default and a.name not in args]
    return f"{op.full_name} needs {missing[0]!r}" if missing else ""


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    return {"share/suites.json": suites(ops)}


def suites(all_ops: list[Op], path: Path = FILE) -> str:
    """Returns the cases of the file at `path` as JSON. Exits if a case does not fit its record."""
    ops = {op.full_name: op for op in all_ops}
    by_suite = yaml.safe_load(path.read_text())
    lines = []
    try:
        for suite, cases in by_suite.items():
            names = set()
            for case in cases:
                where = f"{path.name}: {suite}: {case.get('name', case)}"
                if wrong := _check(case, ops):
                    raise SuiteError(f"{where}: {wrong}")
                if case["name"] in names:
                    raise SuiteError(f"{where}: the suite has two cases of this name")
                names.add(case["name"])
                lines.append(json.dumps({"suite": suite, **case}))
    except SuiteError as error:
        sys.exit(str(error))
    return "[\n" + ",\n".join(lines) + "\n]\n"
