#include "mytorch/nn/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/runtime/stream_capture.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/callback.h"
#include "mytorch/autograd/node.h"
#include "mytorch/ops/all_reduce.h"
#include "mytorch/ops/broadcast.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::nn {

struct DistributedDataParallel::Reducer {
  // Whether gradients are reduced, and whether in join(): compiled functions depend on both.
  class Mode final : public StateCell {
   public:
    Mode()
        : StateCell(kSync, "no_sync() or join() of a DistributedDataParallel has begun or ended") {}
    void set(int8_t number) override { value = number; }
    bool sync() const { return (value & kSync) != 0; }
    bool joining() const { return (value & kJoining) != 0; }

    static constexpr int8_t kSync = 1, kJoining = 2;
  };

  struct Bucket {
    Tensor memory;                // 1-dim
    std::vector<size_t> members;  // numbers of parameters
    std::vector<Tensor> views;    // of `memory`, with the shapes of the parameters
    size_t ready = 0;
    distributed::Work work;
    std::function<void()> complete;  // of a hook
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
  std::vector<bool> unused;    // by the last forward
  std::vector<bool> used;      // by this backward
  std::vector<bool> anywhere;  // used by any rank
  size_t next = 0;             // bucket to be reduced
  bool rebuilt = false;
  std::shared_ptr<Mode> mode = std::make_shared<Mode>();
  bool in_graph = false;  // whether this backward is recorded, with its reductions
  JoinOptions join_options;
  // With static_graph: how often each parameter gets a gradient, in the first backward and in this
  // one, and the parameters in the order of the first one's gradients.
  std::vector<int> expected, found;
  std::vector<size_t> arrivals;
  bool begun = false;  // whether a backward has given gradients, and not ended
  int source = 0;  // the lowest rank that still trains, whose buffers and order are those of all
  int active = 0;  // number of ranks that train

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

  bool joining() const { return mode->joining(); }
  void set_mode(int8_t flag, bool on) {
    mode->value = static_cast<int8_t>(on ? mode->value | flag : mode->value & ~flag);
    if (recording_graph()) capture_table->sets(mode);
  }
  void note_mode_read() const {
    if (recording_graph()) capture_table->reads(mode);
  }

  // A parameter has its gradient.
  void arrived(size_t number) {
    note_mode_read();
    if (!mode->sync()) return;
    // Before anything is noted: a refusal in the middle of a backward would spoil the next one.
    if (order.empty() && !begun) {
      const char* why = not_in_graphs();
      if (why != nullptr) check_effect("DistributedDataParallel", why);
      in_graph = why == nullptr && recording_graph();
    }
    if (options.static_graph) {
      arrived_again(number);
      return;
    }
    if (came[number]) {
      fail(ErrorCode::kValue, "[DistributedDataParallel] ", names[number],
           " has a second gradient before all others have their first: a backward did not reach "
           "every parameter. Use no_sync() to add up gradients");
    }
    const bool first = order.empty();
    complete(number);
    if (options.find_unused_parameters) {
      if (first) {
        autograd::queue_callback([this] { end_backward(); });
        for (size_t i = 0; i < unused.size(); ++i) {
          if (unused[i] && !came[i]) leave_out(i);
        }
      }
      reduce_ready();
      return;
    }
    reduce_ready();
    if (order.size() == parameters.size()) finish();
  }

  // Returns what a graph cannot repeat, or null.
  const char* not_in_graphs() const {
    if (options.hook) return "reduces gradients by a hook";
    if (joining()) return "reduces gradients within join()";
    if (options.static_graph) {
      return expected.empty() ? "reduces the gradients of a first backward, which tells what "
                                "static_graph keeps: make one step before"
                              : nullptr;
    }
    if (options.find_unused_parameters) {
      return "reduces gradients of parameters that find_unused_parameters finds in each backward";
    }
    return nullptr;
  }

