// libtorch's names for loading data: mytorch::data. Programs that need none of them use
// mytorch/nn/data.h, which loads the batches here, too.
//
//   struct Squares : data::datasets::Dataset<Squares> {
//     data::Example<> get(size_t index) override { ... }
//     optional<size_t> size() const override { return 100; }
//   };
//   auto loader = data::make_data_loader(Squares().map(data::transforms::Stack<>()),
//                                        data::DataLoaderOptions().batch_size(4).workers(2));
//   for (auto& batch : *loader) { ... batch.data, batch.target ... }
//
// Differences from libtorch: examples consist of tensors; batches come in the sampler's order, and
// consist of the same bits, for any number of workers; an epoch's order depends on the seed of
// default_generator() when the sampler was made.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/nn/data/collate.h"
#include "mytorch/nn/data/data_loader.h"
#include "mytorch/nn/data/dataset.h"
#include "mytorch/nn/data/mnist.h"
#include "mytorch/nn/data/sampler.h"
#include "mytorch/nn/data/transforms.h"
#include "mytorch/nn/options.h"
#include "mytorch/std_function.h"

namespace mytorch {
using std::nullopt;
using std::optional;
}  // namespace mytorch

namespace mytorch::data {

// ---- examples ----

namespace example {
struct NoTarget {};
}  // namespace example

// An input, `data`, and its `target`; undefined if there is none.
template <std::same_as<Tensor> Data = Tensor, class Target = Tensor>
requires(std::is_same_v<Target, Tensor> || std::is_same_v<Target, example::NoTarget>)  //
    using Example = nn::data::Example;
using TensorExample = nn::data::Example;

// ---- transforms ----

namespace transforms {

// Makes one example of another.
template <class Input = Example<>, class Output = Input>
class Transform {
 public:
  virtual ~Transform() = default;
  virtual Output apply(Input input) = 0;
};

// Makes a batch of examples.
template <class Batch = Example<>>
class Collation {
 public:
  virtual ~Collation() = default;
  virtual Batch apply_batch(std::vector<Example<>> examples) = 0;
};

// Stacks each tensor of the examples along a new first dimension.
template <class E = Example<>>
class Stack final : public Collation<E> {
 public:
  E apply_batch(std::vector<E> examples) override { return nn::data::stack_examples(examples); }
};

// Applies a function to each example.
template <class Input = Example<>, class Output = Input>
class Lambda final : public Transform<Input, Output> {
 public:
  explicit Lambda(std::function<Output(Input)> function) : function_(std::move(function)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  std::function<Output(Input)> function_;
};

// Transforms the data of each example, and keeps the target.
template <class Target = Tensor>
class TensorTransform : public Transform<> {
 public:
  virtual Tensor operator()(Tensor input) = 0;
  Example<> apply(Example<> example) override {
    example.data = (*this)(std::move(example.data));
    return example;
  }
};

template <class Target = Tensor>
class TensorLambda final : public TensorTransform<Target> {
 public:
  explicit TensorLambda(std::function<Tensor(Tensor)> function) : function_(std::move(function)) {}
  Tensor operator()(Tensor input) override { return function_(std::move(input)); }

 private:
  std::function<Tensor(Tensor)> function_;
};

// Computes (x - mean[c]) / stddev[c] for each channel of an image; see
// nn::data::transforms::Normalize.
template <class Target = Tensor>
class Normalize final : public TensorTransform<Target> {
 public:
  Normalize(nn::OneOrMore<double> mean, nn::OneOrMore<double> stddev)
      : normalize_(mean.values(), stddev.values()) {}
  Tensor operator()(Tensor input) override { return normalize_(input); }

 private:
  nn::data::transforms::Normalize normalize_;
};

}  // namespace transforms

// ---- datasets ----

namespace datasets {

template <class Source, class T>
class MapDataset;
template <class Source, class T>
class CollatedDataset;

// The base class of datasets: `struct Mine : Dataset<Mine>`. Each worker of a loader uses a copy.
template <class Self, class SingleExample = Example<>>
class Dataset {
 public:
  using ExampleType = SingleExample;
  using BatchType = std::vector<ExampleType>;

