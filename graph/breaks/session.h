// One call of a function that is recorded in parts: where a graph cannot hold what the function
// does, it ends, the host goes on, and another graph begins.
//
// C++ code cannot be resumed in its middle, so the function itself runs in each call, and decides
// what happens next. Its operators do not run: each is compared with the next node of a segment
// (segment.h), and waits with results that are empty so far (capture/deferral.h). Autograd, hooks
// and optimizers run on these as on any tensors. The segment's plan runs at its end, once something
// follows (a host read, an operator, the end of the function); when the host accesses memory that
// waiting calls use (item(), data()); and before an operator that no graph holds (nonzero()). If an
// operator differs from the next node, the segment is split there: the rest becomes one segment
// that can follow, and what the function does now another one.
// Where no known segment follows, operators run at once and are recorded as a new one. A segment
// relies on nothing but its operators and operands, which are compared in each call: no guards are
// needed, and any path through the tree is right.
//
// LazyTensor (Suhan et al., 2021) traces each call anew and compares hashes of whole traces; here a
// call is compared as it comes, and its result has real memory, so that views, aliases and
// addresses are those of eager mode.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/breaks/segment.h"
#include "graph/capture/capture.h"
#include "graph/capture/splitting.h"
#include "mytorch/compile.h"

namespace mytorch::graph {

// The segments of a function, with the options that hold for all calls.
struct SegmentTree {
  std::unique_ptr<Segment> root = std::make_unique<Segment>();
  int64_t most_children = 8;
  bool verbose = false;
  bool check = false;
  const PassOptions* passes = nullptr;
  int64_t recorded = 0;  // segments
  int64_t replayed = 0;  // runs of their plans

  // Of the last call, in order: the segments, and where it broke.
  std::vector<const Segment*> path;
  std::vector<Break> breaks;
};

class BreakSession : public Splitting {
 public:
  // Until finish(), or the end of the scope, which runs what waits and swallows errors. With
  // a frame, that of the caller, the function is recorded as one graph until something ends it.
  BreakSession(SegmentTree* tree, const std::vector<Tensor>& arguments, const void* frame);
  ~BreakSession() override;
  BreakSession(const BreakSession&) = delete;
  BreakSession& operator=(const BreakSession&) = delete;

  // The function has returned: runs what waits.
  void finish();
  // Returns whether nothing has ended the first recording, and then gives it back.
  std::unique_ptr<OperatorCapture> take_whole();
  // The recording of the function after all, of which the first `nodes` are used.
  void take_back(std::unique_ptr<OperatorCapture> capture, size_t nodes);
  bool has_recorded() const { return recorded_; }

  Deferral* next(TraceMatch* match) override;
  void accepted(TraceMatch* match) override;
  void host_access(const Tensor& tensor, const char* op) override;
  void effect(const char* op) override;
  void uncaptured() override;
  bool holds(const Tensor& tensor) const override;

 private:
  void flush(const Break& why);
  void end_recording(const Break& why);
  void add_all(const Trace& trace, const Break& why);
  void add(Trace trace);
  Deferral* next_child(TraceMatch* match);
  void at_break(const Break& why);
  // The present segment has run; it ends for its first reason.
  void end_segment(const Break& why);
  void close();

  SegmentTree& tree_;
  Segment* here_;  // whose calls wait, or that has run
  std::unique_ptr<Deferral> waiting_;
  std::unique_ptr<OperatorCapture> capture_;
  bool is_whole_;                   // nothing has ended the first recording
  std::vector<Storage*> changing_;  // of the arguments
  // A child that may follow.
  std::unique_ptr<Deferral> tried_;
  bool recorded_ = false;
  uint32_t wanted_;
};

}  // namespace mytorch::graph
