#!/usr/bin/env python3
"""The cases of bench/cuda/models.cpp in PyTorch, with the same options and lines of output.

    torch_models.py [CASE ...] [--precision autocast|bfloat16|float32] [--compile] [--no-eager] [--profile]
                    [--seconds S] [--save FILE]

--compile also measures torch.compile. With bfloat16 parameters, PyTorch's optimizer keeps no float32 copies, so its
step moves half the bytes of ours. resnet50 is torchvision's, minilm is transformers' BertModel; the other models are
written here. Attention is F.scaled_dot_product_attention, optimizers are fused.
"""

import argparse
import contextlib
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

CUDA = torch.device("cuda")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class GPT2Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal=True)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocabulary: int = 50304, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.wte(x) + self.wpe.weight[: x.shape[1]]
        for block in self.h:
            h = block(h)
        return F.cross_entropy(F.linear(self.ln_f(h), self.wte.weight).flatten(0, 1), y.flatten())


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = Attention(width, heads, causal=False)
        self.ln_1, self.ln_2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.fc_1, self.fc_2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.ln_1(x + self.attn(x))
        return self.ln_2(x + self.fc_2(F.gelu(self.fc_1(x))))


class Bert(nn.Module):
    def __init__(self, vocabulary: int = 30522, width: int = 768, layers: int = 12, heads: int = 12) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        offset = self.positions.weight[: x.shape[1]] + self.types.weight[0]
        h = self.norm(self.words(x) + offset)
        for layer in self.layers:
            h = layer(h)
        return F.cross_entropy(F.linear(h, self.words.weight).flatten(0, 1), y.flatten())


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, head = heads, key_heads, width // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, key_heads * head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        h = self.norm_1(x)
        q = self.q(h).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = (f(h).view(batch, length, self.key_heads, -1).transpose(1, 2) for f in (self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """The shape of Llama 3.2 1B."""

    def __init__(self, vocabulary: int = 128256, width: int = 2048, inner: int = 8192, layers: int = 16) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, inner, 32, 8) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-6)
        frequencies = 500000.0 ** (-torch.arange(0, 64, 2) / 64)
        angles = torch.outer(torch.arange(2048), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x)
        for layer in self.layers:
            h = layer(h, self.cos.to(h.dtype), self.sin.to(h.dtype))
        return F.cross_entropy(F.linear(self.norm(h), self.tokens.weight).flatten(0, 1), y.flatten())


def initialize(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


# ---- what is measured


def peak_tflops() -> float:
    if not hasattr(peak_tflops, "value"):
        a, b = ((torch.rand(8192, 8192, device=CUDA) - 0.5).bfloat16() for _ in range(2))
        for _ in range(5):
            a @ b
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            a @ b
        torch.cuda.synchronize()
        peak_tflops.value = 2e-12 * 8192**3 * 20 / (time.perf_counter() - start)
    return peak_tflops.value


def measure(step, seconds: float) -> tuple[float, float]:
    """Returns the seconds of a step and those in which the host queues it: medians of three batches."""
    start = time.perf_counter()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    times = min(max(int(seconds / (time.perf_counter() - start)), 1), 1000)
    everything, host = [], []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(times):
            step()
        host.append((time.perf_counter() - start) / times)
        torch.cuda.synchronize()
        everything.append((time.perf_counter() - start) / times)
    return statistics.median(everything), statistics.median(host)


def report(name: str, precision: str, mode: str, items: int, flops: float, options, step) -> None:
    last = [None]

    def kept() -> None:
        last[0] = step()

    kept()
    first = float("nan") if last[0] is None else last[0].item()
    for _ in range(3):
        kept()
    torch.cuda.reset_peak_memory_stats()
    seconds, host = measure(kept, options.seconds)
    tflops = flops / seconds * 1e-12
    loss = float("nan") if last[0] is None else last[0].item()
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(
        f"{name:8} {precision:8} {mode:7} {seconds * 1e3:9.3f} ms {items / seconds:10.0f} /s {tflops:7.1f} TFLOP/s"
        f" {100 * tflops / peak_tflops():5.1f} % host {host * 1e3:8.3f} ms peak {peak:6.2f} GiB loss {first:.4f} {loss:.4f}",
        flush=True,
    )


def profile(step) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    print(found.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=110))


