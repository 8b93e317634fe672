#include "mytorch/nn/linear.h"

#include <cmath>
#include <vector>

#include "core/runtime/stream_capture.h"
#include "mytorch/autograd.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/linear_gelu.h"
#include "mytorch/ops/unflatten.h"
#include "nn/functional/options.h"
#include "nn/split.h"

namespace mytorch::nn {

namespace {

// PyTorch's initialization: kaiming_uniform_ with negative slope sqrt(5) has this bound.
void reset_linear(const Tensor& weight, const Tensor& bias) {
  const int64_t in = weight.size(1);
  const double bound = in > 0 ? 1 / std::sqrt(static_cast<double>(in)) : 0;
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

void reset_embedding(const Tensor& weight, std::optional<int64_t> padding_idx) {
  init::normal_(weight);
  if (padding_idx) init::zeros_(weight.detach().select(0, *padding_idx));
}

// Returns a table, and makes the row that pads count from the first.
Tensor embedding_table(const char* module, int64_t rows, int64_t width,
                       std::optional<int64_t>* padding_idx) {
  check_at_least(module, 0, {{"num_embeddings", rows}, {"width", width}});
  *padding_idx = functional::padding_row(*padding_idx, rows, module);
  return empty({rows, width}, kFloat32);
}

// Returns another tensor of the same memory, so that the rows keep their requires_grad.
template <class Args>
Tensor pretrained_table(const char* module, const Tensor& rows, Args* options) {
  if (rows.dim() != 2) {
    fail(ErrorCode::kShape, "[", module, "] the embeddings have shape ", shape_str(rows.sizes()),
         ": give a table (num_embeddings, width)");
  }
  if (!rows.is_floating_point()) {
    fail(ErrorCode::kType, "[", module, "] the embeddings are ", dtype_name(rows.dtype()),
         ": give floating-point numbers");
  }
  options->num_embeddings = rows.size(0);
  options->embedding_dim = rows.size(1);
  options->padding_idx = functional::padding_row(options->padding_idx, rows.size(0), module);
  return rows.detach();
}

}  // namespace

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias)
    : options({{.bias = with_bias}, 0, out_features}) {
  check_at_least("Linear", 0, {{"out_features", out_features}});
  if (in_features != kLazy) create(in_features);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

void Linear::create(int64_t in_features) {
  check_at_least("Linear", 0, {{"in_features", in_features}});
  options.args().in_features = in_features;
  weight = empty({options->out_features, in_features}, kFloat32);
  if (options->bias) bias = empty({options->out_features}, kFloat32);
  reset_parameters();
}

void Linear::reset_parameters() { reset_linear(weight, bias); }

Tensor Linear::forward(const Tensor& input) {
  const Split* split = has_hooks() ? split_of(*this) : nullptr;
  return split != nullptr ? split->forward(*this, input) : linear(input, weight, bias);
}

Tensor Linear::gelu(const Tensor& input, Str approximate) {
  // Hooks see the result of the module, and anomaly mode has its name.
  if (has_hooks() || lazy() || autograd::AnomalyMode::is_enabled()) {
    return mytorch::gelu((*this)(input), approximate);
  }
  try {
    check_not_empty();
    compute_parametrized();
    return linear_gelu(input, weight, bias, approximate);
  } catch (const Error&) {
    rethrow_with_path();
  }
}

Tensor Linear::joined(const std::vector<Linear*>& layers, const Tensor& input) {
  bool apart = layers.empty() || autograd::AnomalyMode::is_enabled();
  for (Linear* layer : layers) {
    layer->check_not_empty();
    layer->compute_parametrized();
    // Few rows cost less than a copy of the weights.
    apart = apart || layer->has_hooks() || layer->lazy() ||
            layer->bias.defined() != layers[0]->bias.defined() ||
            layer->weight.dtype() != layers[0]->weight.dtype() ||
            layer->weight.size(1) != layers[0]->weight.size(1) ||
            input.numel() < layer->weight.numel();
  }
  std::vector<Tensor> weights, biases, results;
  for (Linear* layer : layers) {
    if (apart) {
      results.push_back((*layer)(input));
    } else {
      weights.push_back(layer->weight);
      biases.push_back(layer->bias);
    }
  }
  if (apart) return cat(results, -1);
  return linear(input, cat(weights), layers[0]->bias.defined() ? cat(biases) : Tensor());
}

double Linear::flops(const Tensor& /*input*/, const Tensor& output) const {
  return 2.0 * static_cast<double>(output.numel()) * static_cast<double>(weight.size(1));
}

std::string Linear::describe() const {
  const Split* split = split_of(*this);
  const std::string in_features =
      lazy() ? ""
             : absl::StrCat("in_features=", split ? options->in_features : weight.size(1), ", ");
  return absl::StrCat(lazy() ? "LazyLinear(" : "Linear(", in_features,
                      "out_features=", options->out_features, ", bias=", text(options->bias),
                      split ? ", " + split->describe() : "", ")");
}

LazyLinear::LazyLinear(int64_t out_features, bool bias) : Layer(kLazy, out_features, bias) {
  set_lazy();
}

Tensor LazyLinear::forward(const Tensor& input) {
  if (lazy()) {
    const UnrecordedTensors unrecorded;
    create(lazy_size(input, -1));
    finish_lazy(input);
  }
  return Linear::forward(input);
}

Bilinear::Bilinear(int64_t in1_features, int64_t in2_features, int64_t out_features, bool with_bias)
    : options({{.bias = with_bias}, in1_features, in2_features, out_features}) {
  check_at_least("Bilinear", 1,
                 {{"in1_features", in1_features},
                  {"in2_features", in2_features},
                  {"out_features", out_features}});
  weight = empty({out_features, in1_features, in2_features}, kFloat32);
  if (with_bias) bias = empty({out_features}, kFloat32);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

void Bilinear::reset_parameters() { reset_linear(weight, bias); }

Tensor Bilinear::forward(const Tensor& input1, const Tensor& input2) {
  return functional::bilinear(input1, input2, weight, bias);
}

double Bilinear::flops(const Tensor& /*input*/, const Tensor& output) const {
  return 2.0 * static_cast<double>(output.numel()) *
         static_cast<double>(weight.size(1) * weight.size(2));
}

std::string Bilinear::describe() const {
  return absl::StrCat("Bilinear(in1_features=", weight.size(1), ", in2_features=", weight.size(2),
                      ", out_features=", weight.size(0), ", bias=", text(bias.defined()), ")");
}

Tensor Flatten::forward(const Tensor& input) {
  return flatten(input, options->start_dim, options->end_dim);
}

std::string Flatten::describe() const {
  return absl::StrCat("Flatten(start_dim=", options->start_dim, ", end_dim=", options->end_dim,
                      ")");
}

Tensor Unflatten::forward(const Tensor& input) {
  return unflatten(input, options->dim, options->sizes);
}

std::string Unflatten::describe() const {
  return absl::StrCat("Unflatten(dim=", options->dim, ", sizes=", shape_str(options->sizes), ")");
}

// ---- embeddings ----

Embedding::Embedding(int64_t num_embeddings, int64_t width, EmbeddingArgs options)
    : options({options, num_embeddings, width}) {
  weight = embedding_table("Embedding", num_embeddings, width, &this->options.args().padding_idx);
  register_parameter("weight", weight);
  reset_parameters();
}

Embedding::Embedding(const Tensor& embeddings, bool freeze, EmbeddingArgs options)
    : options({options}) {
  weight = pretrained_table("Embedding", embeddings, &this->options.args());
  register_parameter("weight", weight);
  weight.requires_grad_(!freeze);
}

Embedding Embedding::from_pretrained(const Tensor& embeddings,
                                     EmbeddingFromPretrainedArgs options) {
  return Embedding(embeddings, options.freeze,
                   EmbeddingArgs{.padding_idx = options.padding_idx,
                                 .scale_grad_by_freq = options.scale_grad_by_freq,
                                 .max_norm = options.max_norm,
                                 .norm_type = options.norm_type});
}

void Embedding::reset_parameters() { reset_embedding(weight, options->padding_idx); }

Tensor Embedding::forward(const Tensor& indices) {
  if (const Split* split = has_hooks() ? split_of(*this) : nullptr) {
    return split->forward(*this, indices);
  }
  return functional::embedding(indices, weight, options.args());
}

std::string Embedding::describe() const {
  const Split* split = split_of(*this);
  return absl::StrCat(
      "Embedding(", split ? options->num_embeddings : weight.size(0), ", ", weight.size(1),
      options->padding_idx ? absl::StrCat(", padding_idx=", *options->padding_idx) : "",
      options->max_norm ? absl::StrCat(", max_norm=", *options->max_norm) : "",
      split ? ", " + split->describe() : "", ")");
}

EmbeddingBag::EmbeddingBag(int64_t num_embeddings, int64_t width, EmbeddingBagArgs options)
    : options({options, num_embeddings, width}) {
  weight =
      embedding_table("EmbeddingBag", num_embeddings, width, &this->options.args().padding_idx);
  register_parameter("weight", weight);
  reset_parameters();
}

EmbeddingBag::EmbeddingBag(const Tensor& embeddings, bool freeze, EmbeddingBagArgs options)
    : options({options}) {
  weight = pretrained_table("EmbeddingBag", embeddings, &this->options.args());
  register_parameter("weight", weight);
  weight.requires_grad_(!freeze);
}

EmbeddingBag EmbeddingBag::from_pretrained(const Tensor& embeddings,
                                           EmbeddingBagFromPretrainedArgs options) {
  return EmbeddingBag(embeddings, options.freeze,
                      EmbeddingBagArgs{.mode = options.mode,
                                       .padding_idx = options.padding_idx,
                                       .scale_grad_by_freq = options.scale_grad_by_freq,
                                       .include_last_offset = options.include_last_offset,
                                       .max_norm = options.max_norm,
                                       .norm_type = options.norm_type});
}

void EmbeddingBag::reset_parameters() { reset_embedding(weight, options->padding_idx); }

Tensor EmbeddingBag::forward(const Tensor& indices, const Tensor& offsets,
                             const Tensor& per_sample_weights) {
  return functional::embedding_bag(indices, weight,
                                   {.offsets = offsets,
                                    .per_sample_weights = per_sample_weights,
                                    .mode = options->mode,
                                    .padding_idx = options->padding_idx,
                                    .scale_grad_by_freq = options->scale_grad_by_freq,
                                    .include_last_offset = options->include_last_offset,
                                    .max_norm = options->max_norm,
                                    .norm_type = options->norm_type});
}

namespace {

constexpr const char* kBagModes[] = {"sum", "mean", "max"};

}  // namespace

const char* name_of(EmbeddingBagMode mode) { return kBagModes[static_cast<size_t>(mode)]; }

EmbeddingBagMode from_name(Str name, EmbeddingBagMode /*type*/) {
  return static_cast<EmbeddingBagMode>(index_of_name("EmbeddingBag", name, kBagModes));
}

std::string EmbeddingBag::describe() const {
  const EmbeddingBagMode mode = options->mode;
  return absl::StrCat(
      "EmbeddingBag(", weight.size(0), ", ", weight.size(1),
      ", mode=", kBagModes[static_cast<size_t>(mode)],
      options->padding_idx ? absl::StrCat(", padding_idx=", *options->padding_idx) : "",
      options->max_norm ? absl::StrCat(", max_norm=", *options->max_norm) : "", ")");
}

}  // namespace mytorch::nn
