"""Sequences of different lengths, for recurrent layers."""

from typing import NamedTuple, Optional

from mytorch import _core

_rnn = _core._rnn


class PackedSequence(NamedTuple):
    """The rows of all steps of several sequences, without padding, the longest sequence first. `batch_sizes` counts the
    rows of each step; the indices are the order of the sequences, None if they were sorted."""

    data: _core.Tensor
    batch_sizes: _core.Tensor
    sorted_indices: Optional[_core.Tensor] = None
    unsorted_indices: Optional[_core.Tensor] = None

    def to(self, *args, **kwargs):
        """Returns a copy with converted data."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def cpu(self):
        """Returns a copy on the CPU."""
        return self.to("cpu")

    def cuda(self, device=None):
        """Returns a copy on a GPU."""
        if device is None or isinstance(device, int):
            device = _core.device("cuda") if device is None else _core.device("cuda", device)
        return self.to(device)

    def double(self):
        """Returns a copy of float64."""
        return self.to(_core.float64)

    def float(self):
        """Returns a copy of float32."""
        return self.to(_core.float32)

    def half(self):
        """Returns a copy of float16."""
        return self.to(_core.float16)

    @property
    def is_cuda(self):
        return self.data.is_cuda


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs sequences (L, N, ...) of the given lengths."""
    return PackedSequence(*_rnn.pack_padded_sequence(input, lengths, batch_first, enforce_sorted))


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Returns the padded sequences and their lengths."""
    return _rnn.pad_packed_sequence(sequence, batch_first, padding_value, total_length)


def pack_sequence(sequences, enforce_sorted=True):
    """Packs a list of sequences."""
    return PackedSequence(*_rnn.pack_sequence(list(sequences), enforce_sorted))


def unpack_sequence(packed_sequences):
    """Returns the list of sequences."""
    return list(_rnn.unpack_sequence(packed_sequences))


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Stacks sequences, padded to the longest one."""
    return _rnn.pad_sequence(list(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """Returns the sequences of a padded tensor without padding."""
    return list(_rnn.unpad_sequence(padded_sequences, lengths, batch_first))


def invert_permutation(permutation):
    """Returns the inverse of a permutation."""
    return None if permutation is None else _rnn.invert_permutation(permutation)
