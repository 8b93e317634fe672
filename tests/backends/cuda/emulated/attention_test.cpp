// Attention's own kernels on an emulated device, compared with sums in double. Needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "mytorch/abi_ops/attention_backward.h"
#include "mytorch/abi_ops/attention_forward.h"
#include "mytorch/abi_ops/attention_paged.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/cuda/emulated/kernels.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A call, in row-major numbers: query (B, H, L, D), key (B, K, S, D), value (B, K, S, V).
struct Problem {
  int64_t batch = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, width = 64, value_width = 64;
  int64_t left = -1, right = -1, diagonal = 0;
  double softcap = 0, scale = 0.125;
  std::vector<double> slopes = {};    // (H), or none
  std::vector<int64_t> lengths = {};  // of paged sequences, whose last key is the last query's
  Shape mask_sizes = {};              // or none
  bool bool_mask = false;
  double dropout_p = 0;
  std::vector<double> query = {}, key = {}, value = {};
  std::vector<double> mask = {};  // of mask_sizes, added; -infinity where a bool mask is false
  uint64_t seed = 5, call = 7;    // of dropout

  int64_t mask_at(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t at[] = {b, h, i, j};
    int64_t place = 0;
    for (size_t d = 0; d < 4; ++d) {
      place = place * mask_sizes[d] + (mask_sizes[d] == 1 ? 0 : at[d]);
    }
    return place;
  }
  // The factor of a weight.
  double kept(int64_t b, int64_t h, int64_t i, int64_t j) const {
    if (dropout_p == 0) return 1;
    const int64_t row = (b * heads + h) * queries + i;
    const uint32_t bits = sdk::philox::Stream(seed, call).bits32(row * ((keys + 3) / 4 * 4) + j);
    const bool keeps = static_cast<float>(bits >> 8) * 0x1p-24F < static_cast<float>(1 - dropout_p);
    return keeps ? 1 / (1 - dropout_p) : 0;
  }
};

struct Result {
  std::vector<double> output, logsumexp;
};

double score(const Problem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t head = h / (p.heads / p.key_heads);
  const double* q = &p.query[static_cast<size_t>(((b * p.heads + h) * p.queries + i) * p.width)];
  const double* k = &p.key[static_cast<size_t>(((b * p.key_heads + head) * p.keys + j) * p.width)];
  double s = 0;
  for (int64_t d = 0; d < p.width; ++d) s += q[d] * k[d];
  s *= p.scale;
  if (p.softcap != 0) s = p.softcap * std::tanh(s / p.softcap);
  const int64_t place = i + (p.lengths.empty() ? p.diagonal : p.lengths[b] - p.queries);
  if (!p.slopes.empty()) s -= p.slopes[h] * static_cast<double>(std::abs(place - j));
  const bool hidden = (p.left >= 0 && j < place - p.left) ||
                      (p.right >= 0 && j > place + p.right) ||
                      (!p.lengths.empty() && j >= p.lengths[b]);
  if (!p.mask.empty()) s += p.mask[static_cast<size_t>(p.mask_at(b, h, i, j))];
  return hidden ? -kInfinity : s;
}

Result attend(const Problem& p) {
  Result result;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t head = b * p.key_heads + h / (p.heads / p.key_heads);
      for (int64_t i = 0; i < p.queries; ++i) {
        std::vector<double> s;
        double most = -kInfinity, sum = 0;
        for (int64_t j = 0; j < p.keys; ++j) {
          s.push_back(score(p, b, h, i, j));
          most = std::max(most, s.back());
        }
        for (double& x : s) sum += x = x == -kInfinity ? 0 : std::exp(x - most);
        for (int64_t c = 0; c < p.value_width; ++c) {
          double out = 0;
          for (int64_t j = 0; j < p.keys; ++j) {
            if (s[j] == 0) continue;
            out +=
                p.kept(b, h, i, j) * s[j] / sum * p.value[(head * p.keys + j) * p.value_width + c];
          }
          result.output.push_back(out);
        }
        result.logsumexp.push_back(sum == 0 ? -kInfinity : most + std::log(sum));
      }
    }
  }
  return result;
}

