"""Everyday idioms of PyTorch programs, as people type them, with mytorch's names in place of torch's."""

import copy
import io
import math
import pickle
import random
import tempfile
import unittest
from collections import OrderedDict
from pathlib import Path

import mytorch as mt
import mytorch.nn as nn
import mytorch.nn.functional as F
import mytorch.optim as optim
import numpy as np
from mytorch import Tensor
from mytorch.data import DataLoader, Dataset, TensorDataset, random_split

# Idioms that do not run yet, each with what it lacks.
MISSING = {
    "categorical_distribution": "distributions",
    "default_device": "devices as contexts",
    "default_dtype": "a default of float64",
    "legacy_constructors": "Tensor(sizes), and Tensor of integers as float32",
    "mixed_precision": "autocast",
    "scaled_gradients": "amp.GradScaler",
    "shapes_as_tuples": "shapes of the type Size",
    "shapes_in_place": "unsqueeze_ and its kin",
    "sparse_adjacency": "sparse tensors",
}

IDIOMS = {}


def idiom(run):
    """Adds a function to the table; its name is the idiom's."""
    assert run.__name__ not in IDIOMS, run.__name__
    IDIOMS[run.__name__] = run
    return run


def close(a, b, tolerance=1e-5):
    a, b = (x.detach().tolist() if isinstance(x, Tensor) else x for x in (a, b))
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=tolerance, atol=tolerance)


def same(a, b):
    a, b = (x.tolist() if hasattr(x, "tolist") else x for x in (a, b))
    assert a == b, f"{a} is not {b}"


# Creation and conversion.


@idiom
def tensor_of_lists():
    x = mt.tensor([[1, 2, 3], [4, 5, 6]], dtype=mt.float32)
    assert x.shape == (2, 3) and x.size() == (2, 3) and x.size(0) == 2 and x.size(-1) == 3
    assert x.dim() == x.ndim == 2 and x.numel() == 6 and len(x) == 2
    assert mt.tensor([1, 2]).dtype == mt.int64 and mt.tensor(1.5).dtype == mt.float32


@idiom
def legacy_constructors():
    assert mt.Tensor([1, 2]).dtype == mt.float32
    assert mt.Tensor(2, 3).shape == (2, 3)
    assert mt.LongTensor([1, 2]).dtype == mt.long
    assert mt.FloatTensor([1, 2]).tolist() == [1.0, 2.0]


@idiom
def filled_tensors():
    same(mt.zeros(2, 3), [[0.0] * 3] * 2)
    same(mt.ones((2,), dtype=mt.long), [1, 1])
    same(mt.full((2, 2), 7), [[7, 7], [7, 7]])
    same(mt.eye(2), [[1.0, 0.0], [0.0, 1.0]])
    assert mt.empty(0, 4).shape == (0, 4)
    x = mt.rand(3, 2)
    assert mt.zeros_like(x).sum() == 0 and mt.ones_like(x, dtype=mt.int).sum().item() == 6
    assert mt.randn_like(x).shape == mt.full_like(x, 2.0).shape == x.shape


@idiom
def ranges():
    same(mt.arange(3), [0, 1, 2])
    same(mt.arange(0, 1, 0.25), [0, 0.25, 0.5, 0.75])
    same(mt.linspace(0, 1, steps=5), [0, 0.25, 0.5, 0.75, 1])
    close(mt.logspace(0, 2, 3), [1, 10, 100])
    xx, yy = mt.meshgrid(mt.arange(2), mt.arange(3), indexing="ij")
    same(xx, [[0, 0, 0], [1, 1, 1]])
    same(yy, [[0, 1, 2], [0, 1, 2]])


@idiom
def new_tensors_like_another():
    x = mt.zeros(2, dtype=mt.float64)
    assert x.new_zeros(3).dtype == x.new_ones(2, 2).dtype == x.new_full((1,), 3.0).dtype == mt.float64
    same(x.new_tensor([1, 2]), [1.0, 2.0])
    assert x.new_empty(4).shape == (4,)


@idiom
def numpy_both_ways():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = mt.from_numpy(a)
    x[0, 0] = 9
    assert a[0, 0] == 9
    y = (x * 2).requires_grad_()
    b = y.detach().cpu().numpy()
    assert isinstance(b, np.ndarray) and b.dtype == np.float32 and (b == 2 * a).all()
    assert np.allclose(np.array(x), a)
    assert mt.tensor(np.array([1.5, 2.5])).dtype == mt.float64
    assert mt.as_tensor(a, dtype=mt.long).tolist()[1] == [3, 4, 5]


@idiom
def list_of_arrays():
    frames = [np.full((2, 2), i, dtype=np.uint8) for i in range(3)]
    x = mt.tensor(np.stack(frames)).float() / 255
    assert x.shape == (3, 2, 2) and x.dtype == mt.float32
    close(x[2], np.full((2, 2), 2 / 255))
    image = mt.from_numpy(frames[1]).permute(1, 0).unsqueeze(0)
    assert image.dtype == mt.uint8 and image.shape == (1, 2, 2)


@idiom
def casts():
    x = mt.tensor([0.0, 1.7, -2.2])
    same(x.long(), [0, 1, -2])
    same(x.bool(), [False, True, True])
    assert x.double().dtype == mt.float64 and x.half().dtype == mt.float16 and x.int().dtype == mt.int32
    assert x.to(mt.bfloat16).dtype == mt.bfloat16 and x.to(dtype=mt.float64).dtype == mt.double
    assert x.type(mt.int64).dtype == mt.long and x.type_as(mt.zeros(1, dtype=mt.long)).dtype == mt.int64
    assert x.to(mt.ones(1, dtype=mt.double)).dtype == mt.float64


@idiom
def default_dtype():
    assert mt.get_default_dtype() == mt.float32
    mt.set_default_dtype(mt.float64)
    try:
        assert mt.tensor([1.0]).dtype == mt.zeros(2).dtype == nn.Linear(2, 2).weight.dtype == mt.float64
    finally:
        mt.set_default_dtype(mt.float32)
    assert mt.tensor([1.0]).dtype == mt.float32


@idiom
def device_agnostic():
    device = mt.device("cuda" if mt.cuda.is_available() else "cpu")
    model = nn.Linear(2, 1).to(device)
    x = mt.randn(4, 2).to(device, non_blocking=True)
    y = model(x)
    assert y.device == x.device and y.device.type == device.type and next(model.parameters()).device == y.device
    assert mt.zeros(2, device=device).cpu().device == mt.device("cpu")
    assert str(mt.device("cuda:0" if mt.cuda.is_available() else "cpu")).split(":")[0] == device.type
    assert x.cpu().is_cuda is False


@idiom
def device_among_backends():
    device = "cuda" if mt.cuda.is_available() else "mps" if mt.backends.mps.is_available() else "cpu"
    assert nn.Linear(2, 1).to(device).weight.device.type == device


@idiom
def default_device():
    mt.set_default_device("cpu")
    assert mt.zeros(2).device.type == "cpu" and mt.get_default_device() == mt.device("cpu")
    with mt.device("cpu"):
        assert mt.ones(2).device == mt.device("cpu")


@idiom
def is_tensor():
    x = mt.zeros(2)
    assert mt.is_tensor(x) and not mt.is_tensor([0]) and isinstance(x, mt.Tensor)
    assert isinstance(nn.Parameter(x), mt.Tensor) and isinstance(nn.Parameter(x), nn.Parameter)
    assert x.is_floating_point() and not x.long().is_floating_point()
    assert x.dtype.is_floating_point and not mt.int64.is_floating_point


@idiom
def questions_about_types():
    x = mt.zeros(2)
    assert mt.is_floating_point(x) and not mt.is_complex(x) and mt.numel(x) == 2
    assert mt.promote_types(mt.int32, mt.float32) == mt.float32 and mt.result_type(x, 1) == mt.float32
    assert mt.can_cast(mt.int32, mt.float64) and mt.broadcast_shapes((2, 1), (3,)) == (2, 3)


@idiom
def bytes_of_images():
    x = mt.tensor([0.0, 0.5, 1.2])
    same(x.clamp(0, 1).mul(255).byte(), [0, 127, 255])
    same((x.clamp(0, 1) * 255).to(mt.uint8), [0, 127, 255])
    same(x.mul(255).add_(0.5).clamp_(0, 255).to("cpu", mt.uint8), [0, 128, 255])
    assert x.short().dtype == mt.int16


@idiom
def python_numbers():
    x = mt.tensor([3.0])
    assert x.item() == 3.0 and isinstance(x.item(), float) and float(x) == 3.0 and int(x) == 3
    if x > 2:
        x = -x
    assert x.tolist() == [-3.0] and bool(x < 0) and not mt.tensor(False)
    assert [row.sum().item() for row in mt.ones(3, 2)] == [2.0] * 3
    assert list(range(10))[mt.tensor(4)] == 4
    assert isinstance(mt.tensor([1, 2]).sum().item(), int)
    assert max(mt.tensor(1.0), mt.tensor(2.0)) == 2 and sum([mt.tensor(1.0), mt.tensor(2.0)]) == 3


@idiom
def formatted():
    loss = mt.tensor(0.123456)
    assert f"{loss.item():.3f}" == "0.123" and f"loss: {loss:.4f}" == "loss: 0.1235" and f"{mt.tensor(7):3d}" == "  7"
    assert "tensor([1, 2]" in f"{mt.tensor([1, 2])}" and str(mt.tensor([1.0, 2.5])).startswith(
        "tensor([1.0000, 2.5000]"
    )
    assert "%.2f" % loss == "0.12" and "epoch {}: {:.2f}".format(1, loss.item()) == "epoch 1: 0.12"


@idiom
def print_options():
    mt.set_printoptions(precision=2, sci_mode=False)
    try:
        assert "0.33" in repr(mt.tensor([1 / 3])) and "0.333" not in repr(mt.tensor([1 / 3]))
    finally:
        mt.set_printoptions(profile="default")
    assert "0.3333" in repr(mt.tensor([1 / 3]))


@idiom
def limits_of_types():
    assert mt.finfo(mt.float32).eps == np.finfo(np.float32).eps and mt.finfo(mt.float16).max == 65504
    assert mt.finfo(mt.float32).min == np.finfo(np.float32).min and mt.finfo(mt.bfloat16).bits == 16
    assert mt.iinfo(mt.int64).max == 2**63 - 1 and mt.iinfo(mt.uint8).min == 0
    x = mt.zeros(2, 2)
    same(x.masked_fill(mt.eye(2).bool(), mt.finfo(x.dtype).min).argmin(dim=1), [0, 1])
    same(mt.finfo(mt.float32).tiny > 0, True)


@idiom
def clone_and_detach():
    x = mt.ones(2, requires_grad=True)
    y = x.detach().clone()
    y[0] = 5
    assert x[0] == 1 and not y.requires_grad and (x * 2).clone().requires_grad
    z = mt.zeros(2)
    z.copy_(y)
    same(z, [5.0, 1.0])
    same(copy.deepcopy(z), [5.0, 1.0])


@idiom
def type_hints():
    def loss(pred: Tensor, target: mt.Tensor, dtype: mt.dtype = mt.float32, device: mt.device = None) -> "Tensor":
        return (pred - target).abs().mean().to(dtype)

    assert loss(mt.ones(2), mt.zeros(2)) == 1


# Random numbers.


@idiom
def random_tensors():
    assert 0 <= mt.rand(100).min() and mt.rand(100).max() < 1
    assert abs(mt.randn(1000).mean().item()) < 0.2 and mt.randn((2, 3)).shape == (2, 3)
    x = mt.randint(0, 10, (50,))
    assert x.dtype == mt.int64 and x.min() >= 0 and x.max() <= 9 and mt.randint(5, size=(2,)).max() < 5
    assert sorted(mt.randperm(6).tolist()) == list(range(6))
    assert mt.normal(0.0, 1.0, size=(2, 2)).shape == mt.normal(mt.zeros(2, 2), mt.ones(2, 2)).shape
    assert set(mt.bernoulli(mt.full((50,), 0.5)).tolist()) == {0.0, 1.0}
    assert mt.empty(3).uniform_(1, 2).min() >= 1 and mt.empty(100).normal_(5, 0.1).mean() > 4


@idiom
def seeded():
    mt.manual_seed(42)
    a = mt.randn(3)
    mt.manual_seed(42)
    assert mt.equal(a, mt.randn(3)) and not mt.equal(a, mt.randn(3))


@idiom
def seed_everything():
    def seed_everything(seed):
        random.seed(seed)
        np.random.seed(seed)
        mt.manual_seed(seed)
        mt.cuda.manual_seed(seed)
        mt.cuda.manual_seed_all(seed)
        mt.backends.cudnn.deterministic = True
        mt.backends.cudnn.benchmark = False

    seed_everything(1)
    a = mt.rand(2)
    seed_everything(1)
    same(mt.rand(2), a)