  // With static_graph: a parameter has one of its gradients.
  void arrived_again(size_t number) {
    if (!std::exchange(begun, true)) {
      autograd::queue_callback([this] { end_static(); });
      found.assign(parameters.size(), 0);
      for (size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] == 0) leave_out(i);
      }
    }
    ++found[number];
    if (expected.empty()) {
      arrivals.push_back(number);
      return;
    }
    if (found[number] > expected[number]) fail_changed(number, "more than ");
    if (found[number] < expected[number]) return;
    complete(number);
    reduce_ready();
  }

  // A parameter has its whole gradient.
  void complete(size_t number) {
    came[number] = true;
    used[number] = true;
    order.push_back(number);
    ++buckets[places[number].first].ready;
  }

  // With static_graph: the backward is over.
  void end_static() {
    if (expected.empty()) {
      expected = found;
      std::vector<int> left = found;
      for (const size_t number : std::exchange(arrivals, {})) {
        if (--left[number] == 0) complete(number);
      }
      end_backward();
      return;
    }
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] < expected[i]) fail_changed(i, "");
    }
    finish();
  }

  [[noreturn]] void fail_changed(size_t number, const char* more) const {
    const int times = more[0] != '\0' ? expected[number] : found[number];
    fail(ErrorCode::kValue, "[DistributedDataParallel] ", names[number], " has ", more, times,
         times == 1 ? " gradient" : " gradients", " in this backward, and had ", expected[number],
         " in the first one, so the graph is not static: compute the same in each step, or set "
         "find_unused_parameters in place of static_graph");
  }

  // Moves the gradients of a bucket into its memory: neighbors that are contiguous by one kernel,
  // since models have hundreds of small parameters.
  void take_gradients(Bucket& bucket) {
    const NoGradGuard no_grad;
    int64_t at = 0, first = 0;  // offsets: of the member, and of the neighbors that wait
    std::vector<Tensor> waiting;
    const auto take_waiting = [&] {
      if (waiting.size() == 1) bucket.memory.narrow(0, first, at - first).copy_(waiting[0]);
      if (waiting.size() > 1) mytorch::cat_out(bucket.memory.narrow(0, first, at - first), waiting);
      waiting.clear();
    };
    for (size_t member = 0; member < bucket.members.size(); ++member) {
      const Tensor& parameter = parameters[bucket.members[member]];
      const Tensor& view = bucket.views[member];
      const Tensor grad = parameter.grad();
      const bool outside = grad.defined() && grad.raw_data() != view.raw_data();
      const bool joins = outside && grad.is_contiguous() && grad.dtype() == view.dtype();
      if (!joins) {
        take_waiting();
        if (outside) view.copy_(grad.detach());
      } else {
        if (waiting.empty()) first = at;
        waiting.push_back(grad.detach().view({-1}));
      }
      if (outside) parameter.set_grad(view);
      at += view.numel();
    }
    take_waiting();
  }

  // A parameter takes no part in this backward: what it has from before is reduced, or zeros.
  void leave_out(size_t number) {
    came[number] = true;
    if (parameters[number].grad().defined()) {
      used[number] = true;
    } else if (!in_graph) {
      const NoGradGuard no_grad;
      const auto [index, member] = places[number];
      buckets[index].views[member].zero_();
    }
    ++buckets[places[number].first].ready;
  }

  // Reduces full buckets in their order, which is the same on all ranks.
  void reduce_ready() {
    for (; next < buckets.size() && buckets[next].ready == buckets[next].members.size(); ++next) {
      reduce(buckets[next]);
    }
  }
  GradBucket described(const Bucket& bucket) const {
    GradBucket result;
    result.memory = bucket.memory;
    result.gradients = bucket.views;
    for (const size_t number : bucket.members) result.parameters.push_back(parameters[number]);
    result.index = &bucket - buckets.data();
    result.is_last = &bucket == &buckets.back();
    return result;
  }
  // While a function is recorded: the reduction is a node of the graph, whose result has the
  // gradients.
  void reduce_in_graph(const Bucket& bucket) {
    const NoGradGuard no_grad;
    std::vector<Tensor> parts;
    for (const size_t number : bucket.members) {
      const Tensor &parameter = parameters[number], grad = parameter.grad();
      parts.push_back(grad.defined() ? grad.detach().to(parameter.dtype()).reshape({-1})
                                     : mytorch::zeros({parameter.numel()}, parameter.dtype(),
                                                      parameter.device()));
    }
    const Tensor sum =
        mytorch::all_reduce(parts.size() == 1 ? parts[0] : mytorch::cat(parts), "avg", group);
    int64_t at = 0;
    for (const size_t number : bucket.members) {
      const Tensor& parameter = parameters[number];
      if (parameter.grad().defined() || (!anywhere.empty() && anywhere[number])) {
        parameter.set_grad(sum.narrow(0, at, parameter.numel()).view(parameter.sizes()));
      }
      at += parameter.numel();
    }
  }

  void reduce(Bucket& bucket) {
    if (in_graph) {
      reduce_in_graph(bucket);
      return;
    }
    take_gradients(bucket);
    const bool all = !joining() || !join_options.average_over_active || active == group.size();
    const double scale = 1.0 / (all ? group.size() : active);
    if (options.hook) {
      bucket.complete = options.hook(group, described(bucket), scale);
    } else {
      bucket.work =
          group.all_reduce(bucket.memory,
                           all ? distributed::Reduction{distributed::ReduceOp::kAverage}
                               : distributed::Reduction{distributed::ReduceOp::kSum, scale},
                           true);
    }
  }

  // With parameters that may be left out: the backward is over.
  void end_backward() {
    for (size_t i = 0; i < came.size(); ++i) {
      if (!came[i]) leave_out(i);
    }
    reduce_ready();
    finish();
  }

  // Waits for the reductions, and prepares for the next backward.
  void finish() {
    const NoGradGuard no_grad;
    for (Bucket& bucket : buckets) {
      bucket.work.wait();
      if (bucket.complete) std::exchange(bucket.complete, nullptr)();
      bucket.ready = 0;
    }
    if (!in_graph && (options.find_unused_parameters || options.static_graph)) share_used();
    next = 0;
    begun = false;
    came.assign(parameters.size(), false);
    unused.assign(parameters.size(), false);
    used.assign(parameters.size(), false);
    // Never once a graph has the buckets: other ranks may be replaying it.
    if (!std::exchange(rebuilt, true) && !in_graph) rebuild();
    order.clear();
  }

  // A parameter that another rank used has a gradient here, too.
  void share_used() {
    if (!options.static_graph || !rebuilt) find_used();
    for (size_t i = 0; i < used.size(); ++i) {
      if (!anywhere[i] || parameters[i].grad().defined()) continue;
      const auto [index, member] = places[i];
      parameters[i].set_grad(buckets[index].views[member]);
    }
  }

  void find_used() {
    const Tensor flags = mytorch::empty({static_cast<int64_t>(used.size())}, kInt32);
    for (size_t i = 0; i < used.size(); ++i) flags.data<int32_t>()[i] = used[i] ? 1 : 0;
    const Tensor shared = flags.to(group.device());
    group.all_reduce(shared, {distributed::ReduceOp::kMax});
    anywhere.clear();
    for (const int32_t flag : shared.to_vector<int32_t>()) anywhere.push_back(flag != 0);
  }

  // Gradients come in the same order from now on; one rank's order is that of all.
  void rebuild() {
    std::vector<bool> listed(parameters.size(), false);
    for (const size_t number : order) listed[number] = true;
    for (size_t i = 0; i < listed.size(); ++i) {
      if (!listed[i]) order.push_back(i);
    }
    const auto n = static_cast<int64_t>(order.size());
    const Tensor numbers = mytorch::empty({n}, kInt64);
    for (int64_t i = 0; i < n; ++i) {
      numbers.data<int64_t>()[i] = static_cast<int64_t>(order[static_cast<size_t>(i)]);
    }
    const Tensor shared = numbers.to(group.device());
    group.broadcast(shared, source);
    std::vector<size_t> sequence;
    for (const int64_t number : shared.to_vector<int64_t>()) {
      sequence.push_back(static_cast<size_t>(number));
    }
    fill(sequence);
  }

  // Tells the ranks whether this one trains another step, and whether it reduces. Returns whether
  // any does.
  struct Step {
    bool any, reduces;
  };
  Step announce(bool trains) {
    const Tensor mine = mytorch::empty({2}, kInt32);
    mine.data<int32_t>()[0] = trains ? 1 : 0;
    mine.data<int32_t>()[1] = trains && mode->sync() ? 1 : 0;
    const Tensor all = mytorch::empty({2 * int64_t{group.size()}}, kInt32, group.device());
    group.all_gather(all, mine.to(group.device()));
    const std::vector<int32_t> flags = all.to_vector<int32_t>();
    Step step{false, false};
    int count = 0;
    for (int rank = group.size() - 1; rank >= 0; --rank) {
      const auto at = static_cast<size_t>(rank) * 2;
      if (flags[at] == 0) continue;
      step.any = true;
      step.reduces = step.reduces || flags[at + 1] != 0;
      source = rank;
      ++count;
    }
    active = count;
    return step;
  }

  // Takes part in a step of the others.
  void follow(const Step& step, bool training) {
    const NoGradGuard no_grad;
    in_graph = false;
    if (options.broadcast_buffers && training) {
      for (const Tensor& buffer : buffers) group.broadcast(buffer, source);
    }
    if (!step.reduces) return;
    for (size_t i = 0; i < parameters.size(); ++i) parameters[i].set_grad({});
    for (Bucket& bucket : buckets) {
      bucket.memory.zero_();
      reduce(bucket);
    }
    finish();
  }

  void check_complete() const {
    if (begun) {
      fail(ErrorCode::kValue,
           "[DistributedDataParallel] the last backward ended in an error, and the gradients of "
           "the ranks differ: start again from a checkpoint");
    }
    if (order.empty() || options.find_unused_parameters) return;
    std::string missing;
    int listed = 0;
    for (size_t number = 0; number < parameters.size(); ++number) {
      if (came[number] || ++listed > 10) continue;
      absl::StrAppend(&missing, listed == 1 ? "" : ", ", names[number]);
    }
    fail(ErrorCode::kValue, "[DistributedDataParallel] the last backward gave no gradient to ",
         missing, listed > 10 ? ", ..." : "",
         ": every parameter must take part, so set find_unused_parameters, or leave them out by "
         "requires_grad_(false) before the model is wrapped");
  }
};

