// Which layouts of a model are feasible on a machine, the fastest first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout.h"
#include "plan/machine.h"
#include "plan/memory.h"
#include "plan/model.h"
#include "plan/step.h"

namespace mytorch::plan {

inline constexpr int64_t kMostGpus = int64_t{1} << 20;

struct Plan {
  Layout layout;
  Memory memory;
  Step step;
  double utilization = 0;
};

// What is given is not searched.
struct Wanted {
  int64_t gpus = 0;
  std::optional<int64_t> data = {}, tensor = {}, pipeline = {}, context = {}, expert = {};
  std::optional<int64_t> micro_batch = {}, interleave = {};
  std::optional<int> zero = {};
  std::optional<Recompute> recompute = {};
  Precision precision = {};
};

struct Found {
  std::vector<Plan> plans;  // those that fit, the fastest first; of equal ones, that of less memory
  int64_t tried = 0;        // that divide the model
  int64_t too_large = 0;    // of these, how many exceed the GPU's memory
  std::optional<Plan> smallest = {};            // the one of these that needs least
  std::map<std::string, int64_t> refused = {};  // layouts by the reason against them
};

// tp stays within a node, cp is at most 64, interleave at most 32, and micro-batches are powers of
// two up to 16, unless they are given. Throws Error(kValue) for fewer than 1 or more than 2^20
// GPUs, or sizes that do not multiply to them.
Found search(const Model& model, const Machine& machine, const Wanted& wanted);
// The fastest first; of equal ones, that of less memory.
void sort_plans(std::vector<Plan>& plans);
Plan plan_of(const Model& model, const Machine& machine, const Layout& layout,
             const Precision& precision = {});

}  // namespace mytorch::plan
