"""Trains examples/image_folder on a tiny generated folder of images.

    python3 image_folder_test.py PROGRAM

A run that is resumed gives the same weights and log as one that is not; bad images are named.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import processes


def write_images(folder: Path, count: int) -> None:
    """Writes images of two classes: red and blue rectangles on noise."""
    for number, name in enumerate(["blue", "red"]):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            side = random.randrange(20, 40)
            pixels = bytearray(random.randrange(100) for _ in range(3 * side * side))
            for y in range(5, side - 5):
                for x in range(5, side - 5):
                    pixels[3 * (y * side + x) + (0 if number else 2)] = 230
            (folder / name / f"{i}.ppm").write_bytes(b"P6 %d %d 255\n" % (side, side) + pixels)


def run(*arguments: object) -> subprocess.CompletedProcess:
    return processes.run([sys.argv[1], *map(str, arguments)], capture_output=True, text=True, timeout=240)


random.seed(1)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    write_images(folder / "train", 40)
    write_images(folder / "test", 10)

    def train(directory: str, epochs: int) -> None:
        done = run(folder / "train", folder / "test", folder / directory, epochs)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "", "no progress bar without a terminal"
        assert done.stdout.startswith("accuracy "), done.stdout

    train("whole", 4)
    train("parts", 1)
    train("parts", 4)
    for file in ["weights.safetensors", "log.csv", "loss.svg"]:
        assert (folder / "whole" / file).read_bytes() == (folder / "parts" / file).read_bytes(), file
    log = (folder / "whole/log.csv").read_text().splitlines()
    assert log[0] == "step,loss,accuracy" and len(log) == 5, log
    assert float(log[4].split(",")[1]) < float(log[1].split(",")[1]), log
    checkpoints = sorted(path.name for path in (folder / "whole").glob("checkpoint-*"))
    assert len(checkpoints) == 3 and checkpoints[-1] == "checkpoint-0000000004.safetensors", checkpoints
    assert (folder / "whole/loss.svg").read_text().startswith("<svg")

    (folder / "train/red/7.ppm").write_bytes(b"P6 99 99 255\n")
    damaged = run(folder / "train", folder / "test", folder / "damaged", 1)
    assert damaged.returncode == 1 and "red/7.ppm is cut short" in damaged.stderr, damaged.stderr
    usage = run("x")
    assert usage.returncode == 1 and "TRAIN_DIR" in usage.stderr, usage.stderr
