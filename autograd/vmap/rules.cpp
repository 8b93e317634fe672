// The rules, by the kind of the record where that determines them, else by name.
#include "autograd/vmap/rules.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "core/types/errors.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/native_dropout_backward.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/prod.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/unflatten.h"
#include "mytorch/ops/unsqueeze.h"
#include "ops/gradients.h"

namespace mytorch::autograd::batch {
namespace {

using Sizes = std::vector<int64_t>;

Sizes prefixed(int64_t first, const Sizes& rest) {
  Sizes sizes = {first};
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return sizes;
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// ---- pointwise ----

int category(ScalarType type) { return is_floating_point(type) ? 2 : type == kBool ? 0 : 1; }

// A 0-dim tensor promotes only by category, but with a batch dimension it would by type: converts
// it to the type of the others. If all are 0-dim, makes the unbatched ones 1-dim, so that all
// promote by type.
void keep_promotion(Call& call) {
  if (call.op.promote == Promote::kNone || call.op.promote == Promote::kFirst) return;
  std::vector<Part*> parts;  // that take part in promotion
  std::optional<ScalarType> type;
  for (int i = 0; i < call.op.num_args; ++i) {
    if (!call.op.args[i].promotes || !call.has(i)) continue;
    Part& part = call.part(i);
    parts.push_back(&part);
    if (part.rank == 0) continue;
    type = type.has_value() ? promote_types(*type, part.tensor.dtype()) : part.tensor.dtype();
  }
  for (Part* part : parts) {
    if (part->rank != 0) continue;
    if (!type.has_value()) {
      if (!part->batched) part->tensor = mytorch::unsqueeze(part->tensor, 0);
    } else if (part->batched && category(part->tensor.dtype()) <= category(*type)) {
      part->tensor = mytorch::to(part->tensor, *type);
    }
  }
}

// Aligns the dimensions of the examples; operands without a batch dimension broadcast.
bool pointwise(Call& call) {
  const std::vector<Part*> parts = call.all();
  int64_t rank = 0;
  for (const Part* part : parts) rank = std::max(rank, part->rank);
  keep_promotion(call);
  for (Part* part : parts) {
    if (part->batched) call.raise(*part, rank);
  }
  call.invoke_parts();
  return true;
}

// The same for operators whose results do not broadcast: every operand is batched.
bool aligned(Call& call) {
  const std::vector<Part*> parts = call.all();
  int64_t rank = 0;
  for (const Part* part : parts) rank = std::max(rank, part->rank);
  for (Part* part : parts) {
    call.make_batched(*part);
    call.raise(*part, rank);
  }
  call.invoke_parts();
  return true;
}

// ---- operators along dimensions ----

bool names_dim(std::string_view arg) { return arg.substr(0, 3) == "dim"; }
bool names_sizes(std::string_view arg) {
  return is_one_of(arg, {"size", "input_sizes", "input_size"});
}

// Calls the operator with the batch dimension in front: moves the arguments that name dimensions
// behind it, and completes sizes.
bool shifted(Call& call) {
  const bool reduces = call.op.meaning == Meaning::kReduce;
  const std::vector<Part*> parts = call.all();
  if (parts.empty()) return false;
  int64_t rank = call.first().rank;
  for (const char* input : {"input_sizes", "input_size"}) {
    if (const int i = call.find(input); i >= 0) rank = static_cast<int64_t>(call.ints(i).size());
  }
  for (Part* part : parts) call.make_batched(*part);
  // A 0-dim example has one dimension where dimensions are named.
  const bool scalar = rank == 0 && (call.op.meaning != Meaning::kView ||
                                    is_one_of(call.name(), {"transpose", "unfold"}));
  const int64_t rank_of_result = call.name() == "gather"   ? call.part("index").rank
                                 : call.name() == "unfold" ? rank + 1
                                                           : rank;
  if (scalar) {
    rank = 1;
    if (call.name() == "unfold_backward") call.raise(call.first(), 2);
  }
  if (scalar || is_one_of(call.name(), {"gather", "scatter", "scatter_add"})) {
    for (Part* part : parts) call.raise(*part, 1);
  }
  const bool inserts = call.name() == "unsqueeze";
  Sizes every;
  for (int64_t d = 1; d <= rank; ++d) every.push_back(d);
  for (int i = 0; i < call.op.num_args; ++i) {
    const ArgInfo& arg = call.op.args[i];
    Value& value = call.args[i];
    const auto moved = [&](int64_t dim) {
      return wrap_dim(dim, inserts ? rank + 1 : rank, call.op.base) + 1;
    };
    if (names_dim(arg.name) && arg.type == ArgType::kInt) {
      if (value.is_none()) return false;
      value = moved(call.integer(i));
    } else if (names_dim(arg.name) && arg.type == ArgType::kIntList) {
      if (reduces && (value.is_none() || call.ints(i).empty())) {
        value = every;
        continue;
      }
      if (value.is_none()) return false;
      Sizes dims = call.ints(i);
      for (int64_t& dim : dims) dim = moved(dim);
      value = call.name() == "permute" ? prefixed(0, dims) : dims;
    } else if (names_sizes(arg.name) && arg.type == ArgType::kIntList) {
      value = prefixed(call.size(), scalar ? Sizes{1} : call.ints(i));
    }
  }
  call.invoke_parts();
  if (scalar && rank_of_result < rank + (call.name() == "unfold" ? 1 : 0)) {
    for (Value& result : call.results) {
      if (result.tensor().dim() > rank_of_result + 1) result = mytorch::squeeze(result.tensor(), 1);
    }
  }
  return true;
}

// Reductions of all elements that have no list of dimensions.
bool reduced(Call& call) {
  const int dim = call.find("dim");
  if (dim >= 0 && (call.op.args[dim].type == ArgType::kIntList || !call.args[dim].is_none())) {
    return shifted(call);
  }
  const Tensor& value = call.first().tensor;
  const int64_t rank = call.first().rank;
  const Tensor flat =
      rank == 1 ? value : mytorch::reshape(value, {call.size(), value.numel() / call.size()});
  if (call.name() == "max") {
    call.results = {mytorch::amax(flat, 1)};
  } else if (call.name() == "min") {
    call.results = {mytorch::amin(flat, 1)};
  } else if (call.name() == "prod") {
    const Value& dtype = call.args[call.find("dtype")];
    call.results = {mytorch::prod(
        flat, 1, false,
        dtype.is_none() ? std::nullopt : std::optional(std::get<ScalarType>(dtype.variant())))};
  } else {  // argmax, argmin
    const int keepdim = call.find("keepdim");
    const bool keep = call.args[keepdim].scalar().to_bool();
    call.first().tensor = flat;
    call.args[dim] = int64_t{1};
    call.args[keepdim] = false;
    call.invoke_parts();
    if (keep) {
      const Sizes ones(static_cast<size_t>(rank), 1);
      call.results = {mytorch::reshape(call.result(), prefixed(call.size(), ones))};
    }
  }
  return true;
}

// ---- views ----

bool view(Call& call) {
  Part& self = call.first();
  const Tensor& x = self.tensor;
  if (call.name() == "view") {
    const int size = call.find("size");
    if (size >= 0) {
      call.args[size] = prefixed(call.size(), call.ints(size));
    } else if (self.rank == 0) {
      return false;  // of another type: the batch would be the dimension that grows or shrinks
    }
    call.invoke_parts();
    return true;
  }
  if (call.name() == "expand") {
    const Sizes sizes = call.ints(call.find("size"));
    call.raise(self, static_cast<int64_t>(sizes.size()));
    call.args[call.find("size")] = prefixed(call.size(), sizes);
    call.invoke_parts();
    return true;
  }
  if (call.name() == "squeeze") {
    const int at = call.find("dim");
    Sizes dims;
    if (at < 0) {
      for (int64_t d = 0; d < self.rank; ++d) dims.push_back(d);
    } else if (call.op.args[at].type == ArgType::kInt) {
      dims = {call.integer(at)};
    } else {
      dims = call.ints(at);
    }
    if (self.rank == 0) dims.clear();
    for (int64_t& dim : dims) dim = wrap_dim(dim, self.rank, "squeeze") + 1;
    call.results = {mytorch::squeeze(x, dims)};
    return true;
  }
  if (call.name() == "as_strided_relative") {
    call.args[call.find("size")] = prefixed(call.size(), call.ints(call.find("size")));
    call.args[call.find("stride")] = prefixed(x.stride(0), call.ints(call.find("stride")));
    call.invoke_parts();
    return true;
  }
  return shifted(call);
}

// ---- operators that take a batched value as they take an example ----

bool direct(Call& call) {
  if (!call.first().batched) return false;
  call.invoke_parts();
  return true;
}

// As above if only the first tensor is batched.
bool direct_first(Call& call) {
  for (Part* part : call.all()) {
    if (part->batched != (part == &call.first())) return false;
  }
  call.invoke_parts();
  return true;
}

bool converted(Call& call) {  // to(other) reads only the type and device of `other`
  call.shared = !call.first().batched;
  call.invoke_parts();
  return true;
}

bool new_like(Call& call) {  // new_zeros(self, size): batched, so that it can be written
  const int size = call.find("size");
  call.args[size] = prefixed(call.size(), call.ints(size));
  call.invoke_parts();
  return true;
}

bool pad(Call& call) {
  const int pad = call.find("pad");
  if (static_cast<int64_t>(call.ints(pad).size()) > 2 * call.first().rank) return false;
  return direct(call);
}

bool index_select(Call& call) {
  if (call.part("index").batched || call.first().rank == 0) return false;
  const int dim = call.find("dim");
  call.args[dim] = wrap_dim(call.integer(dim), call.first().rank, "index_select") + 1;
  call.invoke_parts();
  return true;
}

bool join(Call& call) {
  const std::vector<Part*> parts = call.all();
  const auto passed_over = [](const Part& part) {  // empty 1-dim tensors, as cat does
    return part.rank == 1 && part.tensor.numel() == 0;
  };
  std::vector<Part> kept;
  for (Part* part : parts) {
    if (part->rank == 0) return false;
    if (!passed_over(*part)) kept.push_back(*part);
  }
  if (kept.empty()) {
    for (Part* part : parts) kept.push_back(*part);
  }
  for (Part& part : kept) {
    if (part.rank != kept[0].rank) return false;
  }
  if (kept.size() != parts.size()) {  // they take part in promotion
    ScalarType type = parts[0]->tensor.dtype();
    for (Part* part : parts) type = promote_types(type, part->tensor.dtype());
    for (Part& part : kept) part.tensor = mytorch::to(part.tensor, type);
  }
  for (Part& part : kept) call.make_batched(part);
  call.args[1] = wrap_dim(call.integer(1), kept[0].rank, "cat") + 1;
  call.parts[0] = std::move(kept);
  call.invoke_parts();
  return true;
}

// ---- products ----

bool product(Call& call) {
  const int64_t rank = call.name() == "mm" ? 2 : 3;
  Part& a = call.part("self");
  Part& b = call.part("mat2");
  if (a.rank != rank || b.rank != rank) return false;
  const auto size = [](const Part& part, int64_t d) { return part.tensor.size(d - part.rank); };
  if (size(a, rank - 1) != size(b, rank - 2) || (rank == 3 && size(a, 0) != size(b, 0)))
    return false;
  if (a.tensor.dtype() != b.tensor.dtype()) return false;
  call.results = {mytorch::matmul(a.tensor, b.tensor)};
  return true;
}

// ---- convolution and pooling: the batch becomes part of the dimension of samples or of groups
// ----

// (B, N, ...) -> (B * N, ...), and back.
Tensor folded(const Tensor& x) { return mytorch::flatten(x, 0, 1); }
Tensor unfolded(const Tensor& x, int64_t batch) {
  Sizes sizes = x.sizes().vec();
  sizes[0] /= batch;
  return mytorch::reshape(x, prefixed(batch, sizes));
}
// (B, N, C, ...) -> (N, B * C, ...), and back.
Tensor folded_channels(const Tensor& x) {
  return mytorch::flatten(mytorch::transpose(x, 0, 1), 1, 2);
}
Tensor unfolded_channels(const Tensor& x, int64_t batch) {
  return mytorch::transpose(mytorch::unflatten(x, 1, {batch, x.size(1) / batch}), 0, 1);
}

void multiply_size(Call& call, const char* arg, int64_t dim) {
  const int i = call.find(arg);
  Sizes sizes = call.ints(i);
  sizes[static_cast<size_t>(dim)] *= call.size();
  call.args[i] = sizes;
}
void multiply_groups(Call& call) {
  const int groups = call.find("groups");
  call.args[groups] = call.integer(groups) * call.size();
}

// Convolution and its gradient for the input: `data` is (N, C, ...).
bool convolve(Call& call, const char* data, const char* input_size) {
  Part& x = call.part(data);
  Part& weight = call.part("weight");
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

bool convolution(Call& call) { return convolve(call, "input", nullptr); }
bool convolution_backward_input(Call& call) { return convolve(call, "grad_output", "input_size"); }

bool convolution_backward_weight(Call& call) {
  Part& grad = call.part("grad_output");
  Part& input = call.part("input");
  if (grad.rank < 3 || grad.rank != input.rank) return false;
  for (Part* part : {&grad, &input}) {
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
bool pooling(Call& call) {
  const std::vector<Part*> parts = call.all();
  const int64_t rank = parts[0]->rank;
  if (rank != 3 && rank != 4) return false;
  for (Part* part : parts) {
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

// ---- embedding ----

// The gradient of one table for each example: the rows of all tables lie behind each other.
bool embedding_dense_backward(Call& call) {
  if (call.args[call.find("scale_grad_by_freq")].scalar().to_bool()) return false;
  if (call.integer(call.find("padding_idx")) >= 0) return false;
  Part& grad = call.part("grad_output");
  Part& indices = call.part("indices");
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

bool embedding(Call& call) {
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

// ---- attention ----

// Queries, keys and values are (N, H, L, D); the batch becomes part of N.
bool attention(Call& call) {
  const std::vector<Part*> parts = call.all();
  const bool draws = call.args[call.find("dropout_p")].scalar().to_double() > 0;
  if (draws && call.same_randomness()) return false;
  const int64_t samples = call.part("query").rank == 4 ? call.part("query").tensor.size(-4) : -1;
  if (samples < 0) return false;
  const auto is = [&](Part* part, const char* name) {
    const int i = call.find(name);
    return i >= 0 && call.has(i) && part == &call.part(i);
  };
  for (Part* part : parts) {
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

// ---- writes ----

bool copy(Call& call) {
  Part& self = call.first();
  Part& src = *call.all()[1];
  if (src.batched && !self.batched) {
    call.refuse(
        "writes batched values into a tensor that all examples share: write into a batched one, "
        "such "
        "as zeros_like(x) of a batched x, or build the result with cat, stack or where");
  }
  if (src.rank > self.rank) {
    fail(ErrorCode::kShape, "[", call.op.base, "] a tensor of ", src.rank,
         " dimensions does not broadcast to one of ", self.rank);
  }
  if (src.batched) call.raise(src, self.rank);
  mytorch::copy_(self.tensor, src.tensor);
  return true;
}

bool fill(Call& call) {
  if (call.all().size() == 2 && call.all()[1]->batched) return copy(call);
  call.invoke_parts();
  return true;
}

// ---- random numbers ----

// rand(size) and the like.
bool random_of_size(Call& call) {
  call.shared = call.same_randomness();
  const int size = call.find("size");
  if (!call.shared) call.args[size] = prefixed(call.size(), call.ints(size));
  call.invoke_parts();
  return true;
}

bool random_permutation(Call& call) {
  call.shared = call.same_randomness();
  std::vector<Tensor> each;
  for (int64_t i = 0; i < (call.shared ? 1 : call.size()); ++i) {
    call.invoke_parts();
    each.push_back(call.result());
  }
  call.results = {call.shared ? each[0] : mytorch::stack(each)};
  return true;
}

// rand_like(self) and the like.
bool random_like(Call& call) {
  Part& self = call.first();
  if (call.same_randomness()) {
    if (self.batched) self.tensor = mytorch::select(self.tensor, 0, 0);
    call.shared = true;
  } else {
    call.make_batched(self);
  }
  call.invoke_parts();
  return true;
}

// Operators that depend on the values of `self`, too.
bool random_from(Call& call) {
  if (call.same_randomness()) return false;
  call.make_batched(call.first());
  call.invoke_parts();
  return true;
}

bool multinomial(Call& call) {
  Part& self = call.first();
  if (call.same_randomness() || self.rank == 0 || self.rank > 2) return false;
  call.make_batched(self);
  if (self.rank == 2) self.tensor = folded(self.tensor);
  call.invoke_parts();
  if (self.rank == 2) call.results = {unfolded(call.result(), call.size())};
  return true;
}

bool dropout(Call& call) {
  Part& input = call.first();
  if (!call.same_randomness() || !input.batched) return random_from(call) || direct(call);
  // The mask of one example, for all.
  const Value& train = call.args[call.find("train")];
  const std::optional<bool> training =
      train.is_none() ? std::nullopt : std::optional(train.scalar().to_bool());
  const double p = call.args[call.find("p")].scalar().to_double();
  const Tensor value = input.tensor;
  input.tensor = mytorch::ones_like(mytorch::select(value, 0, 0));
  call.invoke_parts();
  const Tensor mask = mytorch::expand(mytorch::unsqueeze(call.result(1), 0), value.sizes());
  call.results = {mytorch::native_dropout_backward(value, mask, grads::dropout_scale(p, training)),
                  mask};
  return true;
}

bool random_write(Call& call) {
  Part& self = call.first();
  const int p = call.find("p");
  Part* probabilities = p >= 0 && call.has(p) ? &call.part(p) : nullptr;
  const bool same = call.same_randomness();
  const bool differs = !same || (probabilities != nullptr && probabilities->batched);
  if (!self.batched && differs) {
    call.refuse(
        "draws other numbers for each example into a tensor that all examples share: draw with "
        "rand, randn or rand_like, which return new ones");
  }
  if (same && probabilities != nullptr && probabilities->batched) return false;
  if (same && self.batched) {
    const Tensor value = self.tensor;
    self.tensor = mytorch::empty_like(mytorch::select(value, 0, 0));
    call.invoke_parts();
    mytorch::copy_(value, self.tensor);
    return true;
  }
  if (probabilities != nullptr && probabilities->batched) call.raise(*probabilities, self.rank);
  call.invoke_parts();
  return true;
}

// ---- the table ----

const absl::flat_hash_map<std::string_view, Rule>& by_name() {
  static const auto* const rules = [] {
    auto* found = new absl::flat_hash_map<std::string_view, Rule>;
    const auto set = [&](Rule rule, std::initializer_list<const char*> names) {
      for (const char* name : names) found->emplace(name, rule);
    };
    set(shifted, {"softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "cumsum",
                  "sort.stable", "topk", "gather", "scatter.src", "scatter_add", "flip",
                  "select_backward", "slice_backward", "diagonal_backward", "unfold_backward"});
    set(direct, {"clone", "contiguous", "to.dtype", "to.device", "empty_like", "zeros_like",
                 "ones_like", "full_like"});
    set(direct_first, {"native_layer_norm", "native_rms_norm", "linear"});
    set(converted, {"to.other"});
    set(new_like, {"new_empty", "new_zeros", "new_ones", "new_full"});
    set(pad, {"constant_pad_nd"});
    set(index_select, {"index_select"});
    set(join, {"cat"});
    set(product, {"mm", "bmm"});
    set(pointwise, {"cdist"});  // whose batches broadcast
    set(aligned, {"cdist_backward"});
    set(convolution, {"convolution"});
    set(convolution_backward_input, {"convolution_backward_input"});
    set(convolution_backward_weight, {"convolution_backward_weight"});
    set(pooling, {"max_pool2d_with_indices", "max_pool2d_with_indices_backward", "avg_pool2d",
                  "avg_pool2d_backward"});
    set(embedding, {"embedding"});
    set(embedding_dense_backward, {"embedding_dense_backward"});
    set(attention, {"attention_forward", "attention_backward"});
    set(copy, {"copy_"});
    set(fill, {"fill_"});
    set(random_of_size, {"rand", "randn", "randint", "randint.low", "normal.float_float"});
    set(random_permutation, {"randperm"});
    set(random_like, {"rand_like", "randn_like"});
    set(random_from, {"bernoulli", "bernoulli.p"});
    set(multinomial, {"multinomial"});
    set(dropout, {"native_dropout"});
    set(random_write,
        {"uniform_", "normal_", "random_.from", "bernoulli_.float", "bernoulli_.Tensor"});
    return found;
  }();
  return *rules;
}

}  // namespace

Rule find_rule(const OpInfo& op) {
  if (const auto found = by_name().find(op.name); found != by_name().end()) return found->second;
  switch (op.meaning) {
    case Meaning::kPointwise:
      return pointwise;
    case Meaning::kReduce:
      return reduced;
    case Meaning::kView:
      return view;
    case Meaning::kComposite:
    case Meaning::kPrimitive:
      return nullptr;
  }
  return nullptr;
}

}  // namespace mytorch::autograd::batch
