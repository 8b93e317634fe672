#include "plan/search.h"

#include <algorithm>

#include "core/types/errors.h"

namespace mytorch::plan {
namespace {

constexpr int64_t kMostContext = 64, kMostInterleave = 32, kMostMicroBatch = 16;

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= std::min(n, most); ++d) {
    if (n % d == 0) found.push_back(d);
  }
  return found;
}

// The given one, or all of these.
template <class T>
std::vector<T> choices(const std::optional<T>& given, std::vector<T> all) {
  return given.has_value() ? std::vector<T>{*given} : std::move(all);
}

void check_given(const char* name, const std::optional<int64_t>& given) {
  if (given.has_value() && (*given < 1 || *given > kMostGpus)) {
    fail(ErrorCode::kValue, "[plan] ", name, " is ", *given, ": give 1 to ", kMostGpus);
  }
}

}  // namespace

void sort_plans(std::vector<Plan>& plans) {
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    const double x = a.step.seconds(), y = b.step.seconds();
    return x != y ? x < y : a.memory.total() < b.memory.total();
  });
}

Plan plan_of(const Model& model, const Machine& machine, const Layout& layout,
             const Precision& precision) {
  Plan plan{layout, memory_of(model, layout, precision, machine.gpu),
            step_of(model, layout, precision, machine)};
  plan.utilization = utilization(model, machine, layout.gpus(), plan.step.seconds());
  return plan;
}

Found search(const Model& model, const Machine& machine, const Wanted& wanted) {
  check(model);
  if (wanted.gpus < 1 || wanted.gpus > kMostGpus) {
    fail(ErrorCode::kValue, "[plan] ", wanted.gpus, " GPUs: give 1 to ", kMostGpus);
  }
  for (const auto& [name, given] :
       {std::pair{"dp", wanted.data}, std::pair{"tp", wanted.tensor},
        std::pair{"pp", wanted.pipeline}, std::pair{"cp", wanted.context},
        std::pair{"ep", wanted.expert}, std::pair{"micro-batch", wanted.micro_batch},
        std::pair{"interleave", wanted.interleave}}) {
    check_given(name, given);
  }
  if (wanted.zero.has_value() && (*wanted.zero < 0 || *wanted.zero > 3)) {
    fail(ErrorCode::kValue, "[plan] ZeRO stage ", *wanted.zero, ": there are stages 0 to 3");
  }
  std::vector<int64_t> micro_batches;
  for (int64_t b = 1; b <= kMostMicroBatch; b *= 2) micro_batches.push_back(b);

  Found found;
  int64_t multiplied = 0;
  const auto consider = [&](const Layout& layout) {
    if (const std::string reason = reason_against(model, layout); !reason.empty()) {
      ++found.refused[reason];
      return;
    }
    ++found.tried;
    const Plan plan = plan_of(model, machine, layout, wanted.precision);
    if (plan.memory.total() <= machine.gpu.memory) {
      found.plans.push_back(plan);
      return;
    }
    ++found.too_large;
    if (!found.smallest || plan.memory.total() < found.smallest->memory.total()) {
      found.smallest = plan;
    }
  };
  const int64_t gpus = wanted.gpus;
  for (const int64_t tp : choices(wanted.tensor, divisors(gpus, machine.node))) {
    for (const int64_t pp : choices(wanted.pipeline, divisors(gpus, model.layers))) {
      for (const int64_t cp : choices(wanted.context, divisors(gpus, kMostContext))) {
        const int64_t others = tp * pp * cp;
        if (others > gpus || gpus % others != 0) continue;
        const int64_t dp = gpus / others;
        if (wanted.data.has_value() && *wanted.data != dp) continue;
        ++multiplied;
        const std::vector<int64_t> experts =
            model.experts == 0 ? std::vector<int64_t>{1} : divisors(dp * cp, model.experts);
        for (const int64_t ep : choices(wanted.expert, experts)) {
          const std::vector<int64_t> stages =
              pp == 1 ? std::vector<int64_t>{1}
                      : divisors(std::max<int64_t>(model.layers / pp, 1), kMostInterleave);
          for (const int64_t v : choices(wanted.interleave, stages)) {
            for (const int64_t b : choices(wanted.micro_batch, micro_batches)) {
              for (const int zero : choices(wanted.zero, {0, 1, 2, 3})) {
                for (const Recompute recompute :
                     choices(wanted.recompute,
                             {Recompute::kNone, Recompute::kSelective, Recompute::kFull})) {
                  consider({dp, tp, pp, cp, ep, zero, b, v, recompute});
                }
              }
            }
          }
        }
      }
    }
  }
  if (multiplied == 0) {
    fail(ErrorCode::kValue, "[plan] no layout of ", gpus,
         " GPUs has the given sizes: dp, tp, pp and cp must multiply to them");
  }
  sort_plans(found.plans);
  return found;
}

}  // namespace mytorch::plan
