#include "graph/run/check_mode.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"
#include "graph/capture/guards.h"
#include "graph/run/checked_run.h"
#include "graph/run/closeness.h"
#include "graph/run/same_bits.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros_like.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/tensor_operators.h"
#include "mytorch/thread_state.h"

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

// Tensors with their grads, and generators, as they are at some time.
class Snapshot {
 public:
  Snapshot(const std::vector<Tensor>& tensors, const std::vector<Generator>& generators) {
    for (const Tensor& tensor : tensors) {
      const Tensor grad = grad_of(tensor);
      entries_.push_back({tensor, copy_of(tensor), version_of(tensor), grad, copy_of(grad),
                          grad.defined() ? version_of(grad) : 0});
    }
    for (const Generator& generator : generators) {
      draws_.push_back({generator, generator.seed(), generator.call()});
    }
  }

  // Gives the tensors and generators back what they held. What has not changed is not written:
  // histories of earlier calls may need it.
  void restore() const {
    for (const Entry& entry : entries_) {
      write(entry.tensor, entry.data, entry.version);
      if (entry.grad.defined()) write(entry.grad, entry.grad_data, entry.grad_version);
      const Tensor now = grad_of(entry.tensor);
      const bool same =
          now.defined() == entry.grad.defined() && (!now.defined() || now.is_same(entry.grad));
      if (!same) entry.tensor.set_grad(entry.grad);
    }
    for (const Draws& each : draws_) {
      Generator generator = each.generator;
      if (generator.seed() != each.seed) generator.set_seed(each.seed);
      generator.set_call(each.call);
    }
  }

  struct Entry {
    Tensor tensor, data;
    uint64_t version;  // of its memory
    Tensor grad, grad_data;
    uint64_t grad_version;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  struct Draws {
    Generator generator;
    uint64_t seed, call;
  };
  const std::vector<Draws>& draws() const { return draws_; }

 private:
  // A function that is recorded sets the grads of leaves alone.
  static Tensor grad_of(const Tensor& tensor) {
    return tensor.is_leaf() ? tensor.grad() : Tensor();
  }
  static uint64_t version_of(const Tensor& tensor) { return tensor.impl()->storage->abi.version; }

  static void write(const Tensor& to, const Tensor& from, uint64_t version) {
    if (version_of(to) == version && same_bits(to, from)) return;
    // An expanded tensor is written by none.
    if (has_internal_overlap(*to.impl())) return;
    to.detach().copy_(from);
    to.impl()->storage->abi.version = version;
  }

  std::vector<Entry> entries_;
  std::vector<Draws> draws_;
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

// What both runs of a call have left.
struct Left {
  std::vector<Tensor> results;
  Snapshot state;
};

// A call that is compared.
class Comparison {
 public:
  explicit Comparison(const Beside& call)
      : call_(call), tensors_(call.arguments), coarsest_(coarsest_rounding(call.recorded.graph)) {
    tensors_.insert(tensors_.end(), call.recorded.outside.begin(), call.recorded.outside.end());
    add(default_generator());
    for (const GraphNode& node : call.recorded.graph.nodes) {
      for (const Arg& arg : node.args) {
        if (const auto* own = std::get_if<Generator>(&arg.constant.variant())) add(*own);
      }
    }
  }

  std::vector<Tensor> run(std::vector<Tensor>* beyond);

