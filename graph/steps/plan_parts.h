// The parts of a plan (plan.h): memories, tensor headers over them, and steps.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/capture/capture.h"
#include "graph/steps/kept_args.h"
#include "mytorch/compile_mode.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch {
struct KernelEntry;
}

namespace mytorch::graph {

class FusedOp;
class RegionOp;

// The memory that one storage had when the graph ran first.
struct PlanMemory {
  enum Kind : uint8_t {
    kSource,     // an argument, an outside tensor or its grad: its address may change
    kResult,     // leaves the graph: fresh in each run
    kUnplanned,  // an interpreted node allocates it in each run, outside of the arena
    kArena,      // an intermediate, which has a place in the arena
    kKept,       // an intermediate that stays from run to run (kept_steps.h)
    kConstant,   // made outside of the graph's kernels, and only read by them
  };
  Kind kind = kConstant;
  uint64_t id = 0;  // of that storage
  uint64_t bytes = 0;
  Device device;
  Storage* storage = nullptr;  // the current one
  uint64_t storage_id = 0;
  bool counted = false;  // whether the plan holds a reference to it
  int64_t begin = 0;     // of this memory in the current storage, in bytes
  // The plan's tensors over it, which count no reference to its storage, with offsets in bytes.
  std::vector<std::pair<Tensor, int64_t>> headers;
};

struct RandomField {
  uint32_t offset;  // of the field in the arguments
  Generator generator;
};

// A call of a kernel, or a node for the interpreter.
struct PlanStep {
  const OpEntry* entry = nullptr;
  int slot = 0;
  mt_device device{};
  KeptArgs args;
  std::vector<int32_t> written;  // memories
  std::vector<RandomField> random;
  const KernelEntry* kernel = nullptr;               // that ran the call first
  std::shared_ptr<const FusedOp> fused = nullptr;    // of a fused call
  std::shared_ptr<const RegionOp> region = nullptr;  // of a region, which a backend compiled
  size_t joined = 1;                                 // the calls that the step stands for
  bool kept = false;                                 // whether its results are kept (kept_steps.h)
};

struct Interpreted {
  size_t before;  // the step that follows
  size_t node;
};

struct PlanParts {
  PlanParts(const Recorded& of, CompileMode how);
  ~PlanParts();
  PlanParts(const PlanParts&) = delete;
  PlanParts& operator=(const PlanParts&) = delete;

  // Returns the tensor from outside of the graph that is the memory of a buffer in a call.
  Tensor source(int32_t buffer, const std::vector<Tensor>& arguments) const;
  // Returns how far an argument lies from where it lay in its storage when it was recorded, in
  // bytes; 0 for other tensors.
  int64_t begin_of(int32_t buffer, const Tensor& tensor) const;
  void set_grads(const std::vector<Tensor>& grads, const std::vector<Tensor>& arguments) const;
  const PlanMemory& memory_of_value(ValueId id) const {
    return memories[buffers[graph.values[id].buffer]];
  }

  const Recorded& recorded;
  const Graph& graph;
  const CompileMode mode;
  std::deque<PlanMemory> memories;
  std::vector<PlanStep> steps;
  std::vector<Interpreted> nodes;     // in the order of `before`
  size_t num_kept = 0;                // the first steps, whose results are kept
  std::vector<int32_t> kept_sources;  // the buffers from outside that these read
  std::vector<int32_t> sources;       // the buffers that are not made inside
  std::vector<int32_t> buffers;       // the memory of each buffer
  std::vector<Tensor> values;         // for interpreted nodes
  std::vector<int32_t> allocated;     // the memories that a run allocates: kResult, kUnplanned
  Tensor empty;                       // the base of the plan's headers
  uint64_t arena_bytes = 0;
  uint64_t kept_bytes = 0;
  uint64_t intermediate_bytes = 0;
  uint64_t recorded_peak_bytes = 0;
  bool keeps_constants = false;            // whether a region was compiled with them
  std::vector<std::string> region_report;  // a line for each region: taken, or declined
  std::vector<std::string> fusion_report;  // a line for each loop: what it is made of, or why alone
};

// Where a tensor of a plan lies.
struct TensorPlace {
  int32_t memory;
  int64_t offset;  // in bytes
};
using TensorPlaces = absl::flat_hash_map<const mt_tensor*, TensorPlace>;
// Returns the places of the plan's tensors.
TensorPlaces places_of(const PlanParts& parts);

// Sets a header to a place in a storage.
void place(TensorImpl* impl, int64_t offset, Storage* storage);
// Moves a memory, with its headers, to `begin` in another storage. Takes over a reference to the
// storage if `counted`.
void move(PlanMemory& memory, Storage* storage, bool counted, int64_t begin = 0);
// Returns the plan's tensor with another geometry over the same memory as a tensor of the plan,
// which lies `offset` bytes from its beginning.
const Tensor& header_like(PlanParts& parts, PlanMemory& memory, const mt_tensor& like,
                          int64_t offset, IntList sizes, IntList strides);
// Gives up the storage of a memory, and the plan's reference to it if there is one. The memory must
// be moved before it is used again.
void release_memory(PlanMemory& memory);
// Returns a tensor of the value's type and geometry over a storage.
Tensor tensor_over(Storage* storage, const ValueInfo& info, int64_t begin);

// Runs the graph for the first time, node by node, with ordinary tensors; fills the parts. Returns
// the results.
std::vector<Tensor> run_first(PlanParts* parts, const std::vector<Tensor>& arguments);

}  // namespace mytorch::graph
