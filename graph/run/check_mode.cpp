#include "graph/run/check_mode.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "graph/run/same_bits.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {

CompileSwitch compile_switch() {
  const char* const given = std::getenv("MYTORCH_COMPILE");
  const std::string_view word = given == nullptr ? "" : given;
  if (word.empty() || word == "on") return CompileSwitch::kOn;
  if (word == "off") return CompileSwitch::kOff;
  if (word == "check") return CompileSwitch::kCheck;
  fail(ErrorCode::kValue, "[compile] MYTORCH_COMPILE is '", word, "': write on, off or check");
}

namespace {

Tensor copy_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone() : Tensor();
}

// Tensors with their grads, and copies of both.
class Snapshot {
 public:
  explicit Snapshot(const std::vector<Tensor>& tensors) : call_(default_generator().call()) {
    for (const Tensor& tensor : tensors) {
      const Tensor grad = tensor.grad();
      entries_.push_back({tensor, copy_of(tensor), grad, copy_of(grad)});
    }
  }

  // Gives the tensors back what they held.
  void restore() const {
    for (const Entry& entry : entries_) {
      write(entry.tensor, entry.data);
      if (entry.grad.defined()) write(entry.grad, entry.grad_data);
      const Tensor now = entry.tensor.grad();
      const bool same =
          now.defined() == entry.grad.defined() && (!now.defined() || now.is_same(entry.grad));
      if (!same) entry.tensor.set_grad(entry.grad);
    }
    default_generator().set_call(call_);
  }

  struct Entry {
    Tensor tensor, data, grad, grad_data;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  uint64_t call() const { return call_; }

 private:
  static void write(const Tensor& to, const Tensor& from) {
    // An expanded tensor is written by none.
    if (!has_internal_overlap(*to.impl())) to.detach().copy_(from);
  }

  std::vector<Entry> entries_;
  uint64_t call_;
};

// Says where two tensors differ first.
std::string difference(const Tensor& plan, const Tensor& function) {
  if (!plan.defined() || !function.defined()) {
    return plan.defined() ? "is defined, and the function leaves it undefined"
                          : "is undefined, and the function defines it";
  }
  if (plan.dtype() != function.dtype() || !(plan.sizes() == function.sizes())) {
    return absl::StrCat("is ", dtype_name(plan.dtype()), " of shape ", shape_str(plan.sizes()),
                        ", and that of the function ", dtype_name(function.dtype()), " of shape ",
                        shape_str(function.sizes()));
  }
  const Tensor a = with_one_nan(plan), b = with_one_nan(function);
  const auto size = static_cast<size_t>(element_size(a.dtype()));
  const auto* x = static_cast<const char*>(a.raw_data());
  const auto* y = static_cast<const char*>(b.raw_data());
  int64_t first = -1, count = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(x + static_cast<size_t>(i) * size, y + static_cast<size_t>(i) * size, size) ==
        0) {
      continue;
    }
    if (first < 0) first = i;
    ++count;
  }
  std::string text = absl::StrCat("of shape ", shape_str(a.sizes()), " differs in ", count, " of ",
                                  a.numel(), " elements, first in element ", first);
  if (a.is_complex()) return text;
  const Tensor p = a.view({-1}).select(0, first), q = b.view({-1}).select(0, first);
  return absl::StrCat(text, ": ", p.item<double>(), ", and ", q.item<double>(), " in the function");
}

void check_same(const std::string& what, const Tensor& plan, const Tensor& function) {
  if (same_bits(plan, function)) return;
  fail(ErrorCode::kInternal, "[compile] ", what, " of the compiled function ",
       difference(plan, function),
       ": if the function reads state of its own, pass it as an argument; else this is a bug");
}

}  // namespace

std::vector<Tensor> run_beside(const Recorded& recorded, const std::vector<Tensor>& arguments,
                               const std::function<std::vector<Tensor>()>& plan,
                               const std::function<std::vector<Tensor>()>& function) {
  std::vector<Tensor> tensors = arguments;
  tensors.insert(tensors.end(), recorded.outside.begin(), recorded.outside.end());
  std::vector<Tensor> results;
  Snapshot before({}), after({});
  {
    const NoGradGuard no_grad;
    before = Snapshot(tensors);
    for (const Tensor& result : plan()) results.push_back(copy_of(result));
    after = Snapshot(tensors);
    before.restore();
  }
  std::vector<Tensor> expected = function();
  const NoGradGuard no_grad;
  if (results.size() != expected.size()) {
    fail(ErrorCode::kInternal, "[compile] the compiled function gives ", results.size(),
         " results, and the function ", expected.size());
  }
  for (size_t i = 0; i < results.size(); ++i) {
    check_same(absl::StrCat("result ", i), results[i], expected[i]);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string what = i < arguments.size()
                                 ? absl::StrCat("argument ", i)
                                 : absl::StrCat("outside(", i - arguments.size(), ")");
    check_same(what, after.entries()[i].data, tensors[i]);
    check_same("the grad of " + what, after.entries()[i].grad_data, tensors[i].grad());
  }
  if (after.call() != default_generator().call()) {
    fail(ErrorCode::kInternal, "[compile] the compiled function draws ",
         after.call() - before.call(), " random calls, and the function ",
         default_generator().call() - before.call());
  }
  return expected;
}

}  // namespace mytorch::graph
