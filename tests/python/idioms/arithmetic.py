"""Idioms: arithmetic and reductions."""

import math

from idioms.table import close, idiom, same
import mytorch as mt
import mytorch.nn as nn
import mytorch.nn.functional as F
import numpy as np


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
