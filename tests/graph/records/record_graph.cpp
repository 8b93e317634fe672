#include "tests/graph/records/record_graph.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <sstream>

#include "conformance/check.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/function.h"
#include "mytorch/error.h"
#include "mytorch/mytorch.h"
#include "tests/graph/device.h"

namespace mytorch::conformance {
namespace {

constexpr int64_t kMostElements = 4096;

// A subclass with saved tensors and a gradient of its own.
struct Cubed : autograd::Function<Cubed> {
  static constexpr const char* kName = "Cubed";
  static Tensor forward(autograd::FunctionContext* ctx, const Tensor& x) {
    const Tensor square = x * x;
    ctx->save_for_backward({x, square});
    return square * x * 0.125;
  }
  static std::vector<Tensor> backward(autograd::FunctionContext* ctx,
                                      const std::vector<Tensor>& grads) {
    return {grads[0] * ctx->saved_tensors()[1] * 0.375};
  }
};

// Operators that jump, where a comparison within a tolerance says little.
const std::set<std::string>& jumping_families() {
  static const std::set<std::string> all = {"sorting", "creation"};
  return all;
}

bool jumps(const std::string& op) {
  // The first truncates the places of its windows, the others jump where 16-bit floats often lie.
  constexpr const char* kAll[] = {"fractional_max_pool", "hardshrink", "threshold"};
  return std::any_of(std::begin(kAll), std::end(kAll),
                     [&](const char* each) { return op.starts_with(each); });
}

const std::set<std::string>& drawn_families() {
  static const std::set<std::string> all = {
      "pointwise", "activation", "special",       "reduction",   "scan",    "creation",
      "copy",      "random",     "loss",          "view",        "joining", "indexing",
      "sorting",   "matrix",     "normalization", "convolution", "pooling", "resampling",
      "embedding", "recurrent",  "attention"};
  return all;
}

// Whether calls of the operator return the same bits each time, and a graph can hold them.
bool can_be_drawn(const OpRecord& op) {
  // Attention without dropout counts a number of the generator if a kernel takes the call, but not
  // as the operators that a graph has in its place.
  if (op.family == "attention" && op.random()) return false;
  // The method detaches first.
  if (op.name == "view.dtype") return false;
  return drawn_families().contains(op.family) && !op.unspecified() &&
         *not_in_graphs(op.name, false).why == 0 && *not_in_graphs(op.name, true).why == 0;
}

std::vector<Tensor> flat(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value.variant())) return {*tensor};
  if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) return *list;
  return {};
}

// The values while a graph runs.
class Runner {
 public:
  explicit Runner(RunOptions options) : options_(std::move(options)) {}

  void set(int number, const Tensor& value) {
    values_[number] = value;
    if (options_.seen != nullptr && value.defined())
      (*options_.seen)[number] = value.detach().clone();
  }
  const Tensor& at(int number) const { return values_.at(number); }
  const std::map<int, Tensor>& values() const { return values_; }

  // Returns the results of a call, which have no numbers yet.
  std::vector<Tensor> results(const GraphCall& call) const {
    Arguments arguments;
    for (const GraphArgument& each : call.arguments) {
      std::vector<Tensor> tensors;
      for (const int number : each.values) tensors.push_back(number < 0 ? Tensor() : at(number));
      const bool draws = std::holds_alternative<Generator>(each.constant.variant());
      Value value = each.is_list           ? Value(tensors)
                    : !each.values.empty() ? Value(tensors[0])
                    : draws                ? Value(*options_.generator)
                                           : each.constant;
      arguments.values.emplace_back(each.name, std::move(value));
    }
    std::vector<Tensor> found;
    if (call.op == nullptr) {
      found = {Cubed::apply(arguments.values[0].second.tensor())};
    } else {
      for (const Value& value : call_named(call.name, arguments)) {
        const std::vector<Tensor> part = flat(value);
        found.insert(found.end(), part.begin(), part.end());
      }
    }
    const bool is_view = call.op != nullptr && call.op->meaning == "view";
    if (!options_.change || is_view) return found;
    for (Tensor& each : found) {
      if (each.defined()) each = options_.change(call, arguments, each);
    }
    return found;
  }

  void run(const GraphCall& call) {
    const std::vector<Tensor> found = results(call);
    for (size_t i = 0; i < call.results.size(); ++i) set(call.results[i], found.at(i));
  }

 private:
  RunOptions options_;
  std::map<int, Tensor> values_;
};

