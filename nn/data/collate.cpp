#include "mytorch/nn/data/collate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/full.h"
#include "nn/common/host_tensor.h"
#include "nn/data/gather.h"

namespace mytorch::nn::data {
namespace {

void check_number_of_tensors(const std::vector<Example>& examples, IntList indices) {
  for (size_t i = 0; i < examples.size(); ++i) {
    if (!examples[i].data.defined()) {
      fail(ErrorCode::kValue, "[Dataset] get(", indices[i],
           ") returned an example with undefined data: return a tensor");
    }
    const size_t first = examples[0].num_tensors();
    const size_t here = examples[i].num_tensors();
    if (here != first) {
      fail(ErrorCode::kValue, "[Dataset] examples ", indices[0], " and ", indices[i], " have ",
           first, " and ", here,
           " tensors: give all examples the same number, such as a target to each or to none");
    }
  }
}

std::vector<int64_t> numbers_of(const std::vector<Example>& examples) {
  std::vector<int64_t> numbers(examples.size());
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

std::vector<Tensor> column(const std::vector<Example>& examples, size_t i) {
  std::vector<Tensor> tensors;
  tensors.reserve(examples.size());
  for (const Example& example : examples) tensors.push_back(example[i]);
  return tensors;
}

void check_not_empty(bool empty, const char* what) {
  if (empty) fail(ErrorCode::kValue, "[", what, "] there are no tensors: give at least one");
}

}  // namespace

Batch stack_examples(const std::vector<Example>& examples, IntList indices) {
  check_number_of_tensors(examples, indices);
  std::vector<Tensor> stacked;
  for (size_t i = 0; i < examples[0].num_tensors(); ++i) {
    stacked.push_back(stack_tensors(column(examples, i), indices));
  }
  return from_tensors<Batch>(std::move(stacked));
}

Batch stack_examples(const std::vector<Example>& examples) {
  check_not_empty(examples.empty(), "stack_examples");
  return stack_examples(examples, numbers_of(examples));
}

Batch keep_examples(const std::vector<Example>& examples) {
  Batch batch;
  batch.examples = examples;
  return batch;
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, double padding_value) {
  check_not_empty(sequences.empty(), "pad_sequence");
  NoGradGuard no_grad;
  const Tensor& first = sequences[0];
  int64_t longest = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Tensor& sequence = sequences[i];
    const IntList sizes = sequence.sizes();
    if (sizes.empty() || sizes.size() != first.sizes().size() ||
        !std::equal(sizes.begin() + 1, sizes.end(), first.sizes().begin() + 1)) {
      fail(ErrorCode::kShape, "[pad_sequence] tensors 0 and ", i, " have shapes ",
           shape_str(first.sizes()), " and ", shape_str(sizes),
           ": they must have a first dimension, and may differ in nothing else");
    }
    if (sequence.dtype() != first.dtype() || sequence.device() != first.device()) {
      fail(ErrorCode::kType, "[pad_sequence] tensors 0 and ", i, " are ", dtype_name(first.dtype()),
           " on ", first.device().str(), " and ", dtype_name(sequence.dtype()), " on ",
           sequence.device().str(), ": give one type and device");
    }
    longest = std::max(longest, sizes[0]);
  }
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = longest;
  sizes.insert(sizes.begin(), static_cast<int64_t>(sequences.size()));
  Tensor padded = full(sizes, padding_value, first.dtype(), first.device());
  for (size_t i = 0; i < sequences.size(); ++i) {
    padded.select(0, static_cast<int64_t>(i))
        .narrow(0, 0, sequences[i].size(0))
        .copy_(sequences[i]);
  }
  return padded;
}

Collate pad_examples(double padding_value) {
  return [padding_value](const std::vector<Example>& examples) {
    check_not_empty(examples.empty(), "pad_examples");
    const std::vector<int64_t> numbers = numbers_of(examples);
    check_number_of_tensors(examples, numbers);
    const std::vector<Tensor> data = column(examples, 0);
    std::vector<Tensor> tensors{pad_sequence(data, padding_value)};
    for (size_t i = 1; i < examples[0].num_tensors(); ++i) {
      tensors.push_back(stack_tensors(column(examples, i), numbers));
    }
    Tensor lengths = fresh_host_tensor({static_cast<int64_t>(data.size())}, kInt64);
    for (size_t i = 0; i < data.size(); ++i) fresh_data<int64_t>(lengths)[i] = data[i].size(0);
    Batch batch = from_tensors<Batch>(std::move(tensors));
    batch.others.push_back(std::move(lengths));
    return batch;
  };
}

}  // namespace mytorch::nn::data
