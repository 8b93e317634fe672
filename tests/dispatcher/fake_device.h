// Fake accelerators: device types whose memory is host memory and whose kernels are the reference
// backend's. They detect races that real hardware shows only occasionally: work on one stream that
// uses data written on another stream without waiting for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"

namespace mytorch::testing {

// Counts of the calls that a device received.
struct DeviceCalls {
  int kernels = 0;
  int copies[3] = {};  // by MT_COPY_*
  int peer_copies = 0;
  int streams = 0;
  int events_recorded = 0;
  int events_waited = 0;
  int events_destroyed = 0;
  int synchronizations = 0;
  int64_t blocks = 0;        // live blocks
  int64_t bytes = 0;         // of these
  int64_t pinned_bytes = 0;  // live
  int graph_launches = 0;
};

struct FakeOptions {
  std::string name;
  int devices = 2;
  // Selects kernels of the reference backend; all by default.
  std::function<bool(const std::string& op)> has_kernel = {};
  // Selects the programs to compile; all by default.
  std::function<bool(const mt_program& program)> compiles = {};
  bool graphs = false;  // whether the devices have graphs
  bool pins = false;    // whether the host has pinned memory for them
  int32_t type = 0;     // DLPack's code; 0 for one at run time
};

class FakeDevice {
 public:
  // Creates and registers a device type and its backend, both named `options.name`, for the life of
  // the process.
  static FakeDevice& create(FakeOptions options);

  Device device(int index = 0) const;
  int slot() const;
  DeviceCalls calls() const;
  // Returns descriptions of the races detected since the last call.
  std::vector<std::string> take_races();
  // Makes the device function of this name ("copy", "record_event", ...) fail, once it has
  // succeeded `after` times; "" for none. A graph whose launch fails has run one half of its work.
  void let_fail(const std::string& function, int after = 0);

  struct State;

 private:
  explicit FakeDevice(State* state) : state_(state) {}
  State* state_;
};

// A kernel for tests. A `hash` of 0 stands for the operator's current schema.
struct TestKernel {
  std::string op;
  std::string name;
  int32_t priority = 0;
  uint32_t flags = 0;
  std::function<int(mt_ctx* ctx, const void* args)> run;
  std::function<const char*(const void* args)> supports = nullptr;
  uint64_t hash = 0;
};

// Registers a backend with these kernels for an existing device type.
void add_backend_with(const std::string& name, const std::string& device_type,
                      std::vector<TestKernel> kernels, uint32_t flags = 0);

}  // namespace mytorch::testing
