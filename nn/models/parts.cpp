#include "nn/models/parts.h"

#include <utility>

#include "core/types/errors.h"
#include "mytorch/autograd/function.h"
#include "mytorch/nn/init.h"
#include "mytorch/nn/models/residual_stream.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/as_strided.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/chunk.h"
#include "mytorch/ops/cross_entropy.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/linear_cross_entropy.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/silu.h"
#include "mytorch/ops/swiglu.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/unflatten.h"
#include "nn/serialize/safetensors_header.h"
#include "nn/split.h"

namespace mytorch::nn::models {
namespace {

Tensor exact_gelu(const Tensor& x) { return gelu(x); }
Tensor tanh_gelu(const Tensor& x) { return gelu(x, "tanh"); }
Tensor plain_relu(const Tensor& x) { return relu(x); }
Tensor plain_silu(const Tensor& x) { return silu(x); }

struct SplitQkv : autograd::Function<SplitQkv> {
  static autograd::tensor_list forward(autograd::AutogradContext* /*ctx*/, const Tensor& packed,
                                       int64_t heads) {
    autograd::tensor_list parts = chunk(packed, 3, -1);
    for (Tensor& part : parts) part = split_heads(part, heads);
    return parts;
  }
  static autograd::tensor_list backward(autograd::AutogradContext* /*ctx*/,
                                        autograd::tensor_list grads) {
    if (are_packed(grads)) {
      const Tensor& first = grads[0];
      const int64_t row = first.stride(2);
      return {as_strided(first, {first.size(0), first.size(2), row}, {first.stride(0), row, 1},
                         first.storage_offset()),
              Tensor()};
    }
    for (Tensor& grad : grads) grad = join_heads(grad);
    return {cat(grads, -1), Tensor()};
  }
  // Whether gradients (N, heads, L, D) already lie side by side in one tensor (N, L, 3 * heads *
  // D), as attention leaves them.
  static bool are_packed(const autograd::tensor_list& grads) {
    const Tensor& first = grads[0];
    const int64_t width = first.size(1) * first.size(3), row = 3 * width;
    const std::vector<int64_t> strides{first.size(2) * row, first.size(3), row, 1};
    int64_t offset = first.storage_offset();
    for (const Tensor& grad : grads) {
      if (grad.impl()->storage != first.impl()->storage || !(grad.strides() == IntList(strides)) ||
          grad.sizes() != first.sizes() || grad.storage_offset() != offset ||
          grad.requires_grad()) {
        return false;
      }
      offset += width;
    }
    return first.numel() != 0;
  }
};

constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", exact_gelu},     {"gelu_new", tanh_gelu}, {"gelu_pytorch_tanh", tanh_gelu},
    {"gelu_fast", tanh_gelu}, {"relu", plain_relu},    {"silu", plain_silu},
    {"swish", plain_silu},
};

}  // namespace

Activation activation_of(const char* what, const std::string& name) {
  std::string known;
  for (const auto& [own, function] : kActivations) {
    if (name == own) return function;
    absl::StrAppend(&known, known.empty() ? "" : ", ", own);
  }
  fail(ErrorCode::kValue, "[", what, "] there is no activation '", shown(name), "': give one of ",
       known);
}

Tensor ResidualStream::sum() const { return branch.defined() ? add(x, branch) : x; }

Tensor activated(Activation activation, Linear& linear, const Tensor& x) {
  if (activation == exact_gelu) return linear.gelu(x);
  if (activation == tanh_gelu) return linear.gelu(x, "tanh");
  return activation(linear(x));
}

Tensor gated(Activation activation, const Tensor& gate, const Tensor& up) {
  return activation == plain_silu ? swiglu(gate, up) : mul(activation(gate), up);
}

void check_heads(const char* what, const char* width_name, int64_t width, const char* heads_name,
                 int64_t heads) {
  if (width % heads != 0) {
    fail(ErrorCode::kValue, "[", what, "] ", heads_name, " ", heads, " does not divide ",
         width_name, " ", width);
  }
}

void check_ids(const char* what, const Tensor& ids) {
  if (ids.dim() != 2) {
    fail(ErrorCode::kShape, "[", what, "] input_ids has shape ", shape_str(ids.sizes()),
         ", expected (sequences, tokens)");
  }
}

void check_length(const char* what, int64_t count, const char* limit, int64_t longest) {
  if (count > longest) {
    fail(ErrorCode::kShape, "[", what, "] a sequence has ", count, " tokens, but ", limit, " is ",
         longest, ": cut it");
  }
}

Tensor first_rows(Embedding& table, int64_t count) {
  if (split_of(table) == nullptr) return narrow(table.weight, 0, 0, count);
  return table(arange(count, kInt64, table.weight.device()));
}

void reset_normal(Linear& linear, double std) {
  init::normal_(linear.weight, 0, std);
  if (linear.bias.defined()) init::zeros_(linear.bias);
}

Tensor split_heads(const Tensor& x, int64_t heads) {
  return transpose(unflatten(x, -1, {heads, x.size(-1) / heads}), 1, 2);
}

Tensor join_heads(const Tensor& x) { return flatten(transpose(x, 1, 2), 2); }

std::vector<Tensor> split_qkv(const Tensor& packed, int64_t heads) {
  return SplitQkv::apply(packed, heads);
}

namespace {

// `outputs` is (N, L, ...).
void check_targets(const char* what, const Tensor& outputs, const Tensor& targets) {
  if (targets.dim() != 2 || targets.size(0) != outputs.size(0) ||
      targets.size(1) != outputs.size(1)) {
    fail(ErrorCode::kShape, "[", what, "] targets has shape ", shape_str(targets.sizes()),
         ", expected that of input_ids, (", outputs.size(0), ", ", outputs.size(1), ")");
  }
}

}  // namespace

Tensor token_loss(const char* what, const Tensor& logits, const Tensor& targets) {
  check_targets(what, logits, targets);
  return cross_entropy(flatten(logits, 0, 1), flatten(targets));
}

Tensor chunked_token_loss(const char* what, const Tensor& features, const Linear& head,
                          const Tensor& targets) {
  if (const Split* split = split_of(head)) return split->token_loss(head, features, targets);
  check_targets(what, features, targets);
  return linear_cross_entropy(features, head.weight, targets, head.bias);
}

}  // namespace mytorch::nn::models
