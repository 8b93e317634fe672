// A backend's library as its host sees it first: opened, and its init function called by hand.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "conformance/contract.h"
#include "mytorch/abi.h"

namespace mytorch::conformance {

// A promise that is not kept.
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
  // Opens it; throws mytorch::Error where that cannot be done.
  explicit Plugin(const std::string& path);

  // Calls init; its status. `host` is this process's own unless another is given.
  int init(mt_backend& backend, const mt_host* host = nullptr);
  // What init filled in; throws Broken where it fails.
  const mt_backend& filled();
  // The device functions, with those outside of their size as NULL. Throws Skipped where the
  // backend serves a device that is there already, or none is present.
  const mt_device_ops& device();
  void* self() { return backend_.self; }
  // The message of the last error that the backend set; cleared by asking.
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

}  // namespace mytorch::conformance
