"""The inner loops of the cpu-openmp backend (backends/cpu-openmp/pointwise/inner_loop.h), one for each program.

A program becomes one function template over Highway's vectors, instantiated for the compute types that it
supports. Programs that differ only in names share one. A reduce program has up to two: the step, from the
inputs to the folded values, and the end, from the states to the outputs.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

from codegen import cpp
from codegen.expr import build_pointwise
from codegen.graph import Node
from codegen.lock import Lock
from codegen.model import Op
from codegen.nodes import BOOL, COMPUTE, ELEMENTARY, NODE_OPS
from codegen.program import Output, Program
from codegen.schema import fnv1a, parse_schema
from codegen.series import CHEBYSHEV, vector_code

FILES = 12  # of some seconds of compilation each; their number is fixed, so that a new inner loop moves no other

# Expressions of x that backends/cpu-openmp/simd has a function for. A program that contains one calls the function,
# unless it needs a costly part of the expression elsewhere. A function of float32 alone leaves float64 the expression.
_FUSED = {
    "1 + erf(x * 0.70710678118654752440)": "NodeTwiceNormalCdf",
    "log1p(exp(x))": "NodeLog1pExp",
    "tanh(softplus(x))": "NodeTanhSoftplus",
    "ndtr(x)": "NodeNdtr",
    "erfinv(x)": "FloatErfinv",
    "ndtri(x)": "FloatNdtri",
    **{f"chebyshev(x, {name})": f"Series_{name}" for name in CHEBYSHEV},
}
_CPP = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}
COMPUTE_TYPES = ("float32", "float64", "int32", "int64")
FLOATS, INTEGERS = COMPUTE_TYPES[:2], COMPUTE_TYPES[2:]


@dataclass
class InnerLoopCode:
    """An emitted function. `compute_types` grows as programs share it."""

    name: str
    program: Program
    comment: str
    compute_types: set[str] = field(default_factory=set)
    place: tuple[int, int] = (-1, -1)


@dataclass(frozen=True)
class Call:
    """A call of a function of _FUSED for the node `x`. `nodes` are those of the expression, without x."""

    name: str
    x: int
    nodes: frozenset[int]

    @property
    def float32_alone(self) -> bool:
        return self.name.startswith("Float")


# A program and its inner loop.
Part = tuple[Program, InnerLoopCode]


def shape_of(p: Program) -> str:
    """Returns a key that programs which differ only in names share."""
    order: dict[str, dict[str, int]] = {"input": {}, "scalar": {}}
    lines = []
    for n in p.nodes:
        number = order[n.op].setdefault(n.name, len(order[n.op])) if n.op in order else 0
        lines.append(f"{n.op}:{n.type}:{n.args}:{number}:{n.value.hex()}")
    return ";".join(lines + [f"{o.node}:{o.type}" for o in p.outputs])


def cost(p: Program) -> int:
    return max(1, sum(NODE_OPS[n.op].cost for n in p.nodes if n.op in NODE_OPS))


def is_cheap(p: Program) -> bool:
    """Returns whether the program is bound by memory instead of arithmetic."""
    return cost(p) <= 8


def streams(p: Program) -> bool:
    """Returns whether the inner loop of the program supports non-temporal stores."""
    return is_cheap(p) and all(o.type == COMPUTE for o in p.outputs)


def _operand(p: Program, n: Node) -> str:
    return p.nodes[n.args[0]].type if n.args else n.type


def takes_floats(p: Program) -> bool:
    return not any(n.op in NODE_OPS and NODE_OPS[n.op].kind == "bitwise" for n in p.nodes)


def takes_integers(p: Program) -> bool:
    for n in p.nodes:
        if n.op in NODE_OPS and COMPUTE in (n.type, _operand(p, n)) and NODE_OPS[n.op].integers is None:
            return False
        # A constant must be the same in every integer type.
        if n.op == "const" and not (n.value.is_integer() and 0 <= n.value <= 127):
            return False
    return True


def is_narrow(p: Program) -> bool:
    """Returns whether computing in int32 and truncating the results equals computing in 8 or 16 bits."""
    exact = []  # per node: its int32 value is its narrow value
    low = []  # its low bits are
    for n in p.nodes:
        if n.op not in NODE_OPS or n.type != COMPUTE:
            inputs_exact = all(exact[a] for a in n.args)
            exact.append(inputs_exact)
            low.append(inputs_exact)
            continue
        whole = all(exact[a] for a in n.args)
        integers = NODE_OPS[n.op].integers or ()
        exact.append(whole and "fits" in integers)
        low.append(
            whole or ("wraps" in integers and all(low[a] for a in n.args) and (n.op != "where" or exact[n.args[0]]))
        )
    return all(low[o.node] for o in p.outputs)


# ---- code ------------------------------------------------------------------------------------------------


def _expression(p: Program, n: Node) -> str:
    args = [f"v{a}" for a in n.args]
    if n.op == "cast":
        source = _operand(p, n)
        if source == n.type:
            return args[0]
        return f"NodeFromMask(d, {args[0]})" if source == BOOL else f"NodeToMask(d, {args[0]})"
    if n.op == "bitwise_not" and n.type == COMPUTE:
        return f"NotNode(d, {args[0]}, s)"
    if _operand(p, n) == BOOL and n.op in ("eq", "ne", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"):
        name = {"ne": "Xor", "eq": "Xor"}.get(n.op, n.op.removeprefix("bitwise_").capitalize())
        value = f"NodeLogical{name}(d, {', '.join(args)})"
        return f"NodeLogicalNot(d, {value})" if n.op == "eq" else value
    if n.op == "where" and n.type == BOOL:
        c, a, b = args
        return f"NodeLogicalOr(d, NodeLogicalAnd(d, {c}, {a}), NodeLogicalAnd(d, NodeLogicalNot(d, {c}), {b}))"
    name = "".join(word.capitalize() for word in n.op.split("_"))
    return f"Node{name}(d, {', '.join(args)})"


@functools.cache
def _fused_programs() -> list[tuple[Program, str]]:
    """Returns the programs of _FUSED, the largest first."""
    args = parse_schema("fused(Tensor x) -> Tensor").args
    found = [(build_pointwise("fused", {"out": text}, args, {}).variants[0], name) for text, name in _FUSED.items()]
    return sorted(found, key=lambda pair: -len(pair[0].nodes))


def _match(p: Program, at: int, form: Program, node: int, bound: dict[int, int]) -> bool:
    """Returns whether node `at` of `p` computes node `node` of `form`. Adds the pairs of nodes to `bound`."""
    a, b = p.nodes[at], form.nodes[node]
    if node in bound:
        return bound[node] == at
    if b.op != "input" and (a.op, a.value.hex(), len(a.args)) != (b.op, b.value.hex(), len(b.args)):
        return False
    if a.type != b.type:
        return False
    orders = [b.args] if b.op != "input" else [()]
    if b.op in NODE_OPS and NODE_OPS[b.op].commutative:
        orders.append(b.args[::-1])
    for order in orders:
        trial = {**bound, node: at}
        if all(_match(p, x, form, y, trial) for x, y in zip(a.args, order)):
            bound.update(trial)
            return True
    return False


def fused(p: Program) -> dict[int, Call]:
    """Returns the nodes that a function of _FUSED computes."""
    found: dict[int, Call] = {}
    users: list[set[int]] = [set() for _ in p.nodes]
    for i, n in enumerate(p.nodes):
        for a in n.args:
            users[a].add(i)
    for o in p.outputs:
        users[o.node].add(-1)
    taken: set[int] = set()
    for form, name in _fused_programs():
        for i in range(len(p.nodes)):
            bound: dict[int, int] = {}
            if i in taken or not _match(p, i, form, form.outputs[0].node, bound):
                continue
            inside = {at for node, at in bound.items() if form.nodes[node].op in NODE_OPS}
            costly = {at for at in inside - {i} if NODE_OPS[p.nodes[at].op].cost > 1}
            if not any(users[at] - inside for at in costly):
                x = next(at for node, at in bound.items() if form.nodes[node].op == "input")
                found[i] = Call(name, x, frozenset(bound.values()) - {x})
                taken |= {at for at in inside if users[at] <= inside} | {i}
    return found


def _needed_by(p: Program) -> list[set[int]]:
    """Returns the outputs that need each node."""
    needed: list[set[int]] = [set() for _ in p.nodes]
    for k, o in enumerate(p.outputs):
        stack = [o.node]
        while stack:
            node = stack.pop()
            if k not in needed[node]:
                needed[node].add(k)
                stack += p.nodes[node].args
    return needed


def _by_type(p: Program, at: int, call: Call, live: set[int]) -> list[str]:
    """Returns the code of a node that a function computes in float32 alone."""
    lines = [f"hn::VFromD<D> v{at};", "if constexpr (is_f32<D>) {", f"  v{at} = {call.name}(d, v{call.x});", "} else {"]
    for i in sorted(call.nodes - live):
        n = p.nodes[i]
        value = f"ConstNode(d, {cpp.number(n.value)})" if n.op == "const" else _expression(p, n)
        lines.append(f"  const auto v{i} = {value};")
    return lines + [f"  v{at} = {_expression(p, p.nodes[at])};", "}"]


def series_code(codes: list[InnerLoopCode]) -> list[str]:
    """Returns the functions of the series that inner loops call."""
    used = {call.name for code in codes for call in fused(code.program).values()}
    lines = []
    for name in CHEBYSHEV:
        if f"Series_{name}" not in used:
            continue
        lines += ["template <class D, class V>", f"HWY_INLINE V Series_{name}(D d, V t) {{"]
        for float32, start in ((True, "  if constexpr (is_f32<D>) {"), (False, "  } else {")):
            scheme, numbers = vector_code(name, float32)
            lines += [start, f"    return {scheme}(d, t, {', '.join(map(cpp.number, numbers))});"]
        lines += ["  }", "}", ""]
    return lines


def inner_loop_code(code: InnerLoopCode) -> list[str]:
    p = code.program
    lines = [
        f"// {code.comment}",
        "template <class D>",
        f"bool {code.name}(const void* const* in, void* const* out, const Scalars& s, int64_t n) {{",
        "  using T [[maybe_unused]] = hn::TFromD<D>;",
        "  const D d;",
    ]
    inputs = [i for i, n in enumerate(p.nodes) if n.op == "input"]
    scalars = [i for i, n in enumerate(p.nodes) if n.op == "scalar"]
    divides = False
    calls = fused(p)
    live = {o.node for o in p.outputs}
    for i in reversed(range(len(p.nodes))):
        if i in live:
            live |= {calls[i].x} if i in calls else set(p.nodes[i].args)
    for k, i in enumerate(scalars):
        lines.append(f"  const auto v{i} = ScalarNode(d, s, {k});")
    for i, n in enumerate(p.nodes):
        if n.op == "const" and i in live:
            if n.type == BOOL:
                raise ValueError(f"{code.comment}: a constant of type BOOL")
            lines.append(f"  const auto v{i} = ConstNode(d, {cpp.number(n.value)});")
    for k in range(len(p.outputs)):
        lines.append(f"  const bool want{k} = out[{k}] != nullptr;")
    body: list[str] = []
    last: dict[int, list[str]] = {k: [] for k in range(len(p.outputs))}
    needed = _needed_by(p)

    def is_alone(i: int) -> bool:
        # A node that only one output needs is computed only if that output is wanted.
        return len(p.outputs) > 1 and len(needed[i]) == 1

    def place(i: int, text: str) -> None:
        (last[next(iter(needed[i]))] if is_alone(i) else body).append(text)

    params, pointers = [], []
    for k, i in enumerate(inputs):
        kind = "uint8_t" if p.nodes[i].type == BOOL else "T"
        params.append(f"const {kind}* i{k}")
        pointers.append(f"static_cast<const {kind}*>(in[{k}])")
        place(i, f"const auto v{i} = {'LoadMask' if p.nodes[i].type == BOOL else 'LoadNode'}(d, i{k});")
    for i, n in enumerate(p.nodes):
        if i not in live or (n.op not in NODE_OPS and n.op != "cast"):
            continue
        if n.op in NODE_OPS and "divides" in (NODE_OPS[n.op].integers or ()):
            divides = True
            place(i, f"zero |= RefusesDivisor(d, v{n.args[1]});")
        if i in calls and calls[i].float32_alone:
            for text in _by_type(p, i, calls[i], live):
                place(i, text)
            continue
        value = f"{calls[i].name}(d, v{calls[i].x})" if i in calls else _expression(p, n)
        place(i, f"const auto v{i} = {value};")
    stores: list[str] = []
    for k, o in enumerate(p.outputs):
        kind = "uint8_t" if o.type == BOOL else "T"
        params.append(f"auto o{k}" if streams(p) else f"{kind}* o{k}")
        pointers.append(f"static_cast<{kind}*>(out[{k}])")
        value = f"v{o.node}"
        if is_alone(o.node) and last[k]:
            value = f"r{k}"
            nothing = "hn::MaskFalse(d)" if o.type == BOOL else "hn::Zero(d)"
            body += [f"auto {value} = {nothing};", f"if (want{k}) {{"]
            body += ["  " + t for t in last[k]] + [f"  {value} = v{o.node};", "}"]
        store = f"{'StoreMask' if o.type == BOOL else 'StoreNode'}(d, {value}, o{k});"
        # The only output of a program is always wanted.
        stores.append(store if len(p.outputs) == 1 else f"if (want{k}) {store}")
    # All inputs are read before an output is written, because it may be one of them.
    body += stores
    if len(p.outputs) == 1:
        lines.remove("  const bool want0 = out[0] != nullptr;")
    if divides:
        lines.append("  bool zero = false;")
    lines.append(f"  ForEachVector<{2 if is_cheap(p) else 1}, {str(streams(p)).lower()}>(")
    lines.append(f"      d, n, s, [&]({', '.join(params)}) MYTORCH_STEP {{")
    lines += ["        " + text for text in body]
    lines.append("      },")
    lines.append("      " + ", ".join(pointers) + ");")
    lines += [f"  return {'!zero' if divides else 'true'};", "}", ""]
    return lines


def inner_loop_file(number: int, codes: list[InnerLoopCode]) -> str:
    lines = [
        cpp.BANNER.strip(),
        "#undef HWY_TARGET_INCLUDE",
        f'#define HWY_TARGET_INCLUDE "cpu/inner_loops_{number:02d}.cpp"',
        '#include "backends/cpu-openmp/simd/foreach_target.h"',
        "// After foreach_target.h, which includes this file once for each instruction set.",
        "#include <limits>",
        "",
        '#include "backends/cpu-openmp/pointwise/inner_loop-inl.h"',
        '#include "backends/cpu-openmp/simd/export.h"',
        '#include "backends/cpu-openmp/simd/highway.h"',
        "",
        "HWY_BEFORE_NAMESPACE();",
        "namespace mytorch::cpu::HWY_NAMESPACE {",
        "namespace {",
        "",
    ]
    lines += series_code(codes)
    for code in codes:
        lines += inner_loop_code(code)
    lines += [
        "}  // namespace",
        "",
        f"const InnerLoops* inner_loops_{number:02d}() {{",
        "  static constexpr InnerLoops table[] = {",
    ]
    for code in codes:
        cells = [
            f"&{code.name}<hn::ScalableTag<{_CPP[compute_type]}>>" if compute_type in code.compute_types else "nullptr"
            for compute_type in COMPUTE_TYPES
        ]
        lines.append(f"      {{{{{', '.join(cells)}}}}},")
    lines += [
        "  };",
        "  return table;",
        "}",
        "",
        "}  // namespace mytorch::cpu::HWY_NAMESPACE",
        "HWY_AFTER_NAMESPACE();",
        "",
        f"MYTORCH_EXPORT_TABLE(mytorch::cpu, best_inner_loops_{number:02d}, inner_loops_{number:02d})",
        "",
    ]
    return "\n".join(lines)


# ---- programs ----------------------------------------------------------------------------------------------


class InnerLoopSet:
    """Returns the inner loops to emit, each once."""

    def __init__(self) -> None:
        self.by_shape: dict[str, InnerLoopCode] = {}

    def add(self, p: Program, name: str, comment: str, compute_types: list[str]) -> InnerLoopCode:
        code = self.by_shape.setdefault(shape_of(p), InnerLoopCode(name, p, comment))
        code.compute_types |= set(compute_types)
        return code


def compute_types_of(op: Op, p: Program) -> list[str]:
    compute_types: list[str] = []
    if op.takes("float") and takes_floats(p):
        compute_types += FLOATS
    if op.promote != "float" and not op.derived and takes_integers(p):
        compute_types += INTEGERS
    return compute_types


def _cut(p: Program, roots: list[tuple[str, int]], leaves: tuple[str, ...]) -> Program:
    """Returns the pointwise program of some nodes. Leaves become inputs: state k is "state_k", count "count"."""
    needed: set[int] = set()
    stack = [node for _, node in roots]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += p.nodes[node].args
    rank = {"input": 0, "scalar": 1, "const": 2}

    def renamed(n: Node) -> Node:
        if n.op in leaves:
            name = f"state_{n.component}" if n.op == "state" else n.name or n.op
            return replace(n, op="input", name=name, component=0)
        return n

    nodes = {i: renamed(p.nodes[i]) for i in needed}
    ordered = sorted(needed, key=lambda i: (rank.get(nodes[i].op, 3), i))
    number = {old: new for new, old in enumerate(ordered)}
    final = tuple(replace(nodes[i], args=tuple(number[a] for a in nodes[i].args)) for i in ordered)
    return Program(p.name, final, tuple(Output(f, number[i], p.nodes[i].type) for f, i in roots), p.variant)


def _leaf_component(n: Node) -> str:
    return "kCountLeaf" if n.name == "count" else n.name.removeprefix("state_")


def _table(name: str, kind: str, rows: list[str]) -> list[str]:
    return [f"constexpr {kind} {name}[] = {{" + ", ".join(rows) + "};"] if rows else []


class Tables:
    """Emits programs.cpp: the description of each operator, which the backend reads when it starts."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fill: list[str] = []
        self.pointwise: list[str] = []
        self.reduce: list[str] = []
        self.nodes: list[str] = []

    def program(self, where: str, op: Op, p: Program, code: InnerLoopCode, state_inputs: bool = False) -> str:
        """Emits the parts of a PointwiseProgram and returns its initializer."""
        sid = op.schema.struct_id
        at = lambda field_name: f"offsetof(mt_args_{sid}, {field_name})"
        inputs = [n for n in p.nodes if n.op == "input"]
        scalars = [n for n in p.nodes if n.op == "scalar"]
        rows = [f"{{{_leaf_component(n) if state_inputs else at(n.name)}, MT_TYPE_{n.type}}}" for n in inputs]
        self.lines += _table(f"kInputs_{where}", "OperandField", rows)
        self.lines += _table(
            f"kScalars_{where}", "ScalarField", [f"{{{at(n.name)}, MT_FIELD_{n.field}}}" for n in scalars]
        )
        self.lines += _table(
            f"kOutputs_{where}",
            "OperandField",
            [f"{{{at(o.name) if o.name else 0}, MT_TYPE_{o.type}}}" for o in p.outputs],
        )
        part = lambda name, items: f"{name}_{where}" if items else "nullptr"
        return (
            f"{{{part('kInputs', inputs)}, {part('kScalars', scalars)}, kOutputs_{where}, {len(inputs)}, "
            f"{len(scalars)}, {len(p.outputs)}, {cost(p)}, {str(is_narrow(p)).lower()}, {str(streams(p)).lower()}, {{}}, nullptr}}"
        )

    def loops(self, target: str, code: InnerLoopCode) -> None:
        self.fill.append(f"  {target} = files[{code.place[0]}][{code.place[1]}];")

    def node(self, p: Program, code: InnerLoopCode) -> None:
        """Emits the row of a single node operation."""
        types = [n.type for n in p.nodes if n.op == "input"]
        self.nodes.append(
            f"    {{{cpp.text(p.name)}, MT_TYPE_{p.outputs[0].type}, MT_TYPE_{types[0]}, {len(types)}, "
            f"{cost(p)}, files[{code.place[0]}][{code.place[1]}]}},"
        )


