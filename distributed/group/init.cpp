// Joining and leaving the group of all ranks.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "core/types/status.h"
#include "distributed/group/slurm.h"
#include "distributed/group/state.h"

namespace mytorch::distributed {
namespace {

constexpr double kTimeout = 600;

struct Joined {
  std::shared_ptr<Session> session;
  Group world;
};
std::mutex joined_mutex;
Joined& joined() {
  static auto* const instance = new Joined;  // finalize() ends it
  return *instance;
}
// Of a thread of run_local.
thread_local const Group* world_of_thread = nullptr;

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

int number_of(const std::string& text, const char* name) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || value < 0 || value > 1 << 30) {
    fail(ErrorCode::kValue, "[init] ", name, " is \"", text, "\": it must be a number from 0");
  }
  return static_cast<int>(value);
}

// The variables by which launchers tell a process its rank, the number of ranks, and its rank on
// the machine.
struct Launcher {
  const char* rank;
  const char* size;
  const char* local;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

struct Place {
  int rank = 0;
  int size = 1;
  int local = 0;
};

Place place_of(const InitOptions& options) {
  if (options.rank.has_value() != options.size.has_value()) {
    fail(ErrorCode::kValue, "[init] rank and size belong together: give both, or none");
  }
  Place place;
  bool found = false;
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = variable(launcher.rank), size = variable(launcher.size);
    if (!rank.has_value() || !size.has_value() || found) continue;
    found = true;
    place.rank = number_of(*rank, launcher.rank);
    place.size = number_of(*size, launcher.size);
    place.local = place.rank;
    if (const auto local = variable(launcher.local))
      place.local = number_of(*local, launcher.local);
  }
  if (options.rank.has_value()) {
    place.rank = *options.rank;
    place.size = *options.size;
    if (!found) place.local = place.rank;
  }
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size) {
    fail(ErrorCode::kValue, "[init] rank ", place.rank, " of ", place.size,
         " ranks: the rank must be from 0 to size - 1");
  }
  return place;
}

double timeout_of(const std::optional<double>& given) {
  double timeout = kTimeout;
  if (given.has_value()) {
    timeout = *given;
  } else if (const auto text = variable("MYTORCH_DISTRIBUTED_TIMEOUT")) {
    char* end = nullptr;
    timeout = std::strtod(text->c_str(), &end);
    if (end == text->c_str() || *end != '\0') timeout = -1;
  }
  if (!(timeout >= 0 && timeout < 1e9)) {
    fail(ErrorCode::kValue,
         "[init] the timeout, MYTORCH_DISTRIBUTED_TIMEOUT, must be a number of "
         "seconds, or 0 for none");
  }
  return timeout;
}

// Whoever sets a deadline wants to know where calls come from, and may pay a microsecond or two for
// each.
bool notes_callers(const std::optional<double>& timeout) {
  return timeout.has_value() || variable("MYTORCH_DISTRIBUTED_TIMEOUT").has_value();
}

// Splits "host:port".
std::pair<std::string, uint16_t> address_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const int port = colon == std::string::npos ? 0 : number_of(text.substr(colon + 1), "the port");
  if (colon == std::string::npos || colon == 0 || port > 65535) {
    fail(ErrorCode::kValue, "[init] the address \"", text, "\" is not of the form host:port");
  }
  return {text.substr(0, colon), static_cast<uint16_t>(port)};
}

std::string given_address(const InitOptions& options) {
  if (!options.address.empty()) return options.address;
  const auto host = variable("MASTER_ADDR"), port = variable("MASTER_PORT");
  return host.has_value() && port.has_value() ? *host + ":" + *port : "";
}

