#include "core/runtime/parallel.h"

#include <algorithm>

#include "core/runtime/workers.h"
#include "mytorch/abi_threads.h"

namespace mytorch {
namespace {

thread_local constinit bool inside = false;  // a body is running on this thread

class Inside {
 public:
  Inside() { inside = true; }
  ~Inside() { inside = saved_; }
  Inside(const Inside&) = delete;

 private:
  const bool saved_ = inside;
};

struct ParallelRange {
  int64_t begin;
  int64_t end;
  int64_t pieces;
  mt_range_fn body;
  void* user;

  // Calls the body for piece i of those that divide the range; longer ones come first.
  void run(int64_t i) const {
    const int64_t size = (end - begin) / pieces;
    const int64_t longer = (end - begin) % pieces;
    const int64_t b = begin + i * size + std::min(i, longer);
    const Inside mark;
    body(user, b, b + size + (i < longer ? 1 : 0));
  }
};

void run_piece(void* range, int64_t i) { static_cast<const ParallelRange*>(range)->run(i); }

// Loops with a special grain.
void run_special(int64_t grain, ParallelRange range) {
  const int64_t n = range.end - range.begin;
  const int64_t threads = inside || n <= 1 ? 1 : workers::ensure(n);
  if (grain == MT_ASK_TOGETHER) return range.body(range.user, 0, threads);
  if (threads < n) return range.run(0);
  range.pieces = n;
  workers::run_together(n, run_piece, &range);
}

}  // namespace

void parallel_for(mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                  void* user) {
  if (begin >= end) return;
  ParallelRange range{begin, end, 1, body, user};
  if (grain == MT_TOGETHER || grain == MT_ASK_TOGETHER) return run_special(grain, range);
  // The pieces depend on nothing but these numbers, so results do not depend on who runs which.
  const int64_t pieces =
      std::min<int64_t>(ctx->num_threads, (end - begin) / std::max<int64_t>(grain, 1));
  if (pieces <= 1 || inside) return range.run(0);
  range.pieces = pieces;
  const auto kind = reinterpret_cast<uintptr_t>(body) * 31 + static_cast<uintptr_t>(end - begin);
  workers::run_pieces(pieces, kind, run_piece, &range);
}

}  // namespace mytorch
