"""The test inputs of operators: derived from the records by kind, and read from conformance/samples/*.yaml.

conformance/samples/README.md describes the format of the files. samples.json has the same content, with `nan`, `inf`
and `-inf` as strings. Derived cases use more keys:
    special: huge     the tensor contains NaN, infinities, zeros and the ends of its type's range
    special: tame     the same, with large numbers instead of the ends
    may_fail: true    accepts an error if every backend throws it
    gradcheck: true   compares the gradient with finite differences in float64
    floats: true      excludes integers and bools
"""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import yaml

from codegen.syntax import ExprError
from codegen.model import Op
from codegen.program import evaluate
from codegen.schema import Arg

FOLDER = Path(__file__).parent / "samples"
KEYS = {
    "shape",
    "dtype",
    "low",
    "high",
    "away",
    "values",
    "layout",
    "unique",
    "sorted",
    "grad",
    "device",
    "matrix",
    "finite",
}
CASE_KEYS = {"op", "args", "error", "large", "edges"}
COMBINATIONS = 6  # the most informative combinations of non-tensor arguments, which get a few cases each


class SampleError(ValueError):
    """Raised for a sample that does not fit its record; the text names the place."""


def _numbers(value):
    """Writes NaN and infinities as texts, because JSON lacks them."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return value


def _check(op: Op, case: dict, where: str) -> None:
    unknown = set(case) - CASE_KEYS
    if unknown:
        raise SampleError(f"{where}: unknown key {sorted(unknown)[0]!r}")
    args = {a.name: a for a in op.schema.args}
    for name, value in case.get("args", {}).items():
        if name not in args:
            raise SampleError(f"{where}: {op.full_name} has no argument {name!r}")
        tensors = value if isinstance(value, list) and args[name].is_tensor_list else [value]
        for tensor in tensors:
            if isinstance(tensor, dict) and args[name].type in ("Tensor", "Operand"):
                if set(tensor) - KEYS:
                    raise SampleError(f"{where}: unknown key {sorted(set(tensor) - KEYS)[0]!r} of {name}")
                if "shape" not in tensor and "values" not in tensor:
                    raise SampleError(f"{where}: {name} has neither shape nor values")
                if tensor.get("device", "cpu") != "cpu":
                    raise SampleError(f"{where}: {name} can only be put on the cpu")


def special(ops: list[Op], folder: Path = FOLDER) -> dict[str, list[dict]]:
    """Returns the samples of the folder's files, by op."""
    known = {op.full_name: op for op in ops}
    found: dict[str, list[dict]] = {}
    for path in sorted(folder.glob("*.yaml")):
        for index, case in enumerate(yaml.safe_load(path.read_text()) or []):
            where = f"{path.name}: case {index + 1}"
            op = known.get(case.get("op"))
            if op is None:
                raise SampleError(f"{where}: there is no operator {case.get('op')!r}")
            if op.family not in ("", path.stem):
                raise SampleError(f"{where}: samples of {op.full_name} belong in {op.family}.yaml, as its record does")
            _check(op, case, where)
            found.setdefault(op.full_name, []).append(_numbers(case))
    return found


def _choices(op: Op, arg: Arg) -> list:
    """Returns values of a non-tensor argument that lead to every variant of the body."""
    conditions = [c for c in (op.body.conditions if op.body else ()) if c.arg == arg.name]
    found = []
    for c in conditions:
        if c.kind == "str_eq":
            found.append(c.value)
        elif c.kind == "flag":
            found += [True, False]
        elif c.kind == "num_cmp":
            whole = int(c.value) if float(c.value).is_integer() else c.value
            found += [whole, whole + 1] if c.op != "<" else [whole + 1, whole]
    if arg.has_default and arg.default not in found:
        found.insert(0, arg.default)
    if not found:
        found = {"Scalar": [2], "float": [0.5], "int": [1], "bool": [False]}.get(arg.type, [None])
    return list(dict.fromkeys(found))


def _combinations(op: Op) -> list[dict]:
    """Returns combinations of values of the non-tensor arguments; None for absent ones."""
    names, values = [], []
    for arg in op.schema.args:
        if arg.is_tensor:
            if arg.optional:
                names.append(arg.name)
                values.append([True, None])
        elif arg.type in ("Scalar", "int", "float", "str", "bool") and not arg.list:
            names.append(arg.name)
            values.append(_choices(op, arg))
    found = []
    for setting in itertools.product(*values):
        combination = dict(zip(names, setting))
        try:
            op.body.select(combination)
        except ExprError:
            continue
        found.append(combination)
    return found


def _tensors(op: Op, combination: dict) -> list[Arg]:
    return [a for a in op.schema.args if a.is_tensor and not (a.name in combination and combination[a.name] is None)]


def _plain(combination: dict, op: Op) -> dict:
    """Returns the non-tensor arguments of a combination that differ from their defaults."""
    found = {}
    for arg in op.schema.args:
        if arg.is_tensor:
            if arg.optional and combination.get(arg.name, True) is None and not arg.has_default:
                found[arg.name] = None
        elif arg.name in combination and not (arg.has_default and arg.default == combination[arg.name]):
            found[arg.name] = combination[arg.name]
    return found


