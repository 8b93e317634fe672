import tempfile
import unittest
from pathlib import Path

from codegen.formula import Save
from codegen.program import evaluate
from codegen.records import Op, RecordErrors, load, load_text

OPS = """\
- op: add.Tensor(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor
  doc: Adds `other`, scaled by `alpha`, to `self`.
  forms: [method, inplace]
  pointwise: self + alpha * other
  grad: auto

- op: exp(Tensor self) -> Tensor
  doc: e to the power of each element.
  promote: float
  pointwise: exp(self)
  grad: auto
  tolerance: {float32: 1e-6}

- op: where.self(Tensor condition, Operand self, Operand other) -> Tensor
  doc: Chooses.
  types: {condition: bool}
  pointwise: where(condition, self, other)
  grad: auto

- op: floor(Tensor self) -> Tensor
  doc: Rounds down.
  pointwise: floor(self)
  grad: auto

- op: lt(Tensor self, Operand other) -> Tensor
  doc: Compares.
  promote: compare
  pointwise: self < other
  grad: none

- op: hardtanh(Tensor self, Scalar low=-1, Scalar high=1) -> Tensor
  doc: Clips.
  pointwise: clamp(self, low, high)
  grad: {self: grad if low < self < high else 0}

- op: gelu(Tensor self, *, str approximate='none') -> Tensor
  doc: Gelu.
  pointwise: >
    self * sigmoid(1.702 * self) if approximate == 'fast' else
    0.5 * self * (1 + erf(self / sqrt(2))) if approximate == 'none' else error('unknown')
  grad: auto

- op: var(Tensor self, int[]? dim=None, *, Scalar correction=1, bool keepdim=False) -> Tensor
  doc: Variance.
  reduce: {state: welford, final: "m2 / max(0, n - correction)"}
  grad: {self: "var_backward(grad, self, dim, correction, keepdim)"}

- op: max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)
  doc: Largest values and where they are.
  reduce: {state: argmax, final: {values: value, indices: index}}
  grad: {self: "value_selecting_backward(grad, dim, indices, self.shape, keepdim)"}

- op: transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)
  doc: Swaps two dimensions.
  view: transpose
  grad: {self: "transpose(grad, dim0, dim1)"}

- op: softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor
  doc: Softmax.
  composite: softmax
  kernel: optional
  layout: follow(self)
  grad: {self: "softmax_backward(grad, result, dim)"}

- op: mse(Tensor self, Tensor target) -> Tensor
  doc: Mean of squared differences.
  composite: mse
  grad: auto

- op: bmm(Tensor self, Tensor mat2) -> Tensor
  doc: Batched matrix product.
  primitive: bmm
  cost: {flops: "2 * numel(result) * self.shape[2]"}
  grad: {self: "bmm(grad, mat2.mT)", mat2: "bmm(self.mT, grad)"}

- op: convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride) -> Tensor
  doc: Convolution.
  primitive: convolution
  grad: {[input, weight]: "convolution_backward(grad, input, weight, stride, wanted)",
         bias: sum_channels(grad)}

- op: gather(Tensor self, int dim, Tensor index) -> Tensor
  doc: Gathers.
  primitive: gather
  types: {index: index}
  grad: {self: "gather_backward(grad, self.shape, dim, index)"}

- op: nonzero(Tensor self) -> Tensor
  doc: Indices of what is not zero.
  primitive: nonzero
  result: int64
  dynamic: true
  grad: none

- op: modf(Tensor self) -> (Tensor whole, Tensor fraction)
  doc: Both parts.
  pointwise: {whole: trunc(self), fraction: self - trunc(self)}
  grad: auto
"""


def by_name(text: str = OPS) -> dict[str, Op]:
    return {op.full_name: op for op in load_text(text)}


class LoadTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ops = by_name()

    def test_derived_ops_follow_their_parents(self):
        names = list(self.ops)
        self.assertEqual(names[:4], ["add.Tensor", "add_grad.Tensor", "exp", "exp_grad"])
        self.assertEqual(
            [n for n, op in self.ops.items() if op.derived],
            ["add_grad.Tensor", "exp_grad", "where_grad.self", "hardtanh_grad", "gelu_grad", "modf_grad"],
        )

    def test_classes_of_types(self):
        text = """\
- op: f(Tensor self, Operand other, Tensor mask) -> Tensor
  doc: Some.
  types: {self: number, other: integral, mask: bool}
  pointwise: self + other if mask else self
  grad: none
"""
        f = by_name(text)["f"]
        self.assertEqual(f.types, {"self": "same", "other": "same", "mask": "bool"})
        self.assertEqual(f.accepts, {"self": "number", "other": "integral"})
        self.assertEqual([f.takes(c) for c in ("bool", "integer", "float")], [True] * 3)
        only = by_name(text.replace("self: number", "self: float").replace("integral", "float"))["f"]
        self.assertEqual([only.takes(c) for c in ("bool", "integer", "float")], [False, False, True])

    def test_plain_attributes(self):
        add = self.ops["add.Tensor"]
        self.assertEqual(
            (add.line, add.meaning, add.forms, add.promote), (1, "pointwise", ("method", "inplace"), "same")
        )
        self.assertEqual(add.types, {"self": "same", "other": "same"})
        self.assertEqual(self.ops["exp"].tolerance, {"float32": 1e-6})
        softmax = self.ops["softmax.int"]
        self.assertEqual(
            (softmax.layout_of, softmax.has_kernel, softmax.promote, softmax.function),
            (("self",), True, "same", "softmax"),
        )
        self.assertFalse(self.ops["mse"].has_kernel)
        self.assertFalse(self.ops["transpose.int"].has_kernel)
        nonzero = self.ops["nonzero"]
        self.assertEqual((nonzero.dynamic, nonzero.family), (True, ""))

    def test_results(self):
        def results(name: str):
            return [(r.field, r.name, r.dtype, r.differentiable) for r in self.ops[name].results]

        self.assertEqual(results("add.Tensor"), [("out", "result", "", True)])
        self.assertEqual(results("lt"), [("out", "result", "bool", False)])
        self.assertEqual(results("nonzero"), [("out", "result", "int64", False)])
        self.assertEqual(results("max.dim"), [("values", "values", "", True), ("indices", "indices", "int64", False)])

    def test_derived_add(self):
        grad, op = self.ops["add.Tensor"].grad, self.ops["add_grad.Tensor"]
        self.assertEqual(
            (grad.kind, grad.derived, grad.saves, grad.numbers), ("derived", "add_grad.Tensor", (), ("alpha",))
        )
        self.assertEqual(
            [(o.arg, o.field, o.identity) for o in grad.outputs],
            [("self", "grad_self", True), ("other", "grad_other", False)],
        )
        self.assertEqual(
            str(op.schema), "add_grad.Tensor(Tensor grad, Scalar alpha) -> (Tensor grad_self, Tensor grad_other)"
        )
        self.assertEqual((op.parent, op.grad.kind, op.meaning), ("add.Tensor", "decompose", "pointwise"))
        found = evaluate(op.body.variants[0], {"grad": 2.0, "alpha": 3})
        self.assertEqual(found, {"grad_self": 2.0, "grad_other": 6.0})

    def test_derived_schemas(self):
        self.assertEqual(str(self.ops["exp_grad"].schema), "exp_grad(Tensor grad, Tensor result) -> Tensor")
        self.assertEqual(self.ops["exp"].grad.saves, (Save("result", True),))
        where = self.ops["where_grad.self"]
        self.assertEqual(where.types, {"grad": "same", "condition": "bool"})
        self.assertEqual(self.ops["where.self"].grad.no_grad, ("condition",))
        self.assertEqual(
            str(self.ops["hardtanh_grad"].schema),
            "hardtanh_grad(Tensor grad, Tensor self, Scalar low, Scalar high) -> Tensor",
        )
        self.assertEqual(
            str(self.ops["gelu_grad"].schema), "gelu_grad(Tensor grad, Tensor self, str approximate) -> Tensor"
        )
        self.assertEqual(str(self.ops["modf_grad"].schema), "modf_grad(Tensor grad_fraction) -> Tensor")

    def test_derived_variants(self):
        gelu, grad = self.ops["gelu"], self.ops["gelu_grad"]
        self.assertEqual(gelu.body.selector, grad.body.selector)
        self.assertEqual(len(grad.body.variants), 2)
        self.assertEqual({p.name for p in grad.body.variants}, {"gelu_grad"})

    def test_formula_of_a_pointwise_op(self):
        program = self.ops["hardtanh_grad"].body.variants[0]
        for x, expected in ((0.0, 5.0), (1.0, 0.0), (-3.0, 0.0)):
            found = evaluate(program, {"grad": 5.0, "self": x, "low": -1, "high": 1})
            self.assertEqual(found, {"out": expected})

    def test_zero_gradients_need_no_op(self):
        grad = self.ops["floor"].grad
        self.assertEqual((grad.kind, grad.derived, grad.zero), ("derived", "", ("self",)))

    def test_formulas(self):
        bmm = self.ops["bmm"].grad
        self.assertEqual([f.args for f in bmm.formulas], [("self",), ("mat2",)])
        self.assertEqual(bmm.formulas[0].saves, (Save("mat2", True),))
        maximum = self.ops["max.dim"].grad
        self.assertEqual(set(maximum.saves), {Save("indices", True), Save("self", False, frozenset({"shape"}))})
        self.assertEqual(maximum.numbers, ("dim", "keepdim"))
        self.assertEqual(self.ops["softmax.int"].grad.saves, (Save("result", True),))
        conv = self.ops["convolution"].grad
        self.assertEqual([f.args for f in conv.formulas], [("input", "weight"), ("bias",)])
        self.assertEqual(self.ops["gather"].grad.no_grad, ("index",))
        self.assertEqual(self.ops["mse"].grad.kind, "decompose")
        self.assertEqual(self.ops["lt"].grad.kind, "none")
        self.assertEqual(self.ops["bmm"].cost["flops"].names, {"result", "self"})

    def test_without_a_meaning_it_is_the_function_of_its_name(self):
        record = "- op: {}(Tensor self) -> Tensor\n  doc: d\n  grad: auto\n"
        cosine, flip = load_text(record.format("cos"))[0], load_text(record.format("flip"))[0]
        self.assertEqual((cosine.meaning, cosine.written), ("pointwise", "cos(self)"))
        self.assertEqual((flip.meaning, flip.function), ("composite", "flip"))

    def test_rows_of_a_table_share_its_keys_and_may_replace_them(self):
        table = by_name(
            """\
- forms: [method]
  promote: compare
  grad: none
  ops:
    eq(Tensor self, Operand other) -> Tensor: Whether both are equal.
    above(Tensor self, Operand other) -> Tensor:
      doc: Whether self is larger.
      forms: []
      pointwise: self > other
"""
        )
        self.assertEqual([op.line for op in table.values()], [5, 6])
        self.assertEqual([op.doc for op in table.values()], ["Whether both are equal.", "Whether self is larger."])
        self.assertEqual([op.forms for op in table.values()], [("method",), ()])
        self.assertEqual([op.promote for op in table.values()], ["compare"] * 2)
        self.assertEqual([op.written for op in table.values()], ["eq(self, other)", "self > other"])

    def test_a_view_without_a_function_is_that_of_its_name(self):
        self.assertEqual(
            by_name("- view:\n  grad: none\n  ops: {t.a(Tensor(a) self) -> Tensor(a): d}\n")["t.a"].function, "t"
        )

    def test_let_names_subexpressions_of_all_bodies(self):
        short = by_name(
            """\
- op: f(Tensor self, Tensor other) -> (Tensor a, Tensor b)
  doc: d
  let: {sum: self + other, square: sum * sum}
  pointwise: {a: sum, b: square - 1}
  grad: {self: grad_a + 2 * grad_b * sum, other: none}
"""
        )
        long = by_name(
            """\
- op: f(Tensor self, Tensor other) -> (Tensor a, Tensor b)
  doc: d
  pointwise: {a: self + other, b: (self + other) * (self + other) - 1}
  grad: {self: grad_a + 2 * grad_b * (self + other), other: none}
"""
        )
        for name in ("f", "f_grad"):
            self.assertEqual(short[name].body.variants, long[name].body.variants)

    def test_absent_stands_for_an_operand_that_is_not_given(self):
        short = by_name(
            """\
- op: f(Tensor self, Tensor? weight) -> Tensor
  doc: d
  absent: {weight: 1}
  pointwise: exp(self) * weight
  grad: {self: grad * result, weight: grad * exp(self)}
"""
        )
        long = by_name(
            """\
- op: f(Tensor self, Tensor? weight) -> Tensor
  doc: d
  pointwise: exp(self) if weight is None else exp(self) * weight
  grad: {self: grad * result, weight: 0 if weight is None else grad * exp(self)}
"""
        )
        for name in ("f", "f_grad"):
            self.assertEqual(short[name].body, long[name].body)

    def test_a_composite_may_be_a_formula(self):
        op = by_name("- op: f.x(Tensor self) -> Tensor\n  doc: d\n  composite: exp(-self)\n  grad: auto\n")["f.x"]
        self.assertEqual((op.function, op.formula.calls, op.written), ("f_x", {"exp"}, "exp(-self)"))

    def test_aliases_name_all_overloads_of_a_function(self):
        two = """
- aliases: {absolute: mag}
- grad: none
  ops:
    mag(Tensor self) -> Tensor: {doc: d, pointwise: abs(self)}
    mag.more(Tensor self, Tensor other) -> Tensor: {doc: d, pointwise: abs(self - other)}
"""
        self.assertEqual([op.aliases for op in load_text(two)], [("absolute",), ("absolute",)])
        for table, message in (("{absolute: magnitude}", "no operator"), ("{mag: mag}", "another operator")):
            with self.assertRaisesRegex(RecordErrors, message):
                load_text(two.replace("{absolute: mag}", table))

    def test_load_reads_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ops.yaml"
            path.write_text(OPS)
            self.assertEqual([o.full_name for o in load(path)], list(self.ops))
            path.write_text("")
            self.assertEqual(load(path), [])

    def test_hash_order_is_stable(self):
        again = by_name()
        for name, op in self.ops.items():
            if op.body:
                self.assertEqual([p.hash for p in op.body.variants], [p.hash for p in again[name].body.variants])