def pointwise_tables(tables: Tables, op: Op, codes: list[InnerLoopCode]) -> None:
    sid = op.schema.struct_id
    rows = [tables.program(f"{sid}_{p.variant}", op, p, c) for p, c in zip(op.body.variants, codes)]
    tables.lines.append(f"PointwiseProgram programs_{sid}[] = {{" + ",\n    ".join(rows) + "};")
    for k, code in enumerate(codes):
        tables.loops(f"programs_{sid}[{k}].loops", code)
    tables.pointwise.append(
        f"    {{{cpp.text(op.full_name)}, {cpp.text(op.schema.name)}, MT_HASH_{sid}, " f"programs_{sid}, {len(rows)}}},"
    )


def reduce_tables(tables: Tables, op: Op, parts: list[tuple[Program, Part | None, Part | None]]) -> None:
    sid = op.schema.struct_id
    rows = []
    for p, step, end in parts:
        where = f"{sid}_{p.variant}"
        step_name = end_name = "nullptr"
        if step is not None:
            row = tables.program(f"{where}_step", op, step[0], step[1])
            tables.lines.append(f"PointwiseProgram step_{where} = {row};")
            tables.loops(f"step_{where}.loops", step[1])
            step_name = f"&step_{where}"
        if end is not None:
            row = tables.program(f"{where}_end", op, end[0], end[1], state_inputs=True)
            tables.lines.append(f"PointwiseProgram end_{where} = {row};")
            tables.loops(f"end_{where}.loops", end[1])
            end_name = f"&end_{where}"
        outputs = []
        for o in p.outputs:
            n = p.nodes[o.node]
            source = n.component if n.op == "state" else -1
            outputs.append(f"{{offsetof(mt_args_{sid}, {o.name}), MT_TYPE_{o.type}, {source}}}")
        tables.lines += _table(f"kEnds_{where}", "ReduceOutput", outputs)
        dim = f"offsetof(mt_args_{sid}, {p.dim})" if p.dim else "0"
        rows.append(
            f"{{Fold::k{p.fold.capitalize()}, MT_DIM_{p.dim_kind}, {dim}, "
            f"offsetof(mt_args_{sid}, {p.inputs[0].name}), {step_name}, {end_name}, kEnds_{where}, {len(outputs)}}}"
        )
    tables.lines.append(f"const ReduceProgram programs_{sid}[] = {{" + ",\n    ".join(rows) + "};")
    tables.reduce.append(
        f"    {{{cpp.text(op.full_name)}, {cpp.text(op.schema.name)}, MT_HASH_{sid}, " f"programs_{sid}, {len(rows)}}},"
    )


