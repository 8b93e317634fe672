#include "mytorch/nn/linear.h"

#include <cmath>

#include "mytorch/nn/init.h"
#include "mytorch/ops/embedding.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/linear.h"
#include "nn/modules/options.h"

namespace mytorch::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) {
  check_at_least("Linear", 0, {{"in_features", in_features}, {"out_features", out_features}});
  weight = empty({out_features, in_features}, kFloat32);
  if (with_bias) bias = empty({out_features}, kFloat32);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

// PyTorch's initialization: kaiming_uniform_ with negative slope sqrt(5) has this bound.
void Linear::reset_parameters() {
  const int64_t in = weight.size(1);
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& input) { return linear(input, weight, bias); }

std::string Linear::describe() const {
  return absl::StrCat("Linear(in_features=", weight.size(1), ", out_features=", weight.size(0),
                      ", bias=", text(bias.defined()), ")");
}

Tensor Flatten::forward(const Tensor& input) { return flatten(input, start_dim_, end_dim_); }

std::string Flatten::describe() const {
  return absl::StrCat("Flatten(start_dim=", start_dim_, ", end_dim=", end_dim_, ")");
}

Embedding::Embedding(int64_t num_embeddings, int64_t width, EmbeddingOptions options)
    : options_(options) {
  check_at_least("Embedding", 0, {{"num_embeddings", num_embeddings}, {"width", width}});
  if (options.padding_idx < -1 || options.padding_idx >= num_embeddings) {
    fail(ErrorCode::kValue, "[Embedding] padding_idx ", options.padding_idx, " is not a row of ",
         num_embeddings, ": give one from 0 to ", num_embeddings - 1, ", or -1 for none");
  }
  weight = empty({num_embeddings, width}, kFloat32);
  register_parameter("weight", weight);
  reset_parameters();
}

void Embedding::reset_parameters() {
  init::normal_(weight);
  if (options_.padding_idx >= 0) init::zeros_(weight.detach().select(0, options_.padding_idx));
}

Tensor Embedding::forward(const Tensor& indices) {
  return embedding(weight, indices, options_.padding_idx, options_.scale_grad_by_freq);
}

std::string Embedding::describe() const {
  return absl::StrCat(
      "Embedding(", weight.size(0), ", ", weight.size(1),
      options_.padding_idx < 0 ? "" : absl::StrCat(", padding_idx=", options_.padding_idx), ")");
}

}  // namespace mytorch::nn
