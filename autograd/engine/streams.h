// Streams in backward: each node's gradient runs on the stream of its forward.
#pragma once

#include <vector>

#include "mytorch/autograd/node.h"
#include "mytorch/thread_state.h"

namespace mytorch::autograd {

// Returns whether a node's gradients are on a device with streams.
inline bool has_stream(const Node& node) {
  return node.num_inputs() > 0 && node.infos()[0].device.type > MT_DEVICE_CPU;
}

// Makes the node's stream the thread's current stream of its device.
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

// Makes the node's stream wait for all work that the thread has queued on its current stream of
// that device, on which a gradient for the node was computed.
void wait_for_current(const Node& node);

// The streams that compute the results of a run.
class StreamSet {
 public:
  void add(const Node& node);
  // Makes the thread's current streams wait for them.
  void join() const;

 private:
  std::vector<const GradInfo*> infos_;
};

}  // namespace mytorch::autograd
