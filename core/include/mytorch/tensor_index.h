// Indices of tensors, tensors that were read by them, and iteration over a first dimension.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "mytorch/tensor.h"

namespace mytorch {

// The indices that Tensor::index and index_put_ take.
namespace indexing {

// A range of a dimension, with negative positions counting from the end: Slice(1, None, 2) is
// Python's 1::2, and Slice() the whole dimension.
struct Slice {
  constexpr Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {},  // NOLINT
                  std::optional<int64_t> step = {})
      : start(start), stop(stop), step(step ? *step : 1) {}
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step;
};

inline constexpr std::nullopt_t None = std::nullopt;  // NOLINT: Python's and libtorch's name
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis;  // NOLINT

class TensorIndex {
 public:
  enum Kind : uint8_t { kNone, kEllipsis, kInteger, kBool, kSlice, kTensor };

  TensorIndex(std::nullopt_t) : kind_(kNone) {}                     // NOLINT: a new dimension
  TensorIndex(EllipsisType) : kind_(kEllipsis) {}                   // NOLINT: the others, whole
  TensorIndex(const char* text);                                    // NOLINT: "..." as Ellipsis
  TensorIndex(std::nullptr_t) = delete;                             // use None
  TensorIndex(Slice slice) : kind_(kSlice), slice_(slice) {}        // NOLINT
  TensorIndex(Tensor t) : kind_(kTensor), tensor_(std::move(t)) {}  // NOLINT: mask or positions
  template <detail::Integer T>
  TensorIndex(T at) : kind_(kInteger), slice_(static_cast<int64_t>(at)) {}  // NOLINT
  TensorIndex(bool on) : kind_(kBool), slice_(int64_t{on}) {}  // NOLINT: a new dimension, of 1 or 0
  template <detail::NonInteger NotAnIndex>  // give an integer, bool, Slice, None, "..." or Tensor
  TensorIndex(NotAnIndex) = delete;

  Kind kind() const { return kind_; }
  int64_t integer() const { return *slice_.start; }  // kInteger, kBool
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }  // undefined: the whole dimension

 private:
  Kind kind_;
  Slice slice_;
  Tensor tensor_;
};

}  // namespace indexing

// The result of Tensor::index: a tensor that knows where its elements come from, so that assignment
// to the temporary writes them: `x[mask] = 0`, `x.index({rows, Slice()}) += 1`. Selected elements
// are a copy, which a Tensor variable keeps; only the temporary writes back.
class IndexedTensor : public Tensor {
 public:
  struct Source;  // the view and the tensors that select from it

  IndexedTensor(Tensor values, std::shared_ptr<const Source> source);
  IndexedTensor(const IndexedTensor&) = default;
  IndexedTensor(IndexedTensor&&) = default;

  // Returns whether the elements are a copy, selected by tensors.
  bool is_selection() const { return source_ != nullptr; }

  // As for the elements of Tensor, which are views, values broadcast and are converted.
  const IndexedTensor& operator=(const Tensor& values) &&;
  const IndexedTensor& operator=(const IndexedTensor& values) &&;
  const IndexedTensor& operator=(const Scalar& value) &&;
  // For `auto y = x[mask]; y = z;`, which makes y refer to z.
  IndexedTensor& operator=(const Tensor& other) &;
  IndexedTensor& operator=(const IndexedTensor& other) & = default;

 private:
  std::shared_ptr<const Source> source_;  // null for views
};

template <class... Indices>
IndexedTensor Tensor::operator()(const Indices&... indices) const {
  return index({indices...});
}

class TensorIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using difference_type = int64_t;
  using value_type = Tensor;
  using pointer = void;
  using reference = Tensor;

  TensorIterator(Tensor of, int64_t at) : of_(std::move(of)), at_(at) {}
  Tensor operator*() const { return of_[at_]; }
  TensorIterator& operator++() {
    ++at_;
    return *this;
  }
  TensorIterator operator++(int) { return {of_, at_++}; }
  bool operator==(const TensorIterator& other) const { return at_ == other.at_; }

 private:
  Tensor of_;
  int64_t at_;
};

}  // namespace mytorch
