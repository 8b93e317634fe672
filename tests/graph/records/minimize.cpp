// Delta debugging of graphs: takes away whatever the failure does not need.
#include <algorithm>
#include <set>

#include "conformance/check.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/mytorch.h"
#include "tests/graph/records/record_graph.h"

namespace mytorch::conformance {
namespace {

std::set<int> used_values(const RecordGraph& graph) {
  std::set<int> used(graph.results.begin(), graph.results.end());
  for (const GraphCall& call : graph.calls) {
    for (const GraphArgument& each : call.arguments)
      used.insert(each.values.begin(), each.values.end());
  }
  return used;
}

void drop_unused_inputs(RecordGraph* graph) {
  const std::set<int> used = used_values(*graph);
  std::erase_if(graph->inputs, [&](const auto& each) { return !used.contains(each.first); });
}

// The values of a run, or none if the graph throws.
std::map<int, Tensor> values_of(const RecordGraph& graph) try {
  std::map<int, Tensor> seen;
  Generator generator(graph.seed);
  const GeneratorGuard guard{Generator(graph.seed + 1)};
  run_graph(graph, inputs_of(graph), {.generator = &generator, .seen = &seen});
  return seen;
} catch (const Error&) {
  return {};
}

class Minimizer {
 public:
  Minimizer(RecordGraph graph, const std::function<std::string(const RecordGraph&)>& fails)
      : best_(std::move(graph)), fails_(fails) {}

  RecordGraph run() {
    single_result();
    for (int round = 0; round < 4; ++round) {
      const size_t calls = best_.calls.size();
      without_calls();
      inputs_in_place_of_results();
      if (best_.calls.size() == calls) break;
    }
    inputs_in_place_of_operands();
    if (best_.backward != Backward::kNone) {
      RecordGraph less = best_;
      less.backward = Backward::kNone;
      accept(less);
    }
    smaller_sizes();
    return std::move(best_);
  }

 private:
  bool accept(RecordGraph graph) {
    drop_unused_inputs(&graph);
    if (graph.inputs.empty() || tries_++ > kMostTries) return false;
    try {
      if (fails_(graph).empty()) return false;
    } catch (const std::exception&) {
      return false;  // no such call
    }
    best_ = std::move(graph);
    return true;
  }

  void single_result() {
    for (const int number : std::vector<int>(best_.results)) {
      RecordGraph less = best_;
      less.results = {number};
      if (accept(less)) return;
    }
  }

  // Drops calls whose results nothing uses, or which write what others read.
  void without_calls() {
    for (size_t i = best_.calls.size(); i-- > 0;) {
      const std::set<int> used = used_values(best_);
      const auto& results = best_.calls[i].results;
      if (std::any_of(results.begin(), results.end(), [&](int r) { return used.contains(r); })) {
        continue;
      }
      RecordGraph less = best_;
      less.calls.erase(less.calls.begin() + static_cast<int64_t>(i));
      accept(less);
    }
  }

  // Replaces calls by inputs that have the values of their results.
  void inputs_in_place_of_results() {
    for (size_t i = best_.calls.size(); i-- > 0;) {
      if (i >= best_.calls.size()) continue;
      const std::map<int, Tensor> values = values_of(best_);
      RecordGraph less = best_;
      const std::set<int> used = used_values(less);
      for (const int number : less.calls[i].results) {
        if (used.contains(number) && values.contains(number)) {
          less.inputs.emplace_back(number, values.at(number));
        }
      }
      less.calls.erase(less.calls.begin() + static_cast<int64_t>(i));
      if (accept(less)) without_calls();
    }
  }

  // Replaces single operands of what is left, then other results of their calls are not needed.
  void inputs_in_place_of_operands() {
    const std::map<int, Tensor> values = values_of(best_);
    int next = 100000;
    for (size_t i = 0; i < best_.calls.size(); ++i) {
      for (size_t a = 0; a < best_.calls[i].arguments.size(); ++a) {
        for (size_t k = 0; k < best_.calls[i].arguments[a].values.size(); ++k) {
          RecordGraph less = best_;
          int& number = less.calls[i].arguments[a].values[k];
          const auto value = values.find(number);
          const bool is_input = std::any_of(less.inputs.begin(), less.inputs.end(),
                                            [&](const auto& each) { return each.first == number; });
          if (value == values.end() || is_input) continue;
          less.inputs.emplace_back(next, value->second);
          number = next++;
          accept(less);
        }
      }
    }
    without_calls();
  }

  // Halves each size of the inputs, wherever it occurs, in lists of integers, too.
  void smaller_sizes() {
    for (int round = 0; round < 6; ++round) {
      std::set<int64_t> sizes;
      for (const auto& [number, value] : best_.inputs) {
        for (const int64_t size : value.sizes()) {
          if (size > 1) sizes.insert(size);
        }
      }
      bool any = false;
      for (const int64_t size : sizes) {
        for (const int64_t smaller : {int64_t{1}, size / 2, size - 1}) {
          if (smaller < 1 || smaller == size) continue;
          RecordGraph less = best_;
          for (auto& [number, value] : less.inputs) {
            for (int64_t d = 0; d < value.dim(); ++d) {
              if (value.size(d) == size) value = value.narrow(d, 0, smaller);
            }
            value = value.clone();
          }
          for (GraphCall& call : less.calls) {
            for (GraphArgument& each : call.arguments) {
              const auto* list = std::get_if<std::vector<int64_t>>(&each.constant.variant());
              if (list == nullptr) continue;
              std::vector<int64_t> changed = *list;
              std::replace(changed.begin(), changed.end(), size, smaller);
              each.constant = changed;
            }
          }
          if (accept(less)) {
            any = true;
            break;
          }
        }
      }
      if (!any) return;
    }
  }

  static constexpr int kMostTries = 400;
  RecordGraph best_;
  const std::function<std::string(const RecordGraph&)>& fails_;
  int tries_ = 0;
};

}  // namespace

RecordGraph minimized(RecordGraph graph,
                      const std::function<std::string(const RecordGraph&)>& fails) {
  return Minimizer(std::move(graph), fails).run();
}

}  // namespace mytorch::conformance
