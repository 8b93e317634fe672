"""Idioms: modules."""

import copy
import math
from collections import OrderedDict

from idioms.table import close, idiom, same
import mytorch as mt
import mytorch.nn as nn
import mytorch.nn.functional as F
import mytorch.optim as optim
import numpy as np


class Net(nn.Module):
    def __init__(self, hidden=8):
        super(Net, self).__init__()
        self.fc1 = nn.Linear(4, hidden)
        self.dropout = nn.Dropout(0.5)
        self.fc2 = nn.Linear(hidden, 3)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc2(self.dropout(x))


def blobs(n=60):
    """Returns points of three separate classes."""
    y = mt.arange(n) % 3
    return mt.eye(4)[y] * 4 + 0.1 * mt.randn(n, 4), y


@idiom
def own_module():
    model = Net()
    assert model(mt.randn(2, 4)).shape == (2, 3)
    assert [name for name, p in model.named_parameters()] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert "(fc1): Linear(in_features=4, out_features=8" in str(model) and repr(model).startswith("Net(")
    assert [name for name, _ in model.named_children()] == ["fc1", "dropout", "fc2"] and len(list(model.modules())) == 4
    assert model.training and not model.eval().training and model.train().dropout.training


@idiom
def own_parameters():
    class MyLinear(nn.Module):
        def __init__(self, in_features, out_features):
            super().__init__()
            self.weight = nn.Parameter(mt.empty(out_features, in_features))
            self.scale = nn.Parameter(mt.tensor(2.0))
            self.register_parameter("bias", None)
            self.reset_parameters()

        def reset_parameters(self):
            nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

        def forward(self, x):
            return self.scale * (x @ self.weight.t())

        def extra_repr(self):
            return f"shape={tuple(self.weight.shape)}"

    m = MyLinear(3, 2)
    x = mt.randn(5, 3)
    close(m(x), 2 * F.linear(x, m.weight))
    assert len(list(m.parameters())) == 2 and repr(m) == "MyLinear(shape=(2, 3))"
    m(x).sum().backward()
    assert m.scale.grad is not None and m.weight.grad.shape == (2, 3)


@idiom
def buffers():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", mt.tensor([1.0, 2.0]))
            self.register_buffer("mask", mt.tril(mt.ones(2, 2)), persistent=False)

        def forward(self, x):
            return x - self.mean

    m = Scaled()
    assert list(m.state_dict()) == ["mean"] and len(list(m.buffers())) == 2 and not list(m.parameters())
    assert m.double().mean.dtype == mt.float64 and m.float().mean.dtype == mt.float32
    same(m(mt.ones(2)), [0, -1])
    m.mean += 1
    same(dict(m.named_buffers())["mean"], [2, 3])


@idiom
def buffers_that_are_views():
    class Masked(nn.Module):
        def __init__(self, n=3):
            super().__init__()
            self.register_buffer("bias", mt.tril(mt.ones(n, n)).view(1, 1, n, n))
            self.register_buffer("steps", mt.arange(6.0)[:4])

    m = Masked()
    assert m.double().bias.dtype == m.steps.dtype == mt.float64 and m.to(mt.float32).bias.sum() == 6
    again = Masked()
    again.load_state_dict(m.state_dict())
    same(again.steps, [0, 1, 2, 3])


@idiom
def containers():
    class MLP(nn.Module):
        def __init__(self, sizes):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])
            self.heads = nn.ModuleDict({"a": nn.Linear(sizes[-1], 1), "b": nn.Linear(sizes[-1], 2)})

        def forward(self, x, task):
            for i, layer in enumerate(self.layers):
                x = layer(x) if i == len(self.layers) - 1 else layer(x).relu()
            return self.heads[task](x)

    m = MLP([3, 5, 4])
    assert m(mt.ones(2, 3), "b").shape == (2, 2) and len(m.layers) == 2 and len(list(m.parameters())) == 8
    blocks = nn.ModuleList([copy.deepcopy(m.layers[0]) for _ in range(3)])
    assert mt.equal(blocks[0].weight, blocks[2].weight) and blocks[0].weight is not blocks[2].weight
    assert sum(p.numel() for p in nn.ParameterList([nn.Parameter(mt.ones(2)) for _ in range(3)])) == 6


