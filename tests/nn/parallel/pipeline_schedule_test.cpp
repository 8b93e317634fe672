// Schedules of pipelines, of which nothing is run.
#include "mytorch/nn/parallel/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "mytorch/error.h"
#include "mytorch/nn/parallel/pipeline_timeline.h"
#include "nn/parallel/pipeline_program.h"

namespace mytorch::nn {
namespace {

using Action = PipelineAction;

struct Shape {
  PipelineSchedule schedule;
  int ranks;
  int64_t micro_batches;
  int chunks;
};

// Calls `test` with the actions of many shapes.
void for_each_shape(const std::function<void(const Shape&, const PipelineActions&)>& test) {
  for (const auto schedule : {PipelineSchedule::kGPipe, PipelineSchedule::k1F1B,
                              PipelineSchedule::kInterleaved1F1B, PipelineSchedule::kZeroBubble}) {
    for (int p = 1; p <= 6; ++p) {
      for (int v = 1; v <= (schedule == PipelineSchedule::k1F1B ? 1 : 4); ++v) {
        for (int64_t m = 1; m <= 13; ++m) {
          SCOPED_TRACE(std::to_string(static_cast<int>(schedule)) + " of " + std::to_string(p) +
                       " ranks, " + std::to_string(m) + " micro-batches, " + std::to_string(v) +
                       " chunks");
          test({schedule, p, m, v}, pipeline_actions(schedule, p, m, v));
        }
      }
    }
  }
}

TEST(PipelineSchedule, ComputesEverythingOnceAndInTime) {
  for_each_shape([](const Shape& s, const PipelineActions& actions) {
    check_pipeline(actions, s.micro_batches, s.chunks);
    const bool splits = s.schedule == PipelineSchedule::kZeroBubble;
    // When each action of each stage ends.
    std::map<std::tuple<Action::Kind, int64_t, int>, double> ends;
    const PipelineTimeline timeline = simulate_pipeline(actions, s.chunks, {3, 4, 5});
    std::vector<double> free(static_cast<size_t>(s.ranks));
    for (const PipelineSpan& span : timeline.spans) {
      double& rank_free = free[static_cast<size_t>(span.rank)];
      EXPECT_GE(span.begin, rank_free);
      rank_free = span.end;
      const int stage = span.action.chunk * s.ranks + span.rank;
      EXPECT_TRUE(
          ends.emplace(std::tuple(span.action.kind, span.action.micro_batch, stage), span.end)
              .second);
    }
    const int stages = s.ranks * s.chunks;
    EXPECT_EQ(ends.size(), static_cast<size_t>(stages * s.micro_batches * (splits ? 3 : 2)));
    const auto backward = splits ? Action::Kind::kInputGradient : Action::Kind::kBackward;
    for (const PipelineSpan& span : timeline.spans) {
      const auto& [kind, i, chunk] = span.action;
      const int stage = chunk * s.ranks + span.rank;
      const double length = kind == Action::Kind::kForward          ? 3
                            : kind == Action::Kind::kInputGradient  ? 4
                            : kind == Action::Kind::kWeightGradient ? 5
                                                                    : 9;
      EXPECT_EQ(span.end - span.begin, length);
      if (kind == Action::Kind::kForward && stage > 0) {
        EXPECT_GE(span.begin, ends.at({kind, i, stage - 1}));
      } else if (kind == Action::Kind::kWeightGradient) {
        EXPECT_GE(span.begin, ends.at({backward, i, stage}));
      } else if (kind == backward) {
        EXPECT_GE(span.begin, ends.at({Action::Kind::kForward, i, stage}));
        if (stage + 1 < stages) {
          EXPECT_GE(span.begin, ends.at({kind, i, stage + 1}));
        }
      }
    }
  });
}

// Of the papers, for as many micro-batches as ranks or more. Fewer leave each rank waiting for the
// missing ones at each chunk but one.
TEST(PipelineSchedule, LeavesAsMuchIdleAsThePapersSay) {
  for_each_shape([](const Shape& s, const PipelineActions& actions) {
    const PipelineTimeline timeline = simulate_pipeline(actions, s.chunks);
    const auto p = static_cast<double>(s.ranks), m = static_cast<double>(s.micro_batches),
               v = static_cast<double>(s.chunks);
    double idle = 0;  // in units of time; each rank works for 3 v m
    if (s.schedule != PipelineSchedule::kZeroBubble) {
      idle = 3 * (p - 1) + 3 * (v - 1) * std::max(0.0, p - m);
    } else if (m >= p) {
      idle = p - 1;
    } else {
      const double plain = simulate_pipeline(pipeline_actions(PipelineSchedule::kInterleaved1F1B,
                                                              s.ranks, s.micro_batches, s.chunks),
                                             s.chunks)
                               .end() -
                           3 * v * m;
      idle = timeline.end() - 3 * v * m;
      EXPECT_LT(idle, plain);
      if (s.chunks == 1) {
        EXPECT_EQ(idle, p - 1 + p - m);
      }
    }
    EXPECT_EQ(timeline.end(), 3 * v * m + idle);
    for (const double share : timeline.idle()) {
      EXPECT_NEAR(share, idle / (3 * v * m + idle), 1e-12);
    }
    EXPECT_NEAR(timeline.bubble(), idle / (3 * v * m + idle), 1e-12);
  });
}

TEST(PipelineSchedule, KeepsAsManyMicroBatchesAsPlanned) {
  for_each_shape([](const Shape& s, const PipelineActions& actions) {
    const int64_t p = s.ranks, m = s.micro_batches, v = s.chunks;
    const int64_t group = (m + std::max<int64_t>(1, m / p) - 1) / std::max<int64_t>(1, m / p);
    for (int64_t rank = 0; rank < p; ++rank) {
      int64_t kept = 0, most = 0;
      for (const Action& action : actions[static_cast<size_t>(rank)]) {
        if (action.kind == Action::Kind::kForward) most = std::max(most, ++kept);
        if (action.kind == Action::Kind::kBackward) --kept;
        if (action.kind == Action::Kind::kWeightGradient) --kept;
      }
      // The parts of a zero-bubble backward wait where the first rank would have forwards ahead.
      const int64_t later = s.schedule == PipelineSchedule::kZeroBubble ? p - 1 : p - 1 - rank;
      const int64_t planned = s.schedule == PipelineSchedule::kGPipe ? v * m
                              : v == 1                               ? later + 1
                                       : 2 * later + 1 + (v - 1) * group;
      if (s.schedule == PipelineSchedule::kZeroBubble && v > 1) {
        EXPECT_LE(most, std::min(planned, v * m));
      } else {
        EXPECT_EQ(most, std::min(planned, v * m)) << "rank " << rank;
      }
      EXPECT_EQ(kept, 0);
    }
  });
}

// Runs programs of which every message waits for both sides. Returns whether all of them end.
bool end_together(const std::vector<PipelineProgram>& programs) {
  const int ranks = static_cast<int>(programs.size());
  using Key = std::tuple<bool, int64_t, int>;
  std::vector<size_t> at(programs.size());
  std::vector<std::map<Key, bool>> open(programs.size());  // messages of the present step
  const auto step_of = [&](size_t rank) -> const PipelineStep* {
    return at[rank] < programs[rank].size() ? &programs[rank][at[rank]] : nullptr;
  };
  const auto begin = [&](size_t rank) {
    const PipelineStep* step = step_of(rank);
    if (step == nullptr) return;
    for (const PipelineMessage& m : step->messages) open[rank][{m.gradient, m.micro_batch, m.from}];
  };
  for (size_t rank = 0; rank < programs.size(); ++rank) begin(rank);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      const PipelineStep* step = step_of(rank);
      if (step == nullptr) continue;
      for (const PipelineMessage& m : step->messages) {
        const auto peer =
            static_cast<size_t>((m.from % ranks == static_cast<int>(rank) ? m.to : m.from) % ranks);
        const Key key{m.gradient, m.micro_batch, m.from};
        const auto theirs = open[peer].find(key);
        if (theirs != open[peer].end()) open[rank][key] = theirs->second = true;
      }
      const bool done = std::all_of(open[rank].begin(), open[rank].end(),
                                    [](const auto& message) { return message.second; });
      if (!done) continue;
      open[rank].clear();
      ++at[rank];
      begin(rank);
      moved = true;
    }
  }
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    if (step_of(rank) != nullptr) return false;
  }
  return true;
}