  virtual ~Dataset() = default;
  virtual ExampleType get(size_t index) = 0;
  virtual std::optional<size_t> size() const = 0;
  BatchType get_batch(const std::vector<size_t>& indices) {
    BatchType batch;
    batch.reserve(indices.size());
    for (size_t index : indices) batch.push_back(get(index));
    return batch;
  }

  // Returns a dataset of the transformed examples, or, for a Collation such as Stack, of batches.
  template <class T>
  auto map(T transform) const& {
    return Self(static_cast<const Self&>(*this)).template mapped<T>(std::move(transform));
  }
  template <class T>
  auto map(T transform) && {
    return this->template mapped<T>(std::move(transform));
  }

 private:
  template <class, class>
  friend class Dataset;
  template <class T>
  auto mapped(T transform) {
    Self& self = static_cast<Self&>(*this);
    if constexpr (requires { transform.apply_batch(BatchType()); }) {
      return CollatedDataset<Self, T>(std::move(self), std::move(transform));
    } else {
      return MapDataset<Self, T>(std::move(self), std::move(transform));
    }
  }
};

template <class Source, class T>
class MapDataset final : public Dataset<MapDataset<Source, T>> {
 public:
  MapDataset(Source source, T transform)
      : source_(std::move(source)), transform_(std::move(transform)) {}
  Example<> get(size_t index) override { return transform_.apply(source_.get(index)); }
  std::optional<size_t> size() const override { return source_.size(); }

 private:
  Source source_;
  T transform_;
};

// Examples that are loaded as whole batches.
template <class Source, class T>
class CollatedDataset final {
 public:
  using BatchType = decltype(std::declval<T&>().apply_batch({}));
  CollatedDataset(Source source, T transform)
      : source_(std::move(source)), transform_(std::move(transform)) {}
  BatchType get_batch(const std::vector<size_t>& indices) {
    return transform_.apply_batch(source_.get_batch(indices));
  }
  std::optional<size_t> size() const { return source_.size(); }
  const Source& source() const { return source_; }
  const T& transform() const { return transform_; }

 private:
  Source source_;
  T transform_;
};

// The rows of a tensor.
class TensorDataset : public Dataset<TensorDataset, TensorExample> {
 public:
  explicit TensorDataset(const Tensor& rows) : rows_(rows) {}
  explicit TensorDataset(const std::vector<Tensor>& rows);  // stacks them
  TensorExample get(size_t index) override { return rows_.get(static_cast<int64_t>(index)); }
  std::optional<size_t> size() const override { return static_cast<size_t>(rows_.size()); }

 private:
  nn::data::TensorDataset rows_;
};

// See nn::data::MNIST for the files and the errors.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain)
      : files_(root, mode == Mode::kTrain ? nn::data::Split::kTrain : nn::data::Split::kTest),
        mode_(mode) {}
  Example<> get(size_t index) override { return files_.get(static_cast<int64_t>(index)); }
  std::optional<size_t> size() const override { return static_cast<size_t>(files_.size()); }
  bool is_train() const { return mode_ == Mode::kTrain; }
  const Tensor& images() const { return files_.images(); }   // uint8 (n, 28, 28), as in the file
  const Tensor& targets() const { return files_.labels(); }  // int64 (n)

 private:
  nn::data::MNIST files_;
  Mode mode_;
};

}  // namespace datasets
using datasets::Dataset;

// ---- samplers ----

namespace samplers {

// Gives the indices of an epoch in batches.
class Sampler {
 public:
  // The next `batch_size` indices, fewer at the end of the epoch, then nothing until reset().
  std::optional<std::vector<size_t>> next(size_t batch_size);
  // Starts the next epoch, of `new_size` examples if given.
  void reset(std::optional<size_t> new_size = {});
  size_t index() const { return at_; }  // number of indices given in this epoch
  // The order of the epochs, for a loader.
  const std::shared_ptr<const nn::data::Sampler>& order() const { return order_; }

 protected:
  using Make = std::shared_ptr<const nn::data::Sampler> (*)(int64_t size, uint64_t seed);
  Sampler(size_t size, Make make);

 private:
  Make make_;
  uint64_t seed_;
  std::shared_ptr<const nn::data::Sampler> order_;
  std::vector<int64_t> indices_;
  uint64_t epoch_ = 0;
  size_t at_ = 0;
};

// A new random order in each epoch.
class RandomSampler final : public Sampler {
 public:
  explicit RandomSampler(size_t size);
};

// 0, 1, ..., size - 1.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(size_t size);
};

}  // namespace samplers

