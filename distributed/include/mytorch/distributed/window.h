// Memory that ranks lend each other: one-sided calls, which the owner of the memory does not make.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "mytorch/distributed.h"
#include "mytorch/tensor.h"

namespace mytorch::distributed {

// A window of a group: so many bytes of each rank, zero at first, that all ranks read and write.
// Copies are the same window.
//
//   Window window(world, world.rank() == 0 ? 8 : 0);  // a counter on rank 0
//   const int64_t ticket = window.fetch_add(1, /*owner=*/0, /*offset=*/0);
//
// The calls may be made by several threads at a time, beside those of the group. The calls on one
// owner take effect one after the other, each as a whole, and have done so when they return.
//
// Tensors have any strides and the device of the group; offsets are in bytes. Throw Error(kValue)
// for what lies outside of the owner's bytes, Error(kUnsupported), which names the engine, if it
// has no windows (NCCL has none), and Error(kIo) as the group does. Then the group has failed.
class Window {
 public:
  Window() = default;  // no window
  // Collective. Each rank has as many bytes as it likes.
  Window(const Group& group, int64_t bytes);

  bool defined() const { return state_ != nullptr; }
  const Group& group() const;
  int64_t bytes(int owner) const;

  void put(const Tensor& tensor, int owner, int64_t offset) const;
  void get(const Tensor& tensor, int owner, int64_t offset) const;
  // The same, again and again: the flight recorder has only calls that fail, so that it keeps the
  // others.
  void poll(const Tensor& tensor, int owner, int64_t offset) const;
  // Combines the elements of a window with those of a tensor, of which only these are scaled.
  // Offsets are multiples of an element's size. There is no average.
  void accumulate(const Tensor& tensor, int owner, int64_t offset, Reduction reduction = {}) const;
  // The same, and returns what the window had.
  Tensor get_accumulate(const Tensor& tensor, int owner, int64_t offset,
                        Reduction reduction = {}) const;
  // The same for one int64.
  int64_t fetch_add(int64_t amount, int owner, int64_t offset) const;

  // Returns when `awaited` returns no rank; until then it is called again and again, and returns a
  // rank that has not yet done what this one waits for. `op` begins the message of the Error(kIo)
  // that names this rank, if it does not come by the group's deadline, dies or ends. What `awaited`
  // calls is recorded as a poll is. Without `deadline`, a rank may take as long as it likes, but is
  // still noticed when it dies or ends.
  void wait(const char* op, const std::function<std::optional<int>()>& awaited,
            bool deadline = true) const;

  // Frees the memory. Collective; the window is undefined afterwards. Without it, the last copy of
  // the window frees what belongs to this rank alone, and calls of other ranks on its memory may
  // fail.
  void close();

 private:
  struct State;
  State& checked(const char* op) const;
  // Between the tensor and the window.
  void move(const Tensor& tensor, int owner, int64_t offset, bool puts) const;
  std::shared_ptr<State> state_;
};

}  // namespace mytorch::distributed
