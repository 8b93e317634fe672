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
LAYOUTS = ("contiguous", "transposed", "sliced", "broadcast", "channels_last", "channels_first", "heads", "padded")
FORMS = ("function", "out", "inplace")


class SuiteError(ValueError):
    """Raised for a case that does not fit its record; the text names the case."""


def _completed(case: dict, earlier: dict) -> dict:
    """Returns a case with the keys and arguments that it does not state itself taken from the earlier case that its
    `like` names."""
    if "like" not in case:
        return case
    other = earlier.get(case["like"])
    if other is None:
        raise SuiteError(f"it is like {case['like']!r}, which is not an earlier case of the suite")
    own = {key: value for key, value in case.items() if key != "like"}
    return {**other, **own, "args": {**other.get("args", {}), **own.get("args", {})}}


def _described(arg: str, args: dict, asking: tuple = ()) -> dict:
    """Returns an argument; the description of a tensor is completed from that of the argument that its `like` names."""
    value = args[arg]
    if not isinstance(value, dict) or "like" not in value:
        return value
    other, asking = value["like"], (*asking, arg)
    if other in asking or not isinstance(args.get(other), dict):
        raise SuiteError(f"{arg} is like {other!r}, which is not another tensor of the case")
    return {**_described(other, args, asking), **{key: own for key, own in value.items() if key != "like"}}


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
            earlier: dict[str, dict] = {}
            for case in cases:
                where = f"{path.name}: {suite}: {case.get('name', case)}"
                case = _completed(case, earlier)
                if case.get("name") in earlier:
                    raise SuiteError("the suite has two cases of this name")
                earlier[case.get("name")] = case
                if "args" in case:
                    case = {**case, "args": {name: _described(name, case["args"]) for name in case["args"]}}
                if wrong := _check(case, ops):
                    raise SuiteError(wrong)
                lines.append(json.dumps({"suite": suite, **case}))
    except SuiteError as error:
        sys.exit(f"{where}: {error}")
    return "[\n" + ",\n".join(lines) + "\n]\n"
