"""Tests messages about damaged files of a data set."""

import gzip
import random
import unittest
import zlib

from programs import FILES, IMAGES, LABELS, TRAIN, ProgramTest, cases, flipped, idx, images, labels


class DataTest(ProgramTest):
    def test_good_data_trains(self):
        done = self.mnist("--save", self.network)
        self.assertIn("epoch 1/1 loss", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertGreater(self.network.stat().st_size, 4 * (784 * 32 + 32 + 320 + 10))

    def test_a_missing_folder_is_named(self):
        nowhere = self.folder / "nowhere"
        self.refused("mnist", "--data", nowhere, says=["nowhere", "does not exist"])
        self.refused("mnist", env={"MYTORCH_DATA_DIR": str(nowhere)}, says=["nowhere", "MYTORCH_DATA_DIR"])

    def test_a_file_is_no_folder(self):
        self.refused("mnist", "--data", self.data / IMAGES, says=[IMAGES, "directory"])

    def test_a_missing_file_is_named(self):
        self.refused("mnist", "--data", self.folder, says=["has no file", "t10k-images-idx3-ubyte"])
        (self.data / LABELS).unlink()
        self.mnist_refused(says=["has no file", LABELS, "dataset-fashion-mnist"])

    def test_a_folder_is_no_file(self):
        (self.data / LABELS).unlink()
        (self.data / LABELS).mkdir()
        self.mnist_refused(says=[LABELS, "not a regular file"])

    @cases(
        images=(IMAGES, FILES[IMAGES]),
        labels=(LABELS, FILES[LABELS]),
        zipped_images=(IMAGES, gzip.compress(FILES[IMAGES])),
        zipped_labels=(LABELS, gzip.compress(FILES[LABELS])),
    )
    def cut_short(self, name, content):
        for length in (0, 1, 3, 4, 7, 8, 12, len(content) // 2, len(content) - 1):
            (self.data / name).write_bytes(content[:length])
            with self.subTest(length=length):
                self.mnist_refused(says=[f"{self.data / name}", "cut short"])

    @cases(images=(IMAGES,), labels=(LABELS,))
    def too_long(self, name):
        whole = FILES[name]
        for content in (whole + b"\0", gzip.compress(whole + b"\0"), gzip.compress(whole) + gzip.compress(b"x")):
            (self.data / name).write_bytes(content)
            self.mnist_refused(says=[name, "goes on after"])
        (self.data / name).write_bytes(gzip.compress(whole) + b"rubbish")
        self.mnist_refused(says=[name, "not gzip"])

    @cases(images=(IMAGES, b"\xff" * 12), labels=(LABELS, b"\xff" * (len(FILES[LABELS]) - 4)))
    def impossible_sizes(self, name, rest):
        (self.data / name).write_bytes(FILES[name][:4] + rest)
        self.mnist_refused(says=[name])

    @cases(images=(IMAGES, 16), labels=(LABELS, 8))
    def every_flipped_bit_of_the_header_is_found(self, name, header):
        """The sizes must agree with each other, with the file and with the other file."""
        for bit in range(8 * header):
            (self.data / name).write_bytes(flipped(FILES[name], bit))
            with self.subTest(bit=bit):
                self.mnist_refused(says=[name])

    def test_flipped_bits_of_compressed_data_are_found(self):
        rng = random.Random(1)
        whole = gzip.compress(FILES[LABELS])
        for _ in range(60):
            bit = rng.randrange(8 * 10, 8 * len(whole))  # after the fields that do not affect the data
            content = flipped(whole, bit)
            (self.data / LABELS).write_bytes(content)
            try:
                if gzip.decompress(content) == FILES[LABELS]:
                    continue  # an unused bit of the last byte
            except (EOFError, OSError, zlib.error):
                pass
            with self.subTest(bit=bit):
                self.mnist_refused(says=LABELS)

    @cases(
        out_of_range=(idx(bytes([10] * TRAIN), TRAIN), [LABELS, "label 10"]),
        too_few=(labels(TRAIN - 1), [LABELS, IMAGES, "128 images", "127 labels"]),
        swapped_with_images=(FILES[IMAGES], [LABELS, "swapped"]),
    )
    def bad_labels(self, content, says):
        (self.data / LABELS).write_bytes(content)
        self.mnist_refused(says=says)

    @cases(for_training=("train",), for_testing=("t10k",))
    def no_examples(self, prefix):
        (self.data / f"{prefix}-images-idx3-ubyte").write_bytes(images(0))
        (self.data / f"{prefix}-labels-idx1-ubyte").write_bytes(labels(0))
        self.mnist_refused(says=["no images"])


if __name__ == "__main__":
    unittest.main()
