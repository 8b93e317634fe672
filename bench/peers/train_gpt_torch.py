#!/usr/bin/env python3
"""The PyTorch version of examples/gpt: the same model, data, optimizer and loop, in eager mode.

  train_gpt_torch.py --text FILE [--layers N] [--width N] [--heads N] [--context N] [--batch N] [--steps N]
                     [--log-every N] [--threads N] [--device cpu|cuda] [--autocast bfloat16] [--seed N]

Prints lines in the format of examples/gpt. scripts/bench-gpt runs the two alternately and compares them.
"""

import argparse
import contextlib
import math
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_out = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, options.width)
        self.wpe = nn.Embedding(options.context, options.width)
        self.h = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.ln_f = nn.LayerNorm(options.width)
        self.lm_head = nn.Linear(options.width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("c_proj.weight", "c_out.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * options.layers) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def loss(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def learning_rate(step: int, steps: int) -> float:
    """A linear warm-up, and half a cosine to a tenth."""
    warmup = min(100, steps)
    if step < warmup:
        return 2e-3 * (step + 1) / warmup
    progress = (step - warmup) / max(steps - warmup, 1)
    return 2e-3 * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", required=True)
    sizes = {"layers": 4, "width": 128, "heads": 4, "context": 64, "batch": 64, "steps": 200, "log-every": 50}
    for name, value in (sizes | {"threads": 2, "seed": 0}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--autocast", choices=["bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    text = Path(options.text).read_text()
    characters = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([characters[c] for c in text], device=options.device)
    tokens = tokens[: -len(tokens) // 10]
    model = GPT(len(characters), options).to(options.device)
    groups = [[p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False)]
    adam = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}],
        lr=2e-3,
        betas=(0.9, 0.99),
        fused=True,  # faster than the default, which has no kernel of its own on the CPU
    )
    autocast = torch.autocast(options.device, torch.bfloat16) if options.autocast else contextlib.nullcontext()
    places = torch.arange(options.context, device=options.device)
    total, start = torch.zeros((), device=options.device), time.perf_counter()
    for step in range(1, options.steps + 1):
        begins = torch.randint(len(tokens) - options.context, (options.batch, 1)).to(options.device)
        at = begins + places
        with autocast:
            loss = model.loss(tokens[at], tokens[at + 1])
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adam.param_groups:
            group["lr"] = learning_rate(step - 1, options.steps)
        adam.step()
        total += loss.detach()
        if step % options.log_every == 0:
            mean = total.item() / options.log_every
            seconds = time.perf_counter() - start
            rate = options.log_every * options.batch * options.context / seconds
            print(f"step {step}/{options.steps} loss {mean:.4f} tokens/s {rate:.0f}", flush=True)
            total.zero_()
            start = time.perf_counter()


if __name__ == "__main__":
    main()
