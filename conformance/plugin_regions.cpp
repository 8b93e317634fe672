// Tests of a plug-in's regions (mytorch/abi_region.h).
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "conformance/plugin.h"
#include "dispatcher/table/op.h"
#include "mytorch/abi_region.h"
#include "mytorch/backends.h"
#include "mytorch/compile.h"
#include "mytorch/device.h"
#include "mytorch/device_memory.h"
#include "mytorch/error.h"
#include "mytorch/generator.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/tanh.h"

namespace mytorch::conformance {
namespace {

const mt_region_ops& ops_of(Plugin& plugin) {
  const mt_backend& b = plugin.filled();
  if (b.size < offsetof(mt_backend, regions) + sizeof(b.regions) || b.regions == nullptr) {
    throw Skipped{"the backend takes no regions"};
  }
  return *b.regions;
}

void region_tables(const std::string& path) {
  Plugin plugin(path);
  const mt_region_ops& ops = ops_of(plugin);
  promise(ops.size >= offsetof(mt_region_ops, compile) + sizeof(ops.compile),
          "mt_region_ops::size is too small");
  promise(ops.claim != nullptr && ops.compile != nullptr, "claim or compile is missing");
  promise((ops.flags & ~uint32_t{MT_REGIONS_EXACT}) == 0, "unknown flags");
}

// A region of one node over float32 vectors, in structs of a host that knows more fields.
class OneNode {
 public:
  OneNode(const char* op, uint64_t hash, int32_t form) {
    for (int32_t id = 0; id < 2; ++id) {
      mt_region_value value{};
      value.kind = id == 0 ? MT_REGION_INPUT : MT_REGION_OUTPUT;
      value.memory = id;
      value.dtype = {MT_FLOAT, 32, 1};
      value.ndim = 1;
      value.shape = &kSize;
      value.strides = &kStride;
      values_[id].known = value;
    }
    for (auto& arg : args_) {
      arg.known.name = "self";
      arg.known.kind = MT_REGION_ARG_VALUES;
      arg.known.count = 1;
      arg.known.v.values = kIds;
    }
    node_.known.op = op;
    node_.known.hash = hash;
    node_.known.form = form;
    node_.known.num_args = 1;
    node_.known.num_results = 1;
    node_.known.args = &args_[0].known;
    node_.known.results = kIds + 1;
    region_.size = sizeof(region_);
    region_.name = "region";
    region_.num_nodes = 1;
    region_.num_values = region_.num_memories = 2;
    region_.num_inputs = region_.num_outputs = 1;
    region_.node_size = sizeof(node_);
    region_.value_size = sizeof(values_[0]);
    region_.arg_size = sizeof(args_[0]);
    region_.nodes = &node_.known;
    region_.values = &values_[0].known;
    region_.memory_bytes = kBytes;
    region_.inputs = kIds;
    region_.outputs = kIds + 1;
  }
  mt_region& region() { return region_; }
  mt_region_arg& arg() { return args_[0].known; }
  mt_region_value& value(int32_t id) { return values_[id].known; }

  // Has the backend compile the region, if it claims it or `always`. Returns whether it did.
  bool compiles(Plugin& plugin, const mt_region_ops& ops, bool always) {
    int32_t wanted[2] = {0, -7};
    const int claimed = ops.claim(plugin.self(), &region_, wanted);
    promise(wanted[1] == -7, "claim writes beyond the numbers of the nodes");
    if (!always && (claimed != MT_OK || wanted[0] <= 0)) return false;
    mt_compiled_region compiled{};
    compiled.size = sizeof(compiled);
    if (ops.compile(plugin.self(), &region_, &compiled) != MT_OK) return false;
    promise(compiled.run != nullptr, "compile succeeds without a function to run");
    if (compiled.destroy != nullptr) compiled.destroy(compiled.self);
    return true;
  }

