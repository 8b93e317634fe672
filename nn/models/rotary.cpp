#include "mytorch/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mytorch/ops/max.h"
#include "mytorch/ops/min.h"
#include "mytorch/ops/rotary_embedding.h"
#include "nn/functional/options.h"
#include "nn/modules/lasting.h"

namespace mytorch::nn {
namespace {

constexpr const char* kScalingTypes[] = {"none", "linear", "ntk", "llama3", "yarn"};

double scaled_frequency(double frequency, const RotaryScaling& scaling) {
  if (scaling.type == RotaryScalingType::kLinear) return frequency / scaling.factor;
  if (scaling.type != RotaryScalingType::kLlama3) return frequency;
  // The number of turns in the original context.
  const double turns = static_cast<double>(scaling.original_max_position_embeddings) * frequency /
                       (2 * std::numbers::pi);
  const double kept = std::clamp(
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
      1.0);
  return kept * frequency + (1 - kept) * frequency / scaling.factor;
}

// Divides the frequencies of pairs that turn slowly by the factor (YaRN).
void slow_down(std::vector<double>& frequencies, int64_t dim, const RotaryEmbeddingArgs& options) {
  const RotaryScaling& scaling = options.scaling;
  // The pair, not rounded, that turns so many times in the original context.
  const auto pair_of = [&](double turns) {
    const double length = static_cast<double>(scaling.original_max_position_embeddings);
    return static_cast<double>(dim) * std::log(length / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(options.base));
  };
  const double low = std::max(std::floor(pair_of(scaling.beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(scaling.beta_slow)), static_cast<double>(dim - 1));
  const double width = high == low ? 0.001 : high - low;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double slowed = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    frequencies[i] *= slowed / scaling.factor + (1 - slowed);
  }
}

}  // namespace

RotaryScalingType from_name(Str name, RotaryScalingType /*type*/) {
  return static_cast<RotaryScalingType>(index_of_name("RotaryEmbedding", name, kScalingTypes));
}

RotaryEmbedding::RotaryEmbedding(int64_t dim, RotaryEmbeddingArgs options)
    : dim_(dim), options_(options) {
  const RotaryScaling& scaling = options.scaling;
  if (dim < 2 || dim % 2 != 0 || dim > 65536) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] dim is ", dim,
         ": features are rotated in pairs, so give an even number from 2 to 65536");
  }
  if (!(options.base > 0) || !std::isfinite(options.base)) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] base is ", options.base,
         ": give a positive number, such as 10000");
  }
  if (!(scaling.factor > 0) || !std::isfinite(scaling.factor)) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] scaling.factor is ", scaling.factor,
         ": give a positive number, the new context length over the original one");
  }
  if (scaling.type == RotaryScalingType::kLlama3 &&
      !(scaling.low_freq_factor < scaling.high_freq_factor &&
        scaling.original_max_position_embeddings > 0)) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] scaling of type llama3 has low_freq_factor ",
         scaling.low_freq_factor, ", high_freq_factor ", scaling.high_freq_factor,
         " and original_max_position_embeddings ", scaling.original_max_position_embeddings,
         ": give low_freq_factor < high_freq_factor and a positive length");
  }
  if (scaling.type == RotaryScalingType::kYarn &&
      !(scaling.original_max_position_embeddings > 0 && scaling.beta_slow > 0 &&
        scaling.beta_fast >= scaling.beta_slow && options.base > 1)) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] scaling of type yarn has beta_fast ",
         scaling.beta_fast, ", beta_slow ", scaling.beta_slow,
         ", original_max_position_embeddings ", scaling.original_max_position_embeddings,
         " and base ", options.base,
         ": give 0 < beta_slow <= beta_fast, a positive length and a base above 1");
  }
  double base = options.base;
  if (scaling.type == RotaryScalingType::kNTK && dim > 2) {
    base *= std::pow(scaling.factor, static_cast<double>(dim) / static_cast<double>(dim - 2));
  }
  for (int64_t i = 0; i < dim; i += 2) {
    const double frequency = std::pow(base, -static_cast<double>(i) / static_cast<double>(dim));
    frequencies_.push_back(scaled_frequency(frequency, scaling));
  }
  if (scaling.type == RotaryScalingType::kYarn) {
    slow_down(frequencies_, dim, options);
    if (const double size = scaling.attention_factor.value_or(1);
        !(size > 0) || !std::isfinite(size)) {
      fail(ErrorCode::kValue, "[RotaryEmbedding] scaling.attention_factor is ", size,
           ": give a positive number, or none for 1 + log(factor) / 10");
    }
    size_ = scaling.attention_factor.value_or(1 + 0.1 * std::log(std::max(scaling.factor, 1.0)));
  }
}

