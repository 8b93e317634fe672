// Matrix products with cuBLASLt. The library is column-major, in which row-major operands are their
// own transposes, so it computes c^T = b^T a^T. Transposed and sliced operands are expressed by
// leading dimensions, without copies. Each thread caches the chosen algorithm of a shape with its
// descriptors.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cuda/common/move.h"
#include "backends/cuda/common/plan_key.h"
#include "backends/cuda/matrix/product.h"
#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/settings.h"
#include "backends/cuda/runtime/timing.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw sdk::Error(
      status == CUBLAS_STATUS_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
      std::string(what) + ": " + cublasLtGetStatusString(status));
}
#define LT(call) check(call, #call)

// One handle per device, shared by threads.
cublasLtHandle_t handle_of(int32_t device) {
  static std::mutex mutex;
  static auto* const handles = new std::unordered_map<int32_t, cublasLtHandle_t>;
  thread_local std::unordered_map<int32_t, cublasLtHandle_t> known;
  cublasLtHandle_t& own = known[device];
  if (own == nullptr) {
    const std::lock_guard lock(mutex);
    cublasLtHandle_t& shared = (*handles)[device];
    if (shared == nullptr) LT(cublasLtCreate(&shared));
    own = shared;
  }
  return own;
}

// ---- layouts of operands

// The library's view of a matrix. `transposed`: columns, not rows, are contiguous.
struct Layout {
  bool transposed;
  int64_t leading;
};

std::optional<Layout> layout_of(const Matrix& x, int64_t rows, int64_t cols) {
  const bool by_rows = (x.col == 1 || cols == 1) && (rows == 1 || x.row >= cols);
  const bool by_cols = (x.row == 1 || rows == 1) && (cols == 1 || x.col >= rows);
  // A contiguous column is better expressed as one column than as rows of one element.
  if (by_cols && (!by_rows || (cols == 1 && rows > 1))) {
    return Layout{true, cols == 1 ? rows : x.col};
  }
  if (by_rows) return Layout{false, rows == 1 ? cols : x.row};
  return std::nullopt;
}

// A matrix as a 3-dim operand.
struct LtOperand {
  int64_t shape[3], strides[3];
  mt_tensor tensor{};

  LtOperand(const mt_ctx& ctx, mt_dtype dtype, const Matrix& x, int64_t batch, int64_t rows,
            int64_t cols)
      : shape{batch, rows, cols}, strides{x.batch, x.row, x.col} {
    tensor.dl = {const_cast<void*>(x.data), ctx.device, 3, dtype, shape, strides, 0};
  }
  LtOperand(const LtOperand&) = delete;
  TensorView view() const { return &tensor; }
};

// Returns a contiguous copy of x; of a single matrix if the batch stride is 0.
Matrix copied(mt_ctx& ctx, mt_dtype dtype, const Matrix& x, int64_t batch, int64_t rows,
              int64_t cols) {
  const bool one = x.batch == 0;
  const LtOperand from(ctx, dtype, x, one ? 1 : batch, rows, cols);
  const ContiguousScratch to(ctx, from.view(), dtype);
  move(ctx, from.view(), to.view());
  return {to.view().raw(), cols, 1, one ? 0 : rows * cols};
}

Product flipped(const Product& p) {
  const auto turned = [](const Matrix& x) { return Matrix{x.data, x.col, x.row, x.batch}; };
  Product q = p;
  q.m = p.n;
  q.n = p.m;
  q.a = turned(p.b);
  q.b = turned(p.a);
  q.c = turned(p.c);
  q.self = turned(p.self);
  return q;
}

// ---- plans

// Everything on which a proposal may depend.
using Key = PlanKey<18>;

struct LtPlan {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algo{};
  size_t workspace = 0;
  int proposals = 0;  // 0: no algorithm

  LtPlan() = default;
  LtPlan(const LtPlan&) = delete;
  ~LtPlan() {
    if (product != nullptr) cublasLtMatmulDescDestroy(product);
    for (cublasLtMatrixLayout_t layout : {a, b, c, d}) {
      if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
    }
  }
};

template <class T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, T value) {
  LT(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)));
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         T value) {
  LT(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}
template <class T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, T value) {
  LT(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof(value)));
}

