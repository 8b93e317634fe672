"""Tests messages of `--load` and `--save`, and that the file at the path of `--save` is unchanged after an error."""

import os
import random
import struct
import subprocess
import sys
import unittest
from pathlib import Path

from programs import BIN, IMAGES, ProgramTest, cases, flipped

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes


class LoadTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.mnist("--save", self.network)
        self.whole = self.network.read_bytes()
        self.header = 8 + struct.unpack("<Q", self.whole[:8])[0]

    def load_refused(self, content: bytes, says: str = "") -> None:
        self.network.write_bytes(content)
        self.mnist_refused("--load", self.network, says=[str(self.network), says])

    def test_a_saved_network_is_loaded(self):
        self.mnist("--load", self.network, "--save", self.network)

    @cases(missing=("nowhere",), a_folder=(".",), an_empty_device=("/dev/null",), an_endless_device=("/dev/zero",))
    def no_file(self, path):
        path = self.folder / path
        self.mnist_refused("--load", path, says=str(path))

    def test_a_truncated_file(self):
        for length in (0, 1, 7, 8, 9, self.header - 1, self.header, self.header + 1, len(self.whole) - 1):
            with self.subTest(length=length):
                self.load_refused(self.whole[:length])

    def test_bytes_after_the_end(self):
        self.load_refused(self.whole + b"\0", "1 bytes after")

    def test_an_oversized_header(self):
        self.load_refused(self.whole[:6] + b"\x01\0" + self.whole[8:], "header has")

    def test_flipped_bits_of_the_header_are_found(self):
        rng = random.Random(2)
        refused = 0
        for _ in range(150):
            bit = rng.randrange(8 * self.header)
            self.network.write_bytes(flipped(self.whole, bit))
            done = self.run_program("mnist", "--data", self.data, "--epochs", 1, "--load", self.network)
            with self.subTest(bit=bit, stderr=done.stderr):
                # The accepted files differ only in a blank or in a letter of the metadata's own keys.
                self.assertIn(done.returncode, (0, 1))
                if done.returncode == 1:
                    refused += 1
                    self.assertTrue(done.stderr.startswith("mnist: ["))
        self.assertGreater(refused, 120)

    def test_a_network_of_another_kind(self):
        self.mnist_refused("--model", "cnn", "--load", self.network, says=["has the network mlp", "--model mlp"])

    def test_a_network_of_another_kind_by_its_metadata(self):
        self.load_refused(self.whole.replace(b'"model":"mlp"', b'"model":"cnn"'), "has the network cnn")

    def test_a_network_of_another_kind_without_metadata(self):
        self.network.write_bytes(self.whole.replace(b'"model":"mlp"', b'"other":"mlp"'))
        self.mnist_refused("--model", "cnn", "--load", self.network, says=[str(self.network)])


class SaveTest(ProgramTest):
    def refused_unchanged(self, path: Path, says: str | list[str], **more: object) -> None:
        before = path.read_bytes() if os.path.isfile(path) else None
        listing = sorted(os.listdir(path.parent)) if path.parent == self.folder else None
        self.mnist_refused("--save", path, says=says, **more)
        if before is not None:
            self.assertEqual(path.read_bytes(), before)
        if listing is not None:
            self.assertEqual(sorted(os.listdir(path.parent)), listing)

    @cases(
        in_a_missing_folder=("nowhere/network", ["--save", "no directory"]),
        on_a_folder=("", ["--save", "not a regular file"]),
        on_a_device=("/dev/full", ["--save", "not a regular file"]),
        below_a_file=(f"data/{IMAGES}/network", ["--save", "no directory"]),
        in_proc=("/proc/network.safetensors", ["/proc/network.safetensors"]),
        with_a_long_name=("n" * 300, ["nnn"]),
    )
    def no_place(self, path, says):
        self.refused_unchanged(self.folder / path, says)

    def test_a_dangling_link(self):
        dangling = self.folder / "link"
        dangling.symlink_to(self.folder / "nothing")
        self.refused_unchanged(dangling, ["--save", "dangling"])

    def test_the_path_is_tried_before_training(self):
        done = self.run_program("mnist", "--data", self.data, "--save", "/proc/network.safetensors")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("epoch", done.stdout)

    @cases(no_byte=(0,), the_first_page=(4096,), the_first_half=(50000,))
    def full_disk_after(self, size):
        self.mnist("--save", self.network)
        self.refused_unchanged(self.network, ["File too large", "are unchanged"], file_size=size)

    def test_a_link_remains_and_its_file_is_written(self):
        link = self.folder / "link"
        link.symlink_to(self.network)
        self.network.write_bytes(b"")
        self.mnist("--save", link)
        self.assertTrue(link.is_symlink())
        self.assertGreater(self.network.stat().st_size, 1000)
        self.refused_unchanged(self.network, ["are unchanged"], file_size=100)

    def test_a_killed_training_leaves_a_whole_file(self):
        self.mnist("--save", self.network)
        size = self.network.stat().st_size
        process = processes.start(
            [str(BIN / "mnist"), "--data", str(self.data), "--epochs", "100000", "--save", str(self.network)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(20):
            process.stdout.readline()
        process.kill()
        process.communicate()
        self.assertEqual(self.network.stat().st_size, size)
        self.mnist("--load", self.network)


if __name__ == "__main__":
    unittest.main()
