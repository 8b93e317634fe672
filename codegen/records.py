"""Loads ops.yaml: every record becomes a checked Op, and the gradient ops that follow are appended.

All errors of a file are collected, each as `ops.yaml:LINE: [op] message`.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Iterator

from codegen.complex import HOLOMORPHIC, OTHERS, without_meaning
from codegen.autocast import default_policy
from codegen.cost import FUNCTIONS, cost_tree
from codegen.expr import Body, Names, arity, build_pointwise
from codegen.families import family_of, malformed, sections
from codegen.formula import Formula, parse_formula
from codegen.gradients import (
    NODE_TYPES,
    Entry,
    derive_auto,
    derive_formulas,
    differentiable_args,
    formula_names,
    formulas,
    gradient_names,
)
from codegen.model import ACCEPTS, POLICIES, GradFormula, Gradient, GradOutput, Op, Result, Rewrite
from codegen.nodes import BOOL, ELEMENTARY, INDEX, NodeOp
from codegen.reduce import build_reduce
from codegen.rewrites import MODES, check, table
from codegen.schema import SCALAR_TYPES, Schema, SchemaError, parse_schema
from codegen.syntax import ExprError, parse, substitute
from codegen.yamlfile import List, Map, Text, Value, YamlError, read

__all__ = ["GradFormula", "Gradient", "GradOutput", "Op", "RecordErrors", "Result", "load", "load_text"]

MEANINGS = ("pointwise", "reduce", "view", "composite", "primitive")
KEYS = (
    "op",
    "doc",
    "forms",
    *MEANINGS,
    "let",
    "absent",
    "kernel",
    "promote",
    "types",
    "result",
    "grad",
    "cost",
    "layout",
    "dynamic",
    "tolerance",
    "stability",
    "non_finite",
    "autocast",
    "complex",
    "rewrite",
)
PROMOTE = ("same", "float", "compare", "widen", "first", "none")
FORMS = ("method", "inplace")
TYPES = ("same", "bool", "index", "any")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_BODY_TYPES = set("Tensor Tensor? Operand Operand? Scalar Scalar? int int? float float? bool str str?".split())


def _written(value: Value) -> str | dict[str, str]:
    """Returns a meaning as the record writes it, for the reference pages."""
    if isinstance(value, Map):
        texts = {key.text: _written(item) for key, item in value.items}
        listed = lambda parts: "{" + ", ".join(f"{key}: {part}" for key, part in parts.items()) + "}"
        return {key: listed(text) if isinstance(text, dict) else text for key, text in texts.items()}
    return re.sub(r"[ \t]+", " ", value.text) if isinstance(value, Text) else ""


class RecordErrors(ValueError):
    """Raised with all errors of a file."""

    def __init__(self, messages: list[str]):
        super().__init__("\n".join(messages))
        self.messages = messages


class _Refused(Exception):
    """Raised if this part of a record has a reported error and cannot be read further."""


@dataclass
class _Errors:
    path: str
    messages: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, op: str, message: str) -> None:
        self.messages.append((line, f"{self.path}:{line}: [{op}] {message}"))

    def texts(self) -> list[str]:
        return [text for _, text in sorted(self.messages, key=lambda m: m[0])]


class _Record:
    """Reads one record."""

    def __init__(self, record: Map, errors: _Errors):
        self.record = record
        self.errors = errors
        self.name = "?"

    def report(self, line: int, message: str) -> None:
        self.errors.add(line, self.name, message)

    def refuse(self, line: int, message: str) -> _Refused:
        self.report(line, message)
        return _Refused()

    # ---- values of keys --------------------------------------------------------------------------

    def text(self, key: str, choices: tuple[str, ...] = ()) -> Text | None:
        value = self.record.get(key)
        if value is None:
            return None
        if not isinstance(value, Text) or not value.text:
            self.report(value.line, f"`{key}` is not a text")
            return None
        if choices and value.text not in choices:
            self.report(value.line, f"`{key}: {value.text}` is none of {', '.join(choices)}")
            return None
        return value

    def mapping(self, key: str) -> list[tuple[Text, Text]]:
        value = self.record.get(key)
        if value is None:
            return []
        if not isinstance(value, Map):
            self.report(value.line, f"`{key}` is not a mapping")
            return []
        found = []
        for name, item in value.items:
            if isinstance(item, Text) and item.text:
                found.append((name, item))
            else:
                self.report(name.line, f"`{key}.{name.text}` is not a text")
        return found

    # ---- the record ------------------------------------------------------------------------------

    def read(self) -> tuple[Op, Op | None] | None:
        try:
            return self._read()
        except _Refused:
            return None

    def _read(self) -> tuple[Op, Op | None]:
        head = self.record.get("op")
        if not isinstance(head, Text):
            raise self.refuse(self.record.line, "a record begins with `op: schema`")
        self.name = head.text.split("(")[0].strip() or "?"
        try:
            schema = parse_schema(head.text)
        except SchemaError as error:
            raise self.refuse(head.line, str(error)) from None
        for key, _ in self.record.items:
            if key.text not in KEYS:
                self.report(key.line, f"unknown key `{key.text}`")
        for name in [a.name for a in schema.args] + [r.name for r in schema.returns]:
            if name in ("result", "grads", "wanted"):
                self.report(head.line, f"the name `{name}` is reserved for gradient formulas")
        doc = self.text("doc")
        if self.record.get("doc") is None:
            self.report(head.line, "has no `doc`")
        given = [m for m in MEANINGS if self.record.get(m) is not None]
        if len(given) > 1:
            raise self.refuse(head.line, f"has {' and '.join(given)}; give exactly one of {', '.join(MEANINGS)}")
        meaning = given[0] if given else self._own_meaning(schema)
        op = Op(schema, doc.text if doc else "", self.errors.path, head.line, meaning)
        self._attributes(op)
        before = len(self.errors.messages)
        self._names(op)
        self._rewrites(op)
        self._meaning(op)
        self._complex(op)
        self._results(op)
        self._cost(op)
        policy = self.text("autocast", POLICIES)
        op.autocast = policy.text if policy else default_policy(op)
        if self.record.get("grad") is None:
            raise self.refuse(head.line, "has no gradient decision: `grad: auto`, `grad: none` or formulas")
        if len(self.errors.messages) > before:
            return op, None  # the gradient's errors would only repeat these
        return op, self._grad(op)

    @staticmethod
    def _own_meaning(schema: Schema) -> str:
        """Returns the default meaning: the function of the body language with the record's name, if there is one."""
        return "pointwise" if arity(schema.name) == len(schema.args) else "composite"

    def _names(self, op: Op) -> None:
        """Reads the keys `let` and `absent`."""
        args = {a.name: a for a in op.schema.args}
        let: dict[str, ast.expr] = {}
        for name, text in self.mapping("let"):
            if name.text in args:
                raise self.refuse(name.line, f"`let` gives the argument `{name.text}` a second meaning")
            try:
                let[name.text] = substitute(parse(text.text), let)
            except ExprError as error:
                raise self.refuse(name.line, f"let of `{name.text}`, {error}") from None
        absent: dict[str, float] = {}
        for name, text in self.mapping("absent"):
            if name.text not in args or not args[name.text].optional:
                raise self.refuse(name.line, f"`absent` names `{name.text}`, which is no optional argument")
            try:
                absent[name.text] = float(text.text)
            except ValueError:
                raise self.refuse(name.line, f"`absent.{name.text}: {text.text}` is not a number") from None
        if (let or absent) and op.meaning not in ("pointwise", "reduce"):
            raise self.refuse(op.line, "`let` and `absent` belong to pointwise and reduce bodies")
        op.names = Names(let, absent)

    def _attributes(self, op: Op) -> None:
        if (kernel := self.text("kernel", ("optional",))) is not None:
            op.kernel_optional = True
            if op.meaning != "composite":
                self.report(kernel.line, f"`kernel: optional` on a {op.meaning}; it belongs to composites")
        promote = self.text("promote", PROMOTE)
        default = "none" if op.meaning == "view" or (op.meaning == "composite" and not op.kernel_optional) else "same"
        op.promote = promote.text if promote else default
        self._types(op)
        self._forms(op)
        op.dynamic = self.text("dynamic", ("true",)) is not None
        self._layout(op)
        op.backward_stable = self.text("stability", ("backward",)) is not None
        op.non_finite_spreads = self.text("non_finite", ("spreads",)) is not None
        for name, value in self.mapping("tolerance"):
            try:
                if name.text not in SCALAR_TYPES:
                    raise ValueError
                op.tolerance[name.text] = float(value.text)
            except ValueError:
                self.report(
                    name.line, f"`tolerance` maps a ScalarType to a number, not " f"`{name.text}: {value.text}`"
                )

    def _layout(self, op: Op) -> None:
        """Reads `layout`. `follow` applies to results that are allocated for a kernel; composites inherit the layout
        of their operators."""
        layout = self.text("layout")
        if layout is None:
            return
        match = re.fullmatch(r"follow\((\w+(?:, *\w+)*)\)", layout.text)
        if not match:
            raise self.refuse(layout.line, f"`layout: {layout.text}` is not `follow(x, ...)`")
        op.layout_of = tuple(re.split(", *", match.group(1)))
        for name in op.layout_of:
            if name not in [a.name for a in op.schema.tensor_args]:
                self.report(layout.line, f"`{layout.text}`: `{name}` names no tensor argument")
        if op.meaning in ("pointwise", "reduce") or not op.has_kernel or op.dynamic:
            self.report(
                layout.line,
                f"`{layout.text}` is of primitives and of composites with a kernel whose results "
                "have a shape that is known before",
            )

    def _rewrites(self, op: Op) -> None:
        """Reads `rewrite`, a list of rules. Their texts are checked when all operators are known."""
        value = self.record.get("rewrite")
        if value is None:
            return
        if not isinstance(value, List):
            self.report(value.line, "`rewrite` is not a list of rules")
            return
        keys = ("name", "pattern", "to", "if", "mode")
        for item in value.items:
            given = {key.text: text for key, text in item.items} if isinstance(item, Map) else {}
            texts = {key: text.text for key, text in given.items() if isinstance(text, Text)}
            if unknown := [key for key in given if key not in keys or key not in texts]:
                self.report(item.line, f"`rewrite.{unknown[0]}` is no text of a rule; there are {', '.join(keys)}")
            elif missing := [key for key in ("name", "pattern", "to") if not texts.get(key)]:
                self.report(item.line, f"a rule of `rewrite` has no `{missing[0]}`")
            elif (mode := texts.get("mode", "default")) not in MODES:
                self.report(given["mode"].line, f"`rewrite.mode: {mode}` is none of {', '.join(MODES)}")
            else:
                rule = Rewrite(texts["name"], texts["pattern"], texts["to"], texts.get("if", ""), mode, item.line)
                op.rewrites += (rule,)

    def _types(self, op: Op) -> None:
        tensors = [a.name for a in op.schema.args if a.is_tensor or a.is_tensor_list]
        op.types = dict.fromkeys(tensors, "same")
        choices = (*NODE_TYPES, *ACCEPTS) if op.meaning in ("pointwise", "reduce") else TYPES
        for name, value in self.mapping("types"):
            if name.text not in tensors:
                self.report(name.line, f"`types` names `{name.text}`, which is no tensor argument")
            elif value.text not in choices:
                self.report(name.line, f"`types.{name.text}: {value.text}` is none of {', '.join(choices)}")
            elif value.text in ACCEPTS:
                op.accepts[name.text] = value.text
            else:
                op.types[name.text] = value.text

    def _forms(self, op: Op) -> None:
        value = self.record.get("forms")
        if value is None:
            return
        if not isinstance(value, List) or not all(isinstance(i, Text) for i in value.items):
            self.report(value.line, "`forms` is not a list")
            return
        op.forms = tuple(i.text for i in value.items)
        first = op.schema.args[0] if op.schema.args else None
        for item in value.items:
            if item.text not in FORMS:
                self.report(item.line, f"unknown form `{item.text}`; there are {', '.join(FORMS)}")
        if len(set(op.forms)) != len(op.forms):
            self.report(value.line, "a form appears twice")
        if "method" in op.forms and (
            first is None or first.name != "self" or first.type != "Tensor" or first.list or first.optional
        ):
            self.report(value.line, "a method's first argument is `Tensor self`")
        if "inplace" in op.forms and (
            first is None
            or first.type != "Tensor"
            or first.list
            or first.optional
            or op.schema.mutates
            or len(op.schema.returns) != 1
            or not op.schema.returns[0].is_tensor
            or op.meaning in ("view", "reduce")
        ):
            self.report(
                value.line, "an in-place form needs a first argument `Tensor` and one returned " "Tensor of its shape"
            )

    # ---- meaning ---------------------------------------------------------------------------------

    def _meaning(self, op: Op) -> None:
        schema = op.schema
        value = self.record.get(op.meaning)
        if value is None or value == Text("", value.line):  # its own name
            arguments = ", ".join(a.name for a in schema.args)
            text = f"{schema.name}({arguments})" if op.meaning == "pointwise" else schema.name
            value = Text(text, op.line)
        op.written = _written(value)
        if op.meaning in ("view", "composite", "primitive"):
            self._function(op, value)
            self._check_aliases(op, value.line)
            return
        self._check_body_schema(op, value.line)
        types = {name: NODE_TYPES[t] for name, t in op.types.items()}
        try:
            if op.meaning == "pointwise":
                texts = self._by_return(schema, value, "pointwise")
                op.body = build_pointwise(schema.full_name, texts, schema.args, types, op.names)
            else:
                op.body = self._reduce(op, value, types)
        except ExprError as error:
            self.report(value.line, f"{op.meaning}, {error}")

    def _function(self, op: Op, value: Value) -> None:
        """Reads the C++ function of a view, composite or primitive, or the formula of a composite."""
        if not isinstance(value, Text) or not value.text:
            self.report(value.line, f"`{op.meaning}` is not a text")
        elif _IDENTIFIER.fullmatch(value.text):
            op.function = value.text
        elif op.meaning != "composite":
            self.report(value.line, f"`{op.meaning}: {value.text}` is not a function's name")
        else:
            op.function = op.schema.struct_id
            try:
                op.formula = parse_formula(value.text, {a.name for a in op.schema.args}, ())
            except ExprError as error:
                self.report(value.line, f"composite, {error}")

    def _check_aliases(self, op: Op, line: int) -> None:
        schema = op.schema
        views = [bool(r.alias and not r.alias.write) for r in schema.returns]
        if op.meaning == "view" and not all(views):
            self.report(line, "a view returns aliases, such as `Tensor(a)`")
        if op.has_kernel and any(views):
            self.report(line, "a kernel's outputs are never views of its inputs")
        written = [a for a in schema.args if a.alias and a.alias.write]
        if any(a.list for a in written) and not (
            op.meaning == "composite"
            and op.kernel_optional
            and getattr(self.record.get("grad"), "text", "") == "none"
            and not schema.returns
            and all(a.list for a in written)
        ):
            self.report(
                line,
                "an op that writes lists is a composite with `kernel: optional`, `grad: none` and the returns `()`",
            )

    def _check_body_schema(self, op: Op, line: int) -> None:
        schema = op.schema
        reduces = op.meaning == "reduce"
        allowed = _BODY_TYPES | ({"ScalarType?"} if reduces else set())
        wrong = [a for a in schema.args if a.type_text not in allowed and not (reduces and a.name == "dim")]
        if wrong:
            raise self.refuse(line, f"a {op.meaning} op cannot take `{wrong[0].type_text} {wrong[0].name}`")
        if not schema.tensor_args:
            raise self.refuse(line, f"a {op.meaning} op takes a tensor")
        if not schema.returns or not all(r.is_tensor and r.alias is None for r in schema.returns):
            raise self.refuse(line, f"a {op.meaning} op returns new tensors")
        if schema.mutates:
            raise self.refuse(line, f"a {op.meaning} op writes to no argument")

    def _by_return(self, schema: Schema, value: Value, key: str) -> dict[str, str]:
        """Returns the expression of each output field; several outputs are a mapping by return name."""
        if isinstance(value, Text) and value.text:
            if len(schema.returns) != 1:
                raise self.refuse(value.line, f"`{key}` of several outputs is a mapping by return name")
            return {"out": value.text}
        if not isinstance(value, Map) or not all(isinstance(v, Text) for _, v in value.items):
            raise self.refuse(value.line, f"`{key}` is not an expression")
        texts = {k.text: v.text for k, v in value.items}
        names = [r.name for r in schema.returns]
        if sorted(texts) != sorted(names):
            raise self.refuse(
                value.line,
                f"`{key}` gives {', '.join(texts)}; the op returns "
                + (", ".join(names) if all(names) else "values without names"),
            )
        return {f: texts[n] for f, n in zip(schema.output_fields, names)}

    def _reduce(self, op: Op, value: Value, types: dict[str, str]) -> Body:
        schema = op.schema
        if not isinstance(value, Map):
            raise self.refuse(value.line, "`reduce` is a mapping: {state: ..., step: ..., final: ...}")
        record: dict[str, str | dict[str, str]] = {}
        for key, item in value.items:
            if key.text not in ("state", "step", "final"):
                raise self.refuse(key.line, f"unknown key `reduce.{key.text}`")
            if key.text == "final":
                record["final"] = self._by_return(schema, item, "final")
            elif isinstance(item, Text) and item.text:
                record[key.text] = item.text
            else:
                raise self.refuse(key.line, f"`reduce.{key.text}` is not an expression")
        if "state" not in record:
            raise self.refuse(value.line, "`reduce` has no `state`")
        return build_reduce(schema.full_name, record, schema.args, types, list(schema.output_fields), op.names)

    def _complex(self, op: Op) -> None:
        """Reads `complex`: whether a body takes complex operands, or the function that computes on their parts."""
        value = self.text("complex")
        writes = any(a.alias and a.alias.write for a in op.schema.args)
        if op.meaning == "composite" and op.kernel_optional and not writes:
            op.parts, op.parts_generated = op.schema.struct_id, True
        if value is None:
            return
        if value.text == "true":
            if op.meaning != "pointwise":
                self.report(value.line, f"`complex: true` on a {op.meaning}; it belongs to pointwise bodies")
            elif op.body is not None and (lacks := without_meaning(op.body.variants)):
                self.report(value.line, f"`complex: true`, but {', '.join(lacks)} of complex numbers has no meaning")
            op.takes_complex = True
        elif value.text == "kernel":
            if op.meaning != "composite" or not op.kernel_optional:
                self.report(value.line, "`complex: kernel` belongs to composites with kernels")
            op.parts, op.parts_generated = "", False
        elif not _IDENTIFIER.fullmatch(value.text):
            self.report(value.line, f"`complex: {value.text}` is not a function's name")
        else:
            op.parts, op.parts_generated = value.text, False

    # ---- results, cost, gradient -----------------------------------------------------------------

    def _fixed_types(self, op: Op) -> dict[str, str]:
        """Reads the record's `result`, by result name."""
        value = self.record.get("result")
        if value is None:
            return {}
        names = [r.name or "result" for r in op.schema.returns if r.type == "Tensor"]
        if isinstance(value, Text):
            items = [(Text(name, value.line), value) for name in names]
        else:
            items = self.mapping("result")
        fixed = {}
        for name, dtype in items:
            if name.text not in names:
                self.report(name.line, f"`result` names `{name.text}`, which is not returned")
            elif dtype.text not in (*SCALAR_TYPES, "real"):
                self.report(name.line, f"`result`: {dtype.text} is not a ScalarType, nor `real`")
            else:
                fixed[name.text] = dtype.text
        return fixed

    def _results(self, op: Op) -> None:
        fixed = self._fixed_types(op)
        schema = op.schema
        fields = iter(schema.output_fields)
        written = {a.alias.name for a in schema.args if a.alias and a.alias.write}
        results = []
        for i, ret in enumerate(schema.returns):
            is_output = ret.type == "Tensor" and not (ret.alias and ret.alias.name in written)
            name = ret.name or ("result" if len(schema.returns) == 1 else f"result{i}")
            dtype = fixed.get(ret.name or "result", "")
            real = dtype == "real"
            if real and op.meaning not in ("pointwise", "reduce"):
                self.report(op.line, "`result: real` belongs to pointwise and reduce bodies")
            dtype = "" if real else dtype
            output_field = next(fields) if is_output else ""
            if op.body is not None:
                found = next(o.type for o in op.body.variants[0].outputs if o.name == output_field)
                dtype = dtype or {BOOL: "bool", INDEX: "int64"}.get(found, "")
            differentiable = ret.type == "Tensor" and (not dtype or "float" in dtype or "complex" in dtype)
            results.append(Result(output_field, name, dtype, differentiable, real))
        op.results = tuple(results)
        if op.promote == "compare" and op.body and any(r.dtype != "bool" for r in results):
            self.report(op.line, "`promote: compare`, but the result is not bool")

    def _cost(self, op: Op) -> None:
        names = {a.name for a in op.schema.args} | {r.name for r in op.results}
        for name, value in self.mapping("cost"):
            if name.text not in ("flops", "bytes"):
                self.report(name.line, f"unknown key `cost.{name.text}`; there are flops and bytes")
                continue
            try:
                op.cost[name.text] = self._cost_formula(value.text, names, op)
            except ExprError as error:
                self.report(name.line, f"cost.{name.text}: {error}")

    @staticmethod
    def _cost_formula(text: str, names: set[str], op: Op) -> Formula:
        tensors = formula_names(op)[1]
        formula = parse_formula(text, names, tensors, FUNCTIONS)
        for use in formula.uses:
            if use.value:
                raise ExprError(f"reads the elements of `{use.name}`; a cost sees shapes only")
        cost_tree(formula.tree)
        return formula

    def _entries(self, op: Op, value: Map) -> list[Entry]:
        """Reads the formulas of a `grad` mapping, which must cover each tensor argument once."""
        needed = differentiable_args(op.schema, op.types)
        entries, seen = [], set()
        for key, text in self.mapping("grad"):
            args = tuple(a.strip() for a in key.text.split(","))
            for arg in args:
                if arg not in op.types:
                    self.report(key.line, f"`grad` names `{arg}`, which is no tensor argument")
                elif arg in seen:
                    self.report(key.line, f"`grad` names `{arg}` twice")
                elif arg not in needed and text.text != "none":
                    self.report(key.line, f"`{arg}` is {op.types[arg]} and has no gradient")
                seen.add(arg)
            entries.append(Entry(args, text.text, key.line))
        for arg in needed:
            if arg not in seen:
                self.report(value.line, f"`grad` has neither a formula nor `none` for `{arg}`")
        return entries

    def _grad(self, op: Op) -> Op | None:
        value = self.record.get("grad")
        assert value is not None
        line = value.line
        tensors = tuple(op.types)
        if isinstance(value, Text) and value.text == "none":
            op.grad = Gradient("none", no_grad=tensors)
            return None
        if not any(r.differentiable for r in op.results):
            raise self.refuse(line, "no result is differentiable: say `grad: none`")
        clash = set(gradient_names(op.results).values()) & {a.name for a in op.schema.args}
        if clash and not (op.meaning == "composite" and isinstance(value, Text)):
            raise self.refuse(line, f"the argument `{min(clash)}` has the name of the incoming gradient")
        if isinstance(value, Map):
            before = len(self.errors.messages)
            entries = self._entries(op, value)
            if len(self.errors.messages) > before:
                return None
            if op.meaning == "pointwise":
                op.grad, derived = derive_formulas(op, entries, self.report)
                return derived
            op.grad = formulas(op, entries, self.report)
            return None
        if not isinstance(value, Text) or value.text != "auto":
            raise self.refuse(line, "`grad` is auto, none, or formulas by argument")
        if op.meaning == "pointwise":
            op.grad, derived = derive_auto(op)
            return derived
        if op.meaning != "composite":
            raise self.refuse(line, f"`grad: auto` on a {op.meaning}; write formulas")
        if op.kernel_optional:
            raise self.refuse(line, "a composite with a kernel is one node, so it states its gradient")
        op.grad = Gradient("decompose")
        return None


