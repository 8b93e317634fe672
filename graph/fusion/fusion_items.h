// Which steps of a plan become one: fusion.cpp lists and orders them, fusion_join.cpp says which of
// them may join, and fusion_step.cpp makes one step of those that did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "graph/fusion/fused_program.h"
#include "graph/fusion/loop_body.h"
#include "graph/fusion/loop_space.h"
#include "graph/ir/switches.h"
#include "graph/steps/plan_parts.h"

namespace mytorch {
struct Backend;
}

namespace mytorch::graph {

// Calls of at most this many elements cost their launch. So those that share nothing are fused,
// too, and on the CPU a call that stays alone becomes a program, whose kernel knows its numbers,
// types and operands in advance.
inline constexpr int64_t kSmallLoop = 4096;

// A memory that a call uses, by an operand of its body if it has one.
struct MemoryAccess {
  int32_t memory;
  bool written;
  const LoopOperand* operand;
  const LoopBody* body = nullptr;  // of a table
};

inline constexpr size_t kNoStep = SIZE_MAX;

// A use of a memory, by a step or a node, in the first order.
struct MemoryUse {
  size_t time;
  size_t step;  // kNoStep: a node
};

// One step, an interpreted node, or several steps that become one.
struct FusionItem {
  std::vector<size_t> steps;  // in the order in which they run; empty for a node
  size_t node = 0;            // an index into PlanParts::nodes
  bool fusable = false;
  // Why it did not join an item on whose results it depends, or that depends on its; null if there
  // is none. The nearest one counts.
  const char* apart = nullptr;
  LoopSpace space;
  std::vector<MemoryAccess> accesses;
};

class Fusion {
 public:
  explicit Fusion(PlanParts* parts)
      : parts_(*parts), places_(places_of(*parts)), uses_(parts->memories.size()) {}

  void run();

 private:
  // ---- the items and their order ----

  // Makes an item of each step and node.
  void collect();
  void add_step(size_t index);
  void add_accesses(const LoopBody& body, FusionItem* item) const;
  // A node may do anything with the memories of its operands and results.
  void add_node(size_t index);
  void note(FusionItem item);
  // Adds an item to the order, in which it joins earlier ones as long as it can.
  void place(FusionItem item);
  // Joins the item at a place with an earlier one, and moves the place. The item may move up to the
  // earlier one if it depends on none between, and the earlier one down to it if none between
  // depends on that.
  bool joined_with_earlier(size_t* place);
  bool can_sink(size_t at, size_t to) const;
  // Says what became of an item.
  void report(const FusionItem& item, bool one);
  // Replaces the steps and nodes by those of the new order.
  void emit();

  // ---- which items may join ----

  // Returns the fusion of two items, or nothing if it is not possible or gains nothing.
  std::optional<FusionItem> join(const FusionItem& a, const FusionItem& b);
  // Returns the space of the fusion of two items, or nothing if they cannot be one loop.
  std::optional<LoopSpace> join_spaces(const LoopSpace& a, const LoopSpace& b);
  // Notes why two items stay apart.
  std::nullopt_t apart(const char* why);
  FusedOperand operand_of(const LoopSpace& space, const MemoryAccess& access) const;
  // Returns whether a table has these elements in its rows.
  bool selects_from(const LoopSpace& space, const MemoryAccess& table,
                    const FusedOperand& elements) const;
  // Whether a program that fails leaves nothing written that outlives the run.
  bool may_fail(const FusionItem& item, const FusedProgram& program) const;
  // Returns whether a step or node outside of an item may see what the item writes to a memory.
  bool is_seen(const FusionItem& item, int32_t memory) const;

  // ---- the step of an item ----

  FusedProgram program_of(const FusionItem& item) const;
  // Returns the backend that compiles the program of an item.
  const Backend* backend_of(const FusionItem& item) const;
  // Whether a backend compiles a loop with rows; one without is tried when it is complete.
  bool compiles(const FusionItem& item, const FusedProgram& program) const;
  // Returns the one step that replaces those of an item, if a backend compiles it.
  std::optional<PlanStep> fused(const FusionItem& item);
  // Returns whether an item is one pointwise call of few elements, with contiguous operands.
  bool is_small_call(const FusionItem& item) const;

  PlanParts& parts_;
  const bool joins_ = !is_disabled(kFusion);
  const TensorPlaces places_;
  std::deque<LoopBody> bodies_;               // of each step
  std::vector<FusionItem> all_;               // in the first order
  std::vector<size_t> time_of_;               // of each step: its place in all_
  std::vector<std::vector<MemoryUse>> uses_;  // of each memory
  std::vector<FusionItem> order_;
  const char* why_ = nullptr;  // two items stayed apart the last time
};

}  // namespace mytorch::graph
