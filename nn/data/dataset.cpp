#include "mytorch/nn/data/dataset.h"

#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "nn/data/example_generator.h"
#include "nn/data/gather.h"

namespace mytorch::nn::data {

size_t Example::num_tensors() const {
  if (!others.empty()) return 2 + others.size();
  return target.defined() ? 2 : 1;
}

const Tensor& Example::operator[](size_t i) const {
  if (i >= num_tensors()) {
    fail(ErrorCode::kValue, "[Example] there is no tensor ", i, " among ", num_tensors(),
         ": give 0 to ", num_tensors() - 1);
  }
  return i == 0 ? data : i == 1 ? target : others[i - 2];
}

void Example::check_count(size_t n) const {
  if (n == num_tensors()) return;
  fail(ErrorCode::kValue, "[Example] all<", n, ">() of ", num_tensors(), " tensors: write all<",
       num_tensors(), ">()");
}

Batch Dataset::get_batch(IntList indices) const {
  check_indices("Dataset", indices, size());
  std::vector<Example> examples;
  examples.reserve(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const LoadingGuard::Example generator(i);
    examples.push_back(get(indices[i]));
  }
  return stack_examples(examples, indices);
}

}  // namespace mytorch::nn::data
