"""The cases of bench/compiled_sizes.cpp by torch.compile. Prints a line per case: its name, and in microseconds the
first call (one size), the first call at a second size, for which the model is compiled anew with a symbol in its
place, the median of the first calls at further sizes, and the median of replays.

    compiled_sizes_torch.py [--threads N] [CASE...]
"""

import argparse
import os
import statistics
import tempfile
import time

# What an earlier run compiled is no new size.
cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name

import torch
import torch.nn.functional as F
from compiled_models_torch import GptLogits

SIZES = [8, 60, 24, 12, 16, 20, 28, 32, 40, 44, 48, 56]


def seconds(call) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e6


def measure(name: str, call) -> None:
    first, again, further, replays = seconds(lambda: call(SIZES[0])), seconds(lambda: call(SIZES[1])), [], []
    for size in SIZES[2:]:
        further.append(seconds(lambda: call(size)))
        call(size)
        replays.append(seconds(lambda: call(size)))
    figures = (first, again, statistics.median(further), statistics.median(replays))
    print(f"{name:28}", *(f"{figure:12.0f}" for figure in figures), flush=True)


def character_gpt(name: str) -> None:
    model = GptLogits()
    compiled = torch.compile(model)
    adam = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(length: int) -> None:
        x, y = torch.randint(0, 65, (4, length)), torch.randint(0, 65, (4, length))
        adam.zero_grad()
        F.cross_entropy(compiled(x), y.flatten()).backward()
        adam.step()

    measure(name, step)


def resnet18(name: str) -> None:
    import torchvision

    net = torchvision.models.resnet18().eval()
    compiled = torch.compile(net)

    @torch.no_grad()
    def infer(batch: int) -> None:
        compiled(torch.randn(batch, 3, 64, 64))

    measure(name, infer)


CASES = {"character_gpt_step_4xN": character_gpt, "resnet18_Nx64x64": resnet18}

TITLES = ("first size", "second size", "further size", "replay")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{'microseconds':28}", *(f"{title:>12}" for title in TITLES), flush=True)
    for name, case in CASES.items():
        if not options.cases or name in options.cases:
            case(name)
