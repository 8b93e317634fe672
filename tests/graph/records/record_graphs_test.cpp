// Graphs of calls that are drawn from the records (record_graph.h), compiled and not.
//
// MYTORCH_RANDOM_GRAPHS sets their number, MYTORCH_TEST_SEED the first seed, MYTORCH_TEST_DEVICE
// the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "conformance/catalog.h"
#include "conformance/compare.h"
#include "conformance/elements.h"
#include "graph/run/closeness.h"
#include "graph/run/same_bits.h"
#include "mytorch/compile.h"
#include "mytorch/error.h"
#include "mytorch/mytorch.h"
#include "mytorch/tensor_impl.h"
#include "tests/core/random_seed.h"
#include "tests/graph/device.h"
#include "tests/graph/records/record_graph.h"

// A tensor that is overwritten with what depends on its former values holds itself until a backward
// frees them, and some graphs have none. Other tests look for leaks.
extern "C" int __lsan_is_turned_off() { return 1; }

namespace mytorch::conformance {
namespace {

const std::vector<OpRecord>& catalog() {
  static const std::vector<OpRecord> all = load_catalog(share_folder());
  return all;
}

const GraphDrawer& drawer() {
  static const GraphDrawer all(catalog());
  return all;
}

// What the runs of many graphs count.
struct Tally {
  std::map<std::string, int64_t> operators;  // how often each was in a graph
  std::map<std::string, int64_t> refusals;   // why graphs were refused
  int64_t held = 0;
};

// Results and gradients of a call, and the arguments after it.
struct Answers {
  std::vector<Tensor> results, gradients, arguments;
  bool keeps_history = false;  // an argument has the history of a write
};

// Calls a function of the graph's inputs, and backward behind it if the caller is to.
template <class F>
Answers answers(const RecordGraph& graph, F&& f) {
  const std::vector<Tensor> inputs = inputs_of(graph);
  Answers found;
  std::vector<Tensor> results = f(inputs);
  if (graph.backward == Backward::kOutside) found.gradients = gradients_of(results, inputs);
  for (const Tensor& each : results) found.results.push_back(each.detach());
  for (const Tensor& each : inputs) {
    found.arguments.push_back(each.detach());
    found.keeps_history = found.keeps_history || !each.is_leaf();
  }
  return found;
}

// The generators of one side: calls that name none draw from the thread's.
struct Generators {
  explicit Generators(uint64_t seed) : own(seed), others(seed + 1) {}
  Generator own, others;
};

using Compare = std::function<std::string(const Tensor& found, const Tensor& expected, size_t i)>;

std::string difference_of(const Answers& found, const Answers& expected, const Compare& compare) {
  const std::tuple<const char*, const std::vector<Tensor>&, const std::vector<Tensor>&> all[] = {
      {"result ", found.results, expected.results},
      {"gradient ", found.gradients, expected.gradients},
      {"argument ", found.arguments, expected.arguments}};
  size_t place = 0;
  for (const auto& [what, x, y] : all) {
    if (x.size() != y.size()) return std::string("another number of ") + what;
    for (size_t i = 0; i < x.size(); ++i, ++place) {
      const std::string differs = compare(x[i], y[i], place);
      if (!differs.empty()) return what + std::to_string(i) + ": " + differs;
    }
  }
  return "";
}

// The compiled function and the plain one are called in turns: recorded, planned, replayed twice.
// Returns what differs, or "". A graph that capture refuses is tallied.
std::string compare_compiled(const RecordGraph& graph, CompileMode mode, const Compare& compare,
                             Tally* tally) {
  Generators plain(graph.seed), compiled(graph.seed);
  const GeneratorGuard outer(compiled.others);
  auto function = compile(
      [&](const std::vector<Tensor>& x) {
        return run_graph(graph, x, {.generator = &compiled.own});
      },
      {.mode = mode, .memory_budget = graph.seed % 4 == 0 ? 0. : 1.});
  for (int call = 0; call < 4; ++call) {
    Answers expected, found;
    {
      const GeneratorGuard guard(plain.others);
      expected = answers(graph, [&](const std::vector<Tensor>& x) {
        return run_graph(graph, x, {.generator = &plain.own});
      });
    }
    // No graph can give an argument a history, which refers to what the function computes.
    if (expected.keeps_history) return "";
    try {
      found = answers(graph, function);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnsupported && call == 0) {
        if (tally != nullptr) ++tally->refusals[std::string(error.what()).substr(0, 160)];
        return "";
      }
      return "call " + std::to_string(call) + ": " + error.what();
    }
    const std::string what = difference_of(found, expected, compare);
    if (!what.empty()) return "call " + std::to_string(call) + ": " + what + "\n" + function.text();
  }
  const bool kept = function.stats().recorded == 1 && function.stats().unrecorded == 0;
  if (!kept) return "recorded again: " + function.stats().reason;
  if (tally != nullptr) {
    ++tally->held;
    for (const GraphCall& each : graph.calls) ++tally->operators[each.name];
  }
  return "";
}

std::string same(const Tensor& found, const Tensor& expected) {
  if (found.dtype() != expected.dtype() || found.sizes() != expected.sizes()) {
    return shape_text(found) + " instead of " + shape_text(expected);
  }
  return graph::same_bits(found, expected) ? "" : "other bits in " + shape_text(expected);
}

std::string compare_exactly(const RecordGraph& graph, Tally* tally) {
  return compare_compiled(
      graph, CompileMode::kExact,
      [](const Tensor& found, const Tensor& expected, size_t) { return same(found, expected); },
      tally);
}

// How far the values of a graph may be from those of the function. Each call's result is moved by
// up to the tolerance of its operator (conformance/compare.h), at random, and each gradient by
// rounding errors of its largest element, in the coarsest type of the graph; what becomes of these
// errors at the end is what errors of the compiled function's calls may become. Errors so add up as
// the graph adds them, whatever its depth.
class Spread {
 public:
  explicit Spread(const RecordGraph& graph) : graph_(graph) {
    if (graph.backward == Backward::kNone) return;
    RecordGraph forward = graph;
    forward.backward = Backward::kNone;
    std::map<int, Tensor> values;
    Generators own(graph.seed);
    const GeneratorGuard guard(own.others);
    const RunOptions options{.generator = &own.own, .seen = &values};
    first_gradient_ = run_graph(forward, inputs_of(forward), options).size();
    for (const auto& [number, value] : values) {
      if (is_floating_point(value.dtype())) {
        coarsest_ = std::max(coarsest_, graph::rounding_error(value.dtype()));
      }
    }
    for (const GraphCall& call : graph.calls) {
      const bool composite = call.op != nullptr && call.op->meaning == "composite";
      for (const GraphArgument& each : call.arguments) {
        for (const int number : each.values) {
          const auto at = values.find(number);
          rounds_inside_ =
              rounds_inside_ ||
              (composite && at != values.end() && is_floating_point(at->second.dtype()) &&
               graph::rounding_error(at->second.dtype()) > graph::rounding_error(kFloat32));
        }
      }
    }
  }

