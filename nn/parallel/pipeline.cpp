#include "mytorch/nn/parallel/pipeline.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <unordered_set>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/split_backward.h"
#include "mytorch/device_memory.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "nn/parallel/pipeline_program.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using distributed::Work;
using Kind = PipelineAction::Kind;

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

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

struct Pipeline::Programs {
  PipelineProgram training, forwards;  // of this rank
};

// One pass of a batch through the stages.
struct Pipeline::Run {
  // Shape and type of what goes from one stage to the next one. The first message says them.
  struct Form {
    std::vector<int64_t> sizes;
    ScalarType dtype = kFloat32;

    static Tensor empty_message(Device device) {
      return mytorch::empty({kMostDims + 2}, kInt64, device);
    }
    Tensor message(Device device) const {
      const Tensor form = mytorch::zeros({kMostDims + 2}, kInt64);
      int64_t* values = form.data<int64_t>();
      values[0] = static_cast<int64_t>(dtype);
      values[1] = static_cast<int64_t>(sizes.size());
      std::copy(sizes.begin(), sizes.end(), values + 2);
      return form.to(device);
    }
    static Form from(const Tensor& message) {
      const std::vector<int64_t> values = message.to_vector<int64_t>();
      return {{values.begin() + 2, values.begin() + 2 + values[1]},
              static_cast<ScalarType>(values[0])};
    }
  };
  // A tensor from another stage, and the message that brings it.
  struct Incoming {
    Tensor tensor;
    std::shared_ptr<Work> work = nullptr;
  };
  // What is kept of a micro-batch in a chunk between its actions.
  struct Held {
    Tensor input, output;
    Incoming received = {}, gradient = {};
    autograd::SplitBackward weights = {};
  };

  Pipeline& pipeline;
  Tensor input, target;
  const Loss* loss;  // null without backward
  const Group& group = pipeline.group_;
  int64_t n = pipeline.options_.micro_batches;
  int size = group.size(), stages = pipeline.num_stages();
  std::map<std::pair<int, int64_t>, Held> held = {};  // by stage and micro-batch
  std::map<int, Form> sent = {}, received = {};       // by the stage that sends
  // Messages under way. Some are waited for by what they bring.
  std::deque<std::shared_ptr<Work>> under_way = {};
  Tensor total = {};                 // of losses
  std::vector<Tensor> results = {};  // of micro-batches, without backward

  void run(const PipelineProgram& program) {
    pipeline.began_ = seconds_now();
    for (const PipelineStep& step : program) {
      if (step.messages.empty()) {
        compute(step.action);
      } else {
        exchange(step.messages);
      }
    }
    while (!under_way.empty()) wait_for_oldest();
  }

  // ---- messages ----

  bool is_mine(int stage) const { return stage % size == group.rank(); }

  void check_form(int stage, const Tensor& output) {
    if (output.dim() > kMostDims) {
      fail(ErrorCode::kUnsupported, "[Pipeline] the result of stage ", stage, " has ", output.dim(),
           " dimensions: at most ", kMostDims);
    }
    const auto& [form, is_new] =
        sent.try_emplace(stage, Form{output.sizes().vec(), output.dtype()});
    if (is_new ||
        (output.sizes() == IntList(form->second.sizes) && output.dtype() == form->second.dtype)) {
      return;
    }
    fail(ErrorCode::kShape, "[Pipeline] stage ", stage, " has a result of shape ",
         shape_str(output.sizes()), " and type ", dtype_name(output.dtype()), " after one of ",
         shape_str(form->second.sizes), " and ", dtype_name(form->second.dtype),
         ": those of all micro-batches must be the same");
  }

  // Says the forms of results that are the first ones of their stage.
  void exchange_forms(const std::vector<PipelineMessage>& messages) {
    std::vector<Group::Message> forms;
    std::vector<std::pair<int, Tensor>> received_forms;
    for (const PipelineMessage& message : messages) {
      if (message.gradient) continue;
      if (is_mine(message.from)) {
        const bool is_first = sent.count(message.from) == 0;
        check_form(message.from, held[{message.from, message.micro_batch}].output);
        if (!is_first) continue;
        forms.push_back({sent[message.from].message(group.device()), message.to % size, true});
      } else if (received.count(message.from) == 0) {
        const Tensor form = Form::empty_message(group.device());
        forms.push_back({form, message.from % size, false});
        received_forms.emplace_back(message.from, form);
      }
    }
    if (forms.empty()) return;
    group.exchange(forms, /*async=*/true).wait();
    for (const auto& [stage, form] : received_forms) received[stage] = Form::from(form);
  }

