#include "conformance/check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "conformance/answer.h"
#include "conformance/compare.h"
#include "conformance/custom.h"
#include "conformance/edges.h"
#include "conformance/elements.h"
#include "conformance/stress.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/device_memory.h"
#include "mytorch/error.h"

namespace mytorch::conformance {
namespace {

// The number of times so far that the operator decomposed, and that any operator fell back.
struct Ways {
  uint64_t decomposed = 0;
  uint64_t fallbacks = 0;
};

Ways ways_taken(const std::string& op) {
  Ways ways;
  for (const SlowPaths& s : slow_paths()) {
    ways.fallbacks += s.fallbacks;
    if (s.op == op) ways.decomposed = s.decomposed;
  }
  return ways;
}

Route route_of(const OpRecord& op, const Ways& before, const Ways& after) {
  if (after.fallbacks != before.fallbacks) return Route::kFallback;
  if (op.meaning == "view") return Route::kView;
  if (!op.has_kernel || after.decomposed != before.decomposed) return Route::kComposite;
  return Route::kNative;
}

// Whether a backend of the device has kernels for complex numbers.
bool device_takes_complex(const Options& options) {
  const int slot = checked_device_slot(Device(options.device));
  const auto loaded = backends();
  return std::any_of(loaded.begin(), loaded.end(), [&](const Backend* backend) {
    return backend->device_slot == slot && (backend->abi.flags & MT_BACKEND_COMPLEX) != 0;
  });
}

// Whether the call needs a kernel that the backend may lack.
bool is_missing(const Options& options, const Answer& outcome) {
  if (outcome.error != ErrorCode::kUnsupported) return false;
  if (outcome.message.find("no kernel of ") != std::string::npos &&
      outcome.message.find(": complex") != std::string::npos && !device_takes_complex(options)) {
    return true;
  }
  return std::any_of(options.missing.begin(), options.missing.end(), [&](const std::string& name) {
    return outcome.message.find("no kernel of " + name + " on ") != std::string::npos;
  });
}

// Whether a call writes to an argument: one that its schema marks, or a running statistic of ATen's
// batch normalization, which the schema does not mark.
bool changes(const OpRecord& op, const std::string& arg) {
  return op.arg(arg)->written || arg.starts_with("running_");
}

// Random bits are equal on every backend; functions of them, whose records state a tolerance, may
// round differently.
bool is_random_bits(const OpRecord& op) {
  return op.random() && !op.differentiable() && op.tolerance.empty();
}

// Whether a case belongs to those that take long.
bool is_slow(const Case& c) {
  return c.kind == Kind::kLarge || c.kind == Kind::kThreads || c.elements > 0;
}

class Checker {
 public:
  Checker(const Options& options, std::ostream& out)
      : options_(options), out_(out), device_(options.device) {}

  Report run_all(const std::vector<OpRecord>& catalog);

 private:
  void run_op(const OpRecord& op);
  // Returns true if the case ran, false if both the backend and the reference refused it.
  bool run_case(const Case& c, const Fail& fail);
  // Runs a case in compiled functions, and compares with the list whether they can hold it.
  void run_compiled(const Case& c, const Arguments& arguments, const Fail& fail);
  // The same for the cases of stress.h.
  bool run_stress_case(const Case& c);
  bool run_custom_case(const Case& c, const Fail& fail);
  // The same for the cases of edges.h.
  bool run_edge_case(const Case& c, const Fail& fail);
  // `nearby` computes the reference's answers at operands with rounding errors, for operators that
  // are `stability: backward`.
  using Nearby = std::function<std::vector<Answer>()>;
  void compare(const Case& c, const Arguments& arguments, const Answer& found,
               const Answer& expected, Tolerance tolerance, const std::string& check,
               const Fail& fail, const Nearby& nearby = {});
  // Compares the arguments that the call changes.
  void compare_written(const Case& c, const Arguments& arguments, const Arguments& expected,
                       const Tolerance& tolerance, const std::string& check, const Fail& fail);
  void check_inputs_unchanged(const Case& c, const Arguments& arguments, const Arguments& before,
                              const Fail& fail);
  void report(const Case& c, const std::string& check, const std::string& what);
  void close();  // records the outcome of the case