def node_program(name: str, kind: str, arity: int) -> list[Program]:
    """Returns the program of a single node operation, from which programs compiled at run time are built."""
    operand = BOOL if kind == "logical" else COMPUTE
    types = [BOOL, COMPUTE, COMPUTE] if kind == "where" else [operand] * arity
    result = BOOL if kind in ("compare", "test", "logical") else COMPUTE
    nodes = [Node("input", t, (), f"i{k}") for k, t in enumerate(types)]
    nodes.append(Node(name, result, tuple(range(arity))))
    return [Program(name, tuple(nodes), (Output("out", arity, result),))]


def cast_programs() -> list[Program]:
    return [
        Program("cast", (Node("input", a, (), "i0"), Node("cast", b, (0,))), (Output("out", 1, b),))
        for a, b in ((BOOL, COMPUTE), (COMPUTE, BOOL))
    ]


def pointwise_loops(loops: InnerLoopSet, op: Op) -> list[InnerLoopCode]:
    """Returns the inner loop of each variant of a pointwise operator."""
    sid = op.schema.struct_id
    return [
        loops.add(p, f"{sid}_{p.variant}", f"{op.full_name}, variant {p.variant}", compute_types_of(op, p))
        for p in op.body.variants
    ]


def reduce_loops(loops: InnerLoopSet, op: Op) -> list[tuple[Program, Part | None, Part | None]]:
    """Returns each variant of a reduction with its step and its end, which are None if they compute nothing."""
    sid = op.schema.struct_id

    def part(p: Program, name: str, cut: Program) -> Part:
        return cut, loops.add(
            cut, f"{sid}_{p.variant}_{name}", f"{op.full_name}: the {name}", compute_types_of(op, cut)
        )

    variants = []
    for p in op.body.variants:
        step = end = None
        folded = p.nodes[p.step].op
        if folded != "input" and not (p.fold in ("all", "any") and folded == "cast"):
            step = part(p, "step", _cut(p, [("", p.step)], ()))
        computed = [(o.name, o.node) for o in p.outputs if p.nodes[o.node].op != "state"]
        if computed:
            end = part(p, "end", _cut(p, computed, ("state", "count")))
        variants.append((p, step, end))
    return variants


