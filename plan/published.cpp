#include "plan/published.h"

#include "core/types/errors.h"

namespace mytorch::plan {

const std::vector<Measured>& megatron_table() {
  static const std::vector<Measured> rows = {
      {"gpt-1.7b", 1, 1, 48, 408.8, 0.41},  {"gpt-7.1b", 2, 1, 48, 465.9, 0.47},
      {"gpt-16b", 4, 1, 48, 489.1, 0.49},   {"gpt-32b", 8, 1, 48, 459.6, 0.46},
      {"gpt-70b", 8, 2, 48, 419.7, 0.42},   {"gpt-119b", 8, 4, 48, 420.5, 0.43},
      {"gpt-177b", 8, 6, 48, 432.8, 0.44},  {"gpt-314b", 8, 8, 48, 474.4, 0.48},
      {"gpt-462b", 8, 16, 48, 459.9, 0.47},
  };
  return rows;
}

std::vector<Compared> compare_with_megatron(const Machine& machine) {
  std::vector<Compared> all;
  for (const Measured& row : megatron_table()) {
    const Model model = find_model(row.model);
    Wanted wanted;
    wanted.gpus = row.data * row.tensor * row.pipeline;
    wanted.data = row.data;
    wanted.tensor = row.tensor;
    wanted.pipeline = row.pipeline;
    wanted.context = 1;
    wanted.zero = 1;
    const Found found = search(model, machine, wanted);
    if (found.plans.empty()) {
      fail(ErrorCode::kValue, "[plan] ", row.model,
           " as Megatron divides it does not fit into the ", machine.gpu.name, "'s memory");
    }
    const Plan& plan = found.plans.front();
    const double predicted = plan.utilization * machine.gpu.flops / 1e12;
    all.push_back({row, plan, predicted / row.teraflops - 1});
  }
  return all;
}

}  // namespace mytorch::plan
