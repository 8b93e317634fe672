#include "nn/data/epoch.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/threads.h"
#include "nn/data/example_generator.h"

namespace mytorch::nn::data {

DataLoader::Epoch::Epoch(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
                         std::vector<int64_t> order, DataPosition begin, int64_t num_batches)
    : dataset_(std::move(dataset)),
      order_(std::move(order)),
      collate_(options.collate),
      seed_(options.seed),
      epoch_(begin.epoch),
      batch_size_(options.batch_size),
      num_batches_(num_batches),
      next_(begin.batch),
      claimed_(begin.batch),
      consumed_(begin.batch) {
  if (options.num_workers == 0) return;
  const int64_t capacity = int64_t{options.num_workers} * options.prefetch;
  const int64_t left = num_batches - begin.batch;
  slots_.resize(static_cast<size_t>(std::min(capacity, left)));
  start_workers(static_cast<int>(std::min<int64_t>(options.num_workers, left)));
}

DataLoader::Epoch::~Epoch() { stop_workers(); }

void DataLoader::Epoch::start_workers(int n) {
  try {
    for (int i = 0; i < n; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    const size_t started = workers_.size();
    stop_workers();
    fail(ErrorCode::kOutOfMemory, "[DataLoader] only ", started, " of ", n,
         " worker threads could be started (", error.what(), "): ask for fewer num_workers");
  }
}

void DataLoader::Epoch::stop_workers() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void DataLoader::Epoch::work() {
  // The workers provide the parallelism; operators called by the dataset run serially.
  set_num_threads(1);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    room_.wait(lock, [this] {
      return stop_ || claimed_ == num_batches_ ||
             claimed_ - consumed_ < static_cast<int64_t>(slots_.size());
    });
    if (stop_ || claimed_ == num_batches_) return;
    const int64_t number = claimed_++;
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = make(number);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error != nullptr) stop_ = true;  // the epoch ends here: no later batch is needed
    Slot& slot = slots_[static_cast<size_t>(number) % slots_.size()];
    slot.batch = std::move(batch);
    slot.error = std::move(error);
    slot.ready = true;
    batch_ready_.notify_one();
    if (stop_) room_.notify_all();
  }
}

Batch DataLoader::Epoch::make(int64_t number) const {
  NoGradGuard no_grad;
  const int64_t begin = number * batch_size_;
  const int64_t left = static_cast<int64_t>(order_.size()) - begin;
  const IntList indices(order_.data() + begin, static_cast<size_t>(std::min(left, batch_size_)));
  const LoadingGuard loading(seed_, epoch_, begin);
  if (collate_ == nullptr) {
    // A dataset that gathers whole batches uses the generator of the first example.
    const LoadingGuard::Example generator(0);
    return dataset_->get_batch(indices);
  }
  std::vector<Example> examples;
  examples.reserve(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const LoadingGuard::Example generator(i);
    examples.push_back(dataset_->get(indices[i]));
  }
  const LoadingGuard::Example generator(0);
  return collate_(examples);
}

Batch DataLoader::Epoch::take(int64_t number) {
  std::unique_lock<std::mutex> lock(mutex_);
  Slot& slot = slots_[static_cast<size_t>(number) % slots_.size()];
  batch_ready_.wait(lock, [&slot] { return slot.ready; });
  Slot taken = std::exchange(slot, {});
  ++consumed_;
  lock.unlock();
  room_.notify_one();
  if (taken.error != nullptr) std::rethrow_exception(taken.error);
  return std::move(taken.batch);
}

void DataLoader::Epoch::advance() {
  current_ = {};  // release it first, so that the next batch can reuse its memory
  if (done_ || next_ == num_batches_) {
    done_ = true;
    return;
  }
  try {
    current_ = slots_.empty() ? make(next_) : take(next_);
  } catch (...) {
    done_ = true;
    stop_workers();
    throw;
  }
  ++next_;
}

const Batch& DataLoader::Epoch::current() const {
  if (done_) {
    fail(ErrorCode::kValue,
         "[DataLoader] the epoch has ended, so there is no batch here: compare "
         "the iterator with end() first");
  }
  return current_;
}

}  // namespace mytorch::nn::data