@idiom
def sequential():
    model = nn.Sequential(OrderedDict([("fc1", nn.Linear(4, 8)), ("relu", nn.ReLU()), ("fc2", nn.Linear(8, 2))]))
    assert list(model.state_dict())[0] == "fc1.weight" and isinstance(model.relu, nn.ReLU) and model[0] is model.fc1
    layers = []
    for width in (3, 5):
        layers += [nn.Linear(width, width + 2), nn.Tanh()]
    stack = nn.Sequential(*layers)
    assert stack(mt.ones(2, 3)).shape == (2, 7) and len(stack) == 4 and stack[:2](mt.ones(2, 3)).shape == (2, 5)
    stack.add_module("last", nn.Linear(7, 1))
    stack.append(nn.Sigmoid())
    assert stack(mt.ones(2, 3)).shape == (2, 1) and len(list(stack.children())) == 6
    assert nn.Sequential(*list(stack.children())[:-1])(mt.ones(1, 3)).shape == (1, 1)


@idiom
def weights_by_apply():
    def init_weights(m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight, gain=nn.init.calculate_gain("relu"))
            if m.bias is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Embedding):
            m.weight.data.normal_(mean=0.0, std=0.02)
        elif type(m) == nn.LayerNorm:
            m.bias.data.zero_()
            m.weight.data.fill_(1.0)

    model = nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    model.apply(init_weights)
    assert model[2].bias.abs().sum() == 0 and model[2].weight.abs().max() <= math.sqrt(2) * math.sqrt(6 / 10) + 1e-6
    assert model[0].weight.std() < 0.1
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_normal_(p)
    nn.init.trunc_normal_(model[2].weight, std=0.02)
    nn.init.constant_(model[2].bias, 0.5)
    nn.init.orthogonal_(model[2].weight)
    close(model[2].weight @ model[2].weight.T, np.eye(2))
    nn.init.kaiming_normal_(model[2].weight, mode="fan_out", nonlinearity="relu")
    nn.init.uniform_(model[2].weight, -0.1, 0.1)
    assert model[2].weight.abs().max() <= 0.1 and model[2].weight.requires_grad


@idiom
def frozen_layers():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 10))
    for param in model.parameters():
        param.requires_grad = False
    model[2] = nn.Linear(8, 2)
    optimizer = optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)
    before = model[0].weight.clone()
    model(mt.ones(3, 4)).sum().backward()
    optimizer.step()
    assert model[0].weight.grad is None and mt.equal(before, model[0].weight) and model[2].weight.grad is not None
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("0"))
    model[2].requires_grad_(False)
    assert [n for n, p in model.named_parameters() if p.requires_grad] == ["0.weight", "0.bias"]


@idiom
def replaced_head():
    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 6)
            self.fc = nn.Linear(6, 1000)

        def forward(self, x):
            return self.fc(self.body(x))

    model = Backbone()
    num_ftrs = model.fc.in_features
    model.fc = nn.Linear(num_ftrs, 2)
    assert model(mt.ones(1, 4)).shape == (1, 2)
    model.fc = nn.Identity()
    assert model(mt.ones(1, 4)).shape == (1, 6) and model.get_submodule("body") is model.body
    del model.fc
    assert not hasattr(model, "fc") and getattr(model, "body").out_features == 6


