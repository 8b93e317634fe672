// The loops around the kernel: blocks, packing, threads.
#if defined(MYTORCH_GEMM_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_PRODUCT_INL_H_
#undef MYTORCH_GEMM_PRODUCT_INL_H_
#else
#define MYTORCH_GEMM_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "backends/cpu-openmp/gemm/blocking.h"
#include "backends/cpu-openmp/gemm/finish-inl.h"
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/matvec-inl.h"
#include "backends/cpu-openmp/gemm/microkernel-inl.h"
#include "backends/cpu-openmp/gemm/pack-inl.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal {
namespace HWY_NAMESPACE {

// Everything about a product that follows from its shape, so that a batch decides it once.
struct Plan {
  Blocking block;
  int workers;                     // that share the product
  bool pack_a, pack_b;             // otherwise read in place
  int64_t row_blocks, col_blocks;  // tasks of one (mc-aligned rows) x (panels) grid
  int64_t chunk_rows;              // rows of C worked on between two changes of the k block
  bool keep_sums;                  // partial sums do not fit in C's type, and wait in `sums`
  // Elements of the computation type in the workspace.
  int64_t b_size, a_slot_size, sums_size;

  int64_t size() const { return b_size + workers * a_slot_size + sums_size; }
};

// A thread is worth waking for some ten microseconds of work: so many products.
inline constexpr double kWorthAThread = 5e5;

// How many rows of `bytes` each, `stride` bytes apart, stay in the L1 together with what else
// passes through. An L1 finds a line by its address modulo 4 KiB: rows a power of two apart fall on
// few of its sets.
inline int64_t rows_in_l1(int64_t stride, int64_t bytes) {
  const int64_t apart = std::clamp<int64_t>(stride & -stride, 64, 4096);
  const int64_t lines = (bytes + 63) / 64;
  return std::max<int64_t>(1, 4096 / apart / lines) * (cache_sizes().l1 / 4096 / 2);
}

template <class T>
Plan make_plan(const Job& job, int workers) {
  using C = Compute<T>;
  constexpr int64_t kRows = kTileRows<C>;
  constexpr int64_t kCols = kTileCols<C>;
  constexpr int64_t kBytes = sizeof(C);
  const int64_t l1 = cache_sizes().l1;
  Plan plan;
  plan.workers = workers;
  Blocking& block = plan.block;
  // The divisions of choose_blocking would take longer than a product of 8 x 8 x 8.
  const bool one_block = workers == 1 && job.k <= 128 && job.m <= 128 && job.n <= 128;
  if (one_block) {
    block = {round_up(job.m, kRows), round_up(job.n, kCols), job.k};
  } else {
    block = choose_blocking(job.m, job.n, job.k, kBytes, kRows, kCols);
  }

  // Reading B in place needs contiguous rows, and pays when a panel stays in the L1 while the rows
  // of A pass by, or when there are too few of them to repay a copy. A panel may be cut for that,
  // as long as the loads and stores of C do not show.
  constexpr int64_t kLeastDepth = 128;
  const int64_t depth = std::min(block.kc, rows_in_l1(job.b_k * kBytes, kCols * kBytes));
  plan.pack_b = true;
  if (kComputesInPlace<T> && job.b_col == 1) {
    if (job.m <= kRows) {
      plan.pack_b = false;
    } else if (job.m <= 32 * kRows && depth >= std::min(block.kc, kLeastDepth)) {
      plan.pack_b = false;
      block.kc = divide_up(job.k, divide_up(job.k, depth));
    }
  }
  // The kernel broadcasts elements of A one at a time, so any strides serve, and a line read in
  // place is used up before it leaves the L1. A copy pays when many panels of B reuse it.
  plan.pack_a = !(kComputesInPlace<T> &&
                  (job.n <= 8 * kCols || job.m <= 2 * kRows || job.m * job.k * kBytes <= l1 / 2));

  plan.keep_sums = !kComputesInPlace<T> && block.kc < job.k;
  plan.chunk_rows = job.m;
  if (plan.keep_sums) {
    plan.chunk_rows = std::min<int64_t>(round_up(job.m, kRows), round_up(1024, kRows));
    block.nc = std::min<int64_t>(block.nc, round_up(1024, kCols));
    block.mc = std::min(block.mc, plan.chunk_rows);
  }

  const int64_t panels = divide_up(block.nc, kCols);
  const int64_t rows = std::min(job.m, plan.chunk_rows);
  plan.row_blocks = one_block ? 1 : divide_up(rows, block.mc);
  plan.col_blocks = 1;
  if (workers > 1) {
    // Several tasks per worker even out cores of unequal speed, where each is worth its start. Rows
    // are split first: each task packs its own rows of A, so tasks that share rows repeat that
    // work.
    const double each = static_cast<double>(job.m) * job.n * job.k / workers;
    const int64_t wanted =
        workers * static_cast<int64_t>(std::clamp(each / kWorthAThread, 1.0, 4.0));
    if (plan.row_blocks < wanted) {
      plan.row_blocks = std::max(plan.row_blocks, std::min(wanted, divide_up(rows, 4 * kRows)));
      // Rows in place make tiles of any height; packed ones lie in whole tiles.
      block.mc = round_up(divide_up(rows, plan.row_blocks), plan.pack_a ? kRows : 1);
      plan.row_blocks = divide_up(rows, block.mc);
    }
    if (plan.row_blocks < wanted) {
      plan.col_blocks = std::min(divide_up(wanted, plan.row_blocks), panels);
      // As many for each worker, where that is possible.
      for (int64_t more = plan.col_blocks; more < std::min(panels, plan.col_blocks + workers);
           ++more) {
        if (plan.row_blocks * more % workers == 0) {
          plan.col_blocks = more;
          break;
        }
      }
    }
  }

  // In place, only the partial last panel of B is copied, in its whole length.
  plan.b_size =
      (plan.pack_b ? panels * block.kc : (job.n % kCols != 0) * job.k) * kCols + kPackSlack;
  plan.a_slot_size = plan.pack_a ? round_up(block.mc * block.kc + kPackSlack, 64 / kBytes) : 0;
  plan.sums_size = plan.keep_sums ? plan.chunk_rows * block.nc : 0;
  plan.b_size = round_up(plan.b_size, 64 / kBytes);
  return plan;
}

// One product of the batch, and where its loops stand.
template <class T>
class Product {
 public:
  using C = Compute<T>;

