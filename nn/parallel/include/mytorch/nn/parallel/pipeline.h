// Training one model whose layers are spread over the ranks of a group.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/parallel/pipeline_schedule.h"
#include "mytorch/std_function.h"

namespace mytorch::nn {

struct PipelineOptions {
  distributed::Group group = {};  // default: distributed::world()
  int64_t micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  // A schedule of your own, instead: the actions of all ranks.
  PipelineActions actions = {};
  // Waits for the device before and after each action, so that events() has the times of the
  // device. Slower; for measurements.
  bool synchronize = false;
};

// Runs a stage of a model on each rank, or several. A batch is cut into micro-batches, which follow
// each other through the stages; each stage receives its input from the stage before and sends its
// result to the next one, and gradients go the other way:
//
//   nn::Sequential stage = nn::pipeline_stage(model, world.size(), world.rank());
//   nn::Pipeline pipeline(stage, {.micro_batches = 8});
//   nn::optim::SGD optimizer(pipeline.parameters(), 0.1);
//   for (const auto& [x, y] : loader) {
//     optimizer.zero_grad();
//     double loss = pipeline.step(x, y, [](const Tensor& out, const Tensor& target) {
//       return cross_entropy(out, target);
//     }).item<double>();
//     optimizer.step();
//   }
//
// With c chunks on each of p ranks, chunk i of rank r is stage i p + r of p c
// (pipeline_stages). Losses and gradients are those of one rank, if the loss is a mean over the
// batch. A parameter may belong to several chunks of one rank, but not to several ranks.
class Pipeline {
 public:
  // What flows between stages is one tensor, of the same shape and type for all micro-batches. The
  // modules must outlive this object. Throws Error(kValue) for numbers below 1, for several chunks
  // with the schedule k1F1B, and for actions that do not compute everything once, or that wait for
  // each other.
  explicit Pipeline(Module& stage, PipelineOptions options = {});
  explicit Pipeline(std::vector<Module*> chunks, PipelineOptions options = {});
  explicit Pipeline(std::vector<Sequential>& chunks, PipelineOptions options = {});
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  using Loss = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  // Computes the loss of a batch and adds the gradients of its mean over the micro-batches to the
  // parameters of the stages. The first stage reads `input`, the last one `target`; the others may
  // pass anything, also undefined tensors. Returns the mean loss, 0-dim, on all ranks. Throws
  // Error(kShape) if dimension 0 of the input or target is no multiple of the micro-batches.
  Tensor step(const Tensor& input, const Tensor& target, const Loss& loss);
  // Returns the outputs of a batch on the last stage's rank, and an undefined tensor on the others,
  // without gradients.
  Tensor forward(const Tensor& input);

  // Returns the parameters of this rank's stages, each once.
  std::vector<Tensor> parameters() const;
  // What this rank did in the last step, in order; seconds since the step began, of the host unless
  // it synchronizes. pipeline_timeline.h draws them.
  const std::vector<PipelineSpan>& events() const { return events_; }
  // What all ranks do in a step.
  const PipelineActions& actions() const { return actions_; }
  const distributed::Group& group() const { return group_; }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  int num_stages() const { return group_.size() * num_chunks(); }
  double began() const { return began_; }  // the last step, by the host's steady clock

 private:
  struct Run;
  struct Programs;
  std::vector<Module*> chunks_;
  distributed::Group group_;
  PipelineOptions options_;
  PipelineActions actions_;
  std::unique_ptr<const Programs> programs_;
  std::vector<PipelineSpan> events_;
  double began_ = 0;
};

// Returns part `stage` of `stages` consecutive parts of a model, which share its modules and have
// about equally many parameters. Throws Error(kValue) if there are fewer elements than stages.
Sequential pipeline_stage(Sequential& model, int stages, int stage);
// Returns the chunks of a rank: parts rank, ranks + rank, 2 ranks + rank, ... of chunks * ranks.
std::vector<Sequential> pipeline_stages(Sequential& model, int ranks, int rank, int chunks);

}  // namespace mytorch::nn
