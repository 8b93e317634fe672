// What others have measured, to compare predictions with.
#pragma once

#include <string>
#include <vector>

#include "plan/machine.h"
#include "plan/search.h"

namespace mytorch::plan {

// A row of the table in Megatron-LM's README (images/model_table.png): GPTs on H100, with a
// vocabulary of 131,072 and sequences of 4,096 tokens, "Megatron-Core r0.8.0". It says nothing of
// micro-batches, interleaving and recomputation.
struct Measured {
  std::string model;
  int64_t tensor, pipeline, data;
  double teraflops;    // of a GPU
  double utilization;  // as printed, of 989
};
const std::vector<Measured>& megatron_table();

struct Compared {
  Measured measured;
  Plan plan;     // the fastest one of what the row does not say, with ZeRO 1
  double error;  // of the predicted speed, relative to the measured one
};
// Throws Error(kValue) if a model of the table does not fit into the machine's memory.
std::vector<Compared> compare_with_megatron(const Machine& machine);

}  // namespace mytorch::plan
