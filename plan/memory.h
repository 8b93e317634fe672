// What a rank keeps in memory while it trains.
#pragma once

#include "plan/layout.h"
#include "plan/machine.h"
#include "plan/model.h"

namespace mytorch::plan {

// Parameters of a rank, before ZeRO divides them: those that all ranks of dp and cp have, and those
// of experts, which dp * cp / ep ranks have.
struct RankParameters {
  double shared = 0;
  double experts = 0;
  double all() const { return shared + experts; }
};
RankParameters parameters_of_layer(const Model& model, const Layout& layout);
RankParameters parameters_of_rank(const Model& model, const Layout& layout, int64_t stage);

// Bytes that a layer keeps of one micro-batch for its backward. (Korthikanti et al., "Reducing
// Activation Recomputation in Large Transformer Models", 2022, without the scores.)
double layer_activations(const Model& model, const Layout& layout, const Precision& precision);
// Micro-batches between their forward and their backward on a rank of a stage, at most; a fraction
// if stages are interleaved and only some of them have run.
double micro_batches_in_flight(const Model& model, const Layout& layout, int64_t stage);

struct Memory {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double buffers = 0;   // gathered parameters, logits, keys under way
  double reserved = 0;  // of the GPU
  double total() const {
    return parameters + gradients + optimizer + activations + buffers + reserved;
  }
};
Memory memory_of_stage(const Model& model, const Layout& layout, const Precision& precision,
                       const Gpu& gpu, int64_t stage);
// Of the stage that needs most.
Memory memory_of(const Model& model, const Layout& layout, const Precision& precision,
                 const Gpu& gpu);

}  // namespace mytorch::plan
