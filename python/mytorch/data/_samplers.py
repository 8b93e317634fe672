"""The order of samples."""

import itertools
import math
import types
from typing import Any

from mytorch import _core


def random_seed(generator=None):
    """Returns a seed drawn from a generator, or from the default one."""
    return _core.empty((), dtype=_core.int64).random_(generator=generator).item()


def _check_count(name, value):
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


def _check_bool(name, value):
    if not isinstance(value, bool):
        raise ValueError(f"{name} should be a boolean value, but got {name}={value}")


class Sampler:
    """An order of samples. A subclass defines `__iter__`, which gives the numbers of samples or lists of them, and
    `__len__`, which len(loader) needs."""

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler):
    """All samples in their own order."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """All samples in random order, or `num_samples` of them; with `replacement`, each is drawn from all."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples
        self.generator = generator
        _check_bool("replacement", replacement)
        _check_count("num_samples", self.num_samples)

    @property
    def num_samples(self):
        """The number of samples of an epoch."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        count, left = len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            # One draw from the default generator, so that what else draws from it meanwhile does not change the order.
            generator = _core.Generator().manual_seed(random_seed())
        while left > 0:
            if self.replacement:
                chunk = _core.randint(0, count, (min(left, 1024),), generator=generator).tolist()
            else:
                chunk = _core.randperm(count, generator=generator).tolist()[:left]
            left -= len(chunk)
            yield from chunk

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given numbers of samples in random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in _core.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draws `num_samples` samples; a sample's probability is its weight, divided by the sum of all."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        _check_count("num_samples", num_samples)
        _check_bool("replacement", replacement)
        self.weights = _core.as_tensor(weights, dtype=_core.float64)
        if self.weights.ndim != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {self.weights.shape}")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        draws = _core.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(draws.tolist())

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler; with `drop_last`, without a shorter list at the end."""

    def __init__(self, sampler, batch_size, drop_last):
        _check_count("batch_size", batch_size)
        _check_bool("drop_last", drop_last)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        numbers = iter(self.sampler)
        while batch := list(itertools.islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)


class DistributedSampler(Sampler):
    """The share of one process of `num_replicas`. All shares have one length: samples are repeated for it, or left out
    with `drop_last`. The order depends on the seed and the epoch alone."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        if num_replicas is None or rank is None:
            raise ValueError("DistributedSampler needs num_replicas and rank")
        _check_count("num_replicas", num_replicas)
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        share = len(dataset) / num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self):
        count = len(self.dataset)
        if self.shuffle:
            generator = _core.Generator().manual_seed(self.seed + self.epoch)
            numbers = _core.randperm(count, generator=generator).tolist()
        else:
            numbers = range(count)
        return (numbers[i % count] for i in range(self.rank, self.total_size, self.num_replicas))

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        """Sets the number of the epoch, which changes the order if `shuffle` is set."""
        self.epoch = epoch
