import unittest

from codegen.formula import Save, merge_saves, parse_formula
from codegen.syntax import ExprError

NAMES = ("self", "mat2", "bias", "dim", "grad", "grads", "result", "wanted")
TENSORS = ("self", "mat2", "bias", "result")


def tree(text: str):
    return parse_formula(text, NAMES, TENSORS).tree


def uses(text: str) -> dict[str, tuple[bool, set[str]]]:
    return {s.name: (s.value, set(s.meta)) for s in parse_formula(text, NAMES, TENSORS).uses}


class FormulaTest(unittest.TestCase):
    def test_uses_are_elements_or_facts(self):
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
            with self.subTest(text), self.assertRaises(ExprError) as caught:
                tree(text)
            self.assertIn(message, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