uint32_t alignment(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 256;
  return static_cast<uint32_t>(address & -address);
}

struct Types {
  cudaDataType_t element, scale;
  cublasComputeType_t compute;
};
Types types_of(mt_dtype dtype) {
  switch (sdk::dtype_key(dtype)) {
    case sdk::dtype_key(sdk::dtype_of<double>):
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case sdk::dtype_key(sdk::dtype_of<float>):
      return {CUDA_R_32F, CUDA_R_32F,
              tf32_allowed() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case sdk::dtype_key(sdk::dtype_of<sdk::Half>):
      return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    default:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  }
}

// The product in the library's terms: its first factor is b, its second a.
struct LtCall {
  Product p;
  Layout a, b;
  int64_t c_leading, self_leading;
  const void* bias;  // n elements, added to each row

  cublasLtEpilogue_t epilogue() const {
    const bool adds = bias != nullptr;
    if (!p.gelu) return adds ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (p.before != nullptr)
      return adds ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return adds ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  }
};

Key key_of(const mt_ctx& ctx, const LtCall& call) {
  const Product& p = call.p;
  return {{static_cast<int64_t>(sdk::dtype_key(p.dtype)) << 16 | ctx.device.index, p.m, p.n, p.k,
           p.batch, call.a.leading, call.b.leading, call.c_leading, call.self_leading, p.a.batch,
           p.b.batch, p.c.batch, p.self.batch,
           call.a.transposed | call.b.transposed << 1 | (call.bias != nullptr) << 2 |
               (p.self.absent() ? 0 : 1) << 3 | (p.self.data == p.c.data ? 1 : 0) << 4 |
               (p.gelu ? 1 : 0) << 5 | (p.before != nullptr ? 1 : 0) << 6 | (p.wide ? 1 : 0) << 7,
           p.rank, int64_t{alignment(p.a.data)} << 32 | alignment(p.b.data),
           int64_t{alignment(p.c.data)} << 32 | alignment(p.self.absent() ? p.c.data : p.self.data),
           int64_t{p.before == nullptr ? 0 : alignment(p.before)} << 32 |
               (call.bias == nullptr ? 0 : alignment(call.bias))}};
}

void make_layout(cublasLtMatrixLayout_t* layout, cudaDataType_t type, int64_t rows, int64_t cols,
                 int64_t leading, int64_t batch, int64_t stride) {
  LT(cublasLtMatrixLayoutCreate(layout, type, static_cast<uint64_t>(rows),
                                static_cast<uint64_t>(cols), leading));
  if (batch == 1) return;
  set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch));
  set(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
}

constexpr size_t kMostTimed = 24;  // proposals per product

void describe(const LtCall& call, LtPlan& plan) {
  const Product& p = call.p;
  const Types types = types_of(p.dtype);
  LT(cublasLtMatmulDescCreate(&plan.product, types.compute, types.scale));
  const auto op = [](const Layout& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(plan.product, CUBLASLT_MATMUL_DESC_TRANSA, op(call.b));
  set(plan.product, CUBLASLT_MATMUL_DESC_TRANSB, op(call.a));
  set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE, call.epilogue());
  if (call.bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  if (p.before != nullptr) {
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.before);
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.n);
  }
}

// Aligned as the library requires, which is more than other scratch memory.
void* workspace_of(mt_ctx& ctx, size_t bytes) {
  constexpr uintptr_t kAligned = 256;
  if (bytes == 0) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(scratch_bytes(ctx, bytes + kAligned));
  return reinterpret_cast<void*>((address + kAligned - 1) / kAligned * kAligned);
}

cublasStatus_t queue(const mt_ctx& ctx, const LtCall& call, const LtPlan& plan, void* workspace) {
  const Product& p = call.p;
  const bool wide = p.dtype.bits == 64;
  const double alpha = sdk::to<double>(p.alpha),
               beta = p.self.absent() ? 0 : sdk::to<double>(p.beta);
  const float alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
  void* out = const_cast<void*>(p.c.data);
  return cublasLtMatmul(handle_of(ctx.device.index), plan.product,
                        wide ? static_cast<const void*>(&alpha) : &alpha32, p.b.data, plan.a,
                        p.a.data, plan.b, wide ? static_cast<const void*>(&beta) : &beta32,
                        p.self.absent() ? p.c.data : p.self.data, plan.c, out, plan.d, &plan.algo,
                        workspace, plan.workspace, stream_of(ctx));
}