  void exchange(const std::vector<PipelineMessage>& messages) {
    exchange_forms(messages);
    std::vector<Group::Message> all;
    std::vector<Incoming*> incoming;
    for (const PipelineMessage& message : messages) {
      const bool sends_it = is_mine(message.from);
      Held& at = held[{sends_it ? message.from : message.to, message.micro_batch}];
      const int peer = (sends_it ? message.to : message.from) % size;
      if (sends_it) {
        all.push_back(
            {message.gradient ? std::exchange(at.input, {}) : at.output.detach(), peer, true});
        if (loss == nullptr) at.output = Tensor();
        continue;
      }
      const Form form = message.gradient ? Form{at.output.sizes().vec(), at.output.dtype()}
                                         : received[message.from];
      Incoming& to = message.gradient ? at.gradient : at.received;
      to.tensor = mytorch::empty(form.sizes, form.dtype, group.device());
      all.push_back({to.tensor, peer, false});
      incoming.push_back(&to);
    }
    const auto work = std::make_shared<Work>(group.exchange(all, /*async=*/true));
    for (Incoming* to : incoming) to->work = work;
    under_way.push_back(work);
    while (!under_way.empty() && under_way.front()->done()) wait_for_oldest();
  }
  void wait_for_oldest() {
    under_way.front()->wait();
    under_way.pop_front();
  }
  static Tensor take(Incoming& incoming) {
    if (const auto work = std::exchange(incoming.work, nullptr)) work->wait();
    return std::exchange(incoming.tensor, {});
  }

  // ---- computation ----

  void compute(const PipelineAction& action) {
    const int stage = action.chunk * size + group.rank();
    const auto key = std::pair(stage, action.micro_batch);
    Held& at = held[key];
    const Tensor received_input = take(at.received), gradient = take(at.gradient);
    const double begin = now();
    if (action.kind == Kind::kForward) {
      forward(at, stage, action, received_input);
    } else if (action.kind == Kind::kWeightGradient) {
      at.weights.accumulate();
      held.erase(key);
    } else {
      backward(at, stage, action, gradient);
    }
    pipeline.events_.push_back({group.rank(), action, begin, now()});
  }
  double now() const {
    if (pipeline.options_.synchronize && !group.device().is_cpu()) {
      mytorch::synchronize(group.device());
    }
    return seconds_now() - pipeline.began_;
  }

  void forward(Held& at, int stage, const PipelineAction& action, Tensor x) {
    const int64_t i = action.micro_batch;
    if (stage == 0) x = micro_batch(input, i, n, "input");
    if (loss != nullptr && stage > 0 && (is_floating_point(x.dtype()) || is_complex(x.dtype()))) {
      x.requires_grad_();
    }
    Tensor y = (*pipeline.chunks_[static_cast<size_t>(action.chunk)])(x);
    const bool last = stage == stages - 1;
    if (loss == nullptr) {
      if (last) results.push_back(y);
    } else if (last) {
      y = mytorch::div((*loss)(y, micro_batch(target, i, n, "target")), n);
      const Tensor value = y.detach().to(kFloat32);
      total = total.defined() ? mytorch::add(total, value) : value;
    }
    const bool sends = !last && size > 1;
    if (!last && !sends) held[{stage + 1, i}].received = {y.detach()};
    if (loss != nullptr) at.input = x;
    if (loss != nullptr || sends) at.output = y;
  }

