#include "backends/cpu-openmp/attention/blocks.h"

#include <optional>

#include "backends/cpu-openmp/simd/instruction_set.h"
#include "backends/cpu-openmp/simd/matrix_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/attention/blocks.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/attention/scores-inl.h"
#include "backends/cpu-openmp/gemm/pack-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace {

using gemm_internal::kDepth;

// ---- factors: floats, or pairs of bfloat16 ----

// The factors of `n` steps of a sum.
template <class F>
constexpr int64_t Steps(int64_t n) {
  return (n + kDepth<F> - 1) / kDepth<F>;
}

template <class F>
const F* Factors(const float* memory) {
  static_assert(sizeof(F) == sizeof(float));
  return reinterpret_cast<const F*>(memory);
}

// Whether products of pairs use AMX.
template <class F>
bool UsesTiles() {
  return std::is_same_v<F, Pair> && kPanel == simd::kTilePanel && simd::has_matrix_tiles();
}

// The rows that meet a block of keys at a time.
template <class F>
int64_t RowBlock() {
  return UsesTiles<F>() ? kRowBlock : 8 * kTile;
}

// c (+)= a b, of m x k and k x n, in tiles. `b` is in panels, `panel_step` apart; k counts factors.
// Rows of `c` are padded.
template <class F>
void Product(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_k,
             const float* b, int64_t panel_step, float* c, int64_t c_row, bool add) {
  if (UsesTiles<F>()) {
    const auto pairs = [](const float* x) { return reinterpret_cast<const uint32_t*>(x); };
    simd::tile_product(m, n, k, pairs(a), a_row, a_k, pairs(b), panel_step, c, c_row, add);
    return;
  }
  const int64_t tiles = (m + kTile - 1) / kTile;
  for (int64_t j = 0; j < n; j += kPanel, b += panel_step) {
    const int64_t vecs = n - j > kWidth ? 2 : 1;
    for (int64_t t = 0; t < tiles; ++t) {  // of equal heights
      const int64_t i = t * m / tiles, height = (t + 1) * m / tiles - i;
      mm::direct_tile<F>(height, vecs)(k, Factors<F>(a + i * a_row), a_row, a_k, Factors<F>(b),
                                       kPanel, c + i * c_row + j, c_row, add);
    }
  }
}

// Stages `n` rows of `width` elements as rows of factors.
template <class F>
void StageRows(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n, int64_t width,
               float* to) {
  for (int64_t i = 0; i < n; ++i, to += Steps<F>(width)) {
    const void* x = At(from, dtype, i * row);
    if constexpr (std::is_same_v<F, float>) {
      if (width != 0) StageRow(x, dtype, col, width, to);
    } else {
      const auto* bits = static_cast<const uint16_t*>(x);
      auto* out = reinterpret_cast<uint16_t*>(to);
      for (int64_t j = 0; j < width; ++j) out[j] = bits[j * col];
      if (width % 2 != 0) out[width] = 0;
    }
  }
}

// Stages a panel of factors: `lanes` <= kPanel lanes of `n` elements.
template <class F>
void StagePanel(const void* from, mt_dtype dtype, int64_t lane, int64_t step, int64_t n,
                int64_t lanes, float* to) {
  static_assert(kPanel % 4 == 0 || HWY_TARGET == HWY_SCALAR);  // writes nothing past the panel
  const auto pack = [&](auto tag) {
    using T = decltype(tag);
    mm::pack_factors<kPanel>(static_cast<const T*>(from), lane, step, n, lanes,
                             reinterpret_cast<F*>(to));
  };
  if constexpr (std::is_same_v<F, Pair>) {
    pack(gemm_internal::BFloat16());
  } else if (sdk::is_dtype<sdk::BFloat16>(dtype)) {
    pack(gemm_internal::BFloat16());
  } else if (sdk::is_dtype<sdk::Half>(dtype)) {
    pack(gemm_internal::Float16());
  } else {
    pack(float());
  }
}

// ---- forward ----

int64_t ForwardSize(int64_t value_width) { return ForwardRoom::size(padded_to(value_width)); }