// A tensor of `order`, from the last stride to the first, whose rows are `gap` elements longer.
template <class T>
TestTensor tensor(const Shape& shape, const std::vector<int>& order, uint64_t seed,
                  int64_t gap = 0) {
  Shape strides(shape.size());
  int64_t n = 1;
  for (const int d : order) {
    strides[static_cast<size_t>(d)] = n;
    n *= shape[static_cast<size_t>(d)] + (n == 1 ? gap : 0);
  }
  return TestTensor::of<T>({n}, uniform_numbers(n, seed)).as_strided(shape, strides);
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double x : values) most = std::isfinite(x) ? std::max(most, std::abs(x)) : most;
  return most;
}

// `bound` is relative to the largest number, and absolute below 1e-3.
void compare(const std::vector<double>& found, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(found.size(), expected.size());
  bound *= std::max(largest(expected), 1e-3);
  int wrong = 0;
  for (size_t i = 0; i < found.size() && wrong < 3; ++i) {
    const bool same = found[i] == expected[i] ||
                      (std::isnan(found[i]) && std::isnan(expected[i])) ||
                      std::abs(found[i] - expected[i]) <= bound;
    if (!same) ADD_FAILURE() << "element " << i << " is " << found[i] << ", not " << expected[i];
    wrong += same ? 0 : 1;
  }
}

template <class T>
constexpr double kAttentionBound = sizeof(T) == 4                 ? 1e-5
                                   : std::is_same_v<T, sdk::Half> ? 2e-3
                                                                  : 1.5e-2;

TestTensor slopes_of(const Problem& p) {
  return p.slopes.empty()
             ? TestTensor()
             : TestTensor::of<float>({static_cast<int64_t>(p.slopes.size())}, p.slopes);
}

// ---- few queries

template <class T>
void check_forward(Problem p, const std::vector<int>& key_order, int64_t gap = 0) {
  const TestTensor query = tensor<T>({p.batch, p.heads, p.queries, p.width}, {3, 1, 2, 0}, 1);
  const TestTensor key = tensor<T>({p.batch, p.key_heads, p.keys, p.width}, key_order, 2, gap);
  const TestTensor value =
      tensor<T>({p.batch, p.key_heads, p.keys, p.value_width}, key_order, 3, gap);
  const TestTensor slopes = slopes_of(p);
  const TestTensor output =
      TestTensor::empty(query.dtype(), {p.batch, p.heads, p.queries, p.value_width});
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {p.batch, p.heads, p.queries});
  mt_args_attention_forward args{};
  args.query = query;
  args.key = key;
  args.value = value;
  args.slopes = slopes;
  args.left = p.left;
  args.right = p.right;
  args.diagonal = p.diagonal;
  args.softcap = p.softcap;
  args.scale = p.scale;
  args.output = output;
  args.logsumexp = sums;
  ASSERT_EQ(run(cuda::register_attention_decode, "attention_forward", args, query.dtype()), "");
  p.query = query.values<double>();
  p.key = key.values<double>();
  p.value = value.values<double>();
  const Result expected = attend(p);
  compare(output.values<double>(), expected.output, kAttentionBound<T>);
  compare(sums.values<double>(), expected.logsumexp, 1e-4);
}

TEST(Decode, MatchesSumsInDouble) {
  const Problem problems[] = {
      {.heads = 8, .keys = 75, .width = 128, .value_width = 128},
      {.batch = 2,
       .heads = 6,
       .key_heads = 2,
       .queries = 5,
       .keys = 533,
       .right = 0,
       .diagonal = 528},
      {.heads = 3,
       .queries = 4,
       .keys = 600,
       .left = 30,
       .right = 40,
       .diagonal = 300,
       .softcap = 1.5,
       .slopes = {0.5, 0.25, 0.1}},
      {.heads = 2, .queries = 3, .keys = 40, .left = 10, .right = 0, .diagonal = -2},  // an empty
                                                                                       // row
      {.keys = 1, .scale = -0.3},
      {.heads = 3,
       .queries = 2,
       .keys = 300,
       .width = 40,
       .value_width = 24,
       .right = 0,
       .diagonal = 298},
      {.heads = 1, .keys = 520, .width = 136, .value_width = 256},
  };
  for (const Problem& p : problems) {
    SCOPED_TRACE(std::to_string(p.keys) + " keys of " + std::to_string(p.width));
    check_forward<sdk::BFloat16>(p, {3, 2, 1, 0});
    check_forward<sdk::Half>(p, {3, 1, 2, 0});
    check_forward<float>(p, {3, 1, 2, 0});
    check_forward<float>(p, {3, 2, 1, 0}, 3);          // rows that are not aligned
    check_forward<sdk::BFloat16>(p, {2, 3, 1, 0}, 1);  // columns that are not adjacent
  }
}

