#include "plan/captured.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/types/errors.h"
#include "plan/data_parallel.h"
#include "plan/timeline.h"

namespace mytorch::plan {
namespace {

void check_step(const Captured& c, int64_t gpus, int zero) {
  const auto count = static_cast<int>(c.kernels.size());
  const auto in_range = [](int number, int end) { return number >= 0 && number < end; };
  bool right = c.update >= 0 && c.update <= count;
  right = right && (c.update > 0 || c.buffers.empty());  // the first kernel waits for buffers
  for (const CapturedParameter& p : c.parameters) {
    right = right && in_range(p.gradient, c.update);
    for (const int use : p.uses) right = right && in_range(use, c.update);
  }
  if (!right) fail(ErrorCode::kValue, "[plan] a captured step refers to kernels it does not have");
  if (gpus < 1 || gpus > kMostGpus) {
    fail(ErrorCode::kValue, "[plan] ", gpus, " GPUs: give 1 to ", kMostGpus);
  }
  if (zero < 0 || zero > 3) {
    fail(ErrorCode::kValue, "[plan] ZeRO stage ", zero, ": there are stages 0 to 3");
  }
}

// A communication, and the computation that waits for it, or -1.
struct WaitedFor {
  Communication communication;
  int before = -1;
};

// Gradients in the order in which backward completes them.
std::vector<Gradient> gradients_of(const Captured& c) {
  std::vector<Gradient> gradients;
  for (const CapturedParameter& p : c.parameters)
    gradients.push_back({p.gradient_bytes, p.gradient});
  std::stable_sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return a.computation < b.computation;
  });
  return gradients;
}

// The kernels of a step before its update, and what ranks exchange beside them.
class Steps {
 public:
  Steps(const Captured& captured, const Machine& machine, int64_t gpus, int zero)
      : captured_(captured), machine_(machine), ranks_{gpus, 1}, zero_(zero) {
    for (int i = 0; i < captured.update; ++i) {
      computations_.push_back({kernel_seconds(machine.gpu, captured.kernels[at(i)])});
    }
    if (gpus > 1) {
      broadcast_buffers();
      if (zero >= 1) gather(/*backward=*/false);
      if (zero == 3) gather(/*backward=*/true);
      reduce_gradients();
    }
  }

  // Seconds, with or without what ranks exchange.
  double seconds(bool together) const {
    std::vector<Computation> computations = computations_;
    for (size_t i = 0; i < computations.size(); ++i) {
      computations[i].issued = static_cast<double>(i + 1) * machine_.gpu.host;
    }
    if (!together) return run(computations, {}, 1).seconds;
    std::vector<WaitedFor> all = communications_;
    std::stable_sort(all.begin(), all.end(), [](const WaitedFor& a, const WaitedFor& b) {
      return a.communication.after < b.communication.after;
    });
    std::vector<Communication> communications;
    for (const WaitedFor& each : all) {
      if (each.before >= 0) {
        int& after = computations[at(each.before)].after;
        after = std::max(after, static_cast<int>(communications.size()));
      }
      communications.push_back(each.communication);
    }
    return run(computations, communications, machine_.data_overlap).seconds;
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i); }

  void broadcast_buffers() {
    for (const double bytes : captured_.buffers) {
      communications_.push_back({{broadcast_seconds(machine_, ranks_, bytes), -1}, 0});
    }
  }

  // Parameters in buckets, by their first use in forward or backward. Backward begins with the
  // first use behind the last of the parameters' first ones.
  void gather(bool backward) {
    int turn = -1;
    for (const CapturedParameter& p : captured_.parameters) {
      if (!p.uses.empty()) turn = std::max(turn, p.uses.front());
    }
    std::vector<std::pair<int, double>> uses;
    for (const CapturedParameter& p : captured_.parameters) {
      for (const int use : p.uses) {
        if (backward && use <= turn) continue;
        uses.emplace_back(use, p.bytes);
        break;
      }
    }
    std::stable_sort(uses.begin(), uses.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::pair<int, double>> buckets;
    for (const auto& [use, bytes] : uses) {
      if (buckets.empty() || buckets.back().second + bytes > kBucket) buckets.emplace_back(use, 0);
      buckets.back().second += bytes;
    }
    for (size_t i = 0; i < buckets.size(); ++i) {
      // With ZeRO 3 there is room for two buckets: when one begins, the one before is over.
      int after = backward ? turn : -1;
      if (zero_ == 3 && i >= 2) after = std::max(after, buckets[i - 1].first - 1);
      communications_.push_back(
          {{all_gather_seconds(machine_, ranks_, buckets[i].second), after}, buckets[i].first});
    }
  }

  void reduce_gradients() {
    for (const Bucket& bucket : buckets_of(gradients_of(captured_), kFirstBucket, kBucket)) {
      // Gradients are read, and written side by side.
      computations_[at(bucket.last)].seconds += stream_seconds(machine_.gpu, 2 * bucket.bytes, 1);
      const double seconds = zero_ == 0 ? all_reduce_seconds(machine_, ranks_, bucket.bytes)
                                        : reduce_scatter_seconds(machine_, ranks_, bucket.bytes);
      communications_.push_back({{seconds, bucket.last}, -1});
    }
  }

  const Captured& captured_;
  const Machine& machine_;
  Ranks ranks_;
  int zero_;
  std::vector<Computation> computations_;
  std::vector<WaitedFor> communications_;
};

