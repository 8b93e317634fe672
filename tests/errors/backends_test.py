"""Tests messages about backends that are missing or damaged."""

import random
import struct
import unittest

from programs import BACKENDS, ProgramTest, cases, flipped

OPENMP = next(BACKENDS.glob("*openmp*.so")).read_bytes()


class BackendTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.damaged = self.folder / "damaged.so"

    @cases(
        empty=(b"", "not a shared library"),
        cut_short=(OPENMP[:10000], "truncated"),
        cut_short_at_the_end=(OPENMP[:-40], "truncated"),
        of_zeros=(b"\0" * 5000, "not a shared library"),
        for_32_bits=(OPENMP[:4] + b"\1" + OPENMP[5:], "64-bit"),
    )
    def a_file(self, content, says):
        self.damaged.write_bytes(content)
        env = {"MYTORCH_BACKEND_PATH": str(self.damaged)}
        self.mnist_refused(env=env, says=[self.damaged, says])
        self.refused("mytorch", "check", "--only", "neg", env=env, says=[self.damaged, says])

    def test_a_missing_file_is_named(self):
        env = {"MYTORCH_BACKEND_PATH": str(self.folder / "nowhere")}
        self.mnist_refused(env=env, says=["nowhere", "No such file"])

    def test_a_folder_without_backends(self):
        self.mnist_refused(env={"MYTORCH_BACKEND_PATH": str(self.data)}, says=["none is loaded"])

    def test_a_damaged_file_beside_an_intact_one_is_a_warning(self):
        self.damaged.write_bytes(b"")
        env = {"MYTORCH_BACKEND_PATH": f"{self.damaged}:{BACKENDS}"}
        self.assertIn(f"warning: [backend] {self.damaged}", self.mnist(env=env).stderr)
        done = self.run_program("mytorch", "info", env=env)
        self.assertEqual(done.returncode, 0)
        self.assertIn("not loaded:", done.stdout)

    def test_no_flipped_bit_of_the_linkers_tables_crashes_the_process(self):
        rng = random.Random(3)
        good = next(BACKENDS.glob("*reference*.so")).read_bytes()
        segments, count = (struct.unpack_from("<Q", good, 32)[0], struct.unpack_from("<H", good, 56)[0])
        dynamic = next(
            (offset, size)
            for kind, _, offset, _, _, size in (
                struct.unpack_from("<IIQQQQ", good, segments + 56 * i) for i in range(count)
            )
            if kind == 2
        )
        places = [(0, 64), (segments, 56 * count), dynamic]
        for _ in range(300):
            begin, size = rng.choice(places)
            bit = 8 * begin + rng.randrange(8 * size)
            self.damaged.write_bytes(flipped(good, bit))
            done = self.run_program("mytorch", "info", env={"MYTORCH_BACKEND_PATH": str(self.damaged)})
            with self.subTest(bit=bit):
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_an_unknown_name_is_refused(self):
        self.refused("mytorch", "check", "--backend", "nobody", says=["nobody", "mytorch info"])

    def test_an_unknown_preference_is_a_warning(self):
        done = self.run_program("mytorch", "info", env={"MYTORCH_PREFER": "nobody"})
        self.assertEqual(done.returncode, 0)
        self.assertIn("MYTORCH_PREFER names 'nobody'", done.stderr)


if __name__ == "__main__":
    unittest.main()
