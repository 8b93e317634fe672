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
  LoadingGuard(uint64_t seed, uint64_t epoch);
  ~LoadingGuard();
  LoadingGuard(const LoadingGuard&) = delete;
  LoadingGuard& operator=(const LoadingGuard&) = delete;

  // Makes a generator derived from seed, epoch and `index` the thread's default. Keeps the default
  // if no LoadingGuard exists.
  class Example {
   public:
    explicit Example(int64_t index);

   private:
    std::optional<GeneratorGuard> guard_;
  };

 private:
  const uint64_t state_;
  const LoadingGuard* outer_;
};

}  // namespace mytorch::nn::data
