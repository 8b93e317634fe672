// Checks of compiled functions.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "conformance/check.h"
#include "conformance/elements.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "graph/capture/capture.h"
#include "graph/formats/saved.h"
#include "graph/run/same_bits.h"
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/error.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/program.h"

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

std::string first_difference(const std::vector<Tensor>& found, const std::vector<Tensor>& expected,
                             bool gradients = false) {
  if (found.size() != expected.size()) {
    return std::to_string(found.size()) + " tensors instead of " + std::to_string(expected.size());
  }
  for (size_t i = 0; i < found.size(); ++i) {
    const Tensor &a = found[i], &b = expected[i];
    // A sum of gradients has the layout of the one to which the others were added.
    const bool same_layout = gradients || a.strides() == b.strides();
    if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes()) || !same_layout) {
      return "tensor " + std::to_string(i) + " has another type, shape or strides";
    }
    if (!graph::same_bits(a, b)) {
      return "tensor " + std::to_string(i) + " has other bits";
    }
  }
  return "";
}

// Compares a program, as a file holds it, with the function: read back from its text, then run.
// Returns what differs, or "".
std::string check_saved(const Case& c, const Arguments& arguments, bool gradients) {
  const std::vector<Tensor> tensors = flat_tensors(copy_of(arguments));
  std::optional<Program> program;
  try {
    graph::OperatorCapture capture(tensors);
    const std::vector<Tensor> results = call_flat(c, arguments, tensors, gradients);
    const graph::Recorded recorded = capture.finish(results);
    program.emplace(graph::to_saved(recorded, {}), CompileMode::kExact);
    const std::string text = to_text(recorded.graph);
    if (program->text() != text) return "reads back as\n" + program->text() + "from\n" + text;
  } catch (const Error& error) {
    // A generator or a group of this process is in no file.
    if (error.code() == ErrorCode::kUnsupported) return "";
    return std::string("cannot be saved: ") + error.what();
  }
  constexpr int kRuns = 3;  // checked, planned and replayed
  for (int i = 0; i < kRuns; ++i) {
    const Arguments eager = copy_of(arguments), own = copy_of(arguments);
    const std::vector<Tensor> expected = call_flat(c, arguments, flat_tensors(eager), gradients);
    std::string what;
    try {
      what = first_difference(program->run(flat_tensors(own)), expected, gradients);
    } catch (const Error& error) {
      what = error.what();
    }
    if (what.empty()) what = first_difference(flat_tensors(own), flat_tensors(eager));
    if (!what.empty()) return "run " + std::to_string(i) + ": " + what + "\n" + program->text();
  }
  return "";
}

bool takes_regions(Device device) {
  const std::vector<const Backend*> all = backends();
  return std::any_of(all.begin(), all.end(), [&](const Backend* backend) {
    return backend->abi.regions != nullptr && backend->device_slot == checked_device_slot(device);
  });
}

// Returns what is less close than another order of sums explains, or "".
std::string far_apart(const std::vector<Tensor>& found, const std::vector<Tensor>& expected) {
  constexpr double kRoundings = 64;
  if (found.size() != expected.size()) return "another number of tensors";
  for (size_t i = 0; i < found.size(); ++i) {
    const Tensor &a = found[i], &b = expected[i];
    const std::string where = "tensor " + std::to_string(i) + " ";
    if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes())) return where + "has another type";
    const std::vector<Element> x = elements_of(a), y = elements_of(b);
    double largest = 1;
    for (const Element& each : y) {
      if (std::isfinite(each.size())) largest = std::max(largest, each.size());
    }
    const bool rounds = is_floating_point(b.dtype());
    const double allowed = rounds ? kRoundings * epsilon(b.dtype()) * largest : 0;
    for (size_t k = 0; k < x.size(); ++k) {
      const double p = x[k].as_double(), q = y[k].as_double();
      if (p == q || (std::isnan(p) && std::isnan(q)) || std::abs(p - q) <= allowed) continue;
      return where + "has " + std::to_string(p) + " instead of " + std::to_string(q) +
             " as element " + std::to_string(k);
    }
  }
  return "";
}

// Compares compiled functions in the default mode, in which a backend may take every node. Returns
// whether it took one.
bool check_regions(const Case& c, const Arguments& arguments, bool gradients, const Fail& fail) {
  auto compiled = compile([&](const std::vector<Tensor>& tensors) {
    return call_flat(c, arguments, tensors, gradients);
  });
  constexpr int kCalls = 4;  // recorded, planned, and replayed twice
  for (int call = 0; call < kCalls; ++call) {
    const Arguments eager = copy_of(arguments), own = copy_of(arguments);
    const std::vector<Tensor> expected = call_flat(c, arguments, flat_tensors(eager), gradients);
    std::string what;
    try {
      what = far_apart(compiled(flat_tensors(own)), expected);
    } catch (const Error& error) {
      what = error.what();
    }
    if (what.empty()) what = far_apart(flat_tensors(own), flat_tensors(eager));
    if (compiled.stats().regions == 0 && call > 0) return false;
    if (what.empty()) continue;
    std::string report;
    for (const std::string& line : compiled.stats().region_report) report += "\n  " + line;
    fail(gradients ? "region, gradient" : "region",
         "call " + std::to_string(call) + ": " + what + report + "\n" + compiled.text());
    return true;
  }
  return true;
}

bool check_form(const Case& c, const Arguments& arguments, bool gradients, const Fail& fail) {
  const std::string check = gradients ? "compiled gradient" : "compiled";
  auto compiled = compile(
      [&](const std::vector<Tensor>& tensors) {
        return call_flat(c, arguments, tensors, gradients);
      },
      {.mode = CompileMode::kExact});
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
    std::string what = first_difference(found, expected, gradients);
    if (what.empty()) what = first_difference(flat_tensors(own), flat_tensors(eager));
    if (what.empty()) continue;
    fail(check, "call " + std::to_string(call) + ": " + what + "\n" + compiled.text());
    return true;
  }
  if (compiled.stats().recorded != 1) {
    fail(check, "recorded " + std::to_string(compiled.stats().recorded) + " times, because " +
                    compiled.stats().reason);
  }
  const std::string what = check_saved(c, arguments, gradients);
  if (!what.empty()) fail(check + ", saved", what);
  return true;
}

}  // namespace

bool check_compiled(const Case& c, const Arguments& arguments, const Fail& fail, bool* in_regions) {
  if (c.op->unspecified() || c.op->random()) return false;
  const bool held = check_form(c, arguments, false, fail);
  const bool has_gradient = c.op->differentiable() && is_differentiable(c.dtype);
  if (held && has_gradient) check_form(c, arguments, true, fail);
  // Sums of infinities depend on the order.
  const std::vector<Tensor> tensors = flat_tensors(arguments);
  if (!held || c.special() || tensors.empty() || !takes_regions(tensors[0].device())) return held;
  *in_regions = check_regions(c, arguments, false, fail);
  if (has_gradient) *in_regions = check_regions(c, arguments, true, fail) || *in_regions;
  return held;
}

}  // namespace mytorch::conformance
