#include "graph/ir/uses.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace mytorch::graph {

bool is_view(const Graph& graph, const GraphNode& node) {
  if (node.form != kFunction || node.op().meaning != Meaning::kView || node.args.empty() ||
      node.args[0].kind != Arg::kTensor) {
    return false;
  }
  const int32_t buffer = graph.values[static_cast<size_t>(node.args[0].values[0])].buffer;
  bool same = true;
  node.for_each_result(
      [&](ValueId id) { same = same && graph.values[static_cast<size_t>(id)].buffer == buffer; });
  return same;
}

GraphUses::GraphUses(const Graph& graph) : graph_(graph), buffers_(graph.buffers.size()) {
  const auto at = [&](ValueId id) -> BufferUses& {
    return buffers_[static_cast<size_t>(graph.values[static_cast<size_t>(id)].buffer)];
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const GraphNode& node = graph.nodes[n];
    const auto i = static_cast<int32_t>(n);
    if (is_view(graph, node)) {
      at(node.args[0].values[0]).viewed.push_back(i);
      continue;
    }
    const auto add = [i](std::vector<int32_t>* to) {
      if (to->empty() || to->back() != i) to->push_back(i);
    };
    node.for_each_operand([&](ValueId id) { add(&at(id).read); });
    node.for_each_written([&](ValueId id) { add(&at(id).written); });
    node.for_each_result([&](ValueId id) {
      BufferUses& uses = at(id);
      const bool fresh = graph.buffer_of(id).origin == BufferOrigin::kInside && uses.producer < 0 &&
                         uses.written.empty() && uses.read.empty();
      if (fresh) {
        uses.producer = i;
        uses.whole = id;
      } else if (uses.producer != i) {
        add(&uses.read);  // a result that is no new memory
      }
    });
  }
  for (const ValueId id : graph.results) {
    if (id != kNoValue) at(id).escapes = true;
  }
  for (const GradResult& grad : graph.grads) {
    if (grad.grad != kNoValue) at(grad.grad).escapes = true;
  }
}

uint64_t peak_bytes(const Graph& graph) {
  const GraphUses uses(graph);
  std::vector<int64_t> change(graph.nodes.size() + 1);  // of the bytes in use, at each node
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    const BufferUses& of = uses.buffer(static_cast<int32_t>(b));
    if (graph.buffers[b].origin != BufferOrigin::kInside || of.escapes || of.producer < 0) continue;
    int32_t last = of.producer;
    for (const std::vector<int32_t>* users : {&of.read, &of.written}) {
      if (!users->empty()) last = std::max(last, users->back());
    }
    const auto bytes = static_cast<int64_t>(graph.buffers[b].bytes);
    change[static_cast<size_t>(of.producer)] += bytes;
    change[static_cast<size_t>(last) + 1] -= bytes;
  }
  int64_t now = 0, most = 0;
  for (const int64_t each : change) most = std::max(most, now += each);
  return static_cast<uint64_t>(most);
}

bool GraphUses::is_written(ValueId id, int32_t begin, int32_t end) const {
  const std::vector<int32_t>& written = of(id).written;
  return std::any_of(written.begin(), written.end(),
                     [&](int32_t node) { return node >= begin && node < end; });
}

uint64_t bytes_of(const ValueInfo& info) {
  uint64_t bytes = element_size(info.dtype);
  for (const int64_t size : info.sizes) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

bool is_whole(const Graph& graph, ValueId id) {
  const ValueInfo& info = graph.values[static_cast<size_t>(id)];
  Dims strides(info.sizes.size());
  contiguous_strides(info.sizes.data(), static_cast<int>(info.sizes.size()), strides.data());
  return info.offset == 0 && info.strides == strides && graph.buffer_of(id).bytes == bytes_of(info);
}

bool same_geometry(const ValueInfo& a, const ValueInfo& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
}

bool can_move(const Graph& graph, int32_t buffer, int64_t shift) {
  if (shift == 0) return true;
  return std::all_of(graph.values.begin(), graph.values.end(), [&](const ValueInfo& info) {
    return info.buffer != buffer || shift % element_size(info.dtype) == 0;
  });
}

int64_t begin_of(const ValueInfo& info) { return info.offset * element_size(info.dtype); }

void GraphUses::join(int32_t from, int32_t to) {
  BufferUses& a = buffers_[static_cast<size_t>(from)];
  BufferUses& b = buffers_[static_cast<size_t>(to)];
  for (std::vector<int32_t> BufferUses::*list : {&BufferUses::read, &BufferUses::viewed}) {
    std::vector<int32_t> all;
    std::set_union((a.*list).begin(), (a.*list).end(), (b.*list).begin(), (b.*list).end(),
                   std::back_inserter(all));
    b.*list = std::move(all);
  }
  b.escapes = b.escapes || a.escapes;
  a = {};
}

}  // namespace mytorch::graph
