#include "graph/run/branches.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "dispatcher/table/fields.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

// Who wrote bytes last, and who has read them since.
struct Users {
  uintptr_t end = 0;
  ptrdiff_t writer = -1;
  std::vector<size_t> readers;
};

class Memories {
 public:
  void read(size_t step, uintptr_t begin, uintptr_t end, std::vector<size_t>* waits) {
    for_each(begin, end, [&](Users& users) {
      if (users.writer >= 0) waits->push_back(static_cast<size_t>(users.writer));
      users.readers.push_back(step);
    });
  }
  void write(size_t step, uintptr_t begin, uintptr_t end, std::vector<size_t>* waits) {
    for_each(begin, end, [&](Users& users) {
      if (users.writer >= 0) waits->push_back(static_cast<size_t>(users.writer));
      waits->insert(waits->end(), users.readers.begin(), users.readers.end());
      users.writer = static_cast<ptrdiff_t>(step);
      users.readers.clear();
    });
  }

 private:
  // Has a range begin at an address if one contains it.
  void split(uintptr_t at) {
    auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return;
    const auto range = std::prev(next);
    if (range->first == at || range->second.end <= at) return;
    Users rest = range->second;
    range->second.end = at;
    ranges_.emplace_hint(next, at, std::move(rest));
  }
  // Calls f for ranges that together are [begin, end).
  template <class F>
  void for_each(uintptr_t begin, uintptr_t end, F f) {
    if (begin >= end) return;
    split(begin);
    split(end);
    auto range = ranges_.lower_bound(begin);
    for (uintptr_t at = begin; at < end; at = range->second.end, ++range) {
      if (range == ranges_.end() || range->first > at) {
        const uintptr_t until = range == ranges_.end() ? end : std::min(end, range->first);
        range = ranges_.emplace_hint(range, at, Users{until, -1, {}});
      }
      f(range->second);
    }
  }

  std::map<uintptr_t, Users> ranges_;  // which do not overlap
};

// Calls f(begin, end) with the addresses that a tensor covers.
template <class F>
void with_addresses(const mt_tensor& t, F f) {
  if ((t.flags & MT_TENSOR_HOST) != 0) return;
  int64_t first = 0, last = 0;
  for (int d = 0; d < t.dl.ndim; ++d) {
    if (t.dl.shape[d] == 0) return;
    const int64_t reach = (t.dl.shape[d] - 1) * t.dl.strides[d];
    (reach < 0 ? first : last) += reach;
  }
  const int64_t size = (t.dl.dtype.bits + 7) / 8;
  const auto at = reinterpret_cast<intptr_t>(t.dl.data) + static_cast<intptr_t>(t.dl.byte_offset);
  f(static_cast<uintptr_t>(at + first * size), static_cast<uintptr_t>(at + (last + 1) * size));
}

void sort_without_repeats(std::vector<size_t>* steps) {
  std::sort(steps->begin(), steps->end());
  steps->erase(std::unique(steps->begin(), steps->end()), steps->end());
}

// The earlier steps that a step must come after, and those of them whose results it reads.
struct EarlierSteps {
  std::vector<size_t> all, read;
};

// Finds them, and notes what the step uses.
EarlierSteps earlier_of(const PlanStep& step, size_t number, Memories* memories) {
  const OpInfo& op = *step.entry->info;
  EarlierSteps found;
  const auto read = [&](uintptr_t begin, uintptr_t end) {
    memories->read(number, begin, end, &found.read);
  };
  const auto write = [&](uintptr_t begin, uintptr_t end) {
    memories->write(number, begin, end, &found.all);
  };
  for_each_input(op, step.args.get(),
                 [&](const mt_tensor*& t, const ArgInfo&) { with_addresses(*t, read); });
  for_each_input(op, step.args.get(), [&](const mt_tensor*& t, const ArgInfo& arg) {
    if (arg.written) with_addresses(*t, write);
  });
  for_each_output(op, step.args.get(),
                  [&](const mt_tensor*& t, const OutputInfo&) { with_addresses(*t, write); });
  found.all.insert(found.all.end(), found.read.begin(), found.read.end());
  sort_without_repeats(&found.all);
  sort_without_repeats(&found.read);
  std::erase(found.all, number);
  return found;
}

// Chooses streams. What a stream has waited for is known as the newest step of each other stream.
class Distribution {
 public:
  explicit Distribution(int most) : most_(most) {}

