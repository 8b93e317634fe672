// Accelerators for tests: device types whose memory is the host's, whose kernels are the reference
// backend's, and which notice what real hardware would only now and then get wrong: work on one
// stream that uses what another stream, which it has not waited for, has written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"

namespace mytorch::testing {

// What was asked of a device so far.
struct DeviceCalls {
  int kernels = 0;
  int copies[3] = {};  // by MT_COPY_*
  int peer_copies = 0;
  int streams = 0;
  int events_recorded = 0;
  int events_waited = 0;
  int events_destroyed = 0;
  int synchronizations = 0;
  int64_t blocks = 0;  // alive
};

struct FakeOptions {
  std::string name;
  int devices = 2;
  // Which of the reference backend's kernels it has; all by default.
  std::function<bool(const std::string& op)> has_kernel;
  // Which programs it compiles; all by default.
  std::function<bool(const mt_program& program)> compiles;
};

class FakeDevice {
 public:
  // Makes and registers the device type and its backend, both called `options.name`; for good.
  static FakeDevice& create(FakeOptions options);

  Device device(int index = 0) const;
  int slot() const;
  DeviceCalls calls() const;
  // What ran unordered since this was last asked, in words.
  std::vector<std::string> take_races();
  // Lets the device functions of this name ("copy", "record_event", ...) fail from now on; "" none.
  void let_fail(const std::string& function);

  struct State;

 private:
  explicit FakeDevice(State* state) : state_(state) {}
  State* state_;
};

// A kernel of a test. `hash` 0 is that of the op's current schema.
struct TestKernel {
  std::string op;
  std::string name;
  int32_t priority = 0;
  uint32_t flags = 0;
  std::function<int(mt_ctx* ctx, const void* args)> run;
  std::function<const char*(const void* args)> supports = nullptr;
  uint64_t hash = 0;
};

// Registers a backend that has these kernels for a device type that is there.
void add_backend_with(const std::string& name, const std::string& device_type,
                      std::vector<TestKernel> kernels, uint32_t flags = 0);

}  // namespace mytorch::testing
