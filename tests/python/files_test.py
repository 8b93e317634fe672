"""Files of tensors and other objects."""

import io
import os
import pickle
import tempfile
import unittest
from collections import OrderedDict
from pathlib import Path

import mytorch as mt
from mytorch import nn


class Own:
    """A class that a file may name only if its code is trusted."""


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "file"

    def test_objects(self):
        net = nn.BatchNorm1d(3)
        net(mt.randn(4, 3))
        saved = {
            "model": net.state_dict(),
            "weight": net.weight,
            "types": [mt.bfloat16, mt.device("cpu")],
            "half": mt.tensor([1.5, -0.0, float("inf")], dtype=mt.bfloat16),
            "complex": mt.tensor([1 + 2j]),
            "empty": mt.zeros(0, 2),
            "set": {1, 2},
        }
        mt.save(saved, self.path)
        found = mt.load(self.path)
        self.assertIsInstance(found["model"], OrderedDict)
        self.assertEqual(list(found["model"]), list(net.state_dict()))
        self.assertIsInstance(found["weight"], nn.Parameter)
        self.assertTrue(found["weight"].requires_grad)
        self.assertEqual(found["types"], saved["types"])
        self.assertEqual(found["half"].view(mt.int16).tolist(), saved["half"].view(mt.int16).tolist())
        self.assertEqual((found["complex"].item(), found["empty"].shape, found["set"]), (1 + 2j, (0, 2), {1, 2}))
        other = nn.BatchNorm1d(3)
        other.load_state_dict(found["model"])
        self.assertEqual(other.running_mean.tolist(), net.running_mean.tolist())

    def test_streams(self):
        stream = io.BytesIO()
        mt.save([mt.ones(2)], stream)
        stream.seek(0)
        self.assertEqual(mt.load(stream)[0].tolist(), [1, 1])

    def test_code_is_refused(self):
        for given in (Own(), os.system, [print], nn.Linear(1, 1)):
            mt.save(given, self.path)
            with self.assertRaisesRegex(pickle.UnpicklingError, "weights_only=False"):
                mt.load(self.path)
        self.assertIsInstance(mt.load(self.path, weights_only=False), nn.Linear)

    def test_failure_keeps_the_file(self):
        mt.save(1, self.path)
        with self.assertRaises(Exception):
            mt.save([mt.ones(2), lambda: 0], self.path)
        self.assertEqual(mt.load(self.path), 1)
        self.assertEqual(os.listdir(self.folder), ["file"])
        self.assertRaises(FileNotFoundError, mt.load, self.folder / "none")
        mask = os.umask(0o027)
        os.umask(mask)
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o666 & ~mask)

    def test_map_location(self):
        mt.save({"x": mt.ones(2)}, self.path)
        for where in ("cpu", mt.device("cpu"), {"cpu": "cpu"}, lambda tensor, device: tensor * 2):
            expected = [2, 2] if callable(where) else [1, 1]
            self.assertEqual(mt.load(self.path, map_location=where)["x"].tolist(), expected)
        with self.assertRaises(RuntimeError):
            mt.load(self.path, map_location="nowhere")

    def test_safetensors(self):
        state = {"a": mt.ones(2, 3).T, "b": mt.tensor([1, 2], dtype=mt.int8)}
        mt.save_safetensors(state, self.path, {"key": "text"})
        found = mt.load_safetensors(str(self.path))
        self.assertEqual(
            {name: tensor.tolist() for name, tensor in found.items()}, {n: t.tolist() for n, t in state.items()}
        )
        self.assertEqual(found["b"].dtype, mt.int8)
        self.assertEqual(mt.safetensors_metadata(self.path), {"key": "text"})
        for given in ([1], {"a": 1}, {1: mt.ones(1)}):
            self.assertRaises(TypeError, mt.save_safetensors, given, self.path)
        self.assertRaises(TypeError, mt.save_safetensors, state, self.path, {"a": 1})
        self.assertRaises(OSError, mt.load_safetensors, self.folder / "none")
        self.assertEqual(sorted(mt.load_safetensors(self.path)), ["a", "b"])


if __name__ == "__main__":
    unittest.main()
