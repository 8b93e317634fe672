// The loops around the microkernel: blocks, packing, threads.
#if defined(MYTORCH_GEMM_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_PRODUCT_INL_H_
#undef MYTORCH_GEMM_PRODUCT_INL_H_
#else
#define MYTORCH_GEMM_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <atomic>

#include "backends/cpu-openmp/gemm/blocking.h"
#include "backends/cpu-openmp/gemm/epilogue-inl.h"
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/gemm/matvec-inl.h"
#include "backends/cpu-openmp/gemm/microkernel-inl.h"
#include "backends/cpu-openmp/gemm/pack-inl.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

// The decisions that follow from a product's shape, made once for a batch.
struct ProductPlan {
  Blocking block;
  bool pack_a, pack_b;  // otherwise read in place
  int64_t chunk_rows;   // rows of C that share a pass over the blocks of k
  bool keep_sums;       // partial sums do not fit in C's type and stay in the workspace
  // Parts of the workspace, in elements of the compute type.
  int64_t b_size, a_size, sums_size;

  int64_t size() const { return b_size + a_size + sums_size; }
};

// The number of multiplications that justify waking a thread: some ten microseconds of work.
inline constexpr double kWorthAThread = 5e5;

// Returns the number of rows of `bytes` bytes, `stride` bytes apart, that stay in the L1 beside the
// other operands. The set of a line is its address modulo 4 KiB: rows whose distance is a power of
// two share few sets.
inline int64_t rows_in_l1(int64_t stride, int64_t bytes) {
  const int64_t apart = std::clamp<int64_t>(stride & -stride, 64, 4096);
  const int64_t lines = (bytes + 63) / 64;
  return std::max<int64_t>(1, 4096 / apart / lines) * (cache_sizes().l1 / 4096 / 2);
}

// Returns whether to copy A, which pays off if many panels of B reuse it. Otherwise A is read in
// place: the microkernel broadcasts single elements with any strides, and uses a line completely
// before it leaves the L1.
template <class T>
bool should_pack_a(const Job& job, int64_t m, int64_t n) {
  using C = Compute<T>;
  const int64_t bytes = m * job.k * static_cast<int64_t>(sizeof(C));
  return !kComputesInPlace<T> ||
         (n > 8 * kTileCols<C> && m > 2 * kTileRows<C> && bytes > cache_sizes().l1 / 2);
}

// Returns the depth of a panel of B to read in place, or 0 to pack B. Reading in place needs
// contiguous rows of B, and pays off if a panel stays in the L1 while the rows of A pass, or if
// these are too few to justify a copy. A panel may be shortened for this purpose until the loads
// and stores of C become noticeable.
template <class T>
int64_t depth_in_place(const Job& job, int64_t m, int64_t kc) {
  using C = Compute<T>;
  constexpr int64_t kBytes = sizeof(C), kLeastDepth = 128;
  if (!kComputesInPlace<T> || job.b_col != 1) return 0;
  if (m <= kTileRows<C>) return kc;
  const int64_t depth = std::min(kc, rows_in_l1(job.b_k * kBytes, kTileCols<C> * kBytes));
  return m <= 32 * kTileRows<C> && depth >= std::min(kc, kLeastDepth) ? depth : 0;
}

