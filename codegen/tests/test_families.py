"""Records lie in the section of their family, and rooms have folders of these names."""

import re
import tempfile
import unittest
from pathlib import Path

from codegen.families import family_of, sections
from codegen.records import RecordErrors, load, load_text
from conformance.cases import SampleError, special

ROOT = Path(__file__).resolve().parents[2]
FIRST = "- op: f(Tensor self) -> Tensor\n  doc: d\n  pointwise: self\n  grad: auto\n"
SECOND = FIRST.replace("f(", "f.other(")
ONE = "# ==== one: the first ====\n\n"
TWO = "\n# ==== two: the second ===========\n\n"


class FamiliesTest(unittest.TestCase):
    def refused(self, text: str, *messages: str):
        with self.assertRaises(RecordErrors) as caught:
            load_text(text)
        self.assertEqual(len(caught.exception.messages), len(messages), caught.exception.messages)
        for message in messages:
            self.assertIn(message, str(caught.exception))

    def test_sections(self):
        found = sections(ONE + FIRST + TWO)
        self.assertEqual(
            [(s.family, s.title, s.line) for s in found], [("one", "the first", 1), ("two", "the second", 8)]
        )
        self.assertEqual([family_of(found, line) for line in (0, 1, 7, 8, 90)], ["", "one", "one", "two", "two"])

    def test_records_and_their_derived_gradients_have_the_family_of_their_section(self):
        ops = load_text(ONE + FIRST + TWO + FIRST.replace("f(", "g("))
        self.assertEqual(
            [(op.schema.name, op.family) for op in ops],
            [("f", "one"), ("f_grad", "one"), ("g", "two"), ("g_grad", "two")],
        )

    def test_a_record_before_the_first_section(self):
        self.refused(FIRST + TWO, "ops.yaml:1: [f] the record is before the first section")

    def test_heads_that_are_no_sections(self):
        for head in ("# ==== one ====", "# ==== One: first ====", "# === one: first ====", "#==== one: first ===="):
            with self.subTest(head):
                self.refused(f"{head}\n\n{FIRST}", "ops.yaml:1: [?] a section is `# ==== FAMILY: title ====`")

    def test_a_section_twice(self):
        self.refused(ONE + FIRST + ONE, "ops.yaml:7: [one] the section of this family is at line 1")

    def test_overloads_in_two_sections(self):
        self.refused(ONE + FIRST + TWO + SECOND, "ops.yaml:10: [f.other] `f` is in the section one: move one")

    def test_samples_in_the_file_of_another_family(self):
        ops = load_text(ONE + FIRST)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "one.yaml").write_text("- {op: f, args: {self: {shape: [2]}}}\n")
            self.assertEqual(len(special(ops, Path(folder))["f"]), 1)
            (Path(folder) / "one.yaml").rename(Path(folder) / "two.yaml")
            with self.assertRaisesRegex(SampleError, "two.yaml: case 1: samples of f belong in one.yaml"):
                special(ops, Path(folder))

    def test_the_list_in_the_documentation(self):
        page = (ROOT / "docs/architecture.md").read_text().split("## Families\n")[1].split("\n## ")[0]
        listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.M)
        expected = [(s.family, s.title.split(" (docs/")[0]) for s in sections((ROOT / "ops.yaml").read_text())]
        self.assertEqual(listed, expected)


# What several families share, and machinery without operators of its own.
SHARED = {
    "ops": set(),
    "backends/cpu-fftw": {"common"},
    "backends/cpu-lapack": {"common"},
    "backends/cpu-onednn": {"engine"},
    "backends/cpu-openmp": {"common", "simd", "gemm", "fused"},
    "backends/cuda": {"common", "runtime", "memory", "device", "programs", "fused", "ahead"},
    "backends/reference": set(),
}


class FoldersTest(unittest.TestCase):
    """The rooms of operators have folders of families, which hold their functions."""

    @classmethod
    def setUpClass(cls):
        cls.ops = load(ROOT / "ops.yaml")
        cls.families = {section.family for section in sections((ROOT / "ops.yaml").read_text())}

    def test_folders_are_families(self):
        for room, shared in SHARED.items():
            with self.subTest(room):
                folders = {p.parent.name for p in (ROOT / room).glob("*/*.[ch]*")}
                self.assertEqual(folders - self.families - shared, set())
        self.assertLessEqual({p.stem for p in (ROOT / "conformance/samples").glob("*.yaml")}, self.families)
        self.assertLessEqual({p.stem for p in (ROOT / "conformance/goldens").glob("*.json")}, self.families)

    def test_functions_lie_in_the_folder_of_their_family(self):
        defined: dict[str, set[str]] = {}  # by namespace and name: the folders
        for path in (ROOT / "ops").glob("*/*.cpp"):
            text = re.sub(r"namespace \{.*?\n\}  // namespace\n", "", path.read_text(), flags=re.S)
            for name in re.findall(r"^[A-Za-z_][\w:<>, ]*[ &](\w+)\((?:[^;{]|\{\})*\{", text, re.M):
                defined.setdefault(name, set()).add(path.parent.name)
        checked = 0
        for op in self.ops:
            if op.derived or op.meaning not in ("composite", "view") or op.function not in defined:
                continue  # an expression in the record, or a function of several families in ops/
            checked += 1
            with self.subTest(op.full_name):
                self.assertIn(op.family, defined[op.function])
        self.assertGreater(checked, 350)


if __name__ == "__main__":
    unittest.main()
