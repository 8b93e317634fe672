#include "nn/data/example_generator.h"

#include "nn/data/split_mix.h"

namespace mytorch::nn::data {
namespace {

thread_local constinit const LoadingGuard* loading = nullptr;

}  // namespace

// Each step of SplitMix64 decorrelates neighboring seeds, epochs and positions.
LoadingGuard::LoadingGuard(uint64_t seed, uint64_t epoch, int64_t position)
    : state_(SplitMix64(SplitMix64(seed)() ^ epoch)()),
      position_(static_cast<uint64_t>(position)),
      outer_(std::exchange(loading, this)) {}

LoadingGuard::~LoadingGuard() { loading = outer_; }

LoadingGuard::Example::Example(size_t offset) {
  if (loading == nullptr) return;
  guard_.emplace(Generator(SplitMix64(loading->state_ ^ (loading->position_ + offset))()));
}

}  // namespace mytorch::nn::data
