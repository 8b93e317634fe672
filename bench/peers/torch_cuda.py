"""The cases of bench/cuda/cases.cpp in PyTorch, measured the same way.

    python3 bench/peers/torch_cuda.py [PART OF NAMES]
"""

import sys
import time

import torch
import torch.nn.functional as F

CUDA = torch.device("cuda")
PARAMETERS = 116 * 1025 * 1024
WANTED = sys.argv[1] if len(sys.argv) > 1 else ""


def measure(run) -> float:
    """Returns the microseconds of a call: the median of five batches, each of which fills the queue."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    times = int(min(max(0.02 / (time.perf_counter() - start), 5), 2000))
    batches = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(times):
            run()
        torch.cuda.synchronize()
        batches.append((time.perf_counter() - start) / times * 1e6)
    return sorted(batches)[2]


def report(name: str, size: float, run) -> None:
    if WANTED not in name:
        return
    us = measure(run)
    print(f"{name:30} {us:10.2f} {size / us / 1e3:9.1f}", flush=True)


def report_peak(name: str, run) -> None:
    """Prints the most device memory that a call needs beyond what is allocated before it."""
    if WANTED not in name:
        return
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    print(f"{'    peak memory':30} {(torch.cuda.max_memory_allocated() - before) / 2**20:10.1f} MiB", flush=True)


def many_parameters() -> list[torch.Tensor]:
    """Returns parameters with gradients."""
    parameters = [torch.rand(s, device=CUDA).requires_grad_() for _ in range(116) for s in ((1024, 1024), (1024,))]
    for p in parameters:
        p.grad = torch.rand_like(p)
    return parameters


def fused_norms(rows: int, n: int) -> None:
    """The forward and the backward call of the norms of a sum."""
    size = f"{rows}x{n}"
    x, residual, grad, grad_sum = (torch.rand(rows, n, device=CUDA).bfloat16() for _ in range(4))
    weight, bias = (torch.rand(n, device=CUDA).bfloat16() for _ in range(2))

    def layer_norm() -> None:
        total = x + residual
        _, mean, rstd = torch.native_layer_norm(total, [n], weight, bias, 1e-5)
        args = (grad, total, [n], mean, rstd, weight, bias, [True, True, True])
        torch.ops.aten.native_layer_norm_backward(*args)[0] + grad_sum

    inverse = (x + residual).float().square().mean(-1, keepdim=True).rsqrt()

    def rms_norm() -> None:
        total = x + residual
        F.rms_norm(total, [n], weight, 1e-5)
        args = (grad, total, [n], inverse, weight, [True, True])
        torch.ops.aten._fused_rms_norm_backward(*args)[0] + grad_sum

    report(f"fused add + layer_norm both {size}", 16 * rows * n, layer_norm)
    report(f"fused add + rms_norm both {size}", 16 * rows * n, rms_norm)


def fused_cross_entropy(rows: int, width: int, classes: int) -> None:
    """The last column is TFLOP/s."""
    name = f"fused linear_cross_entropy {rows}x{width}x{classes}"
    if WANTED not in name:
        return
    x = (torch.rand(rows, width, device=CUDA).bfloat16() - 0.5).requires_grad_()
    weight = ((torch.rand(classes, width, device=CUDA).bfloat16() - 0.5) * 0.125).requires_grad_()
    target = torch.randint(classes, (rows,), device=CUDA)

    def step() -> None:
        with torch.enable_grad():
            F.cross_entropy(F.linear(x, weight), target).backward()
        x.grad = weight.grad = None

    report(name, 6e-3 * rows * width * classes, step)
    report_peak(name, step)


def fused_cases() -> None:
    fused_norms(16384, 768)
    fused_norms(8192, 4096)
    parameters = many_parameters()
    report("fused clip_grad_norm 122 M", 12 * PARAMETERS, lambda: torch.nn.utils.clip_grad_norm_(parameters, 0.5))
    report("fused clip_grad_norm, none cut", 4 * PARAMETERS, lambda: torch.nn.utils.clip_grad_norm_(parameters, 1e9))
    del parameters
    fused_cross_entropy(16384, 768, 50304)
    fused_cross_entropy(8192, 4096, 128256)


def host_cost(run) -> float:
    batches = []
    for _ in range(200):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(100):
            run()
        batches.append((time.perf_counter() - start) / 100 * 1e9)
    return sorted(batches)[100]


@torch.no_grad()
def main() -> None:
    n = 64 << 20
    host, x = torch.rand(n), torch.rand(n, device=CUDA)
    report("host to device 256 MB", 4 * n, lambda: x.copy_(host))
    report("device to host 256 MB", 4 * n, lambda: host.copy_(x))
    small, y = torch.rand(16), torch.rand(16, device=CUDA)
    report("host to device 64 B", 64, lambda: y.copy_(small))
    report("device to host 64 B", 64, lambda: small.copy_(y))
    if WANTED in "cross_entropy + backward":
        leaf = torch.rand(8192, 50304, device=CUDA).bfloat16().requires_grad_()
        target = torch.randint(50304, (8192,), device=CUDA)

        def step() -> None:
            with torch.enable_grad():
                F.cross_entropy(leaf, target).backward()
            leaf.grad = None

        report("cross_entropy + backward", 8 * leaf.numel(), step)
    if WANTED in "fused" or "fused" in WANTED:
        fused_cases()
    optimizer = torch.optim.AdamW(many_parameters(), fused=True)
    report("AdamW 122 M", 28 * PARAMETERS, optimizer.step)
    x, y, out = (torch.rand(8, device=CUDA) for _ in range(3))
    print(f"host: add, 8 floats          {host_cost(lambda: x + y):10.1f} ns (with Python)")
    print(f"host: add_out, 8 floats      {host_cost(lambda: torch.add(x, y, out=out)):10.1f} ns (with Python)")


if __name__ == "__main__":
    main()