  // `workspace` holds plan.size() elements. `ctx` may be null when plan.workers is 1.
  Product(mt_ctx* ctx, const Job& job, const Plan& plan, int64_t index, C* workspace)
      : ctx_(ctx),
        job_(job),
        plan_(plan),
        a_(static_cast<const T*>(job.a) + index * job.a_batch),
        b_(static_cast<const T*>(job.b) + index * job.b_batch),
        c_(static_cast<T*>(job.c) + index * job.c_batch),
        b_pack_(workspace),
        a_slots_(b_pack_ + plan.b_size),
        sums_(a_slots_ + plan.workers * plan.a_slot_size) {}

  void run() {
    for (m0_ = 0; m0_ < job_.m; m0_ += plan_.chunk_rows) {
      m_ = std::min(plan_.chunk_rows, job_.m - m0_);
      for (j0_ = 0; j0_ < job_.n; j0_ += plan_.block.nc) {
        n_ = std::min(plan_.block.nc, job_.n - j0_);
        panels_ = divide_up(n_, kCols);
        if (!plan_.pack_b) {
          run_in_place();
          continue;
        }
        for (int64_t p0 = 0; p0 < job_.k; p0 += plan_.block.kc) {
          part_ = {p0, std::min(plan_.block.kc, job_.k - p0)};
          run_block();
        }
      }
    }
  }

 private:
  static constexpr int64_t kRows = kTileRows<C>;
  static constexpr int64_t kCols = kTileCols<C>;

  // A part of the sums: products [begin, begin + k) of each.
  struct Part {
    int64_t begin, k;
  };

  // Tasks share a packed part of B, which the next one replaces.
  void run_block() {
    // Half a cycle per element: a few thousand are needed to repay waking a thread.
    const int64_t worth_a_thread = divide_up(16384, kCols);
    if (plan_.workers == 1 || panels_ * part_.k <= worth_a_thread) {
      pack_b_panels(this, 0, panels_);
    } else {
      ctx_->parallel_for(ctx_, 0, panels_, divide_up(worth_a_thread, part_.k), &pack_b_panels,
                         this);
    }
    run_tasks();
  }

  // Each task goes through all parts by itself.
  void run_in_place() {
    if (n_ % kCols != 0) {
      pack_panels<kCols>(b_at(panels_ - 1, 0), job_.b_col, job_.b_k, job_.k, n_ % kCols, b_pack_);
    }
    run_tasks();
  }

  void run_tasks() {
    if (plan_.workers == 1) {
      for (int64_t row_block = 0; row_block < plan_.row_blocks; ++row_block) {
        run_task(row_block, 0, a_slots_);
      }
    } else {
      next_task_.store(0, std::memory_order_relaxed);
      ctx_->parallel_for(ctx_, 0, plan_.workers, 1, &work, this);
    }
  }

  const T* b_at(int64_t panel, int64_t p0) const {
    return b_ + p0 * job_.b_k + (j0_ + panel * kCols) * job_.b_col;
  }