  const Options& options_;
  std::ostream& out_;
  Device device_;
  Report report_;
  Outcome outcome_;  // of the running case
  Defined defined_;  // of the running operator: see check_edge()
  bool refused_[2] =
      {};                // whether no graph could hold a case of the running operator; its gradient
  std::string refusal_;  // the last error with which a plug-in's operator refused a sample
};

void Checker::report(const Case& c, const std::string& check, const std::string& what) {
  std::string arguments = "(cannot be made)";
  try {
    arguments = describe(make_arguments(c, options_.seed, kCPU, c.dtype));
  } catch (const std::exception&) {
  }
  const Failure failure{c.op->name, c.number, check, arguments, what, outcome_.route};
  outcome_.failures.push_back(failure);
  print_failure(failure, reproducer(options_, failure.op, failure.number), out_);
}

void Checker::close() {
  report_.scores[outcome_.op].add(outcome_);
  if (options_.ended) options_.ended(outcome_);
  report_.failures.insert(report_.failures.end(), outcome_.failures.begin(),
                          outcome_.failures.end());
}

void Checker::compare(const Case& c, const Arguments& arguments, const Answer& found,
                      const Answer& expected, Tolerance tolerance, const std::string& check,
                      const Fail& fail, const Nearby& nearby) {
  if (found.error.has_value() || expected.error.has_value()) {
    if (found.error != expected.error) {
      fail(check, found.error.has_value()
                      ? "failed: " + found.message
                      : "returned a result, expected the error: " + expected.message);
    }
    return;
  }
  if (c.op->non_finite_spreads) {
    std::string problem;
    tolerance.skipped = skipped_slices(arguments, found.results, expected.results, &problem);
    if (!problem.empty()) return fail(check, problem);
  }
  std::optional<std::vector<Answer>> near;
  for (size_t i = 0; i < expected.results.size(); ++i) {
    const auto differs = [&] {
      return difference(*c.op, arguments, found.results[i], expected.results[i], tolerance,
                        check == "composite", check == "functional" ? &outcome_.worst : nullptr);
    };
    std::string what = differs();
    if (!what.empty() && nearby) {
      if (!near.has_value()) near = nearby();
      for (const Answer& answer : *near) {
        if (!answer.error.has_value()) tolerance.nearby.push_back(&answer.results[i]);
      }
      what = differs();
      tolerance.nearby.clear();
    }
    if (!what.empty()) fail(check, "result " + std::to_string(i) + " " + what);
  }
}

void Checker::compare_written(const Case& c, const Arguments& arguments, const Arguments& expected,
                              const Tolerance& tolerance, const std::string& check,
                              const Fail& fail) {
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const auto& [name, value] = arguments.values[i];
    if (!changes(*c.op, name) || value.is_none()) continue;
    const std::string what =
        difference(*c.op, expected, value, expected.values[i].second, tolerance);
    if (!what.empty()) fail(check, "argument '" + name + "' " + what);
  }
}

void Checker::check_inputs_unchanged(const Case& c, const Arguments& arguments,
                                     const Arguments& before, const Fail& fail) {
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const auto& [name, value] = arguments.values[i];
    const auto* tensor = std::get_if<Tensor>(&value.variant());
    if (tensor == nullptr || !tensor->defined() || changes(*c.op, name)) continue;
    if (storage_bytes(*tensor) != storage_bytes(before.values[i].second.tensor())) {
      fail("inputs", "the call changed its argument '" + name + "', which it must only read");
    }
  }
}

bool Checker::run_case(const Case& c, const Fail& fail) {
  const Arguments reference_arguments = make_arguments(c, options_.seed, kCPU, c.dtype);
  const Arguments arguments = make_arguments(c, options_.seed, device_, c.dtype);
  const Arguments before = copy_of(arguments);
  const bool bits = is_random_bits(*c.op);
  const Tolerance tolerance{bits, 1};

  const Answer expected = run_reference(c, reference_arguments);
  std::optional<Prefer> pin;
  if (!options_.backend.empty()) pin.emplace(options_.device, options_.backend);
  const Ways before_call = ways_taken(c.op->name);
  const Answer found = run(c, arguments);
  outcome_.route = route_of(*c.op, before_call, ways_taken(c.op->name));
  outcome_.missing = is_missing(options_, found);
  if (outcome_.missing) return true;

  if (c.sample->contains("error")) {
    const std::pair<const char*, const Answer*> both[] = {{"error (reference)", &expected},
                                                          {"error", &found}};
    for (const auto& [who, outcome] : both) {
      if (!outcome->error.has_value()) {
        fail(who, "returned a result, expected an error with '" + c.error() + "'");
      } else if (outcome->message.find(c.error()) == std::string::npos) {
        fail(who,
             "the message is '" + outcome->message + "', expected one with '" + c.error() + "'");
      }
    }
    if (found.error.has_value() && expected.error.has_value() && found.error != expected.error) {
      fail("error", "the status is " + std::to_string(static_cast<int>(*found.error)) +
                        " (see abi.h), expected " +
                        std::to_string(static_cast<int>(*expected.error)) + ": " + found.message);
    }
    return true;
  }
  if (expected.error.has_value() && (!c.may_fail() || !expected.is_refusal())) {
    // The reference may refuse a type. run_op checks that each sample runs with some type.
    if (!c.typed || !expected.is_refusal()) fail("reference", "failed: " + expected.message);
  }
  compare(c, reference_arguments, found, expected, tolerance, "functional", fail);
  check_inputs_unchanged(c, arguments, before, fail);
  if (found.error.has_value()) return false;
  compare_written(c, arguments, reference_arguments, tolerance, "functional", fail);
  if (expected.error.has_value()) return true;

  check_geometry(c, before, found.results, fail);
  check_out_form(c, before, found.results, fail);
  check_inplace_form(c, before, found.results, fail);
  // The half types are too coarse for a comparison with rounding after each operation.
  if (!c.special() && c.dtype != kFloat16 && c.dtype != kBFloat16 && !c.op->unspecified()) {
    RestrictKernels primitives(Kernels::kPrimitives);
    const Arguments own = copy_of(before);
    compare(c, reference_arguments, run(c, own), expected, {bits, 16}, "composite", fail);
  }
  if (options_.compiled) run_compiled(c, before, fail);
  if (options_.gradients) check_gradient(c, options_.seed, device_, fail);
  return true;
}