int64_t RotaryEmbedding::length_of(const Tensor& x) const {
  if (x.dim() < 2 || x.size(-1) < dim_) {
    fail(ErrorCode::kShape, "[RotaryEmbedding] the input has shape ", shape_str(x.sizes()),
         ": give (..., length, features) with at least ", dim_, " features");
  }
  if (!x.is_floating_point()) {
    fail(ErrorCode::kType, "[RotaryEmbedding] the input is ", dtype_name(x.dtype()),
         ": give a floating-point tensor");
  }
  return x.size(-2);
}

const RotaryEmbedding::Table& RotaryEmbedding::table(int64_t positions, const Tensor& like) {
  constexpr int64_t kMost = int64_t{1} << 28;
  if (positions > kMost) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] position ", positions - 1, " exceeds ", kMost - 1);
  }
  const ScalarType dtype = like.dtype() == kFloat64 ? kFloat64 : kFloat32;
  auto found = std::find_if(tables_.begin(), tables_.end(), [&](const Table& table) {
    return table.cos.dtype() == dtype && table.cos.device() == like.device();
  });
  if (found != tables_.end() && found->cos.size(0) >= positions) return *found;
  int64_t rows = 64;
  while (rows < positions) rows *= 2;
  std::vector<double> cosines, sines;
  cosines.reserve(static_cast<size_t>(rows) * frequencies_.size());
  sines.reserve(cosines.capacity());
  for (int64_t row = 0; row < rows; ++row) {
    for (const double frequency : frequencies_) {
      cosines.push_back(size_ * std::cos(static_cast<double>(row) * frequency));
      sines.push_back(size_ * std::sin(static_cast<double>(row) * frequency));
    }
  }
  const LastingTensors lasting;
  const auto finished = [&](const std::vector<double>& values) {
    return tensor(values, kFloat64).view({rows, dim_ / 2}).to(dtype).to(like.device());
  };
  Table made{finished(cosines), finished(sines)};
  if (found == tables_.end()) return tables_.emplace_back(std::move(made));
  return *found = std::move(made);
}

Tensor RotaryEmbedding::rotate(const Tensor& x, const Tensor& positions, int64_t most) {
  const Table& all = table(most + 1, x);
  return rotary_embedding(x, all.cos, all.sin, positions.to(x.device()).to(kInt64),
                          options_.interleaved);
}

Tensor RotaryEmbedding::forward(const Tensor& x, int64_t offset) {
  const int64_t length = length_of(x);
  check_at_least("RotaryEmbedding", 0, {{"offset", offset}});
  check_index_count("RotaryEmbedding", offset);
  const Table& all = table(offset + length, x);
  return rotary_embedding(x, all.cos.narrow(0, offset, length), all.sin.narrow(0, offset, length),
                          {}, options_.interleaved);
}

Tensor RotaryEmbedding::forward(const Tensor& x, const Tensor& positions) {
  const int64_t length = length_of(x), dims = positions.dim();
  if (!is_integral(positions.dtype())) {
    fail(ErrorCode::kType, "[RotaryEmbedding] positions are ", dtype_name(positions.dtype()),
         ": give integers");
  }
  const bool each = dims == 2 && x.dim() > 2 && positions.size(0) == x.size(0);
  if ((dims != 1 && !each) || positions.size(-1) != length) {
    fail(ErrorCode::kShape, "[RotaryEmbedding] positions have shape ", shape_str(positions.sizes()),
         ": for an input of shape ", shape_str(x.sizes()), ", give (", length, ")",
         x.dim() > 2 ? absl::StrCat(" or (", x.size(0), ", ", length, ")") : "");
  }
  if (positions.numel() == 0) return x;
  const int64_t least = positions.min().item<int64_t>();
  if (least < 0) {
    fail(ErrorCode::kValue, "[RotaryEmbedding] a position is ", least, ": give positions from 0");
  }
  return rotate(x, positions, positions.max().item<int64_t>());
}

Tensor RotaryEmbedding::forward(const Tensor& x, const KVCache* cache) {
  if (cache == nullptr) return forward(x);
  if (const std::optional<int64_t> common = cache->common_length()) return forward(x, *common);
  const int64_t length = length_of(x);
  if (x.dim() < 3 || x.size(0) != cache->batch_size()) {
    fail(ErrorCode::kShape, "[RotaryEmbedding] the input has shape ", shape_str(x.sizes()),
         ": the cache has ", cache->batch_size(), " sequences, so give (", cache->batch_size(),
         ", ..., length, features)");
  }
  return rotate(x, cache->positions(length, x.device()), cache->max_length() + length - 1);
}

std::string RotaryEmbedding::describe() const {
  std::string out = absl::StrCat("RotaryEmbedding(", dim_, ", base=", options_.base);
  if (options_.interleaved) out += ", interleaved=true";
  if (options_.scaling.type != RotaryScalingType::kNone) {
    absl::StrAppend(&out, ", scaling=",
                    kScalingTypes[static_cast<size_t>(RotaryScalingType(options_.scaling.type))],
                    " ", options_.scaling.factor);
  }
  return out + ")";
}

}  // namespace mytorch::nn
