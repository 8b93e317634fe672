"""Idioms: indexing."""

import math

from idioms.table import close, idiom, same
import mytorch as mt
import mytorch.nn.functional as F
import numpy as np


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
