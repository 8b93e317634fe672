// The threads that share a loop: those of the context, or the caller alone.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::fftw {

// Points that are worth a thread.
inline constexpr int64_t kGrain = 16384;

class Team {
 public:
  Team() = default;  // the caller alone
  explicit Team(mt_ctx& ctx) : ctx_(&ctx) {}

  // Calls f(begin, end) for pieces of [0, count), elements of which have `points` points.
  template <class F>
  void each(int64_t count, int64_t points, F&& f) const {
    if (ctx_ == nullptr) {
      if (count > 0) f(0, count);
      return;
    }
    sdk::parallel_for(*ctx_, 0, count, 1 + kGrain / (points < 1 ? 1 : points), f);
  }
  int32_t size() const { return ctx_ == nullptr ? 1 : ctx_->num_threads; }

 private:
  mt_ctx* ctx_ = nullptr;
};

}  // namespace mytorch::fftw
