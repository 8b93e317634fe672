// Finds and opens the shared libraries of backends.
#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/pins.h"
#include "dispatcher/custom/custom.h"
#include "dispatcher/loader/library_check.h"
#include "dispatcher/profiler/profile.h"
#include "mytorch/backends.h"

namespace mytorch {
namespace {

struct Failed {
  std::string path;
  std::string error;
};

struct Loader {
  std::recursive_mutex mutex;
  std::vector<std::string> loaded;  // paths
  std::vector<Failed> failed;
  bool defaults_done = false;
};
Loader& loader() {
  static Loader* const instance = new Loader;
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

std::string library_directory() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&run_init), &info) == 0 || info.dli_fname == nullptr)
    return "";
  std::error_code ignored;
  return std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path().string();
}

std::vector<std::string> libraries_in(const std::string& directory) {
  std::vector<std::string> paths;
  DIR* dir = opendir(directory.c_str());
  if (dir == nullptr) return paths;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0) {
      paths.push_back(absl::StrCat(directory, "/", name));
    }
  }
  closedir(dir);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> default_libraries() {
  if (const char* list = std::getenv("MYTORCH_BACKEND_PATH")) {
    std::vector<std::string> paths;
    std::string rest = list;
    while (!rest.empty()) {
      const size_t colon = rest.find(':');
      const std::string one = rest.substr(0, colon);
      rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
      if (one.empty()) continue;
      std::error_code ignored;
      if (!std::filesystem::is_directory(one, ignored)) {
        paths.push_back(one);  // not a directory: a library, or reported as damaged
        continue;
      }
      const auto found = libraries_in(one);
      paths.insert(paths.end(), found.begin(), found.end());
    }
    return paths;
  }
  // Beside the library; for a statically linked program in bin/, in ../lib.
  const std::string base = library_directory();
  for (const char* below : {"/mytorch/backends", "/../lib/mytorch/backends"}) {
    auto found = libraries_in(base + below);
    if (!found.empty()) return found;
  }
  return {};
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
      std::fprintf(stderr,
                   "mytorch: warning: [backend] MYTORCH_PREFER names '%s', which is not loaded "
                   "(loaded: %s)\n",
                   preference.backend.c_str(), loaded.empty() ? "none" : loaded.c_str());
    }
    if (!preference.op.empty() && ops_named(preference.op).empty()) {
      std::fprintf(
          stderr,
          "mytorch: warning: [backend] MYTORCH_PREFER names '%s', which is not an operator\n",
          preference.op.c_str());
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
  Loader& l = loader();
  std::lock_guard<std::recursive_mutex> lock(l.mutex);
  if (std::find(l.loaded.begin(), l.loaded.end(), path) != l.loaded.end()) return;
  check_library(path);
  // RTLD_LOCAL: two backends may depend on different versions of the same library.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    fail(ErrorCode::kIo, "[backend] cannot open ", path, ": ",
         reason != nullptr ? reason : "no reason given");
  }
  auto* init = reinterpret_cast<mt_backend_init_fn>(dlsym(library, "mt_backend_init"));
  if (init == nullptr) {
    fail(ErrorCode::kIo, "[backend] ", path,
         " is not a backend: it does not export mt_backend_init (mytorch/abi.h)");
  }
  run_init(init, path);
  l.loaded.push_back(path);
}

void register_backend(mt_backend_init_fn init) {
  std::lock_guard<std::recursive_mutex> lock(loader().mutex);
  run_init(init, "");
}

bool load_default_backends() {
  Loader& l = loader();
  std::lock_guard<std::recursive_mutex> lock(l.mutex);
  if (l.defaults_done) return false;
  l.defaults_done = true;
  for (const std::string& path : default_libraries()) {
    try {
      load_backend(path);
    } catch (const Error& error) {
      l.failed.push_back({path, error.what()});
      // A backend without hardware is an ordinary case; warn about anything else.
      if (error.code() != ErrorCode::kUnsupported) {
        std::fprintf(stderr, "mytorch: warning: %s\n", error.what());
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
  Loader& l = loader();
  std::lock_guard<std::recursive_mutex> lock(l.mutex);
  for (const Failed& failed : l.failed) {
    result.push_back({"", "", "", failed.path, "", failed.error});
  }
  return result;
}

}  // namespace mytorch
