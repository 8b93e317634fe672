"""The cases of bench/cuda/cases.cpp in PyTorch, measured the same way.

    python3 bench/peers/torch_cuda.py [PART OF NAMES]
"""

import sys
import time

import torch
import torch.nn.attention
import torch.nn.functional as F

CUDA = torch.device("cuda")
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


def fused_norms(rows: int, n: int) -> None:
    size = f"{rows}x{n}"
    x, residual, grad, grad_sum = (torch.rand(rows, n, device=CUDA).bfloat16() for _ in range(4))
    weight, bias = (torch.rand(n, device=CUDA).bfloat16() for _ in range(2))
    count = 2 * rows * n

    def forward():
        total = x + residual
        return total, *torch.native_layer_norm(total, [n], weight, bias, 1e-5)

    total, _, mean, rstd = forward()

    def backward() -> None:
        dx, _, _ = torch.ops.aten.native_layer_norm_backward(
            grad, total, [n], mean, rstd, weight, bias, [True, True, True]
        )
        dx + grad_sum

    def both() -> None:
        forward()
        backward()

    report(f"fused add + layer_norm {size}", 4 * count, forward)
    report(f"fused add + layer_norm gradient {size}", 4 * count, backward)
    report(f"fused add + layer_norm both {size}", 8 * count, both)
    inverse = total.float().square().mean(-1, keepdim=True).rsqrt()

    def rms() -> None:
        F.rms_norm(x + residual, [n], weight, 1e-5)
        dx, _ = torch.ops.aten._fused_rms_norm_backward(grad, total, [n], inverse, weight, [True, True])
        dx + grad_sum

    report(f"fused add + rms_norm both {size}", 8 * count, rms)


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
    x = torch.rand(8, 32, 4096, 128, device=CUDA).bfloat16()
    cos, sin = (torch.rand(4096, 64, device=CUDA).bfloat16().repeat(1, 2) for _ in range(2))

    def rotary() -> None:
        half = x.shape[-1] // 2
        x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    report("fused rotary 8x32x4096x128", 4 * x.numel(), rotary)
    up, gate = (torch.rand(16384, 11008, device=CUDA).bfloat16() for _ in range(2))
    report("fused swiglu 16384x11008", 6 * up.numel(), lambda: F.silu(gate) * up)

    def swiglu_gradient() -> None:  # autograd's operations; silu(gate) is saved
        torch.ops.aten.silu_backward(up * up, gate)
        up * gate

    report("fused swiglu gradient", 10 * up.numel(), swiglu_gradient)
    with torch.enable_grad():
        parameters = [torch.rand(*s, device=CUDA).requires_grad_() for _ in range(116) for s in ((1024, 1024), (1024,))]
    for p in parameters:
        p.grad = torch.rand_like(p)
    size = 116 * 1025 * 1024
    report("fused clip_grad_norm 122 M", 12 * size, lambda: torch.nn.utils.clip_grad_norm_(parameters, 0.5))
    report("fused clip_grad_norm, none cut", 4 * size, lambda: torch.nn.utils.clip_grad_norm_(parameters, 1e9))
    del parameters, up, gate, x
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
    x, y = torch.rand(n, device=CUDA), torch.rand(n, device=CUDA)
    out = torch.empty(n, device=CUDA)
    report("copy f32 64M", 8 * n, lambda: out.copy_(x))
    report("fill f32 64M", 4 * n, lambda: out.fill_(1))
    report("add f32 64M", 12 * n, lambda: torch.add(x, y, out=out))
    report("gelu f32 64M", 8 * n, lambda: F.gelu(x))
    xh, yh = x.bfloat16(), y.bfloat16()
    report("cast f32 to bf16 64M", 6 * n, lambda: x.bfloat16())
    report("add bf16 64M", 6 * n, lambda: xh + yh)
    data = torch.ones(1 << 28, dtype=torch.uint8, device=CUDA)
    report("cast u8 to f32 256M", 5 << 28, lambda: data.float())
    host, x = torch.rand(n), torch.rand(n, device=CUDA)
    report("host to device 256 MB", 4 * n, lambda: x.copy_(host))
    report("device to host 256 MB", 4 * n, lambda: host.copy_(x))
    small, y = torch.rand(16), torch.rand(16, device=CUDA)
    report("host to device 64 B", 64, lambda: y.copy_(small))
    report("device to host 64 B", 64, lambda: small.copy_(y))
    side = 8192
    size = 4 * side * side
    a = torch.rand(side, side, device=CUDA)
    out = torch.empty(side, side, device=CUDA)
    half, byte = a.bfloat16(), torch.ones(side, side, dtype=torch.uint8, device=CUDA)
    report("sum all 8192^2", size, lambda: a.sum())
    report("sum rows 8192^2", size, lambda: a.sum(1))
    report("sum columns 8192^2", size, lambda: a.sum(0))
    report("transpose f32 8192^2", 2 * size, lambda: out.copy_(a.t()))
    report("transpose bf16 8192^2", size, lambda: half.t().contiguous())
    report("transpose u8 8192^2", size / 2, lambda: byte.t().contiguous())
    halves = torch.empty_like(half)
    report("transpose f32 to bf16 8192^2", 1.5 * size, lambda: halves.copy_(a.t()))
    report("A + A^T 8192^2", 3 * size, lambda: a + a.t())
    box = a.view(256, 64, 64, 64)
    report("permute 0231 f32", 2 * size, lambda: box.permute(0, 2, 3, 1).contiguous())
    report("permute 0213 f32", 2 * size, lambda: box.permute(0, 2, 1, 3).contiguous())
    report("slice copy f32", size, lambda: a[:, :4096].contiguous())
    left, right = a[:, :4096].contiguous(), a[:, 4096:].contiguous()
    report("cat columns f32", 2 * size, lambda: torch.cat([left, right], 1))
    x = torch.rand(16384, 4096, device=CUDA).bfloat16()
    grad = torch.rand(16384, 4096, device=CUDA).bfloat16()
    weight, bias = (torch.rand(4096, device=CUDA).bfloat16(), torch.rand(4096, device=CUDA).bfloat16())
    size = 2 * 16384 * 4096
    report("softmax bf16 16384x4096", 2 * size, lambda: torch.softmax(x, -1))
    report("layer_norm bf16 16384x4096", 2 * size, lambda: torch.native_layer_norm(x, [4096], weight, bias, 1e-5))
    _, mean, rstd = torch.native_layer_norm(x, [4096], weight, bias, 1e-5)
    report("rms_norm bf16 16384x4096", 2 * size, lambda: F.rms_norm(x, [4096], weight, 1e-5))
    inverse = x.float().square().mean(-1, keepdim=True).rsqrt()
    report(
        "rms_norm backward",
        3 * size,
        lambda: torch.ops.aten._fused_rms_norm_backward(grad, x, [4096], inverse, weight, [True, True]),
    )
    report("dropout bf16 16384x4096", 2.5 * size, lambda: F.dropout(x, 0.5, True))
    report(
        "layer_norm backward",
        3 * size,
        lambda: torch.ops.aten.native_layer_norm_backward(
            grad, x, [4096], mean, rstd, weight, bias, [True, True, True]
        ),
    )
    scale, shift = torch.rand(256, device=CUDA).bfloat16(), torch.rand(256, device=CUDA).bfloat16()
    for name, (n, extent), last in (
        ("32x256x56", (32, 56), False),
        ("64x256x56", (64, 56), False),
        ("32x256x56 NHWC", (32, 56), True),
        ("4x256x160", (4, 160), False),
    ):
        image, slope = (torch.rand(n, 256, extent, extent, device=CUDA).bfloat16() for _ in range(2))
        if last:
            image, slope = (t.to(memory_format=torch.channels_last) for t in (image, slope))
        plane, size = extent * extent, 2 * image.numel()
        report(f"group_norm bf16 {name}", 2 * size, lambda: F.group_norm(image, 32, scale, shift))
        if last:  # the operator alone does not support this layout
            leaf = image.requires_grad_()
            with torch.enable_grad():
                out = F.group_norm(leaf, 32, scale.requires_grad_(), shift.requires_grad_())
            report(
                f"group_norm backward {name}",
                3 * size,
                lambda: torch.autograd.grad(out, (leaf, scale, shift), slope, retain_graph=True),
            )
            scale, shift = scale.detach(), shift.detach()
            continue
        _, mean, rstd = torch.native_group_norm(image, scale, shift, n, 256, plane, 32, 1e-5)
        report(
            f"group_norm backward {name}",
            3 * size,
            lambda: torch.ops.aten.native_group_norm_backward(
                slope, image, mean, rstd, scale, n, 256, plane, 32, [True, True, True]
            ),
        )
    x = torch.rand(8192, 50304, device=CUDA).bfloat16()
    target = torch.randint(50304, (8192,), device=CUDA)
    size = 2 * 8192 * 50304
    report("cross_entropy bf16", size, lambda: F.cross_entropy(x, target))
    leaf = x.clone().requires_grad_()
    with torch.enable_grad():
        loss = F.cross_entropy(leaf, target)
    report("cross_entropy backward", 2 * size, lambda: torch.autograd.grad(loss, leaf, retain_graph=True))
    del loss

    def step() -> None:
        with torch.enable_grad():
            F.cross_entropy(leaf, target).backward()
        leaf.grad = None

    report("cross_entropy + backward", 4 * size, step)
    grad = torch.rand(16, 1024, 1024, device=CUDA).bfloat16()
    index = torch.randint(50304, (16, 1024), device=CUDA)
    report(
        "embedding gradient bf16",
        2 * 50304 * 1024 + 2 * 16 * 1024 * 1024,
        lambda: torch.ops.aten.embedding_dense_backward(grad, index, 50304, -1, False),
    )
    # From here on, the last column is TFLOP/s.
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float32, "f32"), (torch.float32, "tf32")):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for side in (4096, 8192):
            a, b = (torch.rand(side, side, device=CUDA).to(dtype) for _ in range(2))
            report(f"matmul {name} {side}", 2e-3 * side**3, lambda a=a, b=b: a @ b)
    x, weight = (torch.rand(16384, 1024, device=CUDA).bfloat16(), torch.rand(4096, 1024, device=CUDA).bfloat16())
    bias = torch.rand(4096, device=CUDA).bfloat16()
    x, weight, bias = x - 0.5, (weight - 0.5) * 0.25, bias - 0.5
    report("linear + bias + gelu bf16", 2e-3 * 16384 * 1024 * 4096, lambda: F.gelu(F.linear(x, weight, bias)))
    report(
        "linear + bias + gelu tanh",
        2e-3 * 16384 * 1024 * 4096,
        lambda: F.gelu(F.linear(x, weight, bias), approximate="tanh"),
    )
    torch.backends.cudnn.benchmark = True
    for channels, extent, kernel, stride, filters in (
        (64, 56, 3, 1, 64),
        (128, 28, 3, 1, 128),
        (256, 14, 3, 1, 256),
        (3, 224, 7, 2, 64),
    ):
        last = {"memory_format": torch.channels_last}
        x = torch.rand(64, channels, extent, extent, device=CUDA).bfloat16().to(**last)
        w = torch.rand(filters, channels, kernel, kernel, device=CUDA).bfloat16().to(**last)
        conv = {"stride": [stride] * 2, "padding": [kernel // 2] * 2}
        y = F.conv2d(x, w, **conv)
        flops = 2e-3 * y.numel() * channels * kernel * kernel
        name = f"conv {channels}x{extent}"
        report(f"{name} forward", flops, lambda: F.conv2d(x, w, **conv))

        def backward(mask) -> None:
            torch.ops.aten.convolution_backward(
                y, x, w, None, [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1, mask
            )

        if channels != 3:
            report(f"{name} input gradient", flops, lambda: backward([True, False, False]))
        report(f"{name} weight gradient", flops, lambda: backward([False, True, False]))
    for batch, heads, key_heads, length, width, causal in (
        (8, 16, 16, 4096, 128, False),
        (8, 16, 16, 4096, 128, True),
        (2, 64, 8, 8192, 128, True),
        (8, 16, 16, 4096, 64, False),
        (8, 16, 16, 4096, 64, True),
        (4, 48, 48, 4096, 32, True),
        (8, 16, 16, 4096, 96, False),
        (8, 8, 8, 4096, 256, False),
    ):
        name = f"attention {batch}x{heads}x{length}x{width}" + (" causal" if causal else "")
        if WANTED not in f"{name} forward" and WANTED not in f"{name} backward":
            continue
        q, k, v = (
            torch.rand(batch, h, length, width, device=CUDA).bfloat16().requires_grad_()
            for h in (heads, key_heads, key_heads)
        )
        flops = (2e-3 if causal else 4e-3) * q.numel() * length
        with torch.enable_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):

            def forward() -> torch.Tensor:
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != key_heads)

            report(f"{name} forward", flops, forward)
            y = forward()
            grad = torch.rand_like(y)
            report(f"{name} backward", 2.5 * flops, lambda: torch.autograd.grad(y, (q, k, v), grad, retain_graph=True))
    for dtype, dtype_name in ((torch.bfloat16, "bf16"), (torch.float32, "float32")):
        name = f"attention decode one tensor {dtype_name}"
        if WANTED not in name:
            continue
        q = torch.rand(64, 64, 1, 128, device=CUDA).to(dtype)
        k, v = (torch.rand(64, 8, 8192, 128, device=CUDA).to(dtype) for _ in range(2))
        bytes_read = 2 * k.numel() * k.element_size()
        report(name, bytes_read, lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    for mask in ("bool mask", "additive mask", "dropout"):
        name = f"attention 8x16x2048x128 {mask}"
        if WANTED not in f"{name} forward" and WANTED not in f"{name} backward":
            continue
        q, k, v = (torch.rand(8, 16, 2048, 128, device=CUDA).bfloat16().requires_grad_() for _ in range(3))
        m, inputs = None, [q, k, v]
        if mask == "bool mask":
            m = torch.rand(8, 1, 2048, 2048, device=CUDA) > 0.1
        if mask == "additive mask":
            m = torch.rand(1, 16, 2048, 2048, device=CUDA).bfloat16().requires_grad_()
            inputs.append(m)
        p = 0.1 if mask == "dropout" else 0.0
        flops = 4e-3 * q.numel() * 2048
        with torch.enable_grad():

            def forward() -> torch.Tensor:
                return F.scaled_dot_product_attention(q, k, v, m, dropout_p=p)

            report(f"{name} forward", flops, forward)
            y = forward()
            grad = torch.rand_like(y)
            report(f"{name} backward", 2.5 * flops, lambda: torch.autograd.grad(y, inputs, grad, retain_graph=True))
    if WANTED in "fused" or "fused" in WANTED:
        fused_cases()
    with torch.enable_grad():
        parameters = [torch.rand(*s, device=CUDA).requires_grad_() for _ in range(116) for s in ((1024, 1024), (1024,))]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer = torch.optim.AdamW(parameters, fused=True)
    report("AdamW 122 M", 28 * 116 * 1025 * 1024, optimizer.step)
    x, y, out = (torch.rand(8, device=CUDA) for _ in range(3))
    print(f"host: add, 8 floats          {host_cost(lambda: x + y):10.1f} ns (with Python)")
    print(f"host: add_out, 8 floats      {host_cost(lambda: torch.add(x, y, out=out)):10.1f} ns (with Python)")


if __name__ == "__main__":
    main()