TEST(PipelineSchedule, ProgramsBringEverythingWithoutWaitingForEachOther) {
  for_each_shape([](const Shape& s, const PipelineActions& actions) {
    if (s.micro_batches > 9) return;
    const std::vector<PipelineProgram> programs = pipeline_programs(actions, s.chunks);
    EXPECT_TRUE(end_together(programs));
    for (size_t rank = 0; rank < programs.size(); ++rank) {
      std::vector<Action> found;
      std::map<std::tuple<bool, int64_t, int>, int> here;  // messages so far, by their sender
      for (const PipelineStep& step : programs[rank]) {
        std::map<std::pair<int, int>, int> between;
        for (const PipelineMessage& m : step.messages) {
          EXPECT_EQ((++here[{m.gradient, m.micro_batch, m.from}]), 1);
          EXPECT_EQ((++between[{m.from % s.ranks, m.to % s.ranks}]), 1);
          const bool sends = m.from % s.ranks == static_cast<int>(rank);
          EXPECT_NE(sends, m.to % s.ranks == static_cast<int>(rank));
          if (!sends) continue;
          const bool made = std::any_of(found.begin(), found.end(), [&](const Action& a) {
            return (a.kind != Action::Kind::kForward) == m.gradient &&
                   a.kind != Action::Kind::kWeightGradient && a.micro_batch == m.micro_batch &&
                   a.chunk == m.from / s.ranks;
          });
          EXPECT_TRUE(made);
        }
        if (!step.messages.empty()) continue;
        found.push_back(step.action);
        const int stage = step.action.chunk * s.ranks + static_cast<int>(rank);
        const int64_t i = step.action.micro_batch;
        if (s.ranks == 1 || step.action.kind == Action::Kind::kWeightGradient) continue;
        if (step.action.kind == Action::Kind::kForward) {
          if (stage > 0) {
            EXPECT_EQ((here[{false, i, stage - 1}]), 1);
          }
        } else if (stage + 1 < s.ranks * s.chunks) {
          EXPECT_EQ((here[{true, i, stage + 1}]), 1);
        }
      }
      EXPECT_EQ(found, actions[rank]);
    }
    EXPECT_TRUE(end_together(
        pipeline_programs(pipeline_forwards(s.ranks, s.micro_batches, s.chunks), s.chunks)));
  });
}

