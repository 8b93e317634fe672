// Process groups by MPI. Errors are returned, never fatal. Every call is started without blocking
// and then tested, so that deadlines and `abort` end it.
#include <dlfcn.h>
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "backends/comm-mpi/types.h"
#include "mytorch/backend/comm.h"

namespace {

using mytorch::comm_mpi::check;
using mytorch::comm_mpi::Elements;
using mytorch::comm_mpi::int_of;
using mytorch::comm_mpi::max_count;
using mytorch::comm_mpi::mpi_op;
using mytorch::comm_mpi::mpi_type;
using mytorch::comm_mpi::Parts;
using mytorch::sdk::at;
using mytorch::sdk::bytes_of;
using mytorch::sdk::Error;
using mytorch::sdk::guarded_comm;

const mt_host* host = nullptr;
bool threads_may_call = false;  // at the same time
std::atomic<bool> any_failed{false};

// Serializes calls of MPI if it does not take them from several threads.
std::recursive_mutex mpi_mutex;
class Serialized {
 public:
  Serialized() {
    if (!threads_may_call) mpi_mutex.lock();
  }
  ~Serialized() {
    if (!threads_may_call) mpi_mutex.unlock();
  }
  Serialized(const Serialized&) = delete;
  Serialized& operator=(const Serialized&) = delete;
};

struct Communicator {
  MPI_Comm comm = MPI_COMM_NULL;
  int32_t rank = 0;
  int32_t ranks = 1;
  std::atomic<bool> aborted{false};
  bool grouping = false;
  std::vector<MPI_Request> requests;  // of sends and receives between begin and end
};
Communicator& of(mt_group* group) { return *reinterpret_cast<Communicator*>(group); }

// Waits for requests. After a deadline they are left to MPI, and the group is dead.
int finish(Communicator& self, std::vector<MPI_Request> requests, const mt_comm_call& call) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::nanoseconds(call.timeout_ns);
  for (int64_t spins = 0;; ++spins) {
    int done = 0;
    {
      const Serialized serialized;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    }
    if (done != 0) return MT_OK;
    if (self.aborted) {
      any_failed = true;
      return MT_COMM_ABORTED;
    }
    // Processes may share processors, so waiting gives way to the others.
    if (spins % 64 == 63) {
      sched_yield();
      if (call.timeout_ns > 0 && Clock::now() >= deadline) {
        self.aborted = true;
        any_failed = true;
        return MT_COMM_TIMEOUT;
      }
    }
  }
}

// Starts a call by start(communicator, &request) and waits for it.
template <class Start>
int run(mt_group* group, const mt_comm_call* call, const char* name, Start start) {
  return guarded_comm(host, [&]() -> int {
    Communicator& self = of(group);
    if (self.aborted) return MT_COMM_ABORTED;
    MPI_Request request = MPI_REQUEST_NULL;
    try {
      {
        const Serialized serialized;
        check(start(self, &request), name);
      }
      return finish(self, {request}, *call);
    } catch (...) {
      self.aborted = true;
      any_failed = true;
      throw;
    }
  });
}

// Memory of elements, for what MPI cannot do in place.
class Buffer {
 public:
  Buffer(int64_t count, mt_dtype dtype)
      : data_(std::make_unique_for_overwrite<char[]>(bytes_of(count, dtype))) {}
  void* get() { return data_.get(); }

 private:
  std::unique_ptr<char[]> data_;
};

// Whether [a, a + bytes) and [b, b + other) have a byte in common.
bool overlap(const void* a, int64_t bytes, const void* b, int64_t other) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + static_cast<uintptr_t>(other) && y < x + static_cast<uintptr_t>(bytes);
}

// The operand of a reduction: `send`, or scaled elements in a buffer.
class Operand {
 public:
  Operand(const void* send, int64_t count, mt_dtype dtype, const mt_reduction& reduction)
      : data_(send) {
    mytorch::sdk::check_reduction(dtype, reduction);
    if (reduction.scale == 1) return;
    buffer_ = std::make_unique<Buffer>(count, dtype);
    mt_reduction scaling = reduction;
    scaling.op = MT_REDUCE_SUM;
    mytorch::sdk::reduce_range(dtype, scaling, &send, 1, buffer_->get(), 0, count);
    data_ = buffer_->get();
  }
  const void* data() const { return data_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  const void* data_;
};

// Divides a sum by the number of ranks, if the reduction is an average.
void complete(void* data, int64_t count, mt_dtype dtype, const mt_reduction& reduction,
              int32_t ranks) {
  if (reduction.op != MT_REDUCE_AVERAGE) return;
  mytorch::sdk::visit_any_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = mytorch::sdk::Combined<T>;
    auto* values = static_cast<T*>(data);
    for (int64_t i = 0; i < count; ++i) {
      if constexpr (mytorch::sdk::is_complex_type<T>) {
        values[i] /= static_cast<typename T::value_type>(ranks);
      } else if constexpr (!std::is_same_v<T, bool>) {
        values[i] =
            static_cast<T>(static_cast<C>(static_cast<C>(values[i]) / static_cast<C>(ranks)));
      }
    }
  });
}