namespace {

std::function<void()> reduce_as(ScalarType dtype, const distributed::Group& group,
                                const Tensor& bucket, double scale) {
  const NoGradGuard no_grad;
  // Scaled before the conversion, so that sums of float16 stay finite.
  const Tensor small = (bucket * scale).to(dtype);
  auto work = std::make_shared<distributed::Work>(group.all_reduce(small, {}, true));
  return [work, small, bucket] {
    work->wait();
    bucket.copy_(small);
  };
}

}  // namespace

std::function<void()> compress_bf16(const distributed::Group& group, const Tensor& bucket,
                                    double scale) {
  return reduce_as(kBFloat16, group, bucket, scale);
}
std::function<void()> compress_fp16(const distributed::Group& group, const Tensor& bucket,
                                    double scale) {
  return reduce_as(kFloat16, group, bucket, scale);
}

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
  r.unused.assign(r.parameters.size(), false);
  r.used.assign(r.parameters.size(), false);
  r.active = r.group.size();
  r.fill(sequence);
  for (size_t number = 0; number < r.parameters.size(); ++number) {
    r.hooks.push_back(autograd::register_post_accumulate_hook(
        r.parameters[number], [&r, number](const Tensor&) { r.arrived(number); }));
  }
}

DistributedDataParallel::~DistributedDataParallel() {
  reducer_->mode->value = StateCell::kGone;
  for (size_t i = 0; i < reducer_->hooks.size(); ++i) {
    reducer_->parameters[i].remove_hook(reducer_->hooks[i]);
  }
}

