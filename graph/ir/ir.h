// Graphs: recorded calls of operators, in order.
//
// A value is a tensor as an operator sees it: a type and a geometry over a buffer, which stands for
// a storage. Views are values of the same buffer. A node is a call of one form of an operator.
// In-place and out= forms write the buffers of their values, so the order of nodes that share
// buffers matters: Flow (flow.h) says which nodes depend on which.
//
//   graph(%0: float32[64, 784], %1: int64[64]) {
//     %2: float32[256, 784] = outside(0)
//     %3: float32[784, 256; 1, 784] in %2 = transpose.int(%2, 0, 1)
//     %4: float32[64, 256] = mm(%0, %3)
//     add_.Tensor(%2, %4, 0.5)
//     return %4
//   }
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/types/dims.h"
#include "dispatcher/table/op.h"
#include "mytorch/call.h"

namespace mytorch::graph {

// An index into Graph::values. Negative for the absent result of an operator.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

// Where the memory of a buffer comes from.
enum class BufferOrigin : uint8_t {
  kArgument,  // an argument of the graph
  kOutside,   // a tensor that the recorded function refers to, such as a parameter
  kGrad,      // the grad of a leaf, at the beginning
  kInside,    // a node
};

// A leaf of autograd: an argument or an outside tensor.
struct Leaf {
  BufferOrigin origin = BufferOrigin::kOutside;
  int32_t index = -1;

  bool operator==(const Leaf&) const = default;
};

struct GraphBuffer {
  BufferOrigin origin = BufferOrigin::kInside;
  int32_t index = -1;  // of the argument or the outside tensor; -1 for others
  Leaf leaf;           // of kGrad
  Device device;
  uint64_t bytes = 0;
};

struct ValueInfo {
  int32_t buffer = -1;
  ScalarType dtype = kFloat32;
  Dims sizes;
  Dims strides;
  int64_t offset = 0;  // in elements of dtype from the beginning of the buffer
};

// An argument or a result of a node.
struct Arg {
  enum Kind : uint8_t { kConstant, kTensor, kTensors };
  Kind kind = kConstant;
  std::vector<ValueId> values;  // one for kTensor
  Value constant;               // for kConstant

  static Arg tensor(ValueId id) { return {kTensor, {id}, {}}; }
};

struct GraphNode {
  const OpEntry* entry = nullptr;
  Form form = kFunction;
  bool grad_mode = false;
  // Of a derived gradient: the results to compute, as bits.
  uint32_t wanted = ~0u;
  std::vector<Arg> args;  // in schema order; the outputs of the out= form come first
  std::vector<Arg> results;

  const OpInfo& op() const { return *entry->info; }
  // Calls f(ValueId) for each tensor argument.
  template <class F>
  void for_each_operand(F f) const {
    for (const Arg& arg : args) {
      for (const ValueId id : arg.values) {
        if (id != kNoValue) f(id);
      }
    }
  }
  template <class F>
  void for_each_result(F f) const {
    for (const Arg& arg : results) {
      for (const ValueId id : arg.values) {
        if (id != kNoValue) f(id);
      }
    }
  }
  // Returns the number of leading arguments that the form writes, besides those of the schema.
  int outs() const {
    return form == kOut ? static_cast<int>(args.size()) - op().num_args : form == kInplace ? 1 : 0;
  }
  // Returns whether an argument is written.
  bool writes(size_t arg) const {
    const int leading = outs();
    if (static_cast<int>(arg) < leading) return true;
    const size_t at = form == kOut ? arg - leading : arg;
    return op().args[at].written;
  }
  // Calls f(ValueId) for each tensor argument that the node writes.
  template <class F>
  void for_each_written(F f) const {
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].values.empty() || !writes(i)) continue;
      for (const ValueId id : args[i].values) {
        if (id != kNoValue) f(id);
      }
    }
  }
  // Returns whether the node replaces all elements of an argument without reading them.
  bool overwrites(size_t arg) const;
  // Returns whether the node draws random numbers.
  bool random() const;
  // Returns "add_.Tensor".
  std::string name() const;
};

// A grad that the recorded function leaves behind.
struct GradResult {
  Leaf leaf;
  ValueId grad = kNoValue;  // kNoValue: cleared
};

struct Graph {
  std::vector<GraphBuffer> buffers;
  std::vector<ValueInfo> values;
  std::vector<GraphNode> nodes;
  std::vector<ValueId> arguments;  // a value per argument
  std::vector<ValueId> results;
  std::vector<GradResult> grads;

  const GraphBuffer& buffer_of(ValueId id) const { return buffers[values[id].buffer]; }
};

// Returns whether an operator replaces all elements of its first argument without reading them.
bool overwrites_argument(const OpInfo& op);

// Returns whether a node only computes its results from its operands: it could run twice, or not at
// all. Errors of its kernels do not count.
bool is_pure(const GraphNode& node);
// Removes the nodes for which `removed` is true.
void remove_nodes(Graph* graph, const std::vector<bool>& removed);

// Texts of numbers of a graph that are functions of sizes, by the address of the number, or of the
// Arg that holds it.
using SymbolTexts = absl::flat_hash_map<const void*, std::string>;

// Returns the text of a graph, as above. Numbers with a text in `symbols` are written as that.
std::string to_text(const Graph& graph, const SymbolTexts* symbols = nullptr);
// Returns the text of one node, without indentation.
std::string to_text(const Graph& graph, const GraphNode& node);
// Returns what of it follows the results: "add.Tensor(%1, %2, 1)".
std::string call_text(const GraphNode& node);

}  // namespace mytorch::graph