const void* in_place(const void* send, const void* recv) {
  return send == recv ? MPI_IN_PLACE : send;
}

int mpi_broadcast(void*, mt_group* group, const void* send, void* recv, int64_t count,
                  mt_dtype dtype, int32_t root, const mt_comm_call* call) {
  return run(group, call, "MPI_Ibcast", [&](Communicator& self, MPI_Request* request) {
    if (self.rank == root && send != recv && count > 0) {
      std::memcpy(recv, send, bytes_of(count, dtype));
    }
    const Elements elements(count, dtype);
    return MPI_Ibcast(recv, elements.count(), elements.type(), root, self.comm, request);
  });
}

// Calls reduce(first, n) for parts of `count` elements that MPI takes in one call.
template <class Reduce>
int in_parts(int64_t count, const Reduce& reduce) {
  int64_t first = 0;
  do {
    const int64_t n = std::min(count - first, max_count());
    if (const int status = reduce(first, n); status != MT_OK) return status;
    first += n;
  } while (first < count);
  return MT_OK;
}

int reduce_part(mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
                const mt_reduction* reduction, int32_t root, const mt_comm_call* call) {
  std::unique_ptr<Operand> operand;
  const int status = run(group, call, "MPI_Ireduce", [&](Communicator& self, MPI_Request* request) {
    operand = std::make_unique<Operand>(send, count, dtype, *reduction);
    const bool receives = self.rank == root;
    return MPI_Ireduce(receives ? in_place(operand->data(), recv) : operand->data(),
                       receives ? recv : nullptr, int_of(count), mpi_type(dtype),
                       mpi_op(dtype, reduction->op), root, self.comm, request);
  });
  if (status == MT_OK && of(group).rank == root) {
    complete(recv, count, dtype, *reduction, of(group).ranks);
  }
  if (status != MT_OK) (void)operand.release();  // MPI may still read it
  return status;
}

int mpi_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
               const mt_reduction* reduction, int32_t root, const mt_comm_call* call) {
  return in_parts(count, [&](int64_t first, int64_t n) {
    return reduce_part(group, at(send, first, dtype), at(recv, first, dtype), n, dtype, reduction,
                       root, call);
  });
}

// A block of an all-reduce that is under way.
struct Block {
  std::unique_ptr<Buffer> source;  // for what is scaled or reduced in place
  MPI_Request request = MPI_REQUEST_NULL;
};

// In blocks, a few of which are under way at a time. MPI allocates memory as large as what it
// reduces, and reduces in place by its slowest algorithm; blocks and copies of them stay in caches.
int mpi_all_reduce(void*, mt_group* group, const void* send, void* recv, int64_t count,
                   mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  constexpr int64_t kBytes = 256 << 10, kUnderWay = 4;
  return guarded_comm(host, [&]() -> int {
    Communicator& self = of(group);
    if (self.aborted) return MT_COMM_ABORTED;
    mytorch::sdk::check_reduction(dtype, *reduction);
    const int64_t width = mytorch::sdk::itemsize(dtype);
    const int64_t most = std::min(std::max<int64_t>(kBytes / width, 1), max_count());
    const int64_t blocks = std::max<int64_t>((count + most - 1) / most, 1);
    mt_reduction scaling = *reduction;
    scaling.op = MT_REDUCE_SUM;
    auto under_way = std::make_unique<std::array<Block, kUnderWay>>();
    const auto block = [&](int64_t i) -> Block& {
      return (*under_way)[static_cast<size_t>(i % kUnderWay)];
    };
    const auto size = [&](int64_t i) { return std::min(most, count - i * most); };
    const auto start = [&](int64_t i) {
      const int64_t n = size(i);
      const void* from = at(send, i * most, dtype);
      void* to = at(recv, i * most, dtype);
      if (from == to || reduction->scale != 1) {
        std::unique_ptr<Buffer>& source = block(i).source;
        if (source == nullptr) source = std::make_unique<Buffer>(std::min(most, count), dtype);
        if (reduction->scale != 1) {
          mytorch::sdk::reduce_range(dtype, scaling, &from, 1, source->get(), 0, n);
        } else if (n > 0) {
          std::memcpy(source->get(), from, bytes_of(n, dtype));
        }
        from = source->get();
      }
      const Serialized serialized;
      check(MPI_Iallreduce(from, to, int_of(n), mpi_type(dtype), mpi_op(dtype, reduction->op),
                           self.comm, &block(i).request),
            "MPI_Iallreduce");
    };
    try {
      for (int64_t begun = 0, done = 0; done < blocks; ++done) {
        for (; begun < std::min(blocks, done + kUnderWay); ++begun) start(begun);
        if (const int status = finish(self, {block(done).request}, *call); status != MT_OK) {
          (void)under_way.release();  // MPI may still read it
          return status;
        }
        complete(at(recv, done * most, dtype), size(done), dtype, *reduction, self.ranks);
      }
    } catch (...) {
      (void)under_way.release();
      self.aborted = true;
      any_failed = true;
      throw;
    }
    return MT_OK;
  });
}

