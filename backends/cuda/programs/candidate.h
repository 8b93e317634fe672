// Candidates made of programs: the kernels of an op's variants behind one entry.
#pragma once

#include <memory>
#include <vector>

#include "backends/cuda/programs/program.h"
#include "backends/cuda/registry.h"
#include "mytorch/backend/error.h"

namespace mytorch::cuda {

// Variant is made from an mt_program and has `void run(mt_ctx&, const void* args)`.
template <class Variant>
class ProgramCandidate {
 public:
  // Of one program, for a call whose variant the host has chosen. `flags` are MT_TAKES_*.
  static void fill(const mt_program& program, uint32_t flags, mt_candidate& candidate) {
    auto* made = new ProgramCandidate;  // candidates live forever
    made->variants_.push_back(std::make_unique<Variant>(program));
    made->takes_any_ = true;
    made->fill(flags, candidate);
  }
  // Of every op of ops.yaml that folds, or of every one that does not.
  static void add_all(bool folds, uint32_t flags, Candidates& candidates) {
    for (const ProgramOp& op : all_programs()) {
      if ((op.variants[0]->fold != nullptr) != folds) continue;
      auto* made = new ProgramCandidate;
      for (int32_t v = 0; v < op.num_variants; ++v) {
        made->variants_.push_back(std::make_unique<Variant>(*op.variants[v]));
      }
      mt_candidate candidate{};
      candidate.op = op.name;
      candidate.hash = op.hash;
      made->fill(flags, candidate);
      candidates.push_back(candidate);
    }
  }

 private:
  void fill(uint32_t flags, mt_candidate& candidate) {
    candidate.size = sizeof(mt_candidate);
    candidate.name = "program";
    candidate.supports = nullptr;
    candidate.flags = flags;
    candidate.run = &run;
    candidate.self = this;
  }
  static int run(void* self, mt_ctx* ctx, const void* args) noexcept {
    const auto& op = *static_cast<const ProgramCandidate*>(self);
    const size_t variant = op.takes_any_ ? 0 : static_cast<const mt_args_header*>(args)->variant;
    if (variant >= op.variants_.size()) return MT_DECLINED;
    return sdk::guarded(ctx, [&] { op.variants_[variant]->run(*ctx, args); });
  }

  std::vector<std::unique_ptr<Variant>> variants_;
  bool takes_any_ = false;
};

}  // namespace mytorch::cuda
