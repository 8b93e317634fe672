#include "core/runtime/device_registry.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "absl/strings/str_join.h"
#include "core/types/errors.h"

namespace mytorch {
namespace {

// Rows are only added. `count` is published last, so readers need no lock.
struct Registry {
  Registry() {
    rows[kCpuSlot].type = MT_DEVICE_CPU;
    rows[kCpuSlot].name = "cpu";
    rows[kCpuSlot].count = 1;
  }
  std::mutex mutex;
  DeviceType rows[kMaxDeviceTypes];
  std::atomic<int> count{1};
  int32_t next_dynamic = MT_DEVICE_DYNAMIC;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // never destroyed: threads may outlive main
  return *instance;
}

// Returns the slot of a type, or -1 if no backend provides it.
int find_slot(int32_t type) {
  for (int slot = 0; slot < num_device_types(); ++slot) {
    if (device_type(slot).type == type) return slot;
  }
  return -1;
}

std::string known_names() {
  std::string names;
  for (int i = 0; i < num_device_types(); ++i) {
    absl::StrAppend(&names, i == 0 ? "" : ", ", device_type(i).name);
  }
  return names;
}

}  // namespace

int device_count(int32_t type) {
  if (discover_devices != nullptr) discover_devices();
  const int slot = find_slot(type);
  return slot < 0 ? 0 : device_type(slot).count;
}

int num_device_types() { return registry().count.load(std::memory_order_acquire); }
const DeviceType& device_type(int slot) { return registry().rows[slot]; }

int register_device_type(const char* name, const mt_device_ops* ops, void* self) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  int slot = 0;
  const int count = r.count.load();
  while (slot < count && r.rows[slot].name != name) ++slot;
  if (slot < count && ops == nullptr) return slot;
  if (ops == nullptr) {
    fail(ErrorCode::kDevice, "[backend] device type '", name,
         "' is unknown, and the backend provides no device functions: set mt_backend::device");
  }
  if (slot < count) {
    fail(ErrorCode::kDevice, "[backend] device type '", name,
         "' already has a backend: further backends for it must leave mt_backend::device NULL");
  }
  mt_device_ops known{};
  std::memcpy(&known, ops, std::min(ops->size, sizeof(known)));
  known.size = sizeof(known);
  if (known.device_count == nullptr || known.allocate == nullptr || known.release == nullptr ||
      known.copy == nullptr) {
    fail(ErrorCode::kDevice, "[backend] device type '", name,
         "' lacks one of the required functions device_count, allocate, release and copy");
  }
  const bool orders_streams = known.synchronize != nullptr && known.record_event != nullptr &&
                              known.wait_event != nullptr && known.destroy_event != nullptr;
  if (known.create_stream != nullptr && !orders_streams) {
    fail(ErrorCode::kDevice, "[backend] device type '", name,
         "' has streams, but lacks one of synchronize, record_event, wait_event and destroy_event, "
         "which streams require");
  }
  if (known.create_stream == nullptr) {
    known.record_event = nullptr;
    known.wait_event = nullptr;
  }
  for (int i = 0; i < count; ++i) {
    if (known.type != 0 && known.type == r.rows[i].type) {
      fail(ErrorCode::kDevice, "[backend] device type '", name, "' has DLPack code ", known.type,
           ", which belongs to '", r.rows[i].name, "'");
    }
  }
  const int devices = known.device_count(self);
  if (devices < 0) {
    fail(ErrorCode::kDevice, "[backend] device type '", name, "' gave ", devices,
         " as its number of devices");
  }
  if (slot == kMaxDeviceTypes) {
    fail(ErrorCode::kDevice, "[backend] no room for device type '", name, "': ", kMaxDeviceTypes,
         " types are in use (", known_names(), ")");
  }
  DeviceType& row = r.rows[slot];
  row.type = known.type != 0 ? known.type : r.next_dynamic++;
  row.name = name;
  row.ops = new mt_device_ops(known);  // never freed, like the row
  row.self = self;
  row.count = devices;
  r.count.store(slot + 1, std::memory_order_release);
  return slot;
}

void (*discover_devices)() = nullptr;

int32_t device_type_from_name(const std::string& name) {
  if (name == "cpu") return MT_DEVICE_CPU;
  if (discover_devices != nullptr) discover_devices();
  for (int i = 0; i < num_device_types(); ++i) {
    if (device_type(i).name == name) return device_type(i).type;
  }
  fail(ErrorCode::kDevice, "[device] there is no device type '", name,
       "'; known types: ", known_names(), ". Is its backend in MYTORCH_BACKEND_PATH?");
}

std::string device_type_name(int32_t type) {
  const int slot = find_slot(type);
  return slot < 0 ? absl::StrCat("device-", type) : device_type(slot).name;
}

int device_slot(int32_t type) {
  if (type == MT_DEVICE_CPU) return kCpuSlot;
  int slot = find_slot(type);
  if (slot < 0 && discover_devices != nullptr) {
    discover_devices();  // waits if another thread is loading the backends
    slot = find_slot(type);
  }
  if (slot >= 0) return slot;
  fail(ErrorCode::kDevice, "[device] no backend provides device type ", type,
       "; known types: ", known_names());
}

int checked_device_slot(Device device) {
  const int slot = device_slot(device.type);
  const DeviceType& row = device_type(slot);
  if (device.index < 0 || device.index >= row.count) {
    fail(ErrorCode::kDevice, "[device] there is no ", device.str(), ": ", row.name, " has ",
         row.count, row.count == 1 ? " device" : " devices");
  }
  return slot;
}

}  // namespace mytorch
