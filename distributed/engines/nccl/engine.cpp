// Process groups by NCCL. Its library is opened at run time, so that the plug-in loads wherever it
// was built. Calls are queued on the stream that the host gives; the host watches them.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mytorch/backend/comm.h"
#include "mytorch/backend/library.h"

namespace {

using mytorch::sdk::at;
using mytorch::sdk::Error;
using mytorch::sdk::guarded_comm;

const mt_host* host = nullptr;

// NCCL's functions.
// clang-format off
#define NCCL_FUNCTIONS(F) \
  F(ncclGetVersion) F(ncclGetUniqueId) F(ncclCommInitRankConfig) F(ncclCommSplit) \
  F(ncclCommDestroy) F(ncclCommAbort) F(ncclCommGetAsyncError) F(ncclGetErrorString) \
  F(ncclGetLastError) F(ncclGroupStart) F(ncclGroupEnd) F(ncclBroadcast) F(ncclReduce) \
  F(ncclAllReduce) F(ncclAllGather) F(ncclReduceScatter) F(ncclSend) F(ncclRecv) \
  F(ncclRedOpCreatePreMulSum) F(ncclRedOpDestroy) F(ncclCommUserRank) F(ncclCommCount)
// clang-format on
MYTORCH_ROUTINES(Library, NCCL_FUNCTIONS);
Library nccl;

struct Communicator {
  ncclComm_t comm = nullptr;
  int32_t rank = 0;
  int32_t ranks = 1;
  int device = 0;
  std::atomic<bool> aborted{false};
  int open_groups = 0;   // between `begin` and `end`, which nest
  void* flag = nullptr;  // a byte for barriers, in device memory
};
Communicator& of(mt_group* group) { return *reinterpret_cast<Communicator*>(group); }

void check(ncclResult_t result, ncclComm_t comm, const char* function) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = nccl.ncclGetLastError(comm);
  throw Error(MT_ERROR_IO,
              std::string(function) + " failed: " + nccl.ncclGetErrorString(result) +
                  (last != nullptr && *last != '\0' ? std::string(" (") + last + ")" : ""));
}
void check_cuda(cudaError_t result, const char* function) {
  if (result == cudaSuccess) return;
  throw Error(result == cudaErrorMemoryAllocation ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_DEVICE,
              std::string(function) + " failed: " + cudaGetErrorString(result));
}