  // Returns what is further from `expected` than the errors of calls explain, or "".
  std::string explain(const Tensor& found, const Tensor& expected, size_t place) {
    if (found.dtype() != expected.dtype() || found.sizes() != expected.sizes()) {
      return same(found, expected);
    }
    std::string what;
    for (const int runs : {6, 80}) {  // many only if few do not explain it
      while (moved_.size() < static_cast<size_t>(runs) && draws_ < 2 * runs) move();
      what = beyond(elements_of(found), elements_of(expected), place);
      if (what.empty()) return "";
    }
    return what;
  }

 private:
  static constexpr double kMore = 4;  // the largest of a few runs is not the largest possible

  void move() {
    Random random(graph_.seed * 1000 + static_cast<uint64_t>(draws_++));
    Generators own(graph_.seed);
    const GeneratorGuard guard(own.others);
    const auto change = [&](const GraphCall& call, const Arguments& arguments, const Tensor& x) {
      return changed(call, arguments, x, random);
    };
    try {
      const Answers all = answers(graph_, [&](const std::vector<Tensor>& x) {
        return run_graph(graph_, x, {.generator = &own.own, .change = change});
      });
      std::vector<std::vector<Element>> elements;
      for (const auto* part : {&all.results, &all.gradients, &all.arguments}) {
        for (const Tensor& each : *part) elements.push_back(elements_of(each));
      }
      moved_.push_back(std::move(elements));
    } catch (const Error&) {  // an operand beyond the operator's domain
    }
  }