  // A step that does not run.
  void skip() {
    result_.steps.emplace_back();
    seen_at_.emplace_back();
  }
  void add(const EarlierSteps& earlier) {
    const size_t number = result_.steps.size();
    const int stream = choose(earlier);
    Branches::StepPlace place;
    place.stream = stream;
    auto& seen = seen_[static_cast<size_t>(stream)];
    for (auto wait = earlier.all.rbegin(); wait != earlier.all.rend(); ++wait) {
      const int other = result_.steps[*wait].stream;
      if (other == stream || seen[static_cast<size_t>(other)] > static_cast<ptrdiff_t>(*wait)) {
        continue;
      }
      place.waits.push_back(*wait);
      result_.steps[*wait].awaited = true;
      const auto& before = seen_at_[*wait];
      for (size_t s = 0; s < before.size(); ++s) seen[s] = std::max(seen[s], before[s]);
    }
    seen[static_cast<size_t>(stream)] = static_cast<ptrdiff_t>(number) + 1;
    tails_[static_cast<size_t>(stream)] = static_cast<ptrdiff_t>(number);
    seen_at_.push_back(seen);
    result_.steps.push_back(std::move(place));
  }

  Branches result() && {
    result_.streams = std::max(static_cast<int>(tails_.size()), 1);
    return std::move(result_);
  }

 private:
  // Prefers to go on behind the newest of the steps whose results are read, then a stream all of
  // whose work comes before in any case, then a new one, then the one that has been left for
  // longest.
  int choose(const EarlierSteps& earlier) {
    if (tails_.empty()) return open();
    for (auto each = earlier.read.rbegin(); each != earlier.read.rend(); ++each) {
      const int stream = result_.steps[*each].stream;
      if (tails_[static_cast<size_t>(stream)] == static_cast<ptrdiff_t>(*each)) return stream;
    }
    for (size_t s = 0; s < tails_.size(); ++s) {
      for (const size_t each : earlier.all) {
        if (seen_at_[each][s] > tails_[s]) return static_cast<int>(s);
      }
    }
    if (static_cast<int>(tails_.size()) < most_) return open();
    return static_cast<int>(std::min_element(tails_.begin(), tails_.end()) - tails_.begin());
  }
  int open() {
    tails_.push_back(-1);
    seen_.resize(tails_.size(), std::vector<ptrdiff_t>(static_cast<size_t>(most_), 0));
    return static_cast<int>(tails_.size()) - 1;
  }

  const int most_;
  Branches result_;
  std::vector<ptrdiff_t> tails_;                 // the last step of each stream
  std::vector<std::vector<ptrdiff_t>> seen_;     // by stream: the steps before it in each stream,
  std::vector<std::vector<ptrdiff_t>> seen_at_;  // as 1 + the last one; by step: with itself
};

}  // namespace

Branches branches_of(const PlanParts& parts, size_t first, int most) {
  Memories memories;
  Distribution distribution(most);
  for (size_t i = 0; i < parts.steps.size(); ++i) {
    if (i < first) {
      distribution.skip();
    } else {
      distribution.add(earlier_of(parts.steps[i], i, &memories));
    }
  }
  return std::move(distribution).result();
}

BranchRun::BranchRun(const PlanParts& parts, const Branches& branches)
    : branches_(branches),
      streams_(parts.steps[0].slot, Device(parts.steps[0].device.type, parts.steps[0].device.index),
               branches.streams - 1),
      begin_(streams_.mark()),
      begun_(static_cast<size_t>(branches.streams), false),
      marks_(branches.steps.size()) {
  begun_[0] = true;
}

void BranchRun::before(size_t step) {
  const Branches::StepPlace& place = branches_.steps[step];
  streams_.use(place.stream);
  const auto stream = static_cast<size_t>(place.stream);
  if (!begun_[stream] && place.waits.empty()) streams_.wait(begin_);
  begun_[stream] = true;
  for (const size_t each : place.waits) streams_.wait(marks_[each]);
}

void BranchRun::after(size_t step) {
  if (branches_.steps[step].awaited) marks_[step] = streams_.mark();
}

void BranchRun::join() {
  for (int stream = 1; stream < branches_.streams; ++stream) {
    if (!begun_[static_cast<size_t>(stream)]) continue;
    streams_.use(stream);
    void* mark = streams_.mark();
    streams_.use(0);
    streams_.wait(mark);
  }
  streams_.use(0);
}

}  // namespace mytorch::graph
