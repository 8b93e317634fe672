// Process groups: what several ranks of a program, in threads, processes or on several machines,
// compute together. docs/distributed.md introduces them.
//
//   distributed::Group world = distributed::init();
//   world.all_reduce(gradient, {distributed::ReduceOp::kAverage});
//
// The collectives that take part in differentiation are operators: all_reduce, reduce, broadcast,
// all_gather_into_tensor, all_gather_v, reduce_scatter_tensor, reduce_scatter_v, all_to_all_single,
// gather_into_tensor, scatter_tensor, send, recv. A Group converts to their argument `group`.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/abi_comm.h"
#include "mytorch/device.h"
#include "mytorch/distributed/store.h"
#include "mytorch/handle.h"
#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::distributed {

enum class ReduceOp : int {
  kSum = MT_REDUCE_SUM,  // of bools, the disjunction
  kProduct = MT_REDUCE_PRODUCT,
  kMin = MT_REDUCE_MIN,
  kMax = MT_REDUCE_MAX,
  kAverage = MT_REDUCE_AVERAGE,
};
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;  // multiplies floating elements before they are summed or averaged
};
// Returns the reduction named "sum", "product", "min", "max" or "avg"; `op` begins the message of
// the Error(kValue) for another name.
ReduceOp reduce_op_from_name(std::string_view name, const char* op);

// A call that may be under way. It keeps the operands alive, which must not be touched before
// wait().
class Work {
 public:
  Work() = default;  // done
  // On the CPU, returns when the call has finished, and throws its Error. On a device, makes the
  // thread's stream wait for it, and returns at once.
  void wait();
  bool done() const;  // on the CPU; on a device, whether the host has seen it finish

  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct GroupState;

// Ranks that call collectives together; copies are the same group. Every rank makes the calls of a
// group in the same order. A tensor may have any strides and is on the group's kind of device.
// Collectives here write their arguments and record no gradient.
//
// Throw Error(kValue, kShape, kType, kDevice) for bad arguments, and Error(kIo) if the call has not
// finished by the deadline, a rank has died, or the engine failed: the message names ranks, numbers
// and calls. After such an error the group refuses everything.
class Group {
 public:
  Group() = default;  // no group
  explicit Group(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}

  bool defined() const { return state_ != nullptr; }
  int rank() const;
  int size() const;
  Device device() const;  // of this rank
  const std::string& name() const;
  const std::string& engine() const;
  uint64_t sequence() const;  // number of calls so far, without messages
  operator Handle() const;    // NOLINT: a group is an argument of operators

  // -- sub-groups; collective over this group --
  // Ranks of one color form a group, in the order of keys, then ranks. Without color: in none, the
  // result is undefined.
  Group split(std::optional<int> color, int key = 0) const;
  // Returns the group of these ranks of this group, undefined on the others.
  Group subgroup(const std::vector<int>& ranks) const;

  // -- collectives --
  Work broadcast(const Tensor& tensor, int src, bool async = false) const;
  Work all_reduce(const Tensor& tensor, Reduction reduction = {}, bool async = false) const;
  // `tensor` of `dst` receives the result; the others are unchanged.
  Work reduce(const Tensor& tensor, int dst, Reduction reduction = {}, bool async = false) const;
  // `all` has dimension 0 times the group's size, and on other ranks than `dst` is not read.
  Work gather(const Tensor& all, const Tensor& tensor, int dst, bool async = false) const;
  Work scatter(const Tensor& tensor, const Tensor& all, int src, bool async = false) const;
  Work all_gather(const Tensor& all, const Tensor& tensor, bool async = false) const;
  // Rank i contributes `rows[i]` rows, along dimension 0.
  Work all_gather_v(const Tensor& all, const Tensor& tensor, IntList rows,
                    bool async = false) const;
  Work reduce_scatter(const Tensor& tensor, const Tensor& all, Reduction reduction = {},
                      bool async = false) const;
  Work reduce_scatter_v(const Tensor& tensor, const Tensor& all, IntList rows,
                        Reduction reduction = {}, bool async = false) const;
  Work all_to_all(const Tensor& received, const Tensor& sent, bool async = false) const;
  Work all_to_all_v(const Tensor& received, const Tensor& sent, IntList received_rows,
                    IntList sent_rows, bool async = false) const;
  void barrier() const;
  // Starts the calls of this group that `body` makes when it returns: together, as one kernel, if
  // the engine can (NCCL), otherwise one after the other. They are asynchronous (others are an
  // Error(kValue)); the returned Work, like each of theirs, is done when all of them are. An
  // exception of `body` is rethrown, and no call is started.
  Work coalesced(const std::function<void()>& body) const;