  Tensor changed(const GraphCall& call, const Arguments& arguments, const Tensor& x,
                 Random& random) const {
    if (!is_floating_point(x.dtype()) || x.numel() == 0) return x;
    const std::vector<Element> elements = elements_of(x);
    std::vector<double> allowed;
    if (call.op != nullptr) {
      allowed = Tolerance{}.allowed(*call.op, arguments, x, elements);
      add_coarse_errors(arguments, x.dtype(), elements, &allowed);
    } else {
      // Products of small numbers are subnormal, where errors are absolute.
      const double spacing = x.dtype() == kFloat16 ? 0x1p-24 : 0x1p-126;
      for (const Element& each : elements) {
        allowed.push_back(16 * graph::rounding_error(x.dtype()) * each.size() + spacing);
      }
    }
    std::vector<double> errors;
    for (const double each : allowed) {
      const double error = random.uniform(-each, each);
      errors.push_back(std::isfinite(error) ? error : 0);
    }
    if (call.in_place()) {
      write(x, elements, errors);
      return x;
    }
    const Tensor error = tensor(errors).reshape(x.sizes()).to(x.device());
    // In float64, so that small errors of large elements round to one of two neighbors.
    const Tensor y = (x.to(kFloat64) + error).to(x.dtype());
    if (!y.requires_grad()) return y;
    const uint64_t seed = random.next();
    // Also one of a finer type may cancel with one that was rounded to the coarsest.
    const double size = 16 * std::max(graph::rounding_error(x.dtype()), coarsest_);
    y.register_hook([seed, size](const Tensor& gradient) {
      if (gradient.numel() == 0) return gradient;
      const Tensor wide = gradient.to(kFloat64);
      const Tensor noise =
          rand(gradient.sizes(), kFloat64, gradient.device(), Generator(seed)) - 0.5;
      return (wide + noise * size * wide.abs().amax()).to(gradient.dtype());
    });
    return y;
  }

  // Values on the way to a result of a finer type may be rounded to the operands' type, or not.
  static void add_coarse_errors(const Arguments& arguments, ScalarType dtype,
                                const std::vector<Element>& elements,
                                std::vector<double>* allowed) {
    double coarsest = 0, largest = 0;
    for (const auto& [name, value] : arguments.values) {
      const auto* operand = std::get_if<Tensor>(&value.variant());
      if (operand == nullptr || !operand->defined() || !is_floating_point(operand->dtype()))
        continue;
      coarsest = std::max(coarsest, graph::rounding_error(operand->dtype()));
    }
    if (coarsest <= graph::rounding_error(dtype)) return;
    for (const Element& each : elements) {
      if (std::isfinite(each.d)) largest = std::max(largest, std::abs(each.d));
    }
    for (double& each : *allowed) each += 16 * coarsest * largest;
  }

  // Moves elements in their memory, which autograd does not notice.
  static void write(const Tensor& x, const std::vector<Element>& elements,
                    const std::vector<double>& errors) {
    if (!x.device().is_cpu()) return;
    size_t i = 0;
    auto* const begin = static_cast<char*>(x.impl()->abi.dl.data);
    for_each_offset(x.sizes().vec(), x.strides().vec(), [&](int64_t offset) {
      store(Element::of_float(elements[i].d + errors[i]), x.dtype(), begin, offset);
      ++i;
    });
  }

  std::string beyond(const std::vector<Element>& found, const std::vector<Element>& expected,
                     size_t place) const {
    double own = 0;  // of gradients, which are sums of what calls return
    for (const Element& each : expected) {
      if (place >= first_gradient_ && std::isfinite(each.d)) own = std::max(own, std::abs(each.d));
    }
    own *= (rounds_inside_ ? 1024 : 64) * coarsest_;
    if (rounds_inside_ && place >= first_gradient_) own += residue();
    for (size_t k = 0; k < expected.size(); ++k) {
      const double p = found[k].as_double(), q = expected[k].as_double();
      if (p == q || (std::isnan(p) && std::isnan(q))) continue;
      double most = 0;
      bool jumps = false;
      for (const auto& run : moved_) {
        if (place >= run.size() || run[place].size() != expected.size()) return "another shape";
        const double r = run[place][k].as_double();
        jumps = jumps || !std::isfinite(r) || !std::isfinite(q);
        most = std::max(most, std::abs(r - q));
      }
      if (jumps || std::abs(p - q) <= kMore * most + own) continue;
      return absl::StrCat("element ", k, " is ", p, " instead of ", q,
                          ", but errors of calls move it by ", most, " in ", moved_.size(),
                          " runs");
    }
    return "";
  }

