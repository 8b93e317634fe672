// Kernel entries for programs: one entry for all variants of an operator.
#pragma once

#include <memory>
#include <vector>

#include "backends/cuda/programs/program.h"
#include "backends/cuda/registry.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {

// Variant is constructed from an mt_program and has `void run(mt_ctx&, const void* args)`.
template <class Variant>
class ProgramKernel {
 public:
  // Fills `kernel` for one program, whose variant the host has chosen. `flags` are MT_TAKES_*.
  static void fill(const mt_program& program, uint32_t flags, mt_kernel_entry& kernel) {
    auto* made = new ProgramKernel;  // kernels are never destroyed
    made->variants_.push_back(std::make_unique<Variant>(program));
    made->takes_any_ = true;
    made->fill(flags, kernel);
  }
  // Appends an entry for every operator of ops.yaml that is a reduction, or for every one that is
  // not.
  static void add_all(bool folds, uint32_t flags, KernelEntries& kernels) {
    for (const ProgramOp& op : all_programs()) {
      if ((op.variants[0]->fold != nullptr) != folds) continue;
      auto* made = new ProgramKernel;
      for (int32_t v = 0; v < op.num_variants; ++v) {
        made->variants_.push_back(std::make_unique<Variant>(*op.variants[v]));
      }
      mt_kernel_entry kernel{};
      kernel.op = op.name;
      kernel.hash = op.hash;
      made->fill(flags, kernel);
      kernels.push_back(kernel);
    }
  }

 private:
  void fill(uint32_t flags, mt_kernel_entry& kernel) {
    kernel.size = sizeof(mt_kernel_entry);
    kernel.name = "program";
    kernel.supports = nullptr;
    kernel.flags = flags;
    kernel.run = &run;
    kernel.self = this;
  }
  static int run(void* self, mt_ctx* ctx, const void* args) noexcept {
    const auto& op = *static_cast<const ProgramKernel*>(self);
    const size_t variant = op.takes_any_ ? 0 : static_cast<const mt_args_header*>(args)->variant;
    if (variant >= op.variants_.size()) return MT_DECLINED;
    return sdk::guarded(ctx, [&] { op.variants_[variant]->run(*ctx, args); });
  }

  std::vector<std::unique_ptr<Variant>> variants_;
  bool takes_any_ = false;
};

}  // namespace mytorch::cuda
