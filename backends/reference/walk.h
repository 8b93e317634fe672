// Visits the elements of a shape in row-major order, keeping the address of each operand's element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {

//   Walk walk(shape);
//   const int x = walk.add(tensor);
//   for (bool more = walk.start(); more; more = walk.next()) use(walk.at(x));
class Walk {
 public:
  explicit Walk(std::span<const int64_t> shape)
      : shape_(shape.begin(), shape.end()), index_(shape.size()) {}

  // An operand that broadcasts to the shape. Returns its number.
  int add(const sdk::TensorView& tensor) {
    std::vector<int64_t> strides(shape_.size());
    sdk::broadcast_strides(tensor, shape_, strides.data());
    return add(tensor.raw(), std::move(strides), tensor.itemsize());
  }
  // Memory with its own strides, in elements of `itemsize` bytes.
  int add(void* base, std::vector<int64_t> strides, int64_t itemsize) {
    for (int64_t& stride : strides) stride *= itemsize;
    operands_.push_back({static_cast<char*>(base), static_cast<char*>(base), std::move(strides)});
    return static_cast<int>(operands_.size()) - 1;
  }
  void rebase(int operand, void* base) {
    operands_[static_cast<size_t>(operand)].base = static_cast<char*>(base);
  }

  // Goes to the first element; false when the shape has none.
  bool start() {
    for (Operand& operand : operands_) operand.at = operand.base;
    for (size_t d = 0; d < shape_.size(); ++d) {
      index_[d] = 0;
      if (shape_[d] == 0) return false;
    }
    return true;
  }
  bool next() {
    for (size_t d = shape_.size(); d-- > 0;) {
      for (Operand& operand : operands_) operand.at += operand.strides[d];
      if (++index_[d] < shape_[d]) return true;
      for (Operand& operand : operands_) operand.at -= operand.strides[d] * shape_[d];
      index_[d] = 0;
    }
    return false;
  }

  void* at(int operand) const { return operands_[static_cast<size_t>(operand)].at; }
  std::span<const int64_t> index() const { return index_; }

 private:
  struct Operand {
    char* base;
    char* at;
    std::vector<int64_t> strides;  // in bytes
  };
  std::vector<int64_t> shape_;
  std::vector<int64_t> index_;
  std::vector<Operand> operands_;
};

}  // namespace mytorch::reference
