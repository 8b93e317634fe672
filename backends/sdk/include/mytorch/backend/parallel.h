// Parallel loops, and the scratch memory of a call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/sizes.h"

namespace mytorch::sdk {
inline namespace v1 {

// Calls body(begin, end) on the context's threads for disjoint pieces that cover [begin, end). Each
// piece except the last has at least `grain` elements; an empty range has no pieces. After all
// pieces are done, rethrows the first exception that a body has thrown.
template <class F>
void parallel_for(mt_ctx& ctx, int64_t begin, int64_t end, int64_t grain, F&& body) {
  using Body = std::remove_reference_t<F>;
  if (begin >= end) return;
  if (grain < 1) grain = 1;
  if (ctx.num_threads <= 1 || end - begin <= grain || ctx.parallel_for == nullptr) {
    body(begin, end);
    return;
  }
  if constexpr (std::is_nothrow_invocable_v<Body&, int64_t, int64_t>) {
    ctx.parallel_for(
        &ctx, begin, end, grain,
        [](void* user, int64_t b, int64_t e) { (*static_cast<Body*>(user))(b, e); },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  } else {
    struct Job {
      Body* body;
      std::atomic<bool> failed{false};
      std::exception_ptr error;
    } job{std::addressof(body), {}, {}};
    ctx.parallel_for(
        &ctx, begin, end, grain,
        [](void* user, int64_t b, int64_t e) {
          Job& shared = *static_cast<Job*>(user);
          try {
            (*shared.body)(b, e);
          } catch (...) {
            if (!shared.failed.exchange(true)) shared.error = std::current_exception();
          }
        },
        &job);
    if (job.error) std::rethrow_exception(job.error);
  }
}

// Returns uninitialized, 64-byte aligned memory of the context's device, valid until the kernel
// returns. Must not be called inside parallel_for. Throws Error(MT_ERROR_OUT_OF_MEMORY), or
// Error(MT_ERROR_VALUE) if the number of bytes exceeds int64_t.
template <class T>
T* scratch(mt_ctx& ctx, int64_t n) {
  static_assert(std::is_trivially_destructible_v<T>,
                "scratch memory is given back without destructors");
  const size_t bytes = static_cast<size_t>(checked_mul(n, int64_t{sizeof(T)}));
  void* memory = ctx.scratch(&ctx, bytes == 0 ? 1 : bytes);
  if (memory == nullptr) {
    throw Error(MT_ERROR_OUT_OF_MEMORY, "no " + std::to_string(bytes) + " bytes of scratch memory");
  }
  return static_cast<T*>(memory);
}

}  // namespace v1
}  // namespace mytorch::sdk