std::string schedule_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}
void expect_part(const std::function<void()>& call, const std::string& part) {
  const std::string message = schedule_error(call);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(PipelineSchedule, RefusesActionsThatAreNone) {
  expect_part([] { pipeline_actions(PipelineSchedule::k1F1B, 2, 4, 2); }, "kInterleaved1F1B");
  expect_part([] { pipeline_actions(PipelineSchedule::kGPipe, 2, 0, 1); }, "at least 1");
  expect_part([] { pipeline_actions(PipelineSchedule::kGPipe, 0, 1, 1); }, "at least 1");
  expect_part([] { pipeline_forwards(1, 1, 0); }, "at least 1");
  PipelineActions actions = pipeline_actions(PipelineSchedule::k1F1B, 2, 2);
  PipelineActions changed = actions;
  changed[1].pop_back();
  expect_part([&] { check_pipeline(changed, 2, 1); }, "rank 1 must compute F1.0, and either B1.0");
  changed = actions;
  changed[0].push_back(actions[0][0]);
  expect_part([&] { check_pipeline(changed, 2, 1); }, "rank 0 computes F0.0 twice");
  changed = actions;
  changed[0].push_back({Action::Kind::kWeightGradient, 0, 0});
  expect_part([&] { check_pipeline(changed, 2, 1); }, "rank 0 must compute F0.0");
  expect_part([&] { check_pipeline(actions, 1, 1); }, "rank 0 computes F1.0 twice, or");
  // Each waits for the other: rank 0 has no second forward before its first backward, which needs
  // rank 1, which wants two forwards first.
  changed = actions;
  std::swap(changed[0][1], changed[0][2]);
  std::swap(changed[1][1], changed[1][2]);
  expect_part([&] { simulate_pipeline(changed); }, "rank 0 before B0.0, rank 1 before F1.0");
}

TEST(PipelineTimeline, AsText) {
  const auto text = [](PipelineSchedule schedule, int chunks) {
    return timeline_text(simulate_pipeline(pipeline_actions(schedule, 2, 2, chunks), chunks));
  };
  EXPECT_EQ(text(PipelineSchedule::kGPipe, 1), "01...aabb\n.01aabb..\n");
  EXPECT_EQ(text(PipelineSchedule::k1F1B, 1), "01..aa.bb\n.0aa1bb..\n");
  EXPECT_EQ(text(PipelineSchedule::kInterleaved1F1B, 2), "0101..aa.bbaabb\n.010aa1bbaabb..\n");
  EXPECT_EQ(text(PipelineSchedule::kZeroBubble, 1), "01.aAbB\n.0a1bAB\n");
  const PipelineTimeline one =
      simulate_pipeline(pipeline_actions(PipelineSchedule::k1F1B, 1, 2), 1, {0.5, 0.25, 0.25});
  EXPECT_EQ(timeline_text(one, 8), "00aa11bb\n");
  EXPECT_EQ(timeline_text(one, 8, 4), "0a1b....\n");
  EXPECT_EQ(timeline_text(one).size(), 101);
  EXPECT_EQ(timeline_text({2, {}}), "\n\n");
  expect_part([&] { timeline_text(one, -1); }, "-1 columns");
}

TEST(PipelineTimeline, AsPicture) {
  const PipelineActions actions = pipeline_actions(PipelineSchedule::kZeroBubble, 3, 4, 2);
  const std::string svg = timeline_svg({{"<measured>", simulate_pipeline(actions, 2, {2, 2, 2})},
                                        {"ideal", simulate_pipeline(actions, 2)}});
  const auto count_of = [&](const std::string& part) {
    size_t n = 0;
    for (size_t at = svg.find(part); at != std::string::npos; at = svg.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count_of("&lt;measured&gt;: idle 7.7%"), 1);  // 2 of 26
  EXPECT_EQ(count_of("<title>"), size_t{2} * 3 * 2 * 4 * 3);
  EXPECT_EQ(count_of("<title>W3.1</title>"), size_t{2} * 3);
  EXPECT_EQ(count_of(">rank 2<"), 2);
  EXPECT_EQ(count_of("<svg"), 1);
  // One scale: actions of the second one are half as wide.
  EXPECT_EQ(count_of("width=\"35.38\""), size_t{3} * 2 * 4 * 3);
  EXPECT_EQ(count_of("width=\"17.69\""), size_t{3} * 2 * 4 * 3);
  expect_part([] { timeline_svg({}, 10); }, "200 to 65536");
  EXPECT_NE(timeline_svg({}).find("</svg>"), std::string::npos);
}

TEST(PipelineReport, ComparesWithTheSchedule) {
  const PipelineActions actions = pipeline_actions(PipelineSchedule::k1F1B, 2, 3);
  PipelineTimeline measured = simulate_pipeline(actions, 1, {0.002, 0.001, 0.002});
  for (PipelineSpan& span : measured.spans) {
    span.begin *= 2;
    span.end = span.begin + (span.end * 2 - span.begin) / 2;
  }
  const PipelineReport report = pipeline_report(measured, actions);
  EXPECT_NEAR(report.costs.forward, 0.002, 1e-12);
  EXPECT_NEAR(report.costs.input_gradient + report.costs.weight_gradient, 0.003, 1e-12);
  EXPECT_NEAR(report.ideal.bubble(), 0.25, 1e-12);
  EXPECT_EQ(report.idle.size(), 2);
  EXPECT_GT(report.bubble, report.ideal.bubble());
  EXPECT_NE(report.text().find("of the ideal timeline 25.0%"), std::string::npos) << report.text();
  measured.spans.pop_back();
  expect_part([&] { pipeline_report(measured, actions); }, "has other actions");
}

}  // namespace
}  // namespace mytorch::nn
