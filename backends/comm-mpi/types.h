// MPI's types and operations for elements of the framework.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "mytorch/abi_comm.h"

namespace mytorch::comm_mpi {

// Throws sdk::Error, with MPI's text, unless MPI succeeded.
void check(int code, const char* function);

// Throws sdk::Error if a count or offset is beyond what MPI takes in one call.
int int_of(int64_t count);

// 16-bit floats are sent as integers; their operations know what they are.
MPI_Datatype mpi_type(mt_dtype dtype);

// MPI's operation for a reduction; a sum for averages. Our own ones are for 16-bit floats, and for
// minima and maxima of floats, where NaN wins.
MPI_Op mpi_op(mt_dtype dtype, int32_t op);

}  // namespace mytorch::comm_mpi
