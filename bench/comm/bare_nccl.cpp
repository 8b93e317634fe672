#include "bench/comm/bare.h"

#ifdef BENCH_NCCL
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <stdexcept>

#include "mytorch/mytorch.h"

namespace bench {
namespace {

void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

class Nccl final : public Bare {
 public:
  explicit Nccl(const mytorch::distributed::Group& world) {
    // The engine has opened the same library.
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error("libnccl.so.2 is not installed");
    load(library, "ncclGetUniqueId", get_id_);
    load(library, "ncclCommInitRank", init_);
    load(library, "ncclAllReduce", all_reduce_);
    load(library, "ncclAllGather", all_gather_);
    load(library, "ncclReduceScatter", reduce_scatter_);
    load(library, "ncclGetVersion", version_);
    load(library, "ncclGetErrorString", error_);
    check(cudaSetDevice(world.device().index));
    ncclUniqueId id{};
    if (world.rank() == 0) check(get_id_(&id));
    const mytorch::Tensor bytes = mytorch::empty({sizeof(id)}, mytorch::kUInt8);
    std::memcpy(bytes.data_ptr(), &id, sizeof(id));
    const mytorch::Tensor shared = bytes.to(world.device());
    world.broadcast(shared, 0);
    const mytorch::Tensor back = shared.to(mytorch::kCPU);
    std::memcpy(&id, back.raw_data(), sizeof(id));
    check(init_(&comm_, world.size(), id, world.rank()));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  std::string name() const override {
    int version = 0;
    version_(&version);
    return "NCCL " + std::to_string(version);
  }
  void run(Collective what, const void* send, void* recv, int64_t count, bool bfloat16) override {
    const ncclDataType_t type = bfloat16 ? ncclBfloat16 : ncclFloat32;
    const auto n = static_cast<size_t>(count);
    switch (what) {
      case Collective::kAllReduce:
        return check(all_reduce_(recv, recv, n, type, ncclSum, comm_, stream_));
      case Collective::kAllGather:
        return check(all_gather_(send, recv, n, type, comm_, stream_));
      case Collective::kReduceScatter:
        return check(reduce_scatter_(send, recv, n, type, ncclSum, comm_, stream_));
    }
  }
  void synchronize() override { bench::check(cudaStreamSynchronize(stream_)); }

 private:
  template <class F>
  static void load(void* library, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(std::string("NCCL has no ") + name);
  }
  void check(cudaError_t code) const { bench::check(code); }
  void check(ncclResult_t code) const {
    if (code != ncclSuccess) throw std::runtime_error(error_(code));
  }

  decltype(ncclGetUniqueId)* get_id_ = nullptr;
  decltype(ncclCommInitRank)* init_ = nullptr;
  decltype(ncclAllReduce)* all_reduce_ = nullptr;
  decltype(ncclAllGather)* all_gather_ = nullptr;
  decltype(ncclReduceScatter)* reduce_scatter_ = nullptr;
  decltype(ncclGetVersion)* version_ = nullptr;
  decltype(ncclGetErrorString)* error_ = nullptr;
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
