// How a model is divided over GPUs.
#pragma once

#include <cstdint>
#include <string>

#include "plan/model.h"

namespace mytorch::plan {

// What is kept of a layer's forward for its backward.
enum class Recompute {
  kNone,       // everything but the scores of attention, which flash attention computes again
  kSelective,  // without the results of norms and activations
  kFull,       // the layer's input alone: backward runs the forward of each layer first
};
const char* recompute_name(Recompute recompute);

// Ranks are numbered with tensor parallelism fastest, then context, data, and pipeline. Tensor
// parallelism divides norms and residuals along the sequence.
struct Layout {
  int64_t data = 1;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t context = 1;
  int64_t expert = 1;       // of the data * context ranks, this many share the experts
  int zero = 0;             // 1: optimizer state is sharded, 2: gradients, 3: parameters
  int64_t micro_batch = 1;  // sequences
  int64_t interleave = 1;   // stages of a rank
  Recompute recompute = Recompute::kNone;

  int64_t gpus() const { return data * tensor * pipeline * context; }
  int64_t micro_batches(const Model& model) const { return model.batch / (data * micro_batch); }
  std::string text() const;
};

// Returns why a model cannot be divided so, or "".
std::string reason_against(const Model& model, const Layout& layout);

// Bytes of a number. The usual mixed precision has 16-bit parameters, and sums gradients in float32
// beside float32 parameters and Adam's two moments. With autocast, parameters are float32 and
// activations are not: each forward converts the parameters, and backward gradients.
struct Precision {
  double parameter = 2;
  double gradient = 4;
  double optimizer = 12;  // of a parameter
  double activation = 2;

  // What is read and written for a parameter: to convert it before a forward; to add a gradient to
  // the sum, or to become it, in the backward of the first micro-batch; and in an update.
  double converted() const { return parameter > activation ? parameter + activation : 0; }
  double added(bool first) const {
    if (!first) return activation + 2 * gradient;
    return gradient != activation ? activation + gradient : 0;
  }
  double updated() const {
    const bool has_copy = optimizer >= 12;  // of the parameters, which then are written alone
    return gradient + 2 * optimizer + (has_copy ? 1 : 2) * parameter;
  }
};

}  // namespace mytorch::plan
