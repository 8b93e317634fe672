// Finds, opens and checks the libraries of engines: those that MYTORCH_COMM_PATH lists, or those in
// mytorch/comm beside the library.
#include "distributed/loader/engine.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "core/types/errors.h"
#include "dispatcher/loader/plugins.h"
#include "mytorch/check.h"
#include "mytorch/distributed.h"

namespace mytorch::distributed {
namespace {

struct Engines {
  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Engine>> loaded;  // an engine is never unloaded
  std::vector<EngineInfo> failed;
  bool defaults_done = false;
};
Engines& engines() {
  static Engines* const instance = new Engines;
  return *instance;
}

void add_engine(mt_comm_init_fn init, const std::string& path) {
  const std::string where = path.empty() ? "a registered engine" : path;
  auto engine = std::make_unique<Engine>();
  mt_comm& comm = engine->comm;
  comm.size = sizeof(comm);
  comm.comm_major = MT_COMM_MAJOR;
  comm.comm_minor = MT_COMM_MINOR;
  take_host_error();
  const int status = init(host(), &comm);
  const std::string message = take_host_error();
  if (status == MT_DECLINED) {
    fail(ErrorCode::kUnsupported, "[comm] ", where,
         " cannot serve this machine: ", message.empty() ? "it gave no reason" : message);
  }
  if (status != MT_OK) {
    fail(ErrorCode::kInternal, "[comm] mt_comm_init of ", where, " failed with status ", status,
         message.empty() ? "" : ": ", message);
  }
  if (comm.comm_major != MT_COMM_MAJOR) {
    fail(ErrorCode::kUnsupported, "[comm] ", where, " implements version ", comm.comm_major,
         " of the contract of engines, this mytorch implements ", MT_COMM_MAJOR,
         ": rebuild one of them");
  }
  if (comm.name == nullptr || comm.device_type == nullptr || comm.create == nullptr ||
      comm.destroy == nullptr || comm.abort == nullptr) {
    fail(ErrorCode::kValue, "[comm] ", where,
         " did not set its name, device_type, create, destroy and abort");
  }
  if ((comm.flags & MT_COMM_LAUNCHES) == 0 && comm.make_id == nullptr) {
    fail(ErrorCode::kValue, "[comm] ", where, " has neither make_id nor MT_COMM_LAUNCHES");
  }
  engine->name = comm.name;
  engine->version = comm.version != nullptr ? comm.version : "";
  engine->device_type = comm.device_type;
  engine->path = path;
  for (const auto& known : engines().loaded) {
    if (known->name != engine->name) continue;
    fail(ErrorCode::kValue, "[comm] ", where, " is named '", engine->name,
         "', and an engine of that name is already loaded");
  }
  engines().loaded.push_back(std::move(engine));
}

void load_engine(const std::string& path) {
  // An engine that needs a library which this machine lacks is an ordinary case.
  const PluginKind kind{"comm", "an engine", "mt_comm_init", "mytorch/abi_comm.h",
                        ErrorCode::kUnsupported};
  add_engine(reinterpret_cast<mt_comm_init_fn>(open_plugin(path, kind)), path);
}

void load_defaults() {
  Engines& e = engines();
  const std::lock_guard<std::recursive_mutex> lock(e.mutex);
  if (e.defaults_done) return;
  e.defaults_done = true;
  for (const std::string& path : default_plugins("MYTORCH_COMM_PATH", "comm")) {
    try {
      load_engine(path);
    } catch (const Error& error) {
      e.failed.push_back({"", "", "", path, error.what()});
      // A machine without the engine's library or hardware is an ordinary case.
      if (error.code() != ErrorCode::kUnsupported) {
        detail::warn(error.what());
      }
    }
  }
}

}  // namespace

void register_engine(mt_comm_init_fn init) {
  const std::lock_guard<std::recursive_mutex> lock(engines().mutex);
  add_engine(init, "");
}

const Engine* find_engine(const std::string& device_type, const std::string& name, int rank,
                          int ranks, bool one_process, std::string* why) {
  load_defaults();
  Engines& e = engines();
  const std::lock_guard<std::recursive_mutex> lock(e.mutex);
  const Engine* best = nullptr;
  std::string reasons;
  for (const auto& engine : e.loaded) {
    const auto refuse = [&](const std::string& reason) {
      absl::StrAppend(&reasons, "; ", engine->name, ": ", reason);
    };
    if (!name.empty() && engine->name != name) continue;
    if (engine->device_type != device_type) {
      if (!name.empty()) refuse(absl::StrCat("it is for ", engine->device_type));
      continue;
    }
    const char* reason = engine->comm.serves != nullptr
                             ? engine->comm.serves(engine->comm.self, rank, ranks)
                             : nullptr;
    const bool for_threads = (engine->comm.flags & MT_COMM_ONE_PROCESS) != 0;
    if (for_threads && !one_process) reason = "it connects the threads of one process";
    if (!for_threads && one_process) reason = "it connects processes";
    if (reason != nullptr) {
      refuse(reason);
    } else if (best == nullptr || engine->comm.priority > best->comm.priority) {
      best = engine.get();
    }
  }
  if (best == nullptr && why != nullptr) {
    for (const EngineInfo& failed : e.failed) absl::StrAppend(&reasons, "; ", failed.error);
    *why = absl::StrCat("no engine ", name.empty() ? "" : absl::StrCat("'", name, "' "),
                        "connects ", ranks, " ranks on ", device_type,
                        reasons.empty() ? "; none is loaded: set MYTORCH_COMM_PATH to the folder "
                                          "of engines"
                                        : reasons);
  }
  return best;
}

const Engine& engine_for(const std::string& device_type, const std::string& name, int rank,
                         int ranks, bool one_process) {
  std::string why;
  const Engine* found = find_engine(device_type, name, rank, ranks, one_process, &why);
  if (found == nullptr) fail(ErrorCode::kUnsupported, "[distributed] ", why);
  return *found;
}

std::vector<EngineInfo> engine_infos() {
  load_defaults();
  Engines& e = engines();
  const std::lock_guard<std::recursive_mutex> lock(e.mutex);
  std::vector<EngineInfo> found;
  for (const auto& engine : e.loaded) {
    found.push_back({engine->name, engine->version, engine->device_type, engine->path, ""});
  }
  found.insert(found.end(), e.failed.begin(), e.failed.end());
  return found;
}

}  // namespace mytorch::distributed