// Draws one graph, and runs each call as it is drawn: a call that throws is left out.
class Drawing {
 public:
  Drawing(const std::map<std::string, std::vector<std::vector<Case>>>& families, uint64_t seed,
          bool smooth)
      : families_(families),
        smooth_(smooth),
        draw_(seed),
        generator_(seed),
        runner_({.generator = &generator_}) {
    graph_.seed = seed;
    graph_.backward = static_cast<Backward>(below(3));
    constexpr ScalarType kTypes[] = {kFloat32, kFloat32, kFloat32, kBFloat16, kFloat16, kFloat64};
    dtype_ = kTypes[below(6)];
  }

  RecordGraph run() {
    const int64_t columns = below(10) == 0 ? 130 : 2 + below(5), rows = 1 + below(5);
    for (int i = 0; i < 3; ++i) {
      const Tensor x = randn({rows, columns}, kFloat32, {}, Generator(graph_.seed * 3 + i));
      keep(input(x.to(dtype_).to(test_device())));
    }
    const int64_t length = 2 + below(14);
    for (int64_t i = 0; i < length; ++i) {
      const size_t calls = graph_.calls.size();
      const size_t inputs = graph_.inputs.size();
      try {
        if (!step()) throw Error(ErrorCode::kValue, "");
      } catch (const Error&) {
        graph_.calls.resize(calls);
        graph_.inputs.resize(inputs);
      }
    }
    // The newest values, and some of the others.
    for (size_t i = 0; i < pool_.size(); ++i) {
      if (i + 3 >= pool_.size() || below(4) == 0) graph_.results.push_back(pool_[i]);
    }
    return std::move(graph_);
  }

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(draw_); }

  int input(const Tensor& value) {
    const bool leaf = graph_.backward != Backward::kNone && is_floating_point(value.dtype());
    graph_.inputs.emplace_back(next_, value);
    runner_.set(next_, leaf ? copy_of(value).requires_grad_() : copy_of(value));
    return next_++;
  }
  void keep(int number) { pool_.push_back(number); }

  // Appends a call, unless it throws.
  std::vector<int> append(GraphCall call) {
    const std::vector<Tensor> found = runner_.results(call);
    for (const Tensor& each : found) {
      if (each.defined() && each.numel() > kMostElements) throw Error(ErrorCode::kValue, "");
    }
    for (const Tensor& each : found) {
      call.results.push_back(next_);
      runner_.set(next_++, each);
    }
    graph_.calls.push_back(std::move(call));
    return graph_.calls.back().results;
  }
  int append(const OpRecord* op, const std::string& name, int operand,
             std::vector<std::pair<std::string, Value>> others) {
    GraphCall call{op, name, {{"self", {}, {operand}}}, {}};
    for (auto& [key, value] : others) call.arguments.push_back({key, std::move(value)});
    return append(std::move(call))[0];
  }
  const OpRecord* record(const std::string& name) const {
    for (const auto& [family, operators] : families_) {
      for (const auto& cases : operators) {
        if (cases[0].op->name == name) return cases[0].op;
      }
    }
    throw Error(ErrorCode::kValue, "no operator " + name);
  }
  int simple(const std::string& name, int operand,
             std::vector<std::pair<std::string, Value>> others) {
    return append(record(name), name, operand, std::move(others));
  }

  // Returns a value of this shape and type, made from an earlier one, or -1.
  int fitted(const Tensor& like, const Json& spec, bool any_shape) {
    const int number = pool_[static_cast<size_t>(below(static_cast<int64_t>(pool_.size())))];
    const Tensor x = runner_.at(number);
    if (!x.defined() || x.numel() == 0 || is_complex(x.dtype())) return -1;
    if (!is_floating_point(like.dtype()) && x.dtype() != like.dtype()) return -1;
    if (is_floating_point(like.dtype()) && !is_floating_point(x.dtype()) && smooth_) return -1;
    int found = number;
    if (!any_shape && x.sizes() != like.sizes()) {
      const int64_t need = like.numel();
      if (need == 0) return -1;
      found = simple("reshape", found, {{"shape", std::vector<int64_t>{-1}}});
      const int64_t times = (need + x.numel() - 1) / x.numel();
      if (times > 1) found = simple("repeat", found, {{"repeats", std::vector<int64_t>{times}}});
      if (times * x.numel() > need) {
        const int64_t start = below(times * x.numel() - need + 1);
        found = simple("narrow", found, {{"dim", 0}, {"start", start}, {"length", need}});
      }
      found = simple("reshape", found, {{"shape", like.sizes().vec()}});
    }
    if (runner_.at(found).dtype() != like.dtype()) {
      found = simple("to.dtype", found, {{"dtype", like.dtype()}});
    }
    if (spec.contains("low") || spec.contains("high")) {
      const bool whole = !is_floating_point(like.dtype());
      const double low = number_of(spec, "low", -1), high = number_of(spec, "high", 1);
      found = simple("clamp", found,
                     {{"min", whole ? Value(static_cast<int64_t>(low)) : Value(low)},
                      {"max", whole ? Value(static_cast<int64_t>(high) - 1) : Value(high)}});
    }
    return found;
  }
  static double number_of(const Json& spec, const char* key, double otherwise) {
    return spec.contains(key) && spec.at(key).is_number() ? spec.at(key).get<double>() : otherwise;
  }
  // Whether other values may take the place of those that a sample describes.
  static bool is_free(const Json& spec) {
    for (const char* key : {"values", "matrix", "sorted", "unique", "special"}) {
      if (spec.contains(key)) return false;
    }
    return true;
  }

  int operand(const Tensor& tensor, const Json& spec, bool any_shape) {
    if (!tensor.defined()) return -1;
    if (tensor.numel() > kMostElements) throw Error(ErrorCode::kValue, "");
    if (spec.is_object() && is_free(spec) && tensor.dtype() != kBool && below(5) > 0) {
      for (int tries = 0; tries < 3; ++tries) {
        if (const int found = fitted(tensor, spec, any_shape); found >= 0) return found;
      }
    }
    return input(tensor);
  }

  bool step() {
    if (below(30) == 0) return function();
    auto family = families_.begin();
    // Half of the calls are elementwise, which is what passes and fused loops look for.
    if (below(2) == 0) {
      family = families_.find(below(3) == 0 ? "activation" : "pointwise");
    } else {
      std::advance(family, below(static_cast<int64_t>(families_.size())));
    }
    if (smooth_ && jumping_families().contains(family->first)) return false;
    const auto& operators = family->second;
    const auto& cases =
        operators[static_cast<size_t>(below(static_cast<int64_t>(operators.size())))];
    const Case* chosen = nullptr;
    for (int tries = 0; tries < 12; ++tries) {
      const Case& c = cases[static_cast<size_t>(below(static_cast<int64_t>(cases.size())))];
      chosen = &c;
      if (!c.typed || c.dtype == dtype_) break;
    }
    if (smooth_ && (!chosen->op->differentiable() || chosen->special())) return false;
    if (smooth_ && jumps(chosen->op->name)) return false;
    // Without a gradient, but a call that no kernel takes runs as operators that have one.
    const bool decomposes = chosen->op->kernel_optional && !chosen->op->differentiable();
    if (decomposes && graph_.backward != Backward::kNone) return false;
    return add(*chosen);
  }

  bool function() {
    const int number = pool_.back();
    if (!is_floating_point(runner_.at(number).dtype())) return false;
    keep(append({nullptr, "Cubed", {{"x", {}, {number}}}, {}})[0]);
    return true;
  }

  bool add(const Case& c) {
    const OpRecord& op = *c.op;
    const Arguments arguments = make_arguments(c, graph_.seed, test_device(), c.dtype);
    GraphCall call{&op, op.name, {}, {}};
    const bool any_shape = op.meaning == "pointwise" && below(3) > 0;
    for (const auto& [name, value] : arguments.values) {
      const Json spec = c.sample->at("args").value(name, Json());
      GraphArgument argument{name, {}};
      if (const auto* tensor = std::get_if<Tensor>(&value.variant())) {
        argument.values = {operand(*tensor, spec, any_shape)};
      } else if (const auto* list = std::get_if<std::vector<Tensor>>(&value.variant())) {
        argument.is_list = true;
        for (size_t i = 0; i < list->size(); ++i) {
          const Json each = spec.is_array() && i < spec.size() ? spec[i] : Json();
          argument.values.push_back(operand((*list)[i], each, false));
        }
      } else if (name == "generator" && below(2) == 0) {
        continue;  // the default one
      } else {
        argument.constant = value;
      }
      call.arguments.push_back(std::move(argument));
    }
    const bool writes = op.inplace && below(5) == 0;
    if (writes) call.name = op.inplace_name();
    for (const int number : append(std::move(call))) {
      const Tensor& x = runner_.at(number);
      if (x.defined() && !is_complex(x.dtype())) keep(number);
    }
    return true;
  }

  const std::map<std::string, std::vector<std::vector<Case>>>& families_;
  bool smooth_;
  std::mt19937_64 draw_;
  Generator generator_;
  Runner runner_;
  RecordGraph graph_;
  ScalarType dtype_ = kFloat32;
  std::vector<int> pool_;
  int next_ = 0;
};

}  // namespace

