// Batch normalization by the statistics of the batch, of row-major and channels-last inputs. oneDNN
// would sum a channel in float32, which loses the spread of values around a large mean and the mean
// of many values, so the statistics are computed here, in double.
#include <algorithm>
#include <vector>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/normalization/normalization.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

// Returns the reason why operands of the input's shape are not supported. oneDNN computes in the
// layout of the input; operands in other layouts are reordered.
const char* data_reason(std::initializer_list<const mt_tensor*> operands) {
  for (const mt_tensor* operand : operands) {
    if (operand == nullptr) continue;
    const TensorView tensor = operand;
    if (tensor.ndim() < 2 || tensor.ndim() > 5) return "inputs have from 2 to 5 dimensions";
    if (const char* why = float_type_reason(tensor.dtype())) return why;
    if (const char* why = size_reason(tensor)) return why;
    if (!tensor.is_contiguous() && !is_channels_last(tensor)) {
      return "an operand is neither row-major nor channels-last";
    }
  }
  return nullptr;
}

const char* vector_reason(std::initializer_list<const mt_tensor*> vectors) {
  for (const mt_tensor* vector : vectors) {
    if (vector == nullptr) continue;
    if (const char* why = float_type_reason(vector->dl.dtype)) return why;
    if (!TensorView(vector).is_contiguous()) return "a parameter or statistic is not contiguous";
  }
  return nullptr;
}

Normalized channels_of(const TensorView& input) {
  const Desc channels = describe_contiguous(sdk::dtype_of<float>, {input.size(1)});
  return {describe(input), channels, channels};
}

// Counts, means and sums of squared distances from them, of a number of channels that lie side by
// side: of blocks of rows by two passes, joined by the rule of Chan, Golub and LeVeque (1979).
class Moments {
 public:
  explicit Moments(int64_t channels)
      : mean_(static_cast<size_t>(channels)),
        spread_(mean_.size()),
        sum_(mean_.size()),
        squares_(mean_.size()) {}

  void add_rows(const float* x, int64_t rows) {
    constexpr int64_t kBlock = 16;
    for (int64_t first = 0; first < rows; first += kBlock) {
      const int64_t count = std::min(kBlock, rows - first);
      add_block(x + first * channels(), count);
    }
  }
  void add(const Moments& other) { join(other.count_, other.mean_.data(), other.spread_.data()); }
  void put(float* mean, float* var) const {
    for (size_t c = 0; c < mean_.size(); ++c) {
      mean[c] = static_cast<float>(mean_[c]);
      var[c] = static_cast<float>(spread_[c] / static_cast<double>(count_));
    }
  }

 private:
  int64_t channels() const { return static_cast<int64_t>(mean_.size()); }

  void add_block(const float* x, int64_t rows) {
    const int64_t n = channels();
    double* const sum = sum_.data();
    double* const squares = squares_.data();
    std::fill(sum, sum + n, 0.0);
    std::fill(squares, squares + n, 0.0);
    for (int64_t r = 0; r < rows; ++r) {
      const float* const row = x + r * n;
      for (int64_t c = 0; c < n; ++c) sum[c] += static_cast<double>(row[c]);
    }
    const double share = 1 / static_cast<double>(rows);
    for (int64_t c = 0; c < n; ++c) sum[c] *= share;
    for (int64_t r = 0; r < rows; ++r) {
      const float* const row = x + r * n;
      for (int64_t c = 0; c < n; ++c) {
        const double off = static_cast<double>(row[c]) - sum[c];
        squares[c] += off * off;
      }
    }
    join(rows, sum, squares);
  }
  void join(int64_t count, const double* mean, const double* spread) {
    if (count == 0) return;
    const double before = static_cast<double>(count_), more = static_cast<double>(count);
    const double share = more / (before + more);
    count_ += count;
    for (int64_t c = 0; c < channels(); ++c) {
      // An infinite mean has no distance to the first one, which is that of no elements.
      const double off = before == 0 ? 0 : mean[c] - mean_[static_cast<size_t>(c)];
      double& own = mean_[static_cast<size_t>(c)];
      own = before == 0 ? mean[c] : own + off * share;
      spread_[static_cast<size_t>(c)] += spread[c] + off * off * before * share;
    }
  }

  int64_t count_ = 0;
  std::vector<double> mean_, spread_;
  std::vector<double> sum_, squares_;  // of a block
};