  // Returns what float32 may leave of a gradient that is 0: in eager mode, the terms of one that a
  // flat composite gives are rounded alike to 16 bits and cancel, as those of corrcoef do for one
  // variable.
  double residue() const {
    double largest = 0;
    for (const auto& run : moved_) {
      for (size_t place = first_gradient_; place < run.size(); ++place) {
        for (const Element& each : run[place]) {
          if (std::isfinite(each.d)) largest = std::max(largest, std::abs(each.d));
        }
      }
    }
    return 1024 * graph::rounding_error(kFloat32) * largest;
  }

  const RecordGraph& graph_;
  size_t first_gradient_ = SIZE_MAX;
  // A composite rounds values on the way to 16 bits, which no change of results imitates, and fused
  // functions do not. Where such a function is flat, as tanh, its gradient is what rounding leaves.
  bool rounds_inside_ = false;
  double coarsest_ = 0;
  int draws_ = 0;
  std::vector<std::vector<std::vector<Element>>> moved_;  // by run, then by place
};

std::string compare_closely(const RecordGraph& graph, Tally* tally) {
  // Each call draws other numbers, so the runs at the first ones say nothing about later ones.
  for (const GraphCall& call : graph.calls) {
    if (call.op != nullptr && call.op->random()) return "";
  }
  Spread spread(graph);
  return compare_compiled(
      graph, CompileMode::kDefault,
      [&](const Tensor& found, const Tensor& expected, size_t place) {
        return graph::same_bits(found, expected) ? "" : spread.explain(found, expected, place);
      },
      tally);
}

using CompareGraph = std::string (*)(const RecordGraph&, Tally*);

// Whether the plain function itself runs, and returns the same bits twice.
bool runs_plainly(const RecordGraph& graph) try {
  Answers all[2];
  for (Answers& each : all) {
    Generators own(graph.seed);
    const GeneratorGuard guard(own.others);
    each = answers(graph, [&](const std::vector<Tensor>& x) {
      return run_graph(graph, x, {.generator = &own.own});
    });
  }
  return difference_of(all[0], all[1],
                       [](const Tensor& x, const Tensor& y, size_t) { return same(x, y); })
      .empty();
} catch (const Error&) {
  return false;
}

void run_all(CompareGraph compare, bool smooth, int64_t part) {
  const char* const number = std::getenv("MYTORCH_RANDOM_GRAPHS");
  const int64_t count = std::max<int64_t>(1, (number != nullptr ? std::atoll(number) : 400) / part);
  const uint64_t begin = testing::random_seed(), end = begin + static_cast<uint64_t>(count);
  std::printf("seeds %llu to %llu\n", static_cast<unsigned long long>(begin),
              static_cast<unsigned long long>(end));
  Tally tally;
  int64_t failures = 0;
  for (uint64_t seed = begin; seed < end && failures < 3; ++seed) {
    const RecordGraph graph = drawer().draw(seed, smooth);
    if (graph.results.empty() || !runs_plainly(graph)) continue;
    const std::string what = compare(graph, &tally);
    if (what.empty()) continue;
    ++failures;
    const RecordGraph least = minimized(graph, [&](const RecordGraph& less) {
      return runs_plainly(less) ? compare(less, nullptr) : std::string();
    });
    ADD_FAILURE() << "seed " << seed << " (MYTORCH_TEST_SEED=" << seed
                  << " MYTORCH_RANDOM_GRAPHS=1): " << what << "\nThe smallest graph that fails:\n"
                  << text_of(least) << compare(least, nullptr);
  }
  std::printf("%lld graphs held, of %zu of %zu operators\n", static_cast<long long>(tally.held),
              tally.operators.size(), drawer().operators().size());
  for (const auto& [why, times] : tally.refusals) {
    std::printf("%6lld x %s\n", static_cast<long long>(times), why.c_str());
    // The operators are those that a graph can hold; what they write may be an argument.
    EXPECT_NE(why.find("the function writes argument"), std::string::npos) << why;
  }
  if (count < 100 || failures > 0) return;
  EXPECT_GT(tally.held, 2 * count / 3);
}

TEST(RecordGraphs, ExactGivesTheBitsOfTheFunction) { run_all(compare_exactly, false, 1); }
TEST(RecordGraphs, DefaultIsAsCloseAsTheTolerancesOfCalls) { run_all(compare_closely, true, 2); }

}  // namespace
}  // namespace mytorch::conformance
