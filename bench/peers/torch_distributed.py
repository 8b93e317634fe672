#!/usr/bin/env python3
"""The cases of bench/distributed in PyTorch, with the same options and lines of JSON.

    python3 -m torch.distributed.run --standalone --nproc-per-node N torch_distributed.py CASE ... [options]

Each case is set up as PyTorch documents it to be fastest in eager mode: static graphs and gradients as views of buckets
(DDP), fully_shard of each layer with its own prefetching (FSDP2), parallelize_module, Schedule1F1B, context_parallel,
and for experts grouped_mm behind all_to_all_single. Optimizers are fused. PyTorch has no Ulysses attention of its own:
the case `ulysses` exchanges tokens and heads with its differentiable all_to_all_single.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_models import GPT2, initialize, rotated


class Bench:
    """Settings of all cases, the group, and timing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.cuda = options.device == "cuda"
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
            dist.init_process_group("nccl", device_id=self.device)
        else:
            dist.init_process_group("gloo")
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.mesh = init_device_mesh(options.device, (self.ranks,))

    def size(self, full: int, small: int) -> int:
        return small if self.options.tiny else full

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def largest(self, value: float) -> float:
        x = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(x, dist.ReduceOp.MAX)
        return x.item()

    def peak(self) -> float:
        if self.cuda:
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def timed(self, step) -> list[float]:
        """Returns the seconds of a step in each sample, sorted."""

        def sample(steps: int) -> float:
            dist.barrier()
            self.synchronize()
            begin = time.perf_counter()
            for _ in range(steps):
                step()
            self.synchronize()
            return self.largest((time.perf_counter() - begin) / steps)

        fitting = self.options.seconds / (self.options.samples * max(sample(1), 1e-9))
        steps = int(min(max(fitting, 1), self.options.steps))
        return sorted(sample(steps) for _ in range(self.options.samples))

    def measure(self, record: dict, step, items: float, unit: str) -> float:
        losses = []
        for _ in range(3):
            loss = step()
            if loss is not None:
                mean = loss.detach().float().clone() / self.ranks
                dist.all_reduce(mean)
                losses.append(mean.item())
        self.synchronize()
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()
        seconds = self.timed(step)
        median = statistics.median_high(seconds)
        record |= {"step_ms": 1e3 * median, "min_ms": 1e3 * seconds[0], "max_ms": 1e3 * seconds[-1]}
        record |= {
            "unit": unit,
            "per_second": items / median,
            "peak_bytes": self.largest(self.peak()),
            "losses": losses,
        }
        return median

    def record(self, name: str) -> dict:
        return {"case": name, "framework": "PyTorch", "ranks": self.ranks}

    def print(self, record: dict) -> None:
        if self.rank == 0:
            print(json.dumps(record), flush=True)


# ---- copies


