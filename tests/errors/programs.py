"""Runs the programs with bad input: each must write a clear message to stderr and exit with status 1.

The first argument of a test script is the folder of the programs; the others are unittest's.
"""

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
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

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


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class cases:
    """Decorates a method of a TestCase, which becomes a test for each named case: `test_METHOD_CASE`.

    A case is the tuple of the method's arguments.
    """

    def __init__(self, **arguments: tuple):
        self.arguments = arguments

    def __call__(self, method: Callable) -> "cases":
        self.method = method
        return self

    def __set_name__(self, owner: type, name: str) -> None:
        for case, arguments in self.arguments.items():
            setattr(owner, f"test_{name}_{case}", lambda test, arguments=arguments: self.method(test, *arguments))


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
        text: str | None = None,
    ) -> subprocess.CompletedProcess:
        """Runs a program, which reads `text` and cannot write files larger than `file_size`."""

        def limit():
            if file_size is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

        return processes.run(
            [str(BIN / program), *map(str, args)],
            input=text,
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

    def refused(self, program: str, *args: object, says: str | list[str], **more: object) -> None:
        """Expects status 1 and a message that contains the texts."""
        done = self.run_program(program, *args, **more)
        what = f"{program} {' '.join(map(str, args))}\nstdout: {done.stdout}\nstderr: {done.stderr}"
        self.assertEqual(done.returncode, 1, what)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(str(part), done.stderr, what)
        # The message comes from the program, not from the C++ runtime.
        for noise in ("terminate called", "what():", "runtime error", "basic_string", "std::"):
            self.assertNotIn(noise, done.stderr, what)
        self.assertLess(len(done.stderr), 4000, what)

    def mnist(self, *args: object, **more: object) -> subprocess.CompletedProcess:
        """Trains for one epoch, which must succeed."""
        done = self.run_program("mnist", "--data", self.data, "--epochs", 1, *args, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def mnist_refused(self, *args: object, says: str | list[str], **more: object) -> None:
        self.refused("mnist", "--data", self.data, "--epochs", 1, *args, says=says, **more)
