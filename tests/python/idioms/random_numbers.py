"""Idioms: random numbers."""

import random

from idioms.table import idiom, same
import mytorch as mt
from mytorch.data import DataLoader
import numpy as np


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
