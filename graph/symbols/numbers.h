// The integers and numbers of a graph: geometries of values and arguments of nodes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/ir/uses.h"

namespace mytorch::graph {

// Returns the bytes that the values of each buffer cover.
inline std::vector<uint64_t> covered_bytes(const Graph& graph) {
  std::vector<uint64_t> bytes(graph.buffers.size());
  for (const ValueInfo& info : graph.values) {
    int64_t end = info.offset + 1;
    bool empty = false;
    for (size_t i = 0; i < info.sizes.size(); ++i) {
      empty = empty || info.sizes[i] == 0;
      end += std::max<int64_t>(info.sizes[i] - 1, 0) * std::max<int64_t>(info.strides[i], 0);
    }
    uint64_t& most = bytes[static_cast<size_t>(info.buffer)];
    if (!empty) most = std::max(most, static_cast<uint64_t>(end * element_size(info.dtype)));
  }
  return bytes;
}

// Calls integer(x, key) and real(x, key) for each number of a graph, which they may change. The key
// is the address by which to_text() asks for another text of it. Buffers whose bytes follow from
// their values, and those of arguments, get theirs from them.
template <class Integer, class Real>
void for_each_number(Graph* graph, const Integer& integer, const Real& real) {
  const std::vector<uint64_t> before = covered_bytes(*graph);
  for (ValueInfo& info : graph->values) {
    for (int64_t& size : info.sizes) integer(size, &size);
    for (int64_t& stride : info.strides) integer(stride, &stride);
    integer(info.offset, &info.offset);
  }
  for (GraphNode& node : graph->nodes) {
    for (Arg& arg : node.args) {
      const Value::Variant& held = arg.constant.variant();
      if (const auto* scalar = std::get_if<Scalar>(&held)) {
        if (scalar->is_int()) {
          int64_t x = scalar->to_int();
          integer(x, &arg);
          if (x != scalar->to_int()) arg.constant = Value(Scalar(x));
        } else if (scalar->is_float()) {
          double x = scalar->to_double();
          real(x, &arg);
          arg.constant = Value(Scalar(x));
        }
      } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&held)) {
        std::vector<int64_t> list = *integers;
        for (size_t i = 0; i < list.size(); ++i) integer(list[i], integers->data() + i);
        if (list != *integers) arg.constant = Value(std::move(list));
      } else if (const auto* reals = std::get_if<std::vector<double>>(&held)) {
        std::vector<double> list = *reals;
        for (size_t i = 0; i < list.size(); ++i) real(list[i], reals->data() + i);
        const bool same =
            std::equal(list.begin(), list.end(), reals->begin(), [](double a, double b) {
              return std::bit_cast<int64_t>(a) == std::bit_cast<int64_t>(b);
            });
        if (!same) arg.constant = Value(std::move(list));
      }
    }
  }
  const std::vector<uint64_t> now = covered_bytes(*graph);
  for (size_t b = 0; b < graph->buffers.size(); ++b) {
    GraphBuffer& buffer = graph->buffers[b];
    const bool follows = buffer.origin == BufferOrigin::kArgument || buffer.bytes == before[b];
    auto bytes = follows ? int64_t{-1} : static_cast<int64_t>(buffer.bytes);
    integer(bytes, &buffer);
    buffer.bytes = bytes == -1 ? now[b] : static_cast<uint64_t>(bytes);
  }
}

}  // namespace mytorch::graph
