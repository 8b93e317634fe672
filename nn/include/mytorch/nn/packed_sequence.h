// Sequences of different lengths for recurrent layers, under libtorch's names.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::utils::rnn {

// The rows of all steps of several sequences, without padding: first the first row of each
// sequence, then the second row of each that has one, and so on. The sequences are in the order of
// decreasing length.
class PackedSequence {
 public:
  PackedSequence() = default;
  // Throws Error(kValue) unless `batch_sizes` is an int64 tensor (L) on the CPU.
  PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices = {},
                 Tensor unsorted_indices = {});

  const Tensor& data() const { return data_; }  // (rows of all steps, ...)
  const Tensor& batch_sizes() const {
    return batch_sizes_;
  }  // (L), the number of rows of each step
  // The index of each sequence among those that were packed, and its inverse; undefined if those
  // had the order of decreasing length.
  const Tensor& sorted_indices() const { return sorted_indices_; }
  const Tensor& unsorted_indices() const { return unsorted_indices_; }

  Device device() const { return data_.device(); }
  // Return a copy with converted data.
  PackedSequence to(Device device) const;
  PackedSequence to(ScalarType dtype) const;

 private:
  Tensor data_, batch_sizes_, sorted_indices_, unsorted_indices_;
};

// Packs sequences (L, N, ...), or (N, L, ...) with `batch_first`, given the length of each, int64
// (N). With `enforce_sorted` the lengths must not increase; otherwise the sequences are sorted.
// Throws Error(kValue) for a length that is 0 or greater than L.
PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths,
                                    bool batch_first = false, bool enforce_sorted = true);

// Returns sequences padded to the longest one, or to `total_length`, in the order in which they
// were packed, and their lengths, int64 on the CPU.
std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence,
                                               bool batch_first = false, double padding_value = 0,
                                               std::optional<int64_t> total_length = {});

// Stacks sequences (L_i, ...) as (L, N, ...), or (N, L, ...) with `batch_first`, padded to the
// longest one on the side "right" or "left".
Tensor pad_sequence(TensorList sequences, bool batch_first = false, double padding_value = 0,
                    Str padding_side = "right");
// Returns the sequences of a padded tensor without padding.
std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths,
                                   bool batch_first = false);

// Packs a list of sequences (L_i, ...), and returns such a list.
PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted = true);
std::vector<Tensor> unpack_sequence(const PackedSequence& sequence);

// Returns the inverse of a permutation, int64 (N).
Tensor invert_permutation(const Tensor& permutation);

}  // namespace mytorch::nn::utils::rnn
