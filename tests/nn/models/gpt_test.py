"""Trains examples/gpt on a generated text.

    python3 gpt_test.py PROGRAM

The model learns; a run that is resumed gives the same weights and log as one that is not; mistakes are explained.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import processes


def run(*arguments: object) -> subprocess.CompletedProcess:
    return processes.run([sys.argv[1], *map(str, arguments)], capture_output=True, text=True, timeout=240)


random.seed(1)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    words = ["grün", "seven", "owls", "see", "a", "lamp", "by", "night"]
    text = folder / "text"
    text.write_text(" ".join(random.choice(words) for _ in range(3000)))
    small = ["--text", text, "--layers", 2, "--width", 16, "--heads", 2, "--context", 16, "--batch", 8]
    small += ["--dropout", 0.1, "--lr", 0.01, "--warmup", 5, "--eval-every", 20, "--log-every", 10]

    def train(directory: str, steps: int, *more: object) -> str:
        done = run("train", folder / directory, *small, "--steps", steps, *more)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", "no progress bar without a terminal"
        return done.stdout

    said = train("whole", 60)
    assert "parameters" in said and "step 60/60 loss " in said and " tokens/s " in said, said
    # What a run has left that was interrupted after 40 steps.
    before = folder / "parts"
    before.mkdir()
    checkpoint = "checkpoint-0000000040.safetensors"
    (before / checkpoint).write_bytes((folder / "whole" / checkpoint).read_bytes())
    lines = (folder / "whole/log.csv").read_text().splitlines()
    (before / "log.csv").write_text("\n".join(lines[:3]) + "\n")
    said = train("parts", 60)
    assert "resumed at step 40\n" in said, said
    for file in ["model.safetensors", "log.csv", "config.json", "vocabulary"]:
        assert (folder / "whole" / file).read_bytes() == (before / file).read_bytes(), file
    assert lines[0] == "step,loss,validation" and len(lines) == 4, lines
    first, last = (float(line.split(",")[2]) for line in (lines[1], lines[3]))
    assert last < first < 3, lines
    for options in [["--tokens", "bytes"], ["--autocast", "bfloat16"], ["--autocast", "float16"]]:
        train("_".join(options), 3, *options)

    def sample(*options: object) -> str:
        done = run("sample", before, "--length", 100, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = sample("--prompt", "grün owls", "--seed", 1)
    assert said.startswith("grün owls") and len(said) == 110, said
    assert any(word in said[10:] for word in words), said
    assert said == sample("--prompt", "grün owls", "--seed", 1)
    assert said != sample("--prompt", "grün owls", "--seed", 2)
    assert sample("--temperature", 0, "--seed", 1) == sample("--temperature", 0, "--seed", 2)
    refused = run("sample", before, "--prompt", "Z")
    assert refused.returncode == 1 and "'Z' does not occur" in refused.stderr, refused.stderr
    refused = run("sample", folder / "x")
    assert refused.returncode == 1 and "vocabulary cannot be read" in refused.stderr, refused.stderr

    refused = run("train", before, "--text", text, "--layers", 3)
    assert refused.returncode == 1 and "another model" in refused.stderr, refused.stderr
    short = folder / "short"
    short.write_text("too short")
    refused = run("train", folder / "x", "--text", short)
    assert refused.returncode == 1 and "9 tokens" in refused.stderr, refused.stderr
    refused = run("train", folder / "x", "--text", folder / "absent")
    assert refused.returncode == 1 and "absent cannot be read" in refused.stderr, refused.stderr
    refused = run("train", folder / "x", "--heads", 0)
    assert refused.returncode == 1 and "--heads" in refused.stderr, refused.stderr
