#include "mytorch/generator.h"

#include <atomic>
#include <utility>

#include "core/runtime/stream_capture.h"

namespace mytorch {

struct Generator::State {
  std::atomic<uint64_t> seed;
  std::atomic<uint64_t> call;
};

Generator::Generator(uint64_t seed) : state_(new State{{seed}, {0}}) {
  check_effect("Generator", "makes a generator");
}
uint64_t Generator::seed() const { return state_->seed; }
void Generator::set_seed(uint64_t seed) {
  check_effect("manual_seed", "seeds a generator");
  state_->seed = seed;
  state_->call = 0;
}
uint64_t Generator::call() const { return state_->call; }
void Generator::set_call(uint64_t call) {
  check_effect("set_call", "sets the state of a generator");
  state_->call = call;
}
uint64_t Generator::take(uint64_t calls) const {
  return state_->call.fetch_add(calls, std::memory_order_relaxed);
}
mt_random Generator::next() const { return {state_->seed, take(1), nullptr}; }

namespace {
thread_local constinit Generator* guarded = nullptr;
}

Generator& default_generator() {
  if (guarded != nullptr) return *guarded;
  static Generator* const instance = [] {
    const LayerMask unrecorded(kLayerCapture);  // it outlives whichever function asks first
    return new Generator(0);
  }();
  return *instance;
}

GeneratorGuard::GeneratorGuard(Generator generator)
    : generator_(std::move(generator)), outer_(std::exchange(guarded, &generator_)) {}

GeneratorGuard::~GeneratorGuard() { guarded = outer_; }

void manual_seed(uint64_t seed) { default_generator().set_seed(seed); }

}  // namespace mytorch
