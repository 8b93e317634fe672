// The generators that make random augmentation independent of the number of workers.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "mytorch/generator.h"

namespace mytorch::nn::data {

// While it exists, this thread loads examples of an epoch.
class LoadingGuard {
 public:
  // `position` is that of the batch's first example in the epoch.
  LoadingGuard(uint64_t seed, uint64_t epoch, int64_t position);
  ~LoadingGuard();
  LoadingGuard(const LoadingGuard&) = delete;
  LoadingGuard& operator=(const LoadingGuard&) = delete;

  // Makes a generator derived from seed, epoch and position the thread's default while the example
  // at `offset` in the batch is loaded. Keeps the default if no LoadingGuard exists. The position
  // distinguishes examples that a sampler repeats, unlike their index.
  class Example {
   public:
    explicit Example(size_t offset);

   private:
    std::optional<GeneratorGuard> guard_;
  };

 private:
  const uint64_t state_;
  const uint64_t position_;
  const LoadingGuard* outer_;
};

}  // namespace mytorch::nn::data
