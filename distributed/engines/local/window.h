// The engine's one-sided calls.
#pragma once

#include <type_traits>

#include "mytorch/abi_comm.h"

namespace mytorch::comm_local {

// As the table declares them.
std::remove_pointer_t<decltype(mt_comm::window_create)> local_window_create;
std::remove_pointer_t<decltype(mt_comm::window_free)> local_window_free;
std::remove_pointer_t<decltype(mt_comm::window_put)> local_window_put;
std::remove_pointer_t<decltype(mt_comm::window_get)> local_window_get;
std::remove_pointer_t<decltype(mt_comm::window_accumulate)> local_window_accumulate;

}  // namespace mytorch::comm_local
