// Kernels as entries of a table, and the backend to which the table belongs.
//
//   void bmm(mt_ctx& ctx, const mt_args_bmm& args);
//   const char* bmm_supports(const mt_args_bmm& args);   // NULL, or why not
//
//   constexpr mt_kernel_entry kKernels[] = {
//       sdk::kernel<&bmm, &bmm_supports>("packed_gemm", MT_TAKES_STRIDED),
//   };
//
//   extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
//     return sdk::fill_backend(host, backend, {.name = "mine", .version = "1.0",
//                                              .device_type = "cpu", .kernels = kKernels});
//   }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <type_traits>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"

namespace mytorch::sdk {
inline namespace v1 {

namespace internal {

// The argument struct of a kernel or of a supports function.
template <class F>
struct ArgsOf;
template <class Args>
struct ArgsOf<void (*)(mt_ctx&, const Args&)> {
  using type = Args;
};
template <class Args>
struct ArgsOf<const char* (*)(const Args&)> {
  using type = Args;
};

// Calls f with the arguments. Fields that an older host does not know are zero.
template <class Args, class F>
decltype(auto) with_args(const void* given, F&& f) {
  const size_t size = static_cast<const mt_args_header*>(given)->size;
  if (size >= sizeof(Args)) return f(*static_cast<const Args*>(given));
  Args full;
  std::memset(static_cast<void*>(&full), 0, sizeof(full));
  std::memcpy(static_cast<void*>(&full), given, size);
  return f(static_cast<const Args&>(full));
}

}  // namespace internal

// Converts `void kernel(mt_ctx&, const mt_args_X&)` to an mt_run_fn.
template <auto kernel_fn>
int run_entry(void* /*self*/, mt_ctx* ctx, const void* args) noexcept {
  using Args = typename internal::ArgsOf<decltype(kernel_fn)>::type;
  return guarded(ctx, [&] {
    internal::with_args<Args>(args, [&](const Args& full) { kernel_fn(*ctx, full); });
  });
}

// Converts `const char* supports(const mt_args_X&)` to an mt_supports_fn. A function that throws
// declines the call.
template <auto supports_fn>
const char* supports_entry(void* /*self*/, const void* args) noexcept {
  using Args = typename internal::ArgsOf<decltype(supports_fn)>::type;
  try {
    return internal::with_args<Args>(args, [](const Args& full) { return supports_fn(full); });
  } catch (const std::exception&) {
    return "an argument is out of range";
  }
}

// Returns the entry of a kernel of an operator that is not in mytorch/abi_ops.h, such as a
// library's own. `op` is its full name, "library::name"; `hash` may be 0.
template <auto kernel_fn, auto supports_fn = nullptr>
constexpr mt_kernel_entry kernel_of(const char* op, uint64_t hash, const char* name,
                                    uint32_t flags = 0, int32_t priority = 0) {
  mt_kernel_entry entry{};
  entry.size = sizeof(mt_kernel_entry);
  entry.op = op;
  entry.hash = hash;
  entry.name = name;
  entry.priority = priority;
  entry.flags = flags;
  entry.run = &run_entry<kernel_fn>;
  // Compares types, because GCC does not compare functions at compile time under a sanitizer.
  if constexpr (!std::is_null_pointer_v<decltype(supports_fn)>) {
    entry.supports = &supports_entry<supports_fn>;
  }
  return entry;
}

// Returns the entry of a kernel of the operator whose argument struct `kernel_fn` takes
// (mytorch/abi_ops.h). `name` names the kernel in reports; `flags` are MT_TAKES_*. If several
// kernels take a call, the one with the highest priority runs.
template <auto kernel_fn, auto supports_fn = nullptr>
constexpr mt_kernel_entry kernel(const char* name, uint32_t flags = 0, int32_t priority = 0) {
  using Args = typename internal::ArgsOf<decltype(kernel_fn)>::type;
  return kernel_of<kernel_fn, supports_fn>(Args::kOperator, Args::kSchemaHash, name, flags,
                                           priority);
}

// The description of a backend.
struct BackendInfo {
  const char* name = nullptr;
  const char* version = nullptr;
  const char* device_type = nullptr;
  std::span<const mt_kernel_entry> kernels;  // must live forever
  decltype(mt_backend::compile) compile = nullptr;
  int32_t compile_priority = 0;
  decltype(mt_backend::compile_fused) compile_fused = nullptr;
  const mt_region_ops* regions = nullptr;  // must live forever
  uint32_t flags = 0;
  const char* (*describe)(void* self) = nullptr;
  const mt_device_ops* device = nullptr;
  void* self = nullptr;
};

// The host that loaded this backend, or NULL before fill_backend.
inline const mt_host*& host() {
  static const mt_host* current = nullptr;
  return current;
}

// The body of mt_backend_init: describes the backend to the host, whose struct may have fewer
// fields. Returns MT_OK, or MT_ERROR_UNSUPPORTED if the host has another major version.
inline int fill_backend(const mt_host* loader, mt_backend* backend, const BackendInfo& info) {
  if (loader->abi_major != MT_ABI_MAJOR) {
    if (loader->set_error != nullptr) {
      loader->set_error(MT_ERROR_UNSUPPORTED,
                        "this backend was built for another major version of the mytorch ABI");
    }
    return MT_ERROR_UNSUPPORTED;
  }
  host() = loader;
  mt_backend filled{};
  filled.size = std::min(backend->size, sizeof(mt_backend));
  filled.abi_major = MT_ABI_MAJOR;
  filled.abi_minor = MT_ABI_MINOR;
  filled.name = info.name;
  filled.version = info.version;
  filled.device_type = info.device_type;
  filled.self = info.self;
  filled.device = info.device;
  filled.kernels = info.kernels.data();
  filled.num_kernels = static_cast<int64_t>(info.kernels.size());
  filled.compile = info.compile;
  filled.compile_priority = info.compile_priority;
  filled.compile_fused = info.compile_fused;
  filled.regions = info.regions;
  filled.flags = info.flags;
  filled.describe = info.describe;
  std::memcpy(backend, &filled, filled.size);
  return MT_OK;
}

// Converts `void compile(const mt_program&, mt_dtype compute, std::span<const mt_dtype> types,
// mt_kernel_entry&)` to mt_backend::compile. The function throws Declined{} to decline a program.
template <auto compile_fn>
int compile_entry(void* /*self*/, const mt_program* program, mt_dtype compute,
                  const mt_dtype* types, int32_t num_types, mt_kernel_entry* kernel) noexcept {
  return status_of(
      [&] {
        compile_fn(*program, compute, std::span(types, static_cast<size_t>(num_types)), *kernel);
      },
      [](int status, const char* message) {
        if (host() != nullptr && host()->set_error != nullptr) host()->set_error(status, message);
      });
}

// Converts `void compile(const mt_fused_program&, mt_kernel_entry&)` to mt_backend::compile_fused,
// likewise.
template <auto compile_fn>
int compile_fused_entry(void* /*self*/, const mt_fused_program* program,
                        mt_kernel_entry* kernel) noexcept {
  return status_of([&] { compile_fn(*program, *kernel); },
                   [](int status, const char* message) {
                     if (host() != nullptr && host()->set_error != nullptr) {
                       host()->set_error(status, message);
                     }
                   });
}

}  // namespace v1
}  // namespace mytorch::sdk