// Makes a device current in its scope.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    check_cuda(cudaGetDevice(&saved_), "cudaGetDevice");
    if (saved_ != device) check_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
  ~OnDevice() { cudaSetDevice(saved_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int saved_ = 0;
};

// How elements are passed: NCCL's type, and how many there are of it in one element.
struct Elements {
  ncclDataType_t type;
  int64_t each;
};

// For moving, where only the size matters.
Elements moved(mt_dtype dtype) {
  switch (dtype.bits) {
    case 16:
      return {ncclFloat16, 1};
    case 32:
      return {ncclInt32, 1};
    case 64:
      return {ncclInt64, 1};
    case 128:
      return {ncclInt64, 2};
    default:
      return {ncclInt8, dtype.bits / 8};
  }
}

// For reducing. Complex numbers are added as their parts.
Elements reduced(mt_dtype dtype, int32_t op) {
  using namespace mytorch::sdk;
  if (is_bool(dtype) || is_dtype<uint8_t>(dtype)) return {ncclUint8, 1};
  if (is_dtype<int8_t>(dtype)) return {ncclInt8, 1};
  if (is_dtype<int32_t>(dtype)) return {ncclInt32, 1};
  if (is_dtype<int64_t>(dtype)) return {ncclInt64, 1};
  if (is_dtype<Half>(dtype)) return {ncclFloat16, 1};
  if (is_dtype<BFloat16>(dtype)) return {ncclBfloat16, 1};
  if (is_dtype<float>(dtype)) return {ncclFloat32, 1};
  if (is_dtype<double>(dtype)) return {ncclFloat64, 1};
  if (is_complex(dtype) && op != MT_REDUCE_PRODUCT) {
    return {dtype.bits == 64 ? ncclFloat32 : ncclFloat64, 2};
  }
  throw Error(MT_ERROR_TYPE,
              std::string("NCCL does not ") + (is_complex(dtype) ? "multiply " : "reduce ") +
                  dtype_name(dtype) +
                  (is_complex(dtype) ? ": gather them and multiply" : ": convert to int32"));
}

// NCCL's operation of a reduction, for the time of a call.
class Operation {
 public:
  Operation(Communicator& self, mt_dtype dtype, const mt_reduction& reduction) : comm_(self.comm) {
    mytorch::sdk::check_reduction(dtype, reduction);
    if (reduction.scale != 1) {
      const double scale =
          reduction.op == MT_REDUCE_AVERAGE ? reduction.scale / self.ranks : reduction.scale;
      make_scaled(dtype, scale);
      return;
    }
    const bool is_bool = mytorch::sdk::is_bool(dtype);
    switch (reduction.op) {
      case MT_REDUCE_PRODUCT:
        op_ = is_bool ? ncclMin : ncclProd;
        break;
      case MT_REDUCE_MIN:
        op_ = ncclMin;
        break;
      case MT_REDUCE_MAX:
        op_ = ncclMax;
        break;
      case MT_REDUCE_AVERAGE:
        op_ = ncclAvg;
        break;
      default:
        op_ = is_bool ? ncclMax : ncclSum;
    }
  }
  ~Operation() {
    if (made_) nccl.ncclRedOpDestroy(op_, comm_);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ncclRedOp_t get() const { return op_; }

 private:
  void make_scaled(mt_dtype dtype, double scale) {
    using namespace mytorch::sdk;
    const Elements elements = reduced(dtype, MT_REDUCE_SUM);
    double as_double = scale;
    float as_float = static_cast<float>(scale);
    Half as_half(as_float);
    BFloat16 as_bfloat(as_float);
    void* value = elements.type == ncclFloat64   ? static_cast<void*>(&as_double)
                  : elements.type == ncclFloat32 ? static_cast<void*>(&as_float)
                  : elements.type == ncclFloat16 ? static_cast<void*>(&as_half)
                                                 : static_cast<void*>(&as_bfloat);
    check(nccl.ncclRedOpCreatePreMulSum(&op_, value, elements.type, ncclScalarHostImmediate, comm_),
          comm_, "ncclRedOpCreatePreMulSum");
    made_ = true;
  }

  ncclComm_t comm_;
  ncclRedOp_t op_ = ncclSum;
  bool made_ = false;
};

size_t number(int64_t count, const Elements& elements) {
  return static_cast<size_t>(count * elements.each);
}
cudaStream_t stream_of(const mt_comm_call* call) { return static_cast<cudaStream_t>(call->stream); }

// NCCL's groups are the thread's: left open, they would take in other communicators' calls.
void close_groups(Communicator& self) {
  for (; self.open_groups > 0; --self.open_groups) nccl.ncclGroupEnd();
}

template <class Work>
int run(mt_group* group, Work work) {
  return guarded_comm(host, [&]() -> int {
    Communicator& self = of(group);
    if (self.aborted) {
      close_groups(self);
      return MT_COMM_ABORTED;
    }
    const OnDevice here(self.device);
    try {
      work(self);
    } catch (...) {
      close_groups(self);
      throw;
    }
    return MT_OK;
  });
}

// Runs sends and receives as one call.
template <class Work>
void together(Communicator& self, Work work) {
  check(nccl.ncclGroupStart(), self.comm, "ncclGroupStart");
  try {
    work();
  } catch (...) {
    nccl.ncclGroupEnd();
    throw;
  }
  check(nccl.ncclGroupEnd(), self.comm, "ncclGroupEnd");
}

void send_to(Communicator& self, const void* data, int64_t count, mt_dtype dtype, int32_t to,
             const mt_comm_call* call) {
  if (count == 0) return;
  const Elements e = moved(dtype);
  check(nccl.ncclSend(data, number(count, e), e.type, to, self.comm, stream_of(call)), self.comm,
        "ncclSend");
}
void receive_from(Communicator& self, void* data, int64_t count, mt_dtype dtype, int32_t from,
                  const mt_comm_call* call) {
  if (count == 0) return;
  const Elements e = moved(dtype);
  check(nccl.ncclRecv(data, number(count, e), e.type, from, self.comm, stream_of(call)), self.comm,
        "ncclRecv");
}

int nccl_broadcast(void*, mt_group* group, const void* send, void* recv, int64_t count,
                   mt_dtype dtype, int32_t root, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    const Elements e = moved(dtype);
    check(
        nccl.ncclBroadcast(send, recv, number(count, e), e.type, root, self.comm, stream_of(call)),
        self.comm, "ncclBroadcast");
  });
}

