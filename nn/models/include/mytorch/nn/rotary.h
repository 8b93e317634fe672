// Rotary position embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mytorch/nn/kv_cache.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

enum class RotaryScalingType { kNone, kLinear, kNTK, kLlama3, kYarn };
RotaryScalingType from_name(Str name, RotaryScalingType);  // NOLINT: named by its type

// How the rotation slows down for sequences longer than those of pretraining.
struct RotaryScaling {
  // "linear" divides all frequencies by `factor`; "ntk" multiplies `base` by factor^(dim / (dim -
  // 2)), which keeps the highest frequency; "llama3" divides the frequencies whose wavelength
  // exceeds original_max_position_embeddings / low_freq_factor, keeps those below
  // original_max_position_embeddings / high_freq_factor, and interpolates between the two; "yarn"
  // (Peng et al., "YaRN: efficient context window extension of large language models", ICLR 2024)
  // divides those that turn less than beta_slow times within original_max_position_embeddings,
  // keeps those that turn more than beta_fast times, and interpolates between the two by the number
  // of the pair.
  OneOf<RotaryScalingType> type = RotaryScalingType::kNone;
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 8192;
  double beta_fast = 32;
  double beta_slow = 1;
  // "yarn" multiplies rotated queries and keys by it, so that scores grow with the length. Default:
  // 1 + log(factor) / 10, or 1 for a factor below 1.
  std::optional<double> attention_factor = {};
  // Of DeepSeek's models, whose attention multiplies scores by the square of 1 + mscale_all_dim *
  // log(factor) / 10.
  double mscale_all_dim = 0;
};

struct RotaryEmbeddingArgs {
  double base = 10000;
  // Whether features 2i and 2i + 1 form a pair (GPT-J, Llama's own weights); else i and i + dim / 2
  // do (GPT-NeoX, and all models of Hugging Face).
  bool interleaved = false;
  RotaryScaling scaling = {};
};
using RotaryEmbeddingOptions = Options<RotaryEmbeddingArgs, int64_t>;

// Rotates pair i of the first `dim` features of queries or keys (..., L, D) by position * base^(-2i
// / dim), so that their products depend on the distance of positions (Su et al., "RoFormer:
// enhanced transformer with rotary position embedding", 2021). Angles are computed in double, the
// rotation in float32, or float64 for float64. Has no parameters.
class RotaryEmbedding final : public Callable<RotaryEmbedding> {
 public:
  using Callable::Callable;
  explicit RotaryEmbedding(int64_t dim, RotaryEmbeddingArgs options = {});
  // Rotates by the positions offset, offset + 1, ...
  Tensor forward(const Tensor& x, int64_t offset = 0);
  template <mytorch::detail::Integer T>
  Tensor forward(const Tensor& x, T offset) {  // a literal 0 is no pointer
    return forward(x, static_cast<int64_t>(offset));
  }
  // Rotates by integer positions (L) or, for x (N, ..., L, D), (N, L). Reads the device to find the
  // largest position.
  Tensor forward(const Tensor& x, const Tensor& positions);
  // Rotates by the positions of the next tokens of each sequence of the cache; null is an empty
  // cache.
  Tensor forward(const Tensor& x, const KVCache* cache);
  std::string describe() const override;

  // Returns the angle of each pair per position, (dim / 2), in double.
  const std::vector<double>& frequencies() const { return frequencies_; }

 private:
  struct Table {
    Tensor cos, sin;  // (positions, dim / 2)
  };
  const Table& table(int64_t positions, const Tensor& like);
  Tensor rotate(const Tensor& x, const Tensor& positions, int64_t most);
  int64_t length_of(const Tensor& x) const;

  int64_t dim_ = 0;
  RotaryEmbeddingArgs options_;
  std::vector<double> frequencies_;
  double size_ = 1;            // of rotated pairs over that of the given ones
  std::vector<Table> tables_;  // one for each device and type in use
};

}  // namespace mytorch::nn
