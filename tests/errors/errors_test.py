"""Tests errors of the programs: a clear message on stderr, exit status 1, and an unchanged file at the path of
`--save`.

    python3 errors_test.py BIN [unittest arguments]
"""

import gzip
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

BIN = Path(sys.argv.pop(1)).resolve()
BACKENDS = BIN.parent / "lib/mytorch/backends"
# The only backend that training needs here; loading others takes longer than the rest of a run.
ONE_BACKEND = {"MYTORCH_BACKEND_PATH": str(BACKENDS / "mytorch_cpu_openmp.so")}
TRAIN, TEST = 128, 64


def idx(array: bytes, *sizes: int) -> bytes:
    return struct.pack(f">I{len(sizes)}I", 0x800 + len(sizes), *sizes) + array


def images(n: int) -> bytes:
    return idx(random.Random(n).randbytes(n * 784), n, 28, 28)


def labels(n: int) -> bytes:
    return idx(bytes(i % 10 for i in range(n)), n)


FILES = {
    "train-images-idx3-ubyte": images(TRAIN),
    "train-labels-idx1-ubyte": labels(TRAIN),
    "t10k-images-idx3-ubyte": images(TEST),
    "t10k-labels-idx1-ubyte": labels(TEST),
}
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mytorch-errors-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.folder / "data"
        self.data.mkdir()
        for name, content in FILES.items():
            (self.data / name).write_bytes(content)
        self.network = self.folder / "network.safetensors"

    def run_program(
        self,
        program: str,
        *args: object,
        env: dict | None = None,
        file_size: int | None = None,
        stdout: object = subprocess.PIPE,
    ) -> subprocess.CompletedProcess:
        def limit():
            if file_size is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

        return subprocess.run(
            [str(BIN / program), *map(str, args)],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=60,
            preexec_fn=limit,
            cwd=self.folder,
            env={
                **os.environ,
                "MYTORCH_NUM_THREADS": "1",
                **(ONE_BACKEND if program == "mnist" else {}),
                **(env or {}),
            },
        )

    def refused(self, program: str, *args: object, says: str | list[str], **more: object) -> str:
        done = self.run_program(program, *args, **more)
        what = f"{program} {' '.join(map(str, args))}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        self.assertEqual(done.returncode, 1, what)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(str(part), done.stderr, what)
        # The message comes from the program, not from the C++ runtime.
        for noise in ("terminate called", "what():", "runtime error", "basic_string", "std::"):
            self.assertNotIn(noise, done.stderr, what)
        self.assertLess(len(done.stderr), 4000, what)
        return done.stderr

    def mnist(self, *args: object, **more: object) -> subprocess.CompletedProcess:
        done = self.run_program("mnist", "--data", self.data, "--epochs", 1, *args, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def mnist_refused(self, *args: object, says: str | list[str], **more: object) -> str:
        return self.refused("mnist", "--data", self.data, "--epochs", 1, *args, says=says, **more)


class DataTest(ProgramTest):
    def test_good_data_trains(self):
        done = self.mnist("--save", self.network)
        self.assertIn("epoch 1/1 loss", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertGreater(self.network.stat().st_size, 4 * (784 * 32 + 32 + 320 + 10))

    def test_missing(self):
        self.refused("mnist", "--data", self.folder / "nowhere", says=["nowhere", "does not exist"])
        self.refused("mnist", "--data", self.folder, says=["has no file", "t10k-images-idx3-ubyte"])
        self.refused("mnist", "--data", self.data / IMAGES, says=[IMAGES, "directory"])
        (self.data / LABELS).unlink()
        self.mnist_refused(says=["has no file", LABELS, "dataset-fashion-mnist"])
        (self.data / LABELS).mkdir()
        self.mnist_refused(says=[LABELS, "not a regular file"])
        self.refused(
            "mnist", env={"MYTORCH_DATA_DIR": str(self.folder / "nowhere")}, says=["nowhere", "MYTORCH_DATA_DIR"]
        )

    def test_truncated(self):
        for name in (IMAGES, LABELS):
            whole = FILES[name]
            for zipped in (False, True):
                content = gzip.compress(whole) if zipped else whole
                for length in (0, 1, 3, 4, 7, 8, 12, len(content) // 2, len(content) - 1):
                    (self.data / name).write_bytes(content[:length])
                    with self.subTest(file=name, zipped=zipped, length=length):
                        self.mnist_refused(says=[f"{self.data / name}", "cut short"])
            (self.data / name).write_bytes(whole)

    def test_oversized(self):
        for name in (IMAGES, LABELS):
            whole = FILES[name]
            for content in (whole + b"\0", gzip.compress(whole + b"\0"), gzip.compress(whole) + gzip.compress(b"x")):
                (self.data / name).write_bytes(content)
                self.mnist_refused(says=[name, "goes on after"])
            (self.data / name).write_bytes(gzip.compress(whole) + b"rubbish")
            self.mnist_refused(says=[name, "not gzip"])
            # A header that declares impossible sizes.
            (self.data / name).write_bytes(whole[:4] + b"\xff" * (len(whole[4:]) if name == LABELS else 12))
            self.mnist_refused(says=[name])
            (self.data / name).write_bytes(whole)

    def test_every_bit_of_a_header(self):
        """The sizes must agree with each other, with the file and with the other file."""
        for name, header in ((IMAGES, 16), (LABELS, 8)):
            for bit in range(8 * header):
                content = bytearray(FILES[name])
                content[bit // 8] ^= 1 << bit % 8
                (self.data / name).write_bytes(content)
                with self.subTest(file=name, bit=bit):
                    self.mnist_refused(says=[name])
            (self.data / name).write_bytes(FILES[name])

    def test_flipped_bits_of_compressed_data(self):
        rng = random.Random(1)
        whole = gzip.compress(FILES[LABELS])
        for _ in range(60):
            content = bytearray(whole)
            bit = rng.randrange(8 * 10, 8 * len(whole))  # after the fields that do not affect the data
            content[bit // 8] ^= 1 << bit % 8
            (self.data / LABELS).write_bytes(content)
            try:
                if gzip.decompress(content) == FILES[LABELS]:
                    continue  # an unused bit of the last byte
            except (EOFError, OSError, zlib.error):
                pass
            with self.subTest(bit=bit):
                self.mnist_refused(says=LABELS)

    def test_wrong_values(self):
        (self.data / LABELS).write_bytes(idx(bytes([10] * TRAIN), TRAIN))
        self.mnist_refused(says=[LABELS, "label 10"])
        (self.data / LABELS).write_bytes(labels(TRAIN - 1))
        self.mnist_refused(says=[LABELS, IMAGES, "128 images", "127 labels"])
        (self.data / LABELS).write_bytes(FILES[IMAGES])
        self.mnist_refused(says=[LABELS, "swapped"])

    def test_no_examples(self):
        for prefix in ("train", "t10k"):
            (self.data / f"{prefix}-images-idx3-ubyte").write_bytes(images(0))
            (self.data / f"{prefix}-labels-idx1-ubyte").write_bytes(labels(0))
            self.mnist_refused(says=["no images"])
            for name, content in FILES.items():
                (self.data / name).write_bytes(content)


class OptionsTest(ProgramTest):
    def test_bad_options(self):
        for args, says in [
            (["--modle", "mlp"], "--modle"),
            (["--model"], "--model"),
            (["--model", "rnn"], ["--model", "rnn", "mlp"]),
            (["--epochs", "-1"], "--epochs"),
            (["--epochs", "many"], "--epochs"),
            (["--batch", "0"], "--batch"),
            (["--batch", "1.5"], "--batch"),
            (["--batch", "99999999999999999999"], "--batch"),
            (["--threads", "0"], "--threads"),
            (["--threads", "5000"], "--threads"),
            (["--seed", "x"], "--seed"),
            (["--seed", "-1"], "--seed"),
            (["--lr", "0"], "--lr"),
            (["--lr", "-1"], "--lr"),
            (["--lr", "nan"], "--lr"),
            (["--lr", "inf"], "--lr"),
            (["--lr", "0.1x"], "--lr"),
            (["stray"], "stray"),
        ]:
            with self.subTest(args=args):
                self.refused("mnist", "--data", self.data, *args, says=says)

    def test_devices(self):
        self.mnist_refused("--device", "tpu", says=["'tpu'", "known types: cpu"])
        self.mnist_refused("--device", "cpu:x", says=["cpu:x"])
        self.mnist_refused("--device", "cpu:1", says=["no cpu:1"])
        self.mnist_refused("--device", "", says=["''"])

    def test_help_is_no_error(self):
        for args in (["--help"], ["-h"]):
            done = self.run_program("mnist", *args)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--model", done.stdout)


class LoadTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.mnist("--save", self.network)
        self.whole = self.network.read_bytes()
        self.header = 8 + struct.unpack("<Q", self.whole[:8])[0]

    def load_refused(self, content: bytes, says: str | list[str] = ()) -> None:
        self.network.write_bytes(content)
        self.mnist_refused(
            "--load", self.network, says=[str(self.network), *([says] if isinstance(says, str) else says)]
        )

    def test_good(self):
        self.mnist("--load", self.network, "--save", self.network)

    def test_no_file(self):
        for path in (self.folder / "nowhere", self.folder, "/dev/null", "/dev/zero"):
            with self.subTest(path=path):
                self.mnist_refused("--load", path, says=str(path))

    def test_truncated(self):
        for length in (0, 1, 7, 8, 9, self.header - 1, self.header, self.header + 1, len(self.whole) - 1):
            with self.subTest(length=length):
                self.load_refused(self.whole[:length])

    def test_oversized(self):
        self.load_refused(self.whole + b"\0", "1 bytes after")
        self.load_refused(self.whole[:6] + b"\x01\0" + self.whole[8:], "header has")

    def test_flipped_bits_of_the_header(self):
        rng = random.Random(2)
        refused = 0
        for _ in range(150):
            content = bytearray(self.whole)
            bit = rng.randrange(8 * self.header)
            content[bit // 8] ^= 1 << bit % 8
            self.network.write_bytes(content)
            done = self.run_program("mnist", "--data", self.data, "--epochs", 1, "--load", self.network)
            with self.subTest(bit=bit, stderr=done.stderr):
                # The accepted files differ only in a blank or in a letter of the metadata's own keys.
                self.assertIn(done.returncode, (0, 1))
                if done.returncode == 1:
                    refused += 1
                    self.assertTrue(done.stderr.startswith("mnist: ["))
        self.assertGreater(refused, 120)

    def test_other_networks(self):
        self.mnist_refused("--model", "cnn", "--load", self.network, says=["has the network mlp", "--model mlp"])
        renamed = self.whole.replace(b'"model":"mlp"', b'"model":"cnn"')
        self.load_refused(renamed, "has the network cnn")
        named = self.whole.replace(b'"model":"mlp"', b'"other":"mlp"')
        self.network.write_bytes(named)
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

    def test_places_that_cannot_be(self):
        self.refused_unchanged(self.folder / "nowhere" / "network", ["--save", "no directory"])
        self.refused_unchanged(self.folder, ["--save", "not a regular file"])
        self.refused_unchanged(Path("/dev/full"), ["--save", "not a regular file"])
        self.refused_unchanged(self.data / IMAGES / "network", ["--save", "no directory"])
        self.refused_unchanged(Path("/proc/network.safetensors"), ["/proc/network.safetensors"])
        self.refused_unchanged(self.folder / ("n" * 300), ["nnn"])
        dangling = self.folder / "link"
        dangling.symlink_to(self.folder / "nothing")
        self.refused_unchanged(dangling, ["--save", "dangling"])

    def test_refused_before_hours_of_training(self):
        done = self.run_program("mnist", "--data", self.data, "--save", "/proc/network.safetensors")
        self.assertEqual(done.returncode, 1)
        self.assertNotIn("epoch", done.stdout)

    def test_full_disk(self):
        self.mnist("--save", self.network)
        for size in (0, 4096, 50000):
            self.refused_unchanged(self.network, ["File too large", "are unchanged"], file_size=size)

    def test_a_link_keeps_leading_to_its_file(self):
        link = self.folder / "link"
        link.symlink_to(self.network)
        self.network.write_bytes(b"")
        self.mnist("--save", link)
        self.assertTrue(link.is_symlink())
        self.assertGreater(self.network.stat().st_size, 1000)
        self.refused_unchanged(self.network, ["are unchanged"], file_size=100)

    def test_killed_while_training(self):
        self.mnist("--save", self.network)
        before = self.network.read_bytes()
        process = subprocess.Popen(
            [str(BIN / "mnist"), "--data", str(self.data), "--epochs", "100000", "--save", str(self.network)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(20):
            process.stdout.readline()
        process.kill()
        process.communicate()
        after = self.network.read_bytes()
        self.assertEqual(len(after), len(before))
        self.network.write_bytes(after)
        self.mnist("--load", self.network)


class OutputTest(ProgramTest):
    def test_full_standard_output(self):
        for program, args in [
            ("mnist", ["--data", self.data, "--epochs", "1"]),
            ("mytorch", ["info"]),
            ("mytorch", ["ops"]),
            ("mytorch", ["ops", "add"]),
            ("mytorch", ["check", "--backend", "reference", "--only", "neg", "--quick"]),
        ]:
            with self.subTest(program=program, args=args), open("/dev/full", "w") as full:
                self.refused(program, *args, says="standard output", stdout=full)


class BackendTest(ProgramTest):
    def test_missing_and_damaged_files(self):
        good = next(BACKENDS.glob("*openmp*.so")).read_bytes()
        damaged = self.folder / "damaged.so"
        for content, says in [
            (b"", "not a shared library"),
            (good[:10000], "truncated"),
            (good[:-40], "truncated"),
            (b"\0" * 5000, "not a shared library"),
            (good[:4] + b"\1" + good[5:], "64-bit"),
        ]:
            damaged.write_bytes(content)
            self.mnist_refused(env={"MYTORCH_BACKEND_PATH": str(damaged)}, says=[damaged, says])
            self.refused(
                "mytorch", "check", "--only", "neg", env={"MYTORCH_BACKEND_PATH": str(damaged)}, says=[damaged, says]
            )
        self.mnist_refused(env={"MYTORCH_BACKEND_PATH": str(self.folder / "nowhere")}, says=["nowhere", "No such file"])
        self.mnist_refused(env={"MYTORCH_BACKEND_PATH": str(self.data)}, says=["none is loaded"])
        # Next to an intact backend, a damaged one only causes a warning.
        both = f"{damaged}:{BACKENDS}"
        done = self.mnist(env={"MYTORCH_BACKEND_PATH": both})
        self.assertIn(f"warning: [backend] {damaged}", done.stderr)
        done = self.run_program("mytorch", "info", env={"MYTORCH_BACKEND_PATH": both})
        self.assertEqual(done.returncode, 0)
        self.assertIn("not loaded:", done.stdout)

    def test_damaged_tables(self):
        """No flipped bit in the tables of the dynamic linker may crash the process."""
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
        damaged = self.folder / "damaged.so"
        for _ in range(300):
            content = bytearray(good)
            begin, size = rng.choice(places)
            bit = 8 * begin + rng.randrange(8 * size)
            content[bit // 8] ^= 1 << bit % 8
            damaged.write_bytes(content)
            done = self.run_program("mytorch", "info", env={"MYTORCH_BACKEND_PATH": str(damaged)})
            self.assertEqual(done.returncode, 0, f"bit {bit}: {done.stderr}")

    def test_names(self):
        self.refused("mytorch", "check", "--backend", "nobody", says=["nobody", "mytorch info"])
        done = self.run_program("mytorch", "info", env={"MYTORCH_PREFER": "nobody"})
        self.assertEqual(done.returncode, 0)
        self.assertIn("MYTORCH_PREFER names 'nobody'", done.stderr)


class ToolsTest(ProgramTest):
    def test_bad_commands(self):
        for args, says in [
            ([], "subcommand"),
            (["inof"], "inof"),
            (["ops", "no_such_operator"], "no_such_operator"),
            (["ops", "--nonsense"], "--nonsense"),
            (["check", "--seed", "x"], ["--seed", "x"]),
            (["check", "--seed", "-1"], "--seed"),
            (["check", "--seed"], "--seed"),
            (["check", "--device", "nowhere", "--only", "neg"], "nowhere"),
            (["check", "--dtype", "float33"], "float33"),
            (["check", "--only", "no_such_operator"], "no_such_operator"),
            (["check", "--case", "x"], "--case"),
            (["check", "--only", "neg", "--case", "100000"], "case"),
        ]:
            with self.subTest(args=args):
                self.refused("mytorch", *args, says=says)

    def test_bench(self):
        results = self.folder / "results.json"
        results.write_text("[]")
        for args, says in [
            ([], ["--suite", "operator"]),
            (["no_such_operator"], ["no_such_operator", "mytorch ops"]),
            (["var_mean_"], "no in-place form"),
            (["--suite", "none"], ["'none'", "pointwise", "matmul"]),
            (["--suite", "pointwise", "--case", "none"], "no such case"),
            (["add", "--suite", "norm"], "not both"),
            (["--suite", "norm", "--shapes", "3"], "--shapes"),
            (["add", "--case", "x"], "--suite"),
            (["add", "--shapes", "3,4,5"], ["3 shapes", "2 tensors", "other, self"]),
            (["add", "--shapes", "3xb,4"], "'b' in '3xb'"),
            (["add", "--shapes", "3:upside,4"], "upside"),
            (["add", "--shapes", "3,4"], ["(3,)", "(4,)"]),
            (["add", "--shapes", "3"], ["'other'", "--shapes"]),
            (["add", "--shapes", "3,3:of=third"], "third"),
            (["exp", "--set", "dim=1"], ["no argument 'dim'", "self"]),
            (["exp", "--set", "dim"], "NAME=VALUE"),
            (["softmax", "--shapes", "3", "--set", "dim=x"], "'dim'"),
            (["exp", "--dtype", "float33"], "float33"),
            (["exp", "--threads", "0"], "--threads"),
            (["exp", "--cache", "hot"], "--cache"),
            (["exp", "--backend", "nobody"], ["nobody", "cpu-openmp"]),
            (["relu_grad", "--form", "out"], "no such form"),
            (["exp", "--seconds", "x"], "--seconds"),
            (["exp", "--compare", self.folder / "nowhere"], "nowhere"),
            (["exp", "--compare", results], [results]),
            (["exp", "--shapes", "8", "--seconds", "0.001", "--json", "/no/where.json"], "/no/where.json"),
        ]:
            with self.subTest(args=args):
                self.refused("mytorch", "bench", *args, says=says)
        self.refused("mytorch", "bench", "exp", env={"MYTORCH_SHARE": str(self.folder)}, says="ops.json")

    def test_bench_writes_what_it_compares(self):
        results = self.folder / "results.json"
        few = ("--shapes", "64,64", "--seconds", "0.001", "--backend", "chosen")
        done = self.run_program("mytorch", "bench", "add", *few, "--json", results)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mytorch bench add.Tensor --shapes 64,64 --dtype float32 --threads 1", done.stdout)
        entry = json.loads(results.read_text())["benchmarks"][0]
        self.assertEqual((entry["case"], entry["time_unit"]), ("add.Tensor/64,64", "ns"))
        done = self.run_program("mytorch", "bench", "add", *few, "--compare", results)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"add\.Tensor/64,64 .*[0-9]x  chosen")

    def test_missing_and_damaged_tables(self):
        self.refused("mytorch", "ops", env={"MYTORCH_SHARE": str(self.folder)}, says=["ops.json", self.folder])
        share = self.folder / "share"
        shutil.copytree(BIN.parent / "generated/share", share)
        for name in ("ops.json", "samples.json"):
            whole = (share / name).read_bytes()
            for content in (b"", whole[: len(whole) // 2], b"[1]", b"{}", b"[{}]"):
                (share / name).write_bytes(content)
                with self.subTest(file=name, content=content[:20]):
                    self.refused(
                        "mytorch", "check", "--only", "neg", "--quick", env={"MYTORCH_SHARE": str(share)}, says=name
                    )
            (share / name).write_bytes(whole)
        for content in (b"", b"{", b"{}", b"[]", b"[1]", b"[{}]", b'[{"suite": "norm", "name": "b", "op": "nothing"}]'):
            (share / "suites.json").write_bytes(content)
            for what in (["--suite", "norm"], ["exp"]):
                with self.subTest(file="suites.json", content=content[:20], what=what):
                    self.refused("mytorch", "bench", *what, env={"MYTORCH_SHARE": str(share)}, says="suites.json")


if __name__ == "__main__":
    unittest.main()
