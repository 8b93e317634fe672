// The cost of the contract: a kernel called through the operator's slot, as the framework calls it,
// compared with a direct call of the same function. `bench_contract` repeats all in random order
// and prints medians.
#include <benchmark/benchmark.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/abi_ops/fmax.h"
#include "mytorch/abi_ops/maximum.h"
#include "mytorch/abi_ops/minimum.h"
#include "mytorch/backend.h"
#include "mytorch/backends.h"
#include "mytorch/mytorch.h"

namespace {

namespace sdk = mytorch::sdk;
using mytorch::Tensor;

constexpr uint32_t kAny =
    MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;

// Eight floats take about 2 ns, so the surrounding cost is visible.
template <class Args>
[[gnu::noinline]] void largest(mt_ctx& /*ctx*/, const Args& args) {
  const auto* a = static_cast<const float*>(args.self->dl.data);
  const auto* b = static_cast<const float*>(args.other->dl.data);
  auto* out = static_cast<float*>(args.out->dl.data);
  for (int i = 0; i < 8; ++i) out[i] = a[i] < b[i] ? b[i] : a[i];
}

const char* takes_floats(const mt_args_minimum& args) {
  return args.header.compute.code == MT_FLOAT ? nullptr : "only floats";
}

// Has a kernel for the program of fmax alone, which the host finds by the types of a call.
void compile(const mt_program& program, mt_dtype /*compute*/, std::span<const mt_dtype> /*types*/,
             mt_kernel_entry& kernel) {
  if (std::string_view(program.name) != "fmax") throw sdk::Declined{};
  kernel.name = "fmax";
  kernel.flags = kAny;
  kernel.run = &sdk::run_entry<&largest<mt_args_fmax>>;
}

int init(const mt_host* host, mt_backend* backend) {
  static constexpr mt_kernel_entry kKernels[] = {
      sdk::kernel<&largest<mt_args_maximum>>("any", kAny, 1000),
      sdk::kernel<&largest<mt_args_minimum>, &takes_floats>("floats", kAny, 1000),
  };
  return sdk::fill_backend(host, backend,
                           {.name = "bench",
                            .version = "1",
                            .device_type = "cpu",
                            .kernels = kKernels,
                            .compile = &sdk::compile_entry<&compile>,
                            .compile_priority = 1000});
}

// A prepared call.
template <class Args>
struct Call {
  explicit Call(const char* op) : entry(*mytorch::find_op(op)) {
    args.header = {sizeof(args), {MT_FLOAT, 32, 1}, 0, MT_ARGS_UNIFORM};
    args.self = &a.impl()->abi;
    args.other = &b.impl()->abi;
    args.out = &out.impl()->abi;
    ctx = mytorch::context(mytorch::kCpuSlot, {MT_DEVICE_CPU, 0});
  }
  Tensor a = mytorch::rand({8}), b = mytorch::rand({8}), out = mytorch::empty({8});
  Args args{};
  const mytorch::OpEntry& entry;
  mt_ctx* ctx;
};

void direct(benchmark::State& state) {
  const Call<mt_args_maximum> call("maximum");
  for (auto _ : state) {
    largest(*call.ctx, call.args);
    benchmark::ClobberMemory();
  }
}

template <class Args>
void through(benchmark::State& state, const char* op) {
  const Call<Args> call(op);
  for (auto _ : state) {
    if (!run_kernel(call.entry, mytorch::kCpuSlot, call.ctx, &call.args)) {
      state.SkipWithError("no kernel takes the call");
    }
    benchmark::ClobberMemory();
  }
}

void contract(benchmark::State& state) { through<mt_args_maximum>(state, "maximum"); }
// A kernel with `supports`, which the choice calls first.
void conditional(benchmark::State& state) { through<mt_args_minimum>(state, "minimum"); }
// A kernel compiled from the operator's program.
void compiled(benchmark::State& state) { through<mt_args_fmax>(state, "fmax"); }

BENCHMARK(direct);
BENCHMARK(contract);
BENCHMARK(conditional);
BENCHMARK(compiled);

}  // namespace

int main(int argc, char** argv) {
  mytorch::load_default_backends();
  mytorch::register_backend(init);
  std::vector<std::string> flags = {argv[0], "--benchmark_enable_random_interleaving=true",
                                    "--benchmark_repetitions=25", "--benchmark_min_time=0.02",
                                    "--benchmark_report_aggregates_only=true"};
  flags.insert(flags.end(), argv + 1, argv + argc);
  std::vector<char*> given;
  for (std::string& flag : flags) given.push_back(flag.data());
  int count = static_cast<int>(given.size());
  benchmark::Initialize(&count, given.data());
  if (benchmark::ReportUnrecognizedArguments(count, given.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
