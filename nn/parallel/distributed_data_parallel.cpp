#include "mytorch/nn/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn {

struct DistributedDataParallel::Reducer {
  struct Bucket {
    Tensor memory;                // 1-dim
    std::vector<size_t> members;  // numbers of parameters
    std::vector<Tensor> views;    // of `memory`, with the shapes of the parameters
    size_t ready = 0;
    distributed::Work work;
  };

  distributed::Group group;
  DistributedDataParallelOptions options;
  std::vector<Tensor> parameters;
  std::vector<std::string> names;
  std::vector<Tensor> buffers;
  std::vector<int64_t> hooks;
  std::vector<Bucket> buckets;
  std::vector<std::pair<size_t, size_t>> places;  // of each parameter: bucket and member
  std::vector<size_t> order;                      // in which gradients came
  std::vector<bool> came;
  size_t next = 0;  // bucket to be reduced
  bool rebuilt = false;
  bool sync = true;

  // Fills buckets with the parameters in the given order. Those of one bucket share type and
  // device.
  void fill(const std::vector<size_t>& sequence) {
    buckets.clear();
    places.assign(parameters.size(), {0, 0});
    int64_t bytes = 0;
    for (const size_t number : sequence) {
      const Tensor& parameter = parameters[number];
      const int64_t limit = buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
      const bool fits = !buckets.empty() && bytes + parameter.nbytes() <= limit &&
                        parameters[buckets.back().members[0]].dtype() == parameter.dtype() &&
                        parameters[buckets.back().members[0]].device() == parameter.device();
      if (!fits) {
        buckets.emplace_back();
        bytes = 0;
      }
      bytes += parameter.nbytes();
      places[number] = {buckets.size() - 1, buckets.back().members.size()};
      buckets.back().members.push_back(number);
    }
    const NoGradGuard no_grad;
    for (Bucket& bucket : buckets) {
      int64_t numel = 0;
      for (const size_t number : bucket.members) numel += parameters[number].numel();
      const Tensor& first = parameters[bucket.members[0]];
      bucket.memory = mytorch::zeros({numel}, first.dtype(), first.device());
      int64_t at = 0;
      for (const size_t number : bucket.members) {
        const Tensor& parameter = parameters[number];
        bucket.views.push_back(
            bucket.memory.narrow(0, at, parameter.numel()).view(parameter.sizes()));
        at += parameter.numel();
        // A gradient from before moves along.
        if (const Tensor grad = parameter.grad(); grad.defined()) {
          bucket.views.back().copy_(grad.detach());
          parameter.set_grad(bucket.views.back());
        }
      }
    }
  }

  // A parameter has its gradient.
  void arrived(size_t number) {
    if (!sync) return;
    if (came[number]) {
      fail(ErrorCode::kValue, "[DistributedDataParallel] ", names[number],
           " has a second gradient before all others have their first: a backward did not reach "
           "every parameter. Use no_sync() to add up gradients");
    }
    came[number] = true;
    order.push_back(number);
    const auto [index, member] = places[number];
    Bucket& bucket = buckets[index];
    const Tensor& parameter = parameters[number];
    const Tensor grad = parameter.grad();
    if (grad.raw_data() != bucket.views[member].raw_data()) {
      const NoGradGuard no_grad;
      bucket.views[member].copy_(grad.detach());
      parameter.set_grad(bucket.views[member]);
    }
    ++bucket.ready;
    // In the order of the buckets, which is the same on all ranks.
    for (; next < buckets.size() && buckets[next].ready == buckets[next].members.size(); ++next) {
      buckets[next].work =
          group.all_reduce(buckets[next].memory, {distributed::ReduceOp::kAverage}, true);
    }
    if (order.size() == parameters.size()) finish();
  }

