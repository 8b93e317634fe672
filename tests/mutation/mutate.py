#!/usr/bin/env python3
"""Whether the goldens would notice a wrong record.

    python3 tests/mutation/mutate.py [op ...]

Changes the program of every pointwise and reduce record in turn: another operation for one node, a
constant off by a little, operands swapped, a result negated. Each mutant is evaluated, in Python, on
the inputs of the goldens; if it gives PyTorch's results nevertheless, it has survived, and the exit
status is 1. A mutant that computes the same function on every finite input (an operation swapped for
an equal one) is found by evaluating it on random inputs beside the original, and left out.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from codegen import golden  # noqa: E402
from codegen.nodes import BOOL, COMPUTE  # noqa: E402
from codegen.program import evaluate  # noqa: E402
from codegen.records import load  # noqa: E402

# What a slip of the pen makes of an operation.
SLIPS = {
    "add": "sub", "sub": "add", "mul": "div", "div": "mul", "pow": "mul", "maximum": "minimum",
    "minimum": "maximum", "lt": "le", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq",
    "logical_and": "logical_or", "logical_or": "logical_and", "logical_xor": "logical_or",
    "bitwise_and": "bitwise_or", "bitwise_or": "bitwise_and", "bitwise_xor": "bitwise_or",
    "bitwise_left_shift": "bitwise_right_shift", "bitwise_right_shift": "bitwise_left_shift",
    "floor_divide": "trunc_divide", "trunc_divide": "floor_divide", "remainder": "fmod",
    "fmod": "remainder", "sin": "cos", "cos": "sin", "tan": "sin", "sinh": "cosh", "cosh": "sinh",
    "tanh": "sinh", "asin": "acos", "acos": "asin", "atan": "tanh", "exp": "exp2", "exp2": "exp",
    "expm1": "exp", "log": "log2", "log2": "log", "log10": "log", "log1p": "log", "erf": "erfc",
    "erfc": "erf", "sqrt": "abs", "rsqrt": "sqrt", "floor": "ceil", "ceil": "floor", "round": "trunc",
    "trunc": "floor", "abs": "neg", "neg": "abs", "sign": "abs", "sigmoid": "tanh", "asinh": "atan",
    "acosh": "log", "atanh": "tanh", "atan2": "sub",
}
FOLDS = {"sum": "prod", "prod": "sum", "max": "min", "min": "max", "argmax": "argmin",
         "argmin": "argmax", "all": "any", "any": "all"}
SWAPS = {"sub", "div", "pow", "floor_divide", "trunc_divide", "remainder", "fmod", "atan2", "lt", "le",
         "gt", "ge", "bitwise_left_shift", "bitwise_right_shift"}


def mutants(program):
    """Changed programs, each with what was changed."""

    def with_node(index, node):
        nodes = list(program.nodes)
        nodes[index] = node
        return dataclasses.replace(program, nodes=tuple(nodes))

    for i, node in enumerate(program.nodes):
        if node.op in SLIPS:
            yield f"{node.op} -> {SLIPS[node.op]}", with_node(i, dataclasses.replace(node, op=SLIPS[node.op]))
        if node.op in SWAPS:
            yield f"{node.op} swapped", with_node(i, dataclasses.replace(node, args=node.args[::-1]))
        if node.op == "where":
            c, a, b = node.args
            yield "where swapped", with_node(i, dataclasses.replace(node, args=(c, b, a)))
        if node.op == "const" and isinstance(node.value, (int, float)) and node.type == COMPUTE and \
                math.isfinite(node.value):
            yield f"{node.value} -> {node.value + 0.25}", with_node(
                i, dataclasses.replace(node, value=float(node.value) + 0.25))
    if program.fold in FOLDS:
        yield f"{program.fold} -> {FOLDS[program.fold]}", dataclasses.replace(program, fold=FOLDS[program.fold])
    for k, output in enumerate(program.outputs):
        if output.type != BOOL:
            yield f"result {k} negated", ("negate", k)
        else:
            yield f"result {k} inverted", ("invert", k)


def run(program, mutant, inputs, integer):
    """The results of a mutant, by output."""
    if isinstance(mutant, tuple):
        found = evaluate(program, inputs, integer=integer)
        name = program.outputs[mutant[1]].name
        found[name] = not found[name] if mutant[0] == "invert" else -found[name]
        return found
    return evaluate(mutant, inputs, integer=integer)


def same(a, b) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return bool(a) == bool(b)
    if isinstance(a, float) and math.isnan(a) or isinstance(b, float) and math.isnan(b):
        return a != a and b != b
    if a == b:
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= 2e-5 * max(abs(a), abs(b))


def broadcast(shape, other):
    rank = max(len(shape), len(other))
    a = [1] * (rank - len(shape)) + shape
    b = [1] * (rank - len(other)) + other
    return [y if x == 1 else x for x, y in zip(a, b)]


def pick(values, shape, to, linear):
    """The element that a broadcast tensor has at a linear index of the result."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, 0 if n == 1 else step)
        step *= n
    strides = [0] * (len(to) - len(shape)) + strides
    at = 0
    for n, stride in zip(reversed(to), reversed(strides)):
        at += linear % n * stride
        linear //= n
    return values[at]


