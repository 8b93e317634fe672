// The host's implementation of mt_ctx, the context of kernels.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"
#include "mytorch/thread_state.h"
#include "mytorch/threads.h"

namespace mytorch {

struct ThreadContext : mt_ctx {
  std::string error;  // set by the last kernel that returned an error status
  int error_status = MT_OK;
  // Scratch memory is bump-allocated from blocks that persist; a call releases it by resetting the
  // mark. If a call needed several blocks, they are replaced by a single one of their total size.
  struct ScratchBlock {
    char* data;
    size_t bytes;
  };
  std::vector<ScratchBlock> blocks;
  size_t block = 0;
  size_t used = 0;    // bytes in use in that block
  size_t taken = 0;   // bytes used by this call
  size_t wanted = 0;  // minimum size of the next block
  // The stream and the graph capture that the blocks were allocated for. Work on another stream is
  // not ordered after theirs, and memory allocated during capture belongs to the graph.
  void* scratch_stream = nullptr;
  uint64_t scratch_capture = 0;
  // Creates the outputs of records marked `dynamic`; set during such a call.
  const mt_tensor* (*dynamic_output)(void* user, int32_t index, const int64_t* shape,
                                     int32_t ndim) = nullptr;
  void* dynamic_user = nullptr;

  // Frees all blocks. The next block is as large as all memory that this call used, so neither
  // repeated nor growing requests allocate anew in each call.
  void join_blocks();
  // Frees all blocks because the stream or the capture changed.
  void move_scratch(uint64_t capture);
  ~ThreadContext();
};

// Releases a kernel's scratch memory after it has returned. On a stream, the next kernel's use of
// it is ordered after this one's.
inline void release_scratch(mt_ctx* ctx) {
  auto* context = static_cast<ThreadContext*>(ctx);
  if (context->used == 0) return;
  if (context->blocks.size() > 1) [[unlikely]]
    context->join_blocks();
  context->block = 0;
  context->used = 0;
  context->taken = 0;
}

// Returns a context with a stream of its own, which no thread has yet.
std::unique_ptr<ThreadContext> new_context(int slot, Device device);
// Frees the memory of a context, and keeps its stream for the next one.
void retire(std::unique_ptr<ThreadContext> context);

// Returns the host structure passed to init and device functions of backends.
const mt_host* host();
// Returns and clears the message of the last host-level error on this thread (mt_host::set_error).
std::string take_host_error();

}  // namespace mytorch