def train(bench: Bench, record: dict, model: nn.Module, optimizer, loss, autocast: bool, items: int, unit: str) -> None:
    """`loss` takes the wrapped model."""
    parallel = model
    if bench.ranks > 1:
        ids = [bench.device] if bench.cuda else None
        parallel = nn.parallel.DistributedDataParallel(
            model, device_ids=ids, static_graph=True, gradient_as_bucket_view=True
        )

    def step() -> torch.Tensor:
        with torch.autocast(bench.device.type, torch.bfloat16) if autocast else contextlib.nullcontext():
            value = loss(parallel)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()
        return value.detach()

    median = bench.measure(record, step, items * bench.ranks, unit)
    size = sum(parameter.nbytes for parameter in model.parameters())
    record["gradient_bytes"] = size
    if bench.ranks == 1:
        return
    with parallel.no_sync():
        step()
        alone = statistics.median_high(bench.timed(step))
    x = torch.zeros(size // 4, device=bench.device)
    for _ in range(3):
        dist.all_reduce(x)
    reduction = statistics.median_high(bench.timed(lambda: dist.all_reduce(x)))
    record |= {"no_sync_ms": 1e3 * alone, "all_reduce_ms": 1e3 * reduction}
    record["hidden"] = 1 - (median - alone) / reduction


def adamw(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def ddp_gpt2(bench: Bench, name: str) -> None:
    batch, length, vocabulary = bench.size(16, 2), bench.size(1024, 16), bench.size(50304, 128)
    model = GPT2(vocabulary, bench.size(768, 32), bench.size(12, 2), bench.size(12, 2))
    initialize(model)
    model.to(bench.device)
    if model.wpe.weight.shape[0] != length:
        model.wpe = nn.Embedding(length, model.wpe.weight.shape[1], device=bench.device)
    torch.manual_seed(1 + bench.rank)
    x, y = (torch.randint(vocabulary, (batch, length)).to(bench.device) for _ in range(2))
    record = bench.record(name)
    train(bench, record, model, adamw(model.parameters()), lambda net: net(x, y), True, batch * length, "tokens")
    bench.print(record)


def ddp_resnet50(bench: Bench, name: str) -> None:
    import torchvision

    torch.backends.cudnn.benchmark = True
    batch, side, classes = bench.size(128, 2), bench.size(224, 32), bench.size(1000, 10)
    make = torchvision.models.resnet18 if bench.options.tiny else torchvision.models.resnet50
    net = make(num_classes=classes).to(bench.device, memory_format=torch.channels_last)
    sgd = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)
    torch.manual_seed(1 + bench.rank)
    x = torch.randn(batch, 3, side, side).to(bench.device, memory_format=torch.channels_last)
    y = torch.randint(classes, (batch,)).to(bench.device)
    record = bench.record(name)
    train(bench, record, net, sgd, lambda parallel: F.cross_entropy(parallel(x), y), True, batch, "images")
    bench.print(record)


def ddp_mlp(bench: Bench, name: str) -> None:
    batch, width = bench.size(1024, 8), bench.size(256, 8)
    layers = [layer for _ in range(100) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers).to(bench.device)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    torch.manual_seed(1 + bench.rank)
    x = torch.randn(batch, width).to(bench.device)
    record = bench.record(name)
    train(bench, record, model, sgd, lambda net: net(x).square().mean(), False, batch, "rows")
    bench.print(record)


# ---- sharded parameters


class LlamaLayer(nn.Module):
    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        h = self.norm_1(x)
        q, k, v = (f(h).view(batch, length, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, vocabulary: int, width: int, inner: int, layers: int, heads: int, recompute: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaLayer(width, inner, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-6)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.width, self.recompute = width // heads, recompute

    def angles(self, length: int, device: torch.device) -> None:
        frequencies = 10000.0 ** (-torch.arange(0, self.width, 2, device=device) / self.width)
        angles = torch.outer(torch.arange(length, device=device), frequencies).repeat(1, 2)
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.tokens(x)
        for layer in self.layers:
            if self.recompute:
                h = checkpoint(layer, h, self.cos, self.sin, use_reentrant=False)
            else:
                h = layer(h, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1).float(), y.flatten())


def fsdp(bench: Bench, name: str) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    shapes = {"1.3b": (32000, 2048, 5504, 24, 16), "7b": (32000, 4096, 11008, 32, 32)}
    shape, length = shapes[bench.options.model], 2048
    batch = 4 if bench.options.model == "1.3b" else 2
    if bench.options.tiny:
        shape, batch, length = (64, 32, 48, 2, 2), 2, 8
    with torch.device("meta"):
        model = Llama(*shape, bench.options.recompute)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=bench.mesh, mp_policy=policy)
    fully_shard(model, mesh=bench.mesh, mp_policy=policy)
    model.to_empty(device=bench.device)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)
        else:
            nn.init.ones_(parameter)
    model.angles(length, bench.device)
    adam = adamw(model.parameters())
    torch.manual_seed(1 + bench.rank)
    x, y = (torch.randint(shape[0], (batch, length)).to(bench.device) for _ in range(2))
    record = bench.record(name)
    record["parameters"] = sum(parameter.numel() for parameter in model.parameters())

    def step() -> torch.Tensor:
        loss = model(x, y)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        return loss.detach()

    bench.measure(record, step, batch * length * bench.ranks, "tokens")
    bench.print(record)


