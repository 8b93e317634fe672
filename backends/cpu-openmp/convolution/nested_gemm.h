// Matrix products inside a parallel loop, in a single-threaded context whose scratch memory was
// allocated before the loop.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/cpu-openmp/gemm/gemm.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

class NestedGemm {
 public:
  // Returns enough scratch memory for products of at most m x n x k elements of 8 bytes: packed
  // blocks of both operands, partial sums and the slack of each. Blocks of k are at most 512 long.
  static int64_t bytes(int64_t m, int64_t n, int64_t k) {
    const int64_t deep = std::min<int64_t>(k, 512) + 16;
    return 8 * ((m + 64) * deep + (n + 128) * deep + (m + 64) * (n + 64) + m + n + k + 2048);
  }

  NestedGemm(const mt_ctx& outer, char* memory, int64_t bytes)
      : context_{outer, memory, static_cast<size_t>(bytes), 0} {
    context_.base.num_threads = 1;
    context_.base.scratch = [](mt_ctx* ctx, size_t size) -> void* {
      auto* self = reinterpret_cast<Context*>(ctx);
      size = (size + 63) / 64 * 64;
      if (self->used + size > self->bytes) return nullptr;
      void* result = self->memory + self->used;
      self->used += size;
      return result;
    };
    // Several threads would set the message at the same time; the status is enough.
    context_.base.set_error = [](mt_ctx*, int, const char*) {};
  }

  void run(const GemmProblem& problem) {
    context_.used = 0;
    const int status = gemm(&context_.base, problem);
    if (status != MT_OK) throw sdk::Error(status, "a matrix product inside the kernel failed");
  }

 private:
  struct Context {
    mt_ctx base;
    char* memory;
    size_t bytes, used;
  };
  Context context_;
};

}  // namespace mytorch::cpu
