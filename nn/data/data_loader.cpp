#include "mytorch/nn/data/data_loader.h"

#include "core/types/errors.h"
#include "nn/common/host_tensor.h"
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
  std::vector<int64_t> order = options_.sampler->indices(next_.epoch);
  if (static_cast<int64_t>(order.size()) != options_.sampler->size()) {
    fail(ErrorCode::kValue, "[DataLoader] the sampler gave ", order.size(), " indices for epoch ",
         next_.epoch, ", but its size() is ", options_.sampler->size(), ": they must agree");
  }
  const auto epoch = std::make_shared<Epoch>(dataset_, options_, std::move(order), next_, size());
  set_epoch(next_.epoch + 1);
  latest_ = epoch;
  Iterator first(epoch);
  return ++first;
}

DataPosition DataLoader::position() const {
  const std::shared_ptr<const Epoch> latest = latest_.lock();
  return latest == nullptr || latest->done() ? next_ : latest->next();
}

void DataLoader::set_position(DataPosition position) {
  if (position.batch < 0 || position.batch > size()) {
    fail(ErrorCode::kValue, "[DataLoader] batch ", position.batch, " is out of range for ", size(),
         " batches: give 0 to ", size());
  }
  next_ = position;
  latest_.reset();
}

namespace {

// Numbers of 64 bits; a seed may exceed INT64_MAX.
Tensor number_tensor(uint64_t value) {
  Tensor tensor = fresh_host_tensor({}, kInt64);
  *fresh_data<uint64_t>(tensor) = value;
  return tensor;
}

}  // namespace

TensorMap DataLoader::state_dict() const {
  const DataPosition at = position();
  return {{"epoch", number_tensor(at.epoch)},
          {"batch", number_tensor(static_cast<uint64_t>(at.batch))},
          {"seed", number_tensor(options_.seed)},
          {"batch_size", number_tensor(static_cast<uint64_t>(options_.batch_size))},
          {"dataset_size", number_tensor(static_cast<uint64_t>(dataset_->size()))},
          {"epoch_size", number_tensor(static_cast<uint64_t>(options_.sampler->size()))}};
}

void DataLoader::load_state_dict(const TensorMap& state) {
  const TensorMap own = state_dict();
  const auto number = [&](const std::string& name) {
    const auto found = state.find(name);
    if (found == state.end() || !found->second.defined() || found->second.dtype() != kInt64 ||
        found->second.numel() != 1) {
      fail(ErrorCode::kValue, "[DataLoader] the state has no number '", name,
           "': it is not the state of a DataLoader");
    }
    return static_cast<uint64_t>(found->second.item<int64_t>());
  };
  for (const char* name : {"seed", "batch_size", "dataset_size", "epoch_size"}) {
    const auto here = static_cast<uint64_t>(own.at(name).item<int64_t>());
    if (number(name) != here) {
      fail(ErrorCode::kValue, "[DataLoader] the state has ", name, " ", number(name),
           ", but this loader has ", here, ": resume with the same data and options");
    }
  }
  set_position({number("epoch"), static_cast<int64_t>(number("batch"))});
}

const Batch& DataLoader::Iterator::operator*() const { return epoch_->current(); }

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  epoch_->advance();
  return *this;
}

bool DataLoader::Iterator::operator==(std::default_sentinel_t) const { return epoch_->done(); }

}  // namespace mytorch::nn::data
