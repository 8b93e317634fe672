"""Idioms: shapes."""

from idioms.table import idiom, same
import mytorch as mt
import mytorch.nn as nn
import mytorch.nn.functional as F


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
