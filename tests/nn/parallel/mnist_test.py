"""Trains examples/mnist on generated images, by one process and by 2 and 4 ranks of MPI, which must have the same losses.

python3 mnist_test.py MPIEXEC MNIST
"""

import gzip
import os
import random
import re
import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import needs
import processes

mpiexec, mnist = sys.argv[1:]
needs.need("mpi", mpiexec)
folder = tempfile.TemporaryDirectory()
numbers = random.Random(1)
for name, count in (("train", 256), ("t10k", 64)):
    labels = [numbers.randrange(10) for _ in range(count)]
    images = bytearray()
    for label in labels:
        image = bytearray(numbers.randrange(40) for _ in range(784))
        image[label * 70 : label * 70 + 56] = bytes([230]) * 56
        images += image
    with gzip.open(Path(folder.name, f"{name}-images-idx3-ubyte.gz"), "wb") as file:
        file.write(struct.pack(">4i", 2051, count, 28, 28) + images)
    with gzip.open(Path(folder.name, f"{name}-labels-idx1-ubyte.gz"), "wb") as file:
        file.write(struct.pack(">2i", 2049, count) + bytes(labels))

environment = dict(
    os.environ,
    OMPI_ALLOW_RUN_AS_ROOT="1",
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMPI_MCA_rmaps_base_oversubscribe="1",
    OMPI_MCA_btl_vader_single_copy_mechanism="none",
)


def losses(ranks):
    options = ["--data", folder.name, "--epochs", "4", "--batch", "32", "--threads", "1"]
    command = [mnist, *options] if ranks == 1 else [mpiexec, "-n", str(ranks), mnist, "--distributed", *options]
    found = processes.run(command, env=environment, capture_output=True, text=True, timeout=200)
    lines = re.findall(r"loss ([\d.]+) accuracy ([\d.]+)%", found.stdout)
    if found.returncode != 0 or len(lines) != 4:
        sys.exit(f"{ranks} ranks, status {found.returncode}:\n{found.stdout}{found.stderr}")
    return [float(loss) for loss, _ in lines]


expected = losses(1)
assert expected[-1] < expected[0], expected
for ranks in (2, 4):
    found = losses(ranks)
    print(ranks, found, expected)
    if any(abs(a - b) > 2e-4 for a, b in zip(found, expected)):
        sys.exit(f"{ranks} ranks: losses {found}, of one process {expected}")