  static void pack_b_panels(void* user, int64_t begin, int64_t end) {
    const auto& self = *static_cast<const Product*>(user);
    const Part& part = self.part_;
    pack_panels<kCols>(self.b_at(begin, part.begin), self.job_.b_col, self.job_.b_k, part.k,
                       std::min(end * kCols, self.n_) - begin * kCols,
                       self.b_pack_ + begin * kCols * part.k);
  }

  // Worker w owns slot w for its packed A, and takes tasks until none is left. Which worker takes
  // which does not matter to the result. Should the host run all workers on one thread, the first
  // does everything.
  static void work(void* user, int64_t begin, int64_t end) {
    auto& self = *static_cast<Product*>(user);
    const int64_t tasks = self.plan_.row_blocks * self.plan_.col_blocks;
    for (int64_t worker = begin; worker < end; ++worker) {
      for (;;) {
        const int64_t task = self.next_task_.fetch_add(1, std::memory_order_relaxed);
        if (task >= tasks) break;
        self.run_task(task / self.plan_.col_blocks, task % self.plan_.col_blocks,
                      self.a_slots_ + worker * self.plan_.a_slot_size);
      }
    }
  }

  void run_task(int64_t row_block, int64_t col_block, C* slot) const {
    const int64_t i_begin = row_block * plan_.block.mc;
    const int64_t i_end = std::min(m_, i_begin + plan_.block.mc);
    int64_t j_begin = 0, j_end = panels_;
    if (plan_.col_blocks > 1) {
      j_begin = panels_ * col_block / plan_.col_blocks;
      j_end = panels_ * (col_block + 1) / plan_.col_blocks;
    }
    if (i_begin >= i_end || j_begin >= j_end) return;
    if (plan_.pack_b) {
      run_part(part_, i_begin, i_end, j_begin, j_end, slot);
      return;
    }
    for (int64_t p0 = 0; p0 < job_.k; p0 += plan_.block.kc) {
      const Part part = {p0, std::min(plan_.block.kc, job_.k - p0)};
      run_part(part, i_begin, i_end, j_begin, j_end, slot);
    }
  }

  // Rows [i_begin, i_end) and panels [j_begin, j_end) of the current block.
  void run_part(const Part& part, int64_t i_begin, int64_t i_end, int64_t j_begin, int64_t j_end,
                C* slot) const {
    const T* a = a_ + (m0_ + i_begin) * job_.a_row + part.begin * job_.a_k;
    if (plan_.pack_a) {
      pack_panels<kRows>(a, job_.a_row, job_.a_k, part.k, i_end - i_begin, slot);
    }
    for (int64_t j = j_begin; j < j_end; ++j) {
      const int64_t cols = std::min(kCols, n_ - j * kCols);
      const C* b;
      int64_t b_k = kCols;
      if (plan_.pack_b) {
        b = b_pack_ + j * kCols * part.k;
      } else if (cols < kCols) {
        b = b_pack_ + part.begin * kCols;
      } else {
        b = reinterpret_cast<const C*>(b_at(j, part.begin));
        b_k = job_.b_k;
      }
      const int64_t vecs = divide_up(cols, kLanes<C>);
      if (plan_.pack_a) {
        const TileFn<C> kernel = packed_tile<C>(vecs);
        for (int64_t i = i_begin; i < i_end; i += kRows) {
          run_tile(kernel, part, slot + (i - i_begin) * part.k, b, b_k, i,
                   std::min(kRows, i_end - i), kRows, j * kCols, cols, vecs);
        }
      } else {
        // Tiles of nearly equal height: 8 rows are 4 and 4 rather than 6 and 2, since a tile of few
        // rows cannot hide the latency of its sums.
        const int64_t tiles = divide_up(i_end - i_begin, kRows);
        const int64_t height = (i_end - i_begin) / tiles;
        const int64_t higher = (i_end - i_begin) % tiles;
        int64_t i = i_begin;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t rows = height + (t < higher);
          run_tile(direct_tile<C>(rows, vecs), part,
                   reinterpret_cast<const C*>(a) + (i - i_begin) * job_.a_row, b, b_k, i, rows,
                   rows, j * kCols, cols, vecs);
          i += rows;
        }
      }
    }
  }