// Runs a call with shuffled pages. Slots that are not in use are NaN, and entries of the table past
// a length point nowhere.
template <class T, class Index>
void check_paged(Problem p, int64_t slots, int64_t missing = 0) {
  p.batch = static_cast<int64_t>(p.lengths.size());
  p.keys = *std::max_element(p.lengths.begin(), p.lengths.end());
  const int64_t columns = (p.keys + slots - 1) / slots + 1, pages = p.batch * columns + 1;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<double> table(at(p.batch * columns), -7), lengths;
  std::vector<double> keys(at(pages * slots * p.key_heads * p.width), std::nan(""));
  std::vector<double> values(at(pages * slots * p.key_heads * p.value_width), std::nan(""));
  p.key.assign(at(p.batch * p.key_heads * p.keys * p.width), 0);
  p.value.assign(at(p.batch * p.key_heads * p.keys * p.value_width), 0);
  const auto rounded = [](double x) { return sdk::convert<double>(sdk::convert<T>(x)); };
  const std::vector<double> drawn =
      uniform_numbers(static_cast<int64_t>(p.key.size() + p.value.size()), 5);
  int64_t used = 0, next = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    lengths.push_back(static_cast<double>(p.lengths[at(b)]));
    for (int64_t j = 0; j < p.lengths[at(b)]; ++j) {
      double& page = table[at(b * columns + j / slots)];
      if (j % slots == 0) page = static_cast<double>(pages - 1 - used++);
      const int64_t row = static_cast<int64_t>(page) * slots + j % slots;
      for (int64_t h = 0; h < p.key_heads; ++h) {
        const int64_t to = (b * p.key_heads + h) * p.keys + j, from = row * p.key_heads + h;
        for (int64_t c = 0; c < p.width; ++c) {
          p.key[at(to * p.width + c)] = keys[at(from * p.width + c)] = rounded(drawn[at(next++)]);
        }
        for (int64_t c = 0; c < p.value_width; ++c) {
          p.value[at(to * p.value_width + c)] = values[at(from * p.value_width + c)] =
              rounded(drawn[at(next++)]);
        }
      }
    }
  }
  if (missing != 0) table[0] = static_cast<double>(pages + missing - 1);
  const TestTensor query = tensor<T>({p.batch, p.heads, p.queries, p.width}, {3, 2, 1, 0}, 6);
  const TestTensor key_pages = TestTensor::of<T>({pages, slots, p.key_heads, p.width}, keys);
  const TestTensor value_pages =
      TestTensor::of<T>({pages, slots, p.key_heads, p.value_width}, values);
  const TestTensor block_table = TestTensor::of<Index>({p.batch, columns}, table);
  const TestTensor sizes = TestTensor::of<Index>({p.batch}, lengths);
  const TestTensor slopes = slopes_of(p);
  const TestTensor output =
      TestTensor::empty(query.dtype(), {p.batch, p.heads, p.queries, p.value_width});
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {p.batch, p.heads, p.queries});
  mt_args_attention_paged args{};
  args.query = query;
  args.key_pages = key_pages;
  args.value_pages = value_pages;
  args.block_table = block_table;
  args.lengths = sizes;
  args.slopes = slopes;
  args.left = p.left;
  args.right = p.right;
  args.softcap = p.softcap;
  args.scale = p.scale;
  args.output = output;
  args.logsumexp = sums;
  ASSERT_EQ(run(cuda::register_attention_decode, "attention_paged", args, query.dtype()), "");
  TestContext context;
  cuda::Fault& fault = *cuda::fault_of(*context.get());
  EXPECT_EQ(fault.site != 0, missing != 0);
  fault = {};
  if (missing != 0) return;
  p.query = query.values<double>();
  const Result expected = attend(p);
  compare(output.values<double>(), expected.output, kAttentionBound<T>);
  compare(sums.values<double>(), expected.logsumexp, 1e-4);
}

