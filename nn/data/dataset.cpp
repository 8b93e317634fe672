#include "mytorch/nn/data/dataset.h"

#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "nn/data/example_generator.h"
#include "nn/data/gather.h"

namespace mytorch::nn::data {

Batch Dataset::get_batch(IntList indices) const {
  check_indices("Dataset", indices, size());
  std::vector<Tensor> data;
  std::vector<Tensor> targets;
  data.reserve(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const LoadingGuard::Example generator(indices[i]);
    Example example = get(indices[i]);
    if (!example.data.defined()) {
      fail(ErrorCode::kValue, "[Dataset] get(", indices[i],
           ") returned an example with undefined data: return a tensor");
    }
    const bool has_target = example.target.defined();
    if (i != 0 && has_target == targets.empty()) {
      fail(ErrorCode::kValue, "[Dataset] of examples ", indices[0], " and ", indices[i],
           ", only one has a target: give all examples a target, or none");
    }
    data.push_back(std::move(example.data));
    if (has_target) targets.push_back(std::move(example.target));
  }
  Batch batch;
  batch.data = stack_examples(data, indices);
  if (!targets.empty()) batch.target = stack_examples(targets, indices);
  return batch;
}

}  // namespace mytorch::nn::data
