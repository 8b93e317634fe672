// Rules of operators along dimensions, and of views.
#include <algorithm>
#include <optional>

#include "autograd/vmap/rule_functions.h"
#include "core/types/errors.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/amin.h"
#include "mytorch/ops/prod.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/unsqueeze.h"

namespace mytorch::autograd::batch::rules {
namespace {

bool names_dim(std::string_view arg) { return arg.substr(0, 3) == "dim"; }

bool names_sizes(std::string_view arg) {
  return is_one_of(arg, {"size", "input_sizes", "input_size"});
}

// Replaces -1 in the sizes of a view of an example, which a batch without examples does not tell.
Sizes whole(Sizes sizes, const Tensor& batch) {
  if (std::count(sizes.begin(), sizes.end(), -1) != 1) return sizes;
  int64_t elements = 1, given = 1;
  for (int64_t d = 1; d < batch.dim(); ++d) elements *= batch.size(d);
  for (const int64_t size : sizes) given *= size == -1 ? 1 : size;
  for (int64_t& size : sizes) {
    if (size == -1 && given > 0 && elements % given == 0) size = elements / given;
  }
  return sizes;
}

}  // namespace

// Calls the operator with the batch dimension in front: moves the arguments that name dimensions
// behind it, and completes sizes.
bool shifted(BatchedCall& call) {
  const bool reduces = call.op.meaning == Meaning::kReduce;
  const std::vector<BatchedArg*> parts = call.all();
  if (parts.empty()) return false;
  int64_t rank = call.first().rank;
  for (const char* input : {"input_sizes", "input_size"}) {
    if (const int i = call.find(input); i >= 0) rank = static_cast<int64_t>(call.ints(i).size());
  }
  for (BatchedArg* part : parts) call.make_batched(*part);
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
    for (BatchedArg* part : parts) call.raise(*part, 1);
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
bool reduced(BatchedCall& call) {
  const int dim = call.find("dim");
  if (dim >= 0 && (call.op.args[dim].type == ArgType::kIntList || !call.args[dim].is_none())) {
    return shifted(call);
  }
  const Tensor& value = call.first().tensor;
  const int64_t rank = call.first().rank;
  const Tensor flat = rank == 1 ? value : mytorch::flatten(mytorch::unsqueeze(value, 1), 1);
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

bool view(BatchedCall& call) {
  BatchedArg& self = call.first();
  const Tensor& x = self.tensor;
  if (call.name() == "view") {
    const int size = call.find("size");
    if (size >= 0) {
      call.args[size] = prefixed(call.size(), whole(call.ints(size), x));
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

}  // namespace mytorch::autograd::batch::rules
