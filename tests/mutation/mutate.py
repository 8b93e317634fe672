#!/usr/bin/env python3
"""Tests that the goldens detect wrong records.

    python3 tests/mutation/mutate.py [op ...]

Makes mutants of the program of every pointwise and reduce record and of every gradient that is a program: one node
with another operation, a constant changed slightly or negated, exchanged operands, a negated result. Evaluates each
mutant in Python on the inputs of the goldens. A mutant that still gives PyTorch's results has survived, and the exit
status is 1. Evaluation on random inputs identifies mutants that compute the same function as the original; these do
not count. The random inputs include number arguments, so goldens with only default arguments are not enough.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from conformance import golden  # noqa: E402
from codegen.syntax import ExprError  # noqa: E402
from codegen.gradients import gradient_names  # noqa: E402
from codegen.nodes import BOOL, COMPUTE  # noqa: E402
from codegen.program import evaluate  # noqa: E402
from codegen.records import load  # noqa: E402

# Larger programs hold a function of codegen/special.yaml. codegen/tests/test_special.py compares these with 50-digit
# values.
MOST_NODES = 90
# Results that differ from an operand beyond the digits of goldens. core.Nextafter compares their bits.
BIT_BY_BIT = {"nextafter_steps"}

# Common mistakes for each operation.
SLIPS = {
    "add": "sub",
    "sub": "add",
    "mul": "div",
    "div": "mul",
    "pow": "mul",
    "maximum": "minimum",
    "minimum": "maximum",
    "lt": "le",
    "le": "gt",
    "gt": "le",
    "ge": "lt",
    "eq": "ne",
    "ne": "eq",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "logical_xor": "logical_or",
    "bitwise_and": "bitwise_or",
    "bitwise_or": "bitwise_and",
    "bitwise_xor": "bitwise_or",
    "bitwise_left_shift": "bitwise_right_shift",
    "bitwise_right_shift": "bitwise_left_shift",
    "floor_divide": "trunc_divide",
    "trunc_divide": "floor_divide",
    "remainder": "fmod",
    "fmod": "remainder",
    "sin": "cos",
    "cos": "sin",
    "tan": "sin",
    "sinh": "cosh",
    "cosh": "sinh",
    "tanh": "sinh",
    "asin": "acos",
    "acos": "asin",
    "atan": "tanh",
    "exp": "exp2",
    "exp2": "exp",
    "expm1": "exp",
    "log": "log2",
    "log2": "log",
    "log10": "log",
    "log1p": "log",
    "erf": "erfc",
    "erfc": "erf",
    "sqrt": "abs",
    "rsqrt": "sqrt",
    "floor": "ceil",
    "ceil": "floor",
    "round": "trunc",
    "trunc": "floor",
    "abs": "neg",
    "neg": "abs",
    "sign": "abs",
    "sigmoid": "tanh",
    "asinh": "atan",
    "acosh": "log",
    "atanh": "tanh",
    "atan2": "sub",
}
FOLDS = {
    "sum": "prod",
    "prod": "sum",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "all": "any",
    "any": "all",
}
SWAPS = {
    "sub",
    "div",
    "pow",
    "floor_divide",
    "trunc_divide",
    "remainder",
    "fmod",
    "atan2",
    "lt",
    "le",
    "gt",
    "ge",
    "bitwise_left_shift",
    "bitwise_right_shift",
}


# Raised by arithmetic outside of its domain.
FAILURES = (ArithmeticError, ValueError, TypeError, AttributeError)


def mutants(program):
    """Yields (description, mutant) for each mutant of a program."""

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
        if (
            node.op == "const"
            and isinstance(node.value, (int, float))
            and node.type == COMPUTE
            and math.isfinite(node.value)
        ):
            for value in {node.value + 0.25, -node.value} - {node.value}:
                yield f"{node.value} -> {value}", with_node(i, dataclasses.replace(node, value=float(value)))
    kinds = ("scalar",) if program.fold else ("input", "scalar")
    operands = [(i, n) for i, n in enumerate(program.nodes) if n.op in kinds and n.type == COMPUTE]
    for (i, a), (j, b) in itertools.combinations(operands, 2):
        nodes = list(program.nodes)
        nodes[i], nodes[j] = b, a
        yield f"{a.name} and {b.name} exchanged", dataclasses.replace(program, nodes=tuple(nodes))
    if program.fold in FOLDS:
        yield f"{program.fold} -> {FOLDS[program.fold]}", dataclasses.replace(program, fold=FOLDS[program.fold])
    for k, output in enumerate(program.outputs):
        if output.type != BOOL:
            yield f"result {k} negated", ("negate", k)
        else:
            yield f"result {k} inverted", ("invert", k)


def run(program, mutant, inputs, integer):
    """Returns the results of a mutant, by output."""
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


def position(shape, to, linear):
    """Returns the index in a tensor of `shape`, broadcast to the shape `to`, of the element at a linear index."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, 0 if n == 1 else step)
        step *= n
    strides = [0] * (len(to) - len(shape)) + strides
    at = 0
    for n, stride in zip(reversed(to), reversed(strides)):
        at += linear % n * stride
        linear //= n
    return at


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
        self.integer = (
            self.usable
            and next(iter(dtypes)) not in golden.FLOATS
            and op.promote != "float"
            and not any(isinstance(v, float) for v in self.values.values())
        )
        self.bool = dtypes == {"bool"}
        self.wraps = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32}.get(next(iter(dtypes), ""), 0)
        self.groups = self._reduce_groups(tensors) if op.meaning == "reduce" else self._elements(tensors)
        self.expected = [out[2] if isinstance(out, list) else [out] for out in case["out"]]

    def _elements(self, tensors):
        self.shapes = {name: shape for name, (_, _, shape) in tensors.items()}
        self.shape = functools.reduce(broadcast, self.shapes.values())
        return [
            {name: found[position(memory, self.shape, i)] for name, (found, memory, _) in tensors.items()}
            for i in range(math.prod(self.shape))
        ]

    def _reduce_groups(self, tensors):
        ((name, (found, memory, shape)),) = tensors.items()
        dim = self.values.get("dim")
        rank = len(shape)
        dims = range(rank) if dim is None or dim == () or dim == [] else [dim] if isinstance(dim, int) else dim
        reduced = {d % max(rank, 1) for d in dims}
        kept = [range(n) for d, n in enumerate(shape) if d not in reduced]
        groups: dict[tuple, list] = {key: [] for key in itertools.product(*kept)}
        for i, index in enumerate(itertools.product(*map(range, shape))):
            key = tuple(x for d, x in enumerate(index) if d not in reduced)
            groups[key].append(found[position(memory, shape, i)])
        return [{name: groups[key]} for key in sorted(groups)]

    def selector(self):
        """Returns the values that select the variant: the arguments, with True for tensors."""
        present = {
            a.name: True
            for a in self.op.schema.args
            if a.is_tensor and (self.groups and a.name in self.groups[0] or self.values.get(a.name) is not None)
        }
        return {**self.values, **present}

    def agrees(self, program, mutant) -> bool:
        for k, group in enumerate(self.groups):
            try:
                found = run(program, mutant, needed(program, {**self.values, **group}), self.integer)
            except FAILURES:
                return False
            for output, expected in zip(program.outputs, self.expected):
                value, want = found[output.name], golden.number(expected[k])
                if self.bool and self.op.promote == "same":
                    value = bool(value)
                if self.wraps and isinstance(value, int):
                    value, want = value % 2**self.wraps, want % 2**self.wraps
                if not same(value, want):
                    return False
        return True