def _elementary(function: NodeOp, line: int) -> Map:
    """Returns the record of a row of elementary.yaml."""
    keys = {
        "op": f"{function.name}(Tensor self) -> Tensor",
        "doc": function.doc,
        "promote": "float" if function.takes == "float" else "same",
        "grad": "auto",
    }
    items: list[tuple[Text, Value]] = [(Text(key, line), Text(text, line)) for key, text in keys.items()]
    items.append((Text("forms", line), List((Text("method", line), Text("inplace", line)), line)))
    if function.name in (HOLOMORPHIC | OTHERS) - {"sign"}:
        items.append((Text("complex", line), Text("true", line)))
    if function.result:
        items.append((Text("result", line), Text(function.result, line)))
    if function.takes not in ("float", "same"):
        items.append((Text("types", line), Map(((Text("self", line), Text(function.takes, line)),), line)))
    return Map(tuple(items), line)


def _rows(table: Map, rows: Map) -> Iterator[Map]:
    """Returns the records of a table. A row is a schema with its own keys, or with its `doc` alone; it has the
    table's other keys, too."""
    for schema, row in rows.items:
        own = row.items if isinstance(row, Map) else ((Text("doc", row.line), row),)
        given = {key.text for key, _ in own} | {"ops"}
        shared = (item for item in table.items if item[0].text not in given)
        yield Map(((Text("op", schema.line), schema), *own, *shared), schema.line)