@idiom
def seeded_workers():
    def seed_worker(worker_id):
        worker_seed = mt.initial_seed() % 2**32
        np.random.seed(worker_seed)
        random.seed(worker_seed)

    mt.manual_seed(7)
    seed_worker(0)
    assert mt.initial_seed() == 7
    g = mt.Generator()
    g.manual_seed(0)
    loader = DataLoader(range(4), batch_size=2, worker_init_fn=seed_worker, generator=g, shuffle=True)
    same(sum(loader).sum(), 6)


@idiom
def generator_of_manual_seed():
    same(mt.randn(2, generator=mt.manual_seed(3)), mt.randn(2, generator=mt.Generator().manual_seed(3)))


@idiom
def more_random_values():
    x = mt.empty(200)
    assert (
        set(x.random_(0, 3).tolist()) == {0.0, 1.0, 2.0}
        and x.bernoulli_(0.5).max() == 1
        and x.exponential_().min() >= 0
    )
    assert mt.rand_like(x).max() < 1 and mt.randint_like(x, 0, 2).max() == 1
    assert (mt.rand(4, 4) < 0.5).dtype == mt.bool
    w = mt.empty(2, 3).uniform_(-1, 1)
    assert w.abs().max() <= 1 and len(x[mt.randperm(len(x))[:10]]) == 10


@idiom
def generators():
    g = mt.Generator().manual_seed(2147483647)
    a = mt.rand(3, generator=g)
    order = mt.randperm(5, generator=g)
    g = mt.Generator()
    g.manual_seed(2147483647)
    same(mt.rand(3, generator=g), a)
    same(mt.randperm(5, generator=g), order)
    assert g.initial_seed() == 2147483647
    assert mt.multinomial(mt.ones(4), 2, replacement=True, generator=g).shape == (2,)


@idiom
def states_of_random_numbers():
    state = mt.get_rng_state()
    a = mt.rand(3)
    mt.set_rng_state(state)
    same(mt.rand(3), a)
    g = mt.Generator().manual_seed(1)
    kept = g.get_state()
    b = mt.rand(2, generator=g)
    g.set_state(kept)
    same(mt.rand(2, generator=g), b)


# Indexing.


@idiom
def slices():
    x = mt.arange(12).view(3, 4)
    a = np.arange(12).reshape(3, 4)
    for at in (0, -1, (slice(None), 1), (Ellipsis, -1), slice(None, None, 2), (slice(1, None), slice(None, 2))):
        same(x[at], a[at])
    assert x[None].shape == (1, 3, 4) and x[:, None].shape == (3, 1, 4) and x[..., None].shape == (3, 4, 1)
    assert x[0, 1].item() == x[0][1].item() == 1
    first, *rest = x
    assert len(rest) == 2 and first.tolist() == [0, 1, 2, 3]


@idiom
def assignment():
    x = mt.zeros(3, 4)
    x[0] = 1
    x[:, 1] = mt.tensor([7.0, 8.0, 9.0])
    x[1, 2] += 5
    x[-1, 2:] = mt.ones(2)
    x[:, 0] *= 2
    same(x, [[2, 7, 1, 1], [0, 8, 5, 0], [0, 9, 1, 1]])
    x[[0, 2]] = 0.0
    x[mt.tensor([1]), mt.tensor([3])] = 4
    same(x, [[0, 0, 0, 0], [0, 8, 5, 4], [0, 0, 0, 0]])


@idiom
def masks():
    x = mt.tensor([[1.0, -2.0], [-3.0, 4.0]])
    mask = x > 0
    same(x[mask], [1, 4])
    same(x[(x > -3) & (x < 2)], [1, -2])
    same(~mask, [[False, True], [True, False]])
    assert mask.any() and not mask.all() and mask.sum().item() == 2 and mask.float().mean() == 0.5
    same(mask.any(dim=1), [True, True])
    x[x < 0] = 0
    same(x, [[1, 0], [0, 4]])
    x[mask] = x[mask] * 2
    same(x, [[2, 0], [0, 8]])
    same(x[mt.tensor([False, True])], [[0, 8]])


@idiom
def lists_of_positions():
    x = mt.arange(12).view(4, 3)
    labels = mt.tensor([0, 2, 1, 1])
    same(x[mt.arange(4), labels], [0, 5, 7, 10])
    same(x[mt.arange(len(labels)), labels], [0, 5, 7, 10])
    same(x[[0, 3]], [[0, 1, 2], [9, 10, 11]])
    same(x[:, [2, 0]][0], [2, 0])
    same(x[mt.randperm(4)].sum(), 66)
    same(x[np.array([1, 2])][:, 0], [3, 6])


@idiom
def range_as_index():
    probs, y = mt.tensor([[0.1, 0.9], [0.8, 0.2]]), mt.tensor([1, 0])
    close(probs[range(len(y)), y], [0.9, 0.8])
    close(probs[list(range(2)), y], [0.9, 0.8])
    probs[range(2), y] -= 0.5
    close(probs, [[0.1, 0.4], [0.3, 0.2]])


@idiom
def sorted_and_masked_rows():
    x = mt.tensor([[3, 1], [1, 2], [2, 0]])
    same(x[x[:, 0].argsort()], [[1, 2], [2, 0], [3, 1]])
    same(x[:, mt.tensor([False, True])], [[1], [2], [0]])
    same(x[x[:, 1] > 0, 0], [3, 1])
    x[x[:, 1] > 0, 0] = 9
    same(x[:, 0], [9, 9, 2])
    x[:, ::2] += 1
    same(x[1:2], [[10, 2]])
    same(x[..., None, :].shape, (3, 1, 2))
    counts = mt.zeros(3)
    counts.index_put_((mt.tensor([0, 0, 2]),), mt.ones(3), accumulate=True)
    same(counts, [2, 0, 1])
    i, j = divmod(x.argmax().item(), x.size(1))
    assert x[i, j] == x.max() and x[mt.tensor(2), 1] == 0


@idiom
def gather_values():
    logits = mt.randn(3, 5)
    labels = mt.tensor([1, 0, 4])
    log_probs = F.log_softmax(logits, dim=-1)
    picked = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    close(-picked.mean(), F.cross_entropy(logits, labels))
    same(mt.gather(log_probs, 1, labels[:, None])[:, 0], picked)
    same(mt.take_along_dim(log_probs, labels[:, None], dim=1).flatten(), picked)


@idiom
def scatter_values():
    labels = mt.tensor([1, 0, 2])
    one_hot = mt.zeros(3, 3).scatter_(1, labels.unsqueeze(1), 1)
    same(one_hot, np.eye(3)[[1, 0, 2]])
    same(mt.zeros(2).scatter_add_(0, mt.tensor([0, 1, 0]), mt.tensor([1.0, 2.0, 3.0])), [4, 2])
    same(mt.zeros(2).scatter(0, mt.tensor([1]), mt.tensor([5.0])), [0, 5])
    most = mt.zeros(2).scatter_reduce(0, mt.tensor([0, 1, 0]), mt.tensor([1.0, 2.0, 3.0]), reduce="amax")
    same(most, [3, 2])


@idiom
def index_methods():
    x = mt.arange(6.0).view(3, 2)
    same(mt.index_select(x, 0, mt.tensor([2, 0])), [[4, 5], [0, 1]])
    same(mt.zeros(3, 2).index_add_(0, mt.tensor([0, 0, 2]), x), [[2, 4], [0, 0], [4, 5]])
    same(x.clone().index_fill_(0, mt.tensor([1]), -1), [[0, 1], [-1, -1], [4, 5]])
    same(x.clone().index_copy_(0, mt.tensor([0]), mt.ones(1, 2)), [[1, 1], [2, 3], [4, 5]])
    same(x.take(mt.tensor([0, 5])), [0, 5])


@idiom
def nonzero_positions():
    x = mt.tensor([[0, 3], [4, 0]])
    same(x.nonzero(), [[0, 1], [1, 0]])
    rows, cols = mt.nonzero(x, as_tuple=True)
    same(rows, [0, 1])
    same(cols, [1, 0])
    rows, cols = mt.where(x > 3)
    same((rows.item(), cols.item()), (1, 0))
    same(mt.argwhere(x), [[0, 1], [1, 0]])
    assert (x == 4).nonzero()[0, 0] == 1


@idiom
def choose_by_where():
    x = mt.tensor([-1.0, 0.5, 2.0])
    same(mt.where(x > 0, x, mt.zeros_like(x)), [0, 0.5, 2])
    same(mt.where(x > 1, 1.0, 0.0), [0, 0, 1])
    same(mt.where(x > 0, x, 0.0), [0, 0.5, 2])
    same(mt.where(x.isnan(), mt.tensor(0.0), x), x)


@idiom
def where_as_method():
    x = mt.tensor([-1.0, 0.5])
    same(x.where(x > 0, mt.tensor(9.0)), [9, 0.5])
    same(mt.zeros(2).where(x > 0, 1.0), [1, 0])


@idiom
def fill_and_select_by_masks():
    scores = mt.zeros(2, 2)
    mask = mt.tril(mt.ones(2, 2)) == 0
    same(scores.masked_fill(mask, float("-inf")).softmax(-1), [[1, 0], [0.5, 0.5]])
    same(mt.masked_select(mt.arange(4), mt.tensor([True, False, True, False])), [0, 2])
    same(scores.masked_fill_(mask, -1e9) < -1, mask)
    same(mt.zeros(3).masked_scatter(mt.tensor([True, False, True]), mt.tensor([1.0, 2.0])), [1, 0, 2])


@idiom
def triangles():
    same(mt.tril(mt.ones(3, 3, dtype=mt.bool)), np.tri(3, dtype=bool))
    same(mt.triu(mt.ones(3, 3), diagonal=1).bool(), ~np.tri(3, dtype=bool))
    causal = mt.full((2, 2), float("-inf")).triu(1)
    same(causal, [[0, 0 - math.inf], [0, 0]])
    i, j = mt.triu_indices(3, 3, offset=1)
    same(list(zip(i.tolist(), j.tolist())), [(0, 1), (0, 2), (1, 2)])
    same(mt.tril_indices(2, 2), [[0, 1, 1], [0, 0, 1]])


# Shapes.


@idiom
def views():
    x = mt.arange(24)
    y = x.view(2, 3, 4)
    assert (
        y.view(-1, 4).shape == (6, 4) and y.reshape(2, -1).shape == (2, 12) and y.view(y.size(0), -1).shape == (2, 12)
    )
    y[0, 0, 0] = 100
    assert x[0] == 100
    assert mt.flatten(y, 1).shape == (2, 12) and y.flatten().shape == (24,) and y.flatten(start_dim=1).shape == (2, 12)
    assert y.view_as(mt.zeros(2, 3, 4)).shape == (2, 3, 4)
    assert y.unflatten(-1, (2, 2)).shape == (2, 3, 2, 2) and y.ravel().shape == (24,)
    b, *other = y.shape
    assert b == 2 and other == [3, 4] and y.view(*y.shape[:1], -1).shape == (2, 12)
    assert y.view((2, 12)).shape == y.view([2, 12]).shape == mt.reshape(y, (2, 12)).shape


@idiom
def permutations():
    x = mt.randn(2, 3, 4)
    assert x.permute(0, 2, 1).shape == x.transpose(1, 2).shape == x.transpose(-2, -1).shape == x.mT.shape == (2, 4, 3)
    assert mt.permute(x, (2, 0, 1)).shape == x.permute((2, 0, 1)).shape == (4, 2, 3)
    y = x.permute(2, 0, 1)
    assert not y.is_contiguous() and y.contiguous().view(4, -1).shape == (4, 6)
    assert x[0].t().shape == x[0].T.shape == (4, 3) and x.swapaxes(0, 1).shape == mt.movedim(x, 0, 1).shape == (3, 2, 4)
    assert y.stride() == (1, 12, 4)


@idiom
def squeezes():
    x = mt.zeros(1, 3, 1)
    assert x.squeeze().shape == (3,) and x.squeeze(0).shape == (3, 1) and x.squeeze(-1).unsqueeze(0).shape == (1, 1, 3)
    assert mt.unsqueeze(mt.zeros(3), 1).shape == (3, 1)


@idiom
def shapes_in_place():
    x = mt.zeros(4, 2)
    x.unsqueeze_(0)
    assert x.shape == (1, 4, 2)
    x.squeeze_(0).t_()
    assert x.shape == (2, 4) and x.transpose_(0, 1).shape == (4, 2)


@idiom
def expansions():
    x = mt.tensor([[1], [2]])
    same(x.expand(2, 3), [[1, 1, 1], [2, 2, 2]])
    assert x.expand(-1, 4).shape == (2, 4) and x.expand_as(mt.zeros(2, 5)).shape == (2, 5)
    same(x.repeat(1, 2), [[1, 1], [2, 2]])
    same(mt.tensor([1, 2]).repeat_interleave(2), [1, 1, 2, 2])
    same(mt.repeat_interleave(mt.tensor([1, 2]), mt.tensor([1, 2])), [1, 2, 2])
    same(mt.tile(mt.tensor([1, 2]), (2,)), [1, 2, 1, 2])
    cls_tokens = nn.Parameter(mt.zeros(1, 1, 8)).expand(5, -1, -1)
    assert mt.cat((cls_tokens, mt.ones(5, 2, 8)), dim=1).shape == (5, 3, 8)


