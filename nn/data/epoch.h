// One pass of a DataLoader.
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

// Workers take the numbers of batches in order, never more than `capacity` ahead of the consumer,
// and put batch n into slot n % capacity, where the consumer waits for it. So order does not depend
// on the threads, and nobody searches a queue.
class DataLoader::Epoch {
 public:
  Epoch(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
        std::vector<int64_t> order, int64_t num_batches);
  ~Epoch();
  Epoch(const Epoch&) = delete;
  Epoch& operator=(const Epoch&) = delete;

  // To the next batch: the first call gives the first. Rethrows what the dataset threw for it.
  void advance();
  bool done() const { return done_; }
  const Batch& current() const;

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
  const int64_t batch_size_;
  const int64_t num_batches_;

  // The consumer's.
  Batch current_;
  int64_t next_ = 0;
  bool done_ = false;

  // Shared with the workers, under mutex_.
  std::mutex mutex_;
  std::condition_variable batch_ready_;
  std::condition_variable room_;
  std::vector<Slot> slots_;
  int64_t claimed_ = 0;   // batches that workers took on
  int64_t consumed_ = 0;  // batches that the consumer took away
  bool stop_ = false;

  std::vector<std::thread> workers_;
};

}  // namespace mytorch::nn::data
