"""scripts/bench-distributed with tiny sizes on the CPU: every case runs on 1 and 2 ranks, and computes the same.

    python3 distributed_test.py MPIEXEC BUILD
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import needs
import processes

MPIEXEC, BUILD = sys.argv[1:]
SCRIPT = Path(__file__).parents[2] / "scripts" / "bench-distributed"
TINY = ["--build", BUILD, "--device", "cpu", "--tiny", "--without-peers", "--samples", "3", "--steps", "1"]


def run(*words: str) -> subprocess.CompletedProcess:
    # Containers refuse what Open MPI does first.
    env = dict(os.environ, OMPI_MCA_btl_vader_single_copy_mechanism="none")
    command = [sys.executable, SCRIPT, *TINY, *words]
    return processes.run(command, capture_output=True, text=True, timeout=400, env=env)


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.json"
            cls.found = run("--ranks", "1,2", "--out", str(out))
            if cls.found.returncode != 0:
                raise AssertionError(cls.found.stdout + cls.found.stderr)
            cls.lines = {(line["case"], line["ranks"]): line for line in json.loads(out.read_text())}

    def both(self, case: str) -> list[dict]:
        return [self.lines[case, ranks] for ranks in (1, 2)]

    def test_all_cases_ran(self) -> None:
        self.assertEqual(len(self.lines), 26)
        for line in self.lines.values():
            self.assertTrue(0 < line["min_ms"] <= line["step_ms"] <= line["max_ms"], line)
            self.assertGreater(line["per_second"], 0)
            self.assertGreater(line["peak_bytes"], 1 << 20)
            self.assertTrue(all(math.isfinite(loss) for loss in line["losses"]), line)
            self.assertGreater(line.get("predicted_ms", 0), 0, line)

    def test_the_table_has_a_row_for_each(self) -> None:
        for case, ranks in self.lines:
            row = [line for line in self.found.stdout.splitlines() if line.split()[:2] == [case, str(ranks)]]
            self.assertEqual(len(row), 1, (case, ranks))

    def test_copies_learn_and_report_the_reduction(self) -> None:
        for case in ("ddp-gpt2", "ddp-mlp"):
            for line in self.both(case):
                self.assertLess(line["losses"][2], line["losses"][0])
        for case in ("ddp-gpt2", "ddp-resnet50", "ddp-mlp"):
            line = self.lines[case, 2]
            self.assertAlmostEqual(
                line["hidden"], 1 - (line["step_ms"] - line["no_sync_ms"]) / line["all_reduce_ms"], 6
            )
            self.assertNotIn("hidden", self.lines[case, 1])

    def test_sharded_parameters_learn(self) -> None:
        for line in self.both("fsdp"):
            self.assertEqual(line["parameters"], 21664)
            self.assertLess(line["losses"][2], line["losses"][0])

    def test_divided_work_has_the_loss_of_one_rank(self) -> None:
        for case in ("tp", "tp-sequence", "tp-wide", "tp-wide-sequence", "pipeline-8", "pipeline-16"):
            alone, together = self.both(case)
            self.assertEqual(len(together["losses"]), 3)
            for a, b in zip(alone["losses"], together["losses"], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-5 * abs(a), msg=case)

    def test_bubbles(self) -> None:
        self.assertAlmostEqual(self.lines["pipeline-8", 2]["bubble_in_theory"], 1 / 9, 9)
        self.assertAlmostEqual(self.lines["pipeline-16", 2]["bubble_in_theory"], 1 / 17, 9)
        self.assertEqual(self.lines["pipeline-8", 1]["bubble_in_theory"], 0)
        line = self.lines["pipeline-8", 2]
        self.assertTrue(0 < line["bubble_of_events"] < 1)

    def test_split_sequences_have_the_gradients_of_one_rank(self) -> None:
        for case in ("ring", "ulysses"):
            for line in self.both(case):
                self.assertLess(line["error"], 1e-5)

    def test_experts_are_compared_with_a_dense_layer(self) -> None:
        for line in self.both("experts"):
            self.assertAlmostEqual(line["share_of_dense"], line["teraflops"] / line["dense_teraflops"], 9)


class Wrong(unittest.TestCase):
    def test_an_unknown_case(self) -> None:
        found = run("--only", "fsdp,tq")
        self.assertEqual(found.returncode, 1)
        self.assertIn("there is no case tq: give some of ddp-gpt2", found.stderr)

    def test_a_limit_of_time(self) -> None:
        found = run("--only", "fsdp", "--ranks", "2", "--limit", "0.001")
        self.assertEqual(found.returncode, 1)
        self.assertIn("fsdp on 2, mytorch: failed: not finished in 0.001 s", found.stdout)


needs.need("mpi", MPIEXEC)
unittest.main(argv=sys.argv[:1])
