import unittest

from codegen.formula import (
    Attribute,
    Binary,
    Call,
    Compare,
    Conditional,
    Constant,
    FormulaError,
    Name,
    Number,
    Save,
    Sequence,
    Slice,
    Subscript,
    Text,
    Unary,
    merge_saves,
    parse_formula,
)

NAMES = ("self", "mat2", "bias", "dim", "grad", "grads", "result", "wanted")
TENSORS = ("self", "mat2", "bias", "result")


def tree(text: str):
    return parse_formula(text, NAMES, TENSORS).tree


def uses(text: str) -> dict[str, tuple[bool, set[str]]]:
    return {s.name: (s.value, set(s.meta)) for s in parse_formula(text, NAMES, TENSORS).uses}


class FormulaTest(unittest.TestCase):
    def test_trees(self):
        self.assertEqual(tree("bmm(grad, mat2.mT)"), Call("bmm", (Name("grad"), Attribute(Name("mat2"), "mT"))))
        self.assertEqual(tree("f(grad, dim=-1)"), Call("f", (Name("grad"),), (("dim", Number(-1)),)))
        self.assertEqual(tree("grad.sum(dim)"), Call("sum", (Name("dim"),), (), Name("grad")))
        self.assertEqual(tree("grads[0]"), Subscript(Name("grads"), Number(0)))
        self.assertEqual(
            tree("self.shape[1:]"), Subscript(Attribute(Name("self"), "shape"), Slice(Number(1), None, None))
        )
        self.assertEqual(
            tree("(grad, [1, True])"), Sequence("tuple", (Name("grad"), Sequence("list", (Number(1), Constant(True)))))
        )
        self.assertEqual(tree("-grad * 'sum'"), Binary("*", Unary("-", Name("grad")), Text("sum")))
        self.assertEqual(
            tree("grad if bias is None else grad @ self"),
            Conditional(
                Compare("is", Name("bias"), Constant(None)), Name("grad"), Binary("@", Name("grad"), Name("self"))
            ),
        )

    def test_what_is_saved(self):
        self.assertEqual(uses("bmm(grad, mat2.mT)"), {"mat2": (True, set())})
        self.assertEqual(uses("expand(grad, self.shape)"), {"self": (False, {"shape"})})
        self.assertEqual(
            uses("sum_to(grad, self.shape[0], self.dtype, numel(self), self.ndim)"),
            {"self": (False, {"shape", "dtype", "numel", "ndim"})},
        )
        self.assertEqual(uses("f(self, self.shape)"), {"self": (True, {"shape"})})
        self.assertEqual(
            uses("f(grad, bias is not None, shapes(mat2))"), {"bias": (False, {"defined"}), "mat2": (False, {"shape"})}
        )
        self.assertEqual(uses("self.mT.shape"), {"self": (True, set())})
        self.assertEqual(uses("transpose(grad, dim)"), {})

    def test_names_and_calls(self):
        f = parse_formula("f(g(grad), dim=dim).h()", NAMES, TENSORS)
        self.assertEqual((f.names, f.calls), ({"grad", "dim"}, {"f", "g", "h"}))

    def test_merge(self):
        merged = merge_saves(
            [(Save("a", False, frozenset({"shape"})),), (Save("a", True), Save("b", False, frozenset({"dtype"})))]
        )
        self.assertEqual(merged, (Save("a", True, frozenset({"shape"})), Save("b", False, frozenset({"dtype"}))))

    def test_refusals(self):
        for text, message in {
            "f(": "not an expression",
            "f(other)": "names `other`",
            "self.weight": "unknown attribute `.weight`",
            "[x for x in grads]": "not part of the formula language",
            "lambda: grad": "not part of the formula language",
            "1 < dim < 2": "not part of the formula language",
            "f(*grads)": "not part of the formula language",
            "f(**grads)": "`**`",
            "f(grad)(grad)": "cannot call",
        }.items():
            with self.subTest(text), self.assertRaises(FormulaError) as caught:
                tree(text)
            self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