// Returns the plan for rectangles of at most m x n. The depth of a block, which determines the
// order of the sums, is that of the whole product.
template <class T, class F>
ProductPlan make_plan(const Job& job, int64_t m, int64_t n) {
  using C = Compute<T>;
  constexpr int64_t kRows = kTileRows<C>;
  constexpr int64_t kCols = kTileCols<C>;
  constexpr int64_t kBytes = sizeof(C);
  ProductPlan plan;
  Blocking& block = plan.block;
  // The divisions of choose_blocking would take longer than a product of 8 x 8 x 8.
  if (job.k <= 128 && m <= 128 && n <= 128) {
    block = {round_up(m, kRows), round_up(n, kCols), job.k};
  } else {
    block = choose_blocking(m, n, job.k, kBytes / kDepth<F>, kRows, kCols);
  }
  block.kc = round_up(block.kc, kDepth<F>);
  const int64_t depth = depth_in_place<T>(job, job.m, block.kc);
  plan.pack_b = depth == 0;
  if (depth != 0 && depth < block.kc) block.kc = divide_up(job.k, divide_up(job.k, depth));
  plan.pack_a = should_pack_a<T>(job, m, n);

  plan.keep_sums = !kComputesInPlace<T> && block.kc < job.k;
  plan.chunk_rows = m;
  if (plan.keep_sums) {
    plan.chunk_rows = std::min<int64_t>(round_up(m, kRows), round_up(1024, kRows));
    block.nc = std::min<int64_t>(block.nc, round_up(1024, kCols));
    block.mc = std::min(block.mc, plan.chunk_rows);
  }

  // If B is read in place, only its partial last panel is copied, for all of k.
  const int64_t steps = block.kc / kDepth<F>;
  plan.b_size =
      (plan.pack_b ? round_up(block.nc, kCols) * steps : (job.n % kCols != 0) * job.k * kCols) +
      kPackSlack;
  plan.a_size = plan.pack_a ? round_up(block.mc * steps + kPackSlack, 64 / kBytes) : 0;
  plan.sums_size = plan.keep_sums ? round_up(plan.chunk_rows * block.nc, 64 / kBytes) : 0;
  plan.b_size = round_up(plan.b_size, 64 / kBytes);
  return plan;
}

// A product, or a rectangle of one, computed by one thread. F are the factors of the microkernel,
// to which operands are packed.
template <class T, class F>
class Product {
 public:
  using C = Compute<T>;

  static_assert(sizeof(F) == sizeof(C));

  // `workspace` holds plan.size() elements.
  Product(const Job& job, const ProductPlan& plan, C* workspace)
      : job_(job),
        plan_(plan),
        a_(static_cast<const T*>(job.a)),
        b_(static_cast<const T*>(job.b)),
        c_(static_cast<T*>(job.c)),
        b_pack_(reinterpret_cast<F*>(workspace)),
        a_pack_(b_pack_ + plan.b_size),
        sums_(workspace + plan.b_size + plan.a_size) {}

