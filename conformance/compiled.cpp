// Checks of compiled functions.
#include <set>

#include "conformance/check.h"
#include "conformance/elements.h"
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/error.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/view_as_real.h"

namespace mytorch::conformance {
namespace {

// The tensors among arguments, in order.
std::vector<Tensor> flat_tensors(const Arguments& arguments) {
  std::vector<Tensor> found;
  for (const auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) found.push_back(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& each : *list) {
        if (each.defined()) found.push_back(each);
      }
    }
  }
  return found;
}

// The arguments with other tensors.
Arguments with_tensors(Arguments arguments, const std::vector<Tensor>& tensors) {
  size_t next = 0;
  for (auto& [name, value] : arguments.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) value = tensors[next++];
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      std::vector<Tensor> replaced;
      for (const Tensor& each : *list) replaced.push_back(each.defined() ? tensors[next++] : each);
      value = std::move(replaced);
    }
  }
  return arguments;
}

std::vector<Tensor> flat(const std::vector<Value>& values) {
  std::vector<Tensor> found;
  for (const Value& value : values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
      if (tensor->defined()) found.push_back(tensor->detach());
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
      for (const Tensor& each : *list) {
        if (each.defined()) found.push_back(each.detach());
      }
    }
  }
  return found;
}

// Calls the operator; with `gradients`, as a function of new leaves, whose grads follow the
// results.
std::vector<Tensor> call_flat(const Case& c, const Arguments& arguments,
                              const std::vector<Tensor>& tensors, bool gradients) {
  if (!gradients) return flat(call_named(c.op->name, with_tensors(arguments, tensors)));
  std::vector<Tensor> leaves = tensors;
  for (Tensor& leaf : leaves) {
    if (is_differentiable(leaf.dtype())) leaf = leaf.detach().requires_grad_();
  }
  const std::vector<Value> results = call_named(c.op->name, with_tensors(arguments, leaves));
  Tensor total;
  std::vector<Tensor> found = flat(results);
  for (const Value& value : results) {
    std::vector<Tensor> each;
    if (const auto* tensor = std::get_if<Tensor>(&value.variant())) each = {*tensor};
    if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) each = *list;
    for (const Tensor& result : each) {
      if (!result.defined() || !result.requires_grad()) continue;
      Tensor part = sum(result.is_complex() ? view_as_real(result) : result);
      total = total.defined() ? total + part : part;
    }
  }
  if (!total.defined()) return found;
  total.backward();
  for (const Tensor& leaf : leaves) {
    if (leaf.requires_grad() && leaf.grad().defined()) found.push_back(leaf.grad());
  }
  return found;
}

std::string first_difference(const std::vector<Tensor>& found,
                             const std::vector<Tensor>& expected) {
  if (found.size() != expected.size()) {
    return std::to_string(found.size()) + " tensors instead of " + std::to_string(expected.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const Tensor &a = found[i], &b = expected[i];
    if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes()) || !(a.strides() == b.strides())) {
      return "tensor " + std::to_string(i) + " has another type, shape or strides";
    }
    if (storage_bytes(a.contiguous()) != storage_bytes(b.contiguous())) {
      return "tensor " + std::to_string(i) + " has other bits";
    }
  }
  return "";
}

bool check_form(const Case& c, const Arguments& arguments, bool gradients, const Fail& fail) {
  const std::string check = gradients ? "compiled gradient" : "compiled";
  auto compiled = compile([&](const std::vector<Tensor>& tensors) {
    return call_flat(c, arguments, tensors, gradients);
  });
  constexpr int kCalls = 4;  // recorded, planned, and replayed twice
  for (int call = 0; call < kCalls; ++call) {
    const Arguments eager = copy_of(arguments), own = copy_of(arguments);
    std::vector<Tensor> expected, found;
    try {
      expected = call_flat(c, arguments, flat_tensors(eager), gradients);
    } catch (const Error&) {
      return false;  // compared elsewhere
    }
    try {
      found = compiled(flat_tensors(own));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported && call == 0) return false;
      fail(check, std::string("call ") + std::to_string(call) + " failed: " + error.what());
      return true;
    }
    std::string what = first_difference(found, expected);
    if (what.empty()) what = first_difference(flat_tensors(own), flat_tensors(eager));
    if (what.empty()) continue;
    fail(check, "call " + std::to_string(call) + ": " + what + "\n" + compiled.text());
    return true;
  }
  if (compiled.stats().recorded != 1) {
    fail(check, "recorded " + std::to_string(compiled.stats().recorded) + " times, because " +
                    compiled.stats().reason);
  }
  return true;
}

}  // namespace

bool check_compiled(const Case& c, const Arguments& arguments, const Fail& fail) {
  if (c.op->unspecified() || c.op->random()) return false;
  const bool held = check_form(c, arguments, false, fail);
  if (held && c.op->differentiable() && is_differentiable(c.dtype)) {
    check_form(c, arguments, true, fail);
  }
  return held;
}

}  // namespace mytorch::conformance
