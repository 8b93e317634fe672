#include "autograd/autocast/state.h"

#include "autograd/autocast/cast.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "mytorch/autocast.h"
#include "mytorch/options_epoch.h"

namespace mytorch {
namespace autocast {

thread_local constinit AutocastState state = {};

namespace {

thread_local constinit int depth = 0;  // of the scopes of this thread

constexpr uint16_t bit(ScalarType type) {
  return static_cast<uint16_t>(1u << static_cast<unsigned>(type));
}
constexpr uint16_t kLowTypes = bit(kFloat16) | bit(kBFloat16);

int slot_of(Device device) {
  if (discover_devices != nullptr) discover_devices();
  return device_slot(device.type);
}

ScalarType dtype_of(int slot) {
  if (state.dtype[slot] != kBool) return state.dtype[slot];
  return device_type(slot).name == "cuda" ? kFloat16 : kBFloat16;
}

// Makes every call of this thread enter the layer, or none.
void update_wanted() {
  if (state.enabled()) {
    thread_state.wanted |= kLayerAutocast;
  } else {
    thread_state.wanted &= ~uint32_t{kLayerAutocast};
  }
}

void set_types(Policy policy, int slot, uint16_t types) {
  state.casts[static_cast<int>(policy)][slot] = types;
}

void set_enabled(int slot, bool on) {
  if (on) state.dtype[slot] = dtype_of(slot);
  const uint16_t low = on ? kLowTypes : uint16_t{0};
  set_types(Policy::kFloat32, slot, low);
  set_types(Policy::kWidest, slot, low);
  const int others = (kLowTypes | bit(kFloat32)) & ~bit(state.dtype[slot]);
  set_types(Policy::kLower, slot, on ? static_cast<uint16_t>(others) : uint16_t{0});
  update_wanted();
}

void set_dtype(int slot, ScalarType dtype, const char* op) {
  if ((bit(dtype) & kLowTypes) == 0) {
    fail(ErrorCode::kType, "[", op, "] the type is ", dtype_name(dtype),
         "; autocast lowers to bfloat16 or float16: pass kBFloat16 or kFloat16");
  }
  state.dtype[slot] = dtype;
  set_enabled(slot, state.enabled(slot));
}

}  // namespace

bool is_autocast_enabled(Device device) { return state.enabled(slot_of(device)); }
void set_autocast_enabled(Device device, bool on) { set_enabled(slot_of(device), on); }
ScalarType get_autocast_dtype(Device device) { return dtype_of(slot_of(device)); }
void set_autocast_dtype(Device device, ScalarType dtype) {
  if (get_autocast_dtype(device) != dtype) options_changed();
  set_dtype(slot_of(device), dtype, "set_autocast_dtype");
}
bool is_autocast_cache_enabled() { return state.cache_enabled; }
void set_autocast_cache_enabled(bool on) { state.cache_enabled = on; }

}  // namespace autocast

AutocastScope::AutocastScope() : saved_(autocast::state) { ++autocast::depth; }
AutocastScope::AutocastScope(const autocast::AutocastState& state) : AutocastScope() {
  autocast::state = state;
  autocast::update_wanted();
}
AutocastScope::~AutocastScope() {
  autocast::state = saved_;
  autocast::update_wanted();
  if (--autocast::depth == 0) autocast::clear_cache();
}

AutocastGuard::AutocastGuard(const AutocastOptions& options) : scope_(new AutocastScope) {
  const int slot = autocast::slot_of(options.device);
  if (options.dtype.has_value()) autocast::set_dtype(slot, *options.dtype, "AutocastGuard");
  autocast::set_enabled(slot, options.enabled);
  autocast::state.cache_enabled = options.cache_enabled;
}
AutocastGuard::~AutocastGuard() = default;

}  // namespace mytorch
