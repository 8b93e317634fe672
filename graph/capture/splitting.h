// A function that is recorded in parts (CompileOptions::allow_breaks), as operators and the host
// see it while it runs: breaks/session.h.
#pragma once

#include "graph/capture/deferral.h"

namespace mytorch::graph {

class TraceMatch;

class Splitting {
 public:
  virtual ~Splitting() = default;
  // Returns the next trace that may go on with a call, or null: then says by match->records_
  // whether the call is recorded, or runs outside of any graph.
  virtual Deferral* next(TraceMatch* match) = 0;
  // The call waits in the trace that next() returned.
  virtual void accepted(TraceMatch* match) = 0;
  // The host accesses the memory of a tensor.
  virtual void host_access(const Tensor& tensor, const char* op) = 0;
  // The function is about to do what no graph repeats.
  virtual void effect(const char* op) = 0;
  // Operators outside of all graphs are about to run.
  virtual void uncaptured() = 0;
  // Returns whether calls that wait hold a reference to the memory of a tensor.
  virtual bool holds(const Tensor& tensor) const = 0;
};

// Returns the function that this thread runs in parts, or null.
Splitting* splitting();
void set_splitting(Splitting* now);

// Looks for a trace that goes on with a call.
//
//   TraceMatch match(entry, form, true);
//   while (Deferral* known = match.next()) {
//     if (the arguments are the same as those of `known` && match.accept()) return its results;
//   }
class TraceMatch {
 public:
  // `holdable` is whether a graph can hold the results of the call: they are tensors.
  TraceMatch(const OpEntry& called, Form how, bool holdable)
      : entry(called), form(how), can_be_held(holdable && !called.info->dynamic) {}

  Deferral* next() { return deferral_ = splitting()->next(this); }
  bool accept() {
    if (!deferral_->accept()) return false;
    splitting()->accepted(this);
    return true;
  }
  // After next() has returned null: whether the call is recorded.
  bool records() const { return records_; }
  Deferral* none(bool records) {
    records_ = records;
    return nullptr;
  }

  const OpEntry& entry;
  const Form form;
  const bool can_be_held;
  // Where the search is.
  bool began = false;
  size_t child = 0;      // to try next
  size_t differing = 0;  // those with other constants alone

 private:
  Deferral* deferral_ = nullptr;
  bool records_ = false;
};

}  // namespace mytorch::graph