class Golden:
    """One golden case as numbers: inputs of single elements (pointwise) or of groups (reduce)."""

    def __init__(self, op, case):
        self.op = op
        open_ = case.get("dtype", "float64")
        self.values = {a.name: (None if not a.has_default else a.default) for a in op.schema.args}
        tensors, counter, dtypes = {}, 0, set()
        for arg in op.schema.args:
            given = case["args"].get(arg.name, self.values[arg.name])
            if arg.is_tensor and isinstance(given, dict):
                name = golden.dtype_of(given, op.types.get(arg.name, "same"), open_)
                shape = golden.shape_of(given)
                found = golden.elements(given, name, counter)
                memory = [1] + shape[1:] if given.get("layout") == "broadcast" and shape else shape
                tensors[arg.name] = (found, memory, shape)
                if op.types.get(arg.name) != "bool":
                    dtypes.add(name)
                counter += 1
            elif not arg.is_tensor:
                text = isinstance(given, str) and given in golden.TEXTS
                self.values[arg.name] = golden.number(given) if text else given
            else:
                self.values[arg.name] = given
        self.usable = len(dtypes) == 1 and not dtypes & {"float16", "bfloat16"}
        self.integer = self.usable and next(iter(dtypes)) not in golden.FLOATS and \
            op.promote in ("same", "compare", "integral", "widen", "first") and \
            not any(isinstance(v, float) for v in self.values.values())
        self.bool = dtypes == {"bool"}
        self.wraps = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32}.get(next(iter(dtypes), ""), 0)
        self.groups = self._reduce_groups(tensors) if op.meaning == "reduce" else self._elements(tensors)
        self.expected = [out[2] if isinstance(out, list) else [out] for out in case["out"]]

    def _elements(self, tensors):
        shape = []
        for _, _, own in tensors.values():
            shape = broadcast(shape, own)
        return [{name: pick(found, memory, shape, i) for name, (found, memory, _) in tensors.items()}
                for i in range(math.prod(shape))]

    def _reduce_groups(self, tensors):
        (name, (found, memory, shape)), = tensors.items()
        dim = self.values.get("dim")
        rank = len(shape)
        dims = range(rank) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else dim
        reduced = {d % max(rank, 1) for d in dims}
        groups: dict[tuple, list] = {}
        for i in range(math.prod(shape)):
            index, rest = [], i
            for n in reversed(shape):
                index.insert(0, rest % n)
                rest //= n
            key = tuple(x for d, x in enumerate(index) if d not in reduced)
            groups.setdefault(key, []).append(pick(found, memory, shape, i))
        return [{name: groups[key]} for key in sorted(groups)]

    def inputs(self, program, group):
        return {n.name: group.get(n.name, self.values.get(n.name)) for n in program.inputs + program.scalars}

    def selector(self):
        present = {a.name: True for a in self.op.schema.args if a.is_tensor and
                   (self.groups and a.name in self.groups[0] or self.values.get(a.name) is not None)}
        return {**self.values, **present}

    def agrees(self, program, mutant) -> bool:
        for k, group in enumerate(self.groups):
            try:
                found = run(program, mutant, self.inputs(program, group), self.integer)
            except (ArithmeticError, ValueError, TypeError, AttributeError):
                return False
            for output, expected in zip(program.outputs, self.expected):
                value, want = found[output.name], golden.number(expected[k])
                if self.bool and self.op.promote == "same":
                    value = bool(value)
                if self.wraps and isinstance(value, int):
                    value, want = value % 2 ** self.wraps, want % 2 ** self.wraps
                if not same(value, want):
                    return False
        return True


