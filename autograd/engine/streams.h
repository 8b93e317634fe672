// Streams of devices: each node's gradient runs on the stream that its forward ran on.
#pragma once

#include <vector>

#include "mytorch/autograd/node.h"
#include "mytorch/thread_state.h"

namespace mytorch::autograd {

// Whether a node's gradients are on a device that has streams.
inline bool has_stream(const Node& node) {
  return node.num_inputs() > 0 && node.infos()[0].device.type > MT_DEVICE_CPU;
}

// Makes the node's stream the thread's current one of its device.
class StreamScope {
 public:
  explicit StreamScope(const Node& node) {
    if (has_stream(node)) [[unlikely]]
      enter(node.infos()[0]);
  }
  ~StreamScope() {
    if (ctx_ != nullptr) ctx_->stream = saved_;
  }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  void enter(const GradInfo& info);
  mt_ctx* ctx_ = nullptr;
  void* saved_ = nullptr;
};

// Lets the node's stream wait for what the thread has queued so far on its current stream of that
// device: where a gradient that goes to the node was made.
void wait_for_current(const Node& node);

// The streams on which results of a run are made.
class StreamSet {
 public:
  void add(const Node& node);
  // Lets the thread's current streams wait for them.
  void join() const;

 private:
  std::vector<const GradInfo*> infos_;
};

}  // namespace mytorch::autograd
