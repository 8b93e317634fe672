#include "graph/breaks/session.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/tensor/batched.h"
#include "mytorch/check.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {
namespace {

// A call whose numbers differ in each call of the function runs outside of graphs, once the
// function has been recorded with so many.
constexpr size_t kMostNumbers = 2;

Break unholdable(const OpInfo& op) {
  return {op.base,
          op.dynamic ? "the shape of its result depends on values" : "it gives the host a value"};
}

}  // namespace

BreakSession::BreakSession(SegmentTree* tree, const std::vector<Tensor>& arguments,
                           const void* frame)
    : tree_(*tree),
      here_(tree->root.get()),
      is_whole_(frame != nullptr),
      wanted_(thread_state.wanted) {
  for (const Tensor& argument : arguments) {
    check_not_batched(argument, "compile");
    changing_.push_back(argument.impl()->storage);
  }
  tree_.path.clear();
  tree_.breaks.clear();
  if (is_whole_) capture_ = std::make_unique<OperatorCapture>(arguments, frame);
  set_splitting(this);
  thread_state.wanted |= kLayerCapture;
}

BreakSession::~BreakSession() {
  if (splitting() != this) return;
  try {
    finish();
  } catch (const std::exception&) {
    // The error that ends the scope is the first one.
    close();
  }
}

void BreakSession::close() {
  set_splitting(nullptr);
  capture_.reset();
  waiting_.reset();
  tried_.reset();
  thread_state.wanted = wanted_;
}

void BreakSession::finish() {
  if (capture_ != nullptr && !is_whole_) end_recording({});
  if (waiting_ != nullptr) flush({});
  close();
}

std::unique_ptr<OperatorCapture> BreakSession::take_whole() {
  if (!is_whole_) return nullptr;
  // The recording goes on: backward of the results may be a part of it.
  set_splitting(nullptr);
  return std::move(capture_);
}

void BreakSession::take_back(std::unique_ptr<OperatorCapture> capture, size_t nodes) {
  is_whole_ = false;
  recorded_ = true;
  add_all(slice(capture->cut(), 0, nodes), {});
}

// ---- segments ----

void BreakSession::at_break(const Break& why) {
  if (!why.op.empty()) tree_.breaks.push_back(why);
}

void BreakSession::end_segment(const Break& why) {
  if (here_->end.op.empty() && !why.op.empty()) {
    here_->end = why;
    here_->end.site = CallSite::here();
  }
  at_break(here_->end);
}

void BreakSession::flush(const Break& why) {
  tried_.reset();
  const std::unique_ptr<Deferral> waiting = std::move(waiting_);
  if (!waiting->complete()) here_->split(waiting->size());
  end_segment(why);
  ++tree_.replayed;
  here_->run(*waiting, {*tree_.passes, changing_, tree_.check});
}

void BreakSession::add(Trace trace) {
  if (trace.size() == 0) return;
  auto& children = here_->children;
  children.insert(children.begin(), std::make_unique<Segment>(std::move(trace)));
  if (static_cast<int64_t>(children.size()) > tree_.most_children) children.pop_back();
  here_ = children.front().get();
  tree_.path.push_back(here_);
  ++tree_.recorded;
}

void BreakSession::end_recording(const Break& why) {
  is_whole_ = false;
  recorded_ = true;
  const Trace trace = std::exchange(capture_, nullptr)->cut();
  thread_state.wanted |= kLayerCapture;
  add_all(trace, why);
  if (tree_.verbose && !why.op.empty()) {
    detail::tell(absl::StrCat("[compile] the graph ends before ", why.op, "(): ", why.reason,
                              called_from()));
  }
}

void BreakSession::add_all(const Trace& trace, const Break& why) {
  size_t begin = 0;
  for (size_t i = 0; i < trace.size(); ++i) {
    if (trace.notes[i].waits) continue;
    add(slice(trace, begin, i));
    const GraphNode& node = trace.graph.nodes[i];
    here_->outside_graphs.insert(node.entry);
    if (here_->end.op.empty()) {
      here_->end = {node.op().base, "its result is a part of another tensor"};
    }
    at_break(here_->end);
    begin = i + 1;
  }
  add(slice(trace, begin, trace.size()));
  end_segment(why);
}

// ---- operators ----

Deferral* BreakSession::next(TraceMatch* match) {
  if (capture_ != nullptr) {
    if (match->can_be_held) return match->none(true);
    end_recording(unholdable(*match->entry.info));
    return match->none(false);
  }
  if (!match->began) {
    match->began = true;
    if (waiting_ != nullptr && !waiting_->complete()) {
      if (waiting_->begin(match->entry, match->form)) return waiting_.get();
    }
  }
  if (waiting_ != nullptr) {
    const OpInfo& op = *match->entry.info;
    Break why;
    if (!match->can_be_held) {
      why = unholdable(op);
    } else if (!waiting_->complete()) {
      why = {op.base, absl::StrCat("the function called ", waiting_->expected().name(),
                                   "() before, or with other operands or numbers")};
    }
    flush(why);
  }
  return next_child(match);
}

Deferral* BreakSession::next_child(TraceMatch* match) {
  auto& children = here_->children;
  if (tried_ != nullptr) {
    if (tried_->differs_in_constants()) ++match->differing;
    ++match->child;
    tried_.reset();
  }
  if (match->can_be_held) {
    for (; match->child < children.size(); ++match->child) {
      const Segment& child = *children[match->child];
      if (child.trace.graph.nodes[0].entry != &match->entry) continue;
      tried_ = std::make_unique<Deferral>(&child.trace);
      if (tried_->begin(match->entry, match->form)) return tried_.get();
      tried_.reset();
    }
  }
  if (!match->can_be_held || here_->outside_graphs.contains(&match->entry)) {
    return match->none(false);
  }
  if (match->differing >= kMostNumbers) {
    here_->outside_graphs.insert(&match->entry);
    here_->end = {match->entry.info->base, "its numbers differ in each call", CallSite::here()};
    std::erase_if(children, [&](const std::unique_ptr<Segment>& child) {
      return child->trace.graph.nodes[0].entry == &match->entry;
    });
    return match->none(false);
  }
  capture_ = std::make_unique<OperatorCapture>();
  return match->none(true);
}

void BreakSession::accepted(TraceMatch* match) {
  if (tried_ == nullptr) return;
  auto& children = here_->children;
  std::rotate(children.begin(), children.begin() + static_cast<std::ptrdiff_t>(match->child),
              children.begin() + static_cast<std::ptrdiff_t>(match->child) + 1);
  here_ = children.front().get();
  tree_.path.push_back(here_);
  waiting_ = std::move(tried_);
}

// ---- the host ----

void BreakSession::host_access(const Tensor& tensor, const char* op) {
  const Break why{op, "the host accesses a value that the function computes"};
  if (capture_ != nullptr) {
    if (capture_->ends_before_access(tensor, op)) end_recording(why);
  } else if (waiting_ != nullptr && waiting_->uses(tensor) &&
             (std::string_view(op) == "data" || waiting_->changes(tensor))) {
    flush(why);
  }
}

void BreakSession::effect(const char* op) {
  const Break why{op, "it changes state outside of graphs"};
  if (capture_ != nullptr) {
    end_recording(why);
  } else if (waiting_ != nullptr) {
    flush(why);
  }
}

void BreakSession::uncaptured() {
  if (waiting_ != nullptr) flush({"step", "an optimizer changes state outside of graphs"});
}

bool BreakSession::holds(const Tensor& tensor) const {
  return waiting_ != nullptr && waiting_->holds(tensor);
}

}  // namespace mytorch::graph
