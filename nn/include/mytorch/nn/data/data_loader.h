// Batches of a dataset, prepared ahead by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

#include "mytorch/nn/data/dataset.h"
#include "mytorch/nn/data/sampler.h"

namespace mytorch::nn::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;    // visit in an order drawn anew for each epoch, from `seed`
  bool drop_last = false;  // leave out the last batch when it would be smaller than the others
  uint64_t seed = 0;
  int num_workers = 0;  // threads that prepare batches; 0: the consumer does, when it asks for one
  int prefetch = 2;     // batches per worker that may be ready or in work before they are asked for
  // Says the order, instead of `shuffle`.
  std::shared_ptr<const Sampler> sampler = nullptr;
};

// Walks over a dataset in batches:
//
//   DataLoader loader(MNIST(default_data_dir()), {.batch_size = 64, .shuffle = true});
//   for (int epoch = 0; epoch < 5; ++epoch) {
//     for (const auto& [images, labels] : loader) { ... }
//   }
//
// Each begin() starts the next epoch. The batches and their order are the same whatever the number
// of workers. What the dataset throws is thrown to the consumer when it comes to that batch, and
// ends the epoch. Leaving a loop early is fine: the threads belong to the iterator, and end with
// it. Gradients are not recorded while a batch is made.
class DataLoader {
  class Epoch;

 public:
  // Throws Error(kValue) for options that make no sense.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options = {});
  // Takes over a dataset given by value.
  template <class D, class = std::enable_if_t<std::is_base_of_v<Dataset, D>>>
  DataLoader(D dataset, DataLoaderOptions options = {})
      : DataLoader(std::make_shared<const D>(std::move(dataset)), std::move(options)) {}

  // Of one pass: a batch can be had only once. Copies are the same walk.
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

  int64_t size() const;  // batches in an epoch
  const Dataset& dataset() const { return *dataset_; }
  const DataLoaderOptions& options() const { return options_; }
  // The number of the epoch that begin() starts next; set it to resume a training run.
  uint64_t epoch() const { return epoch_; }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  uint64_t epoch_ = 0;
};

}  // namespace mytorch::nn::data