int mpi_scatter(void*, mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
                int32_t root, const mt_comm_call* call) {
  return run(group, call, "MPI_Iscatter", [&](Communicator& self, MPI_Request* request) {
    const bool mine = self.rank == root && recv == at(send, root * count, dtype);
    const Elements part(count, dtype);
    return MPI_Iscatter(send, part.count(), part.type(), mine ? MPI_IN_PLACE : recv, part.count(),
                        part.type(), root, self.comm, request);
  });
}

// The part of a buffer that a rank contributes in place.
const void* part_in_place(const void* send, const void* recv, int64_t first, mt_dtype dtype) {
  return send == at(recv, first, dtype) ? MPI_IN_PLACE : send;
}

int mpi_gather(void*, mt_group* group, const void* send, void* recv, int64_t count, mt_dtype dtype,
               int32_t root, const mt_comm_call* call) {
  return run(group, call, "MPI_Igather", [&](Communicator& self, MPI_Request* request) {
    const void* from = self.rank == root ? part_in_place(send, recv, root * count, dtype) : send;
    const Elements part(count, dtype);
    return MPI_Igather(from, part.count(), part.type(), recv, part.count(), part.type(), root,
                       self.comm, request);
  });
}

int mpi_all_gather(void*, mt_group* group, const void* send, void* recv, int64_t count,
                   mt_dtype dtype, const mt_comm_call* call) {
  return run(group, call, "MPI_Iallgather", [&](Communicator& self, MPI_Request* request) {
    const Elements part(count, dtype);
    return MPI_Iallgather(part_in_place(send, recv, self.rank * count, dtype), part.count(),
                          part.type(), recv, part.count(), part.type(), self.comm, request);
  });
}

int mpi_all_gather_v(void*, mt_group* group, const void* send, void* recv, const int64_t* counts,
                     const int64_t* offsets, mt_dtype dtype, const mt_comm_call* call) {
  std::unique_ptr<Parts> parts;  // until the call has finished
  const int status =
      run(group, call, "MPI_Iallgatherv", [&](Communicator& self, MPI_Request* request) {
        parts = std::make_unique<Parts>(counts, offsets, self.ranks, dtype);
        return MPI_Iallgatherv(part_in_place(send, recv, offsets[self.rank], dtype),
                               parts->counts()[static_cast<size_t>(self.rank)], parts->type(), recv,
                               parts->counts().data(), parts->offsets().data(), parts->type(),
                               self.comm, request);
      });
  if (status != MT_OK) (void)parts.release();  // MPI may still read it
  return status;
}

