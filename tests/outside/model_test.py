"""Tests that `mytorch check LIB --model` ranks missing kernels.

    python3 model_test.py MYTORCH FAULTY_SO

Uses tests/outside/faulty.cpp without a fault, restricted to the entries in MYTORCH_ENTRIES.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

mytorch, library = sys.argv[1:3]
ALL = [
    "copy_",
    "compile",
    "fill_",
    "bmm",
    "gather",
    "cat",
    "convolution",
    "convolution_backward_input",
    "convolution_backward_weight",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "uniform_",
    "scatter.src",
    "arange.start_step",
    "random_.from",
]


def run(*arguments: str, entries: list[str]) -> tuple[int, str]:
    ran = processes.run(
        [mytorch, "check", library, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "MYTORCH_ENTRIES": ",".join(entries)},
    )
    return ran.returncode, ran.stdout + ran.stderr


def ranking(model: str, entries: list[str]) -> dict[str, dict]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        status, said = run("--contract", "load", "--model", model, "--json", file.name, entries=entries)
        assert status == 0, said
        found = json.load(open(file.name))["model"]
    assert found["network"] == model and found["steps"] >= 3, found
    rows = found["missing"]
    assert [row["gain"] for row in rows] == sorted((row["gain"] for row in rows), reverse=True), rows
    for row in rows:
        assert 0 < row["gain"] <= row["seconds"] * (1 + 1e-9) and row["seconds"] < found["step"], row
        assert row["calls"] >= 0.3, row
        assert row["entry"] in said or row in rows[20:], said
    return {row["entry"]: row for row in rows}


def ways(rows: dict[str, dict], way: str) -> set[str]:
    return {name for name, row in rows.items() if row["way"] == way}


# The help text lists the networks, and another name is refused.
status, said = run("--help", entries=ALL)
assert all(name in said for name in ("mnist-cnn", "mnist-mlp", "transformer")), said
status, said = run("--model", "mnist", entries=ALL)
assert status != 0 and "mnist-cnn" in said, said

# With all entries, no call falls back; only composites remain.
rows = ranking("mnist-mlp", ALL)
assert not ways(rows, "fallback") and "linear" in rows and "compile" not in rows, rows
# Without convolutions, exactly those fall back.
windows = {name for name in ALL if name.startswith("conv")}
rows = ranking("mnist-cnn", [name for name in ALL if name not in windows])
assert ways(rows, "fallback") == windows, rows
assert all(rows[name]["gain"] == rows[name]["seconds"] for name in windows), rows
# The gain of `compile` is at least that of the largest pointwise operator.
rows = ranking("transformer", ["copy_", "bmm"])
assert "compile" in rows and "bmm" not in rows, rows
assert rows["compile"]["gain"] > 0.9 * max(rows[name]["gain"] for name in ("mul.Tensor", "add.Tensor")), rows
assert {"gather", "fill_"} <= ways(rows, "fallback"), rows
# Without any entry, matrix products fall back inside the layers that decompose into them.
rows = ranking("mnist-mlp", [])
assert {"bmm", "copy_"} & ways(rows, "fallback") and ways(rows, "composite") >= {"linear"}, rows
print("missing kernels are ranked")
