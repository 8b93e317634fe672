"""Times training steps in Python: mytorch beside PyTorch, in turns, with the same program, weights and data.

    PYTHONPATH=build/release/python python bench/python/training.py [--rounds 5] [--threads 2] [--batch 64] [--device cpu]

A CNN and an MLP on images of 28 x 28 (as of MNIST and Fashion-MNIST), and a transformer encoder on sequences. A row is
the median of the rounds, in milliseconds a step, the ratio to PyTorch, and the losses of both after the same steps.
"""

import argparse
import statistics
import sys
import time


def cnn(nn):
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 49, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def mlp(nn):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def encoder(nn):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
            self.embed = nn.Embedding(256, 128)
            self.stack = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(128, 10)

        def forward(self, x):
            return self.head(self.stack(self.embed(x)).mean(1))

    return Encoder()


class Side:
    """The training of one library."""

    def __init__(self, lib, model, state, x, y, device):
        self.lib, self.device = lib, device
        self.model = model(lib.nn)
        if state is not None:
            self.model.load_state_dict({name: lib.tensor(value) for name, value in state.items()})
        self.model.to(device)
        self.x, self.y = lib.tensor(x).to(device), lib.tensor(y).to(device)
        self.optimizer = lib.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def step(self):
        self.optimizer.zero_grad()
        loss = self.lib.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def milliseconds(self, steps):
        begun = time.perf_counter()
        for _ in range(steps):
            loss = self.step()
        self.loss = loss.item()  # waits for the device
        return (time.perf_counter() - begun) / steps * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    try:
        import numpy as np
        import torch
    except ImportError as error:
        sys.exit(f"the peers of this benchmark are NumPy and PyTorch: {error}")
    import mytorch as mt

    mt.set_num_threads(args.threads)
    torch.set_num_threads(args.threads)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((args.batch, 1, 28, 28)).astype(np.float32)
    texts = rng.integers(0, 256, (args.batch, 64))
    labels = rng.integers(0, 10, args.batch)
    print(
        f"mytorch {mt.__version__}, torch {torch.__version__}, {args.device}, {args.threads} threads, batches of {args.batch}"
    )
    print(f"{'':12} {'mytorch':>9} {'torch':>9} {'faster':>7}   losses")
    for name, model, x in (("CNN", cnn, images), ("MLP", mlp, images), ("encoder", encoder, texts)):
        torch.manual_seed(0)
        state = {key: value.numpy() for key, value in model(torch.nn).state_dict().items()}
        sides = [Side(lib, model, state, x, labels, args.device) for lib in (mt, torch)]
        times = [[] for _ in sides]
        for side in sides:
            side.milliseconds(2)
        for _ in range(args.rounds):
            for side, found in zip(sides, times):
                found.append(side.milliseconds(args.steps))
        ours, theirs = (statistics.median(found) for found in times)
        print(f"{name:12} {ours:9.3f} {theirs:9.3f} {theirs / ours:6.2f}x   {sides[0].loss:.5f} {sides[1].loss:.5f}")


if __name__ == "__main__":
    main()
