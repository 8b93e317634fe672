// The libraries under the engines, called without them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mytorch/distributed.h"

namespace bench {

enum class Collective { kAllReduce, kAllGather, kReduceScatter };

class Bare {
 public:
  virtual ~Bare() = default;
  virtual std::string name() const = 0;
  // Runs a collective on float32 or bfloat16 elements (16 bits, in MPI as integers). `count` is
  // that of a rank's part, of all_reduce that of the buffer, which is reduced in place. On a device
  // it is queued.
  virtual void run(Collective what, const void* send, void* recv, int64_t count, bool bfloat16) = 0;
  virtual void synchronize() = 0;
};

// Each returns null if the program was built without it.
std::unique_ptr<Bare> bare_mpi(const mytorch::distributed::Group& world);
std::unique_ptr<Bare> bare_nccl(const mytorch::distributed::Group& world);

}  // namespace bench
