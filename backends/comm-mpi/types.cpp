#include "backends/comm-mpi/types.h"

#include <climits>
#include <string>

#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw sdk::Error(MT_ERROR_IO, std::string(function) + " failed: " + text);
}

int int_of(int64_t count) {
  if (count > INT_MAX || count < 0) {
    throw sdk::Error(MT_ERROR_VALUE, std::to_string(count) +
                                         " elements are more than MPI takes in one call (" +
                                         std::to_string(INT_MAX) + "): split the tensor");
  }
  return static_cast<int>(count);
}

MPI_Datatype mpi_type(mt_dtype dtype) {
  switch (sdk::dtype_key(dtype)) {
    case sdk::dtype_key(sdk::dtype_of<bool>):
      return MPI_C_BOOL;
    case sdk::dtype_key(sdk::dtype_of<uint8_t>):
      return MPI_UINT8_T;
    case sdk::dtype_key(sdk::dtype_of<int8_t>):
      return MPI_INT8_T;
    case sdk::dtype_key(sdk::dtype_of<int16_t>):
      return MPI_INT16_T;
    case sdk::dtype_key(sdk::dtype_of<int32_t>):
      return MPI_INT32_T;
    case sdk::dtype_key(sdk::dtype_of<int64_t>):
      return MPI_INT64_T;
    case sdk::dtype_key(sdk::dtype_of<sdk::Half>):
    case sdk::dtype_key(sdk::dtype_of<sdk::BFloat16>):
      return MPI_UINT16_T;
    case sdk::dtype_key(sdk::dtype_of<float>):
      return MPI_FLOAT;
    case sdk::dtype_key(sdk::dtype_of<double>):
      return MPI_DOUBLE;
    case sdk::dtype_key({MT_COMPLEX, 64, 1}):
      return MPI_C_FLOAT_COMPLEX;
    case sdk::dtype_key({MT_COMPLEX, 128, 1}):
      return MPI_C_DOUBLE_COMPLEX;
    default:
      throw sdk::Error(MT_ERROR_TYPE, "MPI has no type for " + std::string(sdk::dtype_name(dtype)));
  }
}

namespace {

template <class T, int32_t op>
void combine_all(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  using C = sdk::Combined<T>;
  const auto* from = static_cast<const T*>(in);
  auto* to = static_cast<T*>(inout);
  for (int64_t i = 0; i < *count; ++i) {
    to[i] = static_cast<T>(sdk::combine<C>(op, static_cast<C>(from[i]), static_cast<C>(to[i])));
  }
}

template <class T, int32_t op>
MPI_Op own() {
  static const MPI_Op made = [] {
    MPI_Op result = MPI_OP_NULL;
    check(MPI_Op_create(combine_all<T, op>, 1, &result), "MPI_Op_create");
    return result;
  }();
  return made;
}

template <class T>
MPI_Op own_of(int32_t op) {
  switch (op) {
    case MT_REDUCE_PRODUCT:
      return own<T, MT_REDUCE_PRODUCT>();
    case MT_REDUCE_MIN:
      return own<T, MT_REDUCE_MIN>();
    case MT_REDUCE_MAX:
      return own<T, MT_REDUCE_MAX>();
    default:
      return own<T, MT_REDUCE_SUM>();
  }
}

}  // namespace

MPI_Op mpi_op(mt_dtype dtype, int32_t op) {
  if (sdk::is_dtype<sdk::Half>(dtype)) return own_of<sdk::Half>(op);
  if (sdk::is_dtype<sdk::BFloat16>(dtype)) return own_of<sdk::BFloat16>(op);
  const bool ordered = op == MT_REDUCE_MIN || op == MT_REDUCE_MAX;
  if (ordered && sdk::is_dtype<float>(dtype)) return own_of<float>(op);
  if (ordered && sdk::is_dtype<double>(dtype)) return own_of<double>(op);
  if (sdk::is_bool(dtype)) {
    return op == MT_REDUCE_SUM || op == MT_REDUCE_MAX ? MPI_LOR : MPI_LAND;
  }
  switch (op) {
    case MT_REDUCE_PRODUCT:
      return MPI_PROD;
    case MT_REDUCE_MIN:
      return MPI_MIN;
    case MT_REDUCE_MAX:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

}  // namespace mytorch::comm_mpi
