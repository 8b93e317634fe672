#!/usr/bin/env python3
"""The PyTorch version of `train_mnist --data random --device cuda`: the same network, data and loop.

  train_mnist_torch.py [--model mlp|cnn] [--epochs N] [--batch N] [--graph]

The images are in the GPU's memory and are shuffled once per epoch; a smaller last batch is dropped.
--graph captures one step with torch.cuda.graph and replays it; each batch is copied into the captured input.
"""

import argparse
import time

import torch
from torch import nn


def make_model(name: str) -> nn.Module:
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1568, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mlp", choices=("mlp", "cnn"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    mlp = options.model == "mlp"
    images = torch.rand(60000, 1, 28, 28, device="cuda")
    labels = torch.randint(10, (60000,), device="cuda")
    targets = torch.eye(10, device="cuda")[labels] if mlp else labels
    model = make_model(options.model).cuda()
    sgd = torch.optim.SGD(model.parameters(), lr=0.5 if mlp else 0.01, momentum=0 if mlp else 0.9)
    loss_of = nn.functional.mse_loss if mlp else nn.functional.cross_entropy
    loss_sum = torch.zeros((), device="cuda")
    steps = len(images) // options.batch

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        sgd.zero_grad(set_to_none=True)
        loss = loss_of(model(x), y)
        loss.backward()
        sgd.step()
        loss_sum.add_(loss.detach())

    fixed_x, fixed_y = images[: options.batch].clone(), targets[: options.batch].clone()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step(fixed_x, fixed_y)
    torch.cuda.synchronize()
    graph = None
    if options.graph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(fixed_x, fixed_y)
    for epoch in range(options.epochs):
        loss_sum.zero_()
        torch.cuda.synchronize()
        start = time.perf_counter()
        order = torch.randperm(len(images), device="cuda")
        shuffled, wanted = images[order], targets[order]
        for i in range(steps):
            x = shuffled[i * options.batch : (i + 1) * options.batch]
            y = wanted[i * options.batch : (i + 1) * options.batch]
            if graph is None:
                step(x, y)
            else:
                fixed_x.copy_(x)
                fixed_y.copy_(y)
                graph.replay()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        print(
            f"epoch {epoch + 1}/{options.epochs} loss {loss_sum.item() / steps:.6f} time {seconds:.4f}s "
            f"samples/s {steps * options.batch / seconds:.0f}"
        )


if __name__ == "__main__":
    main()
