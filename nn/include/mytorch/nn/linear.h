// Linear layers and embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "mytorch/nn/module.h"
#include "mytorch/nn/options.h"

namespace mytorch::nn {

struct LinearArgs {
  bool bias = true;
};
using LinearOptions = Options<LinearArgs, int64_t, int64_t>;
using BilinearOptions = Options<LinearArgs, int64_t, int64_t, int64_t>;

struct LinearAllArgs : LinearArgs {
  int64_t in_features = 0;  // as all that a lazy layer takes from its input, 0 until then
  int64_t out_features = 0;
};
struct BilinearAllArgs : LinearArgs {
  int64_t in1_features = 0;
  int64_t in2_features = 0;
  int64_t out_features = 0;
};

// Computes x @ weight.T + bias over the last dimension: (..., in) to (..., out). weight is (out,
// in), bias is (out); both are initialized uniformly in +-1 / sqrt(in).
class Linear : public Layer<Linear> {
 public:
  using Layer::Layer;
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  Linear(int64_t in_features, int64_t out_features, LinearArgs options)
      : Linear(in_features, out_features, options.bias) {}
  template <mytorch::detail::Integer Size>
  explicit Linear(Size /*features*/) {
    static_assert(!mytorch::detail::Integer<Size>,
                  "Linear takes two sizes, Linear(in_features, out_features): LazyLinear takes "
                  "in_features from its first input");
  }
  template <class TakesOptionsOf = LinearArgs,
            OptionNames Named = "bias">  // chosen for a misspelt option
  Linear(int64_t, int64_t, ...) = delete;
  Tensor forward(const Tensor& input) override;
  // Returns gelu((*this)(input), approximate), in one operator unless a hook is in effect.
  Tensor gelu(const Tensor& input, Str approximate = "none");
  // Returns the results of layers that take the same input, side by side in the last dimension:
  // cat({a(input), b(input)}, -1). If they are alike and no hook is in effect, one product computes
  // them, with their weights joined.
  static Tensor joined(const std::vector<Linear*>& layers, const Tensor& input);
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias
  BuiltOptions<LinearAllArgs> options;

 protected:
  static constexpr int64_t kLazy = INT64_MIN;  // in_features of the first input
  void create(int64_t in_features);
};

// A Linear that takes in_features from its first input. Until then parameters() throws.
class LazyLinear final : public Layer<LazyLinear, Linear> {
 public:
  explicit LazyLinear(int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& input) override;
};

// Computes x1 @ weight[k] @ x2 + bias[k] for each output k: (..., in1) and (..., in2) to (...,
// out). weight is (out, in1, in2), bias is (out); both are initialized uniformly in +-1 /
// sqrt(in1).
class Bilinear final : public Callable<Bilinear> {
 public:
  using Callable::Callable;
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool bias = true);
  Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, LinearArgs options)
      : Bilinear(in1_features, in2_features, out_features, options.bias) {}
  Tensor forward(const Tensor& input1, const Tensor& input2);
  double flops(const Tensor& input, const Tensor& output) const override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias
  BuiltOptions<BilinearAllArgs> options;
};

class Identity final : public Layer<Identity> {
 public:
  using Layer::Layer;
  Tensor forward(const Tensor& input) override { return input; }
};

struct FlattenArgs {
  int64_t start_dim = 1;
  int64_t end_dim = -1;
};
using FlattenOptions = Options<FlattenArgs>;