int nccl_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
                const mt_reduction* reduction, int32_t root, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    const Operation op(self, dtype, *reduction);
    const Elements e = reduced(dtype, reduction->op);
    check(nccl.ncclReduce(send, recv, number(count, e), e.type, op.get(), root, self.comm,
                          stream_of(call)),
          self.comm, "ncclReduce");
  });
}

int nccl_all_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    const Operation op(self, dtype, *reduction);
    const Elements e = reduced(dtype, reduction->op);
    check(nccl.ncclAllReduce(send, recv, number(count, e), e.type, op.get(), self.comm,
                             stream_of(call)),
          self.comm, "ncclAllReduce");
  });
}

int nccl_scatter(void*, mt_group* group, const void* send, void* recv, int64_t count,
                 mt_dtype dtype, int32_t root, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    together(self, [&] {
      for (int32_t to = 0; self.rank == root && to < self.ranks; ++to) {
        send_to(self, at(send, to * count, dtype), count, dtype, to, call);
      }
      receive_from(self, recv, count, dtype, root, call);
    });
  });
}

int nccl_gather(void*, mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
                int32_t root, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    together(self, [&] {
      for (int32_t from = 0; self.rank == root && from < self.ranks; ++from) {
        receive_from(self, at(recv, from * count, dtype), count, dtype, from, call);
      }
      send_to(self, send, count, dtype, root, call);
    });
  });
}

int nccl_all_gather(void*, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    const Elements e = moved(dtype);
    check(nccl.ncclAllGather(send, recv, number(count, e), e.type, self.comm, stream_of(call)),
          self.comm, "ncclAllGather");
  });
}

int nccl_all_gather_v(void*, mt_group* group, const void* send, void* recv, const int64_t* counts,
                      const int64_t* offsets, mt_dtype dtype, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    // A broadcast of each part; a group of them is one call.
    const Elements e = moved(dtype);
    together(self, [&] {
      for (int32_t rank = 0; rank < self.ranks; ++rank) {
        if (counts[rank] == 0) continue;
        check(nccl.ncclBroadcast(send, at(recv, offsets[rank], dtype), number(counts[rank], e),
                                 e.type, rank, self.comm, stream_of(call)),
              self.comm, "ncclBroadcast");
      }
    });
  });
}

int nccl_reduce_scatter(void*, mt_group* group, const void* send, void* recv, int64_t count,
                        mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    const Operation op(self, dtype, *reduction);
    const Elements e = reduced(dtype, reduction->op);
    check(nccl.ncclReduceScatter(send, recv, number(count, e), e.type, op.get(), self.comm,
                                 stream_of(call)),
          self.comm, "ncclReduceScatter");
  });
}

int nccl_reduce_scatter_v(void*, mt_group* group, const void* send, void* recv,
                          const int64_t* counts, mt_dtype dtype, const mt_reduction* reduction,
                          const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    const Operation op(self, dtype, *reduction);
    const Elements e = reduced(dtype, reduction->op);
    together(self, [&] {
      int64_t first = 0;
      for (int32_t rank = 0; rank < self.ranks; ++rank) {
        if (counts[rank] > 0) {
          check(nccl.ncclReduce(at(send, first, dtype), recv, number(counts[rank], e), e.type,
                                op.get(), rank, self.comm, stream_of(call)),
                self.comm, "ncclReduce");
        }
        first += counts[rank];
      }
    });
  });
}

