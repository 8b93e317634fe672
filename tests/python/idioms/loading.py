"""Idioms: data."""

import math

from idioms.table import close, idiom, same
import mytorch as mt
from mytorch.data import DataLoader, Dataset, TensorDataset, random_split
import mytorch.nn as nn
import mytorch.nn.functional as F
import numpy as np


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
