#include "backends/cpu-openmp/attention/few.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/attention/few.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/attention/scores-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "backends/cpu-openmp/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace {

// Rows of queries that one pass over the keys serves.
constexpr int64_t kFewBatch = 32;
static_assert(kFewBatch <= kRowBlock && kFewKeys <= kKeyBlock);
// Rows that share the registers of a loaded row of keys.
constexpr int kFewTile = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

#if HWY_TARGET != HWY_SCALAR
// Adds the 128-bit blocks of a vector.
template <class DV>
HWY_INLINE auto SumBlocks(DV d, hn::VFromD<DV> v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<DV> half;
    return SumBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// to[i] = the sum of v[i].
template <int kCount>
HWY_INLINE void StoreSums(V* v, float* to) {
  const D d;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kCount == 4) {
    vec::TransposeBlocks(d, v);
    const V sum = hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]));
    return hn::StoreU(SumBlocks(d, sum), hn::CappedTag<float, 4>(), to);
  }
#endif
  for (int i = 0; i < kCount; ++i) to[i] = hn::GetLane(hn::SumOfLanes(d, v[i]));
}

// Scores of kRows rows of queries and `n` rows of keys.
template <int kRows>
void FewScores(const float* query, int64_t padded, const float* key, int64_t key_row, int64_t n,
               float* scores) {
  const D d;
  const auto some = [&](auto keys, int64_t j) {
    constexpr int kKeys = decltype(keys)::value;
    V sum[kRows][kKeys];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kKeys; ++i) sum[r][i] = hn::Zero(d);
    }
    const float* k = key + j * key_row;
    for (int64_t c = 0; c < padded; c += kWidth) {
      V of_key[kKeys];
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) of_key[i] = hn::LoadU(d, k + i * key_row + c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const V q = hn::LoadU(d, query + r * padded + c);
#pragma GCC unroll 4
        for (int i = 0; i < kKeys; ++i) sum[r][i] = hn::MulAdd(q, of_key[i], sum[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) StoreSums<kKeys>(sum[r], scores + r * kScoreStep + j);
  };
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) some(std::integral_constant<int, 4>(), j);
  for (; j < n; ++j) some(std::integral_constant<int, 1>(), j);
}

// Adds the values of `n` keys, times the weights, to the sums of kRows rows.
template <int kRows>
void FewValues(const float* weights, const float* value, int64_t value_row, int64_t n, float* sums,
               int64_t padded) {
  const D d;
  const auto some = [&](auto keys, int64_t j) {
    constexpr int kKeys = decltype(keys)::value;
    const float* v = value + j * value_row;
    for (int64_t c = 0; c < padded; c += kWidth) {
      V of_key[kKeys];
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) of_key[i] = hn::LoadU(d, v + i * value_row + c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        V sum = hn::LoadU(d, sums + r * padded + c);
#pragma GCC unroll 4
        for (int i = 0; i < kKeys; ++i) {
          sum = hn::MulAdd(hn::Set(d, weights[r * kScoreStep + j + i]), of_key[i], sum);
        }
        hn::StoreU(sum, d, sums + r * padded + c);
      }
    }
  };
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) some(std::integral_constant<int, 4>(), j);
  for (; j < n; ++j) some(std::integral_constant<int, 1>(), j);
}

// Converts `n` rows of `width` elements to rows padded to `padded` elements.
void StageRows(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n, int64_t width,
               int64_t padded, float* to) {
  if (col == 1 && row == width && padded == width) return StageRow(from, dtype, 1, n * width, to);
  const auto convert = simd::get_convert(dtype, sdk::dtype_of<float>);
  for (int64_t i = 0; i < n; ++i) {
    float* out = to + i * padded;
    const void* x = At(from, dtype, i * row);
    if (col == 1) {
      convert(x, out, width);
    } else if (width != 0) {
      StageRow(x, dtype, col, width, out);
    }
    for (int64_t j = width; j < padded; ++j) out[j] = 0;
  }
}

// Calls body(rows, n) for pieces of `count` rows from `first` on, each on one page and in floats
// with padded rows, which may be `room`.
template <class F>
void ForEachRun(const HeadRows& x, const KeyPages* pages, int64_t batch, int64_t head,
                int64_t first, int64_t count, int64_t width, float* room, F&& body) {
  const int64_t padded = padded_to(width);
  const bool in_place = sdk::is_dtype<float>(x.dtype) && x.col == 1 && width == padded;
  for (int64_t done = 0; done < count;) {
    int64_t n = count - done, outer = batch, row = first + done;
    if (pages != nullptr) {
      outer = pages->table[batch * pages->columns + row / pages->slots];
      row %= pages->slots;
      n = std::min(n, pages->slots - row);
    }
    const void* from = At(x.data, x.dtype, outer * x.batch + head * x.head + row * x.row);
    if (in_place) {
      body(static_cast<const float*>(from), x.row, done, n);
    } else {
      StageRows(from, x.dtype, x.row, x.col, n, width, padded, room);
      body(room, padded, done, n);
    }
    done += n;
  }
}