def run(name, precision, items, flops, options, model, optimizer, data) -> None:
    def step_of(function):
        def step() -> torch.Tensor:
            autocast = torch.autocast("cuda", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()
            with autocast:
                loss = function(*data)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    peak_tflops()
    if options.eager:
        report(name, precision, "eager", items, flops, options, step_of(model))
    if options.profile:
        profile(step_of(model))
    if options.compile:
        report(name, precision, "compile", items, flops, options, step_of(torch.compile(model)))


def train(name, model, precision, vocabulary, batch, length, width, layers, unused, causal, options) -> None:
    """`unused` parameters take part in no matrix product."""
    initialize(model)
    model.to(CUDA, torch.bfloat16 if precision == "bfloat16" else torch.float32)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x, y = (torch.randint(vocabulary, (batch, length), device=CUDA) for _ in range(2))
    products = sum(parameter.numel() for parameter in model.parameters()) - unused
    attention = 12 * layers * width * length * (0.5 if causal else 1)
    flops = batch * length * (6 * products + attention)
    run(name, precision, batch * length, flops, options, model, adam, (x, y))


def gpt2(precision: str, options) -> None:
    train("gpt2", GPT2(), precision, 50304, 16, 1024, 768, 12, 1024 * 768, True, options)


def bert(precision: str, options) -> None:
    train("bert", Bert(), precision, 30522, 16, 512, 768, 12, 512 * 768, False, options)


def encoder(precision: str, options) -> None:
    layer = nn.TransformerEncoderLayer(768, 12, 4 * 768, dropout=0, activation="gelu", batch_first=True)
    stack = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    stack.to(CUDA, torch.bfloat16 if precision == "bfloat16" else torch.float32)
    adam = torch.optim.AdamW(stack.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x = torch.randn(16, 512, 768, device=CUDA, dtype=next(stack.parameters()).dtype)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = stack

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.stack(x).float().square().mean()

    flops = 16 * 512 * (6 * 12 * 12 * 768 * 768 + 12 * 12 * 768 * 512)
    run("encoder", precision, 16 * 512, flops, options, Loss(), adam, (x,))


def llama(precision: str, options) -> None:
    train("llama", Llama(), precision, 128256, 4, 2048, 2048, 16, 0, True, options)


def resnet50(precision: str, options) -> None:
    import torchvision

    torch.backends.cudnn.benchmark = True
    net = torchvision.models.resnet50().to(CUDA, memory_format=torch.channels_last)
    sgd = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)
    x = torch.randn(128, 3, 224, 224, device=CUDA).to(memory_format=torch.channels_last)
    y = torch.randint(1000, (128,), device=CUDA)

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(self.net(x), y)

    run("resnet50", precision, 128, 3 * 2 * 4.089e9 * 128, options, Loss(), sgd, (x, y))


@torch.no_grad()
def minilm(precision: str, options, parts: int = 1) -> None:
    import transformers

    config = transformers.BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    place = 0
    for name, parameter in model.named_parameters():
        at = torch.arange(parameter.numel(), dtype=torch.float64) + place
        place += parameter.numel()
        scale = 0.08 if parameter.dim() > 1 else 0.02
        values = torch.frac(torch.sin(at * 12.9898) * 43758.5453) * scale
        parameter.copy_(values.view(parameter.shape) + (1 if name.endswith("LayerNorm.weight") else 0))
    model.to(CUDA, torch.bfloat16 if precision == "bfloat16" else torch.float32)
    order = list(range(256))
    if parts > 1:
        order.sort(key=lambda i: i * 37 % 113)
    batches = []
    for first in range(0, 256, 256 // parts):
        row = torch.tensor(order[first : first + 256 // parts]).unsqueeze(1)
        column = torch.arange((row[-1].item() * 37 % 113 + 16) if parts > 1 else 128)
        ids = (row * 7919 + column * 104729) % 30000 + 100
        batches.append((ids.to(CUDA), (column < row * 37 % 113 + 16).long().to(CUDA)))
    places = torch.tensor(order, device=CUDA)
    embeddings = None

    def step() -> None:
        nonlocal embeddings
        found = []
        for ids, mask in batches:
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
            weights = mask.unsqueeze(-1).float()
            found.append(F.normalize((hidden * weights).sum(1) / weights.sum(1).clamp(min=1)))
        embeddings = torch.empty(256, 384, device=CUDA).index_copy_(0, places, torch.cat(found))

    flops = 2 * 6 * (4 * 384 * 384 + 2 * 384 * 1536) * sum(ids.numel() for ids, _ in batches)
    name = "minilm4" if parts > 1 else "minilm"
    if options.eager:
        report(name, precision, "eager", 256, flops, options, step)
    if options.profile:
        profile(step)
    if options.save and precision == "float32":
        import safetensors.torch

        safetensors.torch.save_file({"embeddings": embeddings.cpu().contiguous()}, options.save)


def minilm_sorted(precision: str, options) -> None:
    minilm(precision, options, 4)


def main() -> None:
    cases = {
        "gpt2": (gpt2, ["bfloat16", "autocast"]),
        "bert": (bert, ["bfloat16", "autocast"]),
        "encoder": (encoder, ["bfloat16", "autocast"]),
        "llama": (llama, ["bfloat16", "autocast"]),
        "resnet50": (resnet50, ["autocast"]),
        "minilm": (minilm, ["float32", "bfloat16"]),
        "minilm4": (minilm_sorted, ["float32", "bfloat16"]),
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--precision")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--no-eager", dest="eager", action="store_false")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--save")
    options = parser.parse_args()
    for unknown in set(options.cases) - set(cases):
        parser.error(f"there is no case {unknown}")
    torch.manual_seed(0)
    for name in options.cases or cases:
        function, precisions = cases[name]
        for precision in [options.precision] if options.precision else precisions:
            function(precision, options)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