class GoldenGradient(Golden):
    """The gradients of a golden case, for the programs of the derived operator."""

    def __init__(self, op, derived, case):
        super().__init__(op, case)
        self.derived = derived
        self.gradients = case.get("grad", {})
        self.usable = self.usable and op.meaning == "pointwise" and bool(self.gradients)

    def selector(self):
        return {**super().selector(), **{n: True for n in (*incoming(self.op), *(r.name for r in self.op.results))}}

    def agrees(self, program, mutant) -> bool:
        outputs = [o for o in self.op.grad.outputs if o.arg in self.gradients]
        sums = {o.arg: [0.0] * math.prod(self.shapes[o.arg]) for o in outputs}
        for k, group in enumerate(self.groups):
            weights = {name: 1 + 0.5 * r + 0.25 * k for r, name in enumerate(incoming(self.op))}
            try:
                found = run(
                    program, mutant, needed(program, with_results(self.op, {**self.values, **group}) | weights), False
                )
            except FAILURES:
                return False
            for o in outputs:
                sums[o.arg][position(self.shapes[o.arg], self.shape, k)] += found[o.field]
        return all(same(a, golden.number(b)) for o in outputs for a, b in zip(sums[o.arg], self.gradients[o.arg]))


def needed(program, values):
    return {n.name: values.get(n.name) for n in program.inputs + program.scalars}


def incoming(op):
    """Returns the names of the incoming gradients."""
    return tuple(gradient_names(op.results).values())


def with_results(op, values):
    """Returns the values and the op's results, by the names that gradients use."""
    program = op.body.select(values)
    found = evaluate(program, needed(program, values))
    return {**values, **{r.name: found[r.field] for r in op.results}}


ORDINARY = [lambda rng: rng.uniform(-8, 8), lambda rng: rng.uniform(0, 1), lambda rng: float(rng.randint(-3, 3))]
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0)