 private:
  template <class T>
  struct Longer {
    T known{};
    char more[24] = {};
  };
  static constexpr int64_t kSize = 8, kStride = 1;
  static constexpr int32_t kIds[2] = {0, 1};
  static constexpr uint64_t kBytes[2] = {32, 32};
  Longer<mt_region_value> values_[2];
  Longer<mt_region_arg> args_[2];
  Longer<mt_region_node> node_;
  mt_region region_{};
};

void region_nothing(const std::string& path) {
  Plugin plugin(path);
  const mt_region_ops& ops = ops_of(plugin);
  OneNode node("relu", 0, MT_REGION_FUNCTION);
  node.region().num_nodes = 0;
  int32_t wanted = -7;
  ops.claim(plugin.self(), &node.region(), &wanted);
  promise(wanted == -7, "claim writes numbers for a region without nodes");
}

void region_unknown(const std::string& path) {
  Plugin plugin(path);
  const mt_region_ops& ops = ops_of(plugin);
  OneNode other("no_library::no_operator", 12345, MT_REGION_FUNCTION);
  promise(!other.compiles(plugin, ops, true), "it compiles an operator that does not exist");
  for (const OpEntry* entry : all_ops()) {
    OneNode later(entry->info->name, entry->info->hash + 1, MT_REGION_FUNCTION);
    promise(!later.compiles(plugin, ops, false),
            std::string("it claims ") + entry->info->name + " of another schema");
  }
}

// What a host of this version would not send: compile may refuse it, and must not crash.
void region_malformed(const std::string& path) {
  Plugin plugin(path);
  const mt_region_ops& ops = ops_of(plugin);
  for (const OpEntry* entry : all_ops()) {
    const OpInfo& op = *entry->info;
    for (int32_t form = 0; form < 3; ++form)
      OneNode(op.name, op.hash, form).compiles(plugin, ops, true);
    OneNode kind(op.name, op.hash, MT_REGION_FUNCTION);
    kind.arg().kind = 99;  // of a later version
    promise(!kind.compiles(plugin, ops, true) || op.num_args == 0,
            std::string("it compiles ") + op.name + " with an argument of an unknown kind");
    OneNode type(op.name, op.hash, MT_REGION_FUNCTION);
    type.value(0).dtype = type.value(1).dtype = {99, 24, 1};
    promise(!type.compiles(plugin, ops, false),
            std::string("it claims ") + op.name + " of a type that does not exist");
  }
}

// Functions of which a backend may take parts.
Tensor chain(const Tensor& x, double number) { return tanh(relu(x + number) * x); }
Tensor product(const Tensor& x, double number) { return relu(mm(x, x) + x * number); }
using Function = Tensor (*)(const Tensor&, double);

struct Runs {
  int64_t regions = 0;
  std::vector<Tensor> results;
};
Runs run_often(Function f, const Tensor& x, double number, int calls) {
  auto compiled = compile([=](const Tensor& of) { return f(of, number); });
  Runs runs;
  for (int i = 0; i < calls; ++i) runs.results.push_back(compiled(x));
  runs.regions = compiled.stats().regions;
  synchronize(x.device());  // other threads, which have streams of their own, read the results
  return runs;
}

Tensor drawn(const std::string& path, uint64_t seed) {
  Plugin plugin(path);
  ops_of(plugin);
  load_backend(path);
  const std::string type = plugin.filled().device_type;
  allow_fallback(true);
  Tensor x = randn({48, 48}, kFloat32, {}, Generator(seed)).to(Device(type));
  synchronize(x.device());
  return x;
}

void region_repeats(const std::string& path) {
  const Tensor x = drawn(path, 1);
  bool any = false;
  for (const Function f : {chain, product}) {
    const Runs runs = run_often(f, x, 1, 6);
    any = any || runs.regions > 0;
    for (size_t i = 3; i < runs.results.size(); ++i) {
      promise(equal(runs.results[i], runs.results[2]), "two runs of a region differ");
    }
  }
  if (!any) throw Skipped{"it takes no node of the functions of this test"};
}

// Each thread has a region of its own, with another number.
void region_threads(const std::string& path) {
  const Tensor x = drawn(path, 2);
  for (const Function f : {chain, product}) {
    std::vector<std::thread> all;
    std::vector<Runs> runs(3), expected;
    for (size_t i = 0; i < runs.size(); ++i) {
      expected.push_back(run_often(f, x, static_cast<double>(i), 3));
    }
    for (size_t i = 0; i < runs.size(); ++i) {
      all.emplace_back([&, i] { runs[i] = run_often(f, x, static_cast<double>(i), 100); });
    }
    for (std::thread& thread : all) thread.join();
    for (size_t i = 0; i < runs.size(); ++i) {
      for (size_t call = 2; call < runs[i].results.size(); ++call) {
        promise(equal(runs[i].results[call], expected[i].results[2]),
                "regions in several threads disturb each other: call " + std::to_string(call) +
                    " of " + std::to_string(runs[i].regions) + " regions differs from one of " +
                    std::to_string(expected[i].regions));
      }
    }
  }
}

}  // namespace

void add_region_tests(std::vector<ContractTest>& tests) {
  tests.push_back({"regions", "the entries for regions are complete", region_tables});
  tests.push_back({"regions-nothing", "claim takes a region without nodes", region_nothing});
  tests.push_back({"regions-unknown",
                   "operators and schemas that the backend does not know are not claimed",
                   region_unknown});
  tests.push_back({"regions-malformed",
                   "compile refuses what it cannot read, in structs that may be longer",
                   region_malformed});
  tests.push_back({"regions-repeat", "a region computes the same in each run", region_repeats});
  tests.push_back({"regions-threads", "regions run in several threads", region_threads});
}

}  // namespace mytorch::conformance
