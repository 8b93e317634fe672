"""`mytorch run` and `mytorch graph` on a saved program.

Usage: commands_test.py MYTORCH FOLDER      with the programs of tests/graph/saved
"""

import json
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

COMMAND, FOLDER = sys.argv[1], Path(sys.argv[2])
MODEL = FOLDER / "training-1.mtg"
TYPES = {"F32": "<f4", "I64": "<i8"}


def command(*arguments: str, fails: bool = False) -> str:
    run = processes.run([COMMAND, *map(str, arguments)], text=True, capture_output=True)
    assert (run.returncode != 0) == fails, f"{arguments}: {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stderr if fails else run.stdout


def tensors() -> dict:
    data = (FOLDER / "training-1.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    return {name: (entry, body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_npy(path: Path, entry: dict, data: bytes) -> None:
    shape = "".join(f"{size}, " for size in entry["shape"])
    header = f"{{'descr': '{TYPES[entry['dtype']]}', 'fortran_order': False, 'shape': ({shape}), }}"
    header = header.ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def floats(path: Path) -> list[float]:
    data = path.read_bytes()
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    return [x[0] for x in struct.iter_unpack("<f", data[begin:])]


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.known = tensors()
        for name in "xy":
            write_npy(self.folder / f"{name}.npy", *self.known[name])
        self.inputs = [f"--input={name}={self.folder / name}.npy" for name in "xy"]

    def loss(self, step: int) -> float:
        return struct.unpack("<f", self.known[f"loss.{step}"][1])[0]

    def test_run_gives_the_results(self):
        out = self.folder / "loss.npy"
        printed = command("run", MODEL, *self.inputs, f"--output=loss={out}")
        self.assertAlmostEqual(floats(out)[0], self.loss(0), places=3)
        self.assertIn("class: int64 of shape (3,) on cpu", printed)
        self.assertNotIn("loss:", printed)

    def test_state_is_saved(self):
        saved, out = self.folder / "next.mtg", self.folder / "loss.npy"
        command("run", MODEL, *self.inputs, "--repeat=2", f"--save={saved}")
        command("run", saved, *self.inputs, f"--output=loss={out}")
        self.assertAlmostEqual(floats(out)[0], self.loss(2), places=3)

    def test_run_says_what_is_missing(self):
        self.assertIn(
            "give --input y=FILE.npy, y: int64 of shape (3,) on cpu", command("run", MODEL, self.inputs[0], fails=True)
        )
        self.assertIn(
            "the program has\n  x: float32 of shape (3, 1, 5, 5)", command("run", MODEL, "--input=z=z.npy", fails=True)
        )

    def test_graph_prints_text_costs_and_pictures(self):
        svg, dot = self.folder / "graph.svg", self.folder / "graph.dot"
        printed = command("graph", MODEL, f"--svg={svg}", f"--dot={dot}")
        self.assertTrue(printed.startswith("graph(%0: float32[3, 1, 5, 5]"), printed)
        self.assertIn("time, us  node", printed)
        # 3 x 18 times 18 x 4: a multiply-add counts as two.
        line = next(line for line in printed.splitlines() if "B " in line and "linear(" in line)
        self.assertRegex(line, r"^ *432 +568 B +[0-9.]+  %")
        view = next(line for line in printed.splitlines() if "B " in line and "transpose.int(" in line)
        self.assertRegex(view, r"^ *0 +0 B +0.00  %")
        total = next(line for line in printed.splitlines() if line.endswith("in all"))
        self.assertRegex(total, r"^ *[0-9.]+ k +[0-9.]+ kB")
        root = xml.etree.ElementTree.parse(svg).getroot()
        titles = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("argument 0", titles)
        self.assertIn("result 2", titles)
        boxes = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if rect.get("rx")]
        places = [(float(b.get("x")), float(b.get("y")), float(b.get("width")), float(b.get("height"))) for b in boxes]
        for i, (x, y, width, height) in enumerate(places):
            for other_x, other_y, other_width, other_height in places[:i]:
                apart = x + width <= other_x or other_x + other_width <= x or y != other_y
                self.assertTrue(apart, "two boxes overlap")
        self.assertTrue(dot.read_text().startswith("digraph {"))

    def test_graph_lists_passes_and_stages(self):
        names = [line.split()[0] for line in command("graph", "--passes").splitlines()]
        self.assertIn("common-subexpressions", names)
        self.assertEqual(names[-2:], ["in-place", "branches"])
        self.assertIn("expected a file", command("graph", fails=True))

    def test_graph_reads_texts_and_names_lines(self):
        text = self.folder / "graph.txt"
        text.write_text("graph(%0: float32[2]) {\n  %1: float32[2] = relu(%0)\n  return %1\n}\n")
        self.assertEqual(command("graph", text, "--no-cost"), text.read_text())
        text.write_text(text.read_text().replace("relu", "rellu"))
        self.assertIn(
            "line 2, column 20: there is no operator 'rellu'", command("graph", text, "--no-cost", fails=True)
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