TEST(PagedDecode, MatchesSumsInDouble) {
  const auto check = [](const Problem& p, int64_t slots) {
    SCOPED_TRACE(std::to_string(p.lengths[0]) + " keys in pages of " + std::to_string(slots));
    check_paged<sdk::BFloat16, int32_t>(p, slots);
    check_paged<sdk::Half, int64_t>(p, slots);
    check_paged<float, int32_t>(p, slots);
  };
  check({.heads = 8, .width = 128, .value_width = 128, .right = 0, .lengths = {33, 0, 100}}, 16);
  check({.heads = 2, .key_heads = 2, .right = 0, .lengths = {40, 7}}, 1);
  check({.heads = 4, .right = 0, .lengths = {1100}}, 256);  // several splits
  // 20 rows: two tiles, of which one is not full; a sequence shorter than its queries.
  check({.heads = 4, .queries = 5, .right = 0, .lengths = {70, 2}}, 16);
  check({.heads = 4,
         .key_heads = 2,
         .queries = 3,
         .left = 20,
         .right = 2,
         .softcap = 1.5,
         .slopes = {0.5, 0.25, 0.1, 0.2},
         .lengths = {300, 65}},
        32);
  check({.heads = 3, .key_heads = 3, .width = 33, .value_width = 5, .lengths = {50, 7}}, 7);
}

TEST(PagedDecode, RecordsPagesThatDoNotExist) {
  const Problem p{.heads = 2, .right = 0, .lengths = {20}};
  check_paged<sdk::BFloat16, int64_t>(p, 16, 1);
  check_paged<float, int64_t>(p, 16, 1000000);
}

// ---- tiles

struct Gradients {
  std::vector<double> query, key, value, mask;
};

Gradients differentiate(const Problem& p, const Result& result, const std::vector<double>& grad,
                        const std::vector<double>& grad_sums) {
  Gradients to;
  to.query.resize(p.query.size());
  to.key.resize(p.key.size());
  to.value.resize(p.value.size());
  to.mask.resize(p.mask.size());
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = 0; i < p.queries; ++i) {
        const int64_t row = (b * p.heads + h) * p.queries + i, width = p.value_width;
        const double sum = result.logsumexp[row];
        if (sum == -kInfinity) continue;
        double delta = -grad_sums[row];
        for (int64_t c = 0; c < width; ++c) {
          delta += grad[row * width + c] * result.output[row * width + c];
        }
        for (int64_t j = 0; j < p.keys; ++j) {
          const double s = score(p, b, h, i, j);
          if (s == -kInfinity) continue;
          const int64_t key = (b * p.key_heads + h / (p.heads / p.key_heads)) * p.keys + j;
          const double weight = std::exp(s - sum), kept = p.kept(b, h, i, j);
          double inner = 0;
          for (int64_t c = 0; c < width; ++c) {
            inner += grad[row * width + c] * p.value[key * width + c];
            to.value[key * width + c] += weight * kept * grad[row * width + c];
          }
          double d = weight * (kept * inner - delta);
          if (!p.mask.empty()) to.mask[p.mask_at(b, h, i, j)] += d;
          double product = 0;
          for (int64_t c = 0; c < p.width; ++c) {
            product += p.query[row * p.width + c] * p.key[key * p.width + c];
          }
          if (p.softcap != 0) {
            const double t = std::tanh(p.scale * product / p.softcap);
            d *= 1 - t * t;
          }
          for (int64_t c = 0; c < p.width; ++c) {
            to.query[row * p.width + c] += p.scale * d * p.key[key * p.width + c];
            to.key[key * p.width + c] += p.scale * d * p.query[row * p.width + c];
          }
        }
      }
    }
  }
  return to;
}

