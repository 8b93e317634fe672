// Tensors as matrices and vectors of Eigen, and back. Needs Eigen 3.4 in the include path; mytorch
// itself does not use it.
#pragma once

#include <Eigen/Core>

#include "mytorch/tensor.h"

namespace mytorch {

template <class T>
using EigenMatrix =
    Eigen::Map<Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
               Eigen::Unaligned, Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>>;
template <class T>
using EigenVector = Eigen::Map<Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, 1>,
                               Eigen::Unaligned, Eigen::InnerStride<>>;

// Return a map over the memory of a CPU tensor of two dimensions, or one, whatever its strides. The
// tensor must outlive it. Throw Error(kType) if the tensor does not hold T, Error(kShape) for another
// number of dimensions, and Error(kValue) if the memory must not be written.
template <class T>
EigenMatrix<T> as_eigen_matrix(const Tensor& tensor) {
  const auto a = tensor.accessor<T, 2>();
  return {a.data(), a.size(0), a.size(1), {a.stride(0), a.stride(1)}};
}
template <class T>
EigenVector<T> as_eigen_vector(const Tensor& tensor) {
  const auto a = tensor.accessor<T, 1>();
  return {a.data(), a.size(0), Eigen::InnerStride<>(a.stride(0))};
}

// Returns a tensor with a copy of the elements of an expression, of shape (rows, columns), or
// (size,) if it is a vector at compile time. The dtype is that of the expression.
template <class Derived>
Tensor from_eigen(const Eigen::DenseBase<Derived>& expression) {
  using T = typename Derived::Scalar;
  Eigen::Array<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> copy = expression.derived();
  const Tensor flat = tensor(std::vector<T>(copy.data(), copy.data() + copy.size()),
                             scalar_type_of<T>());
  if constexpr (Derived::IsVectorAtCompileTime) {
    return flat;
  } else {
    return flat.view({copy.rows(), copy.cols()});
  }
}

}  // namespace mytorch