@idiom
def joining():
    a, b = mt.zeros(2, 3), mt.ones(2, 3)
    assert mt.cat([a, b]).shape == mt.cat((a, b), 0).shape == (4, 3) and mt.cat([a, b], dim=1).shape == (2, 6)
    assert mt.stack([a, b]).shape == (2, 2, 3) and mt.stack([a, b], dim=-1).shape == (2, 3, 2)
    assert (
        mt.hstack((a, b)).shape == (2, 6)
        and mt.vstack((a, b)).shape == (4, 3)
        and mt.concat([a, b], dim=-1).shape == (2, 6)
    )
    rows = []
    for i in range(3):
        rows.append(mt.full((2,), float(i)))
    same(mt.stack(rows), [[0, 0], [1, 1], [2, 2]])


@idiom
def splitting():
    x = mt.arange(10)
    assert [len(part) for part in x.split(4)] == [4, 4, 2] and [len(part) for part in mt.split(x, [3, 7])] == [3, 7]
    assert [len(part) for part in x.chunk(3)] == [4, 4, 2]
    q, k, v = mt.randn(2, 5, 12).chunk(3, dim=-1)
    assert q.shape == k.shape == v.shape == (2, 5, 4)
    a, b = mt.unbind(mt.arange(4).view(2, 2), dim=0)
    same(a, [0, 1])
    same(mt.tensor_split(x, 3)[0], [0, 1, 2, 3])


@idiom
def flips_and_rolls():
    x = mt.arange(4)
    same(x.flip(0), [3, 2, 1, 0])
    same(mt.roll(x, 1), [3, 0, 1, 2])
    same(mt.flip(x.view(2, 2), dims=[1]), [[1, 0], [3, 2]])
    same(mt.rot90(x.view(2, 2)), [[1, 3], [0, 2]])


@idiom
def patches():
    images = mt.arange(32.0).view(2, 1, 4, 4)
    p = images.unfold(2, 2, 2).unfold(3, 2, 2).contiguous().view(2, 4, 4)
    same(p[0, 0], [0, 1, 4, 5])
    same(F.unfold(images, kernel_size=2, stride=2).transpose(1, 2), p)
    b, c, h, w = images.shape
    same(images.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).flatten(1, 2).flatten(2), p)
    assert F.pad(images, (1, 1, 0, 2)).shape == (2, 1, 6, 6) and F.pad(images, (1, 1), "constant", 3)[0, 0, 0, 0] == 3


# Arithmetic and reductions.


@idiom
def broadcasting():
    x = mt.arange(6.0).view(3, 2)
    a = x.numpy()
    close((x - x.mean(dim=0, keepdim=True)) / x.std(dim=0, keepdim=True), (a - a.mean(0)) / a.std(0, ddof=1))
    close(x / x.sum(-1, keepdim=True).clamp(min=1e-6), a / a.sum(-1, keepdims=True))
    assert (x[:, None, :] - x[None, :, :]).shape == (3, 3, 2)
    same(
        mt.arange(3)[:, None] <= mt.arange(3)[None, :], [[True, True, True], [False, True, True], [False, False, True]]
    )
    mean, std = mt.tensor([0.5, 0.25]), [1, 2]
    same((x.T - mean.view(-1, 1))[0, 0], -0.5)
    same((x - mean[None]) / mt.tensor(std)[None], (a - mean.numpy()) / np.array(std, dtype=np.float32))


