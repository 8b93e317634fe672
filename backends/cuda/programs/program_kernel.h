// Kernel entries for programs: one for all types in which the host asks for a program.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "backends/cuda/programs/program.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {

// Variant is constructed from an mt_program and has `void run(mt_ctx&, const void* args)`.
template <class Variant>
class ProgramKernel {
 public:
  // Fills `kernel` for a program. `flags` are MT_TAKES_*.
  static void fill(const mt_program& program, uint32_t flags, mt_kernel_entry& kernel) {
    kernel.size = sizeof(mt_kernel_entry);
    kernel.name = "program";
    kernel.supports = nullptr;
    kernel.flags = flags;
    kernel.run = &run;
    kernel.self = &variant_of(program);
  }

 private:
  // By contents, because the address of a program that is gone may be that of another one.
  static Variant& variant_of(const mt_program& program) {
    static std::mutex mutex;
    static auto* const variants = new std::unordered_map<std::string, std::unique_ptr<Variant>>;
    const std::scoped_lock lock(mutex);
    std::unique_ptr<Variant>& variant = (*variants)[contents_of(program)];
    if (variant == nullptr) variant = std::make_unique<Variant>(program);
    return *variant;  // never destroyed
  }
  static int run(void* self, mt_ctx* ctx, const void* args) noexcept {
    return sdk::guarded(ctx, [&] { static_cast<Variant*>(self)->run(*ctx, args); });
  }
};

}  // namespace mytorch::cuda