// Collapses dimensions `start_dim` to `end_dim`, inclusive, into one.
class Flatten final : public LayerWith<Flatten, FlattenArgs> {
 public:
  using LayerWith::LayerWith;
  explicit Flatten(int64_t start_dim, int64_t end_dim = -1) : LayerWith({start_dim, end_dim}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

using UnflattenOptions = Options<NoArgs, int64_t, std::vector<int64_t>>;

struct UnflattenAllArgs {
  int64_t dim = 0;
  std::vector<int64_t> sizes = {};
};

// Splits dimension `dim` into dimensions of `sizes`, one of which may be -1.
class Unflatten final : public LayerWith<Unflatten, UnflattenAllArgs> {
 public:
  using LayerWith::LayerWith;
  Unflatten(int64_t dim, IntList sizes) : LayerWith({dim, sizes.vec()}) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
};

struct EmbeddingArgs {
  // A row that stays zero and gets no gradient; a negative one counts from the last.
  std::optional<int64_t> padding_idx = {};
  bool scale_grad_by_freq = false;
  // The longest that a row may be, in the norm `norm_type`: forward first shortens longer ones of
  // the rows that it looks up, in `weight` itself.
  std::optional<double> max_norm = {};
  double norm_type = 2;
};
using EmbeddingOptions = Options<EmbeddingArgs, int64_t, int64_t>;

struct EmbeddingAllArgs : EmbeddingArgs {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
};

struct EmbeddingFromPretrainedArgs {
  bool freeze = true;                       // whether `weight` requires no gradient
  std::optional<int64_t> padding_idx = {};  // and so on, as of EmbeddingArgs
  std::optional<double> max_norm = {};
  double norm_type = 2;
  bool scale_grad_by_freq = false;
};
using EmbeddingFromPretrainedOptions = Options<EmbeddingFromPretrainedArgs>;

// Looks up rows of a table by int64 index: (...) to (..., width). weight is initialized from the
// standard normal distribution.
class Embedding final : public Layer<Embedding> {
 public:
  using Layer::Layer;
  Embedding(int64_t num_embeddings, int64_t width, EmbeddingArgs options = {});
  // Returns a table of given rows, (num_embeddings, width), whose memory it shares. Throws
  // Error(kShape) for other shapes, and Error(kType) for rows of integers.
  static Embedding from_pretrained(const Tensor& embeddings,
                                   EmbeddingFromPretrainedArgs options = {});
  static Embedding from_pretrained(const Tensor& embeddings,
                                   const EmbeddingFromPretrainedOptions& options) {
    return from_pretrained(embeddings, options.args());
  }
  Tensor forward(const Tensor& indices) override;
  std::string describe() const override;
  void reset_parameters();
  std::optional<int64_t> padding_idx() const { return options->padding_idx; }

  Tensor weight;  // (num_embeddings, width)
  BuiltOptions<EmbeddingAllArgs> options;

 private:
  Embedding(const Tensor& embeddings, bool freeze, EmbeddingArgs options);
};

enum class EmbeddingBagMode { kSum, kMean, kMax };
EmbeddingBagMode from_name(Str name, EmbeddingBagMode);  // NOLINT: named by its type
const char* name_of(EmbeddingBagMode mode);

struct EmbeddingBagArgs {
  OneOf<EmbeddingBagMode> mode = EmbeddingBagMode::kMean;  // or "sum", "mean", "max"
  std::optional<int64_t> padding_idx = {};  // as of Embedding; such indices are left out of bags
  bool scale_grad_by_freq = false;
  bool include_last_offset = false;     // whether the last offset is the number of indices
  std::optional<double> max_norm = {};  // as of Embedding
  double norm_type = 2;
};
using EmbeddingBagOptions = Options<EmbeddingBagArgs, int64_t, int64_t>;

struct EmbeddingBagAllArgs : EmbeddingBagArgs {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
};

struct EmbeddingBagFromPretrainedArgs {
  bool freeze = true;                                      // whether `weight` requires no gradient
  OneOf<EmbeddingBagMode> mode = EmbeddingBagMode::kMean;  // and so on, as of EmbeddingBagArgs
  std::optional<int64_t> padding_idx = {};
  bool scale_grad_by_freq = false;
  bool include_last_offset = false;
  std::optional<double> max_norm = {};
  double norm_type = 2;
};
using EmbeddingBagFromPretrainedOptions = Options<EmbeddingBagFromPretrainedArgs>;

// Looks up rows of a table and combines those of each bag into one: (bags, n) to (bags, width), or
// (n) with the index of each bag's first element in `offsets` to (bags, width). An empty bag gives
// zeros. weight is initialized from the standard normal distribution.
class EmbeddingBag final : public Callable<EmbeddingBag> {
 public:
  using Callable::Callable;
  EmbeddingBag(int64_t num_embeddings, int64_t width, EmbeddingBagArgs options = {});
  // As of Embedding.
  static EmbeddingBag from_pretrained(const Tensor& embeddings,
                                      EmbeddingBagFromPretrainedArgs options = {});
  static EmbeddingBag from_pretrained(const Tensor& embeddings,
                                      const EmbeddingBagFromPretrainedOptions& options) {
    return from_pretrained(embeddings, options.args());
  }
  // `per_sample_weights`, in the shape of `indices`, scale the rows; only for the mode kSum.
  Tensor forward(const Tensor& indices, const Tensor& offsets = {},
                 const Tensor& per_sample_weights = {});
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // (num_embeddings, width)
  BuiltOptions<EmbeddingBagAllArgs> options;

 private:
  EmbeddingBag(const Tensor& embeddings, bool freeze, EmbeddingBagArgs options);
};

}  // namespace mytorch::nn