@idiom
def numbers_on_both_sides():
    x = mt.tensor([1, 2, 3])
    same(x / 2, [0.5, 1, 1.5])
    same(x // 2, [0, 1, 1])
    same(x % 2, [1, 0, 1])
    same(1 - x, [0, -1, -2])
    same(6 / x, [6, 3, 2])
    same(2**x, [2, 4, 8])
    same(x**2, [1, 4, 9])
    same(mt.div(x, 2, rounding_mode="floor"), [0, 1, 1])
    same(-x.float().sqrt().pow(2).round(), [-1, -2, -3])
    assert (x * 1.5).dtype == mt.float32 and (x * 2).dtype == mt.int64
    same(7 // x, [7, 3, 2])
    same(x & 1, [1, 0, 1])
    same(x << 1, [2, 4, 6])
    same(3.0 * mt.ones(2) * np.float32(2), [6, 6])


@idiom
def reductions():
    x = mt.tensor([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
    values, indices = x.max(dim=1)
    same(values, [5, 6])
    same(indices, [1, 2])
    _, predicted = mt.max(x, 1)
    same(predicted, [1, 2])
    same(x.argmax(1), mt.argmax(x, dim=-1))
    same(x.min(0)[0], [1, 2, 3])
    same(x.max().item(), 6)
    same(x.sum((0, 1)), 21)
    same(x.mean(dim=[0, 1], keepdim=True), [[3.5]])
    same(x.amax(dim=(0, 1)), 6)
    same(x.prod(dim=0), [4, 10, 18])
    close(x.var(dim=1, correction=0), np.var(x.numpy(), axis=1))
    close(mt.std(x, dim=0), np.std(x.numpy(), axis=0, ddof=1))
    std, mean = mt.std_mean(x, dim=1)
    close(mean, [3, 4])
    assert x.argmax() == 5 and x.median() == 3 and x.max(dim=1, keepdim=True)[0].shape == (2, 1)


@idiom
def reductions_by_function():
    x = mt.tensor([[1.0, 0.0], [3.0, 4.0]])
    same(mt.sum(x, dim=1), [1, 7])
    same(mt.sum(x, 1, keepdim=True), mt.sum(x, -1)[:, None])
    same(mt.mean(x, dim=0), [2, 2])
    same(mt.mean(x, (0, 1)), 2)
    same(mt.mean(x), np.mean(x.numpy()))
    assert mt.any(x == 0) and not mt.all(x > 0) and mt.count_nonzero(x) == 3 and mt.prod(x) == 0
    same(mt.all(x > 0, dim=1), [False, True])
    same(mt.argmin(x, dim=0), [0, 0])
    same(mt.median(x, dim=1).values, [0, 3])
    same(mt.max(x, dim=0, keepdim=True).values, [[3, 4]])
    same(mt.sum(x > 0), 3)
    same(x.sum(axis=0), x.sum(0))
    same(x.mean(-1, keepdims=True), [[0.5], [3.5]])


@idiom
def biased_variance():
    x = mt.tensor([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]])
    a = x.numpy()
    close(x.var(dim=1, unbiased=False), np.var(a, axis=1))
    close(mt.var(x, dim=0, unbiased=True), np.var(a, axis=0, ddof=1))
    close(x.std(0, False), np.std(a, axis=0))
    close(mt.std(x, unbiased=False), np.std(a))
    close(x.var(unbiased=False), np.var(a))


@idiom
def norms():
    x = mt.tensor([[3.0, 4.0], [6.0, 8.0]])
    same(x.norm(dim=1), [5, 10])
    close(x.norm(), math.sqrt(125))
    same(x.norm(p=2, dim=1, keepdim=True), [[5], [10]])
    same(mt.norm(x, p=1), 21)
    same(mt.linalg.norm(x, dim=-1), [5, 10])
    close(mt.linalg.vector_norm(x, ord=float("inf")), 8)
    close(x / x.norm(dim=-1, keepdim=True), F.normalize(x, dim=-1))
    close(F.normalize(x, p=1, dim=1), [[3 / 7, 4 / 7]] * 2)


@idiom
def log_sums():
    x = mt.tensor([[1000.0, 1000.0], [0.0, 1.0]])
    close(mt.logsumexp(x, dim=1), [1000 + math.log(2), math.log(1 + math.e)])
    close(x.softmax(dim=1).sum(dim=1), [1, 1])
    close(F.log_softmax(x, dim=1).exp(), F.softmax(x, dim=1))
    close(mt.logaddexp(mt.tensor(0.0), mt.tensor(0.0)), math.log(2))


@idiom
def running_sums():
    x = mt.tensor([1.0, 2.0, 3.0])
    same(x.cumsum(0), [1, 3, 6])
    same(mt.cumsum(x, dim=-1), [1, 3, 6])
    same(mt.cumprod(x, dim=0), [1, 2, 6])
    same(mt.diff(x), [1, 1])
    same(mt.cummax(mt.tensor([1, 3, 2]), dim=0)[0], [1, 3, 3])
    returns = x.flip(0).cumsum(0).flip(0)
    same(returns, [6, 5, 3])


@idiom
def bounds():
    x = mt.tensor([-2.0, 0.5, 3.0])
    same(x.clamp(-1, 1), [-1, 0.5, 1])
    same(mt.clamp(x, min=0), [0, 0.5, 3])
    same(mt.clip(x, max=1.0), [-2, 0.5, 1])
    same(mt.maximum(x, mt.zeros(3)), [0, 0.5, 3])
    same(mt.max(x, mt.zeros(3)), [0, 0.5, 3])
    same(mt.minimum(x, mt.tensor(0.0)), [-2, 0, 0])
    same(x.sign(), [-1, 1, 1])
    same(mt.relu(x), x.clamp_min(0))


@idiom
def sorts():
    x = mt.tensor([3.0, 1.0, 2.0])
    values, order = mt.sort(x, descending=True)
    same(values, [3, 2, 1])
    same(order, [0, 2, 1])
    same(x.argsort(), [1, 2, 0])
    same(x[mt.argsort(x, descending=True)], values)
    same(x.sort()[0], [1, 2, 3])
    top = x.topk(2)
    same(top.values, [3, 2])
    same(mt.topk(x, k=2, largest=False).indices, [1, 2])
    same(x.kthvalue(2).values, 2)
    close(mt.quantile(x, 0.5), 2)
    same(mt.argsort(mt.argsort(x)), [2, 0, 1])


@idiom
def uniques():
    x = mt.tensor([3, 1, 3, 2])
    same(mt.unique(x), [1, 2, 3])
    values, inverse, counts = mt.unique(x, return_inverse=True, return_counts=True)
    same(values[inverse], x)
    same(counts, [1, 1, 2])
    same(x.unique(sorted=True, return_counts=True)[1], [1, 1, 2])
    same(mt.unique_consecutive(mt.tensor([1, 1, 2])), [1, 2])
    same(mt.isin(x, mt.tensor([1, 2])), [False, True, False, True])


@idiom
def buckets():
    edges = mt.tensor([1, 3, 5])
    same(mt.bucketize(mt.tensor([0, 2, 6]), edges), [0, 1, 3])
    same(mt.searchsorted(edges, mt.tensor([3]), right=True), [2])
    same(mt.histc(mt.tensor([0.0, 1.0, 1.0, 2.0]), bins=3, min=0, max=2), [1, 2, 1])
    same(mt.bincount(mt.tensor([0, 2, 2]), minlength=4), [1, 0, 2, 0])


@idiom
def products():
    a, b = mt.randn(2, 3), mt.randn(3, 4)
    want = a.numpy() @ b.numpy()
    for y in (a @ b, mt.matmul(a, b), mt.mm(a, b), a.mm(b), a.matmul(b), mt.einsum("ij,jk->ik", a, b)):
        close(y, want)
    assert mt.bmm(mt.ones(2, 3, 4), mt.ones(2, 4, 5)).shape == (2, 3, 5) and (
        mt.ones(7, 1, 2, 3) @ mt.ones(5, 3, 2)
    ).shape == (7, 5, 2, 2)
    close(a @ b[:, 0], want[:, 0])
    close(mt.dot(b[:, 0], b[:, 1]), (b[:, 0] * b[:, 1]).sum())
    close(mt.outer(mt.tensor([1.0, 2.0]), mt.tensor([3.0, 4.0])), [[3, 4], [6, 8]])
    close(mt.addmm(mt.ones(4), a, b), want + 1)


@idiom
def einsums():
    q, k = mt.randn(2, 4, 5, 3), mt.randn(2, 4, 6, 3)
    close(mt.einsum("bhid,bhjd->bhij", q, k), q @ k.transpose(-2, -1))
    m = mt.arange(9.0).view(3, 3)
    same(mt.einsum("ii->", m), m.trace())
    same(mt.einsum("ii->i", m), mt.diag(m))
    close(mt.einsum("bi,bi->b", m, m), (m * m).sum(1))
    close(mt.einsum("...d,de->...e", q, mt.eye(3)), q)
    close(mt.einsum("i,j->ij", m[0], m[1]), mt.outer(m[0], m[1]))
    close(mt.einsum("nd,de,ne->n", [m, m, m]), (m @ m * m).sum(1))


@idiom
def linear_algebra():
    a = mt.tensor([[4.0, 1.0], [1.0, 3.0]])
    close(mt.inverse(a) @ a, np.eye(2))
    close(mt.linalg.inv(a) @ a, np.eye(2))
    close(mt.linalg.solve(a, mt.tensor([1.0, 2.0])), np.linalg.solve(a.numpy(), [1, 2]))
    close(mt.det(a), 11)
    u, s, vh = mt.linalg.svd(a, full_matrices=False)
    close(u @ mt.diag(s) @ vh, a)
    low = mt.linalg.cholesky(a)
    close(low @ low.T, a)
    values, vectors = mt.linalg.eigh(a)
    close(a @ vectors, vectors * values)
    close(mt.linalg.lstsq(a, mt.eye(2)).solution, mt.linalg.pinv(a), 1e-4)


@idiom
def principal_components():
    x = mt.randn(50, 3) * mt.tensor([10.0, 1.0, 0.1])
    x = x - x.mean(dim=0)
    u, s, v = mt.svd(x)
    projected = x @ v[:, :1]
    assert projected.var() / x.var(dim=0).sum() > 0.9
    close(mt.cov(x.T), np.cov(x.numpy().T), 1e-3)


@idiom
def distance_matrix():
    a, b = mt.randn(4, 3), mt.randn(5, 3)
    want = np.sqrt(((a.numpy()[:, None] - b.numpy()[None]) ** 2).sum(-1))
    close(mt.cdist(a, b), want, 1e-4)
    close((a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(-1).sqrt(), want, 1e-4)
    squares = a.pow(2).sum(1, keepdim=True) + b.pow(2).sum(1) - 2 * a @ b.t()
    close(squares.clamp(min=1e-12).sqrt(), want, 1e-4)
    same(mt.cdist(a, b, p=2).argmin(dim=1), want.argmin(1))


@idiom
def cosine_similarity():
    a, b = mt.randn(4, 8), mt.randn(4, 8)
    want = (a.numpy() * b.numpy()).sum(1) / np.linalg.norm(a.numpy(), axis=1) / np.linalg.norm(b.numpy(), axis=1)
    close(F.cosine_similarity(a, b), want)
    close(nn.CosineSimilarity(dim=1, eps=1e-6)(a, b), want)
    close((F.normalize(a, dim=1) @ F.normalize(b, dim=1).T).diag(), want)
    assert F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=-1).shape == (4, 4)


@idiom
def one_hot():
    labels = mt.tensor([0, 2, 1])
    same(F.one_hot(labels, num_classes=4).float(), np.eye(4)[[0, 2, 1]])
    same(F.one_hot(labels).sum(), 3)
    same(mt.eye(4)[labels], np.eye(4)[[0, 2, 1]])
    same(mt.nn.functional.one_hot(labels, 3).argmax(-1), labels)


@idiom
def comparisons():
    a = mt.tensor([1.0, 2.0, float("nan")])
    assert mt.allclose(mt.tensor([1.0]), mt.tensor([1.0 + 1e-7])) and not mt.allclose(a, a)
    assert mt.allclose(a, a, equal_nan=True) and mt.allclose(a[:2], a[:2] + 0.01, atol=0.1, rtol=0)
    same(mt.isclose(a, mt.tensor([1.0, 2.1, 0.0])), [True, False, False])
    assert mt.equal(a[:2], mt.tensor([1.0, 2.0])) and a.eq(1).sum() == 1 and (a[:2] == mt.tensor([1.0, 2.0])).all()
    same(a.isnan(), [False, False, True])
    same(mt.isfinite(a), [True, True, False])
    same(mt.nan_to_num(a), [1, 2, 0])
    assert mt.isnan(a).any() and not mt.isinf(a).any() and (a != a).sum() == 1
    same(mt.logical_and(a > 0, a < 2) | mt.logical_not(a > 0), [True, False, True])


@idiom
def testing_module():
    mt.testing.assert_close(mt.ones(2), mt.ones(2) + 1e-7)
    try:
        mt.testing.assert_close(mt.ones(2), mt.zeros(2), rtol=1e-3, atol=1e-3)
    except AssertionError as error:
        assert "not close" in str(error)
    else:
        raise AssertionError("no error")


@idiom
def in_place_updates():
    x = mt.ones(3)
    alias = x
    x.add_(1).mul_(3)
    x -= 1
    x /= 5
    same(alias, [1, 1, 1])
    same(x.zero_(), [0, 0, 0])
    same(x.fill_(2).clamp_(max=1.5).neg_(), [-1.5] * 3)
    x.add_(mt.ones(3), alpha=0.5)
    same(x, [-1, -1, -1])
    x.lerp_(mt.ones(3), 0.5)
    same(x.addcmul_(mt.ones(3), mt.ones(3), value=2), [2, 2, 2])


@idiom
def confusion_matrix():
    target, pred, classes = mt.tensor([0, 0, 1, 2, 2]), mt.tensor([0, 1, 1, 2, 0]), 3
    confusion = mt.bincount(classes * target + pred, minlength=classes**2).reshape(classes, classes)
    same(confusion, [[1, 1, 0], [0, 1, 0], [1, 0, 1]])
    recall = confusion.diag() / confusion.sum(1)
    close(recall, [0.5, 1, 0.5])
    close(confusion.diagonal().sum().item() / confusion.sum().item(), 0.6)


@idiom
def top_k_accuracy():
    def accuracy(output, target, topk=(1,)):
        with mt.no_grad():
            maxk = max(topk)
            _, pred = output.topk(maxk, 1, True, True)
            pred = pred.t()
            correct = pred.eq(target.view(1, -1).expand_as(pred))
            return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]

    output = mt.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    top1, top2 = accuracy(output, mt.tensor([1, 1]), topk=(1, 2))
    assert top1.item() == 50 and top2[0] == 100


@idiom
def sampling_of_tokens():
    logits = mt.tensor([[0.0, 5.0, 1.0, -2.0]])
    temperature, top_k = 0.8, 2
    logits = logits / temperature
    v, _ = mt.topk(logits, min(top_k, logits.size(-1)))
    logits[logits < v[:, [-1]]] = -float("Inf")
    probs = F.softmax(logits, dim=-1)
    idx_next = mt.multinomial(probs, num_samples=1)
    assert idx_next.shape == (1, 1) and idx_next.item() in (1, 2)
    assert set(mt.multinomial(probs[0], 20, replacement=True).tolist()) <= {1, 2}
    idx = mt.cat((mt.zeros(1, 3, dtype=mt.long), idx_next), dim=1)
    assert idx.shape == (1, 4)


@idiom
def nucleus_sampling():
    logits = mt.tensor([1.0, 3.0, 0.0, 2.0])
    sorted_logits, sorted_indices = mt.sort(logits, descending=True)
    cumulative_probs = mt.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
    sorted_indices_to_remove = cumulative_probs > 0.8
    sorted_indices_to_remove[..., 1:] = sorted_indices_to_remove[..., :-1].clone()
    sorted_indices_to_remove[..., 0] = 0
    indices_to_remove = sorted_indices[sorted_indices_to_remove]
    logits[indices_to_remove] = -float("inf")
    same(mt.isfinite(logits), [False, True, False, True])


@idiom
def gumbel_softmax():
    logits = mt.randn(4, 3, requires_grad=True)
    y = F.gumbel_softmax(logits, tau=0.5, hard=True)
    same(y.sum(dim=-1), [1] * 4)
    (y * mt.arange(3)).sum().backward()
    assert logits.grad.abs().sum() > 0
    u = mt.rand(3).clamp(1e-6, 1 - 1e-6)
    assert (-mt.log(-mt.log(u))).isfinite().all()


@idiom
def box_overlaps():
    def box_iou(a, b):
        area = lambda x: (x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1])
        lt = mt.max(a[:, None, :2], b[:, :2])
        rb = mt.min(a[:, None, 2:], b[:, 2:])
        wh = (rb - lt).clamp(min=0)
        inter = wh[:, :, 0] * wh[:, :, 1]
        return inter / (area(a)[:, None] + area(b) - inter)

    close(box_iou(mt.tensor([[0.0, 0, 2, 2]]), mt.tensor([[1.0, 1, 3, 3], [0, 0, 2, 2]])), [[1 / 7, 1]])


@idiom
def k_means():
    x = mt.cat([mt.randn(20, 2) * 0.1, mt.randn(20, 2) * 0.1 + 5])
    centers = x[[0, -1]].clone()
    for _ in range(3):
        assigned = mt.cdist(x, centers).argmin(dim=1)
        for k in range(len(centers)):
            centers[k] = x[assigned == k].mean(dim=0)
    close(centers, [[0, 0], [5, 5]], 0.2)


@idiom
def rotary_embeddings():
    def rotate_half(x):
        x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        return mt.cat((-x2, x1), dim=-1)

    inv_freq = 1.0 / (10000 ** (mt.arange(0, 4, 2).float() / 4))
    freqs = mt.outer(mt.arange(3).float(), inv_freq)
    emb = mt.cat((freqs, freqs), dim=-1)
    x = mt.randn(3, 4)
    y = x * emb.cos() + rotate_half(x) * emb.sin()
    close(y.norm(dim=-1), x.norm(dim=-1))
    freqs_cis = mt.polar(mt.ones_like(freqs), freqs)
    z = mt.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    assert mt.view_as_real(z * freqs_cis).flatten(1).type_as(x).shape == x.shape
    close(mt.view_as_real(z * freqs_cis).flatten(1).norm(dim=-1), x.norm(dim=-1))


@idiom
def fourier():
    x = mt.sin(2 * math.pi * 3 * mt.arange(32) / 32)
    spectrum = mt.fft.rfft(x).abs()
    assert spectrum.argmax() == 3
    close(mt.fft.irfft(mt.fft.rfft(x), n=32), x)
    close(mt.fft.fft2(mt.eye(2)).real, np.fft.fft2(np.eye(2)).real)
    close(mt.sin(mt.tensor(mt.pi)), 0)


# Gradients.


@idiom
def regression_by_hand():
    x = mt.linspace(-1, 1, 50)
    y = 3 * x + 1
    w, b = mt.zeros(1, requires_grad=True), mt.zeros(1, requires_grad=True)
    for epoch in range(60):
        loss = ((w * x + b - y) ** 2).mean()
        loss.backward()
        with mt.no_grad():
            w -= 0.5 * w.grad
            b -= 0.5 * b.grad
            w.grad.zero_()
            b.grad.zero_()
    close((w.item(), b.item()), (3, 1), 1e-3)


@idiom
def updates_of_data():
    w = mt.ones(2, requires_grad=True)
    (w**2).sum().backward()
    w.data -= 0.1 * w.grad.data
    w.grad = None
    close(w, [0.8, 0.8])
    w.data.normal_(0, 0.02)
    assert w.requires_grad and w.is_leaf and w.grad is None
    w.data = mt.zeros(2)
    same(w.detach(), [0, 0])


@idiom
def no_grad_forms():
    model = nn.Linear(2, 1)
    with mt.no_grad():
        assert not model(mt.ones(2)).requires_grad

    @mt.no_grad()
    def predict(x):
        return model(x)

    assert not predict(mt.ones(2)).requires_grad
    for train in (True, False):
        with mt.set_grad_enabled(train):
            assert model(mt.ones(2)).requires_grad == train and mt.is_grad_enabled() == train
    with mt.no_grad():
        model.weight.copy_(mt.zeros(1, 2))
        model.bias[:] = 1
    assert model(mt.ones(2)).item() == 1


@idiom
def inference_mode():
    model = nn.Linear(2, 1)
    with mt.inference_mode():
        assert not model(mt.ones(2)).requires_grad

    @mt.inference_mode()
    def predict(x):
        return model(x)

    assert not predict(mt.ones(2)).requires_grad


@idiom
def graph_fields():
    x = mt.ones(2, requires_grad=True)
    y = (x * 2).sum()
    assert x.is_leaf and x.grad_fn is None and y.grad_fn is not None and not y.is_leaf and x.grad is None
    z = x * 3
    z.retain_grad()
    z.sum().backward()
    same(z.grad, [1, 1])
    assert not x.detach().requires_grad


@idiom
def retained_graph():
    x = mt.tensor(2.0, requires_grad=True)
    y = x**2
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad == 8
    v = mt.ones(3, requires_grad=True)
    (v * 2).backward(mt.tensor([1.0, 0.0, 2.0]))
    same(v.grad, [2, 0, 4])
    v.grad.zero_()
    (v * 2).backward(gradient=mt.ones_like(v))
    same(v.grad, [2, 2, 2])
    try:
        y.backward()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a second backward")


@idiom
def variables_of_old_programs():
    from mytorch.autograd import Variable

    x = Variable(mt.ones(2), requires_grad=True)
    (x * 2).sum().backward()
    same(x.grad.data, [2, 2])


@idiom
def detached_targets():
    x = mt.tensor(3.0, requires_grad=True)
    (x * x.detach()).backward()
    assert x.grad == 3
    hard = (x > 1).float() + x - x.detach()
    assert hard == 1 and mt.autograd.grad(hard, x)[0] == 1


@idiom
def grad_of_grad():
    x = mt.tensor(2.0, requires_grad=True)
    (g,) = mt.autograd.grad(x**3, x, create_graph=True)
    g2 = mt.autograd.grad(g, x)[0]
    assert g.item() == 12 and g2.item() == 12


@idiom
def gradient_penalty():
    critic = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    real, fake = mt.randn(4, 3), mt.randn(4, 3)
    alpha = mt.rand(real.size(0), 1).expand_as(real)
    interpolates = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    d = critic(interpolates)
    gradients = mt.autograd.grad(
        outputs=d,
        inputs=interpolates,
        grad_outputs=mt.ones_like(d),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    penalty = ((gradients.view(gradients.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()
    penalty.backward()
    assert penalty > 0 and critic[0].weight.grad.abs().sum() > 0


@idiom
def jacobian_by_loop():
    x = mt.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = mt.stack([x[0] * x[1], x[2] ** 2])
    rows = []
    for i in range(len(y)):
        rows.append(mt.autograd.grad(y[i], x, retain_graph=True)[0])
    same(mt.stack(rows), [[2, 1, 0], [0, 0, 6]])


@idiom
def jacobian_and_hessian():
    f = lambda x: mt.stack([x[0] * x[1], x[1] ** 2])
    same(mt.autograd.functional.jacobian(f, mt.tensor([1.0, 2.0])), [[2, 1], [0, 4]])
    same(mt.autograd.functional.hessian(lambda x: x.pow(3).sum(), mt.tensor([1.0, 2.0])), [[6, 0], [0, 12]])


@idiom
def gradients_per_sample():
    model, x, y = nn.Linear(3, 1), mt.randn(5, 3), mt.randn(5, 1)
    per_sample = []
    for i in range(len(x)):
        model.zero_grad()
        F.mse_loss(model(x[i : i + 1]), y[i : i + 1]).backward()
        per_sample.append(model.weight.grad.clone())
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
    close(mt.stack(per_sample).mean(0), model.weight.grad)


@idiom
def own_function():
    class MyReLU(mt.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            ctx.save_for_backward(input)
            return input.clamp(min=0)

        @staticmethod
        def backward(ctx, grad_output):
            (input,) = ctx.saved_tensors
            grad_input = grad_output.clone()
            grad_input[input < 0] = 0
            return grad_input

    x = mt.tensor([-1.0, 2.0], requires_grad=True)
    MyReLU.apply(x).sum().backward()
    same(x.grad, [0, 1])


@idiom
def checked_gradients():
    x = mt.randn(3, dtype=mt.double, requires_grad=True)
    assert mt.autograd.gradcheck(lambda x: (x.sin() * x).sum(), (x,), eps=1e-6, atol=1e-4)


@idiom
def anomaly_detection():
    x = mt.tensor(1.0, requires_grad=True)
    with mt.autograd.set_detect_anomaly(True):
        (x * 2).backward()
    assert x.grad == 2


@idiom
def hooks_of_tensors():
    x = mt.ones(2, requires_grad=True)
    seen = []
    h = x.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
    (x * 3).sum().backward()
    h.remove()
    same(seen[0], [3, 3])
    same(x.grad, [6, 6])


@idiom
def hooks_for_activations():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    activation = {}

    def get_activation(name):
        def hook(model, input, output):
            activation[name] = output.detach()

        return hook

    handles = [m.register_forward_hook(get_activation(n)) for n, m in model.named_modules() if isinstance(m, nn.ReLU)]
    x = mt.randn(5, 3)
    model(x)
    for handle in handles:
        handle.remove()
    close(activation["1"], F.relu(model[0](x)))
    grads = []
    model[0].register_full_backward_hook(lambda m, gi, go: grads.append(go[0]))
    model[2].register_forward_pre_hook(lambda m, args: (args[0] * 0,))
    close(model(x)[0], model[2].bias)
    model(x).sum().backward()
    assert grads[0].shape == (5, 4)


# Modules.


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


# Losses.


@idiom
def own_loss_module():
    class RMSELoss(nn.Module):
        def __init__(self, eps=1e-6):
            super().__init__()
            self.mse = nn.MSELoss()
            self.eps = eps

        def forward(self, yhat, y):
            return mt.sqrt(self.mse(yhat, y) + self.eps)

    close(RMSELoss()(mt.tensor([3.0, 0.0]), mt.tensor([0.0, 0.0])), math.sqrt(4.5), 1e-5)


@idiom
def cross_entropy_forms():
    logits, target = mt.randn(4, 3), mt.tensor([0, 2, 1, 2])
    p = F.softmax(logits, dim=1).numpy()
    picked = -np.log(p[range(4), target.numpy()])
    close(nn.CrossEntropyLoss()(logits, target), picked.mean())
    close(F.cross_entropy(logits, target, reduction="none"), picked)
    close(F.nll_loss(F.log_softmax(logits, dim=1), target, reduction="sum"), picked.sum())
    close(nn.CrossEntropyLoss(ignore_index=2)(logits, target), (picked[0] + picked[2]) / 2)
    weight = mt.tensor([1.0, 2.0, 3.0])
    w = weight.numpy()[target.numpy()]
    close(nn.CrossEntropyLoss(weight=weight)(logits, target), (w * picked).sum() / w.sum())
    close(F.cross_entropy(logits, F.one_hot(target, 3).float()), picked.mean())
    close(F.cross_entropy(logits.view(2, 2, 3).transpose(1, 2), target.view(2, 2)), picked.mean())
    assert F.cross_entropy(logits, target).item() == nn.CrossEntropyLoss()(input=logits, target=target).item()


@idiom
def binary_losses():
    logits, y = mt.tensor([0.5, -1.0]), mt.tensor([1.0, 0.0])
    want = -np.log([1 / (1 + math.exp(-0.5)), 1 / (1 + math.exp(-1.0))])
    close(nn.BCEWithLogitsLoss()(logits, y), want.mean())
    close(F.binary_cross_entropy(mt.sigmoid(logits), y, reduction="none"), want)
    close(nn.BCEWithLogitsLoss(pos_weight=mt.tensor([3.0]))(logits, y), (3 * want[0] + want[1]) / 2)
    preds = (mt.sigmoid(logits) > 0.5).float()
    assert (preds == y).float().mean().item() == 1 and mt.round(mt.sigmoid(logits)).eq(y).all()


@idiom
def label_smoothing():
    logits, target, smoothing = mt.randn(4, 5), mt.tensor([0, 1, 4, 2]), 0.1
    logprobs = F.log_softmax(logits, dim=-1)
    nll_loss = -logprobs.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
    smooth_loss = -logprobs.mean(dim=-1)
    loss = (1 - smoothing) * nll_loss + smoothing * smooth_loss
    close(nn.CrossEntropyLoss(label_smoothing=smoothing)(logits, target), loss.mean())
    true_dist = mt.zeros_like(logprobs)
    true_dist.fill_(smoothing / 5)
    true_dist.scatter_(1, target.data.unsqueeze(1), 1 - smoothing + smoothing / 5)
    close(mt.mean(mt.sum(-true_dist * logprobs, dim=-1)), loss.mean())


@idiom
def focal_loss():
    def focal(inputs, targets, alpha=0.25, gamma=2):
        bce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
        pt = mt.exp(-bce)
        return (alpha * (1 - pt) ** gamma * bce).mean()

    x, y = mt.randn(10), (mt.rand(10) > 0.5).float()
    assert 0 < focal(x, y) < 0.25 * F.binary_cross_entropy_with_logits(x, y)
    close(focal(x, y, 1, 0), F.binary_cross_entropy_with_logits(x, y))


@idiom
def dice_loss():
    def dice(pred, target, smooth=1.0):
        pred, target = pred.contiguous().view(-1), target.contiguous().view(-1)
        intersection = (pred * target).sum()
        return 1 - (2.0 * intersection + smooth) / (pred.sum() + target.sum() + smooth)

    m = (mt.rand(2, 1, 4, 4) > 0.5).float()
    close(dice(m, m), 0)
    assert dice(m, 1 - m) > 0.5


@idiom
def contrastive_loss():
    z1, z2 = F.normalize(mt.randn(4, 8), dim=1), F.normalize(mt.randn(4, 8), dim=1)
    z = mt.cat([z1, z2], dim=0)
    sim = mt.mm(z, z.t()) / 0.5
    sim.fill_diagonal_(-9e15)
    labels = mt.cat([mt.arange(4) + 4, mt.arange(4)])
    loss = F.cross_entropy(sim, labels)
    terms = [-(sim[i, labels[i]] - mt.logsumexp(sim[i], 0)).item() for i in range(8)]
    close(loss, np.mean(terms))
    anchor, positive, negative = mt.zeros(2, 3), mt.zeros(2, 3), mt.ones(2, 3)
    close(nn.TripletMarginLoss(margin=1.0)(anchor, positive, negative), 0, 1e-4)
    assert F.pairwise_distance(anchor, negative).shape == (2,)


@idiom
def distillation():
    student, teacher, t = mt.randn(4, 3), mt.randn(4, 3), 2.0
    loss = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(student / t, dim=1), F.softmax(teacher / t, dim=1)) * (
        t * t
    )
    p, q = F.softmax(teacher / t, 1).numpy(), F.softmax(student / t, 1).numpy()
    close(loss, (p * np.log(p / q)).sum() / 4 * 4, 1e-4)
    assert F.smooth_l1_loss(student, student) == 0 and F.l1_loss(student, student + 1).item() > 0.99


@idiom
def masked_loss():
    loss = F.mse_loss(mt.tensor([[1.0, 2.0], [3.0, 4.0]]), mt.zeros(2, 2), reduction="none")
    lengths = mt.tensor([1, 2])
    mask = mt.arange(2)[None, :] < lengths[:, None]
    close((loss * mask).sum() / mask.sum(), (1 + 9 + 16) / 3)


# Training.


@idiom
def training_loop():
    x, y = blobs()
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.Adam(model.parameters(), lr=0.03)
    losses = []
    for epoch in range(8):
        model.train()
        running_loss = 0.0
        for i, (inputs, labels) in enumerate(loader):
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item() * inputs.size(0)
        losses.append(running_loss / len(loader.dataset))
    assert losses[-1] < losses[0] / 2

    model.eval()
    correct, total = 0, 0
    with mt.no_grad():
        for data, target in loader:
            output = model(data)
            _, predicted = mt.max(output.data, 1)
            total += target.size(0)
            correct += (predicted == target).sum().item()
    assert 100 * correct / total > 90


@idiom
def evaluation_as_in_the_mnist_example():
    x, y = blobs(30)
    model = nn.Linear(4, 3)
    with mt.no_grad():
        model.weight.copy_(mt.eye(4)[:3])
        model.bias.zero_()
    model.eval()
    test_loss, correct = 0, 0
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    for data, target in loader:
        output = F.log_softmax(model(data), dim=1)
        test_loss += F.nll_loss(output, target, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct += pred.eq(target.view_as(pred)).sum().item()
    assert correct == len(loader.dataset) == 30 and len(loader) == 4 and test_loss / 30 < 0.2


@idiom
def evaluation_as_in_the_quickstart():
    x, y = blobs(20)
    dataloader, model, loss_fn = DataLoader(TensorDataset(x, y), batch_size=8), nn.Linear(4, 3), nn.CrossEntropyLoss()
    size, num_batches = len(dataloader.dataset), len(dataloader)
    test_loss, correct = 0, 0
    with mt.no_grad():
        for X, y in dataloader:
            pred = model(X)
            test_loss += loss_fn(pred, y).item()
            correct += (pred.argmax(1) == y).type(mt.float).sum().item()
    test_loss /= num_batches
    correct /= size
    close(correct, (model(x).argmax(1).detach().numpy() == np.arange(20) % 3).mean())
    assert f"Avg loss: {test_loss:>8f}" and test_loss > 0


@idiom
def polynomial_of_the_tutorial():
    x = mt.linspace(-math.pi, math.pi, 200)
    y = mt.sin(x)
    p = mt.tensor([1, 2, 3])
    xx = x.unsqueeze(-1).pow(p)
    model = mt.nn.Sequential(mt.nn.Linear(3, 1), mt.nn.Flatten(0, 1))
    loss_fn = mt.nn.MSELoss(reduction="sum")
    optimizer = mt.optim.RMSprop(model.parameters(), lr=1e-2)
    losses = []
    for t in range(100):
        y_pred = model(xx)
        loss = loss_fn(y_pred, y)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < losses[0] and model[0].weight[:, 0].item() != 0


@idiom
def gradient_accumulation():
    x, y = mt.randn(8, 4), mt.randint(0, 3, (8,))
    whole = Net().eval()
    parts = copy.deepcopy(whole)
    F.cross_entropy(whole(x), y).backward()
    accumulation_steps = 4
    optimizer = optim.SGD(parts.parameters(), lr=0.1)
    optimizer.zero_grad(set_to_none=True)
    for i, (xb, yb) in enumerate(zip(x.chunk(4), y.chunk(4))):
        loss = F.cross_entropy(parts(xb), yb) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            for a, b in zip(whole.parameters(), parts.parameters()):
                close(a.grad, b.grad)
            optimizer.step()
            optimizer.zero_grad()
    assert parts.fc1.weight.grad is None


@idiom
def gradient_clipping():
    model = Net()
    (model(mt.randn(4, 4)).pow(2).sum() * 100).backward()
    norm = mt.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    total = sum(p.grad.data.norm(2).item() ** 2 for p in model.parameters()) ** 0.5
    assert norm > 1 and abs(total - 1) < 1e-3
    nn.utils.clip_grad_value_(model.parameters(), clip_value=0.01)
    assert max(p.grad.abs().max().item() for p in model.parameters()) <= 0.010001
    for p in model.parameters():
        p.grad.data.clamp_(-0.001, 0.001)
    assert model.fc2.bias.grad.abs().max() < 0.0011


@idiom
def learning_rate_schedules():
    w = nn.Parameter(mt.zeros(1))
    optimizer = optim.SGD([w], lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    rates = []
    for epoch in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    close(rates, [1, 1, 0.1, 0.1])
    close(scheduler.get_last_lr(), [0.01])
    scheduler = mt.optim.lr_scheduler.CosineAnnealingLR(optim.SGD([w], lr=1.0), T_max=10, eta_min=0)
    for _ in range(5):
        scheduler.optimizer.step()
        scheduler.step()
    close(scheduler.get_last_lr()[0], 0.5)
    for g in optimizer.param_groups:
        g["lr"] *= 0.5
    close(optimizer.param_groups[-1]["lr"], 0.005)


@idiom
def warm_up():
    def lr_lambda(step):
        if step < 4:
            return float(step + 1) / 4
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * (step - 4) / 6)))

    optimizer = optim.AdamW([nn.Parameter(mt.ones(2))], lr=0.1)
    scheduler = optim.lr_scheduler.LambdaLR(optimizer, lr_lambda)
    seen = []
    for _ in range(10):
        seen.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    close(seen, [0.1 * lr_lambda(i) for i in range(10)])
    warm = optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cool = optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    both = optim.lr_scheduler.SequentialLR(optimizer, schedulers=[warm, cool], milestones=[2])
    optimizer.step()
    both.step()
    assert both.get_last_lr()[0] == optimizer.param_groups[0]["lr"]


@idiom
def one_cycle():
    optimizer = optim.SGD([nn.Parameter(mt.ones(1))], lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, steps_per_epoch=5, epochs=2)
    rates = []
    for _ in range(10):
        optimizer.step()
        rates.append(scheduler.get_last_lr()[0])
        scheduler.step() if _ < 9 else None
    assert abs(max(rates) - 1) < 0.05 and rates[0] < 0.1 and rates[-1] < 0.01


@idiom
def rate_that_falls_on_a_plateau():
    optimizer = optim.SGD([nn.Parameter(mt.ones(1))], lr=1.0)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.1, patience=1)
    for val_loss in (1.0, 0.5, 0.5, 0.5):
        scheduler.step(val_loss)
    close(optimizer.param_groups[0]["lr"], 0.1)
    scheduler.step(mt.tensor(0.1))
    assert scheduler.num_bad_epochs == 0


@idiom
def early_stopping():
    model = nn.Linear(1, 1)
    best_loss, patience, counter, best = float("inf"), 2, 0, None
    for epoch, val_loss in enumerate([3.0, 2.0, 2.5, 2.6, 1.0]):
        with mt.no_grad():
            model.weight.fill_(epoch)
        if val_loss < best_loss:
            best_loss, counter = val_loss, 0
            best = copy.deepcopy(model.state_dict())
        else:
            counter += 1
            if counter >= patience:
                break
    model.load_state_dict(best)
    assert epoch == 3 and model.weight.item() == 1


@idiom
def groups_of_parameters():
    model = Net()
    decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
    no_decay = [p for n, p in model.named_parameters() if p.dim() < 2]
    optimizer = optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0, "lr": 1e-2}],
        lr=1e-3,
        betas=(0.9, 0.95),
    )
    assert [g["lr"] for g in optimizer.param_groups] == [1e-3, 1e-2] and optimizer.param_groups[1]["weight_decay"] == 0
    assert sum(p.numel() for g in optimizer.param_groups for p in g["params"]) == 67
    optimizer.add_param_group({"params": nn.Parameter(mt.ones(1))})
    assert len(optimizer.param_groups) == 3 and "AdamW" in repr(optimizer)