int nccl_all_to_all(void*, mt_group* group, const void* send, void* recv, int64_t count,
                    mt_dtype dtype, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    together(self, [&] {
      for (int32_t peer = 0; peer < self.ranks; ++peer) {
        send_to(self, at(send, peer * count, dtype), count, dtype, peer, call);
        receive_from(self, at(recv, peer * count, dtype), count, dtype, peer, call);
      }
    });
  });
}

int nccl_all_to_all_v(void*, mt_group* group, const void* send, const int64_t* send_counts,
                      const int64_t* send_offsets, void* recv, const int64_t* recv_counts,
                      const int64_t* recv_offsets, mt_dtype dtype, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    together(self, [&] {
      for (int32_t peer = 0; peer < self.ranks; ++peer) {
        send_to(self, at(send, send_offsets[peer], dtype), send_counts[peer], dtype, peer, call);
        receive_from(self, at(recv, recv_offsets[peer], dtype), recv_counts[peer], dtype, peer,
                     call);
      }
    });
  });
}

// The host waits, as at a barrier on the CPU.
int nccl_barrier(void*, mt_group* group, const mt_comm_call* call) {
  return run(group, [&](Communicator& self) {
    check(
        nccl.ncclAllReduce(self.flag, self.flag, 1, ncclInt8, ncclMax, self.comm, stream_of(call)),
        self.comm, "ncclAllReduce");
    check_cuda(cudaStreamSynchronize(stream_of(call)), "cudaStreamSynchronize");
  });
}

int nccl_send(void*, mt_group* group, const void* data, int64_t count, mt_dtype dtype, int32_t to,
              const mt_comm_call* call) {
  return run(group, [&](Communicator& self) { send_to(self, data, count, dtype, to, call); });
}

int nccl_recv(void*, mt_group* group, void* data, int64_t count, mt_dtype dtype, int32_t from,
              const mt_comm_call* call) {
  return run(group,
             [&](Communicator& self) { receive_from(self, data, count, dtype, from, call); });
}

int nccl_begin(void*, mt_group* group) {
  return run(group, [](Communicator& self) {
    check(nccl.ncclGroupStart(), self.comm, "ncclGroupStart");
    ++self.open_groups;
  });
}

int nccl_end(void*, mt_group* group, const mt_comm_call*) {
  return run(group, [](Communicator& self) {
    --self.open_groups;
    check(nccl.ncclGroupEnd(), self.comm, "ncclGroupEnd");
  });
}

// ---- groups ----

int make_id(void*, mt_comm_id* id) {
  return guarded_comm(host, [&]() -> int {
    static_assert(sizeof(ncclUniqueId) == sizeof(mt_comm_id));
    ncclUniqueId made;
    check(nccl.ncclGetUniqueId(&made), nullptr, "ncclGetUniqueId");
    std::memcpy(id->bytes, &made, sizeof(made));
    return MT_OK;
  });
}

mt_group* wrap(ncclComm_t comm, int32_t rank, int32_t ranks, int device) {
  auto made = std::make_unique<Communicator>();
  made->comm = comm;
  made->rank = rank;
  made->ranks = ranks;
  made->device = device;
  check_cuda(cudaMalloc(&made->flag, 1), "cudaMalloc");
  check_cuda(cudaMemset(made->flag, 0, 1), "cudaMemset");
  return reinterpret_cast<mt_group*>(made.release());
}

// Where ranks meet, NCCL waits for all of them, and cannot be told to give up. `meet` therefore
// runs on a thread of its own, which is left behind at the call's deadline.
int meet_in_time(int device, const mt_comm_call* call, std::function<ncclComm_t()> meet,
                 ncclComm_t* comm) {
  std::packaged_task<ncclComm_t()> task([device, meet = std::move(meet)] {
    const OnDevice here(device);
    return meet();
  });
  std::future<ncclComm_t> made = task.get_future();
  std::thread(std::move(task)).detach();
  const std::chrono::nanoseconds time(call->timeout_ns);
  if (time.count() > 0 && made.wait_for(time) != std::future_status::ready) return MT_COMM_TIMEOUT;
  *comm = made.get();
  return MT_OK;
}

