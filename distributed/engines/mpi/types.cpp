#include "distributed/engines/mpi/types.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <numeric>
#include <string>
#include <type_traits>

#include "distributed/engines/mpi/half_sums.h"
#include "mytorch/backend/comm.h"

namespace mytorch::comm_mpi {

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw sdk::Error(MT_ERROR_IO, std::string(function) + " failed: " + text);
}

int64_t max_count() {
  static const int64_t most = [] {
    const char* value = std::getenv("MYTORCH_MPI_MAX_COUNT");
    const int64_t given = value != nullptr ? std::atoll(value) : 0;
    return given > 0 ? std::min<int64_t>(given, INT_MAX) : INT_MAX;
  }();
  return most;
}

int int_of(int64_t count) {
  if (count > max_count() || count < 0) {
    throw sdk::Error(MT_ERROR_VALUE, std::to_string(count) +
                                         " is more than MPI takes in one call (" +
                                         std::to_string(max_count()) + "): split the tensor");
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

// Returns a type of `n` elements of another one, whose size may be beyond an int.
MPI_Datatype contiguous(int64_t n, MPI_Datatype of) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(static_cast<int>(n), of, &type), "MPI_Type_contiguous");
  return type;
}

MPI_Datatype type_of_elements(int64_t count, mt_dtype dtype) {
  const MPI_Datatype element = mpi_type(dtype);
  const int64_t most = max_count();
  MPI_Datatype whole = MPI_DATATYPE_NULL;
  if (count <= most) {
    whole = contiguous(count, element);
  } else {
    // Blocks of as many elements as possible, and the rest.
    MPI_Datatype block = contiguous(most, element), rest = MPI_DATATYPE_NULL, joined;
    MPI_Datatype blocks = contiguous(count / most, block);
    if (count % most == 0) {
      joined = blocks;
    } else {
      rest = contiguous(count % most, element);
      const int lengths[] = {1, 1};
      const MPI_Aint places[] = {0,
                                 static_cast<MPI_Aint>(count / most * most * sdk::itemsize(dtype))};
      const MPI_Datatype types[] = {blocks, rest};
      check(MPI_Type_create_struct(2, lengths, places, types, &joined), "MPI_Type_create_struct");
      MPI_Type_free(&rest);
      MPI_Type_free(&blocks);
    }
    MPI_Type_free(&block);
    check(MPI_Type_create_resized(joined, 0, static_cast<MPI_Aint>(count * sdk::itemsize(dtype)),
                                  &whole),
          "MPI_Type_create_resized");
    MPI_Type_free(&joined);
  }
  check(MPI_Type_commit(&whole), "MPI_Type_commit");
  return whole;
}

}  // namespace

Elements::Elements(int64_t count, mt_dtype dtype) {
  if (count <= max_count()) {
    count_ = int_of(count);
    type_ = mpi_type(dtype);
    return;
  }
  count_ = 1;
  type_ = type_of_elements(count, dtype);
  made_ = true;
}

// Calls under way keep the type.
Elements::~Elements() {
  if (made_) MPI_Type_free(&type_);
}

Parts::Parts(const int64_t* counts, const int64_t* offsets, int32_t n, mt_dtype dtype) {
  int64_t largest = 0, unit = 0;
  for (int32_t i = 0; i < n; ++i) {
    largest = std::max({largest, counts[i], offsets[i]});
    unit = std::gcd(unit, std::gcd(counts[i], offsets[i]));
  }
  if (largest <= max_count()) {
    unit = 1;
    type_ = mpi_type(dtype);
  }
  for (int32_t i = 0; i < n; ++i) {
    counts_.push_back(int_of(counts[i] / unit));
    offsets_.push_back(int_of(offsets[i] / unit));
  }
  if (largest <= max_count()) return;
  type_ = type_of_elements(unit, dtype);
  made_ = true;
}

Parts::~Parts() {
  if (made_) MPI_Type_free(&type_);
}

namespace {

template <class T, int32_t op>
void combine_all(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  using C = sdk::Combined<T>;
  const auto* from = static_cast<const T*>(in);
  auto* to = static_cast<T*>(inout);
  if constexpr (op == MT_REDUCE_SUM && std::is_same_v<T, sdk::BFloat16>) {
    return add_bfloat16(from, to, *count);
  } else if constexpr (op == MT_REDUCE_SUM && std::is_same_v<T, sdk::Half>) {
    return add_half(from, to, *count);
  }
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

bool is_builtin(mt_dtype dtype, int32_t op) {
  if (sdk::is_dtype<sdk::Half>(dtype) || sdk::is_dtype<sdk::BFloat16>(dtype)) return false;
  const bool ordered = op == MT_REDUCE_MIN || op == MT_REDUCE_MAX;
  return !ordered || !(sdk::is_dtype<float>(dtype) || sdk::is_dtype<double>(dtype));
}

MPI_Op mpi_op(mt_dtype dtype, int32_t op) {
  if (!is_builtin(dtype, op)) {
    if (sdk::is_dtype<sdk::Half>(dtype)) return own_of<sdk::Half>(op);
    if (sdk::is_dtype<sdk::BFloat16>(dtype)) return own_of<sdk::BFloat16>(op);
    return sdk::is_dtype<float>(dtype) ? own_of<float>(op) : own_of<double>(op);
  }
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