class AutocastTest(unittest.TestCase):
    def policy(self, record: str) -> str:
        return load_text(record)[0].autocast

    def test_products_lower_by_default(self):
        record = "- op: mm(Tensor self, Tensor mat2) -> Tensor\n  doc: Multiplies.\n  primitive: mm\n  grad: none\n"
        self.assertEqual(self.policy(record), "none")
        self.assertEqual(self.policy(record + "  cost: {flops: 2 * numel(result)}\n"), "lower")

    def test_a_record_may_state_its_policy(self):
        record = "- op: exp(Tensor self) -> Tensor\n  doc: Exp.\n  promote: float\n  grad: auto\n"
        self.assertEqual(self.policy(record), "float32")
        self.assertEqual(self.policy(record + "  autocast: none\n"), "none")

    def test_gradients_have_no_policy(self):
        ops = {op.full_name: op for op in load_text(OPS)}
        self.assertEqual(ops["exp_grad"].autocast, "none")

    def test_refuses_other_policies(self):
        with self.assertRaisesRegex(RecordErrors, "`autocast: half` is none of lower, float32, widest, none"):
            self.policy("- op: exp(Tensor self) -> Tensor\n  doc: Exp.\n  grad: auto\n  autocast: half\n")


class RefusalTest(unittest.TestCase):
    HEAD = "- op: f(Tensor self) -> Tensor\n"

    def refused(self, text: str, *messages: str):
        with self.assertRaises(RecordErrors) as caught:
            load_text(text)
        for message in messages:
            self.assertIn(message, str(caught.exception))
        return caught.exception.messages

    def record(self, keys: str, *messages: str, op: str = "f(Tensor self) -> Tensor", doc: str = "d"):
        """Expects a record to be rejected with exactly this error."""
        with self.subTest(keys, op=op):
            text = f"- op: {op}\n  doc: {doc}\n" + "".join(f"  {k}\n" for k in keys.split("\n"))
            self.assertEqual(len(self.refused(text, *messages)), len(messages))

    P = "pointwise: self\ngrad: auto"

    def test_every_error_is_reported_with_its_line(self):
        messages = self.refused(
            "- op: f(Tensor self) -> Tensor\n  pointwise: self +\n  grad: auto\n\n"
            "- op: g(Tensor self) -> Tensor\n  doc: d\n  pointwise: exp(other)\n"
            "  grad: none\n  colour: red\n"
        )
        self.assertEqual(
            messages,
            [
                "ops.yaml:1: [f] has no `doc`",
                "ops.yaml:2: [f] pointwise, column 7: not an expression: `self +`",
                "ops.yaml:7: [g] pointwise, column 5, at `other`: unknown name",
                "ops.yaml:9: [g] unknown key `colour`",
            ],
        )

    def test_records(self):
        self.refused("a: b\n", "ops.yaml:1: [?] a file is a list")
        self.refused("- x\n", "a record is a mapping")
        self.refused("- doc: d\n", "begins with `op: schema`")
        self.refused("- op: f(Tensor\n", "ops.yaml:1: [f] a schema is `name")
        self.assertIn(
            "column 8: not",
            self.refused(self.HEAD + "  doc: d\n  pointwise: |\n    self +\n" "    (2\n  grad: none\n", "`self + (2`")[
                0
            ],
        )
        self.refused("- op: f\n  doc: a: b\n", "ops.yaml:2: [?] not YAML")
        self.record("pointwise: self\nview: v\ngrad: auto", "pointwise and view; give exactly one")
        self.record("pointwise: self", "[f] has no gradient decision")
        self.record("primitive: p\ngrad: none", "the name `result` is reserved", op="f(Tensor result) -> Tensor")
        self.record(self.P + "\npromote: up", "`promote: up` is none of")
        self.record(self.P + "\nkernel: optional", "`kernel: optional` on a pointwise")
        self.record("composite: f\ngrad: auto\ncomplex: kernel", "belongs to composites with kernels")
        self.record("composite: f\nkernel: always\ngrad: auto", "`kernel: always` is none of")
        self.record(self.P + "\ndynamic: yes", "`dynamic: yes` is none of")
        primitive = "primitive: p\ngrad: none\n"
        self.record(primitive + "layout: follow(x)", "`x` names no tensor argument")
        self.record(primitive + "layout: follow(self, x)", "`x` names no tensor argument")
        self.record(self.P + "\nlayout: follow(self)", "is of primitives and of composites")
        self.record("composite: f\ngrad: none\nlayout: follow(self)", "is of primitives and of composites")
        self.record(primitive + "dynamic: true\nlayout: follow(self)", "is of primitives and of composites")
        self.record(self.P + "\nlayout: contiguous", "is not `follow(x, ...)`")
        self.record(self.P + "\ntolerance: {float31: 1}", "maps a ScalarType")
        self.record(self.P + "\ntolerance: {float32: low}", "maps a ScalarType")
        self.record(self.P + "\ntolerance: 3", "`tolerance` is not a mapping")
        self.record(self.P + "\nstability: forward", "`stability: forward` is none of backward")
        self.record(self.P + "\nnon_finite: no", "`non_finite: no` is none of spreads")
        self.record(self.P + "\npromote: [a]", "`promote` is not a text")
        self.record(self.P + "\ntypes: {other: bool}", "names `other`, which is no tensor")
        self.record("pointwise: number(self)\ngrad: none\ntypes: {self: any}", "is none of same, bool, index")
        self.record("composite: f\ngrad: none\ntypes: {self: float}", "is none of same, bool, index, any")
        self.record(self.P + "\nresult: float31", "is not a ScalarType")
        self.record(self.P + "\nresult: {x: int64}", "`x`, which is not returned")
        self.record(self.P + "\npromote: compare", "the result is not bool")

    def test_forms(self):
        self.record(self.P + "\nforms: method", "`forms` is not a list")
        self.record(self.P + "\nforms: [out]", "unknown form `out`")
        self.record(self.P + "\nforms: [method, method]", "appears twice")
        self.record(
            "pointwise: x\ngrad: auto\nforms: [method]", "first argument is `Tensor self`", op="f(Tensor x) -> Tensor"
        )
        self.record("reduce: {state: sum}\ngrad: none\nforms: [inplace]", "an in-place form needs")

    def test_meanings(self):
        self.record("view: a b\ngrad: none", "is not a function's name", op="f(Tensor(a) self) -> Tensor(a)")
        self.record("view: v\ngrad: none", "a view returns aliases")
        self.record("composite: c\ngrad: none", "writes lists", op="f(Tensor(a!)[] self) -> ()")
        self.record("composite: c\nkernel: optional\ngrad: none", "writes lists", op="f(Tensor(a!)[] self) -> Tensor")
        self.record("primitive: p\ngrad: none", "never views", op="f(Tensor(a) self) -> Tensor(a)")
        self.record("pointwise: self\ngrad: none", "cannot take `int[] x`", op="f(Tensor self, int[] x) -> Tensor")
        self.record("pointwise: x\ngrad: none", "takes a tensor", op="f(int x) -> Tensor")
        self.record("pointwise: self\ngrad: none", "returns new tensors", op="f(Tensor self) -> Tensor[]")
        self.record("pointwise: self\ngrad: none", "writes to no argument", op="f(Tensor(a!) self) -> Tensor")
        self.record(
            "pointwise: self\ngrad: none", "a mapping by return name", op="f(Tensor self) -> (Tensor a, Tensor b)"
        )
        self.record(
            "pointwise: {a: self}\ngrad: none",
            "gives a; the op returns a, b",
            op="f(Tensor self) -> (Tensor a, Tensor b)",
        )
        self.record("pointwise: [self]\ngrad: none", "is not an expression")
        self.record("reduce: sum\ngrad: none", "`reduce` is a mapping")
        self.record("reduce: {step: self}\ngrad: none", "has no `state`")
        self.record("reduce: {state: sum, stop: self}\ngrad: none", "unknown key `reduce.stop`")
        self.record("reduce: {state: median}\ngrad: none", "unknown state")

    def test_names(self):
        optional = "f(Tensor self, Tensor? w) -> Tensor"
        self.record(self.P + "\nlet: {self: 1}", "gives the argument `self` a second meaning")
        self.record(self.P + "\nlet: {x: 1 +}", "let of `x`, column 4: not an expression")
        self.record("composite: f\ngrad: auto\nlet: {x: 1}", "belong to pointwise and reduce bodies")
        self.record(self.P + "\nabsent: {self: 1}", "names `self`, which is no optional argument")
        self.record("pointwise: self * w\ngrad: auto\nabsent: {w: one}", "`absent.w: one` is not", op=optional)
        self.record("composite: exp(other)\ngrad: auto", "composite, names `other`")

    def test_cost(self):
        self.record(self.P + "\ncost: {time: 1}", "unknown key `cost.time`")
        self.record(self.P + "\ncost: {flops: other}", "names `other`")
        self.record(self.P + "\ncost: {flops: self * 2}", "reads the elements of `self`")

    def test_gradients(self):
        two = "f(Tensor self, Tensor other) -> Tensor"
        self.record("pointwise: self\ngrad: [auto]", "auto, none, or formulas")
        self.record("pointwise: self\ngrad: zero", "auto, none, or formulas")
        self.record("pointwise: self > 0\ngrad: auto", "no result is differentiable")
        self.record("reduce: {state: sum}\ngrad: auto", "`grad: auto` on a reduce")
        self.record("primitive: p\ngrad: auto", "`grad: auto` on a primitive")
        self.record("composite: p\nkernel: optional\ngrad: auto", "states its gradient")
        self.record("pointwise: grad\ngrad: auto", "name of the incoming gradient", op="f(Tensor grad) -> Tensor")
        self.record("primitive: p\ngrad: {self: grad}", "has neither a formula nor `none` for `other`", op=two)
        self.record("primitive: p\ngrad: {self: grad, x: grad}", "names `x`, which is no tensor argument")
        self.record("primitive: p\ngrad: {self: grad, [self, other]: f(grad)}", "names `self` twice", op=two)
        self.record("primitive: p\ntypes: {self: index}\ngrad: {self: grad}", "is index and has no gradient")
        self.record(
            "primitive: p\ngrad: {self: 'f(grad, weight)'}",
            "ops.yaml:4: [f] grad of `self`: names `weight`, which is neither an argument nor " "saved",
        )
        self.record("primitive: p\ngrad: {self: 'wanted[0]'}", "names `wanted`")
        self.record("primitive: p\ngrad: {self: 'f(grad, values)'}", "names `values`")
        self.record("primitive: p\ngrad: {[self, other]: '(grad, grad, grad)'}", "gives 3 values", op=two)
        self.record("primitive: p\ngrad: {self: f(grad)}", "names `grad`", op="f(Tensor self) -> (Tensor a, Tensor b)")
        self.record("pointwise: self\ngrad: {self: grad * oops}", "grad of `self`, column 8, at `oops`")
        self.record("pointwise: self + other\ngrad: {[self, other]: grad}", "one formula for each", op=two)
        self.record(
            "pointwise: self\ngrad: {self: }",
            "`grad.self` is not a text",
            "has neither a formula nor `none` for `self`",
        )

    def test_duplicates(self):
        record = self.HEAD + "  doc: d\n  pointwise: exp(self)\n  grad: auto\n"
        self.refused(
            record + record,
            "ops.yaml:5: [f] the op `f` is already defined at line 1",
            "ops.yaml:5: [f] the derived gradient op `f_grad` is already defined at line 1",
        )
        self.refused(
            "- op: f.a(Tensor self) -> Tensor\n  doc: d\n  primitive: f\n  grad: none\n"
            "- op: f_a(Tensor self) -> Tensor\n  doc: d\n  primitive: f\n  grad: none\n",
            "[f_a] the op `f_a` is already defined",
        )
        self.refused(
            "- op: exp(Tensor self) -> Tensor\n  doc: d\n  pointwise: exp(self)\n  grad: auto\n"
            "- op: exp_grad(Tensor self) -> Tensor\n  doc: d\n  primitive: f\n  grad: none\n",
            "[exp_grad] the op `exp_grad` is already defined at line 1",
        )


if __name__ == "__main__":
    unittest.main()
