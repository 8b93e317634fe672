// Datasets: collections of examples.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data {

// The tensors of an example or of a batch: an input, its target (undefined if there is none), and
// any number of others, such as masks or lengths.
//
//   const auto& [images, labels] = batch;                   // the first two
//   const auto [tokens, labels, lengths] = batch.all<3>();  // all of exactly three
struct Example {
  Tensor data;
  Tensor target = {};
  std::vector<Tensor> others = {};

  // Returns the number of tensors: 1 or 2 if there are no others.
  size_t num_tensors() const;
  // Returns tensor i: data, target, others[0], ... Throws Error(kValue) if there is none.
  const Tensor& operator[](size_t i) const;
  // Throws Error(kValue) unless there are exactly n tensors.
  template <size_t n>
  std::array<Tensor, n> all() const {
    check_count(n);
    std::array<Tensor, n> tensors;
    for (size_t i = 0; i < n; ++i) tensors[i] = (*this)[i];
    return tensors;
  }
  void check_count(size_t n) const;  // throws Error(kValue) unless there are n tensors
};

// Several examples, each tensor stacked along a new first dimension; or, from keep_examples, a list
// of them.
struct Batch : Example {
  std::vector<Example> examples = {};  // only from keep_examples

  Batch() = default;
  Batch(Tensor data, Tensor target = {}, std::vector<Tensor> others = {})  // NOLINT(explicit)
      : Example{std::move(data), std::move(target), std::move(others)} {}
  int64_t size() const {
    return data.defined() ? data.size(0) : static_cast<int64_t>(examples.size());
  }
};

// An indexed collection of examples. The workers of a DataLoader call the functions below from
// several threads at once, so they must be thread-safe. Random augmentation uses operators without
// a generator argument, or another generator seeded with default_generator().seed(): its results
// then depend on the loader's seed, the epoch and the example's position in the epoch alone.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // Returns example `index`, 0 <= index < size().
  virtual Example get(int64_t index) const = 0;
  // Returns the examples at the given indices (at least one, possibly repeated), in order. The
  // default stacks the results of get(), whose shapes and types must agree. Override it if a batch
  // can be gathered in one pass.
  virtual Batch get_batch(IntList indices) const;
};

// A dataset whose example i is row i of each tensor. Batches are copies, detached from the tensors
// and on the same device.
class TensorDataset final : public Dataset {
 public:
  // Throws Error(kShape) unless all tensors have a first dimension of the same length. `target` may
  // be undefined if there are no others.
  template <class... Others>
  requires(std::is_convertible_v<Others, Tensor>&&...)  //
      explicit TensorDataset(Tensor data, Tensor target = {}, Others... others)
      : TensorDataset(std::vector<Tensor>{std::move(data), std::move(target),
                                          Tensor(std::move(others))...}) {}
  explicit TensorDataset(std::vector<Tensor> tensors);
  int64_t size() const override;
  Example get(int64_t index) const override;  // returns views
  Batch get_batch(IntList indices) const override;

 private:
  std::vector<Tensor> tensors_;
};

// Returns a T whose tensors are `tensors`, at least one: data, target, others...
template <class T>
T from_tensors(std::vector<Tensor> tensors) {
  T result;
  result.data = std::move(tensors.at(0));
  if (tensors.size() > 1) result.target = std::move(tensors[1]);
  for (size_t i = 2; i < tensors.size(); ++i) result.others.push_back(std::move(tensors[i]));
  return result;
}

template <size_t i>
Tensor& get(Example& example) {
  return i == 0 ? example.data : example.target;
}
template <size_t i>
const Tensor& get(const Example& example) {
  return i == 0 ? example.data : example.target;
}
template <size_t i>
Tensor&& get(Example&& example) {
  return std::move(get<i>(example));
}

}  // namespace mytorch::nn::data

// Structured bindings of two names bind data and target.
template <>
struct std::tuple_size<mytorch::nn::data::Example> : std::integral_constant<std::size_t, 2> {};
template <>
struct std::tuple_size<mytorch::nn::data::Batch> : std::integral_constant<std::size_t, 2> {};
template <std::size_t i>
struct std::tuple_element<i, mytorch::nn::data::Example> {
  using type = mytorch::Tensor;
};
template <std::size_t i>
struct std::tuple_element<i, mytorch::nn::data::Batch> {
  using type = mytorch::Tensor;
};
