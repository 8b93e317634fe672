// The steps of a layer of a recurrent network.
#include "ops/recurrent/steps.h"

#include <algorithm>

#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"

namespace mytorch::recurrent {

Steps make_steps(IntList batch_sizes, bool reverse) {
  Steps steps;
  steps.reserve(batch_sizes.size());
  int64_t first = 0;
  for (const int64_t rows : batch_sizes) {
    steps.push_back({first, rows, 0});
    first += rows;
  }
  if (reverse) std::reverse(steps.begin(), steps.end());
  for (size_t i = 1; i < steps.size(); ++i) {
    steps[i].carried = std::min(steps[i].rows, steps[i - 1].rows);
  }
  return steps;
}

Tensor before(const Steps& steps, size_t i, const Tensor& states, const Tensor& initial) {
  const Step& step = steps[i];
  const int64_t starting = step.rows - step.carried;
  if (step.carried == 0) return initial.narrow(0, 0, starting);
  const Tensor carried = states.narrow(0, steps[i - 1].first, step.carried);
  return starting == 0 ? carried
                       : mytorch::cat({carried, initial.narrow(0, step.carried, starting)}, 0);
}

Tensor last_states(const Steps& steps, const Tensor& states) {
  std::vector<Tensor> parts;
  for (size_t i = steps.size(); i-- > 0;) {
    const int64_t carried = i + 1 < steps.size() ? steps[i + 1].carried : 0;
    const int64_t ending = steps[i].rows - carried;
    if (ending > 0) parts.push_back(states.narrow(0, steps[i].first + carried, ending));
  }
  if (parts.empty()) return states.narrow(0, 0, 0);
  return parts.size() == 1 ? parts[0] : mytorch::cat(parts, 0);
}

Tensor spread_rows(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const int64_t line = 64 / matrix.itemsize();
  const Tensor memory = mytorch::empty({rows, columns + line}, matrix.dtype(), matrix.device());
  Tensor copy = memory.narrow(1, 0, columns);
  mytorch::copy_(copy, matrix);
  return copy;
}

}  // namespace mytorch::recurrent
