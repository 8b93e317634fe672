// Which backends are loaded, and which of them is asked first.
#pragma once

#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"

namespace mytorch {

// Loads a backend's shared library, for the life of the process. Throws Error(kIo) when the file is
// not a backend, naming the reason; the process goes on as before.
void load_backend(const std::string& path);
// Registers a backend that is linked into the program (static, sanitizer and test builds).
void register_backend(mt_backend_init_fn init);

// The libraries and directories of libraries in MYTORCH_BACKEND_PATH (separated by ':'), or, where
// that is not set, those of mytorch/backends beside the library. Called by the first operator that
// needs a kernel; a library that cannot be loaded is reported by `mytorch info` and once on stderr.
// Returns whether this call did it: false from the second on.
bool load_default_backends();

struct BackendInfo {
  std::string name;
  std::string version;
  std::string device_type;
  std::string path;
  std::string description;
  std::string error;  // why it could not be loaded, else ""
};
std::vector<BackendInfo> backend_infos();

// Asks the named backend first for calls on devices of this type, for all threads, while it lives.
// With `op`, a full or base name, only for that op: which then goes before a preference for all.
// Scopes nest; the innermost wins. Outside of any scope those are asked first that MYTORCH_PREFER
// names (BACKEND or OP=BACKEND, separated by ','). The reference ("reference") can only be chosen
// so. Throws Error(kValue) where there is no such backend or op.
class Prefer {
 public:
  Prefer(const std::string& device_type, const std::string& backend, const std::string& op = "");
  ~Prefer();
  Prefer(const Prefer&) = delete;
  Prefer& operator=(const Prefer&) = delete;

 private:
  int slot_;
  std::vector<void*> ops_;
  std::vector<const void*> saved_;
};

// Narrows which kernels may run, for all threads, while it lives: for tests. The innermost scope
// wins.
enum class Kernels {
  kAll,
  kPreferred,   // only those of the backend that Prefer names; what it declines decomposes
  kPrimitives,  // those of ops that cannot decompose; all others are run as the ops they consist of
};
class RestrictKernels {
 public:
  explicit RestrictKernels(Kernels kernels);
  ~RestrictKernels();
  RestrictKernels(const RestrictKernels&) = delete;
  RestrictKernels& operator=(const RestrictKernels&) = delete;

 private:
  Kernels saved_;
};

// Whether an op without a kernel on its device may run on the CPU, with copies both ways. Off
// unless MYTORCH_FALLBACK=1.
void allow_fallback(bool allow);

}  // namespace mytorch