// ---- loaders ----

struct DataLoaderArgs {
  size_t batch_size = 1;
  size_t workers = 0;                   // 0: the consumer loads the batches
  std::optional<size_t> max_jobs = {};  // batches to load ahead; 2 per worker
  bool enforce_ordering = true;         // the order is always kept
  bool drop_last = false;
};

MYTORCH_DEFINE_SETTERS(LoaderOptionSetters, MYTORCH_LOADER_OPTION_NAMES)

class DataLoaderOptions : public LoaderOptionSetters<DataLoaderOptions, DataLoaderArgs> {
 public:
  using Args = DataLoaderArgs;
  DataLoaderOptions(size_t batch_size = 1) { args_.batch_size = batch_size; }  // NOLINT
  Args& args() { return args_; }
  const Args& args() const { return args_; }

 private:
  Args args_;
};

namespace detail {
using Get = std::function<Example<>(size_t)>;
// Returns a dataset that calls each of the functions which `copy` makes from one thread at a time.
std::shared_ptr<const nn::data::Dataset> share(size_t size, std::function<Get()> copy);
nn::data::DataLoaderOptions loader_options(const DataLoaderOptions& options,
                                           const samplers::Sampler& sampler,
                                           nn::data::Collate collate);
size_t need_size(std::optional<size_t> size);

template <class D>
std::shared_ptr<const nn::data::Dataset> share(const D& dataset) {
  static_assert(std::is_copy_constructible_v<D>,
                "each worker of a loader uses a copy: the dataset "
                "needs a copy constructor");
  return share(need_size(dataset.size()), [dataset] {
    return [copy = std::make_shared<D>(dataset)](size_t index) { return copy->get(index); };
  });
}
}  // namespace detail

// Loads batches: of type Example<> after Stack, otherwise std::vector<Example<>>. Each begin()
// starts an epoch.
template <class Batch>
class DataLoader {
 public:
  DataLoader(std::shared_ptr<const nn::data::Dataset> dataset, nn::data::DataLoaderOptions options)
      : loader_(std::move(dataset), std::move(options)) {}

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    explicit Iterator(nn::data::DataLoader::Iterator at) : at_(std::move(at)) { take(); }
    Batch& operator*() { return batch_; }
    Batch* operator->() { return &batch_; }
    Iterator& operator++() {
      batch_ = {};
      ++at_;
      take();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t end) const { return at_ == end; }

   private:
    void take() {
      if (at_ == std::default_sentinel) return;
      if constexpr (std::is_same_v<Batch, std::vector<Example<>>>) {
        batch_ = at_->examples;
      } else {
        batch_ = *at_;
      }
    }
    nn::data::DataLoader::Iterator at_;
    Batch batch_;
  };

  Iterator begin() { return Iterator(loader_.begin()); }
  std::default_sentinel_t end() const { return {}; }
  const nn::data::DataLoaderOptions& options() const { return loader_.options(); }

 private:
  nn::data::DataLoader loader_;
};

template <class D, std::derived_from<samplers::Sampler> S>
std::unique_ptr<DataLoader<typename D::BatchType>> make_data_loader(
    D dataset, S sampler, DataLoaderOptions options = {}) {
  using Loader = DataLoader<typename D::BatchType>;
  if constexpr (requires { dataset.transform(); }) {
    auto collate = [transform = dataset.transform()](const std::vector<Example<>>& examples) {
      auto copy = transform;  // workers call it from several threads
      const Example<> batch = copy.apply_batch(examples);
      return nn::data::Batch(batch.data, batch.target, batch.others);
    };
    return std::make_unique<Loader>(detail::share(dataset.source()),
                                    detail::loader_options(options, sampler, std::move(collate)));
  } else {
    return std::make_unique<Loader>(
        detail::share(dataset), detail::loader_options(options, sampler, nn::data::keep_examples));
  }
}

// As in libtorch, the order is random unless another sampler is given.
template <std::derived_from<samplers::Sampler> S = samplers::RandomSampler, class D>
auto make_data_loader(D dataset, DataLoaderOptions options = {}) {
  S sampler(detail::need_size(dataset.size()));
  return make_data_loader(std::move(dataset), std::move(sampler), std::move(options));
}

}  // namespace mytorch::data