def node_loops(loops: InnerLoopSet) -> list[Part]:
    """Returns the inner loops of single nodes."""
    found = []
    for name, info in NODE_OPS.items():
        for p in node_program(name, info.kind, info.arity):
            compute_types = (list(FLOATS) if takes_floats(p) else []) + (list(INTEGERS) if takes_integers(p) else [])
            found.append((p, loops.add(p, f"node_{name}", f"the node {name}", compute_types)))
    for p in cast_programs():
        name = f"node_cast_{p.outputs[0].type.lower()}"
        found.append((p, loops.add(p, name, "the node cast", list(COMPUTE_TYPES))))
    return found


def elementary() -> str:
    """Returns the list of the functions whose accuracy is tested (tests/backends/cpu-openmp/simd_math_test.cpp)."""
    rows = [
        f"X({f.name.capitalize()}, libm::{f.name}(x), {f.ulp[0]}, {f.ulp[1]})" for f in ELEMENTARY if f.ulp is not None
    ]
    about = "The elementary functions with their largest errors in float and double, in units in the last place."
    listed = " \\\n  ".join(["#define MYTORCH_ELEMENTARY(X)", *rows])
    return cpp.header(about, [], [listed], "codegen/elementary.yaml")


def programs_file(tables: Tables, files: list[int]) -> str:
    """Returns programs.cpp. `files` are the numbers of the files with inner loops."""
    best = ", ".join(f"best_inner_loops_{k:02d}()" if k in files else "nullptr" for k in range(FILES))
    parts = [
        cpp.BANNER.strip(),
        "#include <cstddef>",
        "#include <vector>",
        "",
        '#include "backends/cpu-openmp/pointwise/programs.h"',
        '#include "mytorch/abi_ops.h"',
        "",
        "namespace mytorch::cpu {",
        *[f"const InnerLoops* best_inner_loops_{k:02d}();" for k in files],
        "namespace {",
        "",
        *tables.lines,
        "",
        "// The inner loops for this processor, by file.",
        "const InnerLoops* const* inner_loop_files() {",
        f"  static const InnerLoops* const files[] = {{{best}}};",
        "  return files;",
        "}",
        "",
        "}  // namespace",
        "",
        "const Programs& programs() {",
        "  static const Programs all = [] {",
        "    const InnerLoops* const* files = inner_loop_files();",
        *["  " + line for line in tables.fill],
    ]
    for kind, name, rows in (
        ("PointwiseOp", "pointwise", tables.pointwise),
        ("ReduceOp", "reduce", tables.reduce),
        ("NodeLoop", "nodes", tables.nodes),
    ):
        parts += [f"    static const {kind} {name}[] = {{", *["  " + row for row in rows], "    };"]
    parts += [
        "    return Programs{pointwise, reduce, nodes};",
        "  }();",
        "  return all;",
        "}",
        "",
        "}  // namespace mytorch::cpu",
        "",
    ]
    return "\n".join(parts)


def emit(ops: list[Op], lock: Lock) -> dict[str, str]:
    loops = InnerLoopSet()
    with_body = [op for op in ops if op.body is not None and op.has_kernel]
    operators = [
        (op, pointwise_loops(loops, op) if op.meaning == "pointwise" else reduce_loops(loops, op)) for op in with_body
    ]
    nodes = node_loops(loops)

    groups: dict[int, list[InnerLoopCode]] = {}
    for code in loops.by_shape.values():
        number = fnv1a(code.name) % FILES
        group = groups.setdefault(number, [])
        code.place = (number, len(group))
        group.append(code)

    tables = Tables()
    for op, parts in sorted(operators, key=lambda pair: pair[0].meaning):
        (pointwise_tables if op.meaning == "pointwise" else reduce_tables)(tables, op, parts)
    for p, code in nodes:
        tables.node(p, code)
    files = {f"cpu/inner_loops_{number:02d}.cpp": inner_loop_file(number, group) for number, group in groups.items()}
    files["cpu/programs.cpp"] = programs_file(tables, sorted(groups))
    files["cpu/elementary.h"] = elementary()
    return files
