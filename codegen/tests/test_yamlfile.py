import unittest

from codegen.yamlfile import List, Text, YamlError, read


def plain(value):
    """Returns the tree without lines."""
    if isinstance(value, Text):
        return value.text
    if isinstance(value, List):
        return [plain(v) for v in value.items]
    return {k.text: plain(v) for k, v in value.items}


class YamlTest(unittest.TestCase):
    def one(self, text: str):
        return plain(read("- op: f\n" + text).items[0])

    def test_flow_mappings_quote_what_yaml_would_split(self):
        found = self.one("  grad: {self: 'bmm(grad, mat2.mT)', mat2: grad * self}\n  types: {}\n")
        self.assertEqual(found["grad"], {"self": "bmm(grad, mat2.mT)", "mat2": "grad * self"})
        self.assertEqual(found["types"], {})

    def test_a_list_as_key_is_joined(self):
        found = self.one("  grad: {[self, mat2]: 'f(a, b)'}\n")
        self.assertEqual(found["grad"], {"self, mat2": "f(a, b)"})

    def test_block_style_and_lists(self):
        found = self.one("  grad:\n    self: f(a, b)\n  forms: [method, inplace]\n  doc: Some {text}.\n")
        self.assertEqual(found["grad"], {"self": "f(a, b)"})
        self.assertEqual(found["forms"], ["method", "inplace"])
        self.assertEqual(found["doc"], "Some {text}.")

    def test_keys_know_their_lines(self):
        text = "\n# c\n- op: f\n  reduce: {state: sum,\n           final: 'f(a, b)'}\n  grad: none\n"
        record = read(text).items[0]
        self.assertEqual([k.line for k, _ in record.items], [3, 4, 6])
        self.assertEqual(record.get("reduce").items[1][0].line, 5)

    def test_refusals(self):
        for text, line, message in (
            ("- op: f\n  grad: {self: f(a, b)[0]}\n", 2, "not YAML"),
            ("- op: f\n  op: g\n", 2, "appears twice"),
            ("- op: f\n  doc: a: b\n", 2, "not YAML"),
        ):
            with self.subTest(text), self.assertRaises(YamlError) as caught:
                read(text)
            self.assertEqual(caught.exception.line, line)
            self.assertIn(message, str(caught.exception))
        self.assertIsNone(read("# nothing\n"))


if __name__ == "__main__":
    unittest.main()
