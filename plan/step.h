// How long a step of training takes.
#pragma once

#include "plan/layout.h"
#include "plan/machine.h"
#include "plan/memory.h"
#include "plan/model.h"

namespace mytorch::plan {

// Seconds of a step, and where they go. Communication is what computation does not hide.
struct Step {
  double compute = 0;  // of the slowest stage
  double bubble = 0;   // waiting for other stages
  double tensor = 0;   // communication of tensor parallelism
  double context = 0;
  double expert = 0;
  double pipeline = 0;
  double data = 0;  // gradients and parameters
  double optimizer = 0;
  double host = 0;  // Gpu::step
  double seconds() const {
    return compute + bubble + tensor + context + expert + pipeline + data + optimizer + host;
  }
};

// `layout` is one that reason_against has nothing against.
Step step_of(const Model& model, const Layout& layout, const Precision& precision,
             const Machine& machine);

// The share of the GPUs' peak that the model's operations take, in a step of so many seconds.
double utilization(const Model& model, const Machine& machine, int64_t gpus, double seconds);

}  // namespace mytorch::plan
