#include "mytorch/generator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "mytorch/tensor.h"
#include "mytorch/tensor_values.h"

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
Tensor Generator::get_state() const {
  check_effect("get_state", "reads the state of a generator");
  using Bytes = std::array<uint8_t, 2 * sizeof(uint64_t)>;
  const auto bytes = std::make_shared<Bytes>();
  const std::array<uint64_t, 2> state = {seed(), call()};
  std::memcpy(bytes->data(), state.data(), bytes->size());
  const int64_t size[] = {static_cast<int64_t>(bytes->size())};
  return from_blob(bytes->data(), IntList(size, 1), [bytes](void*) {});
}
void Generator::set_state(const Tensor& state) {
  std::array<uint64_t, 2> values = {};
  if (!state.defined() || state.dtype() != kUInt8 || !state.device().is_cpu() ||
      state.numel() != static_cast<int64_t>(sizeof(values)) || !state.is_contiguous()) {
    fail(ErrorCode::kValue,
         "[set_state] a generator's state is what get_state() returns: ", sizeof(values),
         " bytes, contiguous on the CPU");
  }
  std::memcpy(values.data(), state.const_data<uint8_t>(), sizeof(values));
  check_effect("set_state", "sets the state of a generator");
  state_->seed = values[0];
  state_->call = values[1];
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
