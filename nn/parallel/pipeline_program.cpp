#include "nn/parallel/pipeline_program.h"

#include <map>
#include <utility>

namespace mytorch::nn {
namespace {

using Kind = PipelineAction::Kind;

}  // namespace

// In the simulation, what ends at one time is sent at that time, by all ranks together; these times
// order all messages. A rank meets the others before whatever it does that ends later. What they do
// before a time never depends on what a rank does after it, so that the rank that is furthest
// behind can always go on. In practice ranks go ahead: the program issues messages without waiting
// for them, and waits for those that an action needs.
std::vector<PipelineProgram> pipeline_programs(const PipelineActions& actions, int chunks) {
  const PipelineTimeline timeline = simulate_pipeline(actions, chunks);
  const int stages = timeline.ranks * chunks;
  std::map<double, std::vector<PipelineMessage>> messages;
  for (const PipelineSpan& span : timeline.spans) {
    const PipelineAction& action = span.action;
    if (action.kind == Kind::kWeightGradient) continue;
    const bool gradient = action.kind != Kind::kForward;
    const int from = action.chunk * timeline.ranks + span.rank;
    const int to = gradient ? from - 1 : from + 1;
    if (to < 0 || to >= stages || timeline.ranks == 1) continue;  // nobody, or this rank
    messages[span.end].push_back({gradient, action.micro_batch, from, to});
  }
  std::vector<PipelineProgram> programs(actions.size());
  std::vector<std::vector<PipelineSpan>> spans(actions.size());
  for (const PipelineSpan& span : timeline.spans) {
    spans[static_cast<size_t>(span.rank)].push_back(span);
  }
  std::vector<size_t> next(actions.size());
  const auto compute_until = [&](size_t rank, double end) {
    for (size_t& i = next[rank]; i < spans[rank].size() && spans[rank][i].end <= end; ++i) {
      programs[rank].push_back({spans[rank][i].action, {}});
    }
  };
  for (const auto& [time, together] : messages) {
    std::map<size_t, std::vector<PipelineMessage>> by_rank;
    for (const PipelineMessage& message : together) {
      by_rank[static_cast<size_t>(message.from % timeline.ranks)].push_back(message);
      by_rank[static_cast<size_t>(message.to % timeline.ranks)].push_back(message);
    }
    for (auto& [rank, mine] : by_rank) {
      compute_until(rank, time);
      programs[rank].push_back({{}, std::move(mine)});
    }
  }
  for (size_t rank = 0; rank < actions.size(); ++rank) {
    compute_until(rank, timeline.end());
  }
  return programs;
}

}  // namespace mytorch::nn
