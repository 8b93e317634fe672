"""`mytorch bench --suite comm` and `--suite machine` on the CPU, and `mytorch plan` on what they measure.

    python3 comm_test.py MYTORCH            threads, and mistakes
    python3 comm_test.py MYTORCH MPIEXEC    processes
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

MYTORCH, *MPIEXEC = sys.argv[1:]
KINDS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"}
QUICK = ["--seconds", "0.001", "--most", "512"]


def run(*words: str) -> subprocess.CompletedProcess:
    # Containers refuse what Open MPI does first, and what root does.
    env = dict(os.environ, OMPI_MCA_btl_vader_single_copy_mechanism="none", OMP_NUM_THREADS="1")
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return processes.run([MYTORCH, *words], capture_output=True, text=True, timeout=300, env=env)


class Measured(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "points.json"

    def check(self, found: subprocess.CompletedProcess, engine: str) -> None:
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        self.assertIn(f"2 ranks on cpu, engine {engine}", found.stdout)
        points = json.loads(self.out.read_text())
        self.assertEqual({point["kind"] for point in points}, KINDS)
        for kind in KINDS:
            sizes = [point["bytes"] for point in points if point["kind"] == kind]
            self.assertEqual(sizes, [8, 64, 512])
        for point in points:
            self.assertEqual((point["ranks"], point["stride"]), (2, 1))
            self.assertGreater(point["seconds"], 0)
        rows = [line.split() for line in found.stdout.splitlines() if line.split()[:1] and line.split()[0] in KINDS]
        self.assertEqual(len(rows), 18)
        for kind, _, _, algorithm, bus in rows:
            # Of two ranks, all send what nccl-tests counts: all of an all_reduce, half of the parts.
            share = 1 if kind in ("all_reduce", "broadcast", "send_recv") else 0.5
            self.assertAlmostEqual(float(bus), share * float(algorithm), delta=0.011)


class Threads(Measured):
    def test_write_points_that_plan_reads(self) -> None:
        self.check(run("bench", "--suite", "comm", "--ranks", "2", *QUICK, "--out", str(self.out)), "local")
        found = run("plan", "--calibrate", str(self.out))
        self.assertEqual(found.returncode, 0, found.stderr)
        curves = json.loads(found.stdout)["curves"]
        self.assertEqual({curve["collective"] for curve in curves}, KINDS)
        self.assertEqual(curves[0]["bytes"], [8, 64, 512])


class Processes(Measured):
    def test_write_points(self) -> None:
        self.check(
            run("launch", "--ranks", "2", "--mpi", MYTORCH, "bench", "--suite", "comm", *QUICK, "--out", str(self.out)),
            "mpi",
        )

    def test_one_command_measures_the_machine(self) -> None:
        machine = self.out.parent / "machine.json"
        found = run("plan", "--measure", "cpu", "--ranks", "2", *QUICK, "--points", str(self.out))
        self.assertEqual(found.returncode, 0, found.stderr)
        machine.write_text(found.stdout)
        kinds = {point["kind"] for point in json.loads(self.out.read_text())}
        self.assertEqual(kinds, KINDS | {"matmul", "attention", "copy", "kernels", "host", "step"})
        planned = run("plan", "--model", "gpt2", "--gpus", "2", "--machine", str(machine), "--top", "1")
        self.assertEqual(planned.returncode, 0, planned.stderr + planned.stdout)
        self.assertIn("2 x cpu", planned.stdout)


class Wrong(unittest.TestCase):
    def refused(self, part: str, *words: str) -> None:
        found = run(*words)
        self.assertEqual(found.returncode, 1, found.stdout)
        self.assertIn(part, found.stderr)

    def test_mistakes_are_named(self) -> None:
        comm = ("bench", "--suite", "comm")
        self.refused("takes --device, --seconds, --out", *comm, "--ranks", "2", "--dtype", "float32")
        self.refused("measures one device", *comm, "--ranks", "2", "--device", "cpu,cpu")
        self.refused("belong to the suites machine and comm", "bench", "--suite", "pointwise", "--ranks", "2")
        self.refused(
            "cannot write /nowhere/points.json", *comm, "--ranks", "2", *QUICK, "--out", "/nowhere/points.json"
        )
        self.refused("--ranks", *comm, "--ranks", "1")
        self.refused("--most", *comm, "--ranks", "2", "--most", "4")
        self.refused("several ranks", *comm)


if MPIEXEC:
    needs.need("mpi", *MPIEXEC)
unittest.main(argv=sys.argv[:1], defaultTest=["Processes"] if MPIEXEC else ["Threads", "Wrong"])
