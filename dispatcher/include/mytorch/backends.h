// Loading backends and choosing between them.
#pragma once

#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"

namespace mytorch {

// Loads a backend's shared library for the life of the process. Throws Error(kIo), with the reason,
// if the file is not a backend; the process remains usable.
void load_backend(const std::string& path);
// Registers a backend that is linked into the program, for static, sanitizer and test builds.
void register_backend(mt_backend_init_fn init);

// Loads the libraries listed in MYTORCH_BACKEND_PATH (files or directories, separated by ':') or,
// if that is not set, those in mytorch/backends beside the library. The first operator that needs a
// kernel calls this. A library that fails to load is reported once on stderr and by `mytorch info`.
// Returns true for the first call in the process, false for later calls.
bool load_default_backends();

struct BackendInfo {
  std::string name;
  std::string version;
  std::string device_type;
  std::string path;
  std::string description;
  std::string error;  // why it could not be loaded, or ""
};
std::vector<BackendInfo> backend_infos();

// Asks the named backend first for calls on devices of the given type, in all threads, for the
// lifetime of this object. With `op`, a full or base name, the preference applies to that operator
// only and takes precedence over one for all operators. Scopes nest; the innermost wins. Outside
// any scope, MYTORCH_PREFER (a list of BACKEND or OP=BACKEND, separated by ',') names the preferred
// backends. The reference ("reference") runs only if preferred. Throws Error(kValue) for an unknown
// backend or operator.
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

// Restricts which kernels may run, in all threads, for the lifetime of this object. For tests. The
// innermost scope wins.
enum class Kernels {
  kAll,
  kPreferred,   // those of the backend that Prefer names; calls that it declines decompose
  kPrimitives,  // those of operators that cannot decompose; all other operators decompose
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

// Allows or forbids running an operator that has no kernel on its device on the CPU, copying
// operands and results. Forbidden by default unless MYTORCH_FALLBACK=1.
void allow_fallback(bool allow);

}  // namespace mytorch