  void backward(Held& at, int stage, const PipelineAction& action, const Tensor& gradient) {
    const int64_t i = action.micro_batch;
    const Tensor x = std::exchange(at.input, {}), y = std::exchange(at.output, {});
    const std::vector<Tensor> weighting =
        gradient.defined() ? std::vector<Tensor>{gradient} : std::vector<Tensor>();
    Tensor grad;
    if (!y.requires_grad()) {
      // Nothing here has a gradient.
    } else if (action.kind == Kind::kBackward) {
      autograd::backward({y}, weighting);
      grad = x.grad();
    } else if (stage > 0 && x.requires_grad()) {
      at.weights = autograd::SplitBackward({y}, {x}, weighting);
      grad = at.weights.input_gradients()[0];
    } else {
      at.weights = autograd::SplitBackward({y}, {}, weighting);
    }
    if (stage == 0) return;
    grad = grad.defined() ? grad.detach() : mytorch::zeros_like(x.detach());
    if (size == 1) {
      held[{stage - 1, i}].gradient = {grad};
    } else {
      at.input = grad;  // until it is sent
    }
  }
};

Pipeline::Pipeline(Module& stage, PipelineOptions options)
    : Pipeline(std::vector<Module*>{&stage}, std::move(options)) {}

Pipeline::Pipeline(std::vector<Sequential>& chunks, PipelineOptions options)
    : Pipeline(
          [&] {
            std::vector<Module*> modules;
            for (Sequential& chunk : chunks) modules.push_back(&chunk);
            return modules;
          }(),
          std::move(options)) {}

Pipeline::Pipeline(std::vector<Module*> chunks, PipelineOptions options)
    : chunks_(std::move(chunks)),
      group_(options.group.defined() ? options.group : distributed::world()),
      options_(std::move(options)),
      actions_(std::exchange(options_.actions, {})) {
  for (const Module* chunk : chunks_) {
    if (chunk == nullptr) fail(ErrorCode::kValue, "[Pipeline] a chunk is null: give modules");
  }
  const int ranks = group_.size();
  if (actions_.empty()) {
    actions_ = pipeline_actions(options_.schedule, ranks, options_.micro_batches, num_chunks());
  }
  if (static_cast<int>(actions_.size()) != ranks) {
    fail(ErrorCode::kValue, "[Pipeline] there are actions of ", actions_.size(), " ranks, but ",
         ranks, " ranks");
  }
  check_pipeline(actions_, options_.micro_batches, num_chunks());
  const auto rank = static_cast<size_t>(group_.rank());
  const PipelineActions forwards = pipeline_forwards(ranks, options_.micro_batches, num_chunks());
  programs_ = std::make_unique<Programs>(Programs{pipeline_programs(actions_, num_chunks())[rank],
                                                  pipeline_programs(forwards, num_chunks())[rank]});
}

Pipeline::~Pipeline() = default;

Tensor Pipeline::step(const Tensor& input, const Tensor& target, const Loss& loss) {
  events_.clear();
  Run run{*this, input, target, &loss};
  run.run(programs_->training);
  const NoGradGuard no_grad;
  const int last = group_.size() - 1;
  Tensor mean = group_.rank() == last
                    ? run.total
                    : mytorch::empty(IntList(nullptr, 0), kFloat32, group_.device());
  group_.broadcast(mean, last);
  return mean;
}

Tensor Pipeline::forward(const Tensor& input) {
  const NoGradGuard no_grad;
  events_.clear();
  Run run{*this, input, {}, nullptr};
  run.run(programs_->forwards);
  return run.results.empty() ? Tensor() : mytorch::cat(run.results, 0);
}

std::vector<Tensor> Pipeline::parameters() const {
  std::vector<Tensor> parameters;
  std::unordered_set<const void*> seen;
  for (const Module* chunk : chunks_) {
    for (const Tensor& parameter : chunk->parameters()) {
      if (seen.insert(parameter.impl()).second) parameters.push_back(parameter);
    }
  }
  return parameters;
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

std::vector<Sequential> pipeline_stages(Sequential& model, int ranks, int rank, int chunks) {
  if (ranks < 1 || rank < 0 || rank >= ranks || chunks < 1) {
    fail(ErrorCode::kValue, "[pipeline_stages] ", chunks, " chunks of rank ", rank, " of ", ranks,
         ": ranks are from 0, and each has a chunk or more");
  }
  std::vector<Sequential> parts;
  for (int c = 0; c < chunks; ++c) {
    parts.push_back(pipeline_stage(model, ranks * chunks, c * ranks + rank));
  }
  return parts;
}

}  // namespace mytorch::nn
