// Linear layers and embeddings.
#pragma once

#include <cstdint>

#include "mytorch/nn/module.h"

namespace mytorch::nn {

// Computes x @ weight.T + bias over the last dimension: (..., in) to (..., out). weight is (out,
// in), bias is (out); both are initialized uniformly in +-1 / sqrt(in).
class Linear final : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, bool bias = true);
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;
  Tensor bias;  // undefined without bias
};

class Identity final : public Module {
 public:
  Tensor forward(const Tensor& input) override { return input; }
};

// Collapses dimensions `start_dim` to `end_dim`, inclusive, into one.
class Flatten final : public Module {
 public:
  explicit Flatten(int64_t start_dim = 1, int64_t end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& input) override;
  std::string describe() const override;

 private:
  int64_t start_dim_;
  int64_t end_dim_;
};

struct EmbeddingOptions {
  int64_t padding_idx = -1;  // a row that stays zero and gets no gradient; -1 for none
  bool scale_grad_by_freq = false;
};

// Looks up rows of a table by int64 index: (...) to (..., width). weight is initialized from the
// standard normal distribution.
class Embedding final : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t width, EmbeddingOptions options = {});
  Tensor forward(const Tensor& indices) override;
  std::string describe() const override;
  void reset_parameters();

  Tensor weight;  // (num_embeddings, width)

 private:
  EmbeddingOptions options_;
};

}  // namespace mytorch::nn
