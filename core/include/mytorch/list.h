// Non-owning argument types for lists and text. They are valid only until the end of the full
// expression that creates them.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace mytorch {

namespace detail {

// The integers that may be sizes or dimensions.
template <class T>
concept Integer = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
                  !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char8_t> &&
                  !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;
// The arithmetic types that are not: one of these in place of a list is a mistake, such as
// `x.sum(true)` for `x.sum({}, true)`.
template <class T>
concept NonInteger = std::is_arithmetic_v<T> && !Integer<T>;
template <class T>
concept Number = std::is_arithmetic_v<T>;

}  // namespace detail

// A list of integers: sizes, strides or dimensions. A single integer converts to a list of one. Two
// words, so that calls pass it in registers.
class IntList {
 public:
  constexpr IntList() : data_(nullptr), size_(0), kind_(kMany) {}
  constexpr IntList(const int64_t* data, size_t size)
      : data_(data), size_(static_cast<uint32_t>(size)), kind_(kMany) {}
  IntList(std::initializer_list<int64_t> list) : IntList(list.begin(), list.size()) {}  // NOLINT
  IntList(const std::vector<int64_t>& list) : IntList(list.data(), list.size()) {}      // NOLINT
  template <size_t n>
  constexpr IntList(const std::array<int64_t, n>& list) : IntList(list.data(), n) {}  // NOLINT
  constexpr IntList(int64_t one) : one_(one), size_(1), kind_(kOne) {}                // NOLINT
  template <detail::Integer T>
  constexpr IntList(T one) : IntList(static_cast<int64_t>(one)) {}  // NOLINT
  template <detail::NonInteger NotAnInteger>  // a bool, char or floating-point value is no list
  IntList(NotAnInteger) = delete;             // of integers: write 1, or name another argument
  template <detail::NonInteger NotAnInteger>
  IntList(std::initializer_list<NotAnInteger>) = delete;

  constexpr const int64_t* data() const { return kind_ == kOne ? &one_ : data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const int64_t* begin() const { return data(); }
  constexpr const int64_t* end() const { return data() + size_; }
  // Builds with NDEBUG do not check the position.
  constexpr int64_t operator[](size_t i) const {
    assert(i < size_);
    return data()[i];
  }
  constexpr int64_t back() const {
    assert(size_ > 0);
    return data()[size_ - 1];
  }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  bool equals(const IntList& other) const { return *this == other; }  // libtorch's name
  bool operator==(const IntList& other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i) {
      if ((*this)[i] != other[i]) return false;
    }
    return true;
  }

 private:
  friend class OptionalIntList;
  enum Kind : uint32_t { kMany, kOne, kAbsent };
  union {
    const int64_t* data_;
    int64_t one_;  // kOne
  };
  uint32_t size_;
  Kind kind_;
};

using IntArrayRef = IntList;                                       // libtorch's name
std::ostream& operator<<(std::ostream& out, const IntList& list);  // as [2, 3]

// An `int[]?` argument: a list or absent.
class OptionalIntList {
 public:
  constexpr OptionalIntList() { list_.kind_ = IntList::kAbsent; }
  constexpr OptionalIntList(std::nullopt_t) : OptionalIntList() {}  // NOLINT
  constexpr OptionalIntList(IntList list) : list_(list) {}          // NOLINT
  constexpr OptionalIntList(int64_t one) : list_(one) {}            // NOLINT
  template <detail::Integer T>
  constexpr OptionalIntList(T one) : list_(one) {}  // NOLINT
  template <detail::NonInteger NotAnInteger>  // a bool, char or floating-point value is no list
  OptionalIntList(NotAnInteger) = delete;     // of integers: write {} to leave the argument out
  template <detail::NonInteger NotAnInteger>
  OptionalIntList(std::initializer_list<NotAnInteger>) = delete;
  OptionalIntList(std::initializer_list<int64_t> list) : list_(list) {}  // NOLINT
  OptionalIntList(const std::vector<int64_t>& list) : list_(list) {}     // NOLINT
  template <size_t n>
  constexpr OptionalIntList(const std::array<int64_t, n>& list) : list_(list) {}  // NOLINT

  constexpr bool has_value() const { return list_.kind_ != IntList::kAbsent; }
  constexpr const IntList& operator*() const { return list_; }
  constexpr const IntList* operator->() const { return &list_; }

 private:
  IntList list_;
};

// A text argument. Constructible only from text: a plain string_view would accept the 0 in
// conv2d(x, w, b, 1, 0) as a null `const char*`.
class Str : public std::string_view {
 public:
  template <class T>
  requires(std::is_convertible_v<const T&, std::string_view> && !std::is_integral_v<T> &&
           !std::is_null_pointer_v<T>) constexpr Str(const T& text)
      : std::string_view(text) {}  // NOLINT
};

class FloatList {
 public:
  constexpr FloatList() = default;
  constexpr FloatList(const double* data, size_t size) : data_(data), size_(size) {}
  FloatList(std::initializer_list<double> list) {  // NOLINT
    data_ = list.begin();
    size_ = list.size();
  }
  FloatList(const std::vector<double>& list)  // NOLINT
      : data_(list.data()), size_(list.size()) {}
  constexpr const double* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr const double* begin() const { return data_; }
  constexpr const double* end() const { return data_ + size_; }
  constexpr double operator[](size_t i) const {
    assert(i < size_);
    return data_[i];
  }

 private:
  const double* data_ = nullptr;
  size_t size_ = 0;
};

// A `float[]?` argument: a list or absent.
class OptionalFloatList {
 public:
  constexpr OptionalFloatList() = default;
  constexpr OptionalFloatList(std::nullopt_t) {}                                // NOLINT
  constexpr OptionalFloatList(FloatList list) : list_(list), present_(true) {}  // NOLINT
  OptionalFloatList(std::initializer_list<double> list)                         // NOLINT
      : OptionalFloatList(FloatList(list)) {}
  OptionalFloatList(const std::vector<double>& list)  // NOLINT
      : OptionalFloatList(FloatList(list)) {}

  constexpr bool has_value() const { return present_; }
  constexpr const FloatList& operator*() const { return list_; }
  constexpr const FloatList* operator->() const { return &list_; }

 private:
  FloatList list_;
  bool present_ = false;
};

class Tensor;

class TensorList {
 public:
  constexpr TensorList() = default;
  // A template, so that the 0 of `cat({0, 1})` is not taken for a null pointer.
  template <class T>
  requires(std::is_same_v<const T, const Tensor>) constexpr TensorList(T* data, size_t size)
      : data_(data), size_(size) {}
  TensorList(std::initializer_list<Tensor> list);  // NOLINT
  template <detail::Number NotATensor>
  TensorList(std::initializer_list<NotATensor>) = delete;  // write {tensor({0, 1})}
  TensorList(const std::vector<Tensor>& list);             // NOLINT
  const Tensor* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const Tensor* begin() const { return data_; }
  const Tensor* end() const;
  const Tensor& operator[](size_t i) const;

 private:
  const Tensor* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mytorch