 private:
  void add(const Generator& generator) {
    const auto same = [&](const Generator& each) { return each.shares_state(generator); };
    if (std::none_of(generators_.begin(), generators_.end(), same)) {
      generators_.push_back(generator);
    }
  }
  Snapshot now() const {
    const NoGradGuard no_grad;
    return {tensors_, generators_};
  }
  // Calls f(what, tensor of one, tensor of the other) for all that two runs have left.
  template <class F>
  void for_each(const Left& one, const Left& other, F f) const {
    for (size_t i = 0; i < other.results.size(); ++i) {
      const bool named = i < call_.names.size();
      f(named ? call_.names[i] : absl::StrCat("result ", i), one.results[i], other.results[i]);
    }
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const size_t arguments = call_.arguments.size();
      const std::string what = i < arguments ? absl::StrCat("argument ", i)
                                             : absl::StrCat("outside(", i - arguments, ")");
      const Snapshot::Entry &a = one.state.entries()[i], &b = other.state.entries()[i];
      f(what, a.data, b.data);
      f("the grad of " + what, a.grad_data, b.grad_data);
    }
  }
  // Returns the difference of two tensors, or "".
  std::string compare(const Tensor& plan, const Tensor& function) const {
    if (same_bits(plan, function)) return "";
    const bool close = call_.mode != CompileMode::kExact && plan.defined() && function.defined() &&
                       far_apart(plan, function, coarsest_).empty();
    return close ? "" : difference(plan, function);
  }
  void check_counts(const Left& plan, const Left& function) const;
  bool errors_explain(size_t place, const Tensor& plan, const Tensor& function,
                      const Snapshot& before, const Left& after);
  void disturb(const Snapshot& before, const Left& after);

  const Beside& call_;
  std::vector<Tensor> tensors_;  // whose state is compared
  std::vector<Generator> generators_;
  const double coarsest_;
  // What runs of the recorded operators have left, in order: the first without errors.
  std::vector<std::vector<Tensor>> disturbed_;
};

constexpr const char* kWhy =
    ": if the function reads state of its own, pass it as an argument; else this is a bug";

// Compares what is no tensor.
void Comparison::check_counts(const Left& plan, const Left& function) const {
  if (plan.results.size() != function.results.size()) {
    fail(ErrorCode::kInternal, "[compile] the compiled function gives ", plan.results.size(),
         " results, and the function ", function.results.size(), kWhy);
  }
  for (size_t i = 0; i < plan.state.draws().size(); ++i) {
    const Snapshot::Draws &a = plan.state.draws()[i], &b = function.state.draws()[i];
    if (a.seed == b.seed && a.call == b.call) continue;
    fail(ErrorCode::kInternal, "[compile] the compiled function leaves ",
         i == 0 ? "the default generator" : "a generator", " at random call ", a.call, " of seed ",
         a.seed, ", and the function at call ", b.call, " of seed ", b.seed, kWhy);
  }
  if (const char* what = cell_that_differs(call_.recorded); what != nullptr) {
    fail(ErrorCode::kInternal,
         "[compile] the function leaves other state than the compiled one: ", what, kWhy);
  }
}

// Moves the values that a run computes by rounding errors: elements by some of their own, and by
// one of the largest element, as sums that cancel. Zeros stay, on whose sign derivatives may
// depend.
class Errors {
 public:
  explicit Errors(uint64_t seed) : generator_(seed) {}

  void operator()(const Tensor& given) const {
    if (!given.is_floating_point() && !given.is_complex()) return;
    if (given.numel() == 0 || has_internal_overlap(*given.impl())) return;
    const LayerMask masked(~0u);
    const Tensor parts = given.is_complex() ? view_as_real(given) : given;
    const Tensor wide = parts.to(kFloat64);
    const Tensor size = where(isfinite(wide), abs(wide), zeros_like(wide));
    const double eps = rounding_error(given.dtype());
    const Tensor most = size * (kRoundings * eps) + (size > 0).to(kFloat64) * amax(size) * eps;
    const Tensor noise = rand(wide.sizes(), kFloat64, wide.device(), generator_) * 2 - 1;
    parts.copy_(wide + noise * most);
  }

