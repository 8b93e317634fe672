// Training one model whose layers are spread over the ranks of a group.
#pragma once

#include <cstdint>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/module.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

enum class PipelineSchedule {
  // All forwards, then all backwards: every stage keeps what all micro-batches need.
  kGPipe,
  // As soon as backwards can begin, one forward and one backward in turn: a stage keeps what as
  // many micro-batches need as there are stages from it on.
  k1F1B,
};

struct PipelineOptions {
  distributed::Group group = {};  // default: distributed::world(); rank r computes stage r
  int64_t micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
};

// Runs a stage of a model on each rank. A batch is cut into micro-batches, which follow each other
// through the stages; each stage receives its input from the stage before and sends its result to
// the next one, and gradients go the other way:
//
//   nn::Sequential stage = nn::pipeline_stage(model, world.size(), world.rank());
//   nn::optim::SGD optimizer(stage.parameters(), 0.1);
//   nn::Pipeline pipeline(stage, {.micro_batches = 8});
//   for (const auto& [x, y] : loader) {
//     optimizer.zero_grad();
//     double loss = pipeline.step(x, y, [](const Tensor& out, const Tensor& target) {
//       return cross_entropy(out, target);
//     }).item<double>();
//     optimizer.step();
//   }
//
// Of n micro-batches over p stages, p - 1 of n + p - 1 time slots are idle on every rank. Losses
// and gradients are those of one rank, if the loss is a mean over the batch.
class Pipeline {
 public:
  // What flows between stages is one tensor, of the same shape for all micro-batches. `stage` must
  // outlive this object.
  explicit Pipeline(Module& stage, PipelineOptions options = {});

  using Loss = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  // Computes the loss of a batch and adds the gradients of its mean over the micro-batches to the
  // parameters of the stages. The first stage reads `input`, the last one `target`; the others may
  // pass anything, also undefined tensors. Returns the mean loss, 0-dim, on all ranks. Throws
  // Error(kShape) if dimension 0 of the input or target is no multiple of the micro-batches.
  Tensor step(const Tensor& input, const Tensor& target, const Loss& loss);
  // Returns the outputs of a batch on the last stage, and an undefined tensor on the others,
  // without gradients.
  Tensor forward(const Tensor& input);

  // What this rank did in the last step, in order.
  struct Event {
    bool backward;
    int64_t micro_batch;
    double begin, end;  // seconds since the step began, of the host
  };
  const std::vector<Event>& events() const { return events_; }
  int stage() const { return group_.rank(); }
  int num_stages() const { return group_.size(); }

 private:
  struct Run;
  Module& module_;
  distributed::Group group_;
  PipelineOptions options_;
  std::vector<Event> events_;
};

// Returns part `stage` of `stages` consecutive parts of a model, which share its modules and have
// about equally many parameters. Throws Error(kValue) if there are fewer elements than stages.
Sequential pipeline_stage(Sequential& model, int stages, int stage);

}  // namespace mytorch::nn
