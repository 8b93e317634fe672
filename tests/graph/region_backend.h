// A backend that claims what a test wants, and runs its regions by the operators of mytorch: its
// results have the bits of eager calls.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/runtime/device_registry.h"
#include "graph/steps/interpret.h"
#include "mytorch/backend/region.h"
#include "mytorch/backends.h"
#include "mytorch/tensor_impl.h"
#include "tests/graph/device.h"

namespace mytorch {

// What one of the two backends does. A test sets it and resets it.
struct RegionBehavior {
  std::function<void(const sdk::Region&, std::span<int32_t>)> claim;
  std::function<void(const sdk::Region&)> compile;  // may throw, to decline
  std::function<void(const mt_region_args&)> run;   // before the operators; may throw
  uint64_t scratch_bytes = 0;                       // besides those of the operators' results
  uint32_t flags = 0;                               // of compiled regions
  int claims = 0, compiled = 0, destroyed = 0;
};
inline RegionBehavior& region_behavior(int which = 0) {
  static auto* const behaviors = new RegionBehavior[2];
  return behaviors[which];
}

// Gives every node one number.
inline void claim_all(const sdk::Region&, std::span<int32_t> wanted) {
  std::fill(wanted.begin(), wanted.end(), 1);
}

// Runs the nodes of a region one by one.
class InterpretedRegion {
 public:
  explicit InterpretedRegion(const sdk::Region& region) : device_(device_of(region)) {
    for (int32_t id = 0; id < region.num_values(); ++id) {
      const mt_region_value& of = region.value(id);
      values_.push_back({of, to_dims(region.shape(id)), to_dims(region.strides(id))});
    }
    for (int32_t i = 0; i < region.abi().num_memories; ++i) {
      memories_.push_back({region.abi().memory_bytes[i], scratch_, false});
      scratch_ += (memories_.back().bytes + 63) / 64 * 64;
    }
    for (const Value& value : values_) {
      if (value.abi.kind != MT_REGION_INSIDE) memories_[value.abi.memory].is_host = true;
    }
    for (const sdk::RegionNode node : region.nodes()) add(node);
  }

  uint64_t scratch_bytes() const { return scratch_; }

  void run(const mt_region_args& args) const {
    std::vector<Tensor> tensors;
    std::vector<void*> begins(memories_.size());
    for (size_t m = 0; m < memories_.size(); ++m) {
      begins[m] = static_cast<char*>(args.scratch) + memories_[m].offset;
    }
    for (const Value& value : values_) {
      const void* data = value.abi.kind == MT_REGION_CONSTANT ? value.abi.data
                         : value.abi.kind == MT_REGION_INPUT ? args.inputs[value.abi.index]->dl.data
                         : value.abi.kind == MT_REGION_OUTPUT
                             ? args.outputs[value.abi.index]->dl.data
                             : nullptr;
      if (data == nullptr) continue;
      begins[value.abi.memory] =
          static_cast<char*>(const_cast<void*>(data)) - value.abi.offset * bytes_of(value);
    }
    // One storage for each memory, by which operators see that operands overlap.
    std::vector<Storage*> storages;
    for (size_t m = 0; m < memories_.size(); ++m) {
      storages.push_back(wrap_storage(
          device_, begins[m], memories_[m].bytes, [](void*) {}, nullptr));
    }
    for (const Value& value : values_) {
      Storage* storage = storages[value.abi.memory];
      detail::retain(storage);
      tensors.push_back(
          Tensor::adopt(new_tensor_over(storage, as_list(value.sizes), as_list(value.strides),
                                        from_abi(value.abi.dtype), value.abi.offset)));
    }
    for (Storage* storage : storages) detail::release_last(storage);  // the tensors have it
    for (const Node& node : nodes_) run(node, args, tensors);
  }

 private:
  struct Value {
    mt_region_value abi;
    Dims sizes, strides;
  };
  struct Memory {
    uint64_t bytes;
    uint64_t offset;  // in the scratch memory
    bool is_host;
  };
  struct Node {
    graph::GraphNode call;
    std::vector<std::pair<size_t, int32_t>> random;  // an argument, and the call that it takes
    std::vector<int32_t> results;
    std::vector<bool> fresh;  // of the results: whether they are no views
  };

  static Dims to_dims(std::span<const int64_t> list) { return Dims(list.begin(), list.end()); }
  static int64_t bytes_of(const Value& value) { return value.abi.dtype.bits / 8; }
  static Device device_of(const sdk::Region& region) {
    return {region.abi().device.type, region.abi().device.index};
  }

  void add(const sdk::RegionNode& node) {
    Node made;
    made.call.entry = find_op(node.op());
    if (made.call.entry->info->hash != node.abi().hash) throw std::runtime_error("another schema");
    made.call.form = node.abi().form == MT_REGION_INPLACE ? kInplace
                     : node.abi().form == MT_REGION_OUT   ? kOut
                                                          : kFunction;
    std::vector<bool> known(values_.size());
    for (int32_t i = 0; i < node.num_args(); ++i) {
      const mt_region_arg& arg = node.arg(i);
      if (arg.kind == MT_REGION_ARG_RANDOM) made.random.emplace_back(i, arg.v.random);
      made.call.args.push_back(argument(arg));
      for (const graph::ValueId id : made.call.args.back().values) {
        if (id >= 0) known[values_[id].abi.memory] = true;
      }
    }
    made.call.wanted = 0;
    for (size_t i = 0; i < node.results().size(); ++i) {
      const int32_t id = node.results()[i];
      made.results.push_back(id);
      made.fresh.push_back(id >= 0 && !known[values_[id].abi.memory]);
      if (id >= 0) made.call.wanted |= 1u << (i % 32);
    }
    // interpret() compares the number of results with that of the schema.
    made.call.results.resize(made.call.form == kFunction && !made.results.empty()
                                 ? num_results(*made.call.entry->info)
                                 : 0);
    nodes_.push_back(std::move(made));
  }
  // The number of results of the schema, in which a list is one.
  static size_t num_results(const OpInfo& op) {
    const std::string_view schema = op.schema;
    const std::string_view results = schema.substr(schema.rfind("->") + 2);
    return static_cast<size_t>(std::count(results.begin(), results.end(), ',')) + 1;
  }

