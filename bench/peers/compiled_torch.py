"""The cases of bench/compiled.cpp in PyTorch: eager, and by torch.compile. Prints a line per case: its name, and the
medians in microseconds.

    compiled_torch.py [--threads N]
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F


def seconds(call, calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def compare(name: str, eager, compiled) -> None:
    for _ in range(5):
        eager()
        compiled()
    calls = max(1, int(0.02 / seconds(compiled, 3)))
    rounds = [(seconds(eager, calls), seconds(compiled, calls)) for _ in range(15)]
    plain, replayed = (statistics.median(times) for times in zip(*rounds))
    print(f"{name} {1e6 * plain:.3f} {1e6 * replayed:.3f}", flush=True)


def chain(name: str, size: int, operators: int) -> None:
    x = torch.randn(size)

    def function(y):
        for _ in range(operators // 2):
            y = y * 1.0001 + 0.5
        return y

    compiled = torch.compile(function)
    with torch.no_grad():
        compare(name, lambda: function(x), lambda: compiled(x))


def train_mlp(batch: int) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    sgd = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(batch, 784), torch.randint(0, 10, (batch,))

    def step_with(forward):
        def step():
            sgd.zero_grad()
            loss = F.cross_entropy(forward(x), y)
            loss.backward()
            sgd.step()
            return loss.detach()

        return step

    compare(f"mlp_step_{batch}", step_with(model), step_with(torch.compile(model)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    chain("chain_100_of_8", 8, 100)
    chain("chain_10_of_16M", 1 << 24, 10)
    train_mlp(1)
    train_mlp(64)


if __name__ == "__main__":
    main()