  // -- point to point --
  void send(const Tensor& tensor, int to) const;
  void recv(const Tensor& tensor, int from) const;
  // Sends and receives at the same time, as in a ring.
  struct Message {
    Tensor tensor;
    int peer;
    bool sends;
  };
  Work exchange(const std::vector<Message>& messages, bool async = false) const;

  // Ends the group: calls under way, here and on the other ranks, fail with this reason.
  void abort(const std::string& reason) const;

  const std::shared_ptr<GroupState>& state() const { return state_; }

 private:
  std::shared_ptr<GroupState> state_;
};

// What is not given is taken from the launcher: `mytorch launch`, mpirun, or srun.
struct InitOptions {
  std::optional<int> rank = {};  // RANK, or the launcher's variable
  std::optional<int> size = {};  // WORLD_SIZE
  // Where rank 0 serves the store: "host:port"; MASTER_ADDR and MASTER_PORT. Not needed with MPI.
  std::string address = {};
  Device device = kCPU;     // a device with indices is chosen by the rank on its machine
  std::string engine = {};  // "nccl", "mpi", "local"; default: the device's best one
  // The deadline of calls in seconds; MYTORCH_DISTRIBUTED_TIMEOUT, or 600. 0: none
  std::optional<double> timeout = {};
  std::shared_ptr<Store> store = nullptr;  // instead of one at `address`
};
// Joins the group of all ranks of the program and returns it; world() returns it from then on.
// Throws Error(kValue) if rank, size or address are missing or contradict each other, and
// Error(kUnsupported), with the reason of each engine, if none serves.
Group init(InitOptions options = {});
// Returns the group that this thread, or else the process, has joined; before init, the group of
// this rank alone.
Group world();
bool initialized();
// Leaves the group, after all other ranks have come to leave, or some seconds.
void finalize();

// Runs `body` on `ranks` threads, each of which is a rank of a group, world() on that thread.
// Rethrows the Error of the lowest rank that failed.
void run_local(int ranks, const std::function<void(const Group& world)>& body,
               std::optional<double> timeout = {});

// Ranks in a grid with named dimensions, the last of which varies fastest:
//
//   DeviceMesh mesh(world, {{"dp", 4}, {"tp", 2}});
//   mesh.group("tp").all_reduce(x);  // over the ranks that differ in "tp" alone
class DeviceMesh {
 public:
  using Dimension = std::pair<std::string, int>;
  // Collective over `world`, whose size is the product of the dimensions'.
  DeviceMesh(const Group& world, std::vector<Dimension> dimensions);
  const std::vector<Dimension>& dimensions() const { return dimensions_; }
  const Group& world() const { return world_; }
  // Throw Error(kValue), listing the names, for an unknown one.
  const Group& group(std::string_view name) const;
  int size(std::string_view name) const;
  int coordinate(std::string_view name) const;  // of this rank
  // Returns the group of several dimensions, whose ranks are ordered as in the mesh. Collective
  // over the mesh.
  Group flatten(const std::vector<std::string>& names) const;

 private:
  size_t index_of(std::string_view name) const;
  Group world_;
  std::vector<Dimension> dimensions_;
  std::vector<int> coordinates_;
  std::vector<Group> groups_;
};

// Returns a line for each of the last 1000 calls of the process: rank, group, number, signature,
// state and time.
std::string flight_record();

struct EngineInfo {
  std::string name;
  std::string version;
  std::string device_type;
  std::string path;
  std::string error;  // why it could not be loaded, or ""
};
std::vector<EngineInfo> engine_infos();
// Registers an engine that is linked into the program.
void register_engine(mt_comm_init_fn init);

}  // namespace mytorch::distributed
