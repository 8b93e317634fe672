"""Checked records: the classes that emitters read."""

from __future__ import annotations

from dataclasses import dataclass, field

from codegen.expr import Body, Names
from codegen.formula import Formula, Save
from codegen.program import Program
from codegen.schema import Schema


# Classes of types to which an argument may be restricted.
ACCEPTS: dict[str, tuple[str, ...]] = {
    "number": ("integer", "float"),
    "integer": ("integer",),
    "integral": ("bool", "integer"),
    "float": ("float",),
}


@dataclass(frozen=True)
class Result:
    """One returned value.

    field: its field in the C argument struct, "" if it has none (numbers, written arguments).
    name: its name in formulas: `result`, or the return's name, or result0, result1, ...
    dtype: "" for the promoted type, else the name of a fixed ScalarType.
    real: of complex operands, the result has the type of their parts.
    """

    field: str
    name: str
    dtype: str
    differentiable: bool
    real: bool = False


@dataclass(frozen=True)
class GradOutput:
    """The gradient of one argument as an output of the derived op.

    field: its field in the derived op's argument struct.
    saves: the names that it reads, other than incoming gradients and numbers.
    identity: it equals the incoming gradient in every variant, so no kernel is needed.
    """

    arg: str
    field: str
    saves: tuple[str, ...]
    identity: bool


@dataclass(frozen=True)
class GradFormula:
    """A formula in ops. A formula for several arguments gives a tuple, and may use `wanted[i]`."""

    args: tuple[str, ...]
    formula: Formula
    saves: tuple[Save, ...]


POLICIES = ("lower", "float32", "widest", "none")  # mytorch/autocast.h explains them


@dataclass(frozen=True)
class Gradient:
    """The gradient of a record.

    kind: `none`; `derived`, one fused op with `outputs`; `formulas`; or `decompose`, through the ops that the op
        consists of.
    zero: arguments whose gradient is zero everywhere.
    no_grad: tensor arguments without a gradient.
    saves: the union of the entries' saves.
    numbers: the other arguments to save.
    """

    kind: str
    derived: str = ""
    outputs: tuple[GradOutput, ...] = ()
    formulas: tuple[GradFormula, ...] = ()
    zero: tuple[str, ...] = ()
    no_grad: tuple[str, ...] = ()
    saves: tuple[Save, ...] = ()
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rewrite:
    """A rule by which graphs are rewritten; codegen/rewrites.py checks its texts. condition: "" if there is none."""

    name: str
    pattern: str
    to: str
    condition: str
    mode: str
    line: int


@dataclass
class Op:
    """One operator.

    meaning: pointwise, reduce, view, composite or primitive.
    family: the section of ops.yaml in which the record is; its code lies in the folders of that name.
    function: the C++ function of a view, composite or primitive.
    formula: the formula of a composite whose record has one.
    written: the text of the meaning in the record, or several texts by name.
    names: `let` and `absent` of the bodies.
    types: for every tensor argument `same`, `bool`, `index` or `any`.
    accepts: for arguments of type `same`, the class of allowed types, one of ACCEPTS.
    layout_of: the arguments that `layout: follow(...)` names.
    autocast: the autocast policy, one of POLICIES.
    backward_stable: the results are those of operands with rounding errors.
    non_finite_spreads: which elements of the results a non-finite operand reaches is not defined.
    parent: for a derived op, the full name of the op whose gradient it computes.
    aliases: other names of the function.
    takes_complex: a body that takes complex operands.
    complex_variants: the programs for complex operands, if they differ from the body's.
    call_variants: the programs that gradients of higher order differentiate, in which special functions are calls of
        operators; none if the body has no special functions.
    parts: the C++ function that computes a call with complex operands.
    parts_generated: that function is generated: the composite of a record with kernels.
    rewrites: rules whose replacement calls the operator.
    """

    schema: Schema
    doc: str
    path: str
    line: int
    meaning: str
    family: str = ""
    function: str = ""
    formula: Formula | None = None
    written: str | dict[str, str] = ""
    names: Names = Names()
    kernel_optional: bool = False
    body: Body | None = None
    promote: str = "same"
    types: dict[str, str] = field(default_factory=dict)
    accepts: dict[str, str] = field(default_factory=dict)
    results: tuple[Result, ...] = ()
    forms: tuple[str, ...] = ()
    grad: Gradient = Gradient("none")
    cost: dict[str, Formula] = field(default_factory=dict)
    layout_of: tuple[str, ...] = ()
    dynamic: bool = False
    tolerance: dict[str, float] = field(default_factory=dict)
    backward_stable: bool = False
    non_finite_spreads: bool = False
    autocast: str = "none"
    derived: bool = False
    parent: str = ""
    aliases: tuple[str, ...] = ()
    takes_complex: bool = False
    complex_variants: tuple[Program, ...] = ()
    call_variants: tuple[Program, ...] = ()
    parts: str = ""
    parts_generated: bool = False
    rewrites: tuple[Rewrite, ...] = ()

    @property
    def full_name(self) -> str:
        return self.schema.full_name

    def takes(self, category: str) -> bool:
        """Returns whether operands may be of a category: `bool`, `integer` or `float`."""
        operands = [a.name for a in self.schema.tensor_args if self.types[a.name] == "same"]
        return not operands or any(category in ACCEPTS.get(self.accepts.get(a, ""), (category,)) for a in operands)

    @property
    def is_node(self) -> bool:
        """Returns whether a graph has nodes of the operator. A composite without kernel is recorded as the operators
        that it calls, unless it also works through a handle, which no other operator shows."""
        handle = any(arg.type == "Handle" for arg in self.schema.args)
        return self.meaning != "composite" or self.kernel_optional or handle

    @property
    def has_kernel(self) -> bool:
        """Returns whether backends may have kernels for it. It then has an argument struct, locked in ops.lock."""
        return self.meaning in ("pointwise", "reduce", "primitive") or self.kernel_optional
