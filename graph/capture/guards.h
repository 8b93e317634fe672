// The conditions under which a recording holds for a call.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/autocast/state.h"
#include "graph/capture/capture.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {

// What a tensor must have in common with the one that was recorded.
struct TensorGuard {
  ScalarType dtype;
  Device device;
  Dims sizes;
  Dims strides;
  int64_t offset;       // in its storage; -1 if it may lie anywhere
  uintptr_t alignment;  // of its first element
  bool requires_grad;
  int32_t alias;  // the first tensor with the same storage
  int32_t twin;   // the first that is the same tensor

  bool operator==(const TensorGuard&) const = default;
};

// The state of the thread that operators read above the graph.
struct ThreadGuard {
  bool grad_mode = grad_enabled();
  bool inference = thread_state.inference_mode;
  bool autocast = (thread_state.wanted & kLayerAutocast) != 0;
  std::vector<uint16_t> casts;

  static ThreadGuard now();
  bool operator==(const ThreadGuard&) const = default;
};

// What a recording took for granted.
struct Guards {
  std::vector<TensorGuard> arguments;
  std::vector<uint64_t> constants;  // see flatten in mytorch/compile.h
  ThreadGuard thread;
  uint64_t epoch = 0;  // of the library's options
  std::vector<TensorGuard> outside;
  std::vector<uint64_t> outside_ids;     // of their storages
  std::vector<int64_t> outside_offsets;  // in them, which a plan takes for granted
  // How often variables that referred to them, such as members of modules, were assigned others.
  std::vector<uint16_t> outside_replaced;
  std::vector<uint16_t> views_replaced;  // the same of views from outside
  std::optional<Generator> generator;    // the default one, if the graph draws from it
  std::vector<int32_t> shared;  // for each argument, the outside tensor with its storage, or -1

  // Notes the state after the recording.
  void finish(const Recorded& recorded, const std::vector<Tensor>& tensors);
  // Notes the assignments to variables until now, which the function itself made.
  void note_replaced(const Recorded& recorded);
  // Returns why the recording does not hold for a call, or null.
  const char* mismatch(const std::vector<Tensor>& tensors, const std::vector<uint64_t>& numbers,
                       const Recorded& recorded);
};

// Brings what the graph reads of the library's state up to date. Returns why the recording does not
// hold for this state, or null.
const char* has_changed(const Recorded& recorded);

// Returns what the function itself, which has just run in place of a replay, has done to a number
// of the library's state, such as the mode of a module, and the replay would not have; null if
// nothing.
const char* cell_that_differs(const Recorded& recorded);

// Returns what is known of a call before the function runs.
Guards guards_of_call(const std::vector<Tensor>& arguments, const std::vector<uint64_t>& constants);

}  // namespace mytorch::graph
