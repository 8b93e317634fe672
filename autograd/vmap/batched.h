// Batched tensors, and the state of vmap on a thread.
//
// Inside vmap a batch of tensors is one Tensor with the shape of one example: a header over the
// first example's memory that holds the whole batch, its value. An operator on batched tensors is
// computed by a rule (rules.h) from the values, one level further out: by autograd, by an outer
// vmap, and at last by the kernels. Batched tensors have a history of their own, which serves
// gradients that are computed inside vmap; the history of the values serves those of outside.
#pragma once

#include <cstdint>

#include "core/tensor/batched.h"
#include "dispatcher/table/op.h"
#include "mytorch/thread_state.h"

namespace mytorch::autograd::batch {

enum class Randomness : uint8_t { kError, kDifferent, kSame };

// One running vmap. Lies in the frame of its call.
struct Level {
  const Level* outer;
  uint64_t id;
  int64_t size;  // the number of examples
  Randomness randomness;
};

// What a batched tensor stands for. `has_dim`: dimension 0 of the value is the batch dimension;
// otherwise all examples share the value.
struct Batched {
  Tensor value;
  uint64_t level;
  bool has_dim;
};

struct BatchState {
  const Level* level = nullptr;  // whose batched tensors operators are computed for
  bool recorded = false;         // the running operator has been recorded by autograd
  int bodies = 0;                // the composites whose bodies are running
};
extern thread_local constinit BatchState state __attribute__((tls_model("initial-exec")));

// Sets the thread's state in its scope: that of operators of a level, or outside of vmap (null).
// Autograd is masked while a level is set, because it would record unbatched tensors both at the
// level and outside of it: `record` unmasks it for one operator on batched tensors.
class BatchScope {
 public:
  explicit BatchScope(const BatchState& to, bool record = false);
  ~BatchScope();
  BatchScope(const BatchScope&) = delete;
  BatchScope& operator=(const BatchScope&) = delete;

 private:
  BatchState saved_;
  uint32_t layers_;
  uint32_t wanted_;
  bool grad_mode_;
  bool masked_;
};
inline BatchState outside() { return {state.level->outer, false, 0}; }

// Returns the record of a tensor that is batched at the running level, or null. Throws
// Error(kUnsupported), naming `op`, for one that has left its vmap.
const Batched* find(const TensorImpl* impl, const char* op);

// Returns a batched tensor of the running level.
Tensor wrap(const Tensor& value, bool has_dim);
// Returns the same as a view of the batched tensor `of`; `value` is a view of the value of `of`.
Tensor wrap_view(const Tensor& of, const Tensor& value, bool has_dim);
// Inside vmap, returns a batched copy of a tensor, which takes other values for each example.
// Outside, returns the tensor.
Tensor own_memory(const Tensor& tensor);
// Returns another header for the same value, without history of its own.
TensorImpl* new_alias(TensorImpl* of);
// Returns whether a vmap runs, and whether a tensor is batched at its level.
inline bool inside() { return state.level != nullptr; }
inline bool is_batched_here(const Tensor& tensor) {
  return inside() && find(tensor.impl(), "vmap") != nullptr;
}
// Inside vmap, returns whether gradients from outside flow through a tensor.
bool has_outer_history(const Tensor& tensor);
// Inside vmap, makes a tensor a batched one of the running level, so that gradients with respect to
// it differ between examples. Keeps the history of its value. Outside, returns the tensor.
Tensor lift(const Tensor& tensor);

// Thrown in place of an Error while the body of a composite runs: the operator then runs once for
// each example.
struct NeedsLoop {};
// Throws NeedsLoop, or Error(kUnsupported) with the message if the user's function runs.
[[noreturn]] void refuse(const std::string& message);

// Fills the layer's column of the operator table. Generated.
void install_wrappers();

}  // namespace mytorch::autograd::batch