def _expanded(document: List) -> Iterator[Value]:
    """Returns the records of a file: those of tables row by row, and of `functions: elementary` those of
    elementary.yaml."""
    for record in document.items:
        rows = record.get("ops") if isinstance(record, Map) else None
        if isinstance(rows, Map):
            yield from _rows(record, rows)
        elif isinstance(record, Map) and getattr(record.get("functions"), "text", "") == "elementary":
            yield from (_elementary(function, record.line) for function in ELEMENTARY)
        else:
            yield record


def _add_aliases(ops: list[Op], aliases: list[tuple[Text, Value]], errors: _Errors) -> None:
    """Adds the rows `alias: name` of `aliases` tables to all overloads of the name."""
    names = {op.schema.name for op in ops}
    for alias, name in aliases:
        if not isinstance(name, Text) or name.text not in names:
            errors.add(alias.line, alias.text, "an alias of no operator")
        elif alias.text in names or not _IDENTIFIER.fullmatch(alias.text):
            errors.add(alias.line, alias.text, "the alias is no name, or the name of another operator")
        else:
            names.add(alias.text)
            for op in ops:
                if op.schema.name == name.text and not op.derived:
                    op.aliases += (alias.text,)


def _check_rewrites(ops: list[Op], errors: _Errors) -> None:
    known, lines = table(ops), {}
    for op in ops:
        for rule in op.rewrites:
            if rule.name in lines:
                errors.add(rule.line, op.full_name, f"the rule `{rule.name}` is already at line {lines[rule.name]}")
            lines[rule.name] = rule.line
            check(rule, op, known, lambda line, message, op=op: errors.add(line, op.full_name, message))