void make_plan(mt_ctx& ctx, const LtCall& call, LtPlan& plan) {
  const Product& p = call.p;
  const Types types = types_of(p.dtype);
  describe(call, plan);
  const auto factor = [&](cublasLtMatrixLayout_t* to, const Layout& x, int64_t rows, int64_t cols,
                          int64_t stride) {
    make_layout(to, types.element, x.transposed ? rows : cols, x.transposed ? cols : rows,
                x.leading, p.batch, stride);
  };
  factor(&plan.a, call.b, p.k, p.n, p.b.batch);
  factor(&plan.b, call.a, p.m, p.k, p.a.batch);
  const bool own = !p.self.absent();
  const cudaDataType_t result = p.wide ? CUDA_R_32F : types.element;
  make_layout(&plan.c, result, p.n, p.m, own ? call.self_leading : call.c_leading, p.batch,
              own ? p.self.batch : p.c.batch);
  make_layout(&plan.d, result, p.n, p.m, call.c_leading, p.batch, p.c.batch);

  struct Preference {
    cublasLtMatmulPreference_t it = nullptr;
    ~Preference() {
      if (it != nullptr) cublasLtMatmulPreferenceDestroy(it);
    }
  } preference;
  LT(cublasLtMatmulPreferenceCreate(&preference.it));
  const size_t most = (properties(ctx.device.index).major >= 9 ? 32 : 4) * size_t{1024 * 1024};
  set(preference.it, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most);
  // Split sums are accumulated in the compute type, not in that of the result. With gelu, sums are
  // not split, so that training, which keeps the sum, and inference give the same bits.
  set(preference.it, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(p.gelu ? CUBLASLT_REDUCTION_SCHEME_NONE
                                   : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference.it, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.b.data));
  set(preference.it, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.a.data));
  set(preference.it, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      alignment(own ? p.self.data : p.c.data));
  set(preference.it, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.c.data));

  // For gelu, the library's first proposal is up to a fifth slower than its best.
  const bool timed = p.gelu && p.rank == 0 && !is_captured(ctx) &&
                     double(p.m) * double(p.n) * double(p.k) >= double(int64_t{1} << 30);
  std::vector<cublasLtMatmulHeuristicResult_t> found(timed ? kMostTimed
                                                           : static_cast<size_t>(p.rank) + 1);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_of(ctx.device.index), plan.product, plan.a, plan.b, plan.c, plan.d, preference.it,
      static_cast<int>(found.size()), found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [](const auto& each) { return each.state != CUBLAS_STATUS_SUCCESS; });
  size_t chosen = static_cast<size_t>(p.rank);
  if (chosen >= found.size()) return;
  if (timed && found.size() > 1) {
    size_t bytes = 0;
    for (const auto& each : found) bytes = std::max(bytes, each.workspaceSize);
    void* const workspace = workspace_of(ctx, bytes);
    chosen = fastest(ctx, found.size(), [&](size_t i) {
      plan.algo = found[i].algo;
      plan.workspace = found[i].workspaceSize;
      return queue(ctx, call, plan, workspace) == CUBLAS_STATUS_SUCCESS;
    });
  }
  plan.algo = found[chosen].algo;
  plan.workspace = found[chosen].workspaceSize;
  plan.proposals = count;
}

// Shapes recur. If a program keeps creating new ones, all plans are dropped at once.
constexpr size_t kMostPlans = 2048;

LtPlan& plan_of(mt_ctx& ctx, const LtCall& call) {
  thread_local std::unordered_map<Key, LtPlan, PlanKeyHash> plans;
  const Key key = key_of(ctx, call);
  if (const auto found = plans.find(key); found != plans.end()) return found->second;
  if (plans.size() >= kMostPlans) plans.clear();
  LtPlan& plan = plans[key];
  try {
    make_plan(ctx, call, plan);
  } catch (...) {
    plans.erase(key);
    throw;
  }
  return plan;
}

