import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from codegen.lock import LockError, check_and_update, parse_lock, struct_fields
from codegen.records import load_text
from codegen.schema import parse_schema

INCLUDE = Path(__file__).resolve().parents[2] / "abi" / "include"
RECORD = "- op: {}\n  doc: d\n  primitive: p\n  grad: none\n"


def ops(*schemas: str):
    return load_text("".join(RECORD.format(s) for s in schemas))


class LockTest(unittest.TestCase):
    BASE = "f.a(Tensor self, int n, *, Scalar s=1) -> Tensor"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ops.lock"

    def update(self, *schemas: str, mode: str = "write", since: str = "1.0"):
        return check_and_update(ops(*schemas), self.path, mode, since)

    def refused(self, message: str, *schemas: str, mode: str = "write"):
        before = self.path.read_text()
        with self.assertRaises(LockError) as caught:
            self.update(*schemas, mode=mode)
        self.assertIn(message, str(caught.exception))
        self.assertEqual(self.path.read_text(), before)

    def test_new_file(self):
        lock = self.update("g(Tensor x) -> (Tensor a, Tensor b)", self.BASE)
        self.assertEqual(
            [(f.name, f.c_type, f.since) for f in lock.fields("f.a")],
            [
                ("self", "const mt_tensor*", "1.0"),
                ("n", "int64_t", "1.0"),
                ("s", "mt_scalar", "1.0"),
                ("out", "const mt_tensor*", "1.0"),
            ],
        )
        self.assertEqual(lock.hashes("f.a")[0].hash, parse_schema(self.BASE).hash)
        text = self.path.read_text()
        self.assertLess(text.index("op f.a"), text.index("op g"))
        self.assertEqual(parse_lock(text).text(), text)
        self.assertEqual(self.update("g(Tensor x) -> (Tensor a, Tensor b)", self.BASE, mode="check"), lock)

    def test_append(self):
        self.update(self.BASE)
        lock = self.update("f.a(Tensor self, bool? b=None, int n=0, *, Scalar s=1) -> Tensor", since="1.1")
        self.assertEqual([f.name for f in lock.fields("f.a")], ["self", "n", "s", "out", "b"])
        self.assertEqual(lock.fields("f.a")[4].since, "1.1")
        self.assertEqual([(h.num_fields, h.since) for h in lock.hashes("f.a")], [(5, "1.1"), (4, "1.0")])
        self.assertEqual(lock.hashes("f.a")[1].hash, parse_schema(self.BASE).hash)
        self.assertEqual(lock.layout("f.a")[3].offset, 48)  # its old offset

    def test_order_and_defaults_are_free(self):
        self.update(self.BASE)
        lock = self.update("f.a(int n, Tensor self, *, Scalar s=2) -> Tensor")
        self.assertEqual([f.name for f in lock.fields("f.a")], ["self", "n", "s", "out"])

    def test_views_and_composites_are_not_locked(self):
        text = "- op: v(Tensor(a) self) -> Tensor(a)\n  doc: d\n  view: v\n  grad: none\n"
        self.assertEqual(check_and_update(load_text(text), self.path, True, "1.0").ops, {})

    def test_refusals(self):
        self.update(self.BASE)
        self.refused("[f.a] field `n` was removed or renamed", "f.a(Tensor self, int m=0, *, Scalar s=1) -> Tensor")
        self.refused(
            "[f.a] field `n` changed from int64_t to double", "f.a(Tensor self, float n, *, Scalar s=1) -> Tensor"
        )
        self.refused("[f.a] field `out` was removed", "f.a(Tensor self, int n, *, Scalar s=1) -> (Tensor x, Tensor y)")
        self.refused("[f.a] the op was removed or renamed (fields `self`, `n`", "g(Tensor x) -> Tensor")
        self.refused(
            "[f.a] the new argument `k` has no default", "f.a(Tensor self, int n, int k, *, Scalar s=1) -> Tensor"
        )
        self.refused("not up to date", self.BASE, "g(Tensor x) -> Tensor", mode="check")

    def test_bad_files(self):
        for text, message in (
            ("  field a int64_t since 1.0\n", "ops.lock:1: cannot read"),
            ("op a\nop a\n", "appears twice"),
            ("op a\n  field x int since 1.0\n", "unknown"),
            ("op a\n  fields x\n", "cannot read"),
        ):
            with self.subTest(text), self.assertRaises(LockError) as caught:
                parse_lock(text)
            self.assertIn(message, str(caught.exception))

    def test_version_comes_from_the_header(self):
        folder = self.path.parent / "include" / "mytorch"
        folder.mkdir(parents=True)
        (folder / "abi.h").write_text("#define MT_ABI_MAJOR 3u\n#define MT_ABI_MINOR 14u\n")
        lock = check_and_update(ops(self.BASE), self.path, True)
        self.assertEqual(lock.fields("f.a")[0].since, "3.14")

    ALL = (
        "all(Tensor a, bool b, ScalarType c, ScalarType? d, Device e, str? f, Tensor[] g, "
        "Tensor?[] h, Scalar? i, int? j, float k, float? l, int[2] m, float[]? n, "
        "ScalarType o, Generator? p) -> (Tensor x, Tensor[] y)"
    )

    def test_layout_is_the_compilers(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            self.skipTest("no C compiler")
        lock = self.update(self.ALL)
        members = "".join(f"  {f.c_type} {f.name};\n" for f in lock.fields("all"))
        checks = "".join(
            f'_Static_assert(offsetof(struct args, {f.name}) == {f.offset}, "{f.name}");\n'
            f'_Static_assert(sizeof(((struct args*)0)->{f.name}) == {f.size}, "{f.name}");\n'
            for f in lock.layout("all")
        )
        size = lock.struct_size("all")
        source = (
            f"#include <mytorch/abi.h>\nstruct args {{\n  mt_args_header header;\n"
            f"{members}}};\n{checks}"
            f'_Static_assert(sizeof(struct args) == {size}, "struct");\n'
        )
        done = subprocess.run(
            [compiler, "-std=c11", "-fsyntax-only", f"-I{INCLUDE}", "-xc", "-"],
            input=source,
            text=True,
            capture_output=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_written_arguments_have_no_second_field(self):
        self.assertEqual(
            struct_fields(parse_schema("f_(Tensor(a!) self, Tensor x) -> Tensor(a!)")),
            [("self", "const mt_tensor*"), ("x", "const mt_tensor*")],
        )


if __name__ == "__main__":
    unittest.main()
