import unittest

from codegen.yamlfile import List, Text, YamlError, quote_expressions, read


def plain(value):
    """Without lines."""
    if isinstance(value, Text):
        return value.text
    if isinstance(value, List):
        return [plain(v) for v in value.items]
    return {k.text: plain(v) for k, v in value.items}


class YamlTest(unittest.TestCase):
    def one(self, text: str):
        return plain(read("- op: f\n" + text).items[0])

    def test_expressions_in_braces(self):
        found = self.one("  grad: {self: bmm(grad, mat2.mT), mat2: f('a, }', x[0, 1], \"q\")}\n")
        self.assertEqual(found["grad"], {"self": "bmm(grad, mat2.mT)", "mat2": "f('a, }', x[0, 1], \"q\")"})
        found = self.one("  cost: {flops: 2 * numel(result) * self.shape[2]}\n")
        self.assertEqual(found["cost"], {"flops": "2 * numel(result) * self.shape[2]"})
        found = self.one(
            "  reduce: {state: welford, step: push(self),\n" "           final: {a: m2 / max(0, n), b: index}}  # why\n"
        )
        self.assertEqual(
            found["reduce"], {"state": "welford", "step": "push(self)", "final": {"a": "m2 / max(0, n)", "b": "index"}}
        )

    def test_keys_and_quotes(self):
        found = self.one("  grad: {[self, mat2]: f(a, b), 'x, y': \"g(c, d)\"}\n  types: {}\n")
        self.assertEqual(found["grad"], {"self, mat2": "f(a, b)", "x, y": "g(c, d)"})
        self.assertEqual(found["types"], {})
        self.assertEqual(self.one("  grad: {self: 'a' if b else 'c'}\n")["grad"], {"self": "'a' if b else 'c'"})

    def test_block_style_and_lists(self):
        found = self.one("  grad:\n    self: f(a, b)\n  forms: [method, inplace]\n  doc: Some {text}.\n")
        self.assertEqual(found["grad"], {"self": "f(a, b)"})
        self.assertEqual(found["forms"], ["method", "inplace"])
        self.assertEqual(found["doc"], "Some {text}.")

    def test_lines_stay(self):
        text = "\n# c\n- op: f\n  reduce: {state: sum,\n           final: f(a, b)}\n  grad: none\n"
        record = read(text).items[0]
        self.assertEqual([k.line for k, _ in record.items], [3, 4, 6])
        self.assertEqual(record.get("reduce").items[1][0].line, 5)
        self.assertEqual(quote_expressions(text).count("\n"), text.count("\n"))

    def test_refusals(self):
        for text, line, message in (
            ("- op: f\n  grad: {self: f(a}\n", 2, "unbalanced"),
            ("- op: f\n  op: g\n", 2, "appears twice"),
            ("- op: f\n  doc: a: b\n", 2, "not YAML"),
            ("- op: f\n  grad: {self: 'a}\n", 2, "unbalanced"),
        ):
            with self.subTest(text), self.assertRaises(YamlError) as caught:
                read(text)
            self.assertEqual(caught.exception.line, line)
            self.assertIn(message, str(caught.exception))
        self.assertIsNone(read("# nothing\n"))


if __name__ == "__main__":
    unittest.main()
