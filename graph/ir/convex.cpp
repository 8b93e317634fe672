#include "graph/ir/convex.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace mytorch::graph {

ConvexParts::ConvexParts(std::vector<std::vector<int32_t>> before)
    : before_(std::move(before)),
      after_(before_.size()),
      part_(before_.size()),
      members_(before_.size()),
      marked_(before_.size()) {
  std::iota(part_.begin(), part_.end(), 0);
  places_ = place_of_ = part_;
  for (const int32_t node : part_) {
    members_[node] = {node};
    for (const int32_t other : before_[node]) after_[other].push_back(node);
  }
}

// Marks the parts between two, to which edges lead from one of them. Returns false if they lead on
// to the other one.
bool ConvexParts::mark(const Edges& edges, int32_t from, int32_t to) {
  const int32_t low = std::min(place_of_[from], place_of_[to]);
  const int32_t high = std::max(place_of_[from], place_of_[to]);
  bool free = true;
  const auto visit = [&](int32_t part) {
    for_each_next(edges, part, [&](int32_t next) {
      if (next == to) free = free && part == from;
      if (place_of_[next] <= low || place_of_[next] >= high || marked_[next]) return;
      marked_[next] = true;
      marks_.push_back(next);
    });
  };
  visit(from);
  for (size_t i = 0; i < marks_.size() && free; ++i) visit(marks_[i]);
  return free;
}

bool ConvexParts::join(int32_t a, int32_t b) {
  int32_t early = part_[a], late = part_[b];
  if (early == late) return true;
  if (place_of_[early] > place_of_[late]) std::swap(early, late);
  // The smaller part has fewer edges to follow.
  const bool forward = members_[early].size() < members_[late].size();
  const bool joins = forward ? mark(after_, early, late) : mark(before_, late, early);
  if (joins) {
    // What depends on the early part comes behind both, or what the late one needs before them.
    std::vector<int32_t> ahead, behind;
    for (int32_t place = place_of_[early] + 1; place < place_of_[late]; ++place) {
      const int32_t part = places_[place];
      if (part >= 0) (marked_[part] != forward ? ahead : behind).push_back(part);
    }
    const int32_t first = std::min(early, late);
    int32_t place = place_of_[late];
    const auto put = [&](int32_t part) {
      places_[place] = part;
      place_of_[part] = place--;
    };
    const int32_t begin = place_of_[early];
    std::for_each(behind.rbegin(), behind.rend(), put);
    put(first);
    std::for_each(ahead.rbegin(), ahead.rend(), put);
    std::fill(places_.begin() + begin, places_.begin() + place + 1, -1);
    merge(first, std::max(early, late));
  }
  for (const int32_t part : marks_) marked_[part] = false;
  marks_.clear();
  return joins;
}

void ConvexParts::merge(int32_t first, int32_t second) {
  std::vector<int32_t>& members = members_[first];
  const auto middle = static_cast<std::ptrdiff_t>(members.size());
  for (const int32_t member : members_[second]) {
    part_[member] = first;
    members.push_back(member);
  }
  if (members[middle - 1] > members[middle]) {
    std::inplace_merge(members.begin(), members.begin() + middle, members.end());
  }
  members_[second].clear();
}

std::vector<int32_t> ConvexParts::order() const {
  std::vector<std::vector<int32_t>> after(part_.size());
  std::vector<size_t> waits(part_.size());
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
  for (size_t i = 0; i < part_.size(); ++i) {
    const auto part = static_cast<int32_t>(i);
    if (part_[i] != part) continue;
    for_each_next(before_, part, [&](int32_t other) {
      after[other].push_back(part);
      ++waits[i];
    });
    if (waits[i] == 0) ready.push(part);
  }
  std::vector<int32_t> found;
  while (!ready.empty()) {
    const int32_t part = ready.top();
    ready.pop();
    found.push_back(part);
    for (const int32_t next : after[part]) {
      if (--waits[next] == 0) ready.push(next);
    }
  }
  return found;
}

}  // namespace mytorch::graph
