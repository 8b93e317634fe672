"""Examples of operators are made of their samples."""

import unittest

from codegen.records import load_text
from docs.examples import statements

RECORDS = """\
- op: blend(Tensor self, Tensor mask, Tensor[] parts, *, float weight=0.5, int[] dims=[], Generator? generator=None) -> Tensor
  doc: Something.
  primitive: blend
  types: {mask: bool}
  grad: none
"""


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        self.op = load_text(RECORDS)[0]

    def of(self, *cases):
        return statements(self.op, [{"op": "blend", **case} for case in cases])

    def test_tensors_become_variables_and_the_rest_literals(self):
        found = self.of(
            {
                "args": {
                    "self": {"shape": [2, 3], "low": 1, "high": 3},
                    "mask": {"shape": [3]},
                    "parts": [{"values": [[1, 2], [3, 4]], "dtype": "int64"}, {"shape": [4], "unique": True}],
                    "dims": [0, 1],
                    "generator": {"seed": 3},
                }
            }
        )
        self.assertEqual(
            found,
            [
                "const Tensor self = mytorch::rand({2, 3}) * 2 + 1;",
                "const Tensor mask = mytorch::rand({3}) > 0.5;",
                "const Tensor parts0 = mytorch::tensor({1, 2, 3, 4}, mytorch::kInt64).reshape({2, 2});",
                "const Tensor parts1 = mytorch::randperm(4, mytorch::kFloat32);",
                "const Tensor result = mytorch::blend(self, mask, {parts0, parts1}, 0.5, {0, 1});",
            ],
        )

    def test_failing_and_odd_samples_are_left_out(self):
        plain = {"args": {"self": {"shape": [2]}, "mask": {"shape": [2]}, "parts": []}}
        odd = {"args": {**plain["args"], "self": {"shape": [2], "special": "huge"}}}
        empty = {"args": {**plain["args"], "self": {"shape": [0]}}}
        self.assertIsNone(self.of({**plain, "error": "no"}, odd, empty))
        self.assertEqual(len(self.of(odd, {"args": {**plain["args"], "self": {"shape": []}}}, plain)), 3)


if __name__ == "__main__":
    unittest.main()
