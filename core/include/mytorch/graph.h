// A sequence of operators on a device, recorded once and then queued as one piece.
#pragma once

#include <functional>
#include <memory>

#include "mytorch/device.h"

namespace mytorch {

// Calling an operator on a GPU costs the host several microseconds, which is more than small
// kernels take. A graph is queued by one call, whatever is in it: a whole training step, with
// backward and the optimizer's step.
//
//   Graph graph("cuda");
//   graph.record([&] {
//     sgd.zero_grad();
//     loss = cross_entropy(model(x), y);
//     loss.backward();
//     sgd.step();
//   });
//   for (...) {
//     x.copy_(images);
//     y.copy_(labels);
//     graph.replay();  // reads x and y as they are now
//   }
//
// What a replay does is what the recorded calls did, on the same tensors: those that the function
// used and those that it made, which keep their memory while the graph lives. Numbers that the host
// passed to operators are as they were, with these exceptions:
//
//  * Random operators draw new numbers in each replay, those that the same calls would have drawn
//    at this place of the program. A generator's seed may not change between.
//  * Learning rates and the steps of nn::optim's optimizers are read from the device, where
//    set_lr and the replays change them. State that an optimizer makes in its first step is made
//    once.
//
// While recording nothing runs, so that the host cannot wait for a result: item(), nonzero, copies
// to the host and, except from pinned memory with non_blocking, from it are an Error(kUnsupported)
// that names the operator. Host code of the function runs once, when it is recorded. Replays count
// as no write: version() of the tensors that they change stays.
class Graph {
 public:
  // Throws Error(kDevice) for a device that is not there.
  explicit Graph(Device device = Device("cuda"));
  // The graph's memory is given back. Tensors that were made while it was recorded keep theirs.
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  // Calls `function` once, on this thread, and keeps what it queues on the device. In place of what
  // was recorded before. Throws Error(kUnsupported) where the device records no graphs, and
  // whatever `function` throws; there is no graph then.
  void record(const std::function<void()>& function);

  // Queues what was recorded on the stream that this thread uses on the device, behind what it
  // queued before. Throws Error(kValue) where nothing was recorded.
  void replay();

  bool recorded() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Calls `function`; what it queues on `device` runs at once and is waited for, also while the
// thread is recording a graph: for what must not be repeated in each replay.
void unrecorded(Device device, const std::function<void()>& function);
// Whether what this thread queues on the device is being recorded.
bool is_recorded(Device device);

}  // namespace mytorch