// Hands rank 0's text to all ranks through an engine that needs no store.
std::string broadcast_text(GroupState& state, const std::string& text, double timeout) {
  char buffer[512] = "";
  std::strncpy(buffer, text.c_str(), sizeof(buffer) - 1);
  mt_comm_call call{};
  call.size = sizeof(call);
  call.timeout_ns = static_cast<int64_t>(timeout * 1e9);
  const mt_comm& comm = state.engine->comm;
  const int status = comm.broadcast(comm.self, state.group, buffer, buffer, sizeof(buffer),
                                    {MT_UINT, 8, 1}, 0, &call);
  if (status != MT_OK) {
    fail(ErrorCode::kIo, "[init] the ranks do not meet: ", take_host_error(), " (status ", status,
         ")");
  }
  buffer[sizeof(buffer) - 1] = '\0';
  return buffer;
}

std::shared_ptr<Store> store_at(const std::string& address, int rank, double timeout) {
  const auto [host, port] = address_of(address);
  return std::make_shared<TcpStore>(
      TcpStoreOptions{host, port, rank == 0, rank, Seconds(timeout > 0 ? timeout : kTimeout)});
}

std::string own_host() {
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

// A store that rank 0 serves at a free port, whose address goes by the launcher's engine.
std::shared_ptr<Store> store_by(GroupState& state, int rank, double timeout) {
  if (rank != 0) return store_at(broadcast_text(state, "", timeout), rank, timeout);
  const std::string host = own_host();
  auto store = std::make_shared<TcpStore>(TcpStoreOptions{host, 0, true, 0, Seconds(60)});
  (void)broadcast_text(state, absl::StrCat(host, ":", store->port()), timeout);
  return store;
}

}  // namespace

std::shared_ptr<GroupState> make_group(const Engine& engine, int rank, int size, Device device,
                                       const std::string& name, double timeout, Store* store,
                                       std::shared_ptr<Session> session) {
  const mt_comm& comm = engine.comm;
  mt_comm_id id{};
  const bool launches = (comm.flags & MT_COMM_LAUNCHES) != 0;
  if (!launches && (rank == 0 || store == nullptr)) {
    if (comm.make_id(comm.self, &id) != MT_OK) {
      fail(ErrorCode::kIo, "[init] the engine ", engine.name, " gives no id: ", take_host_error());
    }
    if (store != nullptr) store->set("id/" + name, std::string(id.bytes, sizeof(id.bytes)));
  } else if (!launches) {
    const std::string text = store->get("id/" + name, Seconds(timeout > 0 ? timeout : kTimeout));
    std::memcpy(id.bytes, text.data(), std::min(text.size(), sizeof(id.bytes)));
  }
  mt_comm_call call{};
  call.size = sizeof(call);
  call.timeout_ns = static_cast<int64_t>(timeout * 1e9);
  take_host_error();
  mt_group* group = nullptr;
  const int status = comm.create(comm.self, launches ? nullptr : &id, rank, size,
                                 {device.type, device.index}, &call, &group);
  const std::string message = take_host_error();
  if (status == MT_COMM_TIMEOUT) {
    fail(ErrorCode::kIo, "[init] not all of the ", size, " ranks have come within ", timeout,
         " s: check that every rank has started");
  }
  if (status != MT_OK) {
    fail_status(
        status, "init",
        absl::StrCat("the engine ", engine.name, " cannot form the group of ", size,
                     " ranks: ", message.empty() ? absl::StrCat("status ", status) : message));
  }
  std::vector<int> world_ranks;
  for (int i = 0; i < size; ++i) world_ranks.push_back(i);
  return std::make_shared<GroupState>(&engine, group, rank, size, device, name,
                                      std::move(world_ranks), std::move(session));
}

