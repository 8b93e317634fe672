#include "backends/cpu-openmp/common/stage.h"

#include <cstring>

#include "backends/cpu-openmp/common/gather_rows.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {
namespace {

simd::ConvertFn conversion(mt_dtype from, mt_dtype to) {
  if (sdk::same_dtype(from, to)) return nullptr;
  const simd::ConvertFn convert = simd::get_convert(from, to);
  if (convert == nullptr) throw sdk::Error(MT_ERROR_TYPE, "an operand's dtype is not supported");
  return convert;
}

template <class T>
void gather_of(const char* from, int64_t stride, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i, from + i * stride, sizeof(T));
}
template <class T>
void scatter_of(const T* from, char* to, int64_t stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * stride, from + i, sizeof(T));
}
// Calls f with a pointer of the unsigned type of `itemsize` bytes.
template <class F>
void visit(int64_t itemsize, F&& f) {
  switch (itemsize) {
    case 1:
      return f(static_cast<uint8_t*>(nullptr));
    case 2:
      return f(static_cast<uint16_t*>(nullptr));
    case 4:
      return f(static_cast<uint32_t*>(nullptr));
    default:
      return f(static_cast<uint64_t*>(nullptr));
  }
}

}  // namespace

StagedOperand make_input(const mt_tensor* tensor, mt_dtype compute, mt_dtype tile) {
  const sdk::TensorView view(tensor);
  StagedOperand operand{view.data<char>(), view.itemsize(), sdk::itemsize(tile), nullptr, nullptr};
  if (sdk::same_dtype(view.dtype(), compute) || sdk::same_dtype(compute, tile)) {
    operand.convert = conversion(view.dtype(), tile);
  } else {
    operand.convert = conversion(view.dtype(), compute);
    operand.then = conversion(compute, tile);
  }
  return operand;
}

StagedOperand make_output(const mt_tensor* tensor, mt_dtype compute, mt_dtype tile) {
  const sdk::TensorView view(tensor);
  StagedOperand operand{view.data<char>(), view.itemsize(), sdk::itemsize(tile), nullptr, nullptr};
  if (sdk::same_dtype(view.dtype(), compute) || sdk::same_dtype(compute, tile) ||
      sdk::is_floating(compute)) {
    operand.convert = conversion(tile, view.dtype());
  } else {
    operand.convert = conversion(tile, compute);
    operand.then = conversion(compute, view.dtype());
  }
  return operand;
}

void convert_run(const StagedOperand& operand, const void* from, void* to, int64_t n) {
  if (operand.then == nullptr) return operand.convert(from, to, n);
  // The type between the two conversions is narrower than either end.
  alignas(64) char between[kTile * 4];
  operand.convert(from, between, n);
  operand.then(between, to, n);
}

void gather_run(const char* from, int64_t stride, int64_t n, int64_t itemsize, void* to) {
  if (stride == itemsize) {
    std::memcpy(to, from, static_cast<size_t>(n * itemsize));
  } else if (stride == 0) {
    repeat(from, itemsize, n, to);
  } else {
    visit(itemsize, [&]<class T>(T*) { gather_of(from, stride, n, static_cast<T*>(to)); });
  }
}

void scatter_run(const void* from, char* to, int64_t stride, int64_t n, int64_t itemsize) {
  if (stride == itemsize) {
    std::memcpy(to, from, static_cast<size_t>(n * itemsize));
  } else {
    visit(itemsize, [&]<class T>(T*) { scatter_of(static_cast<const T*>(from), to, stride, n); });
  }
}

void repeat(const void* value, int64_t itemsize, int64_t n, void* to) {
  gather_rows(value, 0, 0, 1, n, itemsize, to);
}

void load_run(const StagedOperand& operand, const char* from, int64_t stride, int64_t n,
              void* tile) {
  if (operand.convert == nullptr) {
    gather_run(from, stride, n, operand.itemsize, tile);
  } else if (stride == operand.itemsize) {
    convert_run(operand, from, tile, n);
  } else if (stride == 0) {
    alignas(8) char value[8];
    convert_run(operand, from, value, 1);
    repeat(value, operand.tile_itemsize, n, tile);
  } else {
    alignas(64) char raw[kTile * 8];
    gather_run(from, stride, n, operand.itemsize, raw);
    convert_run(operand, raw, tile, n);
  }
}

void store_run(const StagedOperand& operand, const void* tile, char* to, int64_t stride,
               int64_t n) {
  if (operand.convert == nullptr) {
    scatter_run(tile, to, stride, n, operand.itemsize);
  } else if (stride == operand.itemsize) {
    convert_run(operand, tile, to, n);
  } else {
    alignas(64) char raw[kTile * 8];
    convert_run(operand, tile, raw, n);
    scatter_run(raw, to, stride, n, operand.itemsize);
  }
}

}  // namespace mytorch::cpu
