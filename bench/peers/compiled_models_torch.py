"""The cases of bench/compiled_models.cpp in PyTorch: eager, and by torch.compile. Prints a line per case: its name, and
the medians in microseconds.

    compiled_models_torch.py [--threads N] [--device DEVICE] [CASE...]

ResNet-18 is torchvision's, MiniLM is transformers' BertModel. On a GPU, the compiled time is that of the best of the
modes "default" and "reduce-overhead".
"""

import argparse

import compiled_torch as peer
import torch
import torch.nn.functional as F
from torch import nn
from train_gpt_torch import GPT
from train_mnist_torch import make_model


def labels(*sizes: int, classes: int) -> torch.Tensor:
    return torch.randint(0, classes, sizes, device=peer.DEVICE)


def train(name: str, model: nn.Module, optimizer: torch.optim.Optimizer, loss_of, x, y) -> None:
    def step_with(forward):
        def step():
            optimizer.zero_grad()
            loss = loss_of(forward(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    peer.compare(name, step_with(model), [step_with(torch.compile(model, mode=mode)) for mode in peer.modes()])


def infer(name: str, function, x) -> None:
    peer.compare_function(name, function, x)


def mnist_mlp(name: str) -> None:
    net = make_model("mlp").to(peer.DEVICE)
    x, y = torch.randn(64, 1, 28, 28, device=peer.DEVICE), torch.randn(64, 10, device=peer.DEVICE)
    train(name, net, torch.optim.SGD(net.parameters(), 0.01), F.mse_loss, x, y)


def mnist_cnn(name: str) -> None:
    net = make_model("cnn").to(peer.DEVICE)
    sgd = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    train(name, net, sgd, F.cross_entropy, torch.randn(64, 1, 28, 28, device=peer.DEVICE), labels(64, classes=10))


class GptLogits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gpt = GPT(65, argparse.Namespace(layers=4, width=128, heads=4, context=64))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.gpt.wte(ids) + self.gpt.wpe.weight[: ids.shape[1]]
        for block in self.gpt.h:
            x = block(x)
        return self.gpt.lm_head(self.gpt.ln_f(x)).flatten(0, 1)


def character_gpt(name: str) -> None:
    model = GptLogits().to(peer.DEVICE)
    adam = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    x, y = labels(64, 64, classes=65), labels(64, 64, classes=65)
    train(name, model, adam, lambda logits, y: F.cross_entropy(logits, y.flatten()), x, y)


class HandWrittenLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gates, self.head = nn.Linear(64 + 128, 4 * 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros(x.shape[0], 128, device=x.device)
        for t in range(x.shape[1]):
            i, f, g, o = self.gates(torch.cat([x[:, t], h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


def lstm(name: str) -> None:
    net = HandWrittenLstm().to(peer.DEVICE)
    x = torch.randn(32, 32, 64, device=peer.DEVICE)
    train(name, net, torch.optim.SGD(net.parameters(), 0.01), F.cross_entropy, x, labels(32, classes=10))


def resnet18(name: str, batch: int) -> None:
    import torchvision

    net = torchvision.models.resnet18().eval().to(peer.DEVICE)
    infer(name, net, torch.randn(batch, 3, 224, 224, device=peer.DEVICE))


def minilm(name: str, batch: int, length: int) -> None:
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config).eval().to(peer.DEVICE)
    infer(name, lambda ids: model(ids).last_hidden_state.mean(1), labels(batch, length, classes=30522))


CASES = {
    "mnist_mlp_step_64": mnist_mlp,
    "mnist_cnn_step_64": mnist_cnn,
    "character_gpt_step_64x64": character_gpt,
    "hand_lstm_step_32x32": lstm,
    "resnet18_1": lambda name: resnet18(name, 1),
    "resnet18_8": lambda name: resnet18(name, 8),
    "minilm_1x32": lambda name: minilm(name, 1, 32),
    "minilm_16x64": lambda name: minilm(name, 16, 64),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("cases", nargs="*", choices=[*CASES, []])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    peer.DEVICE = options.device
    for name in options.cases or CASES:
        CASES[name](name)


if __name__ == "__main__":
    main()