Group init(InitOptions options) {
  const std::lock_guard<std::mutex> lock(joined_mutex);
  if (joined().world.defined() || world_of_thread != nullptr) {
    fail(ErrorCode::kValue, "[init] this process has joined a group already: finalize() leaves it");
  }
  const Place place = place_of(options);
  const double timeout = timeout_of(options.timeout);
  Device device = options.device;
  if (device.has_index()) {
    const int count = device_count(device.type);
    if (count == 0) {
      fail(ErrorCode::kDevice, "[init] there is no device ", device.str(), " on this machine");
    }
    if (options.device.index == 0) device.index = place.local % count;
  }
  const bool alone = place.size == 1;
  const std::string type = device_type_name(device.type);
  const Engine& engine =
      engine_for(type, options.engine, place.rank, place.size, alone && device.is_cpu());
  std::shared_ptr<Store> store = options.store;
  std::shared_ptr<GroupState> state;
  if ((engine.comm.flags & MT_COMM_LAUNCHES) != 0) {
    state = make_group(engine, place.rank, place.size, device, "world", timeout, nullptr, nullptr);
  }
  const std::string address = given_address(options);
  if (store == nullptr && alone) {
    store = memory_store();
  } else if (store == nullptr && !address.empty()) {
    store = store_at(address, place.rank, timeout);
  } else if (store == nullptr) {
    std::shared_ptr<GroupState> by = state;
    const Engine* launched = find_engine("cpu", "", place.rank, place.size, false, nullptr);
    if (by == nullptr && launched != nullptr && (launched->comm.flags & MT_COMM_LAUNCHES) != 0) {
      by =
          make_group(*launched, place.rank, place.size, kCPU, "meeting", timeout, nullptr, nullptr);
    }
    const auto of_step = by == nullptr ? slurm_address(variable) : std::nullopt;
    if (by == nullptr && !of_step.has_value()) {
      fail(ErrorCode::kValue,
           "[init] the ranks have no address to meet at: set MASTER_ADDR and "
           "MASTER_PORT, pass InitOptions::address, or start the program by "
           "`mytorch launch`, mpirun or srun");
    }
    store = by != nullptr ? store_by(*by, place.rank, timeout)
                          : store_at(*of_step, place.rank, timeout);
  }
  if (state == nullptr) {
    state =
        make_group(engine, place.rank, place.size, device, "world", timeout, store.get(), nullptr);
  }
  joined().session = std::make_shared<Session>(store, place.rank, place.size, timeout, alone,
                                               notes_callers(options.timeout));
  state->session = joined().session;
  state->session->watch(state);
  joined().world = Group(std::move(state));
  static const bool once = (std::atexit([] { finalize(); }), true);
  (void)once;
  return joined().world;
}

bool initialized() {
  if (world_of_thread != nullptr) return true;
  const std::lock_guard<std::mutex> lock(joined_mutex);
  return joined().world.defined();
}

Group world() {
  if (world_of_thread != nullptr) return *world_of_thread;
  {
    const std::lock_guard<std::mutex> lock(joined_mutex);
    if (joined().world.defined()) return joined().world;
  }
  // The group of this rank alone, which no other thread may use at the same time.
  thread_local const Group alone(
      make_group(engine_for("cpu", "local", 0, 1, true), 0, 1, kCPU, "self", 0, nullptr, nullptr));
  return alone;
}

void finalize() {
  Joined leaving;
  {
    const std::lock_guard<std::mutex> lock(joined_mutex);
    leaving = std::exchange(joined(), {});
  }
  // Groups that the program still holds keep the session's object, but not its thread.
  if (leaving.session != nullptr) leaving.session->stop();
}

void run_local(int ranks, const std::function<void(const Group& world)>& body,
               std::optional<double> timeout) {
  if (ranks < 1 || ranks > 4096) {
    fail(ErrorCode::kValue, "[run_local] ", ranks, " ranks: give 1 to 4096");
  }
  const double seconds = timeout_of(timeout);
  const Engine& engine = engine_for("cpu", "local", 0, ranks, true);
  const std::shared_ptr<Store> store = memory_store();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto session =
            std::make_shared<Session>(store, rank, ranks, seconds, true, notes_callers(timeout));
        struct Leaves {
          Session& session;
          ~Leaves() { session.stop(); }
        } const leaves{*session};
        const auto state =
            make_group(engine, rank, ranks, kCPU, "world", seconds, store.get(), session);
        session->watch(state);
        const Group world(state);
        world_of_thread = &world;
        body(world);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
      world_of_thread = nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace mytorch::distributed
