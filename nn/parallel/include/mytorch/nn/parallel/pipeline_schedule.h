// Schedules of pipelines as data: what each rank computes, in which order, and how long that takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mytorch::nn {

// Of p ranks, m micro-batches, and v chunks on each rank; shares of the time in which a rank is
// idle, if all actions take as long, and m is p or more.
enum class PipelineSchedule {
  // All forwards, then all backwards: every rank keeps what all micro-batches need. With chunks,
  // micro-batches go through them in groups of p or more. Idle: (p - 1) / (v m + p - 1).
  kGPipe,
  // As soon as backwards can begin, one forward and one backward in turn: rank r keeps what p - r
  // micro-batches need. One chunk. Idle: (p - 1) / (m + p - 1).
  k1F1B,
  // The same with several chunks (Narayanan et al. 2021), so that a rank waits for fewer layers: it
  // sends v times as many messages, and keeps 2 (p - r) - 1 + (v - 1) g micro-batches of a chunk.
  // Micro-batches go through the chunks in m / p groups, rounded down, of about equal size, the
  // largest of which is g; fewer than p are one group. Idle: (p - 1) / (v m + p - 1).
  kInterleaved1F1B,
  // The order of k1F1B or kInterleaved1F1B, with backwards in two parts: gradients of inputs, for
  // which other ranks wait, at once, and gradients of parameters where a rank would be idle, r of
  // them later on rank r (ZB-H1 of Qi et al. 2023). All ranks keep as much as the first one.
  // Idle: (p - 1) / (3 v m + p - 1).
  kZeroBubble,
};

// What a rank computes: something of one micro-batch by one chunk of the model. Chunk c of rank r
// is stage c p + r.
struct PipelineAction {
  enum class Kind : uint8_t {
    kForward,
    kBackward,
    kInputGradient,   // the first part of a backward
    kWeightGradient,  // the second one
  };
  Kind kind;
  int64_t micro_batch;
  int chunk = 0;
  bool operator==(const PipelineAction&) const = default;
};
using PipelineActions = std::vector<std::vector<PipelineAction>>;  // of each rank, in order

// Returns the actions of a schedule. Throws Error(kValue) for numbers below 1, and for k1F1B with
// several chunks.
PipelineActions pipeline_actions(PipelineSchedule schedule, int ranks, int64_t micro_batches,
                                 int chunks = 1);
// Returns those of forwards alone.
PipelineActions pipeline_forwards(int ranks, int64_t micro_batches, int chunks = 1);
// Throws Error(kValue) unless each rank computes each micro-batch by each of its chunks: one
// forward, and one backward, or both parts of one.
void check_pipeline(const PipelineActions& actions, int64_t micro_batches, int chunks);

// Units of time, or seconds. A backward takes as long as its two parts.
struct PipelineCosts {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
};

struct PipelineSpan {
  int rank;
  PipelineAction action;
  double begin, end;
};

// What ranks did, and when; simulated or measured. docs/distributed.md shows pictures.
struct PipelineTimeline {
  int ranks = 1;
  std::vector<PipelineSpan> spans = {};  // by rank, in order

  double begin() const;  // of the first action of all ranks
  double end() const;    // of the last one
  // Returns the share of the time between begin and end in which each rank does nothing.
  std::vector<double> idle() const;
  double bubble() const;  // their mean
};

// Returns when each action begins and ends, if each rank begins its next one as soon as what it
// needs is there, and messages take no time. Throws Error(kValue), which lists what each rank waits
// for, if the actions wait for each other.
PipelineTimeline simulate_pipeline(const PipelineActions& actions, int chunks = 1,
                                   const PipelineCosts& costs = {});

// Returns an action as text: F, B, I or W, the micro-batch, and, behind a point, the chunk.
std::string to_string(const PipelineAction& action);

}  // namespace mytorch::nn
