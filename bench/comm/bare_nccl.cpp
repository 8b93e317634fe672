#include "bench/comm/bare.h"

#ifdef BENCH_NCCL
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstring>
#include <stdexcept>

#include "mytorch/backend/library.h"
#include "mytorch/mytorch.h"

namespace bench {
namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

// clang-format off
#define BENCH_NCCL_FUNCTIONS(F) \
  F(ncclGetUniqueId) F(ncclCommInitRank) F(ncclAllReduce) F(ncclAllGather) \
  F(ncclReduceScatter) F(ncclGetVersion) F(ncclGetErrorString)
// clang-format on
MYTORCH_ROUTINES(Routines, BENCH_NCCL_FUNCTIONS);

class Nccl final : public Bare {
 public:
  explicit Nccl(const mytorch::distributed::Group& world) {
    // The engine has opened the same library.
    if (const char* why = opened_.reason()) throw std::runtime_error(why);
    check(cudaSetDevice(world.device().index));
    ncclUniqueId id{};
    if (world.rank() == 0) check(nccl_.ncclGetUniqueId(&id));
    const mytorch::Tensor bytes = mytorch::empty({sizeof(id)}, mytorch::kUInt8);
    std::memcpy(bytes.data_ptr(), &id, sizeof(id));
    const mytorch::Tensor shared = bytes.to(world.device());
    world.broadcast(shared, 0);
    const mytorch::Tensor back = shared.to(mytorch::kCPU);
    std::memcpy(&id, back.raw_data(), sizeof(id));
    check(nccl_.ncclCommInitRank(&comm_, world.size(), id, world.rank()));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  std::string name() const override {
    int version = 0;
    nccl_.ncclGetVersion(&version);
    return "NCCL " + std::to_string(version);
  }
  void run(Collective what, const void* send, void* recv, int64_t count, bool bfloat16) override {
    const ncclDataType_t type = bfloat16 ? ncclBfloat16 : ncclFloat32;
    const auto n = static_cast<size_t>(count);
    switch (what) {
      case Collective::kAllReduce:
        return check(nccl_.ncclAllReduce(recv, recv, n, type, ncclSum, comm_, stream_));
      case Collective::kAllGather:
        return check(nccl_.ncclAllGather(send, recv, n, type, comm_, stream_));
      case Collective::kReduceScatter:
        return check(nccl_.ncclReduceScatter(send, recv, n, type, ncclSum, comm_, stream_));
    }
  }
  void synchronize() override { bench::check(cudaStreamSynchronize(stream_)); }

 private:
  void check(cudaError_t code) const { bench::check(code); }
  void check(ncclResult_t code) const {
    if (code != ncclSuccess) throw std::runtime_error(nccl_.ncclGetErrorString(code));
  }

  const mytorch::sdk::OpenedLibrary<Routines> opened_{"libnccl.so.2"};
  const Routines& nccl_ = opened_.routines();
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Bare> bare_nccl(const mytorch::distributed::Group& world) {
  return std::make_unique<Nccl>(world);
}

}  // namespace bench
#else
std::unique_ptr<bench::Bare> bench::bare_nccl(const mytorch::distributed::Group& /*world*/) {
  return nullptr;
}
#endif