int mpi_reduce_scatter_v(void*, mt_group* group, const void* send, void* recv,
                         const int64_t* counts, mt_dtype dtype, const mt_reduction* reduction,
                         const mt_comm_call* call) {
  Communicator& self = of(group);
  const int64_t all = std::accumulate(counts, counts + self.ranks, int64_t{0});
  const int64_t mine = counts[self.rank];
  if (all > max_count()) {
    // As reductions to one rank after the other.
    const int64_t width = mytorch::sdk::itemsize(dtype);
    std::unique_ptr<Buffer> apart;
    if (overlap(send, all * width, recv, mine * width)) {
      apart = std::make_unique<Buffer>(mine, dtype);
    }
    void* to = apart != nullptr ? apart->get() : recv;
    int64_t first = 0;
    for (int32_t rank = 0; rank < self.ranks; ++rank) {
      const int status = mpi_reduce(nullptr, group, at(send, first, dtype), to, counts[rank], dtype,
                                    reduction, rank, call);
      if (status != MT_OK) {
        (void)apart.release();
        return status;
      }
      first += counts[rank];
    }
    if (apart != nullptr && mine > 0) {
      std::memcpy(recv, apart->get(), bytes_of(mine, dtype));
    }
    return MT_OK;
  }
  std::vector<int> sizes;
  std::unique_ptr<Operand> operand;
  std::unique_ptr<Buffer> apart;
  const int status =
      run(group, call, "MPI_Ireduce_scatter", [&](Communicator&, MPI_Request* request) {
        for (int32_t rank = 0; rank < self.ranks; ++rank) sizes.push_back(int_of(counts[rank]));
        operand = std::make_unique<Operand>(send, all, dtype, *reduction);
        const int64_t width = mytorch::sdk::itemsize(dtype);
        void* to = recv;
        if (overlap(operand->data(), all * width, recv, mine * width)) {
          apart = std::make_unique<Buffer>(mine, dtype);
          to = apart->get();
        }
        return MPI_Ireduce_scatter(operand->data(), to, sizes.data(), mpi_type(dtype),
                                   mpi_op(dtype, reduction->op), self.comm, request);
      });
  if (status != MT_OK) {
    (void)operand.release();
    (void)apart.release();
    return status;
  }
  if (apart != nullptr && mine > 0) {
    std::memcpy(recv, apart->get(), bytes_of(mine, dtype));
  }
  complete(recv, mine, dtype, *reduction, self.ranks);
  return status;
}

int mpi_reduce_scatter(void* self, mt_group* group, const void* send, void* recv, int64_t count,
                       mt_dtype dtype, const mt_reduction* reduction, const mt_comm_call* call) {
  const std::vector<int64_t> counts(static_cast<size_t>(of(group).ranks), count);
  return mpi_reduce_scatter_v(self, group, send, recv, counts.data(), dtype, reduction, call);
}

int mpi_all_to_all(void*, mt_group* group, const void* send, void* recv, int64_t count,
                   mt_dtype dtype, const mt_comm_call* call) {
  return run(group, call, "MPI_Ialltoall", [&](Communicator& self, MPI_Request* request) {
    const Elements part(count, dtype);
    return MPI_Ialltoall(send, part.count(), part.type(), recv, part.count(), part.type(),
                         self.comm, request);
  });
}

int mpi_all_to_all_v(void*, mt_group* group, const void* send, const int64_t* send_counts,
                     const int64_t* send_offsets, void* recv, const int64_t* recv_counts,
                     const int64_t* recv_offsets, mt_dtype dtype, const mt_comm_call* call) {
  std::unique_ptr<Parts> sent, received;
  const int status =
      run(group, call, "MPI_Ialltoallv", [&](Communicator& self, MPI_Request* request) {
        sent = std::make_unique<Parts>(send_counts, send_offsets, self.ranks, dtype);
        received = std::make_unique<Parts>(recv_counts, recv_offsets, self.ranks, dtype);
        return MPI_Ialltoallv(send, sent->counts().data(), sent->offsets().data(), sent->type(),
                              recv, received->counts().data(), received->offsets().data(),
                              received->type(), self.comm, request);
      });
  if (status != MT_OK) {
    (void)sent.release();
    (void)received.release();
  }
  return status;
}

int mpi_barrier(void*, mt_group* group, const mt_comm_call* call) {
  return run(group, call, "MPI_Ibarrier", [&](Communicator& self, MPI_Request* request) {
    return MPI_Ibarrier(self.comm, request);
  });
}

// ---- point to point ----

template <class Start>
int point_to_point(mt_group* group, const mt_comm_call* call, const char* name, Start start) {
  if (!of(group).grouping) return run(group, call, name, start);
  return guarded_comm(host, [&]() -> int {
    Communicator& self = of(group);
    if (self.aborted) return MT_COMM_ABORTED;
    const Serialized serialized;
    MPI_Request request = MPI_REQUEST_NULL;
    check(start(self, &request), name);
    self.requests.push_back(request);
    return MT_OK;
  });
}

int mpi_send(void*, mt_group* group, const void* data, int64_t count, mt_dtype dtype, int32_t to,
             const mt_comm_call* call) {
  return point_to_point(group, call, "MPI_Isend", [&](Communicator& self, MPI_Request* request) {
    const Elements elements(count, dtype);
    return MPI_Isend(data, elements.count(), elements.type(), to, 0, self.comm, request);
  });
}