  // One call of the kernel: `rows` x `cols` of its kernel_rows x vecs sums belong to C, at (i, j)
  // of the current block.
  HWY_INLINE void run_tile(TileFn<C> kernel, const Part& part, const C* a, const C* b, int64_t b_k,
                           int64_t i, int64_t rows, int64_t kernel_rows, int64_t j, int64_t cols,
                           int64_t vecs) const {
    const bool first = part.begin == 0;
    const bool last = part.begin + part.k == job_.k;
    const int64_t row = m0_ + i, col = j0_ + j;
    T* c = c_ + row * job_.c_row + col * job_.c_col;
    const bool has_epilogue = last && (job_.bias != nullptr || job_.relu);
    const bool accumulate = job_.accumulate || !first;
    if constexpr (kComputesInPlace<T>) {
      if (job_.c_col == 1 && rows == kernel_rows && cols == vecs * kLanes<C> && !has_epilogue) {
        kernel(part.k, a, job_.a_row, job_.a_k, b, b_k, c, job_.c_row, accumulate);
        return;
      }
    }
    HWY_ALIGN C tile[kRows * kCols];
    C* sums = tile;
    int64_t sums_row = kCols;
    if (plan_.keep_sums) {
      sums_row = plan_.block.nc;
      sums = sums_ + i * sums_row + j;
    }
    kernel(part.k, a, job_.a_row, job_.a_k, b, b_k, sums, sums_row, plan_.keep_sums && !first);
    if (plan_.keep_sums && !last) return;
    const T* bias = static_cast<const T*>(job_.bias);
    const Finish<T> finish = {
        plan_.keep_sums ? job_.accumulate : accumulate, has_epilogue && job_.relu,
        bias == nullptr || !last ? nullptr : bias + row * job_.bias_row + col * job_.bias_col,
        job_.bias_row, job_.bias_col};
    finish_tile(sums, sums_row, rows, cols, c, job_.c_row, job_.c_col, finish);
  }

  mt_ctx* const ctx_;
  const Job& job_;
  const Plan& plan_;
  const T* const a_;
  const T* const b_;
  T* const c_;
  C* const b_pack_;
  C* const a_slots_;
  C* const sums_;
  // The current block: rows [m0, m0 + m), columns [j0, j0 + n), and a part of the sums where B is
  // packed.
  int64_t m0_, m_, j0_, n_;
  Part part_;
  int64_t panels_;
  std::atomic<int64_t> next_task_{0};
};

// A batch of products too small to share among threads: each worker takes whole ones.
template <class T>
struct Batch {
  const Job* job;
  const Plan* plan;  // of one worker
  Compute<T>* workspace;
  std::atomic<int64_t> next{0};

  static void work(void* user, int64_t begin, int64_t end) {
    auto& self = *static_cast<Batch*>(user);
    for (int64_t worker = begin; worker < end; ++worker) {
      for (;;) {
        const int64_t index = self.next.fetch_add(1, std::memory_order_relaxed);
        if (index >= self.job->batch) break;
        Product<T>(nullptr, *self.job, *self.plan, index,
                   self.workspace + worker * self.plan->size())
            .run();
      }
    }
  }
};

// Calls run(workspace) with memory for `elements`: on the stack when few.
template <class C, class Run>
HWY_INLINE int with_workspace(mt_ctx* ctx, int64_t elements, const Run& run) {
  constexpr int64_t kStackElements = (32 << 10) / sizeof(C);
  if (elements <= kStackElements) {
    HWY_ALIGN C stack[kStackElements];
    run(stack);
    return MT_OK;
  }
  void* memory = ctx->scratch(ctx, static_cast<size_t>(elements) * sizeof(C));
  if (memory == nullptr) return MT_ERROR_OUT_OF_MEMORY;
  run(static_cast<C*>(memory));
  return MT_OK;
}

template <class T>
int run_product(mt_ctx* ctx, const Job& job) {
  using C = Compute<T>;
  if (is_matvec(job)) return matvec<T>(ctx, job);
  const double products = static_cast<double>(job.m) * job.n * job.k;
  const auto workers_for = [&](double work) {
    return static_cast<int>(std::clamp(work / kWorthAThread, 1.0, double{1} * ctx->num_threads));
  };
  const int shared = workers_for(products);
  const int over_batch =
      static_cast<int>(std::min<int64_t>(workers_for(products * job.batch), job.batch));
  if (over_batch > shared || (over_batch > 1 && job.batch >= 8 * over_batch)) {
    const Plan plan = make_plan<T>(job, 1);
    return with_workspace<C>(ctx, plan.size() * over_batch, [&](C* workspace) HWY_ATTR {
      Batch<T> batch{&job, &plan, workspace};
      ctx->parallel_for(ctx, 0, over_batch, 1, &Batch<T>::work, &batch);
    });
  }
  const Plan plan = make_plan<T>(job, shared);
  return with_workspace<C>(ctx, plan.size(), [&](C* workspace) HWY_ATTR {
    for (int64_t index = 0; index < job.batch; ++index) {
      Product<T>(ctx, job, plan, index, workspace).run();
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::cpu::gemm_internal
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_PRODUCT_INL_H_
