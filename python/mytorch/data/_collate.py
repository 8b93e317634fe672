"""Batches of samples."""

import collections.abc
import copy
import sys

from mytorch import _core


def _has_no_type(array):
    """Returns whether an array of NumPy holds text or objects, which tensors cannot."""
    return array.dtype.kind in "SUO"


def _rebuild(original, keys, values):
    """Returns a mapping or sequence with new values: of the original's type, with its other attributes, if that type
    can be copied and changed or made of its elements, and otherwise a dict or a list."""
    if isinstance(original, collections.abc.Mapping):
        plain, mutable = dict(zip(keys, values)), collections.abc.MutableMapping
    else:
        plain, mutable = values, collections.abc.MutableSequence
    if type(original) in (dict, list):
        return plain
    try:
        if not isinstance(original, mutable):
            return type(original)(plain)
        clone = copy.copy(original)
        for key, value in zip(keys, values):
            clone[key] = value
        return clone
    except TypeError:
        return plain


def default_convert(data):
    """Converts arrays and scalars of NumPy, also inside of mappings and sequences, to tensors; leaves all else."""
    if isinstance(data, (_core.Tensor, str, bytes)):
        return data
    numpy = sys.modules.get("numpy")  # not imported here: without it, nothing is an array
    if numpy is not None and isinstance(data, (numpy.ndarray, numpy.generic)):
        return data if _has_no_type(data) else _core.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuild(data, list(data), [default_convert(data[key]) for key in data])
    if isinstance(data, tuple):
        values = [default_convert(value) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else values
    if isinstance(data, collections.abc.Sequence):
        return _rebuild(data, range(len(data)), [default_convert(value) for value in data])
    return data


def default_collate(batch):
    """Makes a batch of a list of samples: tensors and arrays are stacked, numbers become tensors, and mappings, tuples
    and other sequences become such of batches (a plain tuple becomes a list). Text remains a list."""
    first = batch[0]
    if isinstance(first, _core.Tensor):
        return _core.stack(list(batch))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(first, numpy.ndarray):
        if _has_no_type(first):
            raise TypeError(_refusal(first.dtype))
        return _core.stack([_core.as_tensor(array) for array in batch])
    if numpy is not None and isinstance(first, (numpy.bool_, numpy.number)):
        return _core.as_tensor(list(batch))
    if isinstance(first, float):
        return _core.tensor(batch, dtype=_core.float64)
    if isinstance(first, int):
        return _core.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return _rebuild(first, list(first), [default_collate([sample[key] for sample in batch]) for key in first])
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(column) for column in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(column) for column in zip(*batch)]
        return columns if isinstance(first, tuple) else _rebuild(first, range(len(first)), columns)
    raise TypeError(_refusal(type(first)))


def _refusal(found):
    return f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {found}"
