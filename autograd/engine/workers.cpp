#include "autograd/engine/workers.h"

#include <algorithm>
#include <thread>

namespace mytorch::autograd {
namespace {

thread_local constinit Device this_threads_device{0, 0};

}  // namespace

// Never destroyed: its threads may outlive main.
DeviceWorkers& DeviceWorkers::get() {
  static auto* const instance = new DeviceWorkers;
  return *instance;
}

Device DeviceWorkers::device_of_this_thread() { return this_threads_device; }

void DeviceWorkers::submit(Device device, Task* task, NodeState* state) {
  Worker* worker = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& known : workers_) {
      if (known->device == device) worker = known.get();
    }
    if (worker == nullptr) {
      workers_.push_back(std::make_unique<Worker>());
      worker = workers_.back().get();
      worker->device = device;
      std::thread(run, worker).detach();
    }
  }
  std::lock_guard<std::mutex> lock(worker->mutex);
  worker->items.push_back({state->node->sequence(), task, state});
  std::push_heap(worker->items.begin(), worker->items.end());
  worker->changed.notify_one();
}

void DeviceWorkers::run(Worker* worker) {
  this_threads_device = worker->device;
  while (true) {
    Item item;
    {
      std::unique_lock<std::mutex> lock(worker->mutex);
      worker->changed.wait(lock, [&] { return !worker->items.empty(); });
      std::pop_heap(worker->items.begin(), worker->items.end());
      item = worker->items.back();
      worker->items.pop_back();
    }
    item.task->work(item.state);
  }
}

}  // namespace mytorch::autograd
