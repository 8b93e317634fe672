// Graphs of calls that are drawn from the records: operators of the families that networks are made
// of, with the arguments of conformance/samples, whose tensors are replaced by what earlier calls
// return.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/inputs.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch::conformance {

// An argument of a call: tensors by the numbers of values, anything else as it is.
struct GraphArgument {
  std::string name;
  Value constant;
  std::vector<int> values = {};  // -1: undefined
  bool is_list = false;
};

// A call. Its results have numbers of their own, also those that share memory with operands.
struct GraphCall {
  const OpRecord* op = nullptr;  // null: Cubed, a subclass of autograd::Function
  std::string name;              // of the operator or of its in-place form
  std::vector<GraphArgument> arguments;
  std::vector<int> results;

  bool in_place() const { return op != nullptr && (name != op->name || op->writes()); }
};

// Where gradients of the results are computed: by the function, or by its caller.
enum class Backward { kNone, kInside, kOutside };

struct RecordGraph {
  std::vector<std::pair<int, Tensor>> inputs;  // values with their numbers
  std::vector<GraphCall> calls;
  std::vector<int> results;
  Backward backward = Backward::kNone;
  uint64_t seed = 0;  // of the generators that calls draw from
};

// Draws graphs. They depend on the seed alone, if the records stay.
class GraphDrawer {
 public:
  explicit GraphDrawer(const std::vector<OpRecord>& catalog);
  // `smooth`: only operators whose results follow small changes of their operands closely, as the
  // comparison within a tolerance needs.
  RecordGraph draw(uint64_t seed, bool smooth) const;
  std::vector<std::string> operators() const;  // that may be drawn

 private:
  std::map<std::string, std::vector<std::vector<Case>>> families_;  // the cases of each operator
};

// What a run may do besides computing.
struct RunOptions {
  Generator* generator = nullptr;  // of calls that name one
  // Is called with the new results of a call, in place of which it returns others.
  std::function<Tensor(const GraphCall&, const Arguments&, const Tensor&)> change = {};
  std::map<int, Tensor>* seen = nullptr;  // gets copies of all values
};

// Runs the graph on inputs: leaves that require gradients, if `backward` says so. Returns the
// results, with the gradients behind them if the function itself computes these.
std::vector<Tensor> run_graph(const RecordGraph& graph, const std::vector<Tensor>& inputs,
                              const RunOptions& options);
// Returns the gradients of the sum of all results with respect to the inputs.
std::vector<Tensor> gradients_of(const std::vector<Tensor>& results,
                                 const std::vector<Tensor>& inputs);
// Returns copies of the inputs as run_graph() takes them.
std::vector<Tensor> inputs_of(const RecordGraph& graph);

// Returns the smallest graph found that still fails. `fails` returns what is wrong, or "".
RecordGraph minimized(RecordGraph graph,
                      const std::function<std::string(const RecordGraph&)>& fails);

// One line for each input and call.
std::string text_of(const RecordGraph& graph);

}  // namespace mytorch::conformance
