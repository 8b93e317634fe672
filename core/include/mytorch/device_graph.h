// Captures a sequence of operators on a device, to be replayed with one call.
#pragma once

#include "mytorch/device.h"
#include "mytorch/owned.h"
#include "mytorch/std_function.h"

namespace mytorch {

// Launching an operator on a GPU costs the host several microseconds, more than a small kernel
// runs. A graph is launched with one call, however many operators it contains: up to a whole
// training step, including backward and the optimizer's step.
//
//   DeviceGraph graph("cuda");
//   graph.capture([&] {
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
// A replay repeats the captured calls on the same tensors: those that the function used and those
// that it created, whose memory the graph keeps alive. Numbers passed from the host keep the values
// they had during capture, with these exceptions:
//
//  * Random operators draw new numbers in each replay: the numbers that the same calls would have
//    drawn at this point of the program. A generator's seed must not change between replays.
//  * Learning rates and step counts of the optimizers in nn::optim are read from the device, where
//    set_lr and the replays update them. State that an optimizer creates in its first step is
//    created once.
//
// During capture nothing runs, so the host cannot wait for a result: item(), nonzero, copies to the
// host, and copies from the host (unless from pinned memory with non_blocking) throw
// Error(kUnsupported) naming the operator. Host code in the function runs once, during capture. A
// replay does not change the version() of the tensors it writes.
class DeviceGraph {
 public:
  // Throws Error(kDevice) if the device does not exist.
  explicit DeviceGraph(Device device = Device("cuda"));
  // Releases the graph's memory. Tensors created during capture keep theirs.
  ~DeviceGraph();
  DeviceGraph(DeviceGraph&&) noexcept;
  DeviceGraph& operator=(DeviceGraph&&) noexcept;

  // Calls `function` once, on this thread, and captures the work that it queues on the device,
  // replacing any earlier capture. Throws Error(kUnsupported) if the device does not support
  // graphs, and rethrows any exception of `function`; the graph is empty afterwards.
  void capture(const std::function<void()>& function);

  // Queues the captured work on this thread's stream of the device, after all work queued before.
  // Throws Error(kValue) if the graph is empty.
  void replay();

  bool captured() const;

 private:
  struct Impl;
  Owned<Impl> impl_;
};

// Calls `function` outside any capture: work that it queues on `device` runs immediately and has
// finished on return, even while this thread captures a graph. Use it for work that replays must
// not repeat.
void run_uncaptured(Device device, const std::function<void()>& function);
// Returns whether this thread is capturing its work on the device.
bool is_capturing(Device device);

}  // namespace mytorch
