// Rules of products and of the layers of networks: the batch becomes part of another dimension.
#include <algorithm>

#include "autograd/vmap/rule_functions.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/unflatten.h"
#include "mytorch/ops/unsqueeze.h"

namespace mytorch::autograd::batch::rules {

bool product(BatchedCall& call) {
  const int64_t rank = call.name() == "mm" ? 2 : 3;
  BatchedArg& a = call.part("self");
  BatchedArg& b = call.part("mat2");
  if (a.rank != rank || b.rank != rank) return false;
  const auto size = [](const BatchedArg& part, int64_t d) {
    return part.tensor.size(d - part.rank);
  };
  if (size(a, rank - 1) != size(b, rank - 2) || (rank == 3 && size(a, 0) != size(b, 0)))
    return false;
  if (a.tensor.dtype() != b.tensor.dtype()) return false;
  call.results = {mytorch::matmul(a.tensor, b.tensor)};
  return true;
}

namespace {

// (B, N, C, ...) -> (N, B * C, ...), and back.
Tensor folded_channels(const Tensor& x) {
  return mytorch::flatten(mytorch::transpose(x, 0, 1), 1, 2);
}

Tensor unfolded_channels(const Tensor& x, int64_t batch) {
  return mytorch::transpose(mytorch::unflatten(x, 1, {batch, x.size(1) / batch}), 0, 1);
}

void multiply_size(BatchedCall& call, const char* arg, int64_t dim) {
  const int i = call.find(arg);
  Sizes sizes = call.ints(i);
  sizes[static_cast<size_t>(dim)] *= call.size();
  call.args[i] = sizes;
}

void multiply_groups(BatchedCall& call) {
  const int groups = call.find("groups");
  call.args[groups] = call.integer(groups) * call.size();
}

// Convolution and its gradient for the input: `data` is (N, C, ...).
bool convolve(BatchedCall& call, const char* data, const char* input_size) {
  BatchedArg& x = call.part(data);
  BatchedArg& weight = call.part("weight");
  if (x.rank < 3 || x.rank != weight.rank) return false;
  const int bias_at = call.find("bias");
  Tensor bias;  // added at the end, if it differs between examples
  if (bias_at >= 0 && call.has(bias_at) && call.part(bias_at).batched) {
    bias = call.part(bias_at).tensor;
    if (bias.dim() != 2) return false;
    call.drop(bias_at);
  }
  const int64_t batch = call.size();
  if (!weight.batched) {
    if (x.batched) {
      x.tensor = folded(x.tensor);
      if (input_size != nullptr) multiply_size(call, input_size, 0);
    }
    call.invoke_parts();
    Tensor result = call.result();
    if (x.batched) result = unfolded(result, batch);
    if (!x.batched) {
      result =
          mytorch::expand(mytorch::unsqueeze(result, 0), prefixed(batch, result.sizes().vec()));
    }
    call.results = {result};
  } else {
    if (bias_at >= 0 && call.has(bias_at)) {  // shared by all examples
      bias = mytorch::unsqueeze(call.part(bias_at).tensor, 0);
      call.drop(bias_at);
    }
    call.make_batched(x);
    x.tensor = folded_channels(x.tensor);
    weight.tensor = folded(weight.tensor);
    if (input_size != nullptr) multiply_size(call, input_size, 1);
    multiply_groups(call);
    call.invoke_parts();
    call.results = {unfolded_channels(call.result(), batch)};
  }
  if (bias.defined()) {
    Sizes sizes(static_cast<size_t>(x.rank) + 1, 1);
    sizes[0] = bias.size(0);
    sizes[2] = bias.size(1);
    call.results = {mytorch::add(call.result(), mytorch::reshape(bias, sizes))};
  }
  return true;
}

}  // namespace

bool convolution(BatchedCall& call) { return convolve(call, "input", nullptr); }

bool convolution_backward_input(BatchedCall& call) {
  return convolve(call, "grad_output", "input_size");
}

bool convolution_backward_weight(BatchedCall& call) {
  BatchedArg& grad = call.part("grad_output");
  BatchedArg& input = call.part("input");
  if (grad.rank < 3 || grad.rank != input.rank) return false;
  for (BatchedArg* part : {&grad, &input}) {
    call.make_batched(*part);
    part->tensor = folded_channels(part->tensor);
  }
  multiply_size(call, "weight_size", 0);
  multiply_groups(call);
  call.args[call.find("weight_stride")] = Value();
  call.invoke_parts();
  call.results = {unfolded(call.result(), call.size())};
  return true;
}

// Pooling of (N, C, H, W) or (C, H, W).
bool pooling(BatchedCall& call) {
  const std::vector<BatchedArg*> parts = call.all();
  const int64_t rank = parts[0]->rank;
  if (rank != 3 && rank != 4) return false;
  for (BatchedArg* part : parts) {
    if (part->rank != rank) return false;
    call.make_batched(*part);
    if (rank == 4) part->tensor = folded(part->tensor);
  }
  if (const int size = call.find("input_size"); size >= 0) {
    const Sizes sizes = call.ints(size);
    if (static_cast<int64_t>(sizes.size()) != rank) return false;
    if (rank == 4) {
      multiply_size(call, "input_size", 0);
    } else {
      call.args[size] = prefixed(call.size(), sizes);
    }
  }
  call.invoke_parts();
  if (rank == 4) {
    for (Value& result : call.results) result = unfolded(result.tensor(), call.size());
  }
  return true;
}

// The gradient of one table for each example: the rows of all tables lie behind each other.
bool embedding_dense_backward(BatchedCall& call) {
  if (call.args[call.find("scale_grad_by_freq")].scalar().to_bool()) return false;
  if (call.integer(call.find("padding_idx")) >= 0) return false;
  BatchedArg& grad = call.part("grad_output");
  BatchedArg& indices = call.part("indices");
  if (grad.rank != indices.rank + 1) return false;
  const int at = call.find("num_weights");
  const int64_t rows = call.integer(at);
  call.make_batched(grad);
  call.make_batched(indices);
  Sizes sizes(static_cast<size_t>(indices.rank) + 1, 1);
  sizes[0] = call.size();
  const Tensor first = mytorch::arange(0, call.size() * rows, std::max<int64_t>(rows, 1), kInt64,
                                       indices.tensor.device());
  if (rows == 0) return false;
  indices.tensor =
      mytorch::add(mytorch::to(indices.tensor, kInt64), mytorch::reshape(first, sizes));
  call.args[at] = rows * call.size();
  call.invoke_parts();
  call.results = {unfolded(call.result(), call.size())};
  return true;
}

bool embedding(BatchedCall& call) {
  if (call.part("weight").batched) {
    // The gradient of the body lacks these two.
    if (call.integer(call.find("padding_idx")) >= 0 ||
        call.args[call.find("scale_grad_by_freq")].scalar().to_bool()) {
      call.body = nullptr;
    }
    return false;
  }
  call.invoke_parts();
  return true;
}

// Queries, keys and values are (N, H, L, D); the batch becomes part of N.
bool attention(BatchedCall& call) {
  const std::vector<BatchedArg*> parts = call.all();
  const bool draws = call.args[call.find("dropout_p")].scalar().to_double() > 0;
  if (draws && call.same_randomness()) return false;
  const int64_t samples = call.part("query").rank == 4 ? call.part("query").tensor.size(-4) : -1;
  if (samples < 0) return false;
  const auto is = [&](BatchedArg* part, const char* name) {
    const int i = call.find(name);
    return i >= 0 && call.has(i) && part == &call.part(i);
  };
  for (BatchedArg* part : parts) {
    if (is(part, "draw")) {
      if (part->batched) return false;
      continue;
    }
    if (is(part, "slopes")) {  // (H) or (N, H)
      if (part->batched || part->rank == 2) return false;
      continue;
    }
    if (is(part, "attn_mask")) {
      if (part->rank != 4) return false;
      if (!part->batched && part->tensor.size(0) == 1 && call.find("grad_output") < 0) continue;
      call.make_batched(*part);
      Sizes sizes = part->tensor.sizes().vec();
      if (sizes[1] != samples && call.find("grad_output") >= 0) return false;
      sizes[1] = samples;
      part->tensor = folded(mytorch::expand(part->tensor, sizes));
      continue;
    }
    if (part->rank != 4 && part->rank != 3) return false;  // 3: logsumexp and its gradient
    call.make_batched(*part);
    part->tensor = folded(part->tensor);
  }
  call.invoke_parts();
  const bool forward = call.find("grad_output") < 0;
  for (size_t i = 0; i < call.results.size(); ++i) {
    const Tensor result = call.result(i);
    if (!result.defined() || (forward && i == 2)) continue;
    // A gradient that is not wanted is empty.
    if (result.dim() == 0 || result.size(0) != samples * call.size()) return false;
    call.results[i] = unfolded(result, call.size());
  }
  if (forward) call.shared_result = 2;
  return true;
}

}  // namespace mytorch::autograd::batch::rules