void Checker::run_compiled(const Case& c, const Arguments& arguments, const Fail& fail) {
  const InGraphs found = check_compiled(c, arguments, fail);
  outcome_.in_regions = found.in_regions;
  outcome_.not_in_graph = !found.refusal.empty() || !found.gradient_refusal.empty();
  const auto compare_with_list = [&](bool gradient, bool held, const std::string& refusal) {
    const NotInGraphs listed = not_in_graphs(c.op->name, gradient);
    const bool is_listed = *listed.why != 0;
    const std::string check = gradient ? "compiled gradient" : "compiled";
    if (!refusal.empty() && !is_listed) {
      fail(check,
           "no graph can hold it, but conformance/not_in_graphs.cpp does not say so: " + refusal);
    }
    if (held && is_listed && !listed.some_calls) {
      fail(check, "a graph holds it: take it from conformance/not_in_graphs.cpp, which says '" +
                      std::string(listed.why) + "'");
    }
    refused_[gradient] = refused_[gradient] || !refusal.empty();
  };
  compare_with_list(false, found.held, found.refusal);
  compare_with_list(true, found.has_gradient, found.gradient_refusal);
}

bool Checker::run_stress_case(const Case& given) {
  const std::optional<Case> c = resolve(given, options_.seed, device_);
  if (!c.has_value()) return false;
  const Fail fail = [&](const std::string& check, const std::string& what) {
    report(*c, check, what);
  };
  std::optional<Prefer> pin;
  const auto prefer = [&] {
    if (!options_.backend.empty()) pin.emplace(options_.device, options_.backend);
  };
  if (c->kind == Kind::kThreads) {
    prefer();
    return check_threads(*c, options_.seed, device_, fail);
  }
  const bool large = c->kind == Kind::kLarge;
  const std::string check = large ? "large" : "special";
  const bool bits = is_random_bits(*c->op);
  Tolerance tolerance{bits, 1, large && is_floating_point(c->dtype)};
  for (const Variation& variation : variations_of(*c, options_.seed)) {
    const auto make = [&](Device device) {
      return make_arguments(*c, options_.seed, device, c->dtype, variation.twist);
    };
    tolerance.infinities = std::isinf(variation.twist.value) && c->op->meaning != "pointwise";
    const Arguments reference_arguments = make(kCPU);
    const Arguments arguments = make(device_);
    pin.reset();
    const Answer expected = run_reference(*c, reference_arguments);
    prefer();
    const Ways before = ways_taken(c->op->name);
    const Answer found = run(*c, arguments);
    outcome_.route = route_of(*c->op, before, ways_taken(c->op->name));
    outcome_.missing = is_missing(options_, found);
    if (outcome_.missing) return true;
    if (expected.error.has_value() && !found.error.has_value() && !device_.is_cpu()) {
      // A device reports values that it refuses when it is waited for, or not at all.
      try {
        synchronize(device_);
      } catch (const Error&) {
      }
      continue;
    }
    const Fail with = [&](const std::string& name, const std::string& what) {
      fail(name, variation.what + what);
    };
    const auto nearby = [&] {
      pin.reset();
      std::vector<Answer> answers;
      for (uint64_t n = 1; n <= 3; ++n) {
        Twist twist = variation.twist;
        twist.rounding = n;
        answers.push_back(
            run_reference(*c, make_arguments(*c, options_.seed, kCPU, c->dtype, twist)));
      }
      return answers;
    };
    compare(*c, reference_arguments, found, expected, tolerance, check, with,
            c->op->backward_stable ? Nearby(nearby) : Nearby());
    if (found.error.has_value() || expected.error.has_value()) continue;
    compare_written(*c, arguments, reference_arguments, tolerance, check, with);
  }
  return true;
}