@idiom
def closure_of_lbfgs():
    w = nn.Parameter(mt.tensor([4.0, -3.0]))
    optimizer = optim.LBFGS([w], lr=1, max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = ((w - mt.tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    close(w, [1, 2], 1e-3)


@idiom
def own_optimizer():
    class Sgd(optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))

        @mt.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p.add_(p.grad, alpha=-group["lr"])

    w = nn.Parameter(mt.ones(2))
    opt = Sgd([w], lr=0.5)
    (w**2).sum().backward()
    opt.step()
    same(w.detach(), [0, 0])
    assert opt.state[w]["step"] == 1


@idiom
def sums_of_losses():
    w = mt.ones(3, requires_grad=True)
    losses = [w[i] * i for i in range(3)]
    loss = sum(losses) / len(losses)
    total = 0
    total += loss
    total.backward()
    close(w.grad, [0, 1 / 3, 2 / 3])
    close(mt.stack(losses).mean(), 1)
    assert np.mean([each.item() for each in losses]) == 1 and np.mean(mt.stack(losses).detach().numpy()) == 1


# Saving.


@idiom
def saved_state():
    model = Net()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        mt.save(model.state_dict(), path)
        mt.save(model.state_dict(), str(path))
        other = Net()
        result = other.load_state_dict(mt.load(path, map_location="cpu", weights_only=True))
    assert not result.missing_keys and not result.unexpected_keys
    assert all(mt.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))


@idiom
def saved_in_memory():
    buffer = io.BytesIO()
    mt.save({"x": mt.arange(3), "epoch": 4, "names": ["a"]}, buffer)
    buffer.seek(0)
    loaded = mt.load(buffer)
    same(loaded["x"], [0, 1, 2])
    assert loaded["epoch"] == 4 and loaded["names"] == ["a"]


@idiom
def pickles():
    model = Net().eval()
    again = pickle.loads(pickle.dumps(model))
    x = mt.randn(2, 4)
    assert mt.equal(model(x), again(x)) and not again.training
    same(pickle.loads(pickle.dumps(mt.arange(3))), [0, 1, 2])
    state = pickle.loads(pickle.dumps(model.state_dict()))
    assert isinstance(state, OrderedDict) and mt.equal(state["fc1.bias"], model.fc1.bias)


@idiom
def whole_model_saved():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    buffer = io.BytesIO()
    mt.save(model, buffer)
    buffer.seek(0)
    again = mt.load(buffer, weights_only=False)
    assert mt.equal(model(mt.ones(2)), again(mt.ones(2)))


@idiom
def checkpoints():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    model, x = nn.Linear(3, 2), mt.randn(4, 3)
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    step(model, optimizer, x)
    scheduler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/checkpoint.tar"
        mt.save(
            {
                "epoch": 1,
                "model_state_dict": model.state_dict(),
                "optimizer_state_dict": optimizer.state_dict(),
                "scheduler_state_dict": scheduler.state_dict(),
                "loss": 0.4,
            },
            path,
        )
        resumed = nn.Linear(3, 2)
        resumed_optimizer = optim.Adam(resumed.parameters(), lr=0.7)
        resumed_scheduler = optim.lr_scheduler.StepLR(resumed_optimizer, 1, gamma=0.5)
        checkpoint = mt.load(path)
    resumed.load_state_dict(checkpoint["model_state_dict"])
    resumed_optimizer.load_state_dict(checkpoint["optimizer_state_dict"])
    resumed_scheduler.load_state_dict(checkpoint["scheduler_state_dict"])
    step(model, optimizer, x)
    step(resumed, resumed_optimizer, x)
    assert mt.equal(model.weight, resumed.weight) and checkpoint["epoch"] + 1 == 2
    assert resumed_optimizer.param_groups[0]["lr"] == 0.05 and resumed_scheduler.last_epoch == 1


@idiom
def states_that_fit_in_part():
    pretrained = {"fc1.weight": mt.ones(8, 4), "fc2.weight": mt.ones(7, 8), "extra": mt.zeros(1)}
    model = Net()
    model_dict = model.state_dict()
    pretrained = {k: v for k, v in pretrained.items() if k in model_dict and v.size() == model_dict[k].size()}
    model_dict.update(pretrained)
    model.load_state_dict(model_dict)
    assert model.fc1.weight.sum() == 32
    result = model.load_state_dict({"fc1.bias": mt.ones(8), "other": mt.ones(1)}, strict=False)
    assert result.unexpected_keys == ["other"] and "fc2.bias" in result.missing_keys
    missing, unexpected = result
    assert len(missing) == 3
    stripped = {k.replace("module.", ""): v for k, v in {"module.fc1.bias": mt.zeros(8)}.items()}
    model.load_state_dict(stripped, strict=False)
    assert model.fc1.bias.sum() == 0
    try:
        model.load_state_dict({"fc1.weight": mt.ones(1, 1)})
    except RuntimeError as error:
        assert "fc1.weight" in str(error)
    else:
        raise AssertionError("no error")


@idiom
def averaged_weights():
    model = nn.Linear(2, 1)
    ema = copy.deepcopy(model)
    for p in ema.parameters():
        p.requires_grad_(False)
    before = ema.weight.clone()
    with mt.no_grad():
        for p in model.parameters():
            p.add_(1)
        for ema_p, p in zip(ema.parameters(), model.parameters()):
            ema_p.mul_(0.9).add_(p, alpha=0.1)
    close(ema.weight, before + 0.1)
    for target, p in zip(ema.parameters(), model.parameters()):
        target.data.copy_(0.5 * p.data + (1 - 0.5) * target.data)
    close(ema.weight, before + 0.55)


@idiom
def averaged_model():
    model = nn.Linear(2, 1)
    averaged = optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    assert mt.equal(averaged.module.weight, model.weight) and averaged(mt.ones(2)).shape == (1,)


# Data.


class Pairs(Dataset):
    def __init__(self, n, transform=None):
        self.x = np.arange(n, dtype=np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        if mt.is_tensor(idx):
            idx = idx.tolist()
        sample = self.x[idx]
        if self.transform:
            sample = self.transform(sample)
        return sample, int(idx)


@idiom
def own_dataset():
    loader = DataLoader(Pairs(10, transform=lambda x: x * 2), batch_size=4, shuffle=False, num_workers=0)
    batches = list(loader)
    assert [len(y) for x, y in batches] == [4, 4, 2] and len(loader) == 3 and len(loader.dataset) == 10
    x, y = next(iter(loader))
    same(x, [0, 2, 4, 6])
    same(y, [0, 1, 2, 3])
    assert y.dtype == mt.int64
    assert len(DataLoader(Pairs(10), batch_size=4, drop_last=True)) == 2


@idiom
def batches_of_numpy_scalars():
    x, y = next(iter(DataLoader([(np.float32(i), np.int32(i)) for i in range(3)], batch_size=2)))
    same(x, [0, 1])
    assert x.dtype == mt.float32 and y.dtype == mt.int32
    (rows,) = next(iter(DataLoader([(np.ones(2, dtype=np.float32),)] * 3, batch_size=3)))
    assert rows.dtype == mt.float32 and rows.shape == (3, 2)


@idiom
def mixed_batches():
    samples = [{"ids": [i, i + 1], "x": mt.ones(2) * i, "name": f"n{i}", "y": float(i)} for i in range(4)]
    batch = next(iter(DataLoader(samples, batch_size=2)))
    same(batch["x"], [[0, 0], [1, 1]])
    assert batch["name"] == ["n0", "n1"] and batch["y"].dtype == mt.float64
    same(batch["ids"][1], [1, 2])


@idiom
def shuffled_by_generator():
    def order(seed):
        g = mt.Generator()
        g.manual_seed(seed)
        return [int(i) for _, batch in DataLoader(Pairs(8), batch_size=3, shuffle=True, generator=g) for i in batch]

    assert order(1) == order(1) and sorted(order(1)) == list(range(8)) and order(1) != order(2)


@idiom
def random_splits():
    dataset = Pairs(10)
    train_size = int(0.8 * len(dataset))
    train, val = random_split(
        dataset, [train_size, len(dataset) - train_size], generator=mt.Generator().manual_seed(42)
    )
    assert len(train) == 8 and len(val) == 2 and sorted(i for part in (train, val) for _, i in part) == list(range(10))
    train, val, test = random_split(dataset, [0.5, 0.3, 0.2])
    assert (len(train), len(val), len(test)) == (5, 3, 2)
    subset = mt.data.Subset(dataset, [7, 3])
    assert [i for _, i in subset] == [7, 3] and len(mt.data.ConcatDataset([train, val])) == 8


@idiom
def own_collate():
    sequences = [mt.arange(n) + 1 for n in (2, 4, 3)]

    def collate_fn(batch):
        lengths = mt.tensor([len(x) for x in batch])
        return nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=0), lengths

    padded, lengths = next(iter(DataLoader(sequences, batch_size=3, collate_fn=collate_fn)))
    same(padded, [[1, 2, 0, 0], [1, 2, 3, 4], [1, 2, 3, 0]])
    same((padded != 0).sum(1), lengths)
    images, names = zip(*[(mt.ones(2), "a"), (mt.zeros(2), "b")])
    assert mt.stack(images, 0).shape == (2, 2) and names == ("a", "b")


@idiom
def weighted_sampler():
    labels = mt.tensor([0] * 90 + [1] * 10)
    counts = mt.bincount(labels)
    weights = (1.0 / counts.float())[labels]
    sampler = mt.data.WeightedRandomSampler(weights, num_samples=len(weights), replacement=True)
    drawn = mt.cat([y for (y,) in DataLoader(TensorDataset(labels), batch_size=25, sampler=sampler)])
    assert 0.25 < drawn.float().mean() < 0.75
    subset = mt.data.SubsetRandomSampler([1, 2, 3])
    assert sorted(subset) == [1, 2, 3]


@idiom
def stream_of_data():
    class Stream(mt.data.IterableDataset):
        def __iter__(self):
            info = mt.data.get_worker_info()
            assert info is None
            yield from range(5)

    same(mt.cat(list(DataLoader(Stream(), batch_size=2))), [0, 1, 2, 3, 4])


@idiom
def endless_loader():
    def cycle(loader):
        while True:
            yield from loader

    batches = cycle(DataLoader(mt.arange(4), batch_size=3))
    assert [len(next(batches)) for _ in range(4)] == [3, 1, 3, 1]
    it = iter(DataLoader(range(2)))
    next(it), next(it)
    try:
        next(it)
    except StopIteration:
        it = iter(DataLoader(range(2)))
    same(next(it), [0])


@idiom
def mixup():
    x, y = mt.arange(4.0).view(4, 1), mt.tensor([0, 1, 0, 1])
    lam = np.random.beta(0.4, 0.4)
    index = mt.randperm(x.size(0))
    mixed = lam * x + (1 - lam) * x[index, :]
    close(mixed[:, 0], lam * x[:, 0].numpy() + (1 - lam) * x[index, 0].numpy())
    loss = lam * F.cross_entropy(mt.zeros(4, 2), y) + (1 - lam) * F.cross_entropy(mt.zeros(4, 2), y[index])
    close(loss, math.log(2))


@idiom
def batches_of_a_text():
    text = "hello world, hello mytorch"
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    itos = {i: c for c, i in stoi.items()}
    data = mt.tensor([stoi[c] for c in text], dtype=mt.long)
    block_size, batch_size = 5, 3
    ix = mt.randint(len(data) - block_size, (batch_size,))
    x = mt.stack([data[i : i + block_size] for i in ix])
    y = mt.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    same(x[:, 1:], y[:, :-1])
    assert "".join(itos[i] for i in x[0].tolist()) in text and "".join(itos[int(i)] for i in data) == text


# Models.


@idiom
def convolutional_net():
    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 4, 3)
            self.conv2 = nn.Conv2d(4, 8, kernel_size=3, padding=1)
            self.pool = nn.MaxPool2d(2, 2)
            self.fc = nn.Linear(8 * 3 * 3, 10)

        def forward(self, x):
            x = self.pool(F.relu(self.conv1(x)))
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = x.view(-1, self.num_flat_features(x))
            return F.log_softmax(self.fc(x), dim=1)

        def num_flat_features(self, x):
            size = x.size()[1:]
            num_features = 1
            for s in size:
                num_features *= s
            return num_features

    out = LeNet()(mt.randn(2, 1, 14, 14))
    close(out.exp().sum(1), [1, 1])
    assert nn.AdaptiveAvgPool2d((1, 1))(mt.ones(2, 3, 4, 5)).flatten(1).shape == (2, 3)
    assert F.interpolate(mt.ones(1, 1, 2, 2), scale_factor=2, mode="bilinear", align_corners=False).shape == (
        1,
        1,
        4,
        4,
    )


