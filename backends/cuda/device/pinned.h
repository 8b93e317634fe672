// Pinned host memory for tensors. Devices copy to and from it asynchronously, so a released block
// is reused only when the copies that used it have finished.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace mytorch::cuda {

struct Event;

class Pinned {
 public:
  // Returns memory aligned to 4096 bytes; NULL if out of memory or for 0 bytes.
  void* allocate(size_t bytes);
  void release(void* data);
  // Call this when queueing a copy. Returns whether `host` lies in a block of this allocator, and
  // if so, records the stream, or the graph into which it is being captured, as a user of the
  // block.
  bool note_use(const void* host, int32_t device, cudaStream_t stream);
  void end_of_graph(uint64_t graph);
  // Returns free blocks to the system.
  void trim();

 private:
  struct Use {
    int32_t device;
    cudaStream_t stream;
  };
  struct Block {
    size_t bytes = 0;
    bool taken = false;
    std::vector<Use> uses;
    std::vector<uint64_t> graphs;  // graphs whose replays use it
    std::vector<Event*> events;    // recorded for the uses on release
  };
  using Blocks = std::map<char*, Block>;

  static bool idle(Block& block);
  void finish(Block& block);

  std::mutex mutex_;
  Blocks blocks_;
};

// The allocator of the process, which serves all devices.
Pinned& pinned();

}  // namespace mytorch::cuda
