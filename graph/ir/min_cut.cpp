#include "graph/ir/min_cut.h"

#include <algorithm>
#include <utility>

namespace mytorch::graph {
namespace {

constexpr uint64_t kUnlimited = UINT64_MAX / 4;
constexpr int32_t kSource = 0, kSink = 1;

}  // namespace

MinCut::MinCut(std::vector<uint64_t> weights)
    : weights_(std::move(weights)), leaves_(2 * weights_.size() + 2) {
  for (size_t i = 0; i < weights_.size(); ++i) {
    const auto node = static_cast<int32_t>(i);
    add(in(node), out(node), weights_[i]);
  }
}

void MinCut::add(int32_t from, int32_t to, uint64_t room) {
  leaves_[from].push_back(static_cast<int32_t>(edges_.size()));
  edges_.push_back({to, room});
  leaves_[to].push_back(static_cast<int32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

void MinCut::edge(int32_t from, int32_t to) { add(out(from), in(to), kUnlimited); }
void MinCut::source(int32_t node) { add(kSource, in(node), kUnlimited); }
void MinCut::sink(int32_t node) { add(out(node), kSink, kUnlimited); }

// Sends as much as fits along a shortest path. Returns false if there is none.
bool MinCut::augment() {
  came_by_.assign(leaves_.size(), -1);
  std::vector<int32_t> reached{kSource};
  for (size_t i = 0; i < reached.size() && came_by_[kSink] < 0; ++i) {
    for (const int32_t edge : leaves_[reached[i]]) {
      const int32_t to = edges_[edge].to;
      if (edges_[edge].room == 0 || to == kSource || came_by_[to] >= 0) continue;
      came_by_[to] = edge;
      reached.push_back(to);
    }
  }
  if (came_by_[kSink] < 0) return false;
  uint64_t room = kUnlimited;
  const auto along = [&](auto f) {
    for (int32_t at = kSink; at != kSource; at = edges_[came_by_[at] ^ 1].to) f(came_by_[at]);
  };
  along([&](int32_t edge) { room = std::min(room, edges_[edge].room); });
  along([&](int32_t edge) {
    edges_[edge].room -= room;
    edges_[edge ^ 1].room += room;
  });
  return true;
}

std::vector<bool> MinCut::run() {
  while (augment()) {
  }
  // What can still send to the sink is behind the cut.
  std::vector<bool> behind(leaves_.size());
  std::vector<int32_t> reached{kSink};
  behind[kSink] = true;
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int32_t edge : leaves_[reached[i]]) {
      const int32_t from = edges_[edge].to;
      if (behind[from] || edges_[edge ^ 1].room == 0) continue;
      behind[from] = true;
      reached.push_back(from);
    }
  }
  std::vector<bool> cut;
  for (size_t i = 0; i < weights_.size(); ++i) {
    const auto node = static_cast<int32_t>(i);
    cut.push_back(behind[out(node)] && !behind[in(node)]);
  }
  return cut;
}

}  // namespace mytorch::graph
