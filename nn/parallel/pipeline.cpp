#include "mytorch/nn/parallel/pipeline.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMostDims = 16;

// Returns micro-batch i of n.
Tensor micro_batch(const Tensor& batch, int64_t i, int64_t n, const char* what) {
  if (!batch.defined() || batch.dim() == 0 || batch.size(0) % n != 0) {
    fail(ErrorCode::kShape, "[Pipeline] the ", what, " ",
         batch.defined() ? absl::StrCat("has shape ", shape_str(batch.sizes())) : "is undefined",
         ": dimension 0 must be a multiple of the ", n, " micro-batches");
  }
  const int64_t rows = batch.size(0) / n;
  return batch.narrow(0, i * rows, rows);
}

}  // namespace

// One pass of a batch through the stages.
struct Pipeline::Run {
  Pipeline& pipeline;
  const Group& group;
  Tensor input, target;
  const Loss* loss;  // null without backward
  int64_t n;
  int rank, size;
  std::vector<int64_t> sizes = {};  // of what comes from the stage before
  ScalarType dtype = kFloat32;
  int64_t forwards = 0, backwards = 0;
  // Of micro-batches between their forward and their backward.
  std::deque<Tensor> inputs = {}, outputs = {};
  Tensor total = {};                     // of losses
  std::vector<int64_t> sizes_sent = {};  // of the first result
  Clock::time_point begun = Clock::now();

  bool first() const { return rank == 0; }
  bool last() const { return rank == size - 1; }
  double now() const { return std::chrono::duration<double>(Clock::now() - begun).count(); }

  // ---- messages ----

  // The first message to a stage says what follows.
  void send_form(const Tensor& output) {
    if (output.dim() > kMostDims) {
      fail(ErrorCode::kUnsupported, "[Pipeline] the result of stage ", rank, " has ", output.dim(),
           " dimensions: at most ", kMostDims);
    }
    const Tensor form = mytorch::zeros({kMostDims + 2}, kInt64);
    int64_t* values = form.data<int64_t>();
    values[0] = static_cast<int64_t>(output.dtype());
    values[1] = output.dim();
    for (int64_t i = 0; i < output.dim(); ++i) values[i + 2] = output.size(i);
    group.send(form.to(group.device()), rank + 1);
    sizes_sent = output.sizes().vec();
  }
  void receive_form() {
    const Tensor form = mytorch::empty({kMostDims + 2}, kInt64, group.device());
    group.recv(form, rank - 1);
    const std::vector<int64_t> values = form.to_vector<int64_t>();
    dtype = static_cast<ScalarType>(values[0]);
    sizes.assign(values.begin() + 2, values.begin() + 2 + values[1]);
  }
  void check_form(const Tensor& output) const {
    if (output.sizes() == IntList(sizes_sent)) return;
    fail(ErrorCode::kShape, "[Pipeline] stage ", rank, " has a result of shape ",
         shape_str(output.sizes()), " after one of ", shape_str(sizes_sent),
         ": those of all micro-batches must have the same shape");
  }

  Tensor incoming() const {
    return first() ? Tensor() : mytorch::empty(sizes, dtype, group.device());
  }
  Tensor receive_input() {
    if (first()) return Tensor();
    if (forwards == 0) receive_form();
    Tensor x = incoming();
    group.recv(x, rank - 1);
    return x;
  }
  void send_output(const Tensor& output) {
    if (last()) return;
    const Tensor y = output.detach();
    if (forwards == 1) send_form(y);
    check_form(y);
    group.send(y, rank + 1);
  }
  Tensor receive_gradient(const Tensor& output) const {
    if (last()) return Tensor();
    Tensor gradient = mytorch::empty(output.sizes(), output.dtype(), group.device());
    group.recv(gradient, rank + 1);
    return gradient;
  }
  void send_gradient(const Tensor& gradient) const {
    if (!first()) group.send(gradient, rank - 1);
  }
  // At the same time, so that neighbors do not wait for each other.
  Tensor send_output_receive_gradient(const Tensor& output) const {
    if (last()) return Tensor();
    const Tensor& oldest = outputs.front();
    Tensor gradient = mytorch::empty(oldest.sizes(), oldest.dtype(), group.device());
    check_form(output);
    group.exchange({{output.detach(), rank + 1, true}, {gradient, rank + 1, false}});
    return gradient;
  }
  Tensor send_gradient_receive_input(const Tensor& gradient) const {
    if (first()) return Tensor();
    Tensor x = incoming();
    group.exchange({{gradient, rank - 1, true}, {x, rank - 1, false}});
    return x;
  }

  // ---- computation ----

