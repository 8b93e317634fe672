#include "mytorch/nn/data/data_loader.h"

#include "core/types/errors.h"
#include "nn/data/epoch.h"

namespace mytorch::nn::data {

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(std::move(options)) {
  if (dataset_ == nullptr) fail(ErrorCode::kValue, "[DataLoader] no dataset: give one");
  const auto check = [](const char* name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high) {
      fail(ErrorCode::kValue, "[DataLoader] ", name, " ", value, " is out of range: give ", low,
           " to ", high);
    }
  };
  check("batch_size", options_.batch_size, 1, INT64_MAX);
  check("num_workers", options_.num_workers, 0, 1024);
  check("prefetch", options_.prefetch, 1, 1024);
  if (options_.sampler != nullptr) {
    if (options_.shuffle) {
      fail(ErrorCode::kValue,
           "[DataLoader] both a sampler and shuffle are given, but each determines the order: omit "
           "one");
    }
    return;
  }
  if (options_.shuffle) {
    options_.sampler = std::make_shared<RandomSampler>(dataset_->size(), options_.seed);
  } else {
    options_.sampler = std::make_shared<SequentialSampler>(dataset_->size());
  }
}

int64_t DataLoader::size() const {
  const int64_t examples = options_.sampler->size();
  const int64_t full = examples / options_.batch_size;
  return full + (!options_.drop_last && examples % options_.batch_size != 0 ? 1 : 0);
}

DataLoader::Iterator DataLoader::begin() {
  std::vector<int64_t> order = options_.sampler->indices(epoch_);
  if (static_cast<int64_t>(order.size()) != options_.sampler->size()) {
    fail(ErrorCode::kValue, "[DataLoader] the sampler gave ", order.size(), " indices for epoch ",
         epoch_, ", but its size() is ", options_.sampler->size(), ": they must agree");
  }
  const uint64_t epoch = epoch_++;
  Iterator first(std::make_shared<Epoch>(dataset_, options_, epoch, std::move(order), size()));
  return ++first;
}

const Batch& DataLoader::Iterator::operator*() const { return epoch_->current(); }

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  epoch_->advance();
  return *this;
}

bool DataLoader::Iterator::operator==(std::default_sentinel_t) const { return epoch_->done(); }

}  // namespace mytorch::nn::data
