#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/data.h"
#include "mytorch/generator.h"
#include "mytorch/ops/stack.h"

namespace mytorch::data {

datasets::TensorDataset::TensorDataset(const std::vector<Tensor>& rows) : rows_(stack(rows)) {}

namespace samplers {

Sampler::Sampler(size_t size, Make make)
    : make_(make),
      seed_(default_generator().seed()),
      order_(make(static_cast<int64_t>(size), seed_)),
      indices_(order_->indices(0)) {}

std::optional<std::vector<size_t>> Sampler::next(size_t batch_size) {
  const size_t count = std::min(batch_size, indices_.size() - at_);
  if (count == 0) return {};
  const auto begin = indices_.begin() + static_cast<std::ptrdiff_t>(at_);
  at_ += count;
  return std::vector<size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void Sampler::reset(std::optional<size_t> new_size) {
  if (new_size) order_ = make_(static_cast<int64_t>(*new_size), seed_);
  indices_ = order_->indices(++epoch_);
  at_ = 0;
}

RandomSampler::RandomSampler(size_t size)
    : Sampler(size, [](int64_t n, uint64_t seed) -> std::shared_ptr<const nn::data::Sampler> {
        return std::make_shared<nn::data::RandomSampler>(n, seed);
      }) {}

SequentialSampler::SequentialSampler(size_t size)
    : Sampler(size, [](int64_t n, uint64_t) -> std::shared_ptr<const nn::data::Sampler> {
        return std::make_shared<nn::data::SequentialSampler>(n);
      }) {}

}  // namespace samplers

namespace detail {
namespace {

class Shared final : public nn::data::Dataset {
 public:
  Shared(size_t size, std::function<Get()> copy) : size_(size), copy_(std::move(copy)) {}
  int64_t size() const override { return static_cast<int64_t>(size_); }
  Example<> get(int64_t index) const override {
    Get own = take();
    Example<> example = own(static_cast<size_t>(index));
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(own));
    return example;
  }

 private:
  Get take() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) return copy_();
    Get get = std::move(idle_.back());
    idle_.pop_back();
    return get;
  }

  const size_t size_;
  const std::function<Get()> copy_;
  mutable std::mutex mutex_;
  mutable std::vector<Get> idle_;
};

}  // namespace

std::shared_ptr<const nn::data::Dataset> share(size_t size, std::function<Get()> copy) {
  return std::make_shared<const Shared>(size, std::move(copy));
}

size_t need_size(std::optional<size_t> size) {
  if (!size) {
    fail(ErrorCode::kUnsupported, "[make_data_loader] the dataset has no size: return one");
  }
  return *size;
}

nn::data::DataLoaderOptions loader_options(const DataLoaderOptions& options,
                                           const samplers::Sampler& sampler,
                                           nn::data::Collate collate) {
  const auto clamp = [](size_t value) {
    return static_cast<int>(std::min<size_t>(value, INT32_MAX));  // the loader checks the range
  };
  nn::data::DataLoaderOptions result;
  result.batch_size = static_cast<int64_t>(std::min<size_t>(options.batch_size(), INT64_MAX));
  result.drop_last = options.drop_last();
  result.seed = default_generator().seed();
  result.num_workers = clamp(options.workers());
  if (options.max_jobs() && options.workers() > 0) {
    const size_t ahead = (*options.max_jobs() + options.workers() - 1) / options.workers();
    result.prefetch = clamp(std::max<size_t>(ahead, 1));
  }
  result.sampler = sampler.order();
  result.collate = std::move(collate);
  return result;
}

}  // namespace detail
}  // namespace mytorch::data