def _domain(op: Op, combination: dict) -> tuple[float, float]:
    """Returns a range of inputs for which the body is finite: (-1, 1), else a range inside the domains of logarithms
    and inverse functions."""
    rng = random.Random(0)
    for low, high in ((-1.0, 1.0), (0.1, 0.9), (1.1, 2.0)):
        for _ in range(40):
            values = {n: (v if v is not True else rng.uniform(low, high)) for n, v in combination.items()}
            for arg in _tensors(op, combination):
                is_bool = op.types.get(arg.name) == "bool"
                values[arg.name] = rng.random() < 0.5 if is_bool else rng.uniform(low, high)
            try:
                program = op.body.select(values)
                found = evaluate(program, {n.name: values[n.name] for n in program.inputs + program.scalars})
                if not all(math.isfinite(v) for v in found.values()):
                    break
            except (ArithmeticError, ValueError, TypeError):
                break
        else:
            return low, high
    return 0.1, 0.9


def _special(op: Op) -> str:
    """Returns "huge", or "tame" if two correct kernels may differ, because a program of several steps overflows
    between them."""
    steps = {n.op for program in op.body.variants for n in program.nodes} - {"input", "cast", "state"}
    if op.meaning == "reduce":
        folds = {program.fold for program in op.body.variants}
        return "huge" if folds <= {"max", "min", "argmax", "argmin", "all", "any"} else "tame"
    return "huge" if len(steps) <= 1 else "tame"


def _tensor(op: Op, arg: Arg, shape: list[int], **keys) -> dict:
    spec = {"shape": shape, **keys}
    if op.types.get(arg.name) == "bool":
        spec["dtype"] = "bool"
        for key in ("low", "high", "away", "special"):
            spec.pop(key, None)
    elif "special" not in keys and "low" not in keys:
        spec.update(low=-4, high=4)
    return spec


def pointwise(op: Op) -> list[dict]:
    """Returns cases for every layout, broadcast and kind of operand; NaN, infinities and extremes; gradients."""
    cases = []
    layouts = ("transposed", "contiguous", "sliced", "broadcast")
    special_values = {"special": _special(op)}
    # Only floats have gradients.
    floats = {"floats": True} if op.derived else {}
    for number, combination in enumerate(_combinations(op)[:COMBINATIONS]):
        tensors = _tensors(op, combination)
        rest = _plain(combination, op)

        def case(shapes, layout=None, keys=None, **more):
            args = {}
            for i, arg in enumerate(tensors):
                shape = shapes(i) if callable(shapes) else shapes
                extra = dict(keys or {})
                if layout is not None:
                    extra["layout"] = layout(i) if callable(layout) else layout
                args[arg.name] = _tensor(op, arg, list(shape), **extra)
            cases.append({"op": op.full_name, "args": {**args, **rest}, **floats, **more})

        case([3, 5])
        case([271], keys=special_values)
        low, high = _domain(op, combination)
        if op.grad.kind != "none":
            # Finite differences are imprecise near a pole, and most poles are at 0.
            case([2, 3], keys={"low": low, "high": high, "away": 1 / 32}, gradcheck=True)
        if number > 0:
            continue
        if low > 0:
            case([67], keys={"low": low, "high": high})
        case([4, 3], "transposed")
        case([2, 7], "sliced")
        case([5, 3], "broadcast")
        case([2, 3, 4], lambda i: layouts[i % 4])
        case([6], lambda i: layouts[(i + 2) % 4])
        shapes = ([3, 1, 4], [5, 1], [1, 1, 4], [3, 5, 4], [])
        if len(tensors) > 1:
            case(lambda i: shapes[i % 5])
            case(lambda i: [] if i else [2, 3])
            case(lambda i: [2, 3] if i else [])
            case(lambda i: [0, 3] if i else [1, 3])
        case([0, 3])
        case([])
        case([1, 3, 1])
        case([37, 29], "transposed", special_values)
        case([1100], "sliced")
        # The floats need more bits than 16-bit types have, and the last more than float16's range.
        categories = {2: "integer", -0.7: "float", 70001.5: "float", True: "bool"}
        if "polynomial" in op.full_name:  # of that degree is mostly rounding error
            del categories[70001.5]
        for number_given in (n for n, category in categories.items() if op.takes(category)):
            args = {}
            for i, arg in enumerate(tensors):
                scalar = arg.type == "Operand"
                args[arg.name] = number_given if scalar else _tensor(op, arg, [2, 3])
            if any(a.type == "Operand" for a in tensors) and any(a.type == "Tensor" for a in tensors):
                cases.append({"op": op.full_name, "args": {**args, **rest}, **floats})
        if op.takes_complex:
            for dtype in ("complex64", "complex128"):
                keys = {"dtype": dtype, "low": -2, "high": 2, "away": 1 / 16}
                case([3, 5], keys=keys)
                case([2, 3, 4], lambda i: layouts[i % 4], keys)
                case([1100], "sliced", keys)
                case([0, 3], keys=keys)
                if len(tensors) > 1:
                    case(lambda i: shapes[i % 5], keys=keys)
        same = [a for a in tensors if op.types.get(a.name) != "bool"]
        if len(same) > 1 and not op.derived:
            for types in (
                ("float32", "int64"),
                ("int32", "float64"),
                ("uint8", "int8"),
                ("float16", "bfloat16"),
                ("bool", "float32"),
                ("int64", "float16"),
            ):
                args = {a.name: _tensor(op, a, [3, 4], low=0, high=3) for a in tensors}
                for i, arg in enumerate(same):
                    args[arg.name]["dtype"] = types[i % 2]
                cases.append({"op": op.full_name, "args": {**args, **rest}, "may_fail": True})
            args = {a.name: _tensor(op, a, [3] if i == 0 else []) for i, a in enumerate(tensors)}
            for i, arg in enumerate(same):
                args[arg.name]["dtype"] = "float32" if i == 0 else "float64"
            cases.append({"op": op.full_name, "args": {**args, **rest}, "may_fail": True})
    return cases


