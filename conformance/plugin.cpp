// Tests of a plug-in's library and tables.
#include "conformance/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "dispatcher/loader/library_check.h"
#include "dispatcher/table/op.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/version.h"

namespace mytorch::conformance {
namespace {

thread_local std::string last_message;

const mt_host kHost = {sizeof(mt_host),
                       MT_ABI_MAJOR,
                       MT_ABI_MINOR,
                       MYTORCH_VERSION_STRING,
                       [](int, const char* text) { last_message = text != nullptr ? text : ""; },
                       [](int, const char*) {}};

mt_backend empty_backend() {
  mt_backend backend{};
  backend.size = sizeof(backend);
  backend.abi_major = MT_ABI_MAJOR;
  backend.abi_minor = MT_ABI_MINOR;
  return backend;
}

void loads(const std::string& path) { load_backend(path); }

void loads_twice(const std::string& path) {
  Plugin plugin(path);
  mt_backend first = empty_backend();
  mt_backend second = empty_backend();
  promise(plugin.init(first) == MT_OK, "init failed: " + Plugin::message());
  promise(plugin.init(second) == MT_OK,
          "a second call of mt_backend_init failed: " + Plugin::message());
  promise(std::string(first.name) == second.name &&
              std::string(first.device_type) == second.device_type &&
              first.num_kernels == second.num_kernels,
          "a second call of mt_backend_init describes a different backend");
}

void other_major(const std::string& path) {
  Plugin plugin(path);
  mt_host host = kHost;
  host.abi_major = MT_ABI_MAJOR + 1;
  mt_backend backend = empty_backend();
  backend.abi_major = host.abi_major;
  promise(plugin.init(backend, &host) != MT_OK || backend.abi_major == MT_ABI_MAJOR,
          "it accepts a host of contract version " + std::to_string(host.abi_major));
}

// A host of a later minor version has longer structs.
void longer_structs(const std::string& path) {
  Plugin plugin(path);
  struct {
    mt_host known;
    void* more[8];
  } host{kHost, {}};
  host.known.size = sizeof(host);
  host.known.abi_minor += 9;
  struct {
    mt_backend known;
    unsigned char more[64];
  } backend{empty_backend(), {}};
  backend.known.size = sizeof(backend);
  std::fill(std::begin(backend.more), std::end(backend.more), 0);
  promise(plugin.init(backend.known, &host.known) == MT_OK,
          "it refuses a host of a later minor version: " + Plugin::message());
  promise(backend.known.abi_minor > MT_ABI_MINOR ||  // it may define more fields
              std::all_of(std::begin(backend.more), std::end(backend.more),
                          [](unsigned char c) { return c == 0; }),
          "it writes beyond the fields of mt_backend that its version defines");
}

void names(const std::string& path) {
  Plugin plugin(path);
  const mt_backend& b = plugin.filled();
  const auto named = [](const char* text) { return text != nullptr && *text != 0; };
  promise(named(b.name), "mt_backend::name is missing");
  promise(named(b.device_type), "mt_backend::device_type is missing");
  promise(named(b.version), "mt_backend::version is missing");
  promise(b.abi_major == MT_ABI_MAJOR, "mt_backend::abi_major differs from the host's");
  // A backend built against an older minor version has fewer fields, but those of the first
  // version.
  promise(b.size >= offsetof(mt_backend, operators) && b.size <= sizeof(mt_backend),
          "mt_backend::size is neither the host's nor that of the backend's own version");
  if (b.describe != nullptr) promise(b.describe(b.self) != nullptr, "describe returns NULL");
}

void kernels(const std::string& path) {
  Plugin plugin(path);
  const mt_backend& b = plugin.filled();
  promise(b.num_kernels >= 0, "num_kernels is negative");
  promise(b.num_kernels == 0 || b.kernels != nullptr,
          "num_kernels is positive, but kernels is NULL");
  promise(b.num_kernels > 0 || b.compile != nullptr || b.device != nullptr || b.regions != nullptr,
          "it has neither kernels nor regions nor a device");
  constexpr uint32_t kFlags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES |
                              MT_TAKES_ALIAS | MT_TAKES_COMPLEX;
  std::set<std::pair<std::string, std::string>> seen;
  for (int64_t i = 0; i < b.num_kernels; ++i) {
    const size_t step = b.kernels->size;
    promise(step >= sizeof(mt_kernel_entry),
            "mt_kernel_entry::size is too small in the first kernel");
    const auto& c = *reinterpret_cast<const mt_kernel_entry*>(
        reinterpret_cast<const char*>(b.kernels) + static_cast<size_t>(i) * step);
    const std::string where = "kernel " + std::to_string(i) + ": ";
    promise(c.size == step, where + "its size differs from that of the first kernel");
    promise(c.op != nullptr, where + "op is NULL");
    const std::string what = std::string(c.op) + ": ";
    promise(c.run != nullptr, what + "run is NULL");
    promise(c.name != nullptr && *c.name != 0, what + "the kernel has no name");
    promise((c.flags & ~kFlags) == 0, what + "unknown flags");
    promise(seen.insert({c.op, c.name}).second, what + "two kernels are named '" + c.name + "'");
    const OpEntry* entry = find_op(c.op);
    if (entry == nullptr) continue;  // the operator may be newer than this host
    bool known = entry->info->hash == c.hash;
    for (int k = 0; k < entry->info->num_older; ++k) {
      known = known || entry->info->older[k].hash == c.hash;
    }
    promise(known, what + "its hash matches no released schema, so the kernel would never run");
  }
}

void device_functions(const std::string& path) {
  Plugin plugin(path);
  const mt_device_ops& d = plugin.device();
  promise(d.device_count != nullptr && d.allocate != nullptr && d.release != nullptr &&
              d.copy != nullptr,
          "device_count, allocate, release and copy are required");
  const void* streams[] = {
      reinterpret_cast<const void*>(d.create_stream), reinterpret_cast<const void*>(d.synchronize),
      reinterpret_cast<const void*>(d.record_event), reinterpret_cast<const void*>(d.wait_event),
      reinterpret_cast<const void*>(d.destroy_event)};
  promise(d.create_stream == nullptr || std::none_of(std::begin(streams), std::end(streams),
                                                     [](const void* p) { return p == nullptr; }),
          "create_stream requires synchronize, record_event, wait_event and destroy_event");
  promise(d.type != MT_DEVICE_CPU, "a device cannot have the type of the CPU");
  if (d.device_name != nullptr) {
    char text[16];
    std::memset(text, 'x', sizeof(text));
    promise(d.device_name(plugin.self(), 0, text, 8) == MT_OK, "device_name fails");
    promise(std::memchr(text, 0, 8) != nullptr && text[8] == 'x',
            "device_name writes beyond its buffer");
  }
}

}  // namespace

Plugin::Plugin(const std::string& path) {
  check_library(path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw Error(ErrorCode::kIo, "[check] cannot open " + path + ": " + (why != nullptr ? why : ""));
  }
  init_ = reinterpret_cast<mt_backend_init_fn>(dlsym(library, "mt_backend_init"));
  if (init_ == nullptr) {
    throw Error(ErrorCode::kIo, "[check] " + path + " does not export mt_backend_init");
  }
}

int Plugin::init(mt_backend& backend, const mt_host* host) {
  try {
    return init_(host != nullptr ? host : &kHost, &backend);
  } catch (...) {
    broken("mt_backend_init threw: a C function must return a status instead");
  }
}

const mt_backend& Plugin::filled() {
  if (done_) return backend_;
  backend_ = empty_backend();
  const int status = init(backend_);
  promise(status == MT_OK, "mt_backend_init returned " + std::to_string(status) + " " + message());
  done_ = true;
  return backend_;
}

const mt_device_ops& Plugin::device() {
  const mt_backend& b = filled();
  if (b.device == nullptr) throw Skipped{"the backend has no device of its own"};
  promise(b.device->size > offsetof(mt_device_ops, copy) + sizeof(void*) - 1,
          "mt_device_ops::size is too small");
  device_ = {};
  std::memcpy(&device_, b.device, std::min(b.device->size, sizeof(device_)));
  if (device_.device_count != nullptr) {
    const int n = device_.device_count(b.self);
    promise(n >= 0, "device_count returned " + std::to_string(n));
    if (n == 0) throw Skipped{"no such device is present"};
  }
  return device_;
}

std::string Plugin::message() { return std::exchange(last_message, {}); }

void add_library_tests(std::vector<ContractTest>& tests) {
  tests.push_back({"load", "the library loads", loads});
  tests.push_back({"names", "name, version and device type are set", names});
  tests.push_back({"kernels", "each kernel is complete, unique and of a known schema", kernels});
  tests.push_back({"other-major", "a host of another major version is refused", other_major});
  tests.push_back(
      {"longer-structs", "a host of a later minor version is accepted", longer_structs});
  tests.push_back({"init-twice", "a second call of init describes the same backend", loads_twice});
  tests.push_back(
      {"device-entries", "the required functions of a device are set", device_functions});
}

}  // namespace mytorch::conformance