 private:
  static constexpr double kRoundings = 16;
  Generator generator_;
};

// Runs the operators of the recording without errors, and with them, a few times.
void Comparison::disturb(const Snapshot& before, const Left& after) {
  constexpr uint64_t kRuns = 6;
  const NoGradGuard no_grad;
  for (uint64_t run = 0; run <= kRuns; ++run) {
    before.restore();
    std::vector<Tensor> left;
    try {
      std::function<void(const Tensor&)> errors;
      if (run > 0) errors = Errors(run);
      std::vector<Tensor> results = run_checked(call_.recorded, call_.arguments, errors);
      for (Tensor& result : results) result = copy_of(result);
      results.resize(after.results.size());
      const Left state{std::move(results), now()};
      for_each(state, after,
               [&](const std::string&, const Tensor& one, const Tensor&) { left.push_back(one); });
    } catch (const Error&) {  // an operand beyond the operator's domain
    }
    if (left.empty() && run == 0) break;  // nothing to compare with
    if (!left.empty()) disturbed_.push_back(std::move(left));
  }
  after.state.restore();
}

// Returns whether the tensor at a place of what a run leaves differs by no more than it moves if
// the operators have rounding errors.
bool Comparison::errors_explain(size_t place, const Tensor& plan, const Tensor& function,
                                const Snapshot& before, const Left& after) {
  if (call_.mode == CompileMode::kExact || !plan.defined() || !function.defined() ||
      plan.dtype() != function.dtype() || !(plan.sizes() == function.sizes())) {
    return false;
  }
  if (disturbed_.empty()) disturb(before, after);
  constexpr double kMore = 4;  // the largest of a few runs is not the largest possible
  const std::vector<double> x = parts_of(plan), y = parts_of(function);
  std::vector<double> moved(x.size(), 0), still;
  for (const std::vector<Tensor>& run : disturbed_) {
    if (!run[place].defined()) return false;
    const std::vector<double> z = parts_of(run[place]);
    if (still.empty()) still = z;
    for (size_t k = 0; k < moved.size(); ++k) {
      const double distance = z[k] == still[k] ? 0 : std::abs(z[k] - still[k]);
      // Where an error makes an element infinite or NaN, or no longer so, any element may be.
      moved[k] = std::max(moved[k], std::isnan(distance) ? HUGE_VAL : distance);
    }
  }
  for (size_t k = 0; k < x.size(); ++k) {
    const bool same = x[k] == y[k] || (std::isnan(x[k]) && std::isnan(y[k]));
    if (!same && !(std::abs(x[k] - y[k]) <= kMore * moved[k]) && moved[k] != HUGE_VAL) return false;
  }
  return true;
}

std::vector<Tensor> Comparison::run(std::vector<Tensor>* beyond) {
  const Snapshot before = now();
  std::vector<Tensor> found;
  std::string failure;
  try {
    const NoGradGuard no_grad;
    found = call_.plan();
  } catch (const Error& error) {
    failure = error.what();  // of the function, too, maybe
  }
  Left plan{{}, now()};
  {
    const NoGradGuard no_grad;
    before.restore();
  }
  std::vector<Tensor> expected = call_.function();
  if (!failure.empty()) {
    fail(ErrorCode::kInternal,
         "[compile] the compiled function fails, and the function does not: ", failure);
  }
  const NoGradGuard no_grad;
  for (size_t i = 0; i < found.size(); ++i) {
    if (beyond == nullptr || i < expected.size()) {
      plan.results.push_back(copy_of(found[i]));
    } else {
      beyond->push_back(found[i]);
    }
  }
  Left function{{}, now()};
  for (const Tensor& result : expected) function.results.push_back(copy_of(result));
  check_counts(plan, function);
  size_t place = 0;
  for_each(plan, function, [&](const std::string& what, const Tensor& a, const Tensor& b) {
    const std::string differs = compare(a, b);
    if (!differs.empty() && !errors_explain(place, a, b, before, function)) {
      fail(ErrorCode::kInternal, "[compile] ", what, " of the compiled function ", differs, kWhy);
    }
    ++place;
  });
  return expected;
}

}  // namespace

std::vector<Tensor> run_beside(const Beside& call, std::vector<Tensor>* beyond) {
  return Comparison(call).run(beyond);
}

}  // namespace mytorch::graph