template <class F>
void Forward(const AttentionJob& job, const StagedHeads& staged, int64_t batch, int64_t head,
             int64_t first, int64_t n, float* memory) {
  const int64_t padded = padded_to(job.value_width), key_head = head / (job.heads / job.key_heads);
  const ForwardRoom room(memory, padded);
  std::optional<simd::TilesInUse> tiles;
  if (UsesTiles<F>()) tiles.emplace();
  const float* query = staged.query.at(batch, head, first);
  const int64_t width = Steps<F>(job.width);
  std::fill(room.most, room.most + padded_to(kRowBlock), kNever);
  std::fill(room.total, room.total + padded_to(kRowBlock), 0.0f);
  std::fill(room.sums, room.sums + n * padded, 0.0f);

  int64_t begin = 0, end = job.keys;
  if (job.left >= 0) begin = std::max<int64_t>(0, first + job.diagonal - job.left);
  if (job.right >= 0) end = std::min(end, first + n + job.diagonal + job.right);
  begin = begin / kPanel * kPanel;
  bool started = false;
  for (int64_t j = begin; j < end; j += kKeyBlock) {
    Block at{batch, head, first, n, j, std::min(kKeyBlock, end - j), 0};
    at.cols = (at.keys + kPanel - 1) / kPanel * kPanel;
    const StagedPanels &keys = staged.key_panels, &values = staged.value_sums;
    Product<F>(n, at.cols, width, query, staged.query.row, 1,
               keys.at(batch, key_head) + j / kPanel * keys.panel, keys.panel, room.scores,
               kScoreStep, false);
    const float scale = Adjust(job, at, job.scale, room.scores, nullptr);
    Weigh<F>(job, at, scale, room);
    if (started) Rescale(room.sums, padded, n, room.next);
    Product<F>(n, padded, Steps<F>(at.keys), room.scores, kScoreStep, 1,
               values.at(batch, key_head) + Steps<F>(j) * kPanel, values.panel, room.sums, padded,
               started);
    started = true;
  }

  for (int64_t r = 0; r < n; ++r) {
    StoreResult(job, batch, head, first + r, room.most[r], room.total[r], room.sums + r * padded);
  }
}

// ---- backward ----

constexpr int64_t kBackwardKeys = kKeyBlock / 2;

struct BackwardRoom {
  float *weights, *gradients, *slopes, *grad_key, *grad_value, *factors;

  BackwardRoom(float* room, int64_t padded, int64_t padded_values) : weights(room) {
    gradients = weights + kRowBlock * kScoreStep;
    slopes = gradients + kRowBlock * kScoreStep;
    grad_key = slopes + kRowBlock * kScoreStep;
    grad_value = grad_key + kBackwardKeys * padded;
    factors = grad_value + kBackwardKeys * padded_values;
  }
  static int64_t size(int64_t padded, int64_t padded_values) {
    return 3 * kRowBlock * kScoreStep + kBackwardKeys * (padded + padded_values) + kKeyBlock;
  }
};

// Adds the gradients of a row of scores to that of the mask.
void AddToMask(const float* gradients, int64_t keys, int64_t col, float* to) {
  const D d;
  if (col == 0) {
    V sum = hn::Zero(d);
    int64_t j = 0;
    for (; j + kWidth <= keys; j += kWidth) sum = hn::Add(sum, hn::LoadU(d, gradients + j));
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; j < keys; ++j) total += gradients[j];
    *to += total;
    return;
  }
  int64_t j = 0;
  for (; j + kWidth <= keys; j += kWidth) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, gradients + j)), d, to + j);
  }
  for (; j < keys; ++j) to[j] += gradients[j];
}

// Makes factors of weights and gradients, in place. Floats are factors already. Of two rows, or of
// one and zeros if there is no `second`, the first receives the pairs across both rows; each row of
// gradients also receives the pairs of its neighbours, from kBackwardKeys on.
template <class F>
HWY_INLINE void RoundRows(float* weights, float* gradients, bool second, int64_t cols) {
#if MYTORCH_BFLOAT16_PAIRS
  if constexpr (std::is_same_v<F, Pair>) {
    const D d;
    const hn::RebindToUnsigned<D> du;
    const auto store = [&](hn::VFromD<decltype(du)> pairs, float* to)
                           HWY_ATTR { hn::StoreU(pairs, du, reinterpret_cast<uint32_t*>(to)); };
    for (int64_t j = 0; j < cols; j += kWidth) {
      const auto next = [&](const float* row) HWY_ATTR {
        return second ? hn::LoadU(d, row + kScoreStep + j) : hn::Zero(d);
      };
      const V p = hn::LoadU(d, weights + j);
      store(vec::Interleave(vec::PairNeighbours(p, next(weights))), weights + j);
    }
    for (int64_t j = 0; j < cols; j += 2 * kWidth) {
      V g[2][2];
      for (int64_t r = 0; r < 2; ++r) {
        for (int64_t i = 0; i < 2; ++i) {
          const float* row = gradients + r * kScoreStep + j + i * kWidth;
          g[r][i] = r == 0 || second ? hn::LoadU(d, row) : hn::Zero(d);
        }
      }
      for (int64_t i = 0; i < 2; ++i) {
        store(vec::Interleave(vec::PairNeighbours(g[0][i], g[1][i])), gradients + j + i * kWidth);
      }
      for (int64_t r = 0; r < 2; ++r) {
        store(vec::PairNeighbours(g[r][0], g[r][1]),
              gradients + r * kScoreStep + kBackwardKeys + j / 2);
      }
    }
  }
#endif
  (void)weights, (void)gradients, (void)second, (void)cols;
}