@idiom
def convolution_with_given_kernel():
    sobel = mt.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]]).view(1, 1, 3, 3)
    image = mt.arange(5.0).repeat(5, 1)[None, None]
    close(F.conv2d(image, sobel), np.full((1, 1, 3, 3), -8))
    per_channel = F.conv2d(image.repeat(1, 3, 1, 1), sobel.repeat(3, 1, 1, 1), padding=1, groups=3)
    assert per_channel.shape == (1, 3, 5, 5)


@idiom
def residual_block():
    class BasicBlock(nn.Module):
        expansion = 1

        def __init__(self, in_planes, planes, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(planes)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(planes)
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = nn.Sequential()
            if stride != 1 or in_planes != self.expansion * planes:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
                )

        def forward(self, x):
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += self.shortcut(x)
            return self.relu(out)

    block = BasicBlock(2, 4, stride=2)
    y = block(mt.randn(2, 2, 6, 6))
    y.mean().backward()
    assert y.shape == (2, 4, 3, 3) and y.min() >= 0 and block.conv1.weight.grad is not None
    same(BasicBlock(2, 2).shortcut(y), y)


@idiom
def language_model_step():
    class RNNModel(nn.Module):
        def __init__(self, vocab, dim, hidden):
            super().__init__()
            self.encoder = nn.Embedding(vocab, dim)
            self.rnn = nn.LSTM(dim, hidden, num_layers=2, batch_first=True, dropout=0.1)
            self.decoder = nn.Linear(hidden, vocab)

        def init_hidden(self, bsz):
            weight = next(self.parameters())
            return weight.new_zeros(2, bsz, self.rnn.hidden_size), weight.new_zeros(2, bsz, self.rnn.hidden_size)

        def forward(self, x, hidden):
            out, hidden = self.rnn(self.encoder(x), hidden)
            return self.decoder(out), hidden

    def repackage_hidden(h):
        return h.detach() if isinstance(h, mt.Tensor) else tuple(repackage_hidden(v) for v in h)

    model = RNNModel(11, 6, 8)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    hidden = model.init_hidden(3)
    x = mt.randint(0, 11, (3, 7))
    losses = []
    for _ in range(8):
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden = model(x[:, :-1], hidden)
        loss = F.cross_entropy(output.reshape(-1, 11), x[:, 1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and hidden[0].shape == (2, 3, 8) and math.exp(loss.item()) < 12


@idiom
def packed_sequences():
    from mytorch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

    sequences = [mt.randn(n, 3) for n in (4, 2, 3)]
    lengths = mt.tensor([len(s) for s in sequences])
    padded = pad_sequence(sequences, batch_first=True)
    lstm = nn.LSTM(3, 5, batch_first=True)
    packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
    packed_out, (h, c) = lstm(packed)
    out, out_lengths = pad_packed_sequence(packed_out, batch_first=True)
    same(out_lengths, [4, 2, 3])
    assert out.shape == (3, 4, 5) and packed.data.shape == (9, 3)
    last = out[mt.arange(3), lengths - 1]
    close(last, h[-1])
    close(lstm(sequences[1].unsqueeze(0))[0][0, -1], h[0, 1])
    assert out[1, 2:].abs().sum() == 0


@idiom
def bidirectional_rnn():
    gru = nn.GRU(input_size=3, hidden_size=4, bidirectional=True, batch_first=True)
    out, h_n = gru(mt.randn(2, 5, 3))
    assert out.shape == (2, 5, 8) and h_n.shape == (2, 2, 4)
    feature = mt.cat((h_n[-2, :, :], h_n[-1, :, :]), dim=1)
    close(feature[:, :4], out[:, -1, :4])
    close(feature[:, 4:], out[:, 0, 4:])


@idiom
def recurrence_by_hand():
    class RNN(nn.Module):
        def __init__(self, input_size, hidden_size, output_size):
            super().__init__()
            self.hidden_size = hidden_size
            self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
            self.h2o = nn.Linear(hidden_size, output_size)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, input, hidden):
            hidden = mt.tanh(self.i2h(mt.cat((input, hidden), 1)))
            return self.softmax(self.h2o(hidden)), hidden

        def initHidden(self):
            return mt.zeros(1, self.hidden_size)

    rnn = RNN(3, 4, 2)
    hidden = rnn.initHidden()
    for letter in mt.eye(3):
        output, hidden = rnn(letter[None], hidden)
    nn.NLLLoss()(output, mt.tensor([1])).backward()
    for p in rnn.parameters():
        p.data.add_(p.grad.data, alpha=-0.1)
    top_n, top_i = output.topk(1)
    assert top_i[0].item() in (0, 1) and rnn.i2h.weight.grad.abs().sum() > 0


@idiom
def teacher_forcing():
    class Decoder(nn.Module):
        def __init__(self, vocab, hidden):
            super().__init__()
            self.embedding = nn.Embedding(vocab, hidden)
            self.cell = nn.GRUCell(hidden, hidden)
            self.out = nn.Linear(hidden, vocab)

        def forward(self, hidden, targets, teacher_forcing_ratio=0.5):
            token = mt.zeros(hidden.size(0), dtype=mt.long, device=hidden.device)
            outputs = []
            for t in range(targets.size(1)):
                hidden = self.cell(F.relu(self.embedding(token)), hidden)
                logits = self.out(hidden)
                outputs.append(logits)
                use_teacher = random.random() < teacher_forcing_ratio
                topv, topi = logits.data.topk(1)
                token = targets[:, t] if use_teacher else topi.squeeze(-1).detach()
            return mt.stack(outputs, dim=1)

    targets = mt.randint(1, 6, (3, 4))
    decoder = Decoder(6, 8)
    for ratio in (1.0, 0.0, 0.5):
        logits = decoder(mt.zeros(3, 8), targets, ratio)
        assert logits.shape == (3, 4, 6)
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    assert decoder.embedding.weight.grad.abs().sum() > 0


def scaled_dot_product(q, k, v, mask=None):
    """Attention as in tutorials."""
    d_k = q.size()[-1]
    attn_logits = mt.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        attn_logits = attn_logits.masked_fill(mask == 0, -9e15)
    attention = F.softmax(attn_logits, dim=-1)
    return mt.matmul(attention, v), attention


@idiom
def attention_by_hand():
    q, k, v = (mt.randn(2, 3, 5, 4) for _ in range(3))
    values, attention = scaled_dot_product(q, k, v)
    close(attention.sum(-1), np.ones((2, 3, 5)))
    close(values, F.scaled_dot_product_attention(q, k, v))
    causal = mt.tril(mt.ones(5, 5))
    values, attention = scaled_dot_product(q, k, v, mask=causal)
    close(values, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    close(values, F.scaled_dot_product_attention(q, k, v, attn_mask=causal.bool(), dropout_p=0.0))
    same(attention.triu(1).sum(), 0)


@idiom
def causal_self_attention():
    class CausalSelfAttention(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            assert n_embd % n_head == 0
            self.c_attn = nn.Linear(n_embd, 3 * n_embd)
            self.c_proj = nn.Linear(n_embd, n_embd)
            mask = mt.tril(mt.ones(block_size, block_size)).view(1, 1, block_size, block_size)
            self.register_buffer("bias", mask)
            self.n_head, self.n_embd = n_head, n_embd
            self.flash = hasattr(mt.nn.functional, "scaled_dot_product_attention")

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            y = att @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.c_proj(y)

    m = CausalSelfAttention(8, 2, 6)
    x = mt.randn(2, 5, 8)
    y = m(x)
    x[:, -1] += 1
    assert m.flash and mt.allclose(y[:, :-1], m(x)[:, :-1], atol=1e-6) and not mt.allclose(y[:, -1], m(x)[:, -1])


@idiom
def transformer_block():
    class Head(nn.Module):
        def __init__(self, n_embd, head_size, block_size):
            super().__init__()
            self.key = nn.Linear(n_embd, head_size, bias=False)
            self.query = nn.Linear(n_embd, head_size, bias=False)
            self.value = nn.Linear(n_embd, head_size, bias=False)
            self.register_buffer("tril", mt.tril(mt.ones(block_size, block_size)))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x):
            B, T, C = x.shape
            k, q = self.key(x), self.query(x)
            wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
            wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
            wei = self.dropout(F.softmax(wei, dim=-1))
            return wei @ self.value(x)

    class Block(nn.Module):
        def __init__(self, n_embd, n_head, block_size):
            super().__init__()
            self.heads = nn.ModuleList([Head(n_embd, n_embd // n_head, block_size) for _ in range(n_head)])
            self.proj = nn.Linear(n_embd, n_embd)
            self.ffwd = nn.Sequential(
                nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.1)
            )
            self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

        def forward(self, x):
            h = self.ln1(x)
            x = x + self.proj(mt.cat([head(h) for head in self.heads], dim=-1))
            return x + self.ffwd(self.ln2(x))

    class LanguageModel(nn.Module):
        def __init__(self, vocab_size, n_embd=8, block_size=6):
            super().__init__()
            self.block_size = block_size
            self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
            self.position_embedding_table = nn.Embedding(block_size, n_embd)
            self.blocks = nn.Sequential(*[Block(n_embd, 2, block_size) for _ in range(2)])
            self.lm_head = nn.Linear(n_embd, vocab_size)

        def forward(self, idx, targets=None):
            B, T = idx.shape
            x = self.token_embedding_table(idx) + self.position_embedding_table(mt.arange(T, device=idx.device))
            logits = self.lm_head(self.blocks(x))
            if targets is None:
                return logits, None
            B, T, C = logits.shape
            return logits, F.cross_entropy(logits.view(B * T, C), targets.view(B * T))

        def generate(self, idx, max_new_tokens):
            for _ in range(max_new_tokens):
                logits, loss = self(idx[:, -self.block_size :])
                probs = F.softmax(logits[:, -1, :], dim=-1)
                idx = mt.cat((idx, mt.multinomial(probs, num_samples=1)), dim=1)
            return idx

    model = LanguageModel(5)
    optimizer = mt.optim.AdamW(model.parameters(), lr=1e-2)
    x = mt.arange(8).view(2, 4) % 5
    y = (x + 1) % 5
    losses = []
    for _ in range(12):
        logits, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    out = model.generate(mt.zeros((1, 1), dtype=mt.long), 8)[0].tolist()
    assert len(out) == 9 and all(0 <= token < 5 for token in out)


@idiom
def transformer_layers():
    mha = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    x = mt.randn(3, 5, 8)
    mask = mt.triu(mt.ones(5, 5), diagonal=1).bool()
    out, weights = mha(x, x, x, attn_mask=mask)
    assert out.shape == (3, 5, 8) and weights.shape == (3, 5, 5) and weights.triu(1).abs().sum() == 0
    pad = mt.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    _, weights = mha(x, x, x, key_padding_mask=pad, need_weights=True)
    same(weights[1, :, 3:].sum(), 0)
    layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, num_layers=2)
    assert encoder(x, src_key_padding_mask=pad).shape[0] == 3
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    encoder.eval()
    y = encoder(x, mask=causal)
    x[:, -1] = 0
    close(encoder(x, mask=causal)[:, :-1], y[:, :-1], 1e-4)


@idiom
def positional_encoding():
    class PositionalEncoding(nn.Module):
        def __init__(self, d_model, max_len=50):
            super().__init__()
            position = mt.arange(max_len).unsqueeze(1)
            div_term = mt.exp(mt.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
            pe = mt.zeros(max_len, 1, d_model)
            pe[:, 0, 0::2] = mt.sin(position * div_term)
            pe[:, 0, 1::2] = mt.cos(position * div_term)
            self.register_buffer("pe", pe)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.pe[: x.size(0)]

    y = PositionalEncoding(4)(mt.zeros(3, 2, 4))
    close(y[1, 0], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)])


@idiom
def variational_autoencoder():
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Linear(12, 8)
            self.fc21, self.fc22 = nn.Linear(8, 2), nn.Linear(8, 2)
            self.fc3, self.fc4 = nn.Linear(2, 8), nn.Linear(8, 12)

        def encode(self, x):
            h1 = F.relu(self.fc1(x))
            return self.fc21(h1), self.fc22(h1)

        def reparameterize(self, mu, logvar):
            std = mt.exp(0.5 * logvar)
            eps = mt.randn_like(std)
            return mu + eps * std

        def decode(self, z):
            return mt.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 12))
            return self.decode(self.reparameterize(mu, logvar)), mu, logvar

    def loss_function(recon_x, x, mu, logvar):
        BCE = F.binary_cross_entropy(recon_x, x.view(-1, 12), reduction="sum")
        KLD = -0.5 * mt.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return BCE + KLD

    model, x = VAE(), mt.rand(6, 3, 4).round()
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    assert losses[-1] < losses[0]
    with mt.no_grad():
        sample = model.decode(mt.randn(4, 2)).cpu()
    assert sample.view(4, 1, 3, 4).shape == (4, 1, 3, 4) and 0 < sample.min() and sample.max() < 1