bool Checker::run_edge_case(const Case& c, const Fail& fail) {
  std::optional<Arguments> reference_arguments;
  try {
    reference_arguments = make_arguments(c, options_.seed, kCPU, c.dtype);
  } catch (const std::exception&) {
    return false;  // the sample's other keys do not fit these shapes
  }
  const Answer expected = run_reference(c, *reference_arguments);
  if (expected.is_refusal() || expected.error == ErrorCode::kUnsupported) return false;
  if (expected.error.has_value()) fail("reference", "failed: " + expected.message);
  std::optional<Prefer> pin;
  if (!options_.backend.empty()) pin.emplace(options_.device, options_.backend);
  const Ways before = ways_taken(c.op->name);
  const Arguments arguments = make_arguments(c, options_.seed, device_, c.dtype);
  const Answer found = run(c, arguments);
  outcome_.route = route_of(*c.op, before, ways_taken(c.op->name));
  outcome_.missing = is_missing(options_, found);
  if (outcome_.missing) return true;
  compare(c, *reference_arguments, found, expected, {is_random_bits(*c.op), 1}, "functional", fail);
  if (found.error.has_value()) return true;
  return check_edge(c, options_.seed, device_, options_.gradients, &defined_, fail);
}

bool Checker::run_custom_case(const Case& c, const Fail& fail) {
  std::optional<Prefer> pin;
  if (!options_.backend.empty()) pin.emplace(options_.device, options_.backend);
  const Ways before = ways_taken(c.op->name);
  const bool ran = check_custom(c, options_.seed, device_, options_.gradients, fail, &refusal_);
  outcome_.route = route_of(*c.op, before, ways_taken(c.op->name));
  return ran;
}

void Checker::run_op(const OpRecord& op) {
  const bool custom = op.meaning == "custom";
  bool any = false;                                  // whether any case ran
  std::map<const Json*, std::pair<int, int>> taken;  // by sample: types that ran, types refused
  std::map<const Json*, Case> example;
  std::map<int, int> kinds;          // with `quick`: kinds of types that were tried
  std::map<std::string, int> edges;  // with `quick`: tries until one is accepted
  constexpr int kEdgeTries = 12;
  defined_.clear();
  refused_[0] = refused_[1] = false;
  std::vector<Case> cases = options_.edges ? edge_cases(op) : cases_of(op);
  if (!options_.edges) {
    for (Case& c : stress_cases(op, static_cast<int>(cases.size()))) cases.push_back(std::move(c));
  }
  for (const Case& c : cases) {
    if (options_.number >= 0 && c.number != options_.number) continue;
    if (!options_.dtype.empty() && options_.dtype != dtype_name(c.dtype)) continue;
    int* kind_of_case = nullptr;
    if (options_.number < 0 && !options_.stress && is_slow(c)) continue;
    if (options_.quick && c.kind == Kind::kEdge) {
      if (c.edge.empty() || edges[c.edge]++ >= kEdgeTries) continue;
    } else if (options_.quick) {
      const int kind = c.kind != Kind::kSample                       ? 5 + static_cast<int>(c.kind)
                       : c.sample->contains("error")                 ? 4
                       : c.dtype == kFloat16 || c.dtype == kBFloat16 ? 3
                       : is_floating_point(c.dtype)                  ? 2
                       : c.dtype == kBool                            ? 0
                                                                     : 1;
      if (kinds[kind] > 0) continue;
      kinds[kind] = 1;
      kind_of_case = &kinds[kind];
    }
    if (op.name == options_.after_op && c.number <= options_.after_number) continue;
    if (options_.begins) options_.begins(op.name, c.number);
    outcome_ = {op.name, c.number};
    outcome_.dtype = dtype_name(c.dtype);
    const Fail fail = [&](const std::string& check, const std::string& what) {
      report(c, check, what);
    };
    bool ran = true;
    try {
      ran = c.kind == Kind::kEdge     ? run_edge_case(c, fail)
            : c.kind != Kind::kSample ? run_stress_case(c)
            : custom                  ? run_custom_case(c, fail)
                                      : run_case(c, fail);
    } catch (const std::exception& error) {
      fail("harness", error.what());
    }
    if (c.kind == Kind::kEdge && !ran && outcome_.failures.empty()) continue;
    edges[c.edge] = kEdgeTries;
    outcome_.refused = !ran;
    close();
    any = any || (ran && c.kind == Kind::kSample);
    // The operator may accept another sample that its schema suggests, or in a larger form.
    if (!ran && (c.suggested() || c.kind != Kind::kSample) && kind_of_case != nullptr)
      *kind_of_case = 0;
    if (c.typed && !c.may_fail() && !c.suggested() && c.kind == Kind::kSample) {
      ++(ran ? taken[c.sample].first : taken[c.sample].second);
      example.insert({c.sample, c});
    }
  }
  if (options_.number >= 0 || !options_.dtype.empty()) return;
  if (op.name == options_.after_op) return;  // another process ran some of the cases
  if (custom && !any) {
    outcome_ = {op.name, -1};
    report(cases.front(), "samples",
           (options_.samples.empty()
                ? "the operator refuses every call that its schema suggests: give --samples. "
                : "the operator refuses every sample of " + options_.samples + ". ") +
               refusal_);
    close();
  }
  if (options_.quick) return;
  for (const bool gradient : {false, true}) {
    const NotInGraphs listed = not_in_graphs(op.name, gradient);
    if (!options_.compiled || !listed.some_calls || refused_[gradient]) continue;
    outcome_ = {op.name, -1};
    report(cases.front(), gradient ? "compiled gradient" : "compiled",
           "graphs hold every case: take the operator from conformance/not_in_graphs.cpp");
    close();
  }
  for (const auto& [sample, counts] : taken) {
    if (counts.first > 0) continue;
    outcome_ = {op.name, -1};
    report(example.at(sample), "types", "the operator refuses this sample with every type");
    close();
  }
}

