import math
import unittest

from codegen.schema import REQUIRED, Alias, Schema, SchemaError, fnv1a, parse_schema


class ParseTest(unittest.TestCase):
    def test_names_and_order(self):
        s = parse_schema("add.Tensor(Tensor self, Operand other, *, Scalar alpha=1) -> Tensor")
        self.assertEqual((s.name, s.overload, s.full_name), ("add", "Tensor", "add.Tensor"))
        self.assertEqual((s.name, s.struct_id), ("add", "add_Tensor"))
        self.assertEqual([a.name for a in s.args], ["self", "other", "alpha"])
        self.assertEqual([a.kw_only for a in s.args], [False, False, True])
        self.assertEqual([a.default for a in s.args], [REQUIRED, REQUIRED, 1])
        self.assertEqual(s.output_fields, ("out",))
        self.assertEqual([a.name for a in s.tensor_args], ["self", "other"])

    def test_every_type_round_trips(self):
        text = (
            "f(Tensor a, Tensor? b, Tensor[] c, Tensor?[] d, Operand e, Operand? g, Scalar h, "
            "Scalar? i, int j, int? k, int[] l, int[2] m, int[]? n, float o, float? p, "
            "float[] q, float[]? r, bool s, bool? t, str u, str? v, ScalarType w, ScalarType? x, "
            "Device y, Device? z, Generator? aa) -> ()"
        )
        s = parse_schema(text)
        self.assertEqual(str(s), text)
        self.assertEqual(s.returns, ())
        self.assertEqual(s.arg("m").size, 2)
        self.assertTrue(s.arg("d").element_optional and not s.arg("d").optional)
        self.assertTrue(s.arg("n").optional and s.arg("n").list)
        self.assertEqual([a.name for a in s.args if a.is_number], list("hijkop"))

    def test_defaults(self):
        s = parse_schema(
            "f(Tensor x, Scalar a=1, Scalar b=2.5, Scalar? c=None, float d=1, float e=-inf, "
            "int f=-3, int[2] g=1, int[2] h=[1, 2], int[] i=[], bool j=True, str k='a, b)', "
            "ScalarType l=float32, Scalar m=False, float n=1e-5, Device o='cpu') -> Tensor"
        )
        values = {a.name: a.default for a in s.args if a.has_default}
        self.assertEqual(
            values,
            dict(
                a=1,
                b=2.5,
                c=None,
                d=1.0,
                e=-math.inf,
                f=-3,
                g=(1, 1),
                h=(1, 2),
                i=(),
                j=True,
                k="a, b)",
                l="float32",
                m=False,
                n=1e-5,
                o="cpu",
            ),
        )
        self.assertIsInstance(values["a"], int)
        self.assertIsInstance(values["d"], float)
        self.assertEqual(parse_schema(str(s)), s)

    def test_returns_and_aliases(self):
        s = parse_schema("max.dim(Tensor self, int dim) -> (Tensor values, Tensor indices)")
        self.assertEqual(s.output_fields, ("values", "indices"))
        s = parse_schema("f(Tensor self) -> (Tensor, Tensor)")
        self.assertEqual(s.output_fields, ("out0", "out1"))
        s = parse_schema("split(Tensor(a) self, int n) -> Tensor(a)[]")
        self.assertEqual((s.returns[0].alias, s.returns[0].list), (Alias("a"), True))
        self.assertFalse(s.mutates)
        s = parse_schema("fill_(Tensor(a!) self, Scalar v) -> Tensor(a!)")
        self.assertEqual((s.output_fields, s.mutates), ((), True))
        self.assertEqual(parse_schema("item(Tensor self) -> Scalar").output_fields, ())

    def test_hash_sees_names_and_types_but_not_defaults(self):
        def h(text: str) -> int:
            return parse_schema(text).hash

        base = h("f(Tensor self, int a=1) -> Tensor")
        self.assertEqual(base, h("f(Tensor self, int a=2) -> Tensor"))
        self.assertEqual(base, h("f(Tensor self, int a) -> Tensor"))
        others = [
            "g(Tensor self, int a) -> Tensor",
            "f.o(Tensor self, int a) -> Tensor",
            "f(Tensor self, int b) -> Tensor",
            "f(Tensor self, int? a) -> Tensor",
            "f(Tensor self, *, int a) -> Tensor",
            "f(Tensor self, int a) -> Tensor[]",
            "f(Tensor(a) self, int a) -> Tensor",
        ]
        self.assertEqual(len({base, *map(h, others)}), len(others) + 1)

    def test_fnv1a(self):  # published test vectors
        self.assertEqual(fnv1a(""), 0xCBF29CE484222325)
        self.assertEqual(fnv1a("a"), 0xAF63DC4C8601EC8C)
        self.assertEqual(fnv1a("foobar"), 0x85944171F73967E8)


class RefusalTest(unittest.TestCase):
    def refused(self, text: str, message: str):
        with self.assertRaises(SchemaError) as caught:
            parse_schema(text)
        self.assertIn(message, str(caught.exception))

    def test_refusals(self):
        self.refused("add", "a schema is `name")
        self.refused("f(Tensor a", "a schema is `name")
        self.refused("f(Tensor a)", "a schema is `name")
        self.refused("f(Tensr a) -> Tensor", "unknown type `Tensr`")
        self.refused("f(Operand[] a) -> Tensor", "unknown type")
        self.refused("f(Generator g) -> Tensor", "unknown type")
        self.refused("f(Tensor a) -> str", "unknown type")
        self.refused("f(Tensor) -> Tensor", "cannot read argument")
        self.refused("f(int(a) x) -> Tensor", "only tensors have an alias")
        self.refused("f(Tensor a, *, int b, *, int c) -> Tensor", "twice")
        self.refused("f(Tensor a, int a) -> Tensor", "used twice")
        self.refused("f(Tensor a) -> (Tensor a, Tensor b)", "used twice")
        self.refused("f(Tensor new) -> Tensor", "keyword of C++")
        self.refused("f(Tensor header) -> Tensor", "reserved")
        self.refused("f(Tensor out) -> Tensor", "reserved")
        self.refused("f(Tensor a=None, int b) -> Tensor", "does not fit")
        self.refused("f(Tensor? a=None, int b) -> Tensor", "follows one that does")
        self.refused("f(int a=1.5) -> Tensor", "does not fit")
        self.refused("f(int a='x') -> Tensor", "does not fit")
        self.refused("f(int[2] a=[1]) -> Tensor", "does not fit")
        self.refused("f(int[] a=1) -> Tensor", "does not fit")
        self.refused("f(bool a=1) -> Tensor", "does not fit")
        self.refused("f(ScalarType a=float33) -> Tensor", "does not fit")
        self.refused("f(Tensor a) -> Tensor(b)", "names no argument")
        self.refused("f(Tensor a) -> (Tensor x, Tensor)", "all returns or none")
        self.refused("add_out(Tensor a) -> Tensor", "derived")
        self.refused("f(Tensor a) -> (Tensor) x", "cannot read type")

    def test_dataclass_is_plain(self):
        self.assertEqual(Schema("f", "", (), ()).full_name, "f")


if __name__ == "__main__":
    unittest.main()
