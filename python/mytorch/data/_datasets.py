"""Datasets, and datasets made of others."""

import bisect
import itertools
import math
import types
import warnings
from typing import Any

from mytorch import _core


class Dataset:
    """Samples with numbers. A subclass defines `__getitem__` and `__len__`, and may define `__getitems__`, which
    returns the samples of a list of numbers."""

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Samples that come one after another. A subclass defines `__iter__`; each worker of a loader iterates over all of
    it unless `__iter__` asks get_worker_info which part is this worker's."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other):
        return ChainDataset([self, other])


def _check_equal(lengths, what):
    if len(set(lengths)) > 1:
        raise ValueError(f"Size mismatch between {what}: {lengths}")


class TensorDataset(Dataset):
    """Sample i is row i of each tensor, a tuple."""

    def __init__(self, *tensors):
        if not tensors:
            raise ValueError("TensorDataset needs at least one tensor")
        _check_equal([len(tensor) for tensor in tensors], "tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class StackDataset(Dataset):
    """Sample i is sample i of each dataset: a tuple, or a dict if the datasets were given by name."""

    def __init__(self, *args, **kwargs):
        if args and kwargs:
            raise ValueError("StackDataset takes datasets by position or by name, not both")
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        _check_equal([len(dataset) for dataset in args or kwargs.values()], "datasets")
        self.datasets = args or kwargs

    def __getitem__(self, index):
        return self._join([dataset[index] for dataset in self._parts()])

    def __getitems__(self, indices):
        columns = [_samples(dataset, indices) for dataset in self._parts()]
        return [self._join(samples) for samples in zip(*columns)]

    def __len__(self):
        return len(self._parts()[0])

    def _parts(self):
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else self.datasets

    def _join(self, samples):
        return dict(zip(self.datasets, samples)) if isinstance(self.datasets, dict) else tuple(samples)


class ConcatDataset(Dataset):
    """The samples of several datasets, one dataset after another."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ValueError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = list(itertools.accumulate(len(dataset) for dataset in self.datasets))

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside of a dataset with {len(self)} samples")
        index %= len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self):
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset):
    """The samples of several iterable datasets, one dataset after another."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        if not all(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise ValueError("ChainDataset only supports IterableDataset")

    def __iter__(self):
        return itertools.chain.from_iterable(self.datasets)

    def __len__(self):
        return sum(len(dataset) for dataset in self.datasets)


class Subset(Dataset):
    """The samples of a dataset that a sequence of numbers names."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        return _samples(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


def _samples(dataset, indices):
    """Returns the samples of a list of numbers, all at once if the dataset can do that."""
    at_once = getattr(dataset, "__getitems__", None)
    if not callable(at_once):
        return [dataset[i] for i in indices]
    samples = at_once(indices)
    if len(samples) != len(indices):
        raise ValueError(f"__getitems__ returned {len(samples)} samples for {len(indices)} numbers")
    return samples


def random_split(dataset, lengths, generator=None):
    """Returns subsets of random samples that do not overlap. Lengths are numbers of samples, or fractions whose sum is
    1; samples that remain of fractions go to the first subsets."""
    lengths = list(lengths)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        for i, fraction in enumerate(lengths):
            if not 0 <= fraction <= 1:
                raise ValueError(f"Fraction at index {i} is not between 0 and 1")
        lengths = [math.floor(len(dataset) * fraction) for fraction in lengths]
        for i in range(len(dataset) - sum(lengths)):
            lengths[i % len(lengths)] += 1
        for i, length in enumerate(lengths):
            if length == 0:
                warnings.warn(f"Length of split at index {i} is 0: a dataset without samples", stacklevel=2)
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    indices = _core.randperm(len(dataset), generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, indices[end - length : end]) for end, length in zip(ends, lengths)]
