// The engine's one-sided calls. A window is MPI's own if the ranks share memory, or with
// MYTORCH_MPI_RMA=1. Otherwise a thread of the owner answers messages.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "distributed/engines/mpi/communicator.h"
#include "mytorch/abi_comm.h"

namespace mytorch::comm_mpi {

// As the table declares them.
std::remove_pointer_t<decltype(mt_comm::window_create)> mpi_window_create;
std::remove_pointer_t<decltype(mt_comm::window_free)> mpi_window_free;
std::remove_pointer_t<decltype(mt_comm::window_put)> mpi_window_put;
std::remove_pointer_t<decltype(mt_comm::window_get)> mpi_window_get;
std::remove_pointer_t<decltype(mt_comm::window_accumulate)> mpi_window_accumulate;

// What a call does to the window.
struct WindowCall {
  enum Kind : int32_t { kPut, kGet, kAccumulate };
  Kind kind;
  int32_t owner;
  int64_t offset;
  int64_t count;
  mt_dtype dtype;
  const void* data;          // of kPut and kAccumulate
  void* result;              // of kGet; of kAccumulate, what was there before, or null
  mt_reduction reduction{};  // of kAccumulate
};

class Window {
 public:
  virtual ~Window() = default;
  // Does the call, and returns a status of the contract or throws sdk::Error.
  virtual int run(const WindowCall& what, const mt_comm_call& call) = 0;
  // Frees what belongs to all ranks. They have met.
  virtual int free(const mt_comm_call& call) = 0;
};

// Make a window of zeros. Collective; the ranks have met. That of MPI is null, on all ranks, where
// MPI makes none.
int make_rma_window(Communicator& group, int64_t bytes, const mt_comm_call& call,
                    std::unique_ptr<Window>* window);
std::unique_ptr<Window> make_message_window(Communicator& group, int64_t bytes);

}  // namespace mytorch::comm_mpi