def _dims(op: Op) -> list[tuple[list[int], object]]:
    """Returns shapes with the `dim` over which to reduce them."""
    dim = next((a for a in op.schema.args if a.name == "dim"), None)
    if dim is None:
        return [([3, 4, 5], ()), ([], ()), ([1000], ()), ([1], ())]
    if dim.list:
        found = [
            ([3, 4, 5], [0]),
            ([3, 4, 5], [1]),
            ([3, 4, 5], [-1]),
            ([3, 4, 5], [0, 2]),
            ([3, 4, 5], [-1, 1]),
            ([3, 4, 5], [0, 1, 2]),
            ([1, 3, 1], [0]),
            ([1000], [0]),
            ([7, 300], [1]),
            ([300, 7], [0]),
            ([2, 3, 2, 3], [1, 2]),
        ]
        if dim.has_default:
            found += [([3, 4, 5], ()), ([], ())]
        return found
    found = [
        ([3, 4, 5], 0),
        ([3, 4, 5], 1),
        ([3, 4, 5], -1),
        ([], 0),
        ([1, 3, 1], 1),
        ([1000], 0),
        ([7, 300], 1),
        ([300, 7], 0),
    ]
    return found + ([([3, 4, 5], ())] if dim.has_default else [])


def reduce(op: Op) -> list[dict]:
    """Returns reductions over one, several and all dimensions, counted from either end; layouts; empty reductions;
    NaN."""
    keeps = any(a.name == "keepdim" for a in op.schema.args)
    cases = []
    # The logarithm of such a factor is 0 on average: partial products of 1000, in any order, are finite.
    bound = 2.7 if op.full_name.split(".")[0] == "prod" else 4

    def case(shape, dim, keepdim=False, keys=None, **more):
        args = {"self": {"shape": shape, "low": -bound, "high": bound, **(keys or {})}}
        if dim != ():
            args["dim"] = dim
        if keepdim:
            args["keepdim"] = True
        cases.append({"op": op.full_name, "args": args, **more})

    dims = _dims(op)
    for shape, dim in dims:
        case(shape, dim)
    if keeps:
        for shape, dim in dims[:3]:
            case(shape, dim, True)
    for shape, dim in dims[:5]:
        for layout in ("transposed", "sliced", "broadcast"):
            case(shape, dim, keys={"layout": layout})
    for shape, dim in dims:
        wide = [n * 5 for n in shape]
        case(wide, dim, keys={"special": _special(op), "low": -2, "high": 2})
    empties = {0: [0, 3], 1: [3, 0], -1: [2, 3, 0]}
    first = dims[0][1]
    for at, shape in empties.items():
        dim = () if first == () else [at] if isinstance(first, list) else at
        case(shape, dim, may_fail=True)
        if dim != ():
            case([0, 4] if at else [4, 0], dim, may_fail=True)
    if op.grad.kind != "none":
        for shape, dim in (([2, 3, 2], dims[0][1]), ([3, 2], dims[0][1]), ([4, 1], dims[0][1])):
            case(shape, dim, keys={"low": 0.2, "high": 2, "unique": True}, gradcheck=True)
        if keeps:
            case([2, 3], dims[0][1], True, {"low": -2, "high": 2, "unique": True}, gradcheck=True)
    return cases


def derive(op: Op) -> list[dict]:
    if op.meaning == "pointwise":
        return pointwise(op)
    if op.meaning == "reduce":
        return reduce(op)
    return []


def collect(ops: list[Op]) -> list[dict]:
    """Returns every case, in the order of the records. Raises SampleError if a record has none."""
    given = special(ops)
    cases = []
    for op in ops:
        found = derive(op) + given.get(op.full_name, [])
        # What works through a handle may need other ranks than the one process that runs the samples.
        needs_others = any(arg.type == "Handle" for arg in op.schema.args) and found
        if not needs_others and all("error" in case for case in found):
            raise SampleError(
                f"{op.path}:{op.line}: [{op.full_name}] has no sample: give at least one in conformance/samples/"
            )
        cases += found
    return cases
