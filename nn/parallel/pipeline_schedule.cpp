#include "mytorch/nn/parallel/pipeline_schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/types/errors.h"

namespace mytorch::nn {
namespace {

using Kind = PipelineAction::Kind;

void check_numbers(int ranks, int64_t micro_batches, int chunks) {
  if (ranks >= 1 && micro_batches >= 1 && chunks >= 1) return;
  fail(ErrorCode::kValue, "[Pipeline] ", micro_batches, " micro-batches on ", ranks, " ranks of ",
       chunks, " chunks: give at least 1 of each");
}

// Which micro-batch goes through which chunk, one after the other on each rank.
struct PipelineOrder {
  std::vector<PipelineAction> forwards, backwards;
  int64_t group;  // micro-batches of the largest one
};

// While a group goes through a chunk, its first micro-batch comes back to this rank for the next
// one: that takes as long as p micro-batches, so groups are not smaller unless all are one.
PipelineOrder order_of(int ranks, int64_t micro_batches, int chunks, Kind backward) {
  const int64_t groups = std::max<int64_t>(1, micro_batches / ranks);
  PipelineOrder order{{}, {}, (micro_batches + groups - 1) / groups};
  int64_t first = 0;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t size = micro_batches / groups + (g < micro_batches % groups ? 1 : 0);
    for (int c = 0; c < chunks; ++c) {
      for (int64_t i = 0; i < size; ++i) {
        order.forwards.push_back({Kind::kForward, first + i, c});
        order.backwards.push_back({backward, first + i, chunks - 1 - c});
      }
    }
    first += size;
  }
  return order;
}

// All forwards, then all backwards.
std::vector<PipelineAction> all_then_all(const PipelineOrder& order) {
  std::vector<PipelineAction> actions = order.forwards;
  actions.insert(actions.end(), order.backwards.begin(), order.backwards.end());
  return actions;
}

// Some forwards ahead, then one of each in turn. Parts of backwards that give gradients of weights
// come `behind` steps later, if at all.
std::vector<PipelineAction> one_by_one(const PipelineOrder& order, size_t ahead, size_t behind,
                                       bool split) {
  const size_t n = order.forwards.size();
  std::vector<PipelineAction> actions;
  const auto forward = [&](size_t i) {
    if (i < n) actions.push_back(order.forwards[i]);
  };
  const auto weights = [&](size_t i) {
    if (!split || i >= n) return;
    actions.push_back(order.backwards[i]);
    actions.back().kind = Kind::kWeightGradient;
  };
  for (size_t i = 0; i < ahead; ++i) forward(i);
  for (size_t i = 0; i < n; ++i) {
    forward(ahead + i);
    actions.push_back(order.backwards[i]);
    if (i >= behind) weights(i - behind);
  }
  for (size_t i = n - std::min(n, behind); i < n; ++i) weights(i);
  return actions;
}

double cost_of(Kind kind, const PipelineCosts& costs) {
  switch (kind) {
    case Kind::kForward:
      return costs.forward;
    case Kind::kInputGradient:
      return costs.input_gradient;
    case Kind::kWeightGradient:
      return costs.weight_gradient;
    default:
      return costs.input_gradient + costs.weight_gradient;
  }
}

// When the results of actions are there, by stage and micro-batch.
class Results {
 public:
  explicit Results(int stages) : stages_(stages) {}

  // Returns when an action may begin, or infinity if something that it needs is not there.
  double ready(const PipelineAction& action, int stage) const {
    const int64_t i = action.micro_batch;
    if (action.kind == Kind::kForward) return stage == 0 ? 0 : time(kOutput, stage - 1, i);
    if (action.kind == Kind::kWeightGradient) return time(kParked, stage, i);
    return std::max(time(kOutput, stage, i),
                    stage == stages_ - 1 ? 0 : time(kGradient, stage + 1, i));
  }
  void add(const PipelineAction& action, int stage, double end) {
    const int64_t i = action.micro_batch;
    if (action.kind == Kind::kForward) times_[{kOutput, stage, i}] = end;
    if (action.kind == Kind::kInputGradient) times_[{kParked, stage, i}] = end;
    if (action.kind == Kind::kInputGradient || action.kind == Kind::kBackward) {
      times_[{kGradient, stage, i}] = end;
    }
  }

 private:
  enum What { kOutput, kGradient, kParked };
  double time(What what, int stage, int64_t i) const {
    const auto it = times_.find({what, stage, i});
    return it == times_.end() ? std::numeric_limits<double>::infinity() : it->second;
  }
  int stages_;
  std::map<std::tuple<What, int, int64_t>, double> times_;
};

[[noreturn]] void fail_waiting(const PipelineActions& actions, const std::vector<size_t>& done) {
  std::string text;
  for (size_t rank = 0; rank < actions.size(); ++rank) {
    if (done[rank] == actions[rank].size()) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", "rank ", rank, " before ",
                    to_string(actions[rank][done[rank]]));
  }
  fail(ErrorCode::kValue,
       "[simulate_pipeline] the actions wait for each other, or for some that are "
       "missing: ",
       text);
}

}  // namespace

std::string to_string(const PipelineAction& action) {
  return absl::StrCat(std::string(1, "FBIW"[static_cast<int>(action.kind)]), action.micro_batch,
                      ".", action.chunk);
}

