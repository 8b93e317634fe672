#include "core/runtime/parallel.h"

#include <algorithm>

#if defined(MYTORCH_OPENMP)
#include <omp.h>
#else
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#endif

namespace mytorch {
namespace {

thread_local constinit bool inside = false;  // a body is running on this thread

// Returns range `i` of `pieces` that divide [begin, end); longer ranges come first.
void run_piece(int64_t begin, int64_t end, int64_t i, int64_t pieces, mt_range_fn body,
               void* user) {
  const int64_t n = end - begin;
  const int64_t size = n / pieces;
  const int64_t longer = n % pieces;
  const int64_t b = begin + i * size + std::min(i, longer);
  body(user, b, b + size + (i < longer ? 1 : 0));
}

#if !defined(MYTORCH_OPENMP)
// A plain thread pool for builds under ThreadSanitizer, which cannot see the synchronization inside
// libgomp.
class Pool {
 public:
  void run(int64_t pieces, mt_range_fn body, void* user, int64_t begin, int64_t end) {
    std::unique_lock<std::mutex> one_at_a_time(run_mutex_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      while (static_cast<int64_t>(threads_.size()) < pieces - 1) {
        const int64_t id = static_cast<int64_t>(threads_.size()) + 1;
        threads_.emplace_back([this, id, seen = round_] { work(id, seen); });
      }
      body_ = body, user_ = user, begin_ = begin, end_ = end, pieces_ = pieces;
      waiting_ = pieces - 1;
      ++round_;
    }
    start_.notify_all();
    run_piece(begin, end, 0, pieces, body, user);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return waiting_ == 0; });
  }

 private:
  void work(int64_t id, uint64_t seen) {
    inside = true;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      start_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (id >= pieces_) continue;
      const auto [body, user, begin, end, pieces] = std::tuple(body_, user_, begin_, end_, pieces_);
      lock.unlock();
      run_piece(begin, end, id, pieces, body, user);
      lock.lock();
      if (--waiting_ == 0) done_.notify_one();
    }
  }

  std::mutex run_mutex_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::vector<std::thread> threads_;
  uint64_t round_ = 0;
  int64_t waiting_ = 0;
  int64_t pieces_ = 0;
  mt_range_fn body_ = nullptr;
  void* user_ = nullptr;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

Pool& pool() {
  static Pool* const instance = new Pool;  // its threads wait until the process ends
  return *instance;
}
#endif

}  // namespace

void parallel_for(mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                  void* user) {
  if (begin >= end) return;
  const int64_t pieces =
      std::min<int64_t>(ctx->num_threads, (end - begin) / std::max<int64_t>(grain, 1));
  if (pieces <= 1 || inside) {
    const bool saved = inside;
    inside = true;
    body(user, begin, end);
    inside = saved;
    return;
  }
#if defined(MYTORCH_OPENMP)
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(pieces))
  for (int64_t i = 0; i < pieces; ++i) {
    const bool saved = inside;
    inside = true;
    run_piece(begin, end, i, pieces, body, user);
    inside = saved;
  }
#else
  inside = true;
  pool().run(pieces, body, user, begin, end);
  inside = false;
#endif
}

}  // namespace mytorch