int64_t FewSize(int64_t width, int64_t value_width) {
  const int64_t padded = padded_to(width), padded_values = padded_to(value_width);
  return ForwardRoom::size(padded_values) + kFewBatch * padded +
         kFewKeys * std::max(padded, padded_values);
}

void Few(const AttentionJob& job, const KeyPages* pages, int64_t batch, int64_t key_head,
         int64_t first, int64_t n, int64_t begin, int64_t end, float* memory, float* partial,
         int64_t step) {
  const int64_t padded = padded_to(job.width), padded_values = padded_to(job.value_width);
  const ForwardRoom room(memory, padded_values);
  float* query = memory + ForwardRoom::size(padded_values);
  float* staged = query + kFewBatch * padded;
  const int64_t group = job.heads / job.key_heads, at_once = kFewBatch / n;
  if (job.left >= 0) {
    begin = std::max(begin, (first + job.diagonal - job.left) / kWidth * kWidth);
  }
  if (job.right >= 0) end = std::min(end, first + n + job.diagonal + job.right);
  for (int64_t g = 0; g < group; g += at_once) {
    const int64_t heads = std::min(at_once, group - g), rows = heads * n;
    const int64_t head = key_head * group + g;
    const HeadRows& q = job.query;
    for (int64_t h = 0; h < heads; ++h) {
      StageRows(At(q.data, q.dtype, batch * q.batch + (head + h) * q.head + first * q.row), q.dtype,
                q.row, q.col, n, job.width, padded, query + h * n * padded);
    }
    SumScaled(query, 0, 1, job.scale, rows * padded, query);
    std::fill(room.most, room.most + padded_to(rows), kNever);
    std::fill(room.next, room.next + padded_to(rows), kNever);
    std::fill(room.total, room.total + rows, 0.0f);
    std::fill(room.sums, room.sums + rows * padded_values, 0.0f);
    for (int64_t key = begin; key < end; key += kFewKeys) {
      Block at{batch, head, first, n, key, std::min(kFewKeys, end - key), 0};
      at.cols = padded_to(at.keys);
      ForEachRun(job.key, pages, batch, key_head, key, at.keys, job.width, staged,
                 [&](const float* k, int64_t k_row, int64_t j, int64_t count) {
                   int64_t r = 0;
                   for (; r + kFewTile <= rows; r += kFewTile) {
                     FewScores<kFewTile>(query + r * padded, padded, k, k_row, count,
                                         room.scores + r * kScoreStep + j);
                   }
                   for (; r < rows; ++r) {
                     FewScores<1>(query + r * padded, padded, k, k_row, count,
                                  room.scores + r * kScoreStep + j);
                   }
                 });
      for (int64_t h = 0; h < heads; ++h) {
        at.head = head + h;
        Adjust(job, at, 1.0f, room.scores + h * n * kScoreStep, nullptr);
      }
      at.rows = rows;
      Weigh<float>(job, at, 1.0f, room);
      Rescale(room.sums, padded_values, rows, room.next);
      ForEachRun(job.value, pages, batch, key_head, key, at.keys, job.value_width, staged,
                 [&](const float* v, int64_t v_row, int64_t j, int64_t count) {
                   int64_t r = 0;
                   for (; r + kFewTile <= rows; r += kFewTile) {
                     FewValues<kFewTile>(room.scores + r * kScoreStep + j, v, v_row, count,
                                         room.sums + r * padded_values, padded_values);
                   }
                   for (; r < rows; ++r) {
                     FewValues<1>(room.scores + r * kScoreStep + j, v, v_row, count,
                                  room.sums + r * padded_values, padded_values);
                   }
                 });
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* to = partial + ((batch * job.heads + head + r / n) * job.rows + first + r % n) * step;
      to[0] = room.most[r];
      to[1] = room.total[r];
      std::memcpy(to + kSumsBegin, room.sums + r * padded_values,
                  static_cast<size_t>(padded_values) * sizeof(float));
    }
  }
}

void Combine(const AttentionJob& job, int64_t batch, int64_t head, int64_t row, int64_t count,
             float* partial) {
  const D d;
  const int64_t padded = padded_to(job.value_width), size = kSumsBegin + padded;
  float most = kNever, total = 0;
  for (int64_t c = 0; c < count; ++c) most = std::max(most, partial[c * size]);
  float* sums = partial + kSumsBegin;
  for (int64_t c = 0; c < count; ++c) {
    const float own = partial[c * size];
    const float factor = own == most ? 1.0f : std::exp(own - most);
    total += partial[c * size + 1] * factor;
    const V by = hn::Set(d, factor);
    for (int64_t j = 0; j < padded; j += kWidth) {
      const V term = hn::Mul(hn::LoadU(d, sums + c * size + j), by);
      hn::StoreU(c == 0 ? term : hn::Add(hn::LoadU(d, sums + j), term), d, sums + j);
    }
  }
  StoreResult(job, batch, head, row, most, total, sums);
}

}  // namespace

const FewFns* FewTable() {
  static constexpr FewFns table = {kWidth, &FewSize, &Few, &Combine};
  return &table;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, few_fns, FewTable)