// Replaces products of queries and keys by weights, after dropout, and the gradients of the weights
// by those of the scores, as factors. `mask` points at the mask's sums of the first row and key, or
// is NULL.
template <class F>
void Differentiate(const AttentionJob& job, const Block& at, float scale, const float* logsumexp,
                   const float* delta, const BackwardRoom& room, float* mask) {
  const D d;
  const V by = hn::Set(d, scale);
  for (int64_t r = 0; r < at.rows; ++r) {
    float* s = room.weights + r * kScoreStep;
    float* g = room.gradients + r * kScoreStep;
    const float sum = logsumexp[r];
    const V below = hn::Set(d, sum == kNever ? -kNever : sum), less = hn::Set(d, delta[r]);
    if (job.dropout_p == 0) {
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::MulSub(hn::LoadU(d, s + j), by, below));
        hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, g + j), less)), d, g + j);
        hn::StoreU(p, d, s + j);
      }
    } else {
      DropoutFactors(job, at, at.row + r, room.factors);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::MulSub(hn::LoadU(d, s + j), by, below));
        const V f = hn::LoadU(d, room.factors + j);
        hn::StoreU(hn::Mul(p, hn::MulSub(hn::LoadU(d, g + j), f, less)), d, g + j);
        hn::StoreU(hn::Mul(p, f), d, s + j);
      }
    }
    if (mask != nullptr) {
      AddToMask(g, at.keys, job.mask_sums.col, mask + r * job.mask_sums.row);
    }
    if (job.softcap != 0) {
      const float* slope = room.slopes + r * kScoreStep;
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        hn::StoreU(hn::Mul(hn::LoadU(d, g + j), hn::LoadU(d, slope + j)), d, g + j);
      }
    }
    if (r % kDepth<F> == kDepth<F> - 1 || r + 1 == at.rows) {
      const int64_t first = r / kDepth<F> * kDepth<F> * kScoreStep;
      RoundRows<F>(room.weights + first, room.gradients + first, r % 2 != 0, at.cols);
    }
  }
}

void StoreRows(const HeadRows& to, int64_t batch, int64_t head, int64_t first, int64_t n,
               int64_t width, const float* from, int64_t padded) {
  if (to.data == nullptr) return;
  for (int64_t r = 0; r < n; ++r) store_row(from + r * padded, to, batch, head, first + r, width);
}

int64_t BackwardSize(int64_t width, int64_t value_width) {
  return BackwardRoom::size(padded_to(width), padded_to(value_width));
}

