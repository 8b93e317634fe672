// What a rank of a pipeline does, messages included.
#pragma once

#include <vector>

#include "mytorch/nn/parallel/pipeline_schedule.h"

namespace mytorch::nn {

// The result of a stage for the next one, or the gradient of its input for the one before.
struct PipelineMessage {
  bool gradient;
  int64_t micro_batch;
  int from, to;  // stages
};

// An action, or messages that are exchanged at the same time.
struct PipelineStep {
  PipelineAction action = {};
  std::vector<PipelineMessage> messages = {};
};
using PipelineProgram = std::vector<PipelineStep>;

// Returns the program of each rank. Ranks that run them in order never wait for each other, also if
// a message ends only when both sides have come to it. Throws the errors of simulate_pipeline.
std::vector<PipelineProgram> pipeline_programs(const PipelineActions& actions, int chunks);

}  // namespace mytorch::nn
