// Opens a backend's library and calls its init function directly, as the host does.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "conformance/contract.h"
#include "mytorch/abi.h"

namespace mytorch::conformance {

// A violated promise of the contract.
class Broken : public std::exception {
 public:
  explicit Broken(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};
struct Skipped {
  std::string why;
};

[[noreturn]] inline void broken(const std::string& what) { throw Broken(what); }
inline void promise(bool kept, const std::string& what) {
  if (!kept) broken(what);
}

class Plugin {
 public:
  // Opens the library. Throws mytorch::Error if that fails.
  explicit Plugin(const std::string& path);

  // Calls mt_backend_init with `host`, by default this process's, and returns its status.
  int init(mt_backend& backend, const mt_host* host = nullptr);
  // Returns the filled struct. Throws Broken if init fails.
  const mt_backend& filled();
  // Returns the device functions; those beyond the struct's size are NULL. Throws Skipped if the
  // backend has no device of its own, or no such device is present.
  const mt_device_ops& device();
  void* self() { return backend_.self; }
  // Returns and clears the message of the last error that the backend set.
  static std::string message();

 private:
  mt_backend_init_fn init_ = nullptr;
  bool done_ = false;
  mt_backend backend_{};
  mt_device_ops device_{};
};

void add_library_tests(std::vector<ContractTest>& tests);
void add_memory_tests(std::vector<ContractTest>& tests);
void add_stream_tests(std::vector<ContractTest>& tests);
void add_region_tests(std::vector<ContractTest>& tests);

}  // namespace mytorch::conformance