@idiom
def tied_weights():
    class LM(nn.Module):
        def __init__(self, vocab, dim):
            super().__init__()
            self.embed = nn.Embedding(vocab, dim)
            self.head = nn.Linear(dim, vocab, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    model = LM(7, 3)
    assert sum(p.numel() for p in model.parameters()) == 21 and model.head.weight is model.embed.weight
    F.cross_entropy(model(mt.tensor([1, 2])), mt.tensor([2, 3])).backward()
    optim.SGD(model.parameters(), lr=0.1).step()
    assert (
        mt.equal(model.head.weight, model.embed.weight)
        and model.head.weight.data_ptr() == model.embed.weight.data_ptr()
    )
    assert len(model.state_dict()) == 2
    copied = copy.deepcopy(model)
    assert copied.head.weight is copied.embed.weight


@idiom
def parameter_counts():
    model = Net()
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert total == trainable == 4 * 8 + 8 + 8 * 3 + 3 and f"{total:,}" == "67"
    assert sum(np.prod(p.size()) for p in model.parameters()) == total
    assert sum(p.nelement() * p.element_size() for p in model.parameters()) == 4 * total


@idiom
def modes_of_dropout_and_norms():
    drop, x = nn.Dropout(p=0.5), mt.ones(1000)
    assert 300 < (drop(x) == 0).sum() < 700 and set(drop(x).tolist()) == {0.0, 2.0}
    drop.eval()
    same(drop(x), x)
    assert (F.dropout(x, 0.5, training=False) == x).all()
    bn = nn.BatchNorm1d(3)
    y = mt.randn(64, 3) * 2 + 5
    close(bn(y).mean(0), [0, 0, 0], 1e-4)
    close(bn.running_mean, y.mean(0) * 0.1, 1e-4)
    assert bn.num_batches_tracked == 1
    bn.eval()
    close(bn(y), (y - bn.running_mean) / (bn.running_var + bn.eps).sqrt(), 1e-4)


@idiom
def layer_norm_by_hand():
    x = mt.randn(2, 5, 8)
    ln = nn.LayerNorm(8)
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, unbiased=False)
    close((x - mean) / mt.sqrt(var + ln.eps) * ln.weight + ln.bias, ln(x))
    rms = x * mt.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    close(F.rms_norm(x, (8,), eps=1e-6), rms)


@idiom
def embeddings():
    emb = nn.Embedding(10, 4, padding_idx=0)
    assert emb(mt.tensor([[1, 0], [2, 3]])).shape == (2, 2, 4) and emb.weight[0].abs().sum() == 0
    pretrained = nn.Embedding.from_pretrained(mt.tensor([[1.0, 2.0], [3.0, 4.0]]), freeze=True)
    same(pretrained(mt.tensor([1])), [[3, 4]])
    assert not pretrained.weight.requires_grad and emb.num_embeddings == 10 and emb.embedding_dim == 4


@idiom
def low_rank_adapter():
    class LoRA(nn.Module):
        def __init__(self, base, r=2, alpha=4):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.A = nn.Parameter(mt.randn(r, base.in_features) * 0.01)
            self.B = nn.Parameter(mt.zeros(base.out_features, r))
            self.scaling = alpha / r

        def forward(self, x):
            return self.base(x) + (x @ self.A.T @ self.B.T) * self.scaling

    base = nn.Linear(4, 3)
    m, x = LoRA(base), mt.randn(2, 4)
    close(m(x), base(x))
    m(x).sum().backward()
    assert [n for n, p in m.named_parameters() if p.grad is not None] == ["A", "B"]


@idiom
def weight_norm():
    m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    m(mt.ones(1, 3)).sum().backward()
    assert sorted(n for n, _ in m.named_parameters())[-1] == "parametrizations.weight.original1"


@idiom
def spectral_norm():
    m = nn.utils.spectral_norm(nn.Linear(3, 3))
    for _ in range(50):
        m(mt.ones(1, 3))
    close(mt.linalg.matrix_norm(m.weight, 2), 1, 1e-3)


@idiom
def vectors_of_parameters():
    model = Net()
    v = nn.utils.parameters_to_vector(model.parameters())
    assert v.shape == (67,)
    nn.utils.vector_to_parameters(mt.zeros_like(v), model.parameters())
    assert sum(p.abs().sum().item() for p in model.parameters()) == 0
    flat = mt.cat([p.detach().view(-1) for p in model.parameters()])
    assert flat.shape == (67,)
