"""The cases of bench/compiled.cpp in PyTorch: eager, and by torch.compile. Prints a line per case: its name, and the
medians in microseconds.

    compiled_torch.py [--threads N] [--device DEVICE]

On a GPU, the compiled time is that of the best of the modes "default" and "reduce-overhead".
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F


DEVICE = "cpu"


def modes() -> list[str]:
    return ["default"] if DEVICE == "cpu" else ["default", "reduce-overhead"]


def synchronize() -> None:
    if DEVICE != "cpu":
        torch.cuda.synchronize()


def seconds(call, calls: int) -> float:
    synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return (time.perf_counter() - begin) / calls


def compare(name: str, eager, variants: list) -> None:
    best = None
    for compiled in variants:
        for _ in range(5):
            eager()
            compiled()
        calls = max(1, int(0.02 / seconds(compiled, 3)))
        rounds = [(seconds(eager, calls), seconds(compiled, calls)) for _ in range(15)]
        plain, replayed = (statistics.median(times) for times in zip(*rounds))
        if best is None or replayed < best[1]:
            best = plain, replayed
    print(f"{name} {1e6 * best[0]:.3f} {1e6 * best[1]:.3f}", flush=True)


def compare_function(name: str, function, *arguments) -> None:
    def call_of(compiled):
        return lambda: compiled(*arguments)

    with torch.no_grad():
        compare(name, call_of(function), [call_of(torch.compile(function, mode=mode)) for mode in modes()])


def chain(name: str, size: int, operators: int) -> None:
    def function(y):
        for _ in range(operators // 2):
            y = y * 1.0001 + 0.5
        return y

    compare_function(name, function, torch.randn(size, device=DEVICE))


def layer_norm(x, weight, bias):
    wide = x.float()
    centered = wide - wide.mean(-1, keepdim=True)
    scale = torch.rsqrt(centered.square().mean(-1, keepdim=True) + 1e-5)
    return (centered * scale * weight + bias).to(x.dtype)


def layer_norm_of_var(x, weight, bias):
    variance, mean = torch.var_mean(x.float(), -1, correction=0, keepdim=True)
    return ((x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias).to(x.dtype)


def cross_entropy_of(x, labels):
    wide = x.float()
    own = wide.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return (torch.logsumexp(wide, -1) - own).mean()


def softmax_of(x):
    wide = x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def residual_rms_norm(x, residual, weight):
    total = x.float() + residual.float()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
    return (total * scale * weight).to(x.dtype)


def rows(count: int, width: int) -> None:
    x, y = (torch.randn(count, width, device=DEVICE).bfloat16() for _ in range(2))
    weight, bias = (torch.randn(width, device=DEVICE) for _ in range(2))
    compare_function("layer_norm", layer_norm, x, weight, bias)
    compare_function("layer_norm_of_var", layer_norm_of_var, x, weight, bias)
    compare_function("softmax", softmax_of, x)
    compare_function("residual_rms_norm", residual_rms_norm, x, y, weight)


def losses(count: int, classes: int) -> None:
    x = torch.randn(count, classes, device=DEVICE).bfloat16()
    compare_function("cross_entropy", cross_entropy_of, x, torch.randint(0, classes, (count,), device=DEVICE))


def copy_of(size: int) -> None:
    x = torch.randn(size, device=DEVICE)
    y = torch.empty_like(x)
    time_of = statistics.median(seconds(lambda: y.copy_(x), 5) for _ in range(15))
    print(f"copy_of_{size >> 20}M {1e6 * time_of:.3f} {1e6 * time_of:.3f}", flush=True)


def train_mlp(batch: int) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    ).to(DEVICE)
    sgd = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(batch, 784, device=DEVICE), torch.randint(0, 10, (batch,), device=DEVICE)

    def step_with(forward):
        def step():
            sgd.zero_grad()
            loss = F.cross_entropy(forward(x), y)
            loss.backward()
            sgd.step()
            return loss.detach()

        return step

    compare(f"mlp_step_{batch}", step_with(model), [step_with(torch.compile(model, mode=mode)) for mode in modes()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    global DEVICE
    DEVICE = options.device
    copy_of(1 << 24 if DEVICE == "cpu" else 1 << 26)
    if DEVICE == "cpu":
        chain("chain_100_of_8", 8, 100)
        chain("chain_10_of_16M", 1 << 24, 10)
        rows(1024, 1024)
        losses(512, 50304)
    else:
        chain("chain_100_of_64", 64, 100)
        chain("chain_10_of_64M", 1 << 26, 10)
        rows(16384, 4096)
        losses(8192, 50304)
    train_mlp(1)
    train_mlp(64)


if __name__ == "__main__":
    main()
