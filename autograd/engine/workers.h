// Threads that run the parts of backward that belong to devices other than the CPU, one per device.
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

  // Lets the device's thread run task->work(state); starts the thread on first use.
  void submit(Device device, Task* task, NodeState* state);
  // The device whose thread the caller is; {0, 0} for any other thread.
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
    std::vector<Item> items;  // a heap, latest recorded first
  };
  static void run(Worker* worker);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace mytorch::autograd
