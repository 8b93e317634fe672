#include "graph/ir/replacing.h"

#include <numeric>
#include <utility>

#include "graph/ir/uses.h"

namespace mytorch::graph {

Replacing::Replacing(Graph* graph)
    : graph_(*graph), now_(graph->values.size()), values_(graph->buffers.size()) {
  std::iota(now_.begin(), now_.end(), 0);
  for (const ValueId id : now_) {
    values_[static_cast<size_t>(graph->values[static_cast<size_t>(id)].buffer)].push_back(id);
  }
}

void Replacing::replace(ValueId old, ValueId now) {
  now_[static_cast<size_t>(old)] = now;
  const ValueInfo& from = graph_.values[static_cast<size_t>(old)];
  const ValueInfo& to = graph_.values[static_cast<size_t>(now)];
  const int64_t shift = begin_of(to) - begin_of(from);
  const int32_t buffer = to.buffer;
  std::vector<ValueId> moved = values_[static_cast<size_t>(from.buffer)];
  for (const ValueId id : moved) {
    ValueInfo& info = graph_.values[static_cast<size_t>(id)];
    info.offset += shift / element_size(info.dtype);
  }
  if (from.buffer == buffer) return;
  values_[static_cast<size_t>(from.buffer)].clear();
  for (const ValueId id : moved) graph_.values[static_cast<size_t>(id)].buffer = buffer;
  std::vector<ValueId>& all = values_[static_cast<size_t>(buffer)];
  all.insert(all.end(), moved.begin(), moved.end());
}

void Replacing::rename(ValueId* id) const {
  if (*id == kNoValue) return;
  while (now_[static_cast<size_t>(*id)] != *id) *id = now_[static_cast<size_t>(*id)];
}

void Replacing::rename(GraphNode* node) const {
  for (std::vector<Arg>* args : {&node->args, &node->results}) {
    for (Arg& arg : *args) {
      for (ValueId& id : arg.values) rename(&id);
    }
  }
}

void Replacing::finish() {
  for (GraphNode& node : graph_.nodes) rename(&node);
  for (ValueId& id : graph_.results) rename(&id);
  for (GradResult& grad : graph_.grads) rename(&grad.grad);
}

}  // namespace mytorch::graph