  // Waits for the reductions, and prepares for the next backward.
  void finish() {
    for (Bucket& bucket : buckets) {
      bucket.work.wait();
      bucket.ready = 0;
    }
    next = 0;
    came.assign(parameters.size(), false);
    if (!std::exchange(rebuilt, true)) {
      // Gradients come in the same order from now on; rank 0's order is that of all.
      const auto n = static_cast<int64_t>(order.size());
      const Tensor numbers = mytorch::empty({n}, kInt64);
      for (int64_t i = 0; i < n; ++i) {
        numbers.data<int64_t>()[i] = static_cast<int64_t>(order[static_cast<size_t>(i)]);
      }
      const Tensor shared = numbers.to(group.device());
      group.broadcast(shared, 0);
      std::vector<size_t> sequence;
      for (const int64_t number : shared.to_vector<int64_t>()) {
        sequence.push_back(static_cast<size_t>(number));
      }
      fill(sequence);
    }
    order.clear();
  }

  void check_complete() const {
    if (order.empty()) return;
    std::string missing;
    int listed = 0;
    for (size_t number = 0; number < parameters.size(); ++number) {
      if (came[number] || ++listed > 10) continue;
      absl::StrAppend(&missing, listed == 1 ? "" : ", ", names[number]);
    }
    fail(ErrorCode::kValue, "[DistributedDataParallel] the last backward gave no gradient to ",
         missing, listed > 10 ? ", ..." : "",
         ": every parameter must take part, so leave them out by requires_grad_(false) before the "
         "model is wrapped");
  }
};

DistributedDataParallel::DistributedDataParallel(Module& module,
                                                 DistributedDataParallelOptions options)
    : module_(module), reducer_(std::make_unique<Reducer>()) {
  Reducer& r = *reducer_;
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1) {
    fail(ErrorCode::kValue, "[DistributedDataParallel] buckets of ",
         std::min(options.bucket_bytes, options.first_bucket_bytes), " bytes: give at least 1");
  }
  r.group = options.group.defined() ? options.group : distributed::world();
  r.options = std::move(options);
  r.buffers = module.buffers();
  const NoGradGuard no_grad;
  for (const auto& [name, parameter] : module.named_parameters()) {
    r.group.broadcast(parameter.detach(), 0);
    if (!parameter.requires_grad()) continue;
    r.parameters.push_back(parameter);
    r.names.push_back(name);
  }
  for (const Tensor& buffer : r.buffers) r.group.broadcast(buffer, 0);
  if (r.parameters.empty()) {
    fail(ErrorCode::kValue,
         "[DistributedDataParallel] the module has no parameter that requires a "
         "gradient: there is nothing to reduce");
  }
  // Gradients come about in the reverse order of the forward.
  std::vector<size_t> sequence(r.parameters.size());
  for (size_t i = 0; i < sequence.size(); ++i) sequence[i] = sequence.size() - 1 - i;
  r.came.assign(r.parameters.size(), false);
  r.fill(sequence);
  for (size_t number = 0; number < r.parameters.size(); ++number) {
    r.hooks.push_back(autograd::register_post_accumulate_hook(
        r.parameters[number], [&r, number](const Tensor&) { r.arrived(number); }));
  }
}

DistributedDataParallel::~DistributedDataParallel() {
  for (size_t i = 0; i < reducer_->hooks.size(); ++i) {
    reducer_->parameters[i].remove_hook(reducer_->hooks[i]);
  }
}

void DistributedDataParallel::begin() {
  Reducer& r = *reducer_;
  r.check_complete();
  if (!r.options.broadcast_buffers || !module_.training()) return;
  const NoGradGuard no_grad;
  for (const Tensor& buffer : r.buffers) r.group.broadcast(buffer, 0);
}

int64_t DistributedDataParallel::num_buckets() const {
  return static_cast<int64_t>(reducer_->buckets.size());
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& model)
    : model_(model), saved_(std::exchange(model.reducer_->sync, false)) {}
DistributedDataParallel::NoSync::~NoSync() { model_.reducer_->sync = saved_; }

}  // namespace mytorch::nn