# ---- split layers


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = width // heads

    def attention(self, h: torch.Tensor) -> torch.Tensor:
        # A head's queries, keys and values lie side by side, so that a rank's columns are those of its heads.
        q, k, v = self.qkv(h).unflatten(-1, (-1, 3, self.head)).permute(3, 0, 2, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.out(self.attention(self.norm_1(x)))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


def tensor_parallel(bench: Bench, name: str) -> None:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor import parallel as tp

    sequence = name.endswith("-sequence")
    full = 8192 if "wide" in name else 4096
    batch, length, width = bench.size(4, 2), bench.size(2048, 16), bench.size(full, 64)
    heads = bench.size(full // 128, 4)
    with torch.device(bench.device):
        block = Block(width, heads).to(bench.dtype)
    if bench.ranks > 1:
        inner = {"input_layouts": Shard(1)} if sequence else {}
        outer = {"output_layouts": Shard(1)} if sequence else {}
        plan = {key: tp.ColwiseParallel(**inner) for key in ("qkv", "up")}
        plan |= {key: tp.RowwiseParallel(**outer) for key in ("out", "down")}
        if sequence:
            plan |= {key: tp.SequenceParallel() for key in ("norm_1", "norm_2")}
        tp.parallelize_module(block, bench.mesh, plan)
    x = torch.randn(batch, length, width).to(bench.device, bench.dtype)
    if sequence:
        x = x.chunk(bench.ranks, 1)[bench.rank].clone()
    x.requires_grad_()
    record = bench.record(name)

    def step() -> torch.Tensor:
        block.zero_grad(set_to_none=True)
        x.grad = None
        loss = block(x).float().square().mean()
        loss.backward()
        return loss.detach()

    bench.measure(record, step, batch * length, "tokens")
    bench.print(record)


# ---- stages


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def pipeline(bench: Bench, name: str) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    count = int(name.rsplit("-")[-1])
    width, rows, layers = bench.size(4096, 32), bench.size(2048, 8), bench.size(8, 4)
    with torch.device(bench.device):
        model = nn.Sequential(*(FeedForward(width) for _ in range(layers // bench.ranks))).to(bench.dtype)
    x = torch.randn(count * rows, width).to(bench.device, bench.dtype)

    def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return out.float().square().mean()

    if bench.ranks > 1:
        stage = PipelineStage(model, bench.rank, bench.ranks, bench.device)
        schedule = Schedule1F1B(stage, count, loss)
    first, last = bench.rank == 0, bench.rank == bench.ranks - 1

    def step() -> None:
        model.zero_grad(set_to_none=True)
        if bench.ranks == 1:
            for part in x.chunk(count):
                (loss(model(part), part) / count).backward()
            return
        schedule.step(*([x] if first else []), **({"target": x} if last else {}))

    record = bench.record(name)
    median = bench.measure(record, step, count * rows, "rows")
    losses: list[torch.Tensor] = []
    if bench.ranks > 1:
        model.zero_grad(set_to_none=True)
        schedule.step(*([x] if first else []), **({"target": x, "losses": losses} if last else {}))
    else:
        losses = [loss(model(part), part).detach() for part in x.chunk(count)]
    # The last stage has them.
    record["losses"] = [bench.largest(torch.stack(losses).mean().item() if losses else 0)]
    part = x[:rows].clone().requires_grad_()

    def alone() -> None:
        model.zero_grad(set_to_none=True)
        for _ in range(count):
            part.grad = None
            loss(model(part), part).backward()

    alone()
    work = statistics.median_high(bench.timed(alone))
    record |= {"work_ms": 1e3 * work, "bubble": 1 - work / median}
    record["bubble_in_theory"] = (bench.ranks - 1) / (count + bench.ranks - 1)
    bench.print(record)


# ---- split sequences


def exchanged(x: torch.Tensor, group, to_heads: bool) -> torch.Tensor:
    """(1, heads, tokens, width): of all heads and this rank's tokens, to this rank's heads and all tokens, or back."""
    ranks = dist.get_world_size(group)
    _, heads, tokens, width = x.shape
    if to_heads:  # parts of heads go to the ranks
        sent = x.view(ranks, heads // ranks, tokens, width).contiguous()
    else:
        sent = x.view(heads, ranks, tokens // ranks, width).transpose(0, 1).contiguous()
    received = all_to_all_single_autograd(sent.flatten(0, 1), None, None, group)
    received = received.wait() if hasattr(received, "wait") else received
    received = received.view(sent.shape)
    if to_heads:
        return received.transpose(0, 1).reshape(1, heads // ranks, tokens * ranks, width)
    return received.reshape(1, heads * ranks, tokens // ranks, width)


def split_sequences(bench: Bench, name: str) -> None:
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method

    if name == "ring" and not bench.cuda and bench.ranks > 1:
        bench.print(bench.record(name) | {"failed": "context_parallel has no kernel for the CPU"})
        return

    length, heads, width = bench.size(131072, 64), bench.size(16, 4), bench.size(128, 8)
    torch.manual_seed(1 + bench.rank)
    mine = length // bench.ranks
    shape = (1, heads, mine if name == "ulysses" else length, width)
    x = [torch.randn(shape, device=bench.device, dtype=bench.dtype) for _ in range(3)]
    gradient = torch.randn((1, heads, mine, width), device=bench.device, dtype=bench.dtype)
    record = bench.record(name)
    group = bench.mesh.get_group()
    sharded = name == "ring" and bench.ranks > 1
    context = contextlib.nullcontext()
    if sharded:
        context = context_parallel(bench.mesh, buffers=x, buffer_seq_dims=[2] * 3, no_restore_buffers=set(x))
    with context:
        for tensor in x:
            tensor.requires_grad_()

        def step() -> None:
            if name == "ulysses" and bench.ranks > 1:
                parts = [exchanged(tensor, group, True) for tensor in x]
                y = exchanged(F.scaled_dot_product_attention(*parts, is_causal=True), group, False)
            else:
                y = F.scaled_dot_product_attention(*x, is_causal=True)
            torch.autograd.grad(y, x, gradient)

        # Keys are gathered at once or passed around; the faster counts.
        found = []
        for rotation in ("allgather", "alltoall") if sharded else ("none",):
            if sharded:
                set_rotate_method(rotation)
            found.append(record | {"rotation": rotation})
            bench.measure(found[-1], step, length, "tokens")
    bench.print(min(found, key=lambda one: one["step_ms"]))


# ---- experts

EXPERTS, TAKEN = 8, 2


class Experts(nn.Module):
    """Eight experts, divided over the ranks. Products of a rank's experts are one grouped_mm each."""

    def __init__(self, width: int, hidden: int, ranks: int) -> None:
        super().__init__()
        self.ranks, self.here = ranks, EXPERTS // ranks
        self.router = nn.Linear(width, EXPERTS, bias=False)
        self.up = nn.Parameter(0.02 * torch.randn(self.here, width, 2 * hidden))
        self.down = nn.Parameter(0.02 * torch.randn(self.here, hidden, width))
        with torch.no_grad():
            self.router.weight.zero_()
            self.router.weight[:, :EXPERTS].copy_(torch.eye(EXPERTS))

    def exchange(self, x: torch.Tensor, received: list[int], sent: list[int]) -> torch.Tensor:
        if self.ranks == 1:
            return x
        y = all_to_all_single_autograd(x.contiguous(), received, sent, dist.group.WORLD)
        return y.wait() if hasattr(y, "wait") else y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).float().softmax(-1).topk(TAKEN, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        theirs = counts
        if self.ranks > 1:
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts)
        sent = counts.view(self.ranks, -1).sum(1).tolist()
        received = theirs.view(self.ranks, -1).sum(1).tolist()
        tokens = self.exchange(x[order // TAKEN], received, sent)
        # Those of one expert next to each other.
        expert = torch.arange(self.here, device=x.device).repeat(self.ranks).repeat_interleave(theirs)
        place = expert.argsort(stable=True)
        ends = theirs.view(self.ranks, self.here).sum(0).cumsum(0).int()
        gate, up = F.grouped_mm(tokens[place], self.up, offs=ends).chunk(2, -1)
        y = F.grouped_mm(F.silu(gate) * up, self.down, offs=ends)
        y = torch.empty_like(y).index_copy(0, place, y)
        y = self.exchange(y, sent, received) * weights.flatten()[order].unsqueeze(1).to(x.dtype)
        return torch.zeros_like(x).index_add(0, order // TAKEN, y)


class Dense(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def experts(bench: Bench, name: str) -> None:
    width, hidden, tokens = bench.size(4096, 32), bench.size(14336, 48), bench.size(8192, 32)
    with torch.device(bench.device):
        layer, dense = (make.to(bench.dtype) for make in (Experts(width, hidden, bench.ranks), Dense(width, hidden)))
        torch.manual_seed(1 + bench.rank)
        x, wide = (torch.randn(count, width) for count in (tokens, TAKEN * tokens))
        at = torch.arange(tokens).unsqueeze(1)
        x[:, :EXPERTS] = 4.0 * (torch.arange(EXPERTS) == at % EXPERTS) + 3.0 * (
            torch.arange(EXPERTS) == (at + 1) % EXPERTS
        )
    x, wide = (tensor.to(bench.dtype).requires_grad_() for tensor in (x, wide))

    def step_of(module: nn.Module, given: torch.Tensor) -> torch.Tensor:
        module.zero_grad(set_to_none=True)
        given.grad = None
        loss = module(given).float().square().mean()
        loss.backward()
        return loss.detach()

    record = bench.record(name)
    median = bench.measure(record, lambda: step_of(layer, x), tokens * bench.ranks, "tokens")
    for _ in range(3):
        step_of(dense, wide)
    alone = statistics.median_high(bench.timed(lambda: step_of(dense, wide)))
    flops = 18.0 * TAKEN * tokens * width * hidden
    record |= {"teraflops": 1e-12 * flops / median, "dense_teraflops": 1e-12 * flops / alone}
    record["share_of_dense"] = alone / median
    bench.print(record)


CASES = {
    "ddp-gpt2": ddp_gpt2,
    "ddp-resnet50": ddp_resnet50,
    "ddp-mlp": ddp_mlp,
    "fsdp": fsdp,
    "tp": tensor_parallel,
    "tp-sequence": tensor_parallel,
    "tp-wide": tensor_parallel,
    "tp-wide-sequence": tensor_parallel,
    "pipeline-8": pipeline,
    "pipeline-16": pipeline,
    "ring": split_sequences,
    "ulysses": split_sequences,
    "experts": experts,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=CASES, metavar="CASE")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--model", choices=("1.3b", "7b"), default="1.3b")
    options = parser.parse_args()
    bench = Bench(options)
    for name in options.cases:
        torch.manual_seed(0)
        CASES[name](bench, name)
        if bench.cuda:
            torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