@idiom
def adversarial_step():
    def weights_init(m):
        classname = m.__class__.__name__
        if classname.find("Linear") != -1:
            nn.init.normal_(m.weight.data, 0.0, 0.02)

    netG = nn.Sequential(nn.Linear(2, 8), nn.ReLU(True), nn.Linear(8, 3))
    netD = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid())
    netG.apply(weights_init)
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=2e-2, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=2e-2, betas=(0.5, 0.999))
    real = mt.randn(8, 3) + 3
    label = mt.full((8,), 1.0, dtype=mt.float)

    netD.zero_grad()
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(mt.randn(8, 2))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    optimizerD.step()
    assert netG[0].weight.grad is None and netD[0].weight.grad is not None

    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    before = netG[2].weight.detach().clone()
    optimizerG.step()
    assert not mt.equal(before, netG[2].weight) and (errD_real + errD_fake).item() > 0


@idiom
def transposed_convolutions():
    decoder = nn.Sequential(
        nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(True),
        nn.ConvTranspose2d(3, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )
    y = decoder(mt.randn(2, 4, 1, 1))
    assert y.shape == (2, 1, 4, 4) and y.abs().max() <= 1


@idiom
def policy_gradient():
    policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(dim=-1))
    rewards, log_probs = [1.0, 0.0, 2.0], []
    for _ in rewards:
        probs = policy(mt.from_numpy(np.random.rand(4)).float().unsqueeze(0))
        action = mt.multinomial(probs, 1)
        log_probs.append(mt.log(probs.gather(1, action)).squeeze())
    R, returns = 0, []
    for r in rewards[::-1]:
        R = r + 0.9 * R
        returns.insert(0, R)
    returns = mt.tensor(returns)
    close(returns, [1 + 0.81 * 2, 1.8, 2])
    returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
    loss = mt.stack([-log_prob * R for log_prob, R in zip(log_probs, returns)]).sum()
    loss.backward()
    assert policy[0].weight.grad.isfinite().all()


