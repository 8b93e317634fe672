// What FullyShardedDataParallel knows of its module, and what it does in each forward and backward.
//
// Each unit's parameters of one type lie one after the other in a buffer that is cut into equal
// shards, one for each rank. A gather therefore needs no copies, and the parameters of a module
// are, outside of its forward and backward, views of the rank's shard.
//
// With cpu_offload, shards and gradients are on the host. A gather begins with the copy of the
// shard to the device, and a reduction ends with the copy of its result to the host, both on a
// stream beside the thread's. The host waits for them at the end of a forward and of a backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/to.h"
#include "nn/parallel/side_copies.h"

namespace mytorch::nn {

namespace sharded {

using distributed::Work;

inline uint64_t storage_of(const Tensor& tensor) { return tensor.impl()->storage->abi.id; }

// A parameter of a unit.
struct Parameter {
  std::vector<std::string> names;
  std::vector<Tensor*> members;  // that hold it: several, if modules are tied
  std::vector<int64_t> sizes;
  int64_t numel;
  int64_t offset = 0;          // in the buffer
  int64_t begin = 0, end = 0;  // this rank's elements of it
  Tensor shard = {};           // these, which optimizers train
};

// Parameters of a unit with the same type, all trained or all frozen.
struct Flat {
  ScalarType dtype;
  bool trains;
  std::vector<Parameter> parameters = {};
  int64_t total = 0;   // elements of the buffer
  int64_t length = 0;  // and of a shard
  Tensor shard = {};   // (length), on the host with cpu_offload
  // Of which autograd takes whole parameters for results: the parameters' shards or, if these are
  // on the host, a tensor without elements beside the units, so that backward has one device.
  std::vector<Tensor> leaves = {};
  Tensor full = {};  // (total), while it is gathered
  Tensor sums = {};  // (total), gradients that were not reduced

  Tensor whole(const Parameter& p) const {
    return full.narrow(0, p.offset, p.numel).view(p.sizes).detach();
  }
};

struct Unit {
  Module* module;
  std::string name;
  std::vector<Flat> flats = {};
  std::vector<Work> works = {};  // gathers under way
  SideCopies::Mark copied = {};  // behind their copies, with cpu_offload
  bool gathered = false;         // or under way
  bool shown = false;            // whether the members are whole
  bool called = false;           // between the hooks before and after its forward
  size_t differentiated = 0;     // number of flats whose backward is done
  std::vector<HookHandle> hooks = {};

  size_t num_trained() const {
    return static_cast<size_t>(
        std::count_if(flats.begin(), flats.end(), [](const Flat& f) { return f.trains; }));
  }
};

}  // namespace sharded

struct FullyShardedDataParallel::State : std::enable_shared_from_this<State> {
  using Flat = sharded::Flat;
  using Unit = sharded::Unit;
  using Work = sharded::Work;

  // Gradients that are being reduced.
  struct Reduction {
    Flat* flat = nullptr;
    Tensor result = {};
    Work work = {};
  };
  // Reduced gradients that are being copied to the host.
  struct Arrival {
    Flat* flat;
    Tensor gradient;
  };
  struct Gather;
  struct Packed;

  distributed::Group group;
  // On which units compute: options.device, or the group's, or the parameters' of a rank alone.
  Device device = kCPU;
  FullyShardedDataParallelOptions options;
  std::vector<Unit> units;                                           // the outermost one first
  std::unordered_map<uint64_t, std::pair<size_t, size_t>> gathered;  // unit and flat, by storage
  // In which the last forward called units, and its backward began theirs; so far, in this one.
  std::vector<size_t> order, backward_order;
  std::vector<size_t> calls, backward_calls;
  Reduction reduction;
  std::vector<Arrival> arrivals;
  Tensor leaving;                  // the last of them, on the device
  sharded::SideCopies::Mark left;  // behind its copy
  int forwards = 0;                // scopes
  bool backward = false;           // whether a backward runs that reached a unit
  bool sync = true;
  bool alive = true;
  // Null without cpu_offload. The last member: its destructor waits for what others hold.
  std::unique_ptr<sharded::SideCopies> copies;

  // ---- construction ----

  void split(Module& module);
  void move_buffers(Module& module) const;
  void cut(Unit& unit);

  // ---- gathering ----

  void start(size_t index) {
    Unit& unit = units[index];
    if (unit.gathered) return;
    const NoGradGuard no_grad;
    for (size_t f = 0; f < unit.flats.size(); ++f) {
      Flat& flat = unit.flats[f];
      flat.full = mytorch::empty({flat.total}, compute_type(flat), device);
      gathered[sharded::storage_of(flat.full)] = {index, f};
    }
    const auto begin = [&] {
      for (const Flat& flat : unit.flats) {
        const Tensor shard = mytorch::to(flat.shard, device, {}, /*non_blocking=*/true);
        unit.works.push_back(
            group.all_gather(flat.full, shard.to(flat.full.dtype()), /*async=*/true));
      }
    };
    if (copies != nullptr) {
      unit.copied = copies->run(begin);
    } else {
      begin();
    }
    unit.gathered = true;
  }
  void finish_gather(Unit& unit) {
    for (Work& work : unit.works) work.wait();
    unit.works.clear();
    if (unit.copied != nullptr) copies->wait(std::exchange(unit.copied, nullptr));
  }
  void gather(size_t index) {
    start(index);
    finish_gather(units[index]);
  }
  void release(size_t index) {
    Unit& unit = units[index];
    show_shards(index);
    finish_gather(unit);
    for (Flat& flat : unit.flats) {
      if (flat.full.defined()) gathered.erase(sharded::storage_of(flat.full));
      flat.full = {};
    }
    unit.gathered = false;
    unit.called = false;
  }
  ScalarType compute_type(const Flat& flat) const {
    return is_floating_point(flat.dtype) ? options.mixed_precision.param_dtype.value_or(flat.dtype)
                                         : flat.dtype;
  }

  void show_shards(size_t index) {
    Unit& unit = units[index];
    if (!std::exchange(unit.shown, false)) return;
    for (const Flat& flat : unit.flats) {
      for (const sharded::Parameter& p : flat.parameters) {
        for (Tensor* member : p.members) *member = p.shard;
      }
    }
  }
  void show(Unit& unit, const Flat& flat, size_t i, const Tensor& whole) {
    unit.shown = true;
    for (Tensor* member : flat.parameters[i].members) *member = whole;
  }

  // ---- forward ----

  void begin();
  void end(bool failed);
  Tensor before(size_t index, const Tensor& input);
  void after(size_t index, const Tensor& output);

  // ---- backward ----

  void enter_backward();
  void before_backward(size_t index);
  void reduce(size_t index, size_t f, const std::vector<Tensor>& gradients);
  void finish_reduction();
  void add_gradient(const Flat& flat, const Tensor& gradient);
  // Wait for the copies to the host; the second adds what has arrived to the gradients.
  void forget_arrivals();
  void take_arrivals();
  void end_backward();
};

// What stands for a tensor that backward needs: the place of a whole parameter, or the tensor.
struct FullyShardedDataParallel::State::Packed {
  Tensor tensor;  // undefined for a place
  uint64_t version = 0;
  size_t unit = 0, flat = 0;
  std::vector<int64_t> sizes = {}, strides = {};
  int64_t offset = 0;
};

}  // namespace mytorch::nn
