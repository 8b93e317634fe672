// The host's side of mt_ctx: what kernels reach through their context.
#pragma once

#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/thread_state.h"
#include "mytorch/threads.h"

namespace mytorch {

struct Context : mt_ctx {
  std::string error;  // of the last kernel that returned a status
  int error_status = MT_OK;
  // Scratch is a bump over blocks that stay; a call returns what it took by resetting the mark.
  // After a call that needed several blocks the next one gets a single one of their size.
  struct Block {
    char* data;
    size_t bytes;
  };
  std::vector<Block> blocks;
  size_t block = 0;
  size_t used = 0;    // of that block
  size_t taken = 0;   // by this call
  size_t wanted = 0;  // of the next block, at least
  // What the blocks were allocated for: work on another stream is not ordered behind theirs, and
  // those of a graph that is being recorded are the graph's.
  void* scratch_stream = nullptr;
  uint64_t scratch_recording = 0;
  // Where make_output puts outputs of records marked `dynamic`; set around such a call.
  const mt_tensor* (*dynamic_output)(void* user, int32_t index, const int64_t* shape,
                                     int32_t ndim) = nullptr;
  void* dynamic_user = nullptr;

  // Frees all blocks: the next is as large as what this call took, so that neither several requests
  // of a call need memory anew each time, nor growing ones add up.
  void join_blocks();
  // The same for all blocks, where the next ones are for another stream or recording.
  void move_scratch(uint64_t recording);
  ~Context();
};

// Gives back the scratch that a kernel took, when it has returned. On a stream the next kernel's
// use of it is ordered behind this one's.
inline void release_scratch(mt_ctx* ctx) {
  auto* context = static_cast<Context*>(ctx);
  if (context->used == 0) return;
  if (context->blocks.size() > 1) [[unlikely]]
    context->join_blocks();
  context->block = 0;
  context->used = 0;
  context->taken = 0;
}

// What init and device functions of backends see.
const mt_host* host();
// The message of the last host-level error on this thread (mt_host::set_error), cleared by reading.
std::string take_host_error();

}  // namespace mytorch