PipelineActions pipeline_actions(PipelineSchedule schedule, int ranks, int64_t micro_batches,
                                 int chunks) {
  check_numbers(ranks, micro_batches, chunks);
  if (schedule == PipelineSchedule::k1F1B && chunks > 1) {
    fail(ErrorCode::kValue, "[Pipeline] the schedule k1F1B is for one chunk, but there are ",
         chunks, ": use kInterleaved1F1B");
  }
  const bool split = schedule == PipelineSchedule::kZeroBubble;
  const PipelineOrder order =
      order_of(ranks, micro_batches, chunks, split ? Kind::kInputGradient : Kind::kBackward);
  PipelineActions actions;
  for (int rank = 0; rank < ranks; ++rank) {
    if (schedule == PipelineSchedule::kGPipe) {
      actions.push_back(all_then_all(order));
      continue;
    }
    // How many forwards later ranks, and later chunks, need before the first backward.
    const int later = ranks - rank - 1;
    const int64_t ahead = chunks == 1 ? later : 2 * later + (chunks - 1) * order.group;
    actions.push_back(one_by_one(order, std::min(static_cast<size_t>(ahead), order.forwards.size()),
                                 static_cast<size_t>(rank), split));
  }
  return actions;
}

PipelineActions pipeline_forwards(int ranks, int64_t micro_batches, int chunks) {
  check_numbers(ranks, micro_batches, chunks);
  const PipelineOrder order = order_of(ranks, micro_batches, chunks, Kind::kBackward);
  return PipelineActions(static_cast<size_t>(ranks), order.forwards);
}

void check_pipeline(const PipelineActions& actions, int64_t micro_batches, int chunks) {
  check_numbers(static_cast<int>(actions.size()), micro_batches, chunks);
  for (size_t rank = 0; rank < actions.size(); ++rank) {
    std::map<std::tuple<int, int64_t, Kind>, int> found;
    for (const PipelineAction& action : actions[rank]) {
      if (action.micro_batch < 0 || action.micro_batch >= micro_batches || action.chunk < 0 ||
          action.chunk >= chunks || ++found[{action.chunk, action.micro_batch, action.kind}] > 1) {
        fail(ErrorCode::kValue, "[Pipeline] rank ", rank, " computes ", to_string(action),
             " twice, or there is no such one of ", micro_batches, " micro-batches and ", chunks,
             " chunks");
      }
    }
    for (int c = 0; c < chunks; ++c) {
      for (int64_t i = 0; i < micro_batches; ++i) {
        const auto has = [&](Kind kind) { return found.count({c, i, kind}) == 1; };
        const bool both = has(Kind::kInputGradient) && has(Kind::kWeightGradient);
        const bool any = has(Kind::kInputGradient) || has(Kind::kWeightGradient);
        if (has(Kind::kForward) && (has(Kind::kBackward) ? !any : both)) continue;
        fail(ErrorCode::kValue, "[Pipeline] rank ", rank, " must compute F", i, ".", c,
             ", and either B", i, ".", c, " or both I", i, ".", c, " and W", i, ".", c);
      }
    }
  }
}

PipelineTimeline simulate_pipeline(const PipelineActions& actions, int chunks,
                                   const PipelineCosts& costs) {
  const int ranks = static_cast<int>(actions.size());
  Results results(ranks * chunks);
  std::vector<size_t> done(actions.size());
  std::vector<std::vector<PipelineSpan>> spans(actions.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      for (; done[r] < actions[r].size(); ++done[r], moved = true) {
        const PipelineAction& action = actions[r][done[r]];
        const int stage = action.chunk * ranks + rank;
        const double ready = results.ready(action, stage);
        if (ready == std::numeric_limits<double>::infinity()) break;
        const double begin = spans[r].empty() ? ready : std::max(ready, spans[r].back().end);
        spans[r].push_back({rank, action, begin, begin + cost_of(action.kind, costs)});
        results.add(action, stage, spans[r].back().end);
      }
    }
  }
  PipelineTimeline timeline{ranks, {}};
  for (size_t r = 0; r < actions.size(); ++r) {
    if (done[r] < actions[r].size()) fail_waiting(actions, done);
    timeline.spans.insert(timeline.spans.end(), spans[r].begin(), spans[r].end());
  }
  return timeline;
}

double PipelineTimeline::begin() const {
  double begin = std::numeric_limits<double>::infinity();
  for (const PipelineSpan& span : spans) begin = std::min(begin, span.begin);
  return spans.empty() ? 0 : begin;
}

double PipelineTimeline::end() const {
  double end = -std::numeric_limits<double>::infinity();
  for (const PipelineSpan& span : spans) end = std::max(end, span.end);
  return spans.empty() ? 0 : end;
}

std::vector<double> PipelineTimeline::idle() const {
  const double all = end() - begin();
  std::vector<double> idle(static_cast<size_t>(ranks), all > 0 ? 1 : 0);
  for (const PipelineSpan& span : spans) {
    if (all > 0) idle[static_cast<size_t>(span.rank)] -= (span.end - span.begin) / all;
  }
  return idle;
}

double PipelineTimeline::bubble() const {
  double sum = 0;
  for (const double share : idle()) sum += share;
  return sum / ranks;
}

}  // namespace mytorch::nn
