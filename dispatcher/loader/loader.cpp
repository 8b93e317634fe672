// Finds and opens the shared libraries of backends.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/pins.h"
#include "dispatcher/custom/custom.h"
#include "dispatcher/loader/plugins.h"
#include "dispatcher/profiler/profile.h"
#include "mytorch/backends.h"
#include "mytorch/check.h"

namespace mytorch {
namespace {

struct Failed {
  std::string path;
  std::string error;
};

struct LoaderState {
  std::recursive_mutex mutex;
  std::vector<std::string> loaded;  // paths
  std::vector<Failed> failed;
  bool defaults_done = false;
};
LoaderState& loader() {
  static LoaderState* const instance = new LoaderState;
  return *instance;
}

void run_init(mt_backend_init_fn init, const std::string& path) {
  mt_backend abi{};
  abi.size = sizeof(abi);
  abi.abi_major = MT_ABI_MAJOR;
  abi.abi_minor = MT_ABI_MINOR;
  take_host_error();
  int status = MT_ERROR_INTERNAL;
  const std::string where = path.empty() ? "a registered backend" : path;
  try {
    status = init(host(), &abi);
  } catch (...) {
    fail(ErrorCode::kInternal, "[backend] mt_backend_init of ", where,
         " threw: a C function must return a status instead");
  }
  const std::string message = take_host_error();
  if (status == MT_DECLINED) {
    fail(ErrorCode::kUnsupported, "[backend] ", where,
         " cannot serve this machine: ", message.empty() ? "it gave no reason" : message);
  }
  if (status != MT_OK) {
    fail(ErrorCode::kInternal, "[backend] mt_backend_init of ", where, " failed with status ",
         status, message.empty() ? "" : ": ", message);
  }
  auto backend = checked_backend(abi, path);
  add_operators_of(*backend);  // throws if an operator is rejected; the backend is then not added
  add_backend(std::move(backend));
}

// Warns about unknown names in MYTORCH_PREFER, which would otherwise go unnoticed.
void check_preferences() {
  for (const Preference& preference : environment_preferences()) {
    std::string loaded;
    bool found = false;
    for (const Backend* backend : backends()) {
      found = found || backend->name == preference.backend;
      absl::StrAppend(&loaded, loaded.empty() ? "" : ", ", backend->name);
    }
    if (!found) {
      detail::warn(
          absl::StrCat("[backend] MYTORCH_PREFER names '", preference.backend,
                       "', which is not loaded (loaded: ", loaded.empty() ? "none" : loaded, ")"));
    }
    if (!preference.op.empty() && ops_named(preference.op).empty()) {
      detail::warn(absl::StrCat("[backend] MYTORCH_PREFER names '", preference.op,
                                "', which is not an operator"));
    }
  }
}

// Lets Device("name") find the devices of default backends.
[[maybe_unused]] const bool kDiscovers = [] {
  discover_devices = [] { load_default_backends(); };
  return true;
}();

}  // namespace

void load_backend(const std::string& path) {
  LoaderState& l = loader();
  std::lock_guard<std::recursive_mutex> lock(l.mutex);
  if (std::find(l.loaded.begin(), l.loaded.end(), path) != l.loaded.end()) return;
  const PluginKind kind{"backend", "a backend", "mt_backend_init", "mytorch/abi.h", ErrorCode::kIo};
  auto* init = reinterpret_cast<mt_backend_init_fn>(open_plugin(path, kind));
  run_init(init, path);
  l.loaded.push_back(path);
}

void register_backend(mt_backend_init_fn init) {
  std::lock_guard<std::recursive_mutex> lock(loader().mutex);
  run_init(init, "");
}

bool load_default_backends() {
  LoaderState& l = loader();
  std::lock_guard<std::recursive_mutex> lock(l.mutex);
  if (l.defaults_done) return false;
  l.defaults_done = true;
  for (const std::string& path : default_plugins("MYTORCH_BACKEND_PATH", "backends")) {
    try {
      load_backend(path);
    } catch (const Error& error) {
      l.failed.push_back({path, error.what()});
      // A backend without hardware is an ordinary case; warn about anything else.
      if (error.code() != ErrorCode::kUnsupported) {
        detail::warn(error.what());
      }
    }
  }
  check_preferences();
  profiler::profile_as_environment_says();
  return true;
}

std::vector<BackendInfo> backend_infos() {
  load_default_backends();
  std::vector<BackendInfo> result;
  for (const Backend* backend : backends()) {
    const char* description =
        backend->abi.describe != nullptr ? backend->abi.describe(backend->abi.self) : nullptr;
    result.push_back({backend->name, backend->version, backend->abi.device_type, backend->path,
                      description != nullptr ? description : "", ""});
  }
  LoaderState& l = loader();
  std::lock_guard<std::recursive_mutex> lock(l.mutex);
  for (const Failed& failed : l.failed) {
    result.push_back({"", "", "", failed.path, "", failed.error});
  }
  return result;
}

}  // namespace mytorch
