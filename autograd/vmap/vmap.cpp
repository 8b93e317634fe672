#include "mytorch/autograd/vmap.h"

#include <algorithm>
#include <atomic>

#include "autograd/vmap/batched.h"
#include "core/types/errors.h"
#include "mytorch/generator.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/movedim.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/unsqueeze.h"

namespace mytorch::autograd {

std::optional<int64_t> BatchDims::at(size_t i, size_t count, const char* what) const {
  if (same_) return dims_[0];
  if (dims_.size() != count) {
    fail(ErrorCode::kValue, "[vmap] ", what, " has ", dims_.size(), " dimensions for ", count,
         " tensors: give one number for all, or one for each");
  }
  return dims_[i];
}

namespace functional {
namespace {

batch::Randomness randomness_of(const std::string& name) {
  if (name == "error") return batch::Randomness::kError;
  if (name == "different") return batch::Randomness::kDifferent;
  if (name == "same") return batch::Randomness::kSame;
  fail(ErrorCode::kValue, "[vmap] randomness \"", name,
       "\": give \"error\", \"different\" or \"same\"");
}

Tensor moved(const Tensor& x, int64_t from, int64_t to) {
  return from == to ? x : mytorch::movedim(x, from, to);
}

// The inputs of a call, with the batch dimension of each, or nullopt.
struct BatchInputs {
  std::vector<Tensor> inputs;
  std::vector<std::optional<int64_t>> dims;
  int64_t size = 0;
};

BatchInputs batch_of(const std::vector<Tensor>& inputs, const BatchDims& in_dims) {
  BatchInputs found{inputs, {}, 0};
  int first = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::optional<int64_t> dim = in_dims.at(i, inputs.size(), "in_dims");
    if (!inputs[i].defined()) fail(ErrorCode::kValue, "[vmap] input ", i, " is undefined");
    if (dim.has_value()) {
      const Tensor& input = inputs[i];
      if (input.dim() == 0) {
        fail(ErrorCode::kShape, "[vmap] input ", i,
             " is 0-dim, so it has no batch dimension: give std::nullopt for it in in_dims");
      }
      dim = wrap_dim(*dim, input.dim(), "vmap");
      const int64_t size = input.size(*dim);
      if (first >= 0 && size != found.size) {
        fail(ErrorCode::kShape, "[vmap] input ", first, " has ", found.size, " examples and input ",
             i, ", of shape ", shape_str(input.sizes()), ", has ", size, " in dimension ", *dim,
             ": give all the same number, or other in_dims");
      }
      if (first < 0) first = static_cast<int>(i);
      found.size = size;
    }
    found.dims.push_back(dim);
  }
  if (first < 0) {
    fail(
        ErrorCode::kValue,
        "[vmap] no input has a batch dimension: give at least one a number in in_dims, or call the "
        "function itself");
  }
  return found;
}

// Returns the outputs, with the batch dimension in front.
std::vector<Tensor> run(const TensorFunction& f, const BatchInputs& given,
                        batch::Randomness randomness) {
  static std::atomic<uint64_t> last{0};
  std::vector<Tensor> values;
  for (size_t i = 0; i < given.inputs.size(); ++i) {
    const Tensor& input = given.inputs[i];
    values.push_back(given.dims[i].has_value() ? moved(input, *given.dims[i], 0) : input);
  }
  const batch::Level level{batch::state.level, ++last, given.size, randomness};
  std::vector<Tensor> outputs;
  {
    const batch::BatchScope scope({&level, false, 0});
    std::vector<Tensor> examples;
    for (size_t i = 0; i < values.size(); ++i) {
      examples.push_back(batch::wrap(values[i], given.dims[i].has_value()));
    }
    outputs = f(examples);
    if (outputs.empty()) fail(ErrorCode::kValue, "[vmap] the function returned no outputs");
    for (size_t i = 0; i < outputs.size(); ++i) {
      Tensor& output = outputs[i];
      if (!output.defined()) {
        fail(ErrorCode::kValue, "[vmap] output ", i, " of the function is undefined");
      }
      const batch::Batched* batched = batch::find(output.impl(), "vmap");
      const bool has_dim = batched != nullptr && batched->has_dim;
      if (batched != nullptr) output = Tensor(batched->value);
      if (has_dim) continue;
      const batch::BatchScope outside(batch::outside());
      std::vector<int64_t> sizes = output.sizes().vec();
      sizes.insert(sizes.begin(), level.size);
      output = mytorch::expand(mytorch::unsqueeze(output, 0), sizes);
    }
  }
  return outputs;
}

}  // namespace

std::vector<Tensor> vmap(const TensorFunction& f, const std::vector<Tensor>& inputs,
                         const BatchDims& in_dims, const BatchDims& out_dims,
                         const VmapOptions& options) {
  const batch::Randomness randomness = randomness_of(options.randomness);
  const BatchInputs all = batch_of(inputs, in_dims);
  if (options.chunk_size < 0) {
    fail(ErrorCode::kValue, "[vmap] chunk_size is ", options.chunk_size,
         ": give a positive number, or 0 for all examples at once");
  }
  std::vector<Tensor> outputs;
  if (options.chunk_size == 0 || options.chunk_size >= all.size) {
    outputs = run(f, all, randomness);
  } else {
    Generator generator = default_generator();
    const uint64_t call = generator.call();
    std::vector<std::vector<Tensor>> chunks;
    for (int64_t start = 0; start < all.size; start += options.chunk_size) {
      if (randomness == batch::Randomness::kSame) generator.set_call(call);
      BatchInputs chunk = all;
      chunk.size = std::min(options.chunk_size, all.size - start);
      for (size_t i = 0; i < chunk.inputs.size(); ++i) {
        if (!chunk.dims[i].has_value()) continue;
        chunk.inputs[i] = mytorch::narrow(chunk.inputs[i], *chunk.dims[i], start, chunk.size);
      }
      std::vector<Tensor> found = run(f, chunk, randomness);
      chunks.resize(found.size());
      for (size_t i = 0; i < found.size(); ++i) chunks[i].push_back(std::move(found[i]));
    }
    for (const std::vector<Tensor>& each : chunks) outputs.push_back(mytorch::cat(each));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::optional<int64_t> dim = out_dims.at(i, outputs.size(), "out_dims");
    if (!dim.has_value()) {
      fail(ErrorCode::kValue, "[vmap] out_dims has no dimension for output ", i,
           ": outputs always have a batch dimension");
    }
    outputs[i] = moved(outputs[i], 0, wrap_dim(*dim, outputs[i].dim(), "vmap"));
  }
  return outputs;
}

}  // namespace functional
}  // namespace mytorch::autograd
