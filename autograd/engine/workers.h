// One thread per device other than the CPU, which runs the device's part of backward.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "autograd/engine/task.h"
#include "mytorch/device.h"

namespace mytorch::autograd {

class DeviceWorkers {
 public:
  static DeviceWorkers& get();

  // Runs task->work(state) on the device's thread, starting the thread on first use.
  void submit(Device device, Task* task, NodeState* state);
  // Returns the device of the calling thread, or {0, 0} if it is not a worker.
  static Device device_of_this_thread();

 private:
  struct Item {
    uint64_t sequence;
    Task* task;
    NodeState* state;
    bool operator<(const Item& other) const { return sequence < other.sequence; }
  };
  struct Worker {
    Device device;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Item> items;  // a heap, latest sequence number first
  };
  static void run(Worker* worker);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace mytorch::autograd