def equivalent(op, program, mutant, settings) -> bool:
    """Whether a mutant computes the same function, as far as random numbers tell."""
    rng = random.Random(1)
    for setting in settings:
        for _ in range(150):
            kind = rng.choice([lambda: rng.uniform(-8, 8), lambda: rng.uniform(0, 1),
                               lambda: float(rng.randint(-3, 3))])
            inputs = {}
            for n in program.inputs + program.scalars:
                if setting.get(n.name) is not None and setting[n.name] is not True:
                    inputs[n.name] = setting[n.name]
                elif op.types.get(n.name) == "bool":
                    inputs[n.name] = rng.random() < 0.5
                else:
                    inputs[n.name] = [kind() for _ in range(4)] if program.fold else kind()
            try:
                a = evaluate(program, inputs)
            except (ArithmeticError, ValueError, TypeError, AttributeError):
                continue
            try:
                if not all(same(a[o], b) for o, b in run(program, mutant, inputs, False).items()):
                    return False
            except (ArithmeticError, ValueError, TypeError, AttributeError):
                return False
    return True


def main() -> int:
    ops = {op.full_name: op for op in load(str(ROOT / "ops.yaml"))}
    only = set(sys.argv[1:])
    cases: dict[str, list] = {}
    for path in sorted((ROOT / "tests" / "goldens").glob("*.json")):
        for case in json.loads(path.read_text()):
            cases.setdefault(case["op"], []).append(case)
    caught, survived, wrong, without = 0, [], [], []
    for name, op in ops.items():
        if op.body is None or op.derived or only and name not in only:
            continue
        if name not in cases:
            without.append(name)
            continue
        goldens: dict[int, list] = {}
        for case in cases[name]:
            g = Golden(op, case)
            if g.usable and g.groups:
                goldens.setdefault(op.body.select(g.selector()).variant, []).append(g)
        for program in op.body.variants:
            mine = goldens.get(program.variant, [])
            if not mine:
                without.append(f"{name} (variant {program.variant})")
                continue
            # The unchanged program has to agree, or the comparison means nothing.
            mine = [g for g in mine if g.agrees(program, program)]
            if not mine:
                wrong.append(name)
                continue
            settings = [g.selector() for g in mine]
            for what, mutant in mutants(program):
                if not all(g.agrees(program, mutant) for g in mine):
                    caught += 1
                elif not equivalent(op, program, mutant, settings):
                    survived.append(f"{name} (variant {program.variant}): {what}")
    print(f"{caught} mutants caught, {len(survived)} survived")
    for line in survived:
        print("  survived:", line)
    for line in wrong:
        print("  the record itself disagrees with every golden:", line)
    if without:
        print(f"  without goldens in PyTorch {len(without)}:", ", ".join(without))
    return 1 if survived or wrong or caught == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