// The number of parts does not depend on the number of threads, so neither do results.
void find_statistics(mt_ctx& ctx, const TensorView& input, float* mean, float* var) {
  const float* const x = input.data<const float>();
  const int64_t samples = input.size(0), channels = input.size(1);
  const int64_t rows = input.numel() / channels, plane = rows / samples;
  if (plane != 1 && !is_channels_last(input)) {
    sdk::parallel_for(ctx, 0, channels, 1 + 8192 / rows, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        Moments all(1);
        for (int64_t n = 0; n < samples; ++n) all.add_rows(x + (n * channels + c) * plane, plane);
        all.put(mean + c, var + c);
      }
    });
    return;
  }
  const int64_t count = std::clamp<int64_t>(rows / 256, 1, 64);
  std::vector<Moments> parts(static_cast<size_t>(count), Moments(channels));
  sdk::parallel_for(ctx, 0, count, 1 + 8192 * count / input.numel(),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t p = begin; p < end; ++p) {
                        const int64_t first = rows * p / count, last = rows * (p + 1) / count;
                        parts[static_cast<size_t>(p)].add_rows(x + first * channels, last - first);
                      }
                    });
  for (int64_t p = 1; p < count; ++p) parts[0].add(parts[static_cast<size_t>(p)]);
  parts[0].put(mean, var);
}

const char* batch_norm_forward_supports(const mt_args_batch_norm_training& args) {
  if (TensorView(args.input).ndim() == 2) return "a matrix: its columns decompose into faster code";
  if (const char* why = data_reason({args.input, args.out})) return why;
  return vector_reason({args.weight, args.bias, args.mean, args.var});
}

void run_batch_norm_forward(mt_ctx& ctx, const mt_args_batch_norm_training& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias;
  if (input.numel() == 0) throw sdk::Declined{};
  float* const mean = or_scratch(ctx, args.mean, input.size(1));
  float* const var = or_scratch(ctx, args.var, input.size(1));
  find_statistics(ctx, input, mean, var);
  if (args.out == nullptr) return;
  Key key(MT_HASH_batch_norm_training, {args.input, args.weight, args.bias, args.out});
  key.number(args.eps);
  run(ctx, key, {input, args.out, mean, var, weight, bias}, [&] {
    const Normalized n = channels_of(input);
    return normalize(n, describe(args.out), weight, bias, /*given=*/true,
                     [&](dnnl::normalization_flags flags) {
                       return batch_norm(attributes(), n.data, static_cast<float>(args.eps), flags);
                     });
  });
}

const char* batch_norm_backward_supports(const mt_args_batch_norm_training_backward& args) {
  if (const char* why = Gradients(args).reason()) return why;
  if (const char* why = data_reason({args.input, args.grad_out, args.grad_input})) return why;
  return vector_reason({args.weight, args.mean, args.var, args.grad_weight, args.grad_bias});
}

void run_batch_norm_backward(mt_ctx& ctx, const mt_args_batch_norm_training_backward& args) {
  const TensorView input = args.input;
  const Gradients gradients(args);
  const int64_t channels = input.size(1);
  Key key(MT_HASH_batch_norm_training_backward,
          {args.input, args.weight, args.grad_out, args.grad_input});
  key.number(gradients.which());
  key.number(args.eps);
  run(ctx, key,
      {args.grad_out, input, args.mean, args.var, args.weight, args.grad_input,
       gradients.weight(ctx, args.grad_weight, channels),
       gradients.bias(ctx, args.grad_bias, channels), gradients.bias(ctx, nullptr, channels)},
      [&] {
        const Normalized n = channels_of(input);
        return gradients.plan(n, describe(args.grad_out), describe(args.grad_input),
                              [&](dnnl::prop_kind kind, dnnl::normalization_flags flags) {
                                return batch_norm_backward(attributes(), kind, n.data,
                                                           static_cast<float>(args.eps), flags);
                              });
      });
}

// oneDNN is faster for channels-last inputs; cpu-openmp is ten times as fast for row-major ones.
template <class Args>
bool batch_norm_pays(const Args& args) {
  const TensorView input = args.input;
  return input.numel() >= 1 << 15 && !input.is_contiguous() && is_channels_last(input);
}

}  // namespace

void register_batch_norm(KernelEntries& kernels) {
  add_halves<mt_args_batch_norm_training, &run_batch_norm_forward, &batch_norm_forward_supports,
             &batch_norm_pays<mt_args_batch_norm_training>>(kernels, MT_TAKES_STRIDED);
  add_halves<mt_args_batch_norm_training_backward, &run_batch_norm_backward,
             &batch_norm_backward_supports, &batch_norm_pays<mt_args_batch_norm_training_backward>>(
      kernels, MT_TAKES_STRIDED);
}

}  // namespace mytorch::onednn
