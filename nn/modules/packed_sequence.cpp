#include "mytorch/nn/packed_sequence.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/index_copy.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/pad.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/stack.h"
#include "mytorch/tensor_values.h"

namespace mytorch::nn::utils::rnn {
namespace {

using Numbers = std::vector<int64_t>;

// Returns the elements of an int64 or int32 tensor (N).
Numbers numbers_of(const Tensor& x, const char* name, const char* op) {
  if (!x.defined() || x.dim() != 1 || (x.dtype() != kInt64 && x.dtype() != kInt32)) {
    fail(ErrorCode::kValue, "[", op, "] ", name, " must be an int64 tensor with one dimension",
         x.defined() ? absl::StrCat(", but is ", dtype_name(x.dtype()), " ", shape_str(x.sizes()))
                     : std::string());
  }
  const Tensor listed = x.detach().to(Device(kCPU)).to(kInt64).contiguous();
  const auto* data = listed.const_data<int64_t>();
  return {data, data + listed.numel()};
}

// Returns the number of sequences that are longer than each step, for decreasing lengths.
Numbers batch_sizes_of(const Numbers& lengths) {
  Numbers sizes;
  auto rows = static_cast<int64_t>(lengths.size());
  for (int64_t t = 0; rows > 0; ++t) {
    while (rows > 0 && lengths[static_cast<size_t>(rows - 1)] <= t) --rows;
    if (rows > 0) sizes.push_back(rows);
  }
  return sizes;
}

// Returns the length of each sequence.
Numbers lengths_of(const Numbers& batch_sizes) {
  Numbers lengths(batch_sizes.empty() ? 0 : static_cast<size_t>(batch_sizes[0]), 0);
  for (const int64_t rows : batch_sizes) {
    for (int64_t i = 0; i < rows; ++i) ++lengths[static_cast<size_t>(i)];
  }
  return lengths;
}

// Returns the row of a flattened padded tensor, of `length` steps and `count` sequences, that each
// row of packed data has. `order` is the sequence of each packed one, or empty.
Numbers padded_rows(const Numbers& batch_sizes, const Numbers& order, int64_t length, int64_t count,
                    bool batch_first) {
  Numbers rows;
  for (size_t t = 0; t < batch_sizes.size(); ++t) {
    for (int64_t i = 0; i < batch_sizes[t]; ++i) {
      const int64_t sequence = order.empty() ? i : order[static_cast<size_t>(i)];
      const auto step = static_cast<int64_t>(t);
      rows.push_back(batch_first ? sequence * length + step : step * count + sequence);
    }
  }
  return rows;
}

Numbers shape_after(Numbers leading, const Tensor& x, int64_t dims) {
  for (int64_t d = dims; d < x.dim(); ++d) leading.push_back(x.size(d));
  return leading;
}

Tensor on_device(const Numbers& numbers, Device device) { return tensor(numbers).to(device); }

}  // namespace

PackedSequence::PackedSequence(Tensor data, Tensor batch_sizes, Tensor sorted_indices,
                               Tensor unsorted_indices)
    : data_(std::move(data)),
      batch_sizes_(std::move(batch_sizes)),
      sorted_indices_(std::move(sorted_indices)),
      unsorted_indices_(std::move(unsorted_indices)) {
  if (!batch_sizes_.defined() || batch_sizes_.dtype() != kInt64 || batch_sizes_.dim() != 1 ||
      !batch_sizes_.device().is_cpu()) {
    fail(ErrorCode::kValue,
         "[PackedSequence] batch_sizes must be an int64 tensor with one dimension on the CPU");
  }
  if (!unsorted_indices_.defined() && sorted_indices_.defined()) {
    unsorted_indices_ = invert_permutation(sorted_indices_);
  }
}

PackedSequence PackedSequence::to(Device device) const {
  const auto moved = [&](const Tensor& x) { return x.defined() ? x.to(device) : x; };
  return {data_.to(device), batch_sizes_, moved(sorted_indices_), moved(unsorted_indices_)};
}

PackedSequence PackedSequence::to(ScalarType dtype) const {
  return {data_.to(dtype), batch_sizes_, sorted_indices_, unsorted_indices_};
}

Tensor invert_permutation(const Tensor& permutation) {
  const Numbers order = numbers_of(permutation, "permutation", "invert_permutation");
  Numbers inverse(order.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || order[i] >= static_cast<int64_t>(order.size()) ||
        inverse[static_cast<size_t>(order[i])] != -1) {
      fail(ErrorCode::kValue, "[invert_permutation] element ", i, " is ", order[i],
           ": a permutation of ", order.size(), " has each index once");
    }
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  return on_device(inverse, permutation.device());
}

PackedSequence pack_padded_sequence(const Tensor& input, const Tensor& lengths, bool batch_first,
                                    bool enforce_sorted) {
  constexpr const char* kOp = "pack_padded_sequence";
  if (input.dim() < 2) {
    fail(ErrorCode::kShape, "[", kOp, "] input has shape ", shape_str(input.sizes()), ", expected ",
         batch_first ? "(N, L, ...)" : "(L, N, ...)");
  }
  const int64_t count = input.size(batch_first ? 0 : 1), length = input.size(batch_first ? 1 : 0);
  Numbers each = numbers_of(lengths, "lengths", kOp);
  if (static_cast<int64_t>(each.size()) != count || count == 0) {
    fail(ErrorCode::kShape, "[", kOp, "] ", each.size(), " lengths are given for ", count,
         " sequences, input ", shape_str(input.sizes()));
  }
  for (size_t i = 0; i < each.size(); ++i) {
    if (each[i] < 1 || each[i] > length) {
      fail(ErrorCode::kValue, "[", kOp, "] lengths[", i, "] is ", each[i], ": give one from 1 to ",
           length);
    }
    if (enforce_sorted && i > 0 && each[i] > each[i - 1]) {
      fail(ErrorCode::kValue, "[", kOp, "] lengths[", i, "] is ", each[i],
           ", greater than the one before: sort the sequences, or pass enforce_sorted = false");
    }
  }
  Numbers order;
  Tensor sorted;
  if (!enforce_sorted) {
    order.resize(each.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return each[static_cast<size_t>(a)] > each[static_cast<size_t>(b)];
    });
    std::sort(each.begin(), each.end(), std::greater<>());
    sorted = on_device(order, input.device());
  }
  const Numbers sizes = batch_sizes_of(each);
  const Tensor rows = input.reshape(shape_after({count * length}, input, 2));
  const Numbers taken = padded_rows(sizes, order, length, count, batch_first);
  return {index_select(rows, 0, on_device(taken, input.device())), tensor(sizes), sorted};
}

