// Runs the passes that libraries have added, which take and return the text of a graph.
#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "graph/formats/parse.h"
#include "graph/ir/uses.h"
#include "graph/passes/passes.h"
#include "mytorch/rewrite.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

struct AddedPass {
  std::string name;
  std::function<std::string(const std::string&)> run;
};

struct AddedTable {
  std::mutex mutex;
  std::deque<AddedPass> passes;  // which live as long as the process
};

AddedTable& added_table() {
  static auto* const found = new AddedTable;
  return *found;
}

bool same_value(const Graph& before, ValueId a, const Graph& now, ValueId b) {
  if (a == kNoValue || b == kNoValue) return a == b;
  return same_geometry(before.values[static_cast<size_t>(a)], now.values[static_cast<size_t>(b)]);
}

// Returns whether a tensor that a recording has holds what a graph reads of a buffer.
bool has_source(const Recorded& recorded, const GraphBuffer& buffer) {
  if (buffer.origin == BufferOrigin::kOutside) {
    if (static_cast<size_t>(buffer.index) >= recorded.outside.size()) return false;
    const Tensor& tensor = recorded.outside[static_cast<size_t>(buffer.index)];
    return buffer.device == tensor.device() && buffer.bytes <= tensor.impl()->storage->bytes;
  }
  if (buffer.origin != BufferOrigin::kGrad) return true;
  const std::vector<GraphBuffer>& known = recorded.graph.buffers;
  return std::any_of(known.begin(), known.end(), [&](const GraphBuffer& each) {
    return each.origin == BufferOrigin::kGrad && each.leaf == buffer.leaf &&
           each.device == buffer.device && buffer.bytes <= each.bytes;
  });
}

// Refuses a graph that belongs to other tensors than the recording.
void check_same_inputs(const Recorded& recorded, const Graph& now) {
  const Graph& before = recorded.graph;
  bool same = before.arguments.size() == now.arguments.size() &&
              before.results.size() == now.results.size() &&
              before.grads.size() == now.grads.size();
  for (size_t i = 0; same && i < before.arguments.size(); ++i) {
    const ValueId a = before.arguments[i], b = now.arguments[i];
    const ValueInfo& was = before.values[static_cast<size_t>(a)];
    same = same_value(before, a, now, b) &&
           was.offset == now.values[static_cast<size_t>(b)].offset &&
           before.buffer_of(a).device == now.buffer_of(b).device;
  }
  for (size_t i = 0; same && i < before.results.size(); ++i) {
    same = same_value(before, before.results[i], now, now.results[i]);
  }
  for (size_t i = 0; same && i < before.grads.size(); ++i) {
    same = before.grads[i].leaf == now.grads[i].leaf &&
           same_value(before, before.grads[i].grad, now, now.grads[i].grad);
  }
  for (const GraphBuffer& buffer : now.buffers) same = same && has_source(recorded, buffer);
  if (!same) {
    fail(ErrorCode::kValue,
         "the graph has other arguments, outside tensors, results or grads than the one it was "
         "given");
  }
}

}  // namespace

void add_pass(std::string_view name, std::function<std::string(const std::string&)> pass) {
  AddedTable& found = added_table();
  const std::lock_guard lock(found.mutex);
  for (const AddedPass& each : found.passes) {
    if (each.name == name) {
      fail(ErrorCode::kValue, "[compile] there is a pass `", std::string(name), "` already");
    }
  }
  found.passes.push_back({std::string(name), std::move(pass)});
}

void run_added_passes(Recorded* recorded, const PassOptions&, Fired* fired) {
  std::vector<const AddedPass*> passes;
  {
    AddedTable& found = added_table();
    const std::lock_guard lock(found.mutex);
    for (const AddedPass& each : found.passes) passes.push_back(&each);
  }
  for (const AddedPass* pass : passes) {
    const std::string text = to_text(recorded->graph);
    const std::string now = pass->run(text);
    if (now == text) continue;
    try {
      Graph graph = parse_text(now);
      check_same_inputs(*recorded, graph);
      recorded->graph = std::move(graph);
    } catch (const Error& error) {
      fail(error.code(), "[compile] pass ", pass->name, ": ", error.what());
    }
    ++(*fired)[pass->name];
  }
}

}  // namespace mytorch::graph