// Compares the output and all gradients.
template <class T>
void check_tiles(Problem p, const std::vector<int>& order = {3, 2, 1, 0}) {
  const Shape out_shape = {p.batch, p.heads, p.queries, p.value_width};
  const TestTensor query = tensor<T>({p.batch, p.heads, p.queries, p.width}, order, 1);
  const TestTensor key = tensor<T>({p.batch, p.key_heads, p.keys, p.width}, order, 2);
  const TestTensor value = tensor<T>({p.batch, p.key_heads, p.keys, p.value_width}, order, 3);
  const TestTensor slopes = slopes_of(p);
  TestTensor mask;
  if (!p.mask_sizes.empty()) {
    int64_t n = 1;
    for (const int64_t size : p.mask_sizes) n *= size;
    std::vector<double> values = uniform_numbers(n, 4);
    if (p.bool_mask) {
      for (double& x : values) x = x < 0.5 ? 1 : 0;
      mask = TestTensor::of<bool>(p.mask_sizes, values);
      for (double& x : values) x = x != 0 ? 0 : -kInfinity;
      p.mask = values;
    } else {
      mask = TestTensor::of<T>(p.mask_sizes, values);
      p.mask = mask.values<double>();
    }
  }
  const TestTensor output = tensor<T>(out_shape, order, 9);
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {p.batch, p.heads, p.queries});
  const TestTensor draw = TestTensor::empty(sdk::dtype_of<int64_t>, {p.dropout_p != 0 ? 2 : 0});
  const uint64_t replayed = 3;
  const auto fill = [&](auto& args) {
    args.query = query;
    args.key = key;
    args.value = value;
    args.attn_mask = mask;
    args.slopes = slopes;
    args.left = p.left;
    args.right = p.right;
    args.diagonal = p.diagonal;
    args.softcap = p.softcap;
    args.scale = p.scale;
    args.dropout_p = p.dropout_p;
    args.output = output;
    args.logsumexp = sums;
    args.draw = draw;
  };
  mt_args_attention_forward args{};
  fill(args);
  args.generator = {p.seed, p.call - replayed, &replayed};
  ASSERT_EQ(run(cuda::register_attention_tiles, "attention_forward", args, query.dtype()), "");
  if (p.dropout_p != 0) {
    EXPECT_EQ(draw.values<int64_t>(),
              (std::vector<int64_t>{static_cast<int64_t>(p.seed), static_cast<int64_t>(p.call)}));
  }
  p.query = query.values<double>();
  p.key = key.values<double>();
  p.value = value.values<double>();
  Result expected = attend(p);
  compare(output.values<double>(), expected.output, kAttentionBound<T>);
  compare(sums.values<double>(), expected.logsumexp, 1e-3);

  // The gradient, without a gap in grad_output if rows are contiguous, else broadcast along them.
  const bool broadcast = order[1] != 2;
  const TestTensor grad =
      broadcast ? tensor<T>({p.value_width}, {0}, 6).as_strided(out_shape, {0, 0, 0, 1})
                : tensor<T>(out_shape, order, 6);
  const TestTensor grad_sums = tensor<float>({p.batch, p.heads, p.queries}, {2, 1, 0}, 7);
  const TestTensor to_query = tensor<T>({p.batch, p.heads, p.queries, p.width}, order, 8);
  const TestTensor to_key = tensor<T>({p.batch, p.key_heads, p.keys, p.width}, order, 8);
  const TestTensor to_value = tensor<T>({p.batch, p.key_heads, p.keys, p.value_width}, order, 8);
  const bool wants_mask = !p.mask_sizes.empty() && !p.bool_mask;
  const TestTensor to_mask = TestTensor::empty(query.dtype(), wants_mask ? p.mask_sizes : Shape{0});
  if (wants_mask) {
    const mt_tensor* abi = to_mask;
    const_cast<mt_tensor*>(abi)->flags |= MT_TENSOR_CONTIGUOUS;
  }
  const int64_t wanted[] = {1, 1, 1, 1};
  mt_args_attention_backward back{};
  fill(back);
  back.grad_output = grad;
  back.grad_logsumexp = grad_sums;
  back.output_mask = {wanted, 4};
  back.grad_query = to_query;
  back.grad_key = to_key;
  back.grad_value = to_value;
  back.grad_mask = to_mask;
  ASSERT_EQ(run(cuda::register_attention_tiles, "attention_backward", back, query.dtype()), "");
  expected.output = output.values<double>();
  const Gradients to =
      differentiate(p, expected, grad.values<double>(), grad_sums.values<double>());
  compare(to_query.values<double>(), to.query, kAttentionBound<T>);
  compare(to_key.values<double>(), to.key, kAttentionBound<T>);
  compare(to_value.values<double>(), to.value, kAttentionBound<T>);
  if (wants_mask) compare(to_mask.values<double>(), to.mask, kAttentionBound<T>);
}

