#include "dispatcher/choice/pins.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/state.h"
#include "mytorch/backends.h"

namespace mytorch {
namespace {

const Backend* exchange_pin(OpEntry& entry, int slot, const Backend* backend) {
  OpState& state = state_of(entry);
  std::lock_guard<std::mutex> lock(state.mutex);
  const Backend* old = state.pins[slot].exchange(backend);
  resolve(state, slot);
  return old;
}

const Backend& find_backend(int slot, const std::string& device_type, const std::string& name) {
  std::vector<std::string> names;
  for (const Backend* known : backends()) {
    if (known->device_slot != slot) continue;
    if (known->name == name) return *known;
    names.push_back(known->name);
  }
  fail(ErrorCode::kValue, "[prefer] no backend '", name, "' serves ", device_type,
       "; loaded are: ", absl::StrJoin(names, ", "));
}

}  // namespace

std::vector<Preference> environment_preferences() {
  const char* list = std::getenv("MYTORCH_PREFER");
  if (list == nullptr) return {};
  std::vector<Preference> found;
  for (const std::string& item :
       std::vector<std::string>(absl::StrSplit(list, ',', absl::SkipEmpty()))) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) {
      found.push_back({"", item});
    } else {
      found.push_back({item.substr(0, equals), item.substr(equals + 1)});
    }
  }
  return found;
}

std::vector<OpEntry*> ops_named(const std::string& name) {
  if (OpEntry* one = find_op(name); one != nullptr) return {one};
  return find_overloads(name);
}

void pin_from_environment(const Backend& backend) {
  for (const Preference& preference : environment_preferences()) {
    if (preference.backend != backend.name) continue;
    if (preference.op.empty()) {
      pins[backend.device_slot].store(&backend);
      resolve_all(backend.device_slot);
    }
    for (OpEntry* entry : ops_named(preference.op)) {
      exchange_pin(*entry, backend.device_slot, &backend);
    }
  }
}

Prefer::Prefer(const std::string& device_type, const std::string& backend, const std::string& op) {
  load_default_backends();
  slot_ = mytorch::device_slot(device_type_from_name(device_type));
  const Backend& found = find_backend(slot_, device_type, backend);
  if (op.empty()) {
    saved_.push_back(pins[slot_].exchange(&found));
    resolve_all(slot_);
    return;
  }
  for (OpEntry* entry : ops_named(op)) {
    ops_.push_back(entry);
    saved_.push_back(exchange_pin(*entry, slot_, &found));
  }
  if (ops_.empty()) fail(ErrorCode::kValue, "[prefer] there is no operator '", op, "'");
}

Prefer::~Prefer() {
  if (ops_.empty()) {
    pins[slot_].store(static_cast<const Backend*>(saved_[0]));
    resolve_all(slot_);
  }
  for (size_t i = 0; i < ops_.size(); ++i) {
    exchange_pin(*static_cast<OpEntry*>(ops_[i]), slot_, static_cast<const Backend*>(saved_[i]));
  }
}

RestrictKernels::RestrictKernels(Kernels kernels) {
  load_default_backends();
  saved_ = restricted.exchange(kernels);
  resolve_all();
}

RestrictKernels::~RestrictKernels() {
  restricted.store(saved_);
  resolve_all();
}

}  // namespace mytorch