  void run() {
    for (m0_ = 0; m0_ < job_.m; m0_ += plan_.chunk_rows) {
      m_ = std::min(plan_.chunk_rows, job_.m - m0_);
      for (j0_ = 0; j0_ < job_.n; j0_ += plan_.block.nc) {
        n_ = std::min(plan_.block.nc, job_.n - j0_);
        panels_ = divide_up(n_, kCols);
        if (!plan_.pack_b && n_ % kCols != 0) {
          pack_factors<kCols>(b_at(panels_ - 1, 0), job_.b_col, job_.b_k, job_.k, n_ % kCols,
                              b_pack_);
        }
        for (int64_t p0 = 0; p0 < job_.k; p0 += plan_.block.kc) {
          const Part part = {p0, std::min(plan_.block.kc, job_.k - p0)};
          if (plan_.pack_b) {
            pack_factors<kCols>(b_at(0, p0), job_.b_col, job_.b_k, part.k, n_, b_pack_);
          }
          for (int64_t i = 0; i < m_; i += plan_.block.mc) {
            run_part(part, i, std::min(m_, i + plan_.block.mc));
          }
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

    int64_t steps() const { return divide_up(k, kDepth<F>); }
  };

  const T* b_at(int64_t panel, int64_t p0) const {
    return b_ + p0 * job_.b_k + (j0_ + panel * kCols) * job_.b_col;
  }

  // Rows [i_begin, i_end) of the current block.
  void run_part(const Part& part, int64_t i_begin, int64_t i_end) const {
    const T* a = a_ + (m0_ + i_begin) * job_.a_row + part.begin * job_.a_k;
    if (plan_.pack_a) {
      pack_factors<kRows>(a, job_.a_row, job_.a_k, part.k, i_end - i_begin, a_pack_);
    }
    for (int64_t j = 0; j < panels_; ++j) {
      const int64_t cols = std::min(kCols, n_ - j * kCols);
      const F* b;
      int64_t b_k = kCols;
      if (plan_.pack_b) {
        b = b_pack_ + j * kCols * part.steps();
      } else if (cols < kCols) {
        b = b_pack_ + part.begin * kCols;
      } else {
        b = reinterpret_cast<const F*>(b_at(j, part.begin));
        b_k = job_.b_k;
      }
      const int64_t vecs = divide_up(cols, kLanes<C>);
      if (plan_.pack_a) {
        const TileFn<F> kernel = packed_tile<F>(vecs);
        for (int64_t i = i_begin; i < i_end; i += kRows) {
          run_tile(kernel, part, a_pack_ + (i - i_begin) * part.steps(), b, b_k, i,
                   std::min(kRows, i_end - i), kRows, j * kCols, cols, vecs);
        }
      } else {
        // Tiles of nearly equal height, 4 and 4 rather than 6 and 2 for 8 rows, because a tile with
        // few rows does not hide the latency of its sums.
        const int64_t tiles = divide_up(i_end - i_begin, kRows);
        const int64_t height = (i_end - i_begin) / tiles;
        const int64_t higher = (i_end - i_begin) % tiles;
        int64_t i = i_begin;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t rows = height + (t < higher);
          run_tile(direct_tile<F>(rows, vecs), part,
                   reinterpret_cast<const F*>(a) + (i - i_begin) * job_.a_row, b, b_k, i, rows,
                   rows, j * kCols, cols, vecs);
          i += rows;
        }
      }
    }
  }

  // Runs the microkernel: `rows` x `cols` of its kernel_rows x vecs sums belong to C, at (i, j) of
  // the current block.
  HWY_INLINE void run_tile(TileFn<F> kernel, const Part& part, const F* a, const F* b, int64_t b_k,
                           int64_t i, int64_t rows, int64_t kernel_rows, int64_t j, int64_t cols,
                           int64_t vecs) const {
    const bool first = part.begin == 0;
    const bool last = part.begin + part.k == job_.k;
    const int64_t row = m0_ + i, col = j0_ + j;
    T* c = c_ + row * job_.c_row + col * job_.c_col;
    const bool has_epilogue = (last && (job_.bias != nullptr || job_.relu)) || job_.alpha != 1;
    const bool accumulate = job_.accumulate || !first;
    if constexpr (kComputesInPlace<T>) {
      if (job_.c_col == 1 && rows == kernel_rows && cols == vecs * kLanes<C> && !has_epilogue) {
        kernel(part.steps(), a, job_.a_row, job_.a_k, b, b_k, c, job_.c_row, accumulate);
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
    kernel(part.steps(), a, job_.a_row, job_.a_k, b, b_k, sums, sums_row,
           plan_.keep_sums && !first);
    if (plan_.keep_sums && !last) return;
    const T* bias = static_cast<const T*>(job_.bias);
    const Epilogue<T> epilogue = {
        plan_.keep_sums ? job_.accumulate : accumulate,
        last && job_.relu,
        bias == nullptr || !last ? nullptr : bias + row * job_.bias_row + col * job_.bias_col,
        job_.bias_row,
        job_.bias_col,
        static_cast<C>(job_.alpha)};
    store_tile(sums, sums_row, rows, cols, c, job_.c_row, job_.c_col, epilogue);
  }

  const Job& job_;
  const ProductPlan& plan_;
  const T* const a_;
  const T* const b_;
  T* const c_;
  F* const b_pack_;
  F* const a_pack_;
  C* const sums_;
  // The current block: rows [m0, m0 + m), columns [j0, j0 + n).
  int64_t m0_, m_, j0_, n_;
  int64_t panels_;
};

// The division of each product of a batch into rows x cols rectangles. A thread packs the operands
// of its rectangle itself: writing lines that another core has read or written costs more than
// packing twice.
struct Grid {
  int64_t rows = 1, cols = 1;
  int64_t size() const { return rows * cols; }
};

// The grid of at most `workers` rectangles whose largest rectangle has the least work. Packing an
// element takes about a cycle, the time of one multiplication per column of a panel.
template <class T>
Grid choose_grid(const Job& job, int workers) {
  using C = Compute<T>;
  constexpr int64_t kCols = kTileCols<C>;
  const bool packs_b = depth_in_place<T>(job, job.m, job.k) == 0;
  Grid best;
  int64_t least = INT64_MAX;
  for (int64_t rows = 1; rows <= workers; ++rows) {
    const int64_t cols = workers / rows;
    const int64_t m = round_up(divide_up(job.m, rows), kTileRows<C>);
    const int64_t n = round_up(divide_up(job.n, cols), kCols);
    const int64_t work = m * n + kCols * (should_pack_a<T>(job, m, n) * m + packs_b * n);
    if (work < least) best = {rows, cols}, least = work;
  }
  return best;
}

template <class T, class F>
struct Shared {
  const Job* job;
  const ProductPlan* plan;  // of the largest rectangle
  Grid grid;
  int64_t m, n;  // of each rectangle except the last ones
  Compute<T>* workspace;
  std::atomic<int64_t> next;

  Shared(const Job& whole, int workers) : job(&whole) {
    grid = workers > 1 ? choose_grid<T>(whole, workers) : Grid();
    m = grid.rows == 1 ? whole.m : divide_up(whole.m, grid.rows);
    n = grid.cols == 1 ? whole.n : round_up(divide_up(whole.n, grid.cols), kTileCols<Compute<T>>);
  }

  // A worker's first rectangle is the same in every call, so its core may still cache the lines of
  // C. If the host runs all workers on a single thread, the first one does nearly all of the work.
  static void work(void* user, int64_t begin, int64_t end) {
    auto& self = *static_cast<Shared*>(user);
    const int64_t count = self.job->batch * self.grid.size();
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t item = worker; item < count;
           item = self.next.fetch_add(1, std::memory_order_relaxed)) {
        self.run(item, self.workspace + worker * self.plan->size());
      }
    }
  }

  void run(int64_t item, Compute<T>* room) const {
    const int64_t index = item / grid.size(), part = item % grid.size();
    const int64_t i = part / grid.cols * m, j = part % grid.cols * n;
    if (i >= job->m || j >= job->n) return;
    Job own = *job;
    own.m = std::min(m, job->m - i);
    own.n = std::min(n, job->n - j);
    own.a = static_cast<const T*>(job->a) + index * job->a_batch + i * job->a_row;
    own.b = static_cast<const T*>(job->b) + index * job->b_batch + j * job->b_col;
    own.c = static_cast<T*>(job->c) + index * job->c_batch + i * job->c_row + j * job->c_col;
    if (job->bias != nullptr) {
      own.bias = static_cast<const T*>(job->bias) + i * job->bias_row + j * job->bias_col;
    }
    Product<T, F>(own, *plan, room).run();
  }
};

// Calls run(workspace) with memory for `elements` elements: on the stack if they are few.
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

template <class T, class F = Compute<T>>
int run_product(mt_ctx* ctx, const Job& job) {
  if (is_matvec(job)) return matvec<T>(ctx, job);
  const double products = static_cast<double>(job.m) * job.n * job.k;
  const auto workers_for = [&](double work) {
    return static_cast<int>(std::clamp(work / kWorthAThread, 1.0, double{1} * ctx->num_threads));
  };
  // Each thread computes whole products if there are enough products.
  const int all = workers_for(products * job.batch);
  Shared<T, F> shared(job, job.batch >= (all == 1 ? 1 : 8 * all) ? 1 : workers_for(products));
  const ProductPlan plan = make_plan<T, F>(job, shared.m, shared.n);
  shared.plan = &plan;
  const int64_t workers = std::min<int64_t>(all, job.batch * shared.grid.size());
  return with_workspace<Compute<T>>(ctx, plan.size() * workers, [&](Compute<T>* room) HWY_ATTR {
    shared.workspace = room;
    shared.next.store(workers, std::memory_order_relaxed);
    if (workers == 1) {
      Shared<T, F>::work(&shared, 0, 1);
    } else {
      ctx->parallel_for(ctx, 0, workers, 1, &Shared<T, F>::work, &shared);
    }
  });
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_PRODUCT_INL_H_
