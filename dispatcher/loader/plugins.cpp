#include "dispatcher/loader/plugins.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/types/errors.h"
#include "dispatcher/loader/library_check.h"

namespace mytorch {
namespace {

std::vector<std::string> libraries_in(const std::filesystem::path& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".so") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> listed_plugins(std::string list) {
  std::vector<std::string> paths;
  while (!list.empty()) {
    const size_t colon = list.find(':');
    const std::string one = list.substr(0, colon);
    list = colon == std::string::npos ? "" : list.substr(colon + 1);
    if (one.empty()) continue;
    std::error_code ignored;
    if (!std::filesystem::is_directory(one, ignored)) {
      paths.push_back(one);  // a library, or reported as damaged
      continue;
    }
    const auto found = libraries_in(one);
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

}  // namespace

void* open_plugin(const std::string& path, const PluginKind& kind) {
  check_library(path);
  // RTLD_LOCAL: two plug-ins may depend on different versions of the same library.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    fail(kind.cannot_open, "[", kind.tag, "] cannot open ", path, ": ",
         reason != nullptr ? reason : "no reason given");
  }
  void* init = dlsym(library, kind.init);
  if (init == nullptr) {
    fail(ErrorCode::kIo, "[", kind.tag, "] ", path, " is not ", kind.name, ": it does not export ",
         kind.init, " (", kind.header, ")");
  }
  return init;
}

std::vector<std::string> default_plugins(const char* variable, const std::string& folder) {
  if (const char* list = std::getenv(variable)) return listed_plugins(list);
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&open_plugin), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  const auto base = std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
  for (const char* below : {"mytorch", "../lib/mytorch"}) {
    auto found = libraries_in(base / below / folder);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace mytorch
