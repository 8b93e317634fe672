// Loads batches of a dataset, optionally ahead of time on worker threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

#include "mytorch/nn/data/collate.h"
#include "mytorch/nn/data/dataset.h"
#include "mytorch/nn/data/sampler.h"
#include "mytorch/nn/serialize.h"

namespace mytorch::nn::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;    // use a new random order in each epoch, drawn from `seed`
  bool drop_last = false;  // omit the last batch if it is smaller than the others
  uint64_t seed = 0;       // of the order and of random augmentation
  int num_workers = 0;     // number of threads that load batches; 0: the consumer loads them
  int prefetch = 2;        // number of batches per worker to load ahead
  // The order of the examples; replaces `shuffle`.
  std::shared_ptr<const Sampler> sampler = nullptr;
  // Makes a batch of the examples; empty: Dataset::get_batch does, which stacks them.
  Collate collate = nullptr;
};

// The batch that a DataLoader yields next.
struct DataPosition {
  uint64_t epoch = 0;
  int64_t batch = 0;
  bool operator==(const DataPosition&) const = default;
};

// Iterates over a dataset in batches:
//
//   DataLoader loader(MNIST(default_data_dir()), {.batch_size = 64, .shuffle = true});
//   for (int epoch = 0; epoch < 5; ++epoch) {
//     for (const auto& [images, labels] : loader) { ... }
//   }
//
// Each begin() starts the next epoch, at its first batch unless set_position names another. The
// batches and their order do not depend on the number of
// workers, even if the dataset draws random numbers: while an example is loaded, the thread's
// default_generator() is one that is derived from the seed, the epoch and the example's
// position in the epoch. An
// exception thrown by the dataset is rethrown to the consumer when it reaches that batch, and ends
// the epoch. A loop may end early: the iterator owns the worker threads and joins them. Gradient
// recording is disabled while a batch is loaded.
class DataLoader {
  class Epoch;

 public:
  // Throws Error(kValue) for invalid options.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options = {});
  // Takes ownership of a dataset given by value.
  template <class D, class = std::enable_if_t<std::is_base_of_v<Dataset, D>>>
  DataLoader(D dataset, DataLoaderOptions options = {})
      : DataLoader(std::make_shared<const D>(std::move(dataset)), std::move(options)) {}
  template <class D>
  requires(!std::is_base_of_v<Dataset, D> &&
           !std::is_convertible_v<D, std::shared_ptr<const Dataset>>)
      DataLoader(const D& /*data*/, const DataLoaderOptions& /*options*/ = {}) {
    static_assert(std::is_base_of_v<Dataset, D>,
                  "a DataLoader takes a dataset: write TensorDataset(x, y) for tensors, or derive "
                  "the class from nn::data::Dataset");
  }

  // A single-pass iterator. Copies share its position.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;

    const Batch& operator*() const;
    const Batch* operator->() const { return &**this; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const;

   private:
    friend class DataLoader;
    explicit Iterator(std::shared_ptr<Epoch> epoch) : epoch_(std::move(epoch)) {}
    std::shared_ptr<Epoch> epoch_;
  };

  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  int64_t size() const;  // number of batches in an epoch
  const Dataset& dataset() const { return *dataset_; }
  const DataLoaderOptions& options() const { return options_; }
  // The number of the epoch that the next begin() starts. Set it to resume training.
  uint64_t epoch() const { return next_.epoch; }
  void set_epoch(uint64_t epoch) { next_ = {epoch, 0}; }
  // Returns the batch after the one that the latest iterator is at; once that iterator has reached
  // the end or is gone, the batch that the next begin() starts with.
  DataPosition position() const;
  // Lets the next begin() start with this batch. Throws Error(kValue) unless 0 <= batch <= size().
  void set_position(DataPosition position);
  // The position, and what the order depends on: seed, batch size and numbers of examples.
  TensorMap state_dict() const;
  // Sets the position. Throws Error(kValue), and changes nothing, if the order of this loader
  // differs.
  void load_state_dict(const TensorMap& state);

 private:
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  DataPosition next_;
  std::weak_ptr<const Epoch> latest_;
};

}  // namespace mytorch::nn::data
