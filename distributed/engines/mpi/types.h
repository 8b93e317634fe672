// MPI's types and operations for elements of the framework.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "mytorch/abi_comm.h"

namespace mytorch::comm_mpi {

// Throws sdk::Error, with MPI's text, unless MPI succeeded.
void check(int code, const char* function);

// The largest count or offset that MPI is given: that of an int, or MYTORCH_MPI_MAX_COUNT.
int64_t max_count();
// Throws sdk::Error beyond it.
int int_of(int64_t count);

// 16-bit floats are sent as integers; their operations know what they are.
MPI_Datatype mpi_type(mt_dtype dtype);

// `count` elements as MPI takes them: so many of their type, or, beyond max_count(), one of a type
// that consists of them. For calls that move elements; reductions take simple types alone.
class Elements {
 public:
  Elements(int64_t count, mt_dtype dtype);
  ~Elements();
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_;
  MPI_Datatype type_;
  bool made_ = false;
};

// Counts and offsets of a rank's parts. If one is beyond max_count(), all are in units of their
// greatest common divisor, and the type consists of so many elements. Throws sdk::Error if a number
// is still too large.
class Parts {
 public:
  Parts(const int64_t* counts, const int64_t* offsets, int32_t n, mt_dtype dtype);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  const std::vector<int>& counts() const { return counts_; }
  const std::vector<int>& offsets() const { return offsets_; }
  MPI_Datatype type() const { return type_; }

 private:
  std::vector<int> counts_, offsets_;
  MPI_Datatype type_;
  bool made_ = false;
};

// MPI's operation for a reduction; a sum for averages. Our own ones are for 16-bit floats, and for
// minima and maxima of floats, where NaN wins.
MPI_Op mpi_op(mt_dtype dtype, int32_t op);
// Whether it is one of MPI's, which alone it takes in one-sided calls.
bool is_builtin(mt_dtype dtype, int32_t op);

}  // namespace mytorch::comm_mpi
