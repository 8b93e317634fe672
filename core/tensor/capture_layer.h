// What happens to tensors outside of operators while the thread records a graph
// (graph/capture/capture.h): reads by the host, and changes of grads. Core and autograd report it
// through a table.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/runtime/stream_capture.h"
#include "mytorch/tensor.h"
#include "mytorch/thread_state.h"

namespace mytorch {

// State of the library that a graph holds as constants, or that it reads from tensors.
class RecordedState {
 public:
  virtual ~RecordedState() = default;
  // Called before each replay. Writes the state to the tensors that the graph reads. Returns why
  // the recording does not hold any more, or null.
  virtual const char* refresh() = 0;
  // Called after each replay.
  virtual void replayed() {}
};

// A small number of the library's state, such as the mode of a module, that functions read and set.
// Its owner keeps it up to date. A recording holds while the cells that it has read are as they
// were, and its replays set those that it has set.
class StateCell {
 public:
  static constexpr int8_t kGone = -1;  // the owner was destroyed

  // `changed` says that the number is another one.
  StateCell(int8_t value, const char* changed) : value(value), changed(changed) {}
  virtual ~StateCell() = default;
  // Gives the owner a number.
  virtual void set(int8_t number) = 0;

  std::atomic<int8_t> value;
  const char* const changed;
};

struct CaptureTable {
  // The host accesses the memory of a tensor. Throws Error(kUnsupported) if the graph computes it.
  void (*host_access)(const Tensor& tensor, const char* op);
  // The grad of a leaf is read, before it may be replaced.
  void (*grad_read)(const Tensor& leaf, const Tensor& grad);
  // The grad of a leaf is replaced.
  void (*grad_written)(const Tensor& leaf);
  // Returns whether the recording refers to a tensor that the function has made: one whose memory,
  // allocated without an operator, a node has filled. That reference ends with the recording.
  bool (*keeps)(const Tensor& tensor);
  // Returns whether the recording holds a reference to the memory of a tensor, which ends with it.
  bool (*keeps_memory)(const Tensor& tensor);
  // A variable was made to refer to another tensor than `former`, which may be null.
  void (*assigned)(const Tensor& variable, TensorImpl* former);
  // The library keeps a tensor that the function computes, although each call computes it again.
  void (*caches)(const Tensor& tensor);
  // The recording depends on a state, as it is now.
  void (*depends)(std::shared_ptr<RecordedState> state);
  // A cell is read; has been set; belongs to an object that is made.
  void (*reads)(const std::shared_ptr<StateCell>& cell);
  void (*sets)(const std::shared_ptr<StateCell>& cell);
  void (*makes)(const std::shared_ptr<StateCell>& cell);
  // Returns a number of the recording that no other has, or 0 if there is none.
  uint64_t (*recording)();
};
// Set once, while the graph library is initialized. Nothing is recorded before.
extern const CaptureTable* capture_table;

// The number of accesses of this thread to memory of tensors by the host. An operator whose call
// changes it cannot be replayed by its kernels alone.
extern thread_local constinit uint32_t host_accesses __attribute__((tls_model("initial-exec")));

// Called before the host reads or writes the memory of a tensor.
inline void check_host_access(const Tensor& tensor, const char* op) {
  ++host_accesses;
  if (recording_graph()) [[unlikely]]
    capture_table->host_access(tensor, op);
}

}  // namespace mytorch
