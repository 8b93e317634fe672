// What a capture knows while the function runs: the buffers and values of the graph by storage, and
// what becomes of grads and of memory that the function makes.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/capture/capture.h"
#include "graph/capture/living.h"

namespace mytorch::graph {

struct OperatorCapture::State {
  Recorded recorded;
  const uint64_t number = next_number();  // from 1
  bool is_middle = false;                 // of a function that has breaks
  std::vector<Trace::Note> notes;         // of each node
  std::vector<uint64_t> storages;         // of each buffer
  std::vector<uint8_t> alignments;        // of each buffer
  // By the id of the storage. Ids are never reused.
  absl::flat_hash_map<uint64_t, int32_t> buffers;
  std::vector<std::vector<ValueId>> values_of;  // a buffer
  std::vector<const TensorImpl*> arguments;
  // The leaves whose grads were read or replaced.
  struct TouchedLeaf {
    Tensor tensor;
    Leaf leaf;
    bool read = false;  // before it was replaced
    bool written = false;
    ValueId entry = kNoValue;
  };
  absl::flat_hash_map<const TensorImpl*, size_t> leaf_index;
  std::vector<TouchedLeaf> leaves;

  // The cells of the library's state that the function has read, set or made.
  struct TouchedCell {
    static constexpr int8_t kNone = -2;
    std::shared_ptr<StateCell> cell;
    int8_t expected = kNone;  // as it was read before it was set
    int8_t set = kNone;       // the last one
    bool made = false;
    bool known() const { return made || expected != kNone || set != kNone; }
  };
  absl::flat_hash_map<const StateCell*, TouchedCell> cells;
  TouchedCell& touched(const std::shared_ptr<StateCell>& cell);
  // Makes conditions and effects of the recording of them.
  void finish_cells();
  // The variables of the user that are guarded, with the hashes of their types.
  absl::flat_hash_set<std::pair<const void*, size_t>> guarded;

  static uint64_t next_number();

  Graph& graph() { return recorded.graph; }

  int32_t add_buffer(const TensorImpl& impl, BufferOrigin origin, int32_t index);
  int32_t add_outside(const Tensor& tensor);
  int32_t find_buffer(const TensorImpl& impl);
  ValueId value(int32_t buffer, const TensorImpl& impl);

  // Returns the value of an operand. A storage that no node made comes from outside.
  ValueId operand(const Tensor& tensor);
  // Returns the tensor to keep for the memory of another: the leaf itself, whose data may be
  // replaced, but nothing with history.
  static Tensor owner_of(const Tensor& tensor);
  // Throws for a tensor from outside with history: its gradient would be that of the first call.
  static void refuse_history(const Tensor& tensor);
  ValueId result(const Tensor& tensor);
  // The headers of results of nodes, and of views that are noted. What was there before the
  // recording is no result.
  absl::flat_hash_set<const TensorImpl*> seen_headers;

  void note_host_read(const Tensor& tensor);

  // Variables in the stack of the function's callers that it has assigned. Nothing tells its own
  // from others in the heap.
  struct Assigned {
    const Tensor* variable;
    const TensorImpl* former;  // before the first assignment
    Tensor now;
  };
  std::vector<Assigned> assigned;
  std::optional<std::pair<uintptr_t, uintptr_t>> callers;  // where they lie, once it is asked for
  // The memory that nodes have allocated, if there is a frame.
  LivingStorages living;
  const void* frame = nullptr;  // of the caller of the function, whose own locals lie below
  void note_assigned(const Tensor& variable, const TensorImpl* former);
  // Returns where the stack of this thread lies from a frame on to its beginning; nowhere if the
  // system does not tell.
  static std::pair<uintptr_t, uintptr_t> stack_above(const void* frame);

  // Storages that the function makes on this thread have ids between these.
  const uint64_t begin = new_storage_id();
  uint64_t end = 0;
  // Those of parts that are not recorded, which stay, have ids between these.
  std::vector<std::pair<uint64_t, uint64_t>> unrecorded;
  // The storages that outlive the function, as its results or as grads of leaves.
  absl::flat_hash_set<uint64_t> escaping;
  // By buffer: whether a node has used its elements, and whether the first that did replaced them.
  std::vector<bool> used;
  std::vector<bool> replaced_first;

  // Notes which unused buffers the node replaces without reading them. Views use no elements.
  void note_replaced(const GraphNode& node);

  // Notes which storages escape.
  void note_escaping(const std::vector<Tensor>& results);

  // Returns whether the function has made the memory of a tensor until now.
  bool is_computed(const Tensor& tensor);

  // Returns whether the function made a tensor that seems to come from outside, and will make
  // another one in the next call. What it keeps for then has been told apart before
  // (OperatorCapture::leaves_memory).
  bool is_made_inside(const Tensor& tensor) const;

  // Memory that the function allocated without an operator and filled is no tensor from outside.
  void adopt_allocated();

  // Returns whether this thread made a storage after that with the id `begin` and before that with
  // the id `end`. False if in doubt: a thread takes ids from blocks of its own.
  static bool is_between(uint64_t id, uint64_t begin, uint64_t end);
  static uint64_t new_storage_id();

  // Returns whether only this recording refers to a tensor of which it holds `held` references.
  static bool is_gone(const TensorImpl& impl, uint32_t held = 1);

  // Releases the histories of tensors that the function allocated without an operator and then
  // computed: they would keep what the history saves.
  void drop_histories();

  // Forgets what nobody outside of the function refers to.
  void drop_inner();

  // Notes what the function has filled the tensors with that it made from values of the host and
  // that stay, in a history, say: their memory was accessed before.
  void read_filled_constants();

  // Throws if a node writes, or the function returns, a tensor that the function made from values
  // of the host: each call would need a new one.
  void refuse_written_constants() const;
  // By buffer: whether a node writes it.
  std::vector<bool> graph_written() const;

  TouchedLeaf& touched(const Tensor& tensor);
  // Returns whether only this recording refers to a leaf: the function made it.
  static bool is_gone(const TouchedLeaf& leaf) { return leaf.tensor.impl()->refs.load() == 1; }

  // Notes the grads that the function reads and leaves behind.
  void finish_grads();
};

// Returns the state of the capture of this thread, which must exist.
OperatorCapture::State& active_capture();

}  // namespace mytorch::graph