@idiom
def categorical_distribution():
    from mytorch.distributions import Categorical

    m = Categorical(logits=mt.tensor([[0.0, 1.0]]))
    action = m.sample()
    close(m.log_prob(action), F.log_softmax(mt.tensor([[0.0, 1.0]]), -1)[0, action])
    assert m.entropy().item() > 0


@idiom
def q_learning_target():
    policy_net, target_net = nn.Linear(4, 2), nn.Linear(4, 2)
    target_net.load_state_dict(policy_net.state_dict())
    state, next_state = mt.randn(5, 4), mt.randn(5, 4)
    action, reward, done = mt.randint(2, (5, 1)), mt.ones(5), mt.tensor([0, 0, 1, 0, 0], dtype=mt.bool)
    q = policy_net(state).gather(1, action)
    with mt.no_grad():
        target = reward + 0.99 * target_net(next_state).max(1).values * (~done)
    assert target[2] == 1
    nn.SmoothL1Loss()(q, target.unsqueeze(1)).backward()
    target_dict, policy_dict = target_net.state_dict(), policy_net.state_dict()
    for key in policy_dict:
        target_dict[key] = policy_dict[key] * 0.005 + target_dict[key] * (1 - 0.005)
    target_net.load_state_dict(target_dict)
    close(target_net.weight, policy_net.weight)
    non_final = mt.tensor(tuple(map(lambda s: s is not None, [1, None, 2])), dtype=mt.bool)
    values = mt.zeros(3)
    values[non_final] = mt.tensor([1.0, 2.0])
    same(values, [1, 0, 2])


@idiom
def graph_convolution():
    edges = mt.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    x = mt.eye(3)
    adj = mt.zeros(3, 3)
    adj[edges[0], edges[1]] = 1.0
    adj = adj + mt.eye(3)
    deg = adj.sum(1).pow(-0.5)
    norm = mt.diag(deg) @ adj @ mt.diag(deg)
    close(norm, norm.T)
    src, dst = edges
    out = mt.zeros(3, 3).index_add_(0, dst, x[src])
    same(out, (adj - mt.eye(3)).T)


@idiom
def sparse_adjacency():
    i, v = mt.tensor([[0, 1, 2], [1, 2, 0]]), mt.tensor([1.0, 2.0, 3.0])
    adj = mt.sparse_coo_tensor(i, v, (3, 3))
    same(mt.sparse.mm(adj, mt.eye(3)), [[0, 1, 0], [0, 0, 2], [3, 0, 0]])
    same(adj.to_dense().sum(), 6)


@idiom
def gram_matrix():
    def gram(input):
        a, b, c, d = input.size()
        features = input.view(a * b, c * d)
        return mt.mm(features, features.t()).div(a * b * c * d)

    image = mt.rand(1, 3, 4, 4).requires_grad_(True)
    optimizer = optim.Adam([image], lr=0.05)
    target = gram(mt.ones(1, 3, 4, 4)).detach()
    before = F.mse_loss(gram(image), target).item()
    for _ in range(10):
        optimizer.zero_grad()
        F.mse_loss(gram(image), target).backward()
        optimizer.step()
        with mt.no_grad():
            image.clamp_(0, 1)
    assert F.mse_loss(gram(image), target).item() < before


@idiom
def adversarial_example():
    model, x, y = nn.Linear(4, 3), mt.rand(2, 4), mt.tensor([0, 1])
    x.requires_grad = True
    loss = F.nll_loss(F.log_softmax(model(x), dim=1), y)
    model.zero_grad()
    loss.backward()
    perturbed = mt.clamp(x + 0.1 * x.grad.data.sign(), 0, 1)
    assert F.cross_entropy(model(perturbed), y) > loss and (perturbed - x).abs().max() <= 0.1001


@idiom
def mixed_precision():
    model, x = nn.Linear(4, 3), mt.randn(2, 4)
    with mt.autocast(device_type="cpu", dtype=mt.bfloat16):
        y = model(x)
    assert y.dtype == mt.bfloat16
    with mt.amp.autocast("cpu", enabled=False):
        assert model(x).dtype == mt.float32


@idiom
def scaled_gradients():
    model = nn.Linear(4, 3)
    y = model(mt.randn(2, 4))
    scaler = mt.amp.GradScaler("cpu", enabled=False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    before = model.bias.detach().clone()
    scaler.scale(y.float().sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    close(model.bias, before - 0.2, 1e-2)


@idiom
def switches():
    mt.set_float32_matmul_precision("high")
    mt.set_float32_matmul_precision("highest")
    mt.use_deterministic_algorithms(False)
    mt.backends.cudnn.benchmark = True
    mt.backends.cuda.matmul.allow_tf32 = False
    assert mt.get_float32_matmul_precision() == "highest" and mt.backends.cudnn.benchmark


@idiom
def low_precision_modules():
    model = nn.Linear(4, 3).to(mt.bfloat16)
    assert model(mt.ones(2, 4, dtype=mt.bfloat16)).dtype == mt.bfloat16
    model = model.to(device="cpu", dtype=mt.float64)
    assert (
        model.weight.dtype == mt.double
        and model.float().weight.dtype == mt.float32
        and model.half().bias.dtype == mt.half
    )


@idiom
def gpu_housekeeping():
    assert mt.cuda.device_count() >= 0 and isinstance(mt.cuda.is_available(), bool)
    if mt.cuda.is_available():
        mt.cuda.synchronize()
    mt.cuda.empty_cache()
    assert isinstance(mt.__version__, str) and mt.get_num_threads() >= 1


@idiom
def shapes_as_tuples():
    x = mt.zeros(2, 3, 4)
    assert x.shape[-1] == 4 and tuple(x.shape) == (2, 3, 4) and x.shape[:-1].numel() == 6
    assert x.shape[1:] == (3, 4) and mt.zeros(x.shape[:1] + (5,)).shape == mt.Size((2, 5)) and x.shape.numel() == 24
    b, t, c = x.size()
    assert (b, t, c) == (2, 3, 4) and [*x.shape] == [2, 3, 4] and x.shape != (2, 3)


@idiom
def keys_of_sets():
    a, b = mt.zeros(1), mt.zeros(1)
    assert len({a, b, a}) == 2 and {a: 1}[a] == 1 and any(a is p for p in [b, a])
    assert mt.float32 in {mt.float32: "f"} and str(mt.float32).endswith(".float32")


# The test.

_outcomes = {}


def outcome(name):
    """Runs an idiom once; returns its exception, or None."""
    if name not in _outcomes:
        mt.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        try:
            IDIOMS[name]()
            _outcomes[name] = None
        except Exception as error:
            _outcomes[name] = error
    return _outcomes[name]


class Idioms(unittest.TestCase):
    """One test for each idiom, and one of their share."""

    def check(self, name):
        error = outcome(name)
        if error is None:
            self.assertNotIn(name, MISSING, "the idiom runs now: take it out of MISSING")
        elif name not in MISSING:
            raise error

    def test_z_share(self):
        self.assertGreaterEqual(len(IDIOMS), 70)
        self.assertLessEqual(MISSING.keys(), IDIOMS.keys())
        failed = sorted(name for name in IDIOMS if outcome(name) is not None)
        self.assertGreaterEqual(len(IDIOMS) - len(failed), 0.95 * len(IDIOMS), f"these idioms fail: {failed}")


for _name in IDIOMS:
    setattr(Idioms, f"test_{_name}", lambda self, name=_name: self.check(name))


if __name__ == "__main__":
    unittest.main()