void DistributedDataParallel::begin() {
  Reducer& r = *reducer_;
  r.check_complete();
  r.note_mode_read();
  if (r.joining()) r.announce(true);
  if (!r.options.broadcast_buffers || !module_.training()) return;
  const NoGradGuard no_grad;
  for (const Tensor& buffer : r.buffers) {
    if (recording_graph() && !r.joining()) {
      buffer.copy_(mytorch::broadcast(buffer, r.source, r.group));
    } else {
      r.group.broadcast(buffer, r.source);
    }
  }
}

void DistributedDataParallel::find_unused(const std::vector<Tensor>& results) {
  Reducer& r = *reducer_;
  if (!r.options.find_unused_parameters || r.options.static_graph || !grad_enabled() ||
      !r.mode->sync()) {
    return;
  }
  std::unordered_set<const autograd::Node*> seen;
  std::vector<const autograd::Node*> stack;
  const auto visit = [&](const autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) stack.push_back(node);
  };
  for (const Tensor& result : results) {
    if (result.defined()) visit(autograd::edge_of(result.impl()).node);
  }
  while (!stack.empty()) {
    const autograd::Node* node = stack.back();
    stack.pop_back();
    for (uint32_t i = 0; i < node->num_edges(); ++i) visit(node->edges()[i].node);
  }
  for (size_t i = 0; i < r.parameters.size(); ++i) {
    r.unused[i] = seen.count(autograd::edge_of(r.parameters[i].impl()).node) == 0;
  }
}

void DistributedDataParallel::join(const std::function<void()>& training, JoinOptions options) {
  Reducer& r = *reducer_;
  if (r.joining()) fail(ErrorCode::kValue, "[DistributedDataParallel] join is called inside join");
  r.join_options = options;
  r.set_mode(Reducer::Mode::kJoining, true);
  try {
    training();
    r.check_complete();
    while (true) {
      const Reducer::Step step = r.announce(false);
      if (!step.any) break;
      r.follow(step, module_.training());
    }
    const NoGradGuard no_grad;
    for (const auto& [name, parameter] : module_.named_parameters()) {
      r.group.broadcast(parameter.detach(), r.source);
    }
    for (const Tensor& buffer : r.buffers) r.group.broadcast(buffer, r.source);
  } catch (...) {
    r.set_mode(Reducer::Mode::kJoining, false);
    throw;
  }
  r.set_mode(Reducer::Mode::kJoining, false);
  r.source = 0;
  r.active = r.group.size();
}

int64_t DistributedDataParallel::num_buckets() const {
  return static_cast<int64_t>(reducer_->buckets.size());
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& model)
    : model_(model), saved_(model.reducer_->mode->sync()) {
  model.reducer_->set_mode(Reducer::Mode::kSync, false);
}
DistributedDataParallel::NoSync::~NoSync() {
  model_.reducer_->set_mode(Reducer::Mode::kSync, saved_);
}

}  // namespace mytorch::nn