std::tuple<Tensor, Tensor> pad_packed_sequence(const PackedSequence& sequence, bool batch_first,
                                               double padding_value,
                                               std::optional<int64_t> total_length) {
  constexpr const char* kOp = "pad_packed_sequence";
  const Numbers sizes = numbers_of(sequence.batch_sizes(), "batch_sizes", kOp);
  const auto steps = static_cast<int64_t>(sizes.size());
  const int64_t length = total_length.value_or(steps);
  if (length < steps) {
    fail(ErrorCode::kValue, "[", kOp, "] total_length is ", length,
         ", but the longest sequence has length ", steps);
  }
  const int64_t count = sizes.empty() ? 0 : sizes[0];
  Numbers lengths = lengths_of(sizes), order;
  if (sequence.sorted_indices().defined()) {
    order = numbers_of(sequence.sorted_indices(), "sorted_indices", kOp);
    if (order.size() != lengths.size()) {
      fail(ErrorCode::kShape, "[", kOp, "] there are ", order.size(), " sorted indices for ",
           lengths.size(), " sequences");
    }
    Numbers original(lengths.size());
    for (size_t i = 0; i < order.size(); ++i) original[static_cast<size_t>(order[i])] = lengths[i];
    lengths = original;
  }
  const Tensor& data = sequence.data();
  const Tensor empty =
      full(shape_after({count * length}, data, 1), padding_value, data.dtype(), data.device());
  const Numbers rows = padded_rows(sizes, order, length, count, batch_first);
  const Tensor padded = index_copy(empty, 0, on_device(rows, data.device()), data);
  const Numbers leading = batch_first ? Numbers{count, length} : Numbers{length, count};
  return {padded.reshape(shape_after(leading, data, 1)), tensor(lengths)};
}

Tensor pad_sequence(TensorList sequences, bool batch_first, double padding_value,
                    Str padding_side) {
  constexpr const char* kOp = "pad_sequence";
  if (sequences.size() == 0) fail(ErrorCode::kValue, "[", kOp, "] the list is empty");
  if (padding_side != "right" && padding_side != "left") {
    fail(ErrorCode::kValue, "[", kOp, "] padding_side \"", std::string(padding_side),
         "\": give \"right\" or \"left\"");
  }
  int64_t length = 0;
  for (const Tensor& each : sequences) {
    if (each.dim() == 0) fail(ErrorCode::kShape, "[", kOp, "] a sequence has no dimension");
    length = std::max(length, each.size(0));
  }
  std::vector<Tensor> padded;
  for (const Tensor& each : sequences) {
    const int64_t lacking = length - each.size(0);
    Numbers amounts(static_cast<size_t>(2 * each.dim()), 0);
    amounts[amounts.size() - (padding_side == "right" ? 1 : 2)] = lacking;
    padded.push_back(lacking == 0 ? each : pad(each, amounts, "constant", padding_value));
  }
  return stack(padded, batch_first ? 0 : 1);
}

std::vector<Tensor> unpad_sequence(const Tensor& padded, const Tensor& lengths, bool batch_first) {
  constexpr const char* kOp = "unpad_sequence";
  const Numbers each = numbers_of(lengths, "lengths", kOp);
  const int64_t batch = batch_first ? 0 : 1;
  if (padded.dim() < 2 || padded.size(batch) != static_cast<int64_t>(each.size())) {
    fail(ErrorCode::kShape, "[", kOp, "] ", each.size(), " lengths are given for sequences ",
         shape_str(padded.sizes()));
  }
  std::vector<Tensor> sequences;
  for (size_t i = 0; i < each.size(); ++i) {
    const Tensor sequence = padded.select(batch, static_cast<int64_t>(i));
    if (each[i] < 0 || each[i] > sequence.size(0)) {
      fail(ErrorCode::kValue, "[", kOp, "] lengths[", i, "] is ", each[i], ": give one from 0 to ",
           sequence.size(0));
    }
    sequences.push_back(sequence.narrow(0, 0, each[i]));
  }
  return sequences;
}

PackedSequence pack_sequence(TensorList sequences, bool enforce_sorted) {
  const Tensor padded = pad_sequence(sequences);
  Numbers lengths;
  for (const Tensor& each : sequences) lengths.push_back(each.size(0));
  return pack_padded_sequence(padded, tensor(lengths), false, enforce_sorted);
}

std::vector<Tensor> unpack_sequence(const PackedSequence& sequence) {
  const auto [padded, lengths] = pad_packed_sequence(sequence);
  return unpad_sequence(padded, lengths);
}

}  // namespace mytorch::nn::utils::rnn
