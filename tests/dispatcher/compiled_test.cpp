// The look-up of kernels that a backend compiles from programs.
#include "dispatcher/choice/compiled.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/runtime/context.h"
#include "mytorch/abi_ops/amax.h"
#include "mytorch/abi_ops/hypot.h"
#include "mytorch/backends.h"
#include "mytorch/ops/amax.h"
#include "mytorch/ops/atan2.h"
#include "mytorch/ops/fmax.h"
#include "mytorch/ops/fmod.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/ops/logaddexp.h"
#include "tests/dispatcher/util.h"

// Counts the allocations of the calling thread.
static thread_local int num_allocations = 0;

static void* counted(size_t bytes) noexcept {
  ++num_allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}
static void* counted_or_throw(size_t bytes) {
  void* const memory = counted(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes) { return counted_or_throw(bytes); }
void* operator new[](size_t bytes) { return counted_or_throw(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace mytorch {
namespace {

using testing::add_backend_with;
using testing::FakeDevice;
using testing::kTakesAll;
using testing::values;
using testing::Values;

// What the backend answers for the programs of an operator.
struct Answer {
  uint32_t flags = kTakesAll;
  // Runs a call. `types` are those for which the kernel was compiled.
  std::function<int(const std::vector<mt_dtype>& types, const void* args)> run;
  std::function<void(mt_dtype compute)> compiling = nullptr;
};

// A backend that compiles the programs of some operators, and counts the requests.
class Compiler {
 public:
  static Compiler& get() {
    static Compiler* const one = new Compiler;  // as long as the backend
    return *one;
  }

  // Every test takes an operator of its own.
  void answer(const std::string& op, Answer answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answers_[op] = std::move(answer);
  }
  // How often the backend was asked about an operator, by compute type and operand types.
  std::vector<int> requests(const std::string& op) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<int> counts;
    for (const auto& [types, count] : requests_[op]) counts.push_back(count);
    return counts;
  }
  Device device() const { return device_.device(); }
  int slot() const { return device_.slot(); }

 private:
  struct Kernel {
    const Answer* answer;
    std::vector<mt_dtype> types;
  };

  Compiler()
      : device_(
            FakeDevice::create({"compiling", 1, [](const std::string& op) { return op == "copy_"; },
                                [](const mt_program&) { return false; }})) {
    register_backend([](const mt_host*, mt_backend* backend) {
      backend->name = "compiler";
      backend->version = "1.0";
      backend->device_type = "compiling";
      backend->compile = compile;
      backend->compile_priority = 5;
      return int{MT_OK};
    });
  }

  static int compile(void*, const mt_program* program, mt_dtype compute, const mt_dtype* types,
                     int32_t num_types, mt_kernel_entry* kernel) {
    Compiler& self = get();
    const Answer* answer = nullptr;
    {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      std::vector<uint32_t> key = {program->variant, dtype_bits(compute)};
      for (int32_t i = 0; i < num_types; ++i) key.push_back(dtype_bits(types[i]));
      ++self.requests_[program->name][key];
      const auto found = self.answers_.find(program->name);
      if (found == self.answers_.end()) return MT_DECLINED;
      answer = &found->second;
    }
    if (answer->compiling) answer->compiling(compute);
    kernel->flags = answer->flags;
    kernel->self = new Kernel{answer, {types, types + num_types}};
    kernel->run = [](void* made, mt_ctx*, const void* args) {
      const auto& [from, of] = *static_cast<const Kernel*>(made);
      return from->run(of, args);
    };
    return MT_OK;
  }

  FakeDevice& device_;
  std::mutex mutex_;
  std::map<std::string, Answer> answers_;
  std::map<std::string, std::map<std::vector<uint32_t>, int>> requests_;
};

Tensor ones_of(ScalarType dtype) {
  return tensor({1.0, 1.0}).to(dtype).to(Compiler::get().device());
}

// A call of a binary operator, ready for its kernel. All such operators have the same fields.
struct Call {
  explicit Call(const char* op, ScalarType dtype = kFloat32)
      : entry(*find_op(op)), a(ones_of(dtype)), b(ones_of(dtype)), out(ones_of(dtype)) {
    args.header.size = sizeof(args);
    args.header.compute = a.impl()->abi.dl.dtype;
    args.self = &a.impl()->abi;
    args.other = &b.impl()->abi;
    args.out = &out.impl()->abi;
    ctx = context(Compiler::get().slot(), a.impl()->abi.dl.device);
  }
  bool run() { return run_kernel(entry, Compiler::get().slot(), ctx, &args); }

  const OpEntry& entry;
  Tensor a, b, out;
  mt_args_hypot args{};
  mt_ctx* ctx;
};

TEST(CompiledKernels, EachCombinationOfTypesIsCompiledOnceForAllThreads) {
  std::atomic<int> wrong{0}, runs{0};
  Compiler::get().answer("fmax", {.run = [&](const std::vector<mt_dtype>& types, const void* raw) {
                           const auto& args = *static_cast<const mt_args_hypot*>(raw);
                           const mt_tensor* const operands[] = {args.self, args.other, args.out};
                           for (size_t i = 0; i < 3; ++i) {
                             wrong += dtype_bits(types[i]) != dtype_bits(operands[i]->dl.dtype);
                           }
                           ++runs;
                           return int{MT_OK};
                         }});
  std::vector<Tensor> all;
  for (const ScalarType dtype : {kFloat32, kFloat64, kInt16, kInt32, kInt64, kUInt8, kBFloat16}) {
    all.push_back(ones_of(dtype));
  }
  constexpr int kThreads = 8, kRounds = 20;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&all, t] {
      for (int i = 0; i < kRounds; ++i) {
        for (size_t k = 0; k < all.size() * all.size(); ++k) {
          const size_t at = (k * 5 + static_cast<size_t>(t)) % (all.size() * all.size());
          fmax(all[at / all.size()], all[at % all.size()]);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(runs, kThreads * kRounds * static_cast<int>(all.size() * all.size()));
  EXPECT_EQ(Compiler::get().requests("fmax"), std::vector<int>(all.size() * all.size(), 1));
}

TEST(CompiledKernels, ACallOfKnownTypesAllocatesNothing) {
  // A kernel that takes every call, and one for which the host looks at the operands.
  for (const uint32_t flags : {kTakesAll, uint32_t{0}}) {
    const char* const op = flags != 0 ? "hypot" : "atan2";
    int runs = 0;
    Compiler::get().answer(op, {.flags = flags, .run = [&](const auto&, const void*) {
                                  ++runs;
                                  return int{MT_OK};
                                }});
    Call call(op);
    Call other(op, kFloat64);
    ASSERT_TRUE(call.run() && other.run());
    const int before = num_allocations;
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(call.run() && other.run());
    EXPECT_EQ(num_allocations, before) << op;
    EXPECT_EQ(runs, 202) << op;
  }
  auto* const counts = new int;  // so that the test fails if nothing is counted
  EXPECT_GT(num_allocations, 0);
  delete counts;
}

TEST(CompiledKernels, AKnownCallDoesNotWaitForACompilation) {
  std::promise<void> begun, end;
  std::shared_future<void> ended(end.get_future());
  Compiler::get().answer("logaddexp", {.run = [](const auto&, const void*) { return int{MT_OK}; },
                                       .compiling =
                                           [&](mt_dtype compute) {
                                             if (compute.bits != 64) return;
                                             begun.set_value();
                                             ended.wait();
                                           }});
  logaddexp(ones_of(kFloat32), ones_of(kFloat32));
  const Tensor wide = ones_of(kFloat64);
  auto slow = std::async(std::launch::async, [&] { logaddexp(wide, wide); });
  begun.get_future().wait();
  auto fast = std::async(std::launch::async, [] {
    for (int i = 0; i < 10; ++i) logaddexp(ones_of(kFloat32), ones_of(kFloat32));
  });
  EXPECT_EQ(fast.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  end.set_value();
  slow.get();
  fast.get();
}

TEST(CompiledKernels, ARefusalIsKept) {
  add_backend_with(
      "beside-compiler", "compiling",
      {{"remainder.Tensor", "any", 0, kTakesAll, [](mt_ctx*, const void*) { return 0; }}});
  Call call("remainder.Tensor");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(call.run());
  EXPECT_EQ(Compiler::get().requests("remainder.Tensor"), std::vector<int>{1});
}

TEST(CompiledKernels, ACallThatOneDeclinesGoesToTheNextKernel) {
  int runs = 0;
  Compiler::get().answer("fmod.Tensor", {.run = [](const auto&, const void* args) {
                           const auto* out = static_cast<const mt_args_hypot*>(args)->out;
                           if (testing::numel(out) != 2) return int{MT_DECLINED};
                           return testing::fill_out(out, 7);
                         }});
  add_backend_with("under-compiler", "compiling",
                   {{"fmod.Tensor", "any", 0, kTakesAll, [&](mt_ctx*, const void* args) {
                       ++runs;
                       return testing::fill_out(static_cast<const mt_args_hypot*>(args)->out, 8);
                     }}});
  const Tensor two = ones_of(kFloat32);
  const Tensor three = tensor({0.0, 0.0, 0.0}).to(Compiler::get().device());
  EXPECT_EQ(values(fmod(two, two)), (Values{7, 7}));
  EXPECT_EQ(values(fmod(three, three)), (Values{8, 8, 8}));
  EXPECT_EQ(values(fmod(two, two)), (Values{7, 7}));
  EXPECT_EQ(runs, 1);
}

// Pointwise kernels without MT_TAKES_ALIAS, and reductions, which may lack it, get other memory.
TEST(CompiledKernels, OneThatTakesNoAliasGetsNone) {
  int runs = 0;
  Compiler::get().answer("amax", {.flags = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES,
                                  .run = [&](const auto&, const void* raw) {
                                    const auto& args = *static_cast<const mt_args_amax*>(raw);
                                    EXPECT_NE(args.self->dl.data, args.out->dl.data);
                                    ++runs;
                                    return testing::fill_out(args.out, 3);
                                  }});
  Tensor x = tensor({0.0, 0.0, 0.0, 0.0}).view({4, 1}).to(Compiler::get().device());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(values(amax(x, {1}, true)), (Values{3, 3, 3, 3}));
    amax_out(x, x, {1}, true);
    EXPECT_EQ(values(x), (Values{3, 3, 3, 3}));
  }
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace mytorch
