"""Idioms: losses."""

import math

from idioms.table import close, idiom
import mytorch as mt
import mytorch.nn as nn
import mytorch.nn.functional as F
import numpy as np


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
