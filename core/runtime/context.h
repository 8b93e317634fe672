// The host's side of mt_ctx: what kernels reach through their context.
#pragma once

#include <string>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/threads.h"
#include "mytorch/thread_state.h"

namespace mytorch {

struct Context : mt_ctx {
  std::string error;  // of the last kernel that returned a status
  int error_status = MT_OK;
  // Scratch is a bump over blocks that stay; a call returns what it took by resetting the mark.
  struct Block {
    char* data;
    size_t bytes;
  };
  std::vector<Block> blocks;
  size_t block = 0;
  size_t used = 0;
  // Where make_output puts outputs of records marked `dynamic`; set around such a call.
  const mt_tensor* (*dynamic_output)(void* user, int32_t index, const int64_t* shape,
                                     int32_t ndim) = nullptr;
  void* dynamic_user = nullptr;

  ~Context();
};

// Gives back the scratch that a kernel took, when it returns.
class ScratchScope {
 public:
  explicit ScratchScope(mt_ctx* ctx)
      : ctx_(static_cast<Context*>(ctx)), block_(ctx_->block), used_(ctx_->used) {}
  ~ScratchScope() {
    ctx_->block = block_;
    ctx_->used = used_;
  }
  ScratchScope(const ScratchScope&) = delete;
  ScratchScope& operator=(const ScratchScope&) = delete;

 private:
  Context* ctx_;
  size_t block_;
  size_t used_;
};

// What init and device functions of backends see.
const mt_host* host();
// The message of the last host-level error on this thread (mt_host::set_error), cleared by reading.
std::string take_host_error();


}  // namespace mytorch
