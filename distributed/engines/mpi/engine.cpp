// Process groups by MPI. Errors are returned, never fatal.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "distributed/engines/mpi/communicator.h"
#include "distributed/engines/mpi/reductions.h"
#include "distributed/engines/mpi/types.h"
#include "distributed/engines/mpi/window.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {

using sdk::at;
using sdk::bytes_of;
using sdk::Error;
using sdk::guarded_comm;

namespace {

// ---- moves ----

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
  leaving = true;
  while (serving > 0 && !any_failed) sched_yield();
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
void abort_group(void*, mt_group* group) {
  of(group).aborted = true;
  any_failed = true;
}
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
  MYTORCH_COMM_WINDOWS(comm, mpi);
  return MT_OK;
}

}  // namespace mytorch::comm_mpi
