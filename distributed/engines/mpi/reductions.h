// The engine's reductions.
#pragma once

#include <type_traits>

#include "mytorch/abi_comm.h"

namespace mytorch::comm_mpi {

// As the table declares them.
std::remove_pointer_t<decltype(mt_comm::reduce)> mpi_reduce;
std::remove_pointer_t<decltype(mt_comm::all_reduce)> mpi_all_reduce;
std::remove_pointer_t<decltype(mt_comm::reduce_scatter)> mpi_reduce_scatter;
std::remove_pointer_t<decltype(mt_comm::reduce_scatter_v)> mpi_reduce_scatter_v;

}  // namespace mytorch::comm_mpi
