// One pass of a DataLoader over its dataset.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "mytorch/nn/data/data_loader.h"

namespace mytorch::nn::data {

// Workers claim batch numbers in order, at most `capacity` ahead of the consumer, and put batch n
// into slot n % capacity, where the consumer waits for it. The order therefore does not depend on
// the threads, and no queue is searched.
class DataLoader::Epoch {
 public:
  Epoch(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
        std::vector<int64_t> order, DataPosition begin, int64_t num_batches);
  ~Epoch();
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  // Advances to the next batch (the first, on the first call). Rethrows an exception of the
  // dataset.
  void advance();
  bool done() const { return done_; }
  const Batch& current() const;
  // The batch after the current one.
  DataPosition next() const { return {epoch_, next_}; }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
    bool ready = false;
  };

  void start_workers(int n);
  void stop_workers();
  void work();
  Batch make(int64_t number) const;
  Batch take(int64_t number);

  const std::shared_ptr<const Dataset> dataset_;
  const std::vector<int64_t> order_;
  const Collate collate_;
  const uint64_t seed_;
  const uint64_t epoch_;
  const int64_t batch_size_;
  const int64_t num_batches_;

  // Used by the consumer only.
  Batch current_;
  int64_t next_;
  bool done_ = false;

  // Shared with the workers, guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable batch_ready_;
  std::condition_variable room_;
  std::vector<Slot> slots_;
  int64_t claimed_;   // number of the next batch that a worker claims
  int64_t consumed_;  // number of the next batch to be consumed
  bool stop_ = false;

  std::vector<std::thread> workers_;
};

}  // namespace mytorch::nn::data