TEST(Tiles, MatchSumsInDouble) {
  const Problem problems[] = {
      {.batch = 2, .heads = 2, .queries = 70, .keys = 75},
      {.heads = 4,
       .key_heads = 2,
       .queries = 33,
       .keys = 130,
       .width = 32,
       .value_width = 16,
       .right = 0,
       .diagonal = 97},
      {.queries = 150,
       .keys = 90,
       .width = 8,
       .value_width = 32,
       .left = 20,
       .right = 5,
       .diagonal = -30},
      {.queries = 65, .keys = 66, .width = 128, .value_width = 128, .softcap = 0.7, .scale = 0.5},
      {.heads = 2,
       .queries = 40,
       .keys = 70,
       .width = 40,
       .value_width = 96,
       .right = 0,
       .diagonal = 30,
       .softcap = 2,
       .slopes = {0.5, 0.1}},
      {.queries = 1, .keys = 1, .width = 16, .value_width = 16, .scale = -1},
  };
  for (const Problem& p : problems) {
    SCOPED_TRACE(std::to_string(p.queries) + " x " + std::to_string(p.keys));
    check_tiles<sdk::BFloat16>(p);
    check_tiles<sdk::Half>(p, {3, 1, 2, 0});
    check_tiles<float>(p, {3, 1, 2, 0});
  }
}

TEST(Tiles, TakeMasksThatAreBroadcast) {
  const Problem p{.batch = 2,
                  .heads = 2,
                  .key_heads = 1,
                  .queries = 70,
                  .keys = 41,
                  .width = 16,
                  .value_width = 16};
  for (const Shape& sizes : {Shape{2, 2, 70, 41},
                             {1, 2, 70, 41},
                             {2, 1, 70, 1},
                             {1, 1, 1, 41},
                             {1, 2, 1, 1},
                             {2, 1, 1, 41}}) {
    for (const bool kind : {false, true}) {
      SCOPED_TRACE(std::to_string(sizes[2]) + " x " + std::to_string(sizes[3]));
      Problem masked = p;
      masked.mask_sizes = sizes;
      masked.bool_mask = kind;
      check_tiles<sdk::BFloat16>(masked);
      check_tiles<float>(masked);
    }
  }
  Problem causal = p;
  causal.mask_sizes = {1, 1, 70, 41};
  causal.right = 0;
  causal.softcap = 1;
  check_tiles<sdk::Half>(causal);
  check_tiles<float>(causal);
}

TEST(Tiles, DropTheWeightsThatTheRecordDrops) {
  for (const double p : {0.1, 0.6, 1.0}) {
    SCOPED_TRACE(p);
    check_tiles<sdk::BFloat16>({.batch = 2,
                                .heads = 2,
                                .key_heads = 1,
                                .queries = 70,
                                .keys = 75,
                                .width = 16,
                                .value_width = 16,
                                .dropout_p = p});
    check_tiles<sdk::Half>({.queries = 40,
                            .keys = 133,
                            .width = 16,
                            .value_width = 32,
                            .right = 0,
                            .diagonal = 93,
                            .mask_sizes = {1, 1, 40, 133},
                            .dropout_p = p});
    check_tiles<float>({.heads = 2, .queries = 40, .keys = 133, .width = 16, .dropout_p = p});
  }
}