bool run(mt_ctx& ctx, const LtCall& call) {
  const Product& p = call.p;
  use_device(ctx);
  LtPlan& plan = plan_of(ctx, call);
  if (plan.proposals == 0) return false;
  if (call.bias != nullptr) set(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  if (p.before != nullptr) {
    set(plan.product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.before);
  }
  void* const workspace = workspace_of(ctx, plan.workspace);
  LT(queue(ctx, call, plan, workspace));
  if (synchronous) queued(ctx, "cublasLtMatmul");
  return true;
}

bool is_number(const mt_scalar& scalar, double value) { return sdk::to<double>(scalar) == value; }

}  // namespace

bool multiply_lt(mt_ctx& ctx, const Product& given) {
  if (given.batch > INT32_MAX) return false;
  LtCall call{given, {}, {}, 0, 0, nullptr};
  Product& p = call.p;
  std::optional<Layout> c = layout_of(p.c, p.m, p.n);
  if (p.gelu && (!c || c->transposed || p.batch != 1 || p.n % 8 != 0)) return false;
  if (c && c->transposed) {
    p = flipped(p);
    // The same matrix, transposed: its rows are contiguous now.
    c = Layout{false, c->leading};
  }
  const bool direct = c.has_value() && (p.batch == 1 || p.c.batch != 0);
  if (p.wide && !direct) return false;
  const Matrix out = p.c;
  if (!direct) {
    const LtOperand like(ctx, p.dtype, {nullptr, p.n, 1, p.m * p.n}, p.batch, p.m, p.n);
    const ContiguousScratch product(ctx, like.view(), p.dtype);
    p.c = {product.view().raw(), p.n, 1, p.m * p.n};
    c = Layout{false, p.n};
  }
  call.c_leading = call.self_leading = c->leading;
  if (!p.self.absent()) {
    const bool repeats = p.batch == 1 || p.self.batch == 0;
    const auto own = layout_of(p.self, p.m, p.n);
    if (is_number(p.beta, 1) && repeats && p.dtype.bits != 64 && !p.wide &&
        (p.self.row == 0 || p.m == 1) && (p.self.col == 1 || p.n == 1) &&
        alignment(p.self.data) >= 16) {
      call.bias = p.self.data;
      p.self = {};
    } else if (p.gelu) {
      return false;
    } else if (own && (!own->transposed || (p.n == 1 && p.self.row >= 1)) &&
               (p.batch == 1 || p.self.batch != 0)) {
      call.self_leading = own->transposed ? p.self.row : own->leading;
    } else if (p.wide) {
      return false;
    } else {
      const LtOperand from(ctx, p.dtype, p.self, p.batch, p.m, p.n);
      const LtOperand to(ctx, p.dtype, p.c, p.batch, p.m, p.n);
      move(ctx, from.view(), to.view());
      p.self = p.c;
      call.self_leading = call.c_leading;
    }
  }
  const auto factor = [&](Matrix& x, int64_t rows, int64_t cols) {
    if (const auto layout = layout_of(x, rows, cols)) return *layout;
    x = copied(ctx, p.dtype, x, p.batch, rows, cols);
    return Layout{false, cols};
  };
  call.a = factor(p.a, p.m, p.k);
  call.b = factor(p.b, p.k, p.n);
  if (!run(ctx, call)) return false;
  if (!direct) {
    const LtOperand from(ctx, p.dtype, p.c, p.batch, p.m, p.n);
    const LtOperand to(ctx, p.dtype, out, p.batch, p.m, p.n);
    move(ctx, from.view(), to.view());
  }
  return true;
}

void multiply(mt_ctx& ctx, const Product& given) {
  Product p = given;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  // With beta = 0, `self` is not read, so a NaN in it has no effect.
  if (is_number(p.beta, 0)) p.self = {};
  if (sdk::is_floating(p.dtype) && p.k > 0 && multiply_lt(ctx, p)) return;
  if (p.rank > 0 || p.wide) throw sdk::Declined{};
  multiply_tiles(ctx, p);
}

}  // namespace mytorch::cuda