Report Checker::run_all(const std::vector<OpRecord>& catalog) {
  bool begun = options_.after_op.empty();
  for (const OpRecord& op : catalog) {
    begun = begun || op.name == options_.after_op;
    if (!begun || !options_.selects(op)) continue;
    run_op(op);
    const Score& score = report_.scores[op.name];
    report_.cases += score.cases;
    report_.failed += score.failed;
    report_.missing += score.missing;
    if (options_.verbose) {
      out_ << op.name << ": " << score.cases << " cases, " << score.cases - score.failed
           << " passed, " << score.failed << " failed, " << score.refused << " refused"
           << std::endl;
    }
  }
  out_ << report_.cases << " cases, " << std::max(0, report_.cases - report_.failed) << " passed, "
       << report_.failed << " failed (seed " << options_.seed << ")" << std::endl;
  if (report_.missing > 0) {
    out_ << report_.missing << " of them need a kernel that may be missing" << std::endl;
  }
  return report_;
}

}  // namespace

void Counts::count(const Outcome& outcome) {
  if (outcome.number >= 0) {
    ++cases;
    refused += outcome.refused ? 1 : 0;
    missing += outcome.missing ? 1 : 0;
    in_regions += outcome.in_regions ? 1 : 0;
    not_in_graph += outcome.not_in_graph ? 1 : 0;
    ++routes[static_cast<int>(outcome.refused || outcome.missing ? Route::kNone : outcome.route)];
  }
  failed += outcome.failures.empty() ? 0 : 1;
  worst = std::max(worst, outcome.worst);
}

void Score::add(const Outcome& outcome) {
  count(outcome);
  if (!outcome.dtype.empty()) types[outcome.dtype].count(outcome);
  failures.insert(failures.end(), outcome.failures.begin(), outcome.failures.end());
}

Route Score::route() const {
  for (int i = 4; i > 0; --i) {
    if (routes[i] > 0) return static_cast<Route>(i);
  }
  return Route::kNone;
}

bool Options::selects(const OpRecord& op) const {
  if (only.empty()) return true;
  const std::string base = op.name.substr(0, op.name.find('.'));
  return std::any_of(only.begin(), only.end(),
                     [&](const std::string& name) { return name == op.name || name == base; });
}

std::vector<Value> call_named(const std::string& name, const Arguments& arguments,
                              const std::vector<Tensor>& outs) {
  std::vector<NamedValue> named = arguments.named();
  if (!outs.empty()) named.emplace_back("out", outs.size() == 1 ? Value(outs[0]) : Value(outs));
  return call(name, {}, std::move(named));
}

Report check(const std::vector<OpRecord>& catalog, const Options& options, std::ostream& out) {
  return Checker(options, out).run_all(catalog);
}

}  // namespace mytorch::conformance
