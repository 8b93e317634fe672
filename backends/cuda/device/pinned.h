// Pinned memory of the host for users' tensors. Devices copy from and to it while the host goes on,
// so that a block that was released is used again only when the copies that it took part in are
// done.
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
  // Aligned to 4096 bytes; NULL when out of memory, and for 0 bytes.
  void* allocate(size_t bytes);
  void release(void* data);
  // To be called where a copy is queued: whether `host` lies in a block of ours, which then keeps
  // in mind the stream, or the graph that it is recorded into.
  bool note_use(const void* host, int32_t device, cudaStream_t stream);
  void end_of_graph(uint64_t graph);
  // Gives back what is free.
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
    std::vector<uint64_t> graphs;  // whose replays use it
    std::vector<Event*> events;    // of the uses, once it is released
  };
  using Blocks = std::map<char*, Block>;

  static bool idle(Block& block);
  void finish(Block& block);

  std::mutex mutex_;
  Blocks blocks_;
};

// That of the process: the same memory serves all devices.
Pinned& pinned();

}  // namespace mytorch::cuda