GraphDrawer::GraphDrawer(const std::vector<OpRecord>& catalog) {
  for (const OpRecord& op : catalog) {
    if (!can_be_drawn(op)) continue;
    std::vector<Case> cases;
    for (const Case& c : cases_of(op)) {
      if (!c.sample->contains("error") && !c.suggested()) cases.push_back(c);
    }
    if (!cases.empty()) families_[op.family].push_back(std::move(cases));
  }
}

RecordGraph GraphDrawer::draw(uint64_t seed, bool smooth) const {
  return Drawing(families_, seed, smooth).run();
}

std::vector<std::string> GraphDrawer::operators() const {
  std::vector<std::string> found;
  for (const auto& [family, operators] : families_) {
    for (const auto& cases : operators) found.push_back(cases[0].op->name);
  }
  return found;
}

std::vector<Tensor> gradients_of(const std::vector<Tensor>& results,
                                 const std::vector<Tensor>& inputs) {
  Tensor total;
  for (const Tensor& each : results) {
    if (!each.defined() || !each.requires_grad()) continue;
    // Weights that differ, and that lie in memory as the result does: gradients are recorded so,
    // and eager kernels add those with other strides in another order.
    const Tensor numbers = arange(each.numel(), TensorOptions(each.device()));
    const Tensor weights =
        zeros_like(each.detach(), kFloat32).copy_(cos(numbers).reshape(each.sizes()));
    const Tensor part = sum(each.to(kFloat32) * weights);
    total = total.defined() ? total + part : part;
  }
  std::vector<Tensor> found;
  if (!total.defined()) return found;
  for (const Tensor& each : inputs) each.set_grad({});
  total.backward();
  for (const Tensor& each : inputs) {
    if (each.requires_grad() && each.grad().defined()) found.push_back(each.grad());
  }
  return found;
}