int mpi_recv(void*, mt_group* group, void* data, int64_t count, mt_dtype dtype, int32_t from,
             const mt_comm_call* call) {
  return point_to_point(group, call, "MPI_Irecv", [&](Communicator& self, MPI_Request* request) {
    const Elements elements(count, dtype);
    return MPI_Irecv(data, elements.count(), elements.type(), from, 0, self.comm, request);
  });
}

int mpi_begin(void*, mt_group* group) {
  of(group).grouping = true;
  return MT_OK;
}

int mpi_end(void*, mt_group* group, const mt_comm_call* call) {
  return guarded_comm(host, [&] {
    Communicator& self = of(group);
    self.grouping = false;
    return finish(self, std::exchange(self.requests, {}), *call);
  });
}

// ---- groups ----

// Returns the variable by which a launcher of MPI tells a process its rank, or null.
const char* launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    if (std::getenv(name) != nullptr) return name;
  }
  return nullptr;
}

const char* serves(void*, int32_t, int32_t ranks) {
  if (ranks == 1 || launcher() != nullptr) return nullptr;
  return "no launcher of MPI has started this process: use mpirun, srun or `mytorch launch --mpi`";
}

void leave() {
  int over = 0;
  MPI_Finalized(&over);
  // After a failure the others may never come.
  if (over == 0 && !any_failed) MPI_Finalize();
}

void start_mpi() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Components that MPI loads look for its symbols in the global scope.
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0) {
      dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    }
    int begun = 0;
    MPI_Initialized(&begun);
    if (begun == 0) {
      int provided = 0;
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
      threads_may_call = provided == MPI_THREAD_MULTIPLE;
      std::atexit(leave);
    } else {
      int provided = 0;
      MPI_Query_thread(&provided);
      threads_may_call = provided == MPI_THREAD_MULTIPLE;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  });
}

mt_group* wrap(MPI_Comm comm) {
  auto made = std::make_unique<Communicator>();
  made->comm = comm;
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(comm, &made->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &made->ranks), "MPI_Comm_size");
  return reinterpret_cast<mt_group*>(made.release());
}

int create(void*, const mt_comm_id*, int32_t rank, int32_t ranks, mt_device,
           const mt_comm_call* call, mt_group** group) {
  return guarded_comm(host, [&]() -> int {
    start_mpi();
    int mine = 0, all = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &mine), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &all), "MPI_Comm_size");
    if (mine != rank || all != ranks) {
      throw Error(MT_ERROR_VALUE, "MPI has started this process as rank " + std::to_string(mine) +
                                      " of " + std::to_string(all) + ", not as rank " +
                                      std::to_string(rank) + " of " + std::to_string(ranks) +
                                      ": leave rank and size to the launcher");
    }
    // Duplicating waits without a deadline, so the ranks meet first.
    Communicator world;
    world.comm = MPI_COMM_WORLD;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
    if (const int status = finish(world, {request}, *call)) return status;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    *group = wrap(comm);
    return MT_OK;
  });
}

int split(void* self, mt_group* group, int32_t color, int32_t key, const mt_comm_call* call,
          mt_group** part) {
  *part = nullptr;
  if (const int status = mpi_barrier(self, group, call))
    return status;  // splitting has no deadline
  return guarded_comm(host, [&]() -> int {
    const Serialized serialized;
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_split(of(group).comm, color < 0 ? MPI_UNDEFINED : color, key, &comm),
          "MPI_Comm_split");
    if (comm != MPI_COMM_NULL) *part = wrap(comm);
    return MT_OK;
  });
}

// Freeing a communicator is collective, so it is left to MPI_Finalize.
void destroy(void*, mt_group* group) { delete &of(group); }
void abort_group(void*, mt_group* group) { of(group).aborted = true; }
int async_error(void*, mt_group* group) {
  return of(group).aborted ? int{MT_COMM_ABORTED} : int{MT_OK};
}

}  // namespace

extern "C" int mytorch_comm_mpi_init(const mt_host* given, mt_comm* comm);
extern "C" int mytorch_comm_mpi_init(const mt_host* given, mt_comm* comm) {
  host = given;
  comm->name = "mpi";
  static char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[std::min<size_t>(std::strcspn(version, ",\n"), sizeof(version) - 1)] = '\0';
  comm->version = version;
  comm->device_type = "cpu";
  comm->priority = 10;
  comm->flags = MT_COMM_LAUNCHES;
  comm->serves = serves;
  comm->create = create;
  comm->split = split;
  comm->destroy = destroy;
  comm->abort = abort_group;
  comm->async_error = async_error;
  MYTORCH_COMM_CALLS(comm, mpi);
  return MT_OK;
}