  Tensor forward(Tensor x) {
    const double begin = now();
    const int64_t i = forwards++;
    if (first()) x = micro_batch(input, i, n, "input");
    const bool differentiates = loss != nullptr;
    if (differentiates && !first() && is_floating_point(x.dtype())) x.requires_grad_();
    Tensor y = pipeline.module_(x);
    if (differentiates && last()) {
      y = mytorch::div((*loss)(y, micro_batch(target, i, n, "target")), n);
      const Tensor value = y.detach().to(kFloat32);
      total = total.defined() ? mytorch::add(total, value) : value;
    }
    if (differentiates) {
      inputs.push_back(x);
      outputs.push_back(y);
    }
    pipeline.events_.push_back({false, i, begin, now()});
    return y;
  }
  // Of the oldest micro-batch. Returns the gradient of its input.
  Tensor backward(const Tensor& gradient) {
    const double begin = now();
    const Tensor x = inputs.front(), y = outputs.front();
    inputs.pop_front();
    outputs.pop_front();
    if (y.requires_grad()) {
      if (gradient.defined()) {
        autograd::backward({y}, {gradient});
      } else {
        y.backward();
      }
    }
    pipeline.events_.push_back({true, backwards++, begin, now()});
    if (first()) return Tensor();
    const Tensor grad = x.grad();
    return grad.defined() ? grad.detach() : mytorch::zeros_like(x.detach());
  }

  void all_then_all() {
    for (int64_t i = 0; i < n; ++i) send_output(forward(receive_input()));
    for (int64_t i = 0; i < n; ++i) send_gradient(backward(receive_gradient(outputs.front())));
  }
  void one_by_one() {
    const int64_t ahead = std::min<int64_t>(size - rank - 1, n);
    for (int64_t i = 0; i < ahead; ++i) send_output(forward(receive_input()));
    Tensor x = ahead < n ? receive_input() : Tensor();
    for (int64_t i = ahead; i < n; ++i) {
      const Tensor y = forward(x);
      const Tensor gradient = backward(send_output_receive_gradient(y));
      if (i == n - 1) {
        send_gradient(gradient);
      } else {
        x = send_gradient_receive_input(gradient);
      }
    }
    for (int64_t i = 0; i < ahead; ++i) {
      send_gradient(backward(receive_gradient(outputs.front())));
    }
  }
};

Pipeline::Pipeline(Module& stage, PipelineOptions options)
    : module_(stage),
      group_(options.group.defined() ? options.group : distributed::world()),
      options_(std::move(options)) {
  if (options_.micro_batches < 1) {
    fail(ErrorCode::kValue, "[Pipeline] ", options_.micro_batches,
         " micro-batches: give at least 1");
  }
}

Tensor Pipeline::step(const Tensor& input, const Tensor& target, const Loss& loss) {
  events_.clear();
  Run run{*this,         group_,       input, target, &loss, options_.micro_batches,
          group_.rank(), group_.size()};
  if (options_.schedule == PipelineSchedule::kGPipe) {
    run.all_then_all();
  } else {
    run.one_by_one();
  }
  const NoGradGuard no_grad;
  Tensor mean =
      run.last() ? run.total : mytorch::empty(IntList(nullptr, 0), kFloat32, group_.device());
  group_.broadcast(mean, group_.size() - 1);
  return mean;
}

Tensor Pipeline::forward(const Tensor& input) {
  const NoGradGuard no_grad;
  events_.clear();
  Run run{*this, group_, input, {}, nullptr, options_.micro_batches, group_.rank(), group_.size()};
  std::vector<Tensor> results;
  for (int64_t i = 0; i < run.n; ++i) {
    const Tensor y = run.forward(run.receive_input());
    run.send_output(y);
    if (run.last()) results.push_back(y);
  }
  return run.last() ? mytorch::cat(results, 0) : Tensor();
}

Sequential pipeline_stage(Sequential& model, int stages, int stage) {
  if (stages < 1 || stage < 0 || stage >= stages ||
      model.size() < static_cast<size_t>(std::max(stages, 0))) {
    fail(ErrorCode::kValue, "[pipeline_stage] stage ", stage, " of ", stages, " of a model of ",
         model.size(), " elements: stages are from 0, and each needs an element");
  }
  // Cuts behind the element that comes nearest to the stage's share of the parameters, and leaves
  // an element for each later stage. Elements without parameters stay with the one before.
  int64_t all = 0, before = 0;
  for (Module& module : model) all += module.num_parameters();
  Sequential part;
  int current = 0, taken = 0;
  for (size_t i = 0; i < model.size(); ++i) {
    const int64_t mine = model[i].num_parameters();
    const size_t left = model.size() - i;
    const auto later = static_cast<size_t>(stages - 1 - current);
    const double bound =
        static_cast<double>(all) * static_cast<double>(current + 1) / static_cast<double>(stages);
    const bool full = static_cast<double>(before) + static_cast<double>(mine) / 2 > bound;
    if (later > 0 && taken > 0 && ((mine > 0 && full) || left <= later)) {
      ++current;
      taken = 0;
    }
    before += mine;
    ++taken;
    if (current == stage) {
      part.push_back(detail::ParameterAccess::child_name(model, i),
                     detail::ParameterAccess::child(model, i));
    }
  }
  return part;
}

}  // namespace mytorch::nn