std::vector<Tensor> inputs_of(const RecordGraph& graph) {
  std::vector<Tensor> found;
  for (const auto& [number, value] : graph.inputs) {
    found.push_back(copy_of(value));
    const bool leaf = graph.backward != Backward::kNone && is_floating_point(value.dtype());
    if (leaf) found.back().requires_grad_();
  }
  return found;
}

std::vector<Tensor> run_graph(const RecordGraph& graph, const std::vector<Tensor>& inputs,
                              const RunOptions& options) {
  // Leaves are made here, so that the gradients of a call are its own.
  std::vector<Tensor> leaves = inputs;
  if (graph.backward == Backward::kInside) {
    for (Tensor& each : leaves) {
      if (each.requires_grad()) each = each.detach().requires_grad_();
    }
  }
  Runner runner(options);
  for (size_t i = 0; i < leaves.size(); ++i) runner.set(graph.inputs[i].first, leaves[i]);
  for (const GraphCall& call : graph.calls) runner.run(call);
  std::vector<Tensor> found;
  for (const int number : graph.results) {
    if (runner.at(number).defined()) found.push_back(runner.at(number));
  }
  if (graph.backward != Backward::kInside) return found;
  const std::vector<Tensor> gradients = gradients_of(found, leaves);
  for (Tensor& each : found) each = each.detach();
  found.insert(found.end(), gradients.begin(), gradients.end());
  return found;
}

std::string text_of(const RecordGraph& graph) {
  std::ostringstream out;
  for (const auto& [number, value] : graph.inputs) {
    Arguments one;
    one.values.emplace_back("%" + std::to_string(number), value);
    out << "  " << describe(one) << "\n";
  }
  for (const GraphCall& call : graph.calls) {
    out << "  ";
    for (size_t i = 0; i < call.results.size(); ++i)
      out << (i > 0 ? ", " : "") << "%" << call.results[i];
    out << " = " << call.name << "(";
    bool first = true;
    for (const GraphArgument& each : call.arguments) {
      out << (first ? "" : ", ");
      first = false;
      if (each.values.empty() && !each.is_list) {
        Arguments one;
        one.values.emplace_back(each.name, each.constant);
        out << describe(one);
        continue;
      }
      out << each.name << "=" << (each.is_list ? "[" : "");
      for (size_t i = 0; i < each.values.size(); ++i)
        out << (i > 0 ? ", " : "") << "%" << each.values[i];
      out << (each.is_list ? "]" : "");
    }
    out << ")\n";
  }
  out << "  return";
  for (const int number : graph.results) out << " %" << number;
  const char* const kBackward[] = {"", "; backward inside", "; backward outside"};
  out << kBackward[static_cast<int>(graph.backward)] << "\n";
  return out.str();
}

}  // namespace mytorch::conformance