template <class F>
void Backward(const AttentionJob& job, const StagedHeads& staged, int64_t batch, int64_t key_head,
              int64_t chunk, int64_t chunks, float* memory) {
  constexpr bool kPairs = std::is_same_v<F, Pair>;
  const int64_t padded = padded_to(job.width), padded_values = padded_to(job.value_width);
  const BackwardRoom room(memory, padded, padded_values);
  std::optional<simd::TilesInUse> tiles;
  if (UsesTiles<F>()) tiles.emplace();
  const int64_t row_block = RowBlock<F>();
  const int64_t group = job.heads / job.key_heads;
  // Gradients of scores as factors of a sum over keys.
  const float* by_key = room.gradients + (kPairs ? kBackwardKeys : 0);
  for (int64_t key = chunk * kBackwardKeys; key < job.keys; key += chunks * kBackwardKeys) {
    const int64_t keys = std::min(kBackwardKeys, job.keys - key);
    const int64_t cols = (keys + kPanel - 1) / kPanel * kPanel;
    const auto panels = [&](const StagedPanels& of) {
      return of.at(batch, key_head) + key / kPanel * of.panel;
    };
    std::fill(room.grad_key, room.grad_key + keys * padded, 0.0f);
    std::fill(room.grad_value, room.grad_value + keys * padded_values, 0.0f);
    int64_t begin = 0, end = job.rows;  // the rows that see any of the keys
    if (job.right >= 0) begin = std::max<int64_t>(0, key - job.diagonal - job.right);
    if (job.left >= 0) end = std::min(end, key + keys - job.diagonal + job.left);
    begin = begin / kDepth<F> * kDepth<F>;
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const int64_t first_row = (batch * job.heads + head) * job.rows;
      for (int64_t row = begin; row < end; row += row_block) {
        const int64_t n = std::min(row_block, end - row);
        const Block at{batch, head, row, n, key, keys, cols};
        const StagedPanels &key_panels = staged.key_panels, &value_panels = staged.value_panels;
        Product<F>(n, cols, Steps<F>(job.width), staged.query.at(batch, head, row),
                   staged.query.row, 1, panels(key_panels), key_panels.panel, room.weights,
                   kScoreStep, false);
        Product<F>(n, cols, Steps<F>(job.value_width), staged.grad_output.at(batch, head, row),
                   staged.grad_output.row, 1, panels(value_panels), value_panels.panel,
                   room.gradients, kScoreStep, false);
        const float scale = Adjust(job, at, job.scale, room.weights, room.slopes);
        const HeadRows& sums = job.mask_sums;
        float* mask = static_cast<float*>(sums.data);
        if (mask != nullptr) {
          mask += chunk * job.mask_chunk + batch * sums.batch + head * sums.head + row * sums.row +
                  key * sums.col;
        }
        Differentiate<F>(job, at, scale,
                         static_cast<const float*>(job.logsumexp.data) + first_row + row,
                         staged.delta + first_row + row, room, mask);
        // A row of pairs is as long as two rows of floats.
        const int64_t step = kDepth<F> * kScoreStep, row_steps = Steps<F>(n);
        const auto of_rows = [&](const StagedPanels& of) {
          return of.at(batch, head) + Steps<F>(row) * kPanel;
        };
        if (job.grad_value.data != nullptr) {
          Product<F>(keys, padded_values, row_steps, room.weights, 1, step,
                     of_rows(staged.grad_output_sums), staged.grad_output_sums.panel,
                     room.grad_value, padded_values, true);
        }
        if (job.grad_key.data != nullptr) {
          Product<F>(keys, padded, row_steps, room.gradients, 1, step, of_rows(staged.query_sums),
                     staged.query_sums.panel, room.grad_key, padded, true);
        }
        if (job.grad_query.data != nullptr) {
          float* to =
              staged.grad_query +
              ((chunk * job.batch * job.heads + batch * job.heads + head) * job.rows + row) *
                  padded;
          Product<F>(n, padded, Steps<F>(keys), by_key, kScoreStep, 1,
                     staged.key_sums.at(batch, key_head) + Steps<F>(key) * kPanel,
                     staged.key_sums.panel, to, padded, true);
        }
      }
    }
    SumScaled(room.grad_key, 0, 1, job.scale, keys * padded, room.grad_key);
    StoreRows(job.grad_key, batch, key_head, key, keys, job.width, room.grad_key, padded);
    StoreRows(job.grad_value, batch, key_head, key, keys, job.value_width, room.grad_value,
              padded_values);
  }
}

float RowDot(const void* a, mt_dtype a_dtype, int64_t a_col, const void* b, mt_dtype b_dtype,
             int64_t b_col, int64_t n) {
  const D d;
  constexpr int64_t kPiece = 128;
  HWY_ALIGN float x[kPiece], y[kPiece];
  V sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i);
    StageRow(At(a, a_dtype, i * a_col), a_dtype, a_col, count, x);
    StageRow(At(b, b_dtype, i * b_col), b_dtype, b_col, count, y);
    std::fill(x + count, x + padded_to(count), 0.0f);
    std::fill(y + count, y + padded_to(count), 0.0f);
    for (int64_t j = 0; j < count; j += kWidth) {
      sum = hn::MulAdd(hn::Load(d, x + j), hn::Load(d, y + j), sum);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

template <class F>
AttentionFns Fns() {
  return {kWidth,        kPanel,         RowBlock<F>(), kBackwardKeys, kDepth<F>,
          &StageRows<F>, &StagePanel<F>, &ForwardSize,  &Forward<F>,   &BackwardSize,
          &Backward<F>,  &RowDot,        &SumScaled};
}

}  // namespace

const AttentionFns* AttentionTable() {
  static const AttentionFns table = Fns<float>();
  return &table;
}

const AttentionFns* PairTable() {
#if MYTORCH_BFLOAT16_PAIRS
  static const AttentionFns table = Fns<Pair>();
  if (simd::has_bfloat16_pairs()) return &table;
#endif
  return nullptr;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, attention_fns, AttentionTable)
MYTORCH_EXPORT_TABLE(mytorch::cpu, pair_attention_fns, PairTable)

#if HWY_ONCE
namespace mytorch::cpu {

void store_row(const float* from, const HeadRows& to, int64_t batch, int64_t head, int64_t row,
               int64_t width) {
  if (width == 0) return;
  const auto store = simd::get_convert(sdk::dtype_of<float>, to.dtype);
  const int64_t size = sdk::itemsize(to.dtype);
  char* out =
      static_cast<char*>(to.data) + (batch * to.batch + head * to.head + row * to.row) * size;
  if (to.col == 1 || width == 1) return store(from, out, width);
  for (int64_t j = 0; j < width; ++j) store(from + j, out + j * to.col * size, 1);
}

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
