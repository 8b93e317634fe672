#include "distributed/engines/mpi/window.h"

#include <memory>

#include "distributed/engines/mpi/communicator.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {
namespace {

constexpr mt_dtype kByte{MT_UINT, 8, 1};

struct Made {
  Communicator& group;
  std::unique_ptr<Window> window;
};
Made& of(mt_window* window) { return *reinterpret_cast<Made*>(window); }

// Meets the other ranks: what makes and frees windows waits for them without a deadline.
int meet(Communicator& group, const mt_comm_call& call) {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const Serialized serialized;
    check(MPI_Ibarrier(group.comm, &request), "MPI_Ibarrier");
  }
  return finish(group, {request}, call);
}

template <class Call>
int guarded(Communicator& group, Call call) {
  return sdk::guarded_comm(host, [&]() -> int {
    if (group.aborted) return MT_COMM_ABORTED;
    try {
      return call();
    } catch (...) {
      group.aborted = true;
      any_failed = true;
      throw;
    }
  });
}

int run(mt_window* window, const WindowCall& what, const mt_comm_call* call) {
  Made& made = of(window);
  return guarded(made.group, [&] { return made.window->run(what, *call); });
}

}  // namespace

int mpi_window_create(void*, mt_group* group, int64_t bytes, const mt_comm_call* call,
                      mt_window** window) {
  *window = nullptr;
  Communicator& self = of(group);
  return guarded(self, [&]() -> int {
    if (const int status = meet(self, *call)) return status;
    std::unique_ptr<Window> made;
    if (const int status = make_rma_window(self, bytes, *call, &made)) return status;
    if (made == nullptr) made = make_message_window(self, bytes);
    // Nobody writes to memory that its owner still clears.
    if (const int status = meet(self, *call)) return status;
    *window = reinterpret_cast<mt_window*>(new Made{self, std::move(made)});
    return MT_OK;
  });
}

int mpi_window_free(void*, mt_window* window, const mt_comm_call* call) {
  const std::unique_ptr<Made> made(&of(window));
  if (call == nullptr) return MT_OK;
  return guarded(made->group, [&]() -> int {
    if (const int status = meet(made->group, *call)) return status;
    return made->window->free(*call);
  });
}

int mpi_window_put(void*, mt_window* window, const void* data, int64_t bytes, int32_t owner,
                   int64_t offset, const mt_comm_call* call) {
  return run(window, {WindowCall::kPut, owner, offset, bytes, kByte, data, nullptr}, call);
}

int mpi_window_get(void*, mt_window* window, void* data, int64_t bytes, int32_t owner,
                   int64_t offset, const mt_comm_call* call) {
  return run(window, {WindowCall::kGet, owner, offset, bytes, kByte, nullptr, data}, call);
}

int mpi_window_accumulate(void*, mt_window* window, const void* data, void* before, int64_t count,
                          mt_dtype dtype, const mt_reduction* reduction, int32_t owner,
                          int64_t offset, const mt_comm_call* call) {
  return run(window,
             {WindowCall::kAccumulate, owner, offset, count, dtype, data, before, *reduction},
             call);
}

}  // namespace mytorch::comm_mpi