def _check_families(ops: list[Op], errors: _Errors) -> None:
    """Refuses records without a family, and overloads of one name in two."""
    first: dict[str, Op] = {}
    for op in ops:
        if op.derived:
            continue
        other = first.setdefault(op.schema.name, op)
        if not op.family:
            errors.add(op.line, op.full_name, "the record is before the first section, `# ==== FAMILY: title ====`")
        elif other.family != op.family:
            errors.add(op.line, op.full_name, f"`{other.full_name}` is in the section {other.family}: move one")


def load_text(text: str, path: str = "ops.yaml") -> list[Op]:
    """Returns the ops of a file's text. Raises RecordErrors with every error."""
    errors = _Errors(path)
    for line in malformed(text):
        errors.add(line, "?", "a section is `# ==== FAMILY: title ====`, where FAMILY is a word of lowercase letters")
    families = sections(text)
    for section, other in itertools.combinations(families, 2):
        if section.family == other.family:
            errors.add(other.line, section.family, f"the section of this family is at line {section.line}")
    try:
        document = read(text)
    except YamlError as error:
        raise RecordErrors([f"{path}:{error.line}: [?] {error}"]) from None
    if document is None:
        return []
    if not isinstance(document, List):
        raise RecordErrors([f"{path}:{document.line}: [?] a file is a list of records"])
    ops: list[Op] = []
    names: dict[str, Op] = {}
    aliases: list[tuple[Text, Value]] = []
    for record in _expanded(document):
        if not isinstance(record, Map):
            errors.add(record.line, "?", "a record is a mapping")
            continue
        if isinstance(table := record.get("aliases"), Map) and len(record.items) == 1:
            aliases += table.items
            continue
        found = _Record(record, errors).read()
        for op in found or ():
            if op is None:
                continue
            other = names.setdefault(op.schema.struct_id, op)
            if other is not op:
                what = "the derived gradient op" if op.derived else "the op"
                errors.add(
                    op.line,
                    op.parent or op.full_name,
                    f"{what} `{op.full_name}` is already defined at line {other.line}",
                )
            op.family = family_of(families, op.line)
            ops.append(op)
    if families:
        _check_families(ops, errors)
    _add_aliases(ops, aliases, errors)
    _check_rewrites(ops, errors)
    if errors.messages:
        raise RecordErrors(errors.texts())
    return ops


def load(path: str | Path) -> list[Op]:
    """Returns the ops of a file, each followed by the gradient op that derives from it."""
    return load_text(Path(path).read_text(), str(path))


def main(argv: list[str]) -> int:
    """`python3 -m codegen.records ops.yaml` checks a file and prints its number of records."""
    for path in argv or ["ops.yaml"]:
        try:
            ops = load(path)
        except RecordErrors as error:
            print(error, file=sys.stderr)
            return 1
        derived = sum(op.derived for op in ops)
        print(f"{path}: {len(ops) - derived} records, {derived} derived gradient ops")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
