// What the ranks of a pipeline did in a step, beside what its schedule allows: numbers, text and
// pictures.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mytorch/nn/parallel/pipeline.h"

namespace mytorch::nn {

// Returns what all ranks did in the last step, in seconds since the first of them began. Collective
// over the group of the pipeline: every rank gets all. Clocks of machines are compared at barriers,
// so that times of different ranks are off by about as long as a barrier takes.
PipelineTimeline pipeline_timeline(const Pipeline& pipeline);

// How much of a step the ranks did nothing.
struct PipelineReport {
  std::vector<double> idle;  // share of each rank
  double bubble;             // their mean
  // What the schedule allows, if each kind of action took on all ranks the mean of its times, and
  // messages took none.
  PipelineTimeline ideal;
  PipelineCosts costs;  // these means, in seconds

  // Returns a few lines with these numbers.
  std::string text() const;
};
// Throws Error(kValue) if the actions are not those of the timeline.
PipelineReport pipeline_report(const PipelineTimeline& measured, const PipelineActions& actions);

// Returns a line of `columns` characters for each rank: digits are forwards of the micro-batch with
// that last digit, small letters backwards or gradients of inputs (a: 0, b: 1, ...), capital
// letters gradients of weights, and points are idle. `until` is the time at the right end; default:
// the timeline's end. Simulated with costs of 1, it has a column for each unit by default; others
// have 100. Throws Error(kValue) for columns out of 0 to 10000.
std::string timeline_text(const PipelineTimeline& timeline, int columns = 0, double until = 0);

// Returns an SVG picture of timelines with titles, one below the other, on one scale of time: a row
// for each rank, forwards in blue, backwards in green, gradients of inputs in teal and of weights
// in yellow, paler for later chunks, with the numbers of micro-batches where there is room.
// `width` is in pixels, 200 to 65536, else Error(kValue).
std::string timeline_svg(const std::vector<std::pair<std::string, PipelineTimeline>>& timelines,
                         int width = 1000);

}  // namespace mytorch::nn