  static graph::Arg argument(const mt_region_arg& arg) {
    graph::Arg found;
    const auto count = static_cast<size_t>(arg.count);
    switch (arg.kind) {
      case MT_REGION_ARG_VALUES:
        found.kind = arg.list != 0 ? graph::Arg::kTensors : graph::Arg::kTensor;
        found.values.assign(arg.v.values, arg.v.values + count);
        break;
      case MT_REGION_ARG_NUMBER:
        found.constant = arg.v.number.kind == MT_SCALAR_BOOL
                             ? mytorch::Value(Scalar(arg.v.number.v.i != 0))
                             : mytorch::Value(Scalar(arg.v.number));
        break;
      case MT_REGION_ARG_INTS:
        found.constant = std::vector<int64_t>(arg.v.ints, arg.v.ints + count);
        break;
      case MT_REGION_ARG_FLOATS:
        found.constant = std::vector<double>(arg.v.floats, arg.v.floats + count);
        break;
      case MT_REGION_ARG_STRING:
        found.constant = std::string(arg.v.string);
        break;
      case MT_REGION_ARG_DTYPE:
        found.constant = from_abi(arg.v.dtype);
        break;
      case MT_REGION_ARG_DEVICE:
        found.constant = Device(arg.v.device.type, arg.v.device.index);
        break;
      default:
        break;
    }
    return found;
  }

  void run(const Node& node, const mt_region_args& args, const std::vector<Tensor>& tensors) const {
    graph::GraphNode call = node.call;
    for (const auto& [at, random] : node.random) {
      Generator generator(args.random[random].seed);
      generator.set_call(args.random[random].call);
      call.args[at].constant = generator;
    }
    const std::vector<mytorch::Value> results =
        graph::interpret(call, [&](graph::ValueId id) { return tensors[id]; });
    size_t at = 0;
    for (const mytorch::Value& result : results) {
      for (const Tensor& tensor : graph::tensors_of(result)) {
        const int32_t id = node.results.at(at);
        if (node.fresh[at++]) tensors[id].copy_(tensor);
      }
    }
  }

  Device device_;
  std::vector<Value> values_;
  std::vector<Memory> memories_;
  std::vector<Node> nodes_;
  uint64_t scratch_ = 0;
};

template <int which>
class TestRegion final : public sdk::CompiledRegion {
 public:
  explicit TestRegion(const sdk::Region& region) : region_(checked(region)) {
    ++region_behavior(which).compiled;
  }
  ~TestRegion() override { ++region_behavior(which).destroyed; }
  uint64_t scratch_bytes() const override {
    return region_.scratch_bytes() + region_behavior(which).scratch_bytes;
  }
  uint32_t flags() const override { return region_behavior(which).flags; }
  void run(mt_ctx&, const mt_region_args& args) override {
    if (region_behavior(which).run) region_behavior(which).run(args);
    region_.run(args);
  }

 private:
  static const sdk::Region& checked(const sdk::Region& region) {
    if (region_behavior(which).compile) region_behavior(which).compile(region);
    return region;
  }
  InterpretedRegion region_;
};

template <int which>
void claim_for_test(const sdk::Region& region, std::span<int32_t> wanted) {
  RegionBehavior& behavior = region_behavior(which);
  ++behavior.claims;
  if (behavior.claim) behavior.claim(region, wanted);
}

template <int which>
mt_region_ops& test_region_ops() {
  static auto* const ops =
      new mt_region_ops(sdk::region_ops<&claim_for_test<which>, TestRegion<which>>());
  return *ops;
}

inline const std::string& test_device_type() {
  static const std::string* const type = [] {
    const std::string name = test_device().str();
    return new std::string(name.substr(0, name.find(':')));
  }();
  return *type;
}

template <int which>
int init_test_regions(const mt_host* host, mt_backend* backend) {
  return sdk::fill_backend(host, backend,
                           {.name = which == 0 ? "regions-a" : "regions-b",
                            .version = "1",
                            .device_type = test_device_type().c_str(),
                            .kernels = {},
                            .compile_priority = which == 0 ? 1 : 2,
                            .regions = &test_region_ops<which>()});
}

// Registers both backends once, and resets what they do: claim nothing, exact.
inline void reset_test_regions() {
  static const bool once = [] {
    load_default_backends();
    register_backend(init_test_regions<0>);
    register_backend(init_test_regions<1>);
    return true;
  }();
  (void)once;
  for (int which = 0; which < 2; ++which) region_behavior(which) = {};
  test_region_ops<0>().flags = test_region_ops<1>().flags = MT_REGIONS_EXACT;
}

}  // namespace mytorch