def draw(op, setting, rng, integer, special):
    """Returns random arguments."""
    kind = rng.choice(ORDINARY)

    def element():
        if integer:
            return rng.randint(-9, 9)
        return rng.choice(SPECIAL) if special and rng.random() < 0.15 else kind(rng)

    values = dict(setting)
    for arg in op.schema.args:
        if setting.get(arg.name) is None:
            continue
        if arg.is_tensor:
            if op.types.get(arg.name) == "bool":
                values[arg.name] = rng.random() < 0.5
            elif op.meaning == "reduce":
                values[arg.name] = [element() for _ in range(rng.randint(0, 4))]
            else:
                values[arg.name] = element()
        elif arg.is_number and rng.random() < 0.7 and not isinstance(setting[arg.name], bool):
            values[arg.name] = rng.randint(-3, 3) if integer or arg.type == "int" else rng.choice(ORDINARY)(rng)
    return values


def smooth(op, values, name) -> bool:
    """Returns whether the op is differentiable at these values. Elsewhere its gradient is a convention, which goldens
    need not cover."""

    def at(x):
        program = op.body.select(values)
        return list(evaluate(program, needed(program, {**values, name: x})).values())

    h, x = 1e-6, values[name]
    for left, middle, right in zip(at(x - h), at(x), at(x + h)):
        if not all(map(math.isfinite, (left, middle, right))) or abs((right - middle) - (middle - left)) > 1e-3 * (
            h + abs(right - left)
        ):
            return False
    return True


def equivalent(op, derived, program, mutant, settings) -> bool:
    """Returns whether a mutant computes the same function on random numbers as `program`, a program of `op` or of
    `derived`, its gradient."""
    rng = random.Random(1)
    integers = op.promote != "float" and op.takes("integer") and derived is None
    compared = 0
    for trial in range(600):
        integer = integers and trial % 3 == 2
        try:
            values = draw(op, rng.choice(settings), rng, integer, derived is None)
            if derived is not None:
                values = with_results(op, values) | {name: rng.uniform(-2, 2) for name in incoming(op)}
            if (derived or op).body.select(values).variant != program.variant:
                continue
            inputs = needed(program, values)
            a = evaluate(program, inputs, integer=integer)
        except (ExprError, *FAILURES):
            continue
        wanted = list(a)
        if derived is not None:
            given = [o for o in op.grad.outputs if values.get(o.arg) is not None]
            if not all(math.isfinite(x) for x in a.values()) or not all(smooth(op, values, o.arg) for o in given):
                continue
            wanted = [o.field for o in given]
        compared += 1
        try:
            found = run(program, mutant, inputs, integer)
            if not all(same(a[o], found[o]) for o in wanted):
                return False
        except FAILURES:
            return False
    return compared > 0


class Examination:
    """Counts the mutants that are detected, that are equivalent, and that survive."""

    def __init__(self):
        self.caught, self.same_function = 0, 0
        self.survived, self.wrong, self.without = [], [], []

    def programs(self, op, derived, goldens):
        """Tests every mutant of the programs of the op, or of its gradient, with the goldens of its variant."""
        body, name = (derived or op).body, (derived or op).full_name
        chosen: dict[int, list] = {}
        for g in goldens:
            if g.usable and g.groups:
                chosen.setdefault(body.select(g.selector()).variant, []).append(g)
        for program in body.variants:
            if len(program.nodes) > MOST_NODES:
                continue
            mine = chosen.get(program.variant, [])
            where = f"{name} (variant {program.variant})"
            if not mine:
                self.without.append(where)
                continue
            # The unchanged program must agree, or the comparison means nothing.
            mine = [g for g in mine if g.agrees(program, program)]
            if not mine:
                self.wrong.append(where)
                continue
            settings = [Golden.selector(g) for g in mine]
            for what, mutant in mutants(program):
                if not all(g.agrees(program, mutant) for g in mine):
                    self.caught += 1
                elif equivalent(op, derived, program, mutant, settings):
                    self.same_function += 1
                else:
                    self.survived.append(f"{where}: {what}")


def main() -> int:
    ops = {op.full_name: op for op in load(str(ROOT / "ops.yaml"))}
    only = set(sys.argv[1:])
    cases: dict[str, list] = {}
    for path in sorted((ROOT / "conformance" / "goldens").glob("*.json")):
        for case in json.loads(path.read_text()):
            if "out" in case and all(not isinstance(o, list) or o[2] is not None for o in case["out"]):
                cases.setdefault(case["op"], []).append(case)
    found = Examination()
    for name, op in ops.items():
        if op.body is None or op.derived or name in BIT_BY_BIT or only and name not in only:
            continue
        found.programs(op, None, [Golden(op, case) for case in cases.get(name, [])])
        derived = ops.get(op.grad.derived)
        # PyTorch has no gradient of some functions.
        if derived is not None and any("grad" in case for case in cases.get(name, [])):
            found.programs(op, derived, [GoldenGradient(op, derived, case) for case in cases.get(name, [])])
    print(f"{found.caught} mutants caught, {len(found.survived)} survived, " f"{found.same_function} compute the same")
    for line in found.survived:
        print("  survived:", line)
    for line in found.wrong:
        print("  the record itself disagrees with every golden:", line)
    for line in found.without:
        print("  without goldens:", line)
    return 1 if found.survived or found.wrong or found.without or found.caught == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