int create(void*, const mt_comm_id* id, int32_t rank, int32_t ranks, mt_device device,
           const mt_comm_call* call, mt_group** group) {
  return guarded_comm(host, [&]() -> int {
    const OnDevice here(device.index);
    ncclUniqueId unique;
    std::memcpy(&unique, id->bytes, sizeof(unique));
    ncclComm_t comm = nullptr;
    const auto meet = [unique, rank, ranks] {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 1;
      ncclComm_t made = nullptr;
      check(nccl.ncclCommInitRankConfig(&made, ranks, unique, rank, &config), nullptr,
            "ncclCommInitRankConfig");
      return made;
    };
    const int status = meet_in_time(device.index, call, meet, &comm);
    if (status != MT_OK) return status;
    *group = wrap(comm, rank, ranks, device.index);
    return MT_OK;
  });
}

int split(void*, mt_group* group, int32_t color, int32_t key, const mt_comm_call* call,
          mt_group** part) {
  *part = nullptr;
  int status = MT_OK;
  const int ran = run(group, [&](Communicator& self) {
    ncclComm_t comm = nullptr;
    const auto meet = [parent = self.comm, color, key] {
      ncclComm_t made = nullptr;
      check(nccl.ncclCommSplit(parent, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &made, nullptr),
            parent, "ncclCommSplit");
      return made;
    };
    status = meet_in_time(self.device, call, meet, &comm);
    if (comm == nullptr) return;
    int rank = 0, ranks = 0;
    check(nccl.ncclCommUserRank(comm, &rank), comm, "ncclCommUserRank");
    check(nccl.ncclCommCount(comm, &ranks), comm, "ncclCommCount");
    *part = wrap(comm, rank, ranks, self.device);
  });
  return ran != MT_OK ? ran : status;
}

void abort_group(void*, mt_group* group) {
  Communicator& self = of(group);
  if (!self.aborted.exchange(true)) nccl.ncclCommAbort(self.comm);
}

void destroy(void*, mt_group* group) {
  Communicator& self = of(group);
  if (!self.aborted) nccl.ncclCommDestroy(self.comm);
  cudaFree(self.flag);
  delete &self;
}

int async_error(void*, mt_group* group) {
  Communicator& self = of(group);
  if (self.aborted) return MT_COMM_ABORTED;
  ncclResult_t found = ncclSuccess;
  nccl.ncclCommGetAsyncError(self.comm, &found);
  if (found == ncclSuccess) return MT_OK;
  if (found == ncclInProgress) return MT_COMM_PENDING;
  return found == ncclRemoteError ? int{MT_COMM_RANK_FAILED} : int{MT_ERROR_IO};
}

}  // namespace

extern "C" int mytorch_comm_nccl_init(const mt_host* given, mt_comm* comm);
extern "C" int mytorch_comm_nccl_init(const mt_host* given, mt_comm* comm) {
  host = given;
  const mytorch::sdk::OpenedLibrary<Library> opened(
      "libnccl.so.2", "NCCL is not installed: ", "NCCL is too old: it has no ");
  if (const char* why = opened.reason()) {
    host->set_error(MT_DECLINED, why);
    return MT_DECLINED;
  }
  nccl = opened.routines();
  static std::string version;
  int number = 0;
  nccl.ncclGetVersion(&number);
  version = std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
            std::to_string(number % 100);
  comm->name = "nccl";
  comm->version = version.c_str();
  comm->device_type = "cuda";
  comm->priority = 10;
  comm->flags = MT_COMM_COALESCES;
  comm->make_id = make_id;
  comm->create = create;
  comm->split = split;
  comm->destroy = destroy;
  comm->abort = abort_group;
  comm->async_error = async_error;
  MYTORCH_COMM_CALLS(comm, nccl);
  return MT_OK;
}