Memory memory_of_step(const Captured& c, const Gpu& gpu, int64_t gpus, int zero) {
  const double share = 1 / number(gpus);
  Memory memory;
  double largest = 0;
  for (const CapturedParameter& p : c.parameters) {
    memory.parameters += p.bytes;
    memory.gradients += p.gradient_bytes;
    largest = std::max(largest, p.bytes);
  }
  // Two buckets are gathered, of parameters or of gradients that are not reduced yet.
  const double gathered = 2 * std::max(kBucket, largest);
  if (zero == 3) memory.buffers += std::min(gathered, memory.parameters);
  if (zero >= 2) memory.buffers += std::min(gathered, memory.gradients);
  memory.parameters *= zero >= 3 ? share : 1;
  memory.gradients *= zero >= 2 ? share : 1;
  memory.optimizer = c.state * (zero >= 1 ? share : 1);
  memory.activations = c.activations;
  for (const double bytes : c.buffers) memory.buffers += bytes;
  memory.buffers += c.inputs;
  memory.reserved = gpu.reserved;
  return memory;
}

}  // namespace

Kernel product_of(std::string name, double flops, double bytes, double element,
                  std::vector<double> numels) {
  Kernel kernel{Kernel::kProduct, std::move(name), flops, bytes};
  kernel.element = element;
  std::erase_if(numels, [](double numel) { return !(numel > 0); });
  if (numels.size() < 2 || flops <= 0) {
    kernel.kind = Kernel::kStream;
    return kernel;
  }
  std::sort(numels.begin(), numels.end());
  // The smallest is n k, another one m n.
  kernel.m = flops / (2 * numels.front());
  kernel.n = numels.back() / kernel.m;
  kernel.k = numels.front() / kernel.n;
  return kernel;
}

double kernel_seconds(const Gpu& gpu, const Kernel& kernel) {
  const double memory = stream_seconds(gpu, kernel.bytes, 1);
  switch (kernel.kind) {
    case Kernel::kStream:
      return memory;
    case Kernel::kProduct:
      return std::max(
          memory, kernel.flops / matmul_rate(gpu, kernel.m, kernel.n, kernel.k, kernel.element) +
                      gpu.kernel);
    case Kernel::kAttention:
      return std::max(
          memory, kernel.flops / attention_rate(gpu, kernel.length, kernel.width, kernel.backward) +
                      gpu.kernel);
  }
  return memory;
}

Plan plan_of(const Captured& captured, const Machine& machine, int64_t gpus, int zero) {
  check_step(captured, gpus, zero);
  Plan plan;
  plan.layout.data = gpus;
  plan.layout.zero = zero;
  plan.memory = memory_of_step(captured, machine.gpu, gpus, zero);
  const Steps steps(captured, machine, gpus, zero);
  plan.step.compute = steps.seconds(/*together=*/false);
  plan.step.data = steps.seconds(/*together=*/true) - plan.step.compute;
  double flops = 0;
  for (size_t i = 0; i < captured.kernels.size(); ++i) {
    const Kernel& kernel = captured.kernels[i];
    if (kernel.kind != Kernel::kStream) flops += kernel.flops;
    if (static_cast<int>(i) < captured.update) continue;
    const double work = kernel_seconds(machine.gpu, kernel) / (zero >= 1 ? number(gpus) : 1);
    plan.step.optimizer += std::max(work, machine.gpu.host);
  }
  plan.step.host = machine.gpu.step;
  plan.utilization = flops / (plan.step.seconds() * machine.gpu.flops);
  return plan;
}

Found search(const Captured& captured, const Machine& machine, int64_t gpus,
             std::optional<int> zero) {
  Found found;
  for (const int stage : zero ? std::vector<int>{*zero} : std::vector<int>{0, 1, 2, 3}) {
    const Plan plan = plan_of(captured, machine, gpus, stage);
    ++found.tried;
    if (plan.memory.total() <= machine.gpu.memory) {
      found.plans.push_back(plan);
      continue;
    }
    ++found.too_large;
    if (!found.smallest || plan.memory.total() < found.smallest->memory.total()) {
      found.smallest = plan;
    }
  }
  sort_plans(found.plans);
  return found;
}

}  // namespace mytorch::plan