template <class T>
void keep_nan_in_its_row() {
  // A NaN query makes its own row NaN, and the gradients of keys.
  const int64_t queries = 40, keys = 50, width = 16;
  std::vector<double> values = uniform_numbers(queries * width, 1);
  values[3 * width + 2] = std::nan("");
  const TestTensor query = TestTensor::of<T>({1, 1, queries, width}, values);
  const TestTensor key = tensor<T>({1, 1, keys, width}, {3, 2, 1, 0}, 2);
  const TestTensor output = TestTensor::empty(query.dtype(), {1, 1, queries, width});
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {1, 1, queries});
  mt_args_attention_forward args{};
  args.query = query;
  args.key = args.value = key;
  args.left = args.right = -1;
  args.scale = 0.5;
  args.output = output;
  args.logsumexp = sums;
  ASSERT_EQ(run(cuda::register_attention_tiles, "attention_forward", args, query.dtype()), "");
  const std::vector<double> out = output.values<double>();
  for (int64_t i = 0; i < queries; ++i) {
    EXPECT_EQ(std::isnan(out[static_cast<size_t>(i * width)]), i == 3) << i;
  }
}

TEST(Tiles, KeepNaNInItsRow) {
  keep_nan_in_its_row<sdk::BFloat16>();
  keep_nan_in_its_row<float>();
}

// Products of split numbers would make NaN of them.
TEST(Tiles, KeepInfinities) {
  const int64_t queries = 70, keys = 50, width = 16;
  std::vector<double> ones(queries * width, 1), some = uniform_numbers(keys * width, 2);
  std::vector<double> values = uniform_numbers(keys * width, 3);
  for (int64_t c = 0; c < width; ++c) some[7 * width + c] = c == 4 ? -kInfinity : 1;
  values[9 * width + 5] = kInfinity;
  const TestTensor query = TestTensor::of<float>({1, 1, queries, width}, ones);
  const TestTensor key = TestTensor::of<float>({1, 1, keys, width}, some);
  const TestTensor value = TestTensor::of<float>({1, 1, keys, width}, values);
  const TestTensor output = TestTensor::empty(query.dtype(), {1, 1, queries, width});
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {1, 1, queries});
  mt_args_attention_forward args{};
  args.query = query;
  args.key = key;
  args.value = value;
  args.left = args.right = -1;
  args.scale = 0.5;
  args.output = output;
  args.logsumexp = sums;
  ASSERT_EQ(run(cuda::register_attention_tiles, "attention_forward", args, query.dtype()), "");
  Problem p{.queries = queries, .keys = keys, .width = width, .value_width = width, .scale = 0.5};
  p.query = ones;
  p.key = some;
  p.value = values;
  const Result expected = attend(p);  // the key has no weight, and a column is infinite
  compare(sums.values<double>(), expected.logsumexp, 1e-5);
  compare(output.values<double>(), expected.output, 1e-5);
}

TEST(Tiles, DeclineWhatTheyDoNotCompute) {
  const TestTensor x = tensor<sdk::BFloat16>({1, 1, 8, 16}, {3, 2, 1, 0}, 1);
  const TestTensor sums = TestTensor::empty(sdk::dtype_of<float>, {1, 1, 8});
  const auto reason = [&](const TestTensor& query, const TestTensor& output) {
    mt_args_attention_forward args{};
    args.query = query;
    args.key = args.value = x;
    args.output = output;
    args.logsumexp = sums;
    return run(cuda::register_attention_tiles, "attention_forward", args, query.dtype());
  };
  const TestTensor wide = tensor<double>({1, 1, 8, 16}, {3, 2, 1, 0}, 1);
  EXPECT_NE(reason(wide, wide).find("bfloat16"), std::string::npos);
  const TestTensor columns = tensor<sdk::BFloat16>({1, 1, 8, 16}, {2, 3, 1, 0}, 1);
  EXPECT_NE(reason(x, columns).find("output's"), std::string::npos);
  EXPECT_NE(reason(x.as_strided({1, 1, 8, 12}, {128, 128, 16, 1}), x).find("multiples"),
            std::string::npos);
}

}  // namespace
}  // namespace mytorch::testing
